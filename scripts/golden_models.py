#!/usr/bin/env python3
"""Writes model/testdata/<name>: tiny random checkpoints and the logits that transformers gives for them.

For every architecture that package model supports, one checkpoint small enough to commit, twice: as a
Hugging Face folder (config.json, safetensors) and as a GGUF file with the tensor names, metadata and
tensor transforms that GGUF readers expect. The golden logits come from the Hugging Face folder, loaded
by transformers in float32 with eager attention. A second, independent forward pass (golden_ref64.py,
NumPy float64, reading the GGUF) must agree before anything counts as golden; the largest difference is
written to meta.json, so a test's tolerance can be derived from the rounding noise of float32 itself.

Usage:  pip install -r scripts/requirements.txt && python scripts/golden_models.py [name...]

The weights are seeded by model and tensor name, so a rerun gives the same files.
"""
import json
import os
import pathlib
import shutil
import sys
import zlib

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import gguf
import numpy as np
import torch
import transformers
from safetensors.torch import save_file

import golden_ref64

OUT = pathlib.Path(__file__).resolve().parent.parent / "model" / "testdata"
VOCAB, SEQUENCE, GREEDY = 260, 40, 24
ARCH = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "mistral": gguf.MODEL_ARCH.LLAMA,  # GGUF has no mistral architecture: it is llama with a window
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
}
DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}


def base(kind, cls, dtype, hidden, ffn, layers, heads, kv_heads, **more):
    """The keys of config.json that every architecture shares."""
    return {
        "architectures": [cls], "model_type": kind, "dtype": dtype, "hidden_size": hidden, "intermediate_size": ffn,
        "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "vocab_size": VOCAB, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "bos_token_id": 259,
        "eos_token_id": 259, "attention_bias": False, "hidden_act": "silu", **more,
    }


