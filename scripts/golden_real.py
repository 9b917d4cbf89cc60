#!/usr/bin/env python3
"""Writes model/testdata/real/{smollm2,gemma3}.json: transformers' float32 answers on the two real models.

The GGUF files (scripts/fetch_models.sh) are dequantised to float32 by transformers' own loader and run with
eager attention. For each of 20 prompts: the ids, 64 greedy tokens, their log-probabilities and the gap
between the two best logits at every step (a step with a small gap is a near-tie, where a correct float32
path may go another way), all decoded token by token with a cache; then the log-probabilities of the whole
sequence from one pass over it (teacher forcing), which the steps must confirm.

Usage:  python scripts/golden_real.py smollm2|gemma3 [FIRST LAST]
        python scripts/golden_real.py smollm2|gemma3 join

Some minutes in all on two cores. FIRST and LAST (not included) pick a few prompts; their results collect in
.cache/golden_real/, and `join` writes the JSON file from them. Without a range, both happen.
"""
import json
import os
import pathlib
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parent.parent
REAL = ROOT / "model" / "testdata" / "real"
CACHE = ROOT / ".cache" / "golden_real"
MODELS = pathlib.Path(os.environ.get("FLASHDECODE_MODELS", ROOT / ".models"))
STEPS = 64
FILES = {"smollm2": "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma3": "gemma-3-270m-q4_k_m.gguf"}
TURN = {  # a user's turn and the opening of the answer, as each family writes it
    "smollm2": "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n",
    "gemma3": "<start_of_turn>user\n{}<end_of_turn>\n<start_of_turn>model\n",
}
SYSTEM = "<|im_start|>system\nYou are a terse assistant.<|im_end|>\n"
PLAIN, CHAT = False, True
PROMPTS = [
    (PLAIN, "Once upon a time"),
    (PLAIN, "The capital of France is"),
    (PLAIN, "The three laws of thermodynamics state that"),
    (PLAIN, "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n"),
    (PLAIN, "package main\n\nimport \"fmt\"\n\nfunc main() {\n\tfor i := 0; i < 10; i++ {\n\t\tfmt."),
    (PLAIN, "SELECT name, COUNT(*) FROM orders JOIN customers ON"),
    (PLAIN, "{\"name\": \"flash\", \"version\": \"1.0.0\", \"dependencies\": {"),
    (PLAIN, "Die Hauptstadt von Deutschland ist Berlin. Die Stadt liegt"),
    (PLAIN, "Il était une fois une petite fille qui s'appelait"),
    (PLAIN, "日本の首都は東京です。東京は"),
    (PLAIN, "Москва — столица России. Население города"),
    (PLAIN, "عاصمة مصر هي القاهرة"),
    (PLAIN, "1, 1, 2, 3, 5, 8, 13, 21, 34,"),
    (PLAIN, "Emoji test 😀🚀👩‍👩‍👧: the rocket means"),
    (CHAT, "What is the largest planet in the solar system?"),
    (CHAT, "Write a haiku about the sea."),
    (CHAT, "Explain in two sentences why the sky is blue."),
    (CHAT, "Translate to Spanish: Where is the library?"),
]
LONG = [(0, 3200), (9000, 3600)]  # (offset, length) in austen.txt: past Gemma's window of 512 tokens


def prompts(name):
    out = [TURN[name].format(text) if chat else text for chat, text in PROMPTS]
    if name == "smollm2":
        out[15] = SYSTEM + out[15]
    austen = (REAL / "austen.txt").read_text()
    return out + [austen[at:at + n] for at, n in LONG]


def load(name):
    kwargs = {"gguf_file": FILES[name]}
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODELS, **kwargs)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        MODELS, dtype=torch.float32, attn_implementation="eager", **kwargs)
    return tokenizer, model.eval()


@torch.no_grad()
def run(model, ids):
    cache = transformers.DynamicCache(config=model.config)
    feed, greedy, gaps, chosen = torch.tensor([ids]), [], [], []
    for _ in range(STEPS):
        logits = model(feed, cache=cache, use_cache=True, logits_to_keep=1).logits[0, -1]
        top = logits.topk(2)
        greedy.append(int(top.indices[0]))
        gaps.append(float(top.values[0] - top.values[1]))
        chosen.append(float(logits.log_softmax(-1)[greedy[-1]]))
        feed = torch.tensor([[greedy[-1]]])
    whole = torch.tensor([ids + greedy])
    logits = model(whole[:, :-1], use_cache=False).logits[0]
    forced = (logits.gather(1, whole[0, 1:, None])[:, 0] - logits.logsumexp(-1)).tolist()
    apart = max(abs(a - b) for a, b in zip(chosen, forced[-STEPS:]))
    assert apart < 1e-3, f"a pass over the whole sequence differs from step by step by {apart}"
    return {"ids": ids, "greedy": greedy, "gap": [float(f"{g:.3g}") for g in gaps],
            "logprob": [round(x, 5) for x in chosen], "forced": [round(x, 5) for x in forced]}, apart


def collect(name, first, last):
    texts = prompts(name)
    tokenizer, model = load(name)
    CACHE.mkdir(parents=True, exist_ok=True)
    for i in range(first, min(last, len(texts))):
        ids = tokenizer(texts[i])["input_ids"]
        result, apart = run(model, ids)
        (CACHE / f"{name}.{i}.json").write_text(json.dumps({"prompt": texts[i], **result, "apart": apart}))
        print(f"{name} {i}: {len(ids)} ids, smallest gap {min(result['gap'])}, passes apart {apart:.1e}: "
              f"{tokenizer.decode(result['greedy'])[:60]!r}", flush=True)


def join(name):
    rows = [json.loads((CACHE / f"{name}.{i}.json").read_text()) for i in range(len(prompts(name)))]
    head = {
        "file": FILES[name], "dtype": "float32", "attention": "eager", "steps": STEPS,
        "step_against_whole": float(f"{max(r.pop('apart') for r in rows):.2g}"),
        "made_by": "scripts/golden_real.py", "torch": torch.__version__.split("+")[0],
        "transformers": transformers.__version__,
    }
    lines = ",\n".join(json.dumps(r, ensure_ascii=False, separators=(",", ":")) for r in rows)
    (REAL / f"{name}.json").write_text(json.dumps(head)[:-1] + ', "prompts": [\n' + lines + "\n]}\n")


if __name__ == "__main__":
    torch.set_num_threads(1)  # two threads that wait for a busy core are many times slower
    transformers.utils.logging.disable_progress_bar()
    name, *rest = sys.argv[1:]
    if rest != ["join"]:
        collect(name, *map(int, rest or (0, 1000)))
    if rest in ([], ["join"]):
        join(name)
