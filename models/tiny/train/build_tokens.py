#!/usr/bin/env python3
"""Train the tokenizer and turn the corpus into token arrays.

Reads  --corpus (the folder prepare_corpus.py wrote).
Writes --out: tokenizer.json, text_train.npy, text_val.npy (uint16), meta.json.
The synthetic stories are not stored: train.py makes them where it runs (17 MB/s a core), so the
arrays stay at about 30 MB.

The tokenizer is byte-level BPE whose merges never touch a digit: it is *trained* with digits
split off one by one and *used* with plain GPT-2 splitting. Numbers therefore always come out
digit by digit, and a runtime needs nothing but tokenizer.ggml.pre = "gpt-2".
"""
import argparse
import json
import pathlib
import random

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import storygen

HERE = pathlib.Path(__file__).resolve().parent
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]  # ids 0, 1, 2


def train_tokenizer(texts, vocab, story_mb, seed=1):
    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tok.decoder = decoders.ByteLevel()
    rng = random.Random(seed)

    def stream():
        for t in texts:  # every fourth chunk of each source is plenty for a 4k vocabulary
            for i in range(0, len(t), 400_000):
                yield t[i:i + 100_000]
        made = 0
        while made < story_mb * 1e6:
            s = storygen.story_document(rng)
            for sp in SPECIALS:
                s = s.replace(sp, "")
            made += len(s)
            yield s
    tok.train_from_iterator(stream(), trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=SPECIALS, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return tok


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--corpus", type=pathlib.Path, required=True)
    ap.add_argument("--out", type=pathlib.Path, required=True)
    ap.add_argument("--vocab", type=int, default=4096)
    ap.add_argument("--only", nargs="*", help="source ids (default: all)")
    a = ap.parse_args()
    a.out.mkdir(parents=True, exist_ok=True)
    manifest = json.loads((a.corpus / "manifest.json").read_text())
    weight = {s["id"]: s["repeat"] for s in json.loads((HERE / "sources.json").read_text())["sources"]}
    manifest = [m for m in manifest if m["id"] in weight and (not a.only or m["id"] in a.only)]
    docs = {m["id"]: (a.corpus / "text" / f"{m['id']}.txt").read_text().split(f"\n{SPECIALS[0]}\n") for m in manifest}

    tok = train_tokenizer(["\n\n".join(d) for d in docs.values()], a.vocab, story_mb=8)
    tok.save(str(a.out / "tokenizer.json"))

    train, val, stats = [], [], {}
    for name, dd in docs.items():
        n_tok = n_chr = 0
        for i, e in enumerate(tok.encode_batch(dd)):
            ids = np.array([0] + e.ids, dtype=np.uint16)  # a document starts with <|endoftext|>
            n_tok += len(ids)
            n_chr += len(dd[i])
            cut = max(1, len(ids) // 50)  # the last 2 % of every document is held out
            train += [ids[:-cut]] * weight[name]
            val.append(np.concatenate([[0], ids[-cut:]]).astype(np.uint16))
        stats[name] = {"tokens": n_tok, "chars_per_token": round(n_chr / n_tok, 2)}
        print(name, stats[name])
    order = list(range(len(train)))
    random.Random(0).shuffle(order)
    train = np.concatenate([train[i] for i in order])
    val = np.concatenate(val)
    np.save(a.out / "text_train.npy", train)
    np.save(a.out / "text_val.npy", val)
    (a.out / "meta.json").write_text(json.dumps({"vocab": tok.get_vocab_size(), "sources": stats,
                                                 "train_tokens": len(train), "val_tokens": len(val)}, indent=1))
    print(f"vocab {tok.get_vocab_size()}, train {len(train) / 1e6:.2f} M tokens, val {len(val) / 1e6:.2f} M")


if __name__ == "__main__":
    main()
