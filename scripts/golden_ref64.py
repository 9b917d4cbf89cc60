"""A transformer's logits in NumPy float64 from a GGUF file: the independent reference of golden_models.py.

Written from the papers and the GGUF conventions, not from transformers, so that the two can disagree:
RMSNorm (Zhang and Sennrich 2019), RoPE (Su et al. 2021, eq. 34), GQA (Ainslie et al. 2023), SwiGLU
(Shazeer 2020), sliding windows (Beltagy et al. 2020: W keys, the query's own included). Quadratic, no
cache, for a few dozen tokens.
"""
import gguf
import numpy as np


def _field(reader, key, default=None):
    f = reader.fields.get(key)
    return default if f is None else f.contents()


def _tensors(reader):
    out = {}
    for t in reader.tensors:
        x = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64)
        out[t.name] = x.reshape([int(n) for n in t.shape][::-1])
    return out


def _rms(x, w, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def _rope(x, base, divide, stretch, interleaved):
    """Rotates x [T, H, D]; pairs are neighbours (llama files) or D/2 apart (all others)."""
    t, _, d = x.shape
    freq = base ** (-np.arange(0, d, 2) / d) / divide / stretch
    angle = np.arange(t)[:, None] * freq
    cos, sin = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = (x[..., 0::2], x[..., 1::2]) if interleaved else (x[..., : d // 2], x[..., d // 2:])
    a, b = a * cos - b * sin, a * sin + b * cos
    return np.stack([a, b], -1).reshape(x.shape) if interleaved else np.concatenate([a, b], -1)


def _attend(q, k, v, scale, window):
    """q [T, QHeads, D], k and v [T, KVHeads, D] -> [T, QHeads*D]."""
    t, heads, d = q.shape
    group = heads // k.shape[1]
    distance = np.arange(t)[:, None] - np.arange(t)
    visible = (distance >= 0) & (distance < (window or t + 1))
    out = np.empty_like(q)
    for h in range(heads):
        s = np.where(visible, q[:, h] @ k[:, h // group].T * scale, -np.inf)
        p = np.exp(s - s.max(-1, keepdims=True))
        out[:, h] = p / p.sum(-1, keepdims=True) @ v[:, h // group]
    return out.reshape(t, heads * d)


def _is_local(reader, arch, layer):
    """Whether a layer has the sliding window: all of them in llama files, five of six in gemma3 files."""
    pattern = _field(reader, f"{arch}.attention.sliding_window_pattern", 6 if arch == "gemma3" else 0)
    if isinstance(pattern, list):
        return bool(pattern[layer])
    return pattern == 0 or (layer + 1) % pattern != 0


def logits(path, tokens):
    """[len(tokens), vocabulary] float64."""
    r = gguf.GGUFReader(path)
    arch = _field(r, "general.architecture")
    get = lambda key, default=None: _field(r, f"{arch}.{key}", default)
    w = _tensors(r)
    gemma = arch == "gemma3"
    width, heads, kv_heads = get("embedding_length"), get("attention.head_count"), get("attention.head_count_kv")
    dim, eps = get("attention.key_length", width // heads), get("attention.layer_norm_rms_epsilon")
    window, scale = get("attention.sliding_window"), get("attention.scale", dim ** -0.5)
    divide = w.get("rope_freqs.weight", np.ones(dim // 2))
    stretch = get("rope.scaling.factor", 1.0)
    n = len(tokens)

    x = w["token_embd.weight"][tokens] * (width ** 0.5 if gemma else 1)
    for i in range(get("block_count")):
        p = lambda name: w[f"blk.{i}.{name}.weight"]
        bias = lambda name: w.get(f"blk.{i}.{name}.bias", 0.0)
        local = window is not None and _is_local(r, arch, i)
        h = _rms(x, p("attn_norm"), eps)
        q = (h @ p("attn_q").T + bias("attn_q")).reshape(n, heads, dim)
        k = (h @ p("attn_k").T + bias("attn_k")).reshape(n, kv_heads, dim)
        v = (h @ p("attn_v").T + bias("attn_v")).reshape(n, kv_heads, dim)
        if f"blk.{i}.attn_q_norm.weight" in w:
            q, k = _rms(q, p("attn_q_norm"), eps), _rms(k, p("attn_k_norm"), eps)
        theta, s = get("rope.freq_base"), stretch
        if gemma and local:
            theta, s = get("rope.freq_base_swa", 10000.0), 1.0
        q = _rope(q, theta, divide, s, arch == "llama")
        k = _rope(k, theta, divide, s, arch == "llama")
        h = _attend(q, k, v, scale, window if local else None) @ p("attn_output").T
        x = x + (_rms(h, p("post_attention_norm"), eps) if gemma else h)
        h = _rms(x, p("ffn_norm"), eps)
        gate = h @ p("ffn_gate").T
        if gemma:  # the tanh form of GELU (Hendrycks and Gimpel 2016)
            gate = 0.5 * gate * (1 + np.tanh(np.sqrt(2 / np.pi) * (gate + 0.044715 * gate ** 3)))
        else:
            gate = gate / (1 + np.exp(-gate))
        h = (gate * (h @ p("ffn_up").T)) @ p("ffn_down").T
        x = x + (_rms(h, p("post_ffw_norm"), eps) if gemma else h)
    out = _rms(x, w["output_norm.weight"], eps) @ w.get("output.weight", w["token_embd.weight"]).T
    cap = get("final_logit_softcapping")
    return np.tanh(out / cap) * cap if cap else out
