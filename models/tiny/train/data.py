"""Training sequences, composed on the fly.

Three kinds of sequence, each of T+1 tokens with a 0/1 mask over the *answer* tokens:
    text    a slice of the public-domain corpus
    story   synthetic stories packed one after the other
    recall  real text or stories as filler, facts planted in it, questions about facts planted
            any distance earlier, the last one often in chat form
"""
import math
import multiprocessing as mp
import pathlib
import random

import numpy as np
import torch
from tokenizers import Tokenizer

import storygen

EOT, IM_START, IM_END = 0, 1, 2


def _encode_stories(args):
    path, seed, n_tokens = args
    tok, rng, out, n = Tokenizer.from_file(path), random.Random(seed), [], 0
    while n < n_tokens:
        for e in tok.encode_batch([storygen.story_document(rng) for _ in range(256)]):
            ids = np.array([EOT] + e.ids, dtype=np.uint16)
            out.append(ids)
            n += len(ids)
    return np.concatenate(out)


def make_stories(tokenizer_path, n_tokens, procs, seed):
    """n_tokens of synthetic stories as one uint16 array; `seed` also separates train from val."""
    jobs = [(str(tokenizer_path), seed * 1000 + i, n_tokens // procs) for i in range(procs)]
    if procs == 1:
        return _encode_stories(jobs[0])
    with mp.get_context("spawn").Pool(procs) as pool:
        return np.concatenate(pool.map(_encode_stories, jobs))


# Recall documents open with this line. Without a mark of their own the model plants stray facts in
# ordinary stories. Prompts that want recall should open with it too.
RECALL_HEAD = "Read this and remember the facts."


class Composer:
    """Makes recall sequences out of token streams used as filler."""

    def __init__(self, tok, streams):
        self.tok = tok
        self.nl = tok.token_to_id("\u010a")  # the byte-level name of "\n"
        self.gap = [self.nl, self.nl]
        self.streams = []
        for s in streams:
            # paragraph starts: just after two newlines
            p = np.flatnonzero((s[:-1] == self.nl) & (s[1:] == self.nl)) + 2
            self.streams.append((s, p.astype(np.int64)))

    def enc(self, s):
        return self.tok.encode(s, add_special_tokens=False).ids

    def filler(self, rng, want):
        """About `want` tokens of consecutive whole paragraphs (at least one)."""
        s, p = self.stream
        i = rng.randrange(len(p) - 2) if self.at is None or self.at >= len(p) - 2 else self.at
        j = int(np.searchsorted(p, p[i] + max(want, 8)))
        j = min(max(j, i + 1), len(p) - 1)
        self.at = j
        piece = s[p[i]:p[j] - 2][:2 * want + 64].tolist()
        out = []  # no special tokens inside filler: a document's start becomes a paragraph's
        for t in piece:
            out += self.gap if t == EOT and out else [t] if t > IM_END else []
        return out

    def qa(self, fact, chat):
        _, q, prefix, value, _ = fact
        if chat:
            head = self.enc(q) + [IM_END, self.nl, IM_START] + self.enc("assistant\n" + prefix)
        else:
            head = self.enc(f"Question: {q}\nAnswer: {prefix}")
        val = self.enc(value)
        tail = self.enc(".") + ([IM_END] if chat else [])
        return head + val + tail, [0] * len(head) + [1] * len(val) + [0] * len(tail)

    def sequence(self, rng, length):
        self.stream, self.at = rng.choice(self.streams), None
        facts = storygen.Facts(rng)
        chat = rng.random() < 0.35
        ids = [EOT] + (([IM_START] + self.enc("user\n")) if chat else [])
        ids += self.enc(RECALL_HEAD) + self.gap
        mask = [0] * len(ids)
        planted, asked = [], set()
        # mean filler between two events: from dense (30 tokens) to sparse (an eighth of all)
        mean = math.exp(rng.uniform(math.log(30), math.log(max(60, length / 8))))
        p_fact = rng.uniform(0.35, 0.6)

        def emit(x, m=None):
            ids.extend(x + self.gap)
            mask.extend((m or [0] * len(x)) + [0, 0])

        room = length - 110  # keep space for the closing question
        while len(ids) < room:
            f = self.filler(rng, min(int(rng.expovariate(1 / mean)) + 8, room - len(ids) + 8))
            emit(f)
            if not planted or rng.random() < p_fact:
                fact = facts.new()
                planted.append(fact)
                emit(self.enc(fact[0]))
            elif not chat:
                i = rng.randrange(len(planted))
                if i in asked and rng.random() < 0.7:  # prefer facts not asked yet: they are farther away
                    i = rng.randrange(len(planted))
                asked.add(i)
                emit(*self.qa(planted[i], False))
        x, m = self.qa(rng.choice(planted), chat)
        if len(ids) + len(x) > length:  # the filler overran: drop from its middle, keep the end
            cut = len(ids) + len(x) - length
            del ids[-cut - 2:-2], mask[-cut - 2:-2]
        ids, mask = ids + x, mask + m
        while len(ids) < length:  # pad with more filler as a new document
            f = [EOT] + self.filler(rng, length - len(ids))
            ids += f
            mask += [0] * len(f)
        return np.array(ids[:length], dtype=np.int64), np.array(mask[:length], dtype=np.float32)

    def passkey(self, rng, distance, n_distractors=8):
        """Evaluation prompt: (prompt ids, value ids); the fact stands `distance` tokens before the answer."""
        self.stream, self.at = rng.choice(self.streams), None
        facts = storygen.Facts(rng)
        fact = facts.new("number")
        plant = self.enc(fact[0]) + self.gap
        q, m = self.qa(fact, False)
        head = q[:m.index(1)]
        val = [t for t, k in zip(q, m) if k]
        # equal stretches of filler, a fact of the same kind after each but the last
        others = [self.enc(facts.new("number")[0]) + self.gap for _ in range(n_distractors)]
        room = distance - len(head) - sum(map(len, others))
        while room < 40 and others:  # short distances: fewer distractors
            room += len(others.pop())
        out = []
        for i in range(len(others) + 1):
            goal, piece = max(room, 0) // (len(others) + 1), []
            while len(piece) < goal:
                piece += self.filler(rng, min(200, goal - len(piece))) + self.gap
            out += (piece[:goal - 2] + self.gap if goal > 2 else []) + (others[i] if i < len(others) else [])
        return [EOT] + self.enc(RECALL_HEAD) + self.gap + plant + out + head, val


class Mixture(torch.utils.data.IterableDataset):
    """Endless stream of (ids[T+1], mask[T+1])."""

    def __init__(self, tokenizer_path, text, stories, length, p_story, p_recall, seed):
        self.args = (str(tokenizer_path), text, stories, length, p_story, p_recall, seed)

    def __iter__(self):
        path, text, stories, length, p_story, p_recall, seed = self.args
        info = torch.utils.data.get_worker_info()
        rng = random.Random(seed * 7919 + (info.id if info else 0))
        comp = Composer(Tokenizer.from_file(path), [s for s in (text, stories) if len(s) > 1000])
        zeros = np.zeros(length, dtype=np.float32)
        while True:
            r = rng.random()
            if r < p_recall:
                yield comp.sequence(rng, length)
                continue
            s = stories if r < p_recall + p_story or len(text) <= length else text
            i = rng.randrange(len(s) - length)
            yield s[i:i + length].astype(np.int64), zeros


def load(folder):
    folder = pathlib.Path(folder)
    return (folder / "tokenizer.json", np.load(folder / "text_train.npy", mmap_mode="r"),
            np.load(folder / "text_val.npy"))