# Both spellings of the rope settings that config.json files in the wild use: rope_theta with rope_scaling
# (transformers 4) and rope_parameters (transformers 5). Windows and scaled contexts are small, so that they
# matter within 40 tokens.
MODELS = {
    "llama": base(
        "llama", "LlamaForCausalLM", "float32", 36, 72, 2, 6, 2, head_dim=16, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
    "llama3": base(
        "llama", "LlamaForCausalLM", "bfloat16", 48, 96, 2, 3, 1, head_dim=32, tie_word_embeddings=True,
        rope_theta=500000.0, rope_scaling={
            "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64}),
    "mistral": base(
        "mistral", "MistralForCausalLM", "float16", 48, 80, 3, 6, 2, head_dim=16, tie_word_embeddings=False,
        rope_theta=10000.0, sliding_window=8),
    "qwen2": base(
        "qwen2", "Qwen2ForCausalLM", "float16", 80, 72, 2, 5, 1, tie_word_embeddings=False, rope_theta=1000000.0,
        rms_norm_eps=1e-6, use_sliding_window=False, sliding_window=32, max_window_layers=1),
    "qwen3": base(
        "qwen3", "Qwen3ForCausalLM", "bfloat16", 48, 80, 2, 6, 2, head_dim=32, tie_word_embeddings=True,
        rope_theta=1000000.0, rms_norm_eps=1e-6, use_sliding_window=False),
    # as the 270M and 1B models: pattern 6, no scaling, query_pre_attn_scalar = head_dim
    "gemma3": base(
        "gemma3_text", "Gemma3ForCausalLM", "bfloat16", 36, 60, 6, 3, 1, head_dim=32, tie_word_embeddings=True,
        hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=32, rope_theta=1000000.0,
        rope_local_base_freq=10000.0, sliding_window=9, sliding_window_pattern=6, rms_norm_eps=1e-6,
        attn_logit_softcapping=None, final_logit_softcapping=None),
    # as the larger ones: scaled global rope, a query scale that is not the head's; and a softcap, a pattern by list
    "gemma3-scaled": base(
        "gemma3_text", "Gemma3ForCausalLM", "float16", 36, 60, 4, 6, 2, head_dim=16, tie_word_embeddings=True,
        hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=10, sliding_window=9, rms_norm_eps=1e-6,
        layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        rope_parameters={
            "full_attention": {"rope_type": "linear", "rope_theta": 1000000.0, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}},
        attn_logit_softcapping=None, final_logit_softcapping=5.0),
}
SHARDED = {"llama3"}
WITH_TOKENIZER = {"llama"}


def weight(model, name, shape, gemma):
    """Random values that keep activations of order 1, attention far from uniform and logits spread by about 3."""
    rng = np.random.default_rng(zlib.crc32(f"{model}/{name}".encode()))
    x = rng.standard_normal(shape)
    if name.endswith("norm.weight"):  # Gemma stores the weight less 1
        # Gemma scales the embedding by sqrt(hidden): without larger post norms the layers would hardly matter.
        post = gemma and ("post_attention" in name or "post_feedforward" in name)
        return 0.25 * x + (2.0 if post else 0.0 if gemma else 1.0)
    if name.endswith(".bias"):
        return 0.5 * x
    if "embed_tokens" in name:
        return x * (3.0 / shape[1] ** 0.5)
    gain = 2.0 if ("q_proj" in name or "k_proj" in name) else 3.0 if "lm_head" in name else 1.0
    return x * (gain / shape[1] ** 0.5)


def write_checkpoint(name, config, folder):
    """config.json and the safetensors file or shards; returns the tensors as stored."""
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    skeleton = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(folder))
    tied = config["tie_word_embeddings"]
    tensors = {
        k: torch.from_numpy(weight(name, k, tuple(v.shape), "gemma" in name)).to(DTYPES[config["dtype"]]).contiguous()
        for k, v in skeleton.state_dict().items() if not (tied and k == "lm_head.weight")
    }
    if name not in SHARDED:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return tensors
    keys = sorted(tensors)
    parts = [keys[: len(keys) // 2], keys[len(keys) // 2:]]
    index = {"metadata": {"total_size": sum(t.nbytes for t in tensors.values())}, "weight_map": {}}
    for i, part in enumerate(parts):
        file = "model-%05d-of-%05d.safetensors" % (i + 1, len(parts))
        save_file({k: tensors[k] for k in part}, folder / file, metadata={"format": "pt"})
        index["weight_map"].update({k: file for k in part})
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")
    return tensors


def byte_tokens():
    """A byte-level vocabulary of 260: the 256 byte symbols, three merges, one special token."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]  # the bytes that GPT-2 shows as themselves
    symbol, free = {b: chr(b) for b in printable}, 256
    for b in range(256):
        if b not in symbol:
            symbol[b], free = chr(free), free + 1
    space = symbol[32]
    return [symbol[b] for b in range(256)] + [space + "t", "he", space + "the", "<|endoftext|>"], \
        [(space, "t"), ("h", "e"), (space + "t", "he")]


def write_tokenizer(folder):
    tokens, merges = byte_tokens()
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None, "post_processor": None,
        "added_tokens": [{"id": 259, "content": tokens[259], "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {t: i for i, t in enumerate(tokens[:259])}, "merges": [list(m) for m in merges]},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False) + "\n")


def interleave(w, heads):
    """The rows of a q or k projection, from half-split rotary pairs (i, i + d/2) to neighbouring pairs (2i, 2i+1)."""
    return w.reshape(heads, 2, -1, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def llama3_factors(theta, dim, s):
    """What each rotary frequency is divided by (Llama 3.1 model card: scaled RoPE), [dim/2]."""
    wavelen = 2 * np.pi * theta ** (np.arange(0, dim, 2) / dim)
    turns = s["original_max_position_embeddings"] / wavelen
    smooth = np.clip((turns - s["low_freq_factor"]) / (s["high_freq_factor"] - s["low_freq_factor"]), 0, 1)
    return (1 / ((1 - smooth) / s["factor"] + smooth)).astype(np.float32)


def write_metadata(w, c):
    w.add_context_length(c["max_position_embeddings"])
    w.add_embedding_length(c["hidden_size"])
    w.add_feed_forward_length(c["intermediate_size"])
    w.add_block_count(c["num_hidden_layers"])
    w.add_head_count(c["num_attention_heads"])
    w.add_head_count_kv(c["num_key_value_heads"])
    w.add_layer_norm_rms_eps(c["rms_norm_eps"])
    w.add_vocab_size(c["vocab_size"])
    dim = c.get("head_dim", c["hidden_size"] // c["num_attention_heads"])
    if "head_dim" in c:
        w.add_key_length(dim)
        w.add_value_length(dim)
    if c["model_type"] in ("llama", "mistral"):
        w.add_rope_dimension_count(dim)
    rope = c.get("rope_parameters", {})
    everywhere = rope.get("full_attention", rope)
    w.add_rope_freq_base(everywhere.get("rope_theta", c.get("rope_theta")))
    if everywhere.get("rope_type") == "linear":
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(everywhere["factor"])
    if c["model_type"] in ("gemma3_text", "mistral"):
        w.add_sliding_window(c["sliding_window"])
    if c["model_type"] == "gemma3_text":
        # Without the keys, readers take pattern 6, local base 10000 and 1/sqrt(head_dim), as for the real files.
        if "layer_types" in c:
            w.add_sliding_window_pattern([t == "sliding_attention" for t in c["layer_types"]])
            w.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
        if c["query_pre_attn_scalar"] != dim:
            w.add_attention_scale(c["query_pre_attn_scalar"] ** -0.5)
        if c["final_logit_softcapping"]:
            w.add_final_logit_softcapping(c["final_logit_softcapping"])


def write_gguf(path, name, c, tensors):
    arch = ARCH[c["model_type"]]
    w = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[arch])
    w.add_name(f"flashdecode test {name}")
    write_metadata(w, c)
    tokens, merges = byte_tokens()
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(tokens)
    w.add_token_types([gguf.TokenType.NORMAL] * 259 + [gguf.TokenType.CONTROL])
    w.add_token_merges([" ".join(m) for m in merges])
    w.add_bos_token_id(259)
    w.add_eos_token_id(259)
    w.add_add_bos_token(False)
    names = gguf.get_tensor_name_map(arch, c["num_hidden_layers"])
    quant = {"float32": gguf.GGMLQuantizationType.F32, "float16": gguf.GGMLQuantizationType.F16,
             "bfloat16": gguf.GGMLQuantizationType.BF16}[c["dtype"]]
    if c.get("rope_scaling"):
        w.add_tensor("rope_freqs.weight", llama3_factors(c["rope_theta"], c["head_dim"], c["rope_scaling"]))
    for key, t in tensors.items():
        x = t.float().numpy()
        if arch == gguf.MODEL_ARCH.LLAMA and key.endswith(("q_proj.weight", "k_proj.weight")):
            x = interleave(x, c["num_attention_heads" if "q_proj" in key else "num_key_value_heads"])
        if arch == gguf.MODEL_ARCH.GEMMA3 and key.endswith("norm.weight"):
            x = x + np.float32(1)
        kind = quant if x.ndim > 1 else gguf.GGMLQuantizationType.F32
        new = names.get_name(key, try_suffixes=(".weight", ".bias"))
        w.add_tensor(new, gguf.quants.quantize(np.ascontiguousarray(x), kind), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


@torch.no_grad()
def golden(folder):
    """tokens [SEQUENCE], logits [SEQUENCE, VOCAB] float32, and a greedy continuation with its top-2 gaps."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    tokens = np.random.default_rng(zlib.crc32(folder.name.encode())).integers(0, VOCAB, SEQUENCE).tolist()
    logits = model(torch.tensor([tokens]), use_cache=False).logits[0].numpy()
    more, gaps = [], []
    for _ in range(GREEDY):  # without a cache: every step recomputes, so caching faults cannot reach the golden
        last = model(torch.tensor([tokens + more]), use_cache=False).logits[0, -1]
        top = last.topk(2)
        more.append(int(top.indices[0]))
        gaps.append(round(float(top.values[0] - top.values[1]), 6))
    return tokens, logits, more, gaps


def build(name):
    config, folder = MODELS[name], OUT / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tensors = write_checkpoint(name, config, folder)
    write_gguf(folder / "model.gguf", name, config, tensors)
    if name in WITH_TOKENIZER:
        write_tokenizer(folder)
    tokens, logits, more, gaps = golden(folder)
    exact = golden_ref64.logits(folder / "model.gguf", tokens)
    worst = float(np.abs(logits - exact).max())
    assert worst < 2e-4, f"{name}: transformers and the float64 reference differ by {worst}"
    logits.astype("<f4").tofile(folder / "logits.bin")
    (folder / "tokens.json").write_text(json.dumps({"tokens": tokens, "greedy": more, "greedy_gap": gaps}) + "\n")
    meta = {
        "shape": list(logits.shape), "logit_std": round(float(logits.std()), 4),
        "max_abs_logit": round(float(np.abs(logits).max()), 4), "max_abs_diff_float64": float(f"{worst:.3g}"),
        "made_by": "scripts/golden_models.py", "torch": torch.__version__.split("+")[0],
        "transformers": transformers.__version__, "numpy": np.__version__,
    }
    (folder / "meta.json").write_text(json.dumps(meta, indent=1) + "\n")
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name:14} {size:8} bytes, logits std {meta['logit_std']}, float32 - float64 {worst:.2e}, "
          f"smallest greedy gap {min(gaps)}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    for chosen in sys.argv[1:] or MODELS:
        build(chosen)
