#!/usr/bin/env python3
"""Writes model/testdata/real/{smollm2,gemma3}.json: transformers' float32 answers on the two real models.

The GGUF files (scripts/fetch_models.sh) are dequantised to float32 by transformers' own loader and run with
eager attention. For each of 20 prompts: the ids, 64 greedy tokens (no stop at end tokens), the gap between
the two best logits at every step (a small gap is a near-tie, where a correct float32 path may go another
way), and the log-probability of every token of the sequence but the first (teacher forcing). All of it comes
from one unpadded pass over the whole sequence, without a cache; the batched, cached run before it only
proposes the tokens.

Usage:  python scripts/golden_real.py smollm2|gemma3 [FIRST LAST]
        python scripts/golden_real.py smollm2|gemma3 join

Some minutes in all on two cores. FIRST and LAST (not included) pick a few prompts; their results collect in
.cache/golden_real/, where a finished prompt is not done again (delete it to start anew), and `join` writes the
JSON file from them. Without a range, both happen.
"""
import json
import os
import pathlib
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
import torch
import transformers
from safetensors.torch import save_file

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
    """The tokenizer and the model; the dequantised weights are kept for the next run."""
    kept = CACHE / f"{name}-f32"
    if not kept.exists():
        part = CACHE / f"{name}-f32.part"
        file = {"gguf_file": FILES[name]}
        transformers.AutoTokenizer.from_pretrained(MODELS, **file).save_pretrained(part)
        model = transformers.AutoModelForCausalLM.from_pretrained(MODELS, dtype=torch.float32, **file)
        del model.config.quantization_config  # else it would be read back as a quantised model
        model.config.save_pretrained(part)
        state = {k: v.contiguous() for k, v in model.state_dict().items() if k != "lm_head.weight"}  # tied in both
        save_file(state, part / "model.safetensors", metadata={"format": "pt"})
        part.rename(kept)
    model = transformers.AutoModelForCausalLM.from_pretrained(kept, dtype=torch.float32, attn_implementation="eager")
    return transformers.AutoTokenizer.from_pretrained(kept), model.eval()


@torch.no_grad()
def draft(model, batch, steps):
    """Greedy continuations of several prompts at once, padded on the left: fast, but only a proposal."""
    width = max(map(len, batch))
    ids = torch.tensor([[0] * (width - len(p)) + p for p in batch])
    mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in batch])
    model.generation_config = transformers.GenerationConfig(do_sample=False, pad_token_id=0)  # no end token
    return model.generate(ids, attention_mask=mask, max_new_tokens=steps)[:, width:].tolist()


@torch.no_grad()
def confirm(model, ids, greedy):
    """The golden rows from one pass over the whole sequence; a draft that left the greedy path is drafted anew."""
    for _ in range(STEPS):
        whole = torch.tensor([ids + greedy])
        logits = model(whole[:, :-1], use_cache=False).logits[0]
        best = logits[len(ids) - 1:].topk(2)
        wrong = [k for k in range(STEPS) if int(best.indices[k, 0]) != greedy[k]]
        if not wrong:
            break
        greedy = greedy[:wrong[0]] + [int(best.indices[wrong[0], 0])]
        if len(greedy) < STEPS:
            greedy += draft(model, [ids + greedy], STEPS - len(greedy))[0]
    forced = logits.gather(1, whole[0, 1:, None])[:, 0] - logits.logsumexp(-1)
    return {"ids": ids, "greedy": greedy, "gap": [float(f"{g:.3g}") for g in (best.values[:, 0] - best.values[:, 1]).tolist()],
            "forced": [round(x, 5) for x in forced.tolist()]}


def collect(name, first, last):
    texts = prompts(name)
    tokenizer, model = load(name)
    todo = [i for i in range(first, min(last, len(texts))) if not (CACHE / f"{name}.{i}.json").exists()]
    ids = {i: tokenizer(texts[i])["input_ids"] for i in todo}
    for group in ([i for i in todo if len(ids[i]) < 100], [i for i in todo if len(ids[i]) >= 100]):
        for i, greedy in zip(group, draft(model, [ids[i] for i in group], STEPS) if group else []):
            result = confirm(model, ids[i], greedy)
            (CACHE / f"{name}.{i}.json").write_text(json.dumps({"prompt": texts[i], **result}))
            print(f"{name} {i}: {len(ids[i])} ids, smallest gap {min(result['gap'])}: "
                  f"{tokenizer.decode(result['greedy'])[:60]!r}", flush=True)


def join(name):
    rows = [json.loads((CACHE / f"{name}.{i}.json").read_text()) for i in range(len(prompts(name)))]
    head = {
        "file": FILES[name], "dtype": "float32", "attention": "eager", "steps": STEPS,
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
