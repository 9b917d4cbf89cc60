#!/usr/bin/env python3
"""Measures engines against each other on one machine, in turns, and writes one JSON row a cell and engine.

The same binary varies by a factor of two between minutes on a shared machine, so no figure is worth much by
itself. Here the engines take turns (A, B, A, B, …) at one depth, in fresh processes seconds apart; what
counts is the ratio within a round, and its median over the rounds.

Usage, after bench/peers/cpu_peers.sh and a build of ours:

  bench/peers/interleave.py --model .models/SmolLM2-135M-Instruct.Q4_1.gguf --depths 0,2048,4096,8192 \\
      --engine ours=flashdecode:./flashdecode --engine fa=llamacpp:fa=1 --engine nofa=llamacpp:fa=0 \\
      --engine ik=ik --out results.jsonl

The first --engine is the reference: "ratio" in every other row is reference / that engine. Kinds:

  flashdecode:BINARY[,option=value]   BINARY bench -m FILE -p N -n N -d D -r R -t T --kv TYPE -o jsonl
  llama-bench[:fa=0|1]                the peer's own program (slow at depth: it fills the context every time)
  llamacpp[:fa=0|1]                   llamacpp_depth (fills once, keeps the cache on disk)
  ik[:fa=0|1]    mistralrs            python_depth.py
  and kv=TYPE for any of them, against --kv; other options of a flashdecode engine become flags (split=none)

Every row has what other processes used of the machine's CPUs while the engine ran, as a part of one CPU
(foreign_cpu, the most of all rounds). Rows above 0.06 are doubtful: two spinning threads on 1.9 CPUs are many
times slower. --wait SECONDS lets each turn wait that long for a quiet machine.
"""
import argparse
import json
import os
import pathlib
import platform
import re
import resource
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PEERS = pathlib.Path(os.environ.get("FLASHDECODE_PEERS", ROOT / ".cache" / "peers"))
QUIET = 0.06
STARTED = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Engine:
    """One --engine: its name, kind and options."""

    def __init__(self, text):
        self.name, _, spec = text.partition("=")
        self.kind, _, rest = spec.partition(":")
        parts = [p for p in rest.split(",") if p]
        self.binary = parts.pop(0) if self.kind == "flashdecode" and parts else None
        self.options = dict(p.split("=", 1) for p in parts)
        self.fa = self.options.pop("fa", "1")
        self.kv = self.options.pop("kv", None)
        known = ("flashdecode", "llama-bench", "llamacpp", "ik", "mistralrs")
        if not self.name or self.kind not in known or (self.kind == "flashdecode") != bool(self.binary):
            sys.exit(f"interleave: bad --engine {text!r}: NAME=KIND[:OPTIONS], KIND one of {', '.join(known)}")

    def command(self, a, model, kv, depth):
        kv = self.kv or kv
        tests = ["-m", model, "-p", a.prompt, "-n", a.gen, "-d", depth, "-r", a.reps, "-t", a.threads, "-o", "jsonl"]
        row = [model, a.threads, self.fa, kv, a.prompt, a.gen, a.reps, PEERS / "state", depth]
        flags = [f"--{k}={v}" for k, v in self.options.items()]
        return [str(x) for x in {
            "flashdecode": [self.binary, "bench", *tests, "--kv", kv, *flags],
            "llama-bench": [PEERS / "bin" / "llama-bench", *tests, "-fa", self.fa, "-ctk", kv, "-ctv", kv],
            "llamacpp": [PEERS / "bin" / "llamacpp_depth", *row],
            "ik": [PEERS / "venv" / "bin" / "python", HERE / "python_depth.py", "ik", *row],
            "mistralrs": [PEERS / "venv" / "bin" / "python", HERE / "python_depth.py", "mistralrs", *row],
        }[self.kind]]

    def version(self):
        if self.kind == "flashdecode":
            done = subprocess.run([self.binary, "version"], text=True, capture_output=True)
            return done.stdout.strip().splitlines()[0] if done.returncode == 0 and done.stdout.strip() else "unknown"
        if self.kind in ("llamacpp", "llama-bench"):
            path = PEERS / "llamacpp.version"
            return path.read_text().strip() if path.exists() else "unknown"
        package = {"ik": "ik-llama-cpp-python", "mistralrs": "mistralrs"}[self.kind]
        code = f"import importlib.metadata as m; print(m.version('{package}'))"
        done = subprocess.run([PEERS / "venv" / "bin" / "python", "-c", code], text=True, capture_output=True)
        return f"{package} {done.stdout.strip() or 'unknown'}"


def busy_s():
    """CPU seconds that the whole machine has spent, by /proc/stat; 0 where there is none."""
    try:
        with open("/proc/stat") as f:
            v = [int(x) for x in f.readline().split()[1:9]]
    except OSError:
        return 0.0
    return (sum(v) - v[3] - v[4]) / os.sysconf("SC_CLK_TCK")  # less idle and iowait


def own_s():
    return sum(u.ru_utime + u.ru_stime for u in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)))


