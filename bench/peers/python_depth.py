#!/usr/bin/env python3
"""Times two engines that come as Python wheels, with llama-bench's keys, one JSON object a line.

usage: python_depth.py ik|mistralrs MODEL THREADS FA(0|1) KV(f16|q8_0) PROMPT GEN REPETITIONS STATE_DIR DEPTH...

ik         ik-llama-cpp-python 0.1.5 (ik_llama.cpp), through the wheel's C functions, as llamacpp_depth does it.
           The wheel's own class turns flash attention off where it does not see AVX-VNNI; here FA decides.
mistralrs  mistralrs 0.9.5 gives no control of the cache: a prompt as long as the depth, then GEN tokens, timed
           by its own counters; the prompt test at depth 0 only; FA and KV are its own choice.
"""
import ctypes
import json
import os
import pathlib
import random
import sys
import time

KV = {"f16": 1, "q8_0": 8, "f32": 0}  # ggml's type numbers
WORDS = ("time people way day man thing woman life child world school state family student group country problem "
         "hand part place").split()


def report(a, depth, n_prompt, n_gen, samples):
    print(json.dumps({
        "model_filename": os.path.basename(a.model), "n_threads": a.threads, "type_k": a.kv, "flash_attn": a.fa,
        "n_prompt": n_prompt, "n_gen": n_gen, "n_depth": depth, "avg_ts": sum(samples) / len(samples),
        "samples_ts": [round(s, 3) for s in samples]}), flush=True)


class Args:
    def __init__(self, argv):
        self.model, self.threads, self.fa, self.kv = argv[0], int(argv[1]), int(argv[2]), argv[3]
        self.prompt, self.gen, self.reps, self.state = int(argv[4]), int(argv[5]), int(argv[6]), argv[7]
        self.depths = sorted(map(int, argv[8:]))


class Ik:
    """The few calls of the library that a depth test needs."""

    def __init__(self, a):
        from ik_llama_cpp import _ctypes_api as c
        self.c, self.lib = c, c._lib
        c.llama_backend_init()
        self.model = c.llama_model_load_from_file(a.model.encode(), c.llama_model_default_params())
        if not self.model:
            sys.exit(f"python_depth: ik_llama.cpp cannot load {a.model}")
        p = c.llama_context_default_params()
        p.n_ctx, p.n_batch, p.n_ubatch = a.depths[-1] + max(a.prompt, a.gen) + 64, 2048, 512
        p.n_threads = p.n_threads_batch = a.threads
        p.type_k = p.type_v = KV[a.kv]
        p.flash_attn = bool(a.fa)
        self.ctx = c.llama_init_from_model(self.model, p)
        if not self.ctx:
            sys.exit("python_depth: ik_llama.cpp cannot make a context")
        pointer, number, size = ctypes.c_void_p, ctypes.c_int32, ctypes.c_size_t
        self.lib.llama_batch_get_one.restype = c.llama_batch
        self.lib.llama_batch_get_one.argtypes = [ctypes.POINTER(c.llama_token), number, number, number]
        self.lib.llama_synchronize.argtypes = [pointer]
        self.lib.llama_kv_cache_seq_rm.argtypes = [pointer, number, number, number]
        self.lib.llama_kv_cache_seq_rm.restype = ctypes.c_bool
        state = [pointer, ctypes.c_char_p, number, ctypes.POINTER(c.llama_token), size]
        self.lib.llama_state_seq_save_file.argtypes = state
        self.lib.llama_state_seq_save_file.restype = size
        self.lib.llama_state_seq_load_file.argtypes = [*state, ctypes.POINTER(size)]
        self.lib.llama_state_seq_load_file.restype = size

    def decode(self, n, at):
        ids = (self.c.llama_token * n)(*(random.randrange(1000) for _ in range(n)))
        if self.c.llama_decode(self.ctx, self.lib.llama_batch_get_one(ids, n, at, 0)):
            sys.exit("python_depth: llama_decode failed")

    def prompt(self, n, at):
        for done in range(0, n, 512):
            self.decode(min(512, n - done), at + done)
        self.lib.llama_synchronize(self.ctx)

    def generate(self, n, at):
        for i in range(n):
            self.decode(1, at + i)
            self.lib.llama_synchronize(self.ctx)

    def fill(self, have, depth, path):
        ids, n = (self.c.llama_token * (depth + 1))(), ctypes.c_size_t(0)
        if path and path.exists() and self.lib.llama_state_seq_load_file(
                self.ctx, str(path).encode(), 0, ids, depth + 1, ctypes.byref(n)) and n.value == depth:
            return
        if path:
            self.c.llama_kv_cache_clear(self.ctx)
            have = 0
        self.prompt(depth - have, have)
        if path:
            part = path.with_name(path.name + ".part")
            if not self.lib.llama_state_seq_save_file(self.ctx, str(part).encode(), 0, ids, depth):
                sys.exit(f"python_depth: cannot write {part}")
            part.rename(path)


def ik(a):
    engine, at = Ik(a), 0
    engine.generate(4, 0)
    engine.c.llama_kv_cache_clear(engine.ctx)
    for depth in a.depths:
        keep = a.state != "-" and depth > 0
        name = f"ik.{os.path.basename(a.model)}.{a.kv}.fa{a.fa}.{depth}"
        engine.fill(at, depth, pathlib.Path(a.state) / name if keep else None)
        at = depth
        for n_prompt, n_gen in ((a.prompt, 0), (0, a.gen)):
            samples = []
            for _ in range(a.reps if n_prompt + n_gen else 0):
                start = time.perf_counter()
                engine.prompt(n_prompt, depth) if n_prompt else engine.generate(n_gen, depth)
                samples.append((n_prompt + n_gen) / (time.perf_counter() - start))
                engine.lib.llama_kv_cache_seq_rm(engine.ctx, 0, depth, -1)
            if samples:
                report(a, depth, n_prompt, n_gen, samples)


def mistralrs(a):
    os.environ.update(RAYON_NUM_THREADS=str(a.threads), OMP_NUM_THREADS=str(a.threads), HF_HUB_OFFLINE="1")
    import mistralrs as m
    folder, name = os.path.split(os.path.abspath(a.model))
    runner = m.Runner(which=m.Which.GGUF(tok_model_id=None, quantized_model_id=folder, quantized_filename=name),
                      prefix_cache_n=0)

    def ask(words, gen, salt):  # other words each time: no prefix is reused
        text = f"{salt} " + " ".join(WORDS[(i * 7 + salt) % len(WORDS)] for i in range(words))
        return runner.send_completion_request(m.CompletionRequest(
            prompt=text, model="default", max_tokens=gen, temperature=0.0)).usage

    ask(8, 4, 0)
    for depth in a.depths:
        runs = [ask(max(depth, 8), a.gen, r + 1) for r in range(a.reps)]
        if a.prompt and depth == 0:
            report(a, 0, a.prompt, 0, [ask(a.prompt, 1, r + 50).avg_prompt_tok_per_sec for r in range(a.reps)])
        if a.gen:
            report(a, depth, 0, a.gen, [u.avg_compl_tok_per_sec for u in runs])


if __name__ == "__main__":
    if len(sys.argv) < 11:
        sys.exit(__doc__)
    {"ik": ik, "mistralrs": mistralrs}[sys.argv[1]](Args(sys.argv[2:]))
