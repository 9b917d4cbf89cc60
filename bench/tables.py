#!/usr/bin/env python3
"""Writes the results tables of README.md from bench/results/*.jsonl.

    bench/tables.py            rewrites what stands between the two markers of README.md
    bench/tables.py --check    exits with 1 if that would change it
"""
import collections
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- results: begin, written by bench/tables.py -->", "<!-- results: end -->"
NAMES = {"ours": "flashdecode", "fa": "llama.cpp, FA on", "nofa": "llama.cpp, FA off", "ik": "ik_llama.cpp", "mistralrs": "mistral.rs"}


def rows(name):
    path = ROOT / "bench" / "results" / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def number(x):
    return f"{x:,.0f}" if x >= 100 else f"{x:.1f}"


def peers():
    """Tokens/s of every engine, and how often ours fits into the best of the others, by turns. Reading a prompt is shown at depth 0."""
    cells = collections.defaultdict(dict)
    engines = []
    for r in rows("cpu-peers.jsonl"):
        if r["test"].startswith("pp") and r["depth"]:
            continue
        cells[r["model"].split("-")[0], r["weights"], r["kv"], r["test"], r.get("batch", 1), r["depth"]][r["engine"]] = r
        if r["engine"] not in engines:
            engines.append(r["engine"])
    if not cells:
        return []
    engines.sort(key=list(NAMES).index)
    out = ["| model | KV | test | depth | " + " | ".join(NAMES[e] for e in engines) + " | × best |",
           "|---|---|---|--:|" + "--:|" * (len(engines) + 1)]
    order = lambda c: (c[0][0] != "SmolLM2", c[0][1], c[0][2], c[0][3][:2] != "tg", c[0][4], c[0][5])
    for (model, weights, kv, test, batch, depth), by in sorted(cells.items(), key=order):
        figures = [number(by[e]["median"]) if e in by else "" for e in engines]
        best = min((r["ratio_median"] for r in by.values() if "ratio_median" in r), default=None)
        test = test if batch == 1 else f"{batch} × {test}"
        out.append(f"| {model} {weights} | {kv} | {test} | {depth:,} | " + " | ".join(figures) + f" | {f'{best:.2f}' if best else ''} |")
    return out


def attention():
    """Split attention; rows with split none are in the file only. The memory of a shared machine has slow and fast spells."""
    out = ["| heads | KV | tokens | pages | µs | GB/s | plain read | % of it |", "|---|---|---|---|--:|--:|--:|--:|"]
    rs = [r for r in rows("cpu-attention.jsonl") if r["split"] == "auto"]
    for r in rs:
        lens = collections.Counter(r["lens"])
        tokens = " + ".join(f"{n:,}" if k == 1 else f"{k} × {n:,}" for n, k in lens.items())
        out.append(f"| {r['q_heads']}/{r['kv_heads']} of {r['head_dim']} | {r['kv_type']} | {tokens} | {r['pages']} | {r['ns'] / 1e3:,.0f} "
                   f"| {r['gb_per_second']:.1f} | {r['read_gb_per_second']:.1f} | {r['percent_of_read']:.0f} |")
    return out if rs else []


def text():
    rs = rows("cpu-peers.jsonl")
    first = rs[0] if rs else {}
    parts = [BEGIN, ""]
    if rs:
        parts += [f"SmolLM2-135M-Instruct and Gemma 3 270M on {first['cpu']}, {first['threads']} threads, tokens/s; medians of engines that took turns "
                  "(`bench/peers/interleave.py`, rows in `bench/results/cpu-peers.jsonl`). `× best` is the median over turns of ours against "
                  "the strongest peer of that row.", "", *peers(), ""]
    table = attention()
    if table:
        parts += ["Attention alone, one layer, in turns with a plain read of as many bytes (`flashdecode bench attn`, "
                  "`bench/results/cpu-attention.jsonl`):", "", *table, ""]
    return "\n".join(parts + [END])


def main():
    path = ROOT / "README.md"
    old = path.read_text()
    head, rest = old.split(BEGIN, 1)
    new = head + text() + rest.split(END, 1)[1]
    if "--check" in sys.argv[1:]:
        if new != old:
            sys.exit("README.md: results tables are not those of bench/results: run bench/tables.py")
        return
    path.write_text(new)


if __name__ == "__main__":
    main()