class Foreign:
    """What other processes take while the block runs, as a part of one CPU."""

    def __enter__(self):
        self.start = busy_s() - own_s(), time.monotonic()
        return self

    def __exit__(self, *_):
        used, seconds = busy_s() - own_s() - self.start[0], time.monotonic() - self.start[1]
        self.part = max(0.0, used / max(seconds, 1e-3))


def wait_quiet(limit):
    end = time.monotonic() + limit
    while time.monotonic() < end:
        with Foreign() as f:
            time.sleep(0.7)
        if f.part < QUIET:
            return


def run(command, wait):
    """The samples of one turn: {"pp512": […], "tg64": […]}, and the foreign part."""
    wait_quiet(wait)
    with Foreign() as foreign:
        done = subprocess.run(command, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"interleave: {' '.join(command)}\nexit {done.returncode}: {done.stderr.strip()[-800:]}")
    samples = {}
    for line in done.stdout.splitlines():
        if not line.startswith("{"):
            continue
        row = json.loads(line)
        test = f"pp{row['n_prompt']}" if row["n_prompt"] else f"tg{row['n_gen']}"
        samples[test] = row.get("samples_ts") or [row["avg_ts"]]
    if not samples:
        sys.exit(f"interleave: {' '.join(command)} wrote no result")
    return samples, foreign.part


def cpu_name():
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    get = lambda key: (re.search(rf"^{key}\s*: (.*)$", text, re.M) or ["", "?"])[1]
    flags = [f for f in get("flags").split() if f in ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_fp16", "amx_int8")]
    return f"{get('model name')}, family {get('cpu family')} model {get('model')}, {' '.join(flags)}"


def commit():
    done = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], text=True, capture_output=True)
    return done.stdout.strip() or "unknown"


def shown(command):
    """A command as a row shows it: without this machine's folders."""
    return " ".join(command).replace(str(PEERS), "PEERS").replace(f"{ROOT}/", "")


def ratios(reference, other):
    """reference / other, round by round."""
    return [round(statistics.median(r) / statistics.median(o), 3) for r, o in zip(reference, other)]


def cell(a, engines, model, kv, depth):
    """All rounds at one depth; yields the rows."""
    rounds = {e.name: {} for e in engines}  # engine -> test -> a list of samples for each round
    foreign = {e.name: 0.0 for e in engines}
    for _ in range(a.rounds):
        for e in engines:
            samples, part = run(e.command(a, model, kv, depth), a.wait)
            foreign[e.name] = max(foreign[e.name], part)
            for test, values in samples.items():
                rounds[e.name].setdefault(test, []).append(values)
    for test, reference in rounds[engines[0].name].items():
        for e in engines:
            mine = rounds[e.name].get(test)
            if not mine:
                continue
            values = [v for r in mine for v in r]
            row = {
                "model": os.path.basename(model),
                "weights": re.split(r"[.-]", os.path.basename(model).removesuffix(".gguf"))[-1].upper(),
                "kv": e.kv or kv, "depth": depth, "test": test, "engine": e.name, "version": a.versions[e.name],
                "tok_s": [round(v, 2) for v in values], "median": round(statistics.median(values), 2)}
            if e is not engines[0]:
                row["reference"] = engines[0].name
                row["ratio"] = ratios(reference, mine)
                row["ratio_median"] = round(statistics.median(row["ratio"]), 3)
            yield {**row, "foreign_cpu": round(foreign[e.name], 3), "cpu": a.cpu, "threads": a.threads,
                   "commit": a.commit, "date": STARTED, "command": shown(e.command(a, model, kv, depth))}


def write(row, path):
    if path == "-":
        print(json.dumps(row), flush=True)
        return
    with open(path, "a") as f:
        f.write(json.dumps(row) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", action="append", required=True)
    p.add_argument("--engine", action="append", required=True, help="NAME=KIND[:OPTIONS]; the first is the reference")
    p.add_argument("--kv", action="append", help="KV type for engines that name none (default f16; may repeat)")
    p.add_argument("--depths", default="0,2048,4096,8192")
    p.add_argument("--prompt", type=int, default=512)
    p.add_argument("--gen", type=int, default=64)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--reps", type=int, default=1, help="repetitions within a turn")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--wait", type=float, default=30, help="seconds that a turn waits for a quiet machine")
    p.add_argument("--out", default="-", help="JSON lines are appended here")
    a = p.parse_args()
    engines = [Engine(t) for t in a.engine]
    if len({e.name for e in engines}) < len(engines):
        p.error("two engines of one name")
    (PEERS / "state").mkdir(parents=True, exist_ok=True)
    a.cpu, a.commit, a.versions = cpu_name(), commit(), {e.name: e.version() for e in engines}
    for model in a.model:
        for kv in a.kv or ["f16"]:
            for depth in map(int, a.depths.split(",")):
                for row in cell(a, engines, model, kv, depth):
                    write(row, a.out)
                    print(f"{row['model']} kv {row['kv']} d={depth} {row['test']} {row['engine']}: {row['median']} tok/s"
                          + (f", {row['reference']} / it {row['ratio_median']} {row['ratio']}" if "ratio" in row else "")
                          + (f", others used {row['foreign_cpu']:.2f} CPU" if row["foreign_cpu"] > QUIET else ""),
                          file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
