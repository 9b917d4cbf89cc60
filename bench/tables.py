#!/usr/bin/env python3
"""Writes the results tables of README.md, and docs/results-cuda.md, from bench/results/*.jsonl.

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


OURS = ("auto", "naive", "nosplit", "split1", "split2")


def best_peer(r):
    """The fastest peer of a row of the GPU: measured in the same session, or TileOPs, which was measured in another."""
    times = {n: t for n, t in {**r["us"], **r.get("other_run_us", {})}.items() if n.split("_")[0] not in OURS}
    return min(((t, n) for n, t in times.items()), default=(None, ""))


def heads(r):
    return f"{r['B']} × {r['N']:,}", f"{r['Hq']}/{r['Hkv']}"


def gpu_short():
    """README's table: batch 1, two shapes of heads, both formats."""
    out = ["| KV | heads | tokens | MB | floor | one launch | in a chain | two launches | no split | best peer | × |",
           "|---|---|--:|--:|--:|--:|--:|--:|--:|---|--:|"]
    for name, kv in (("cuda-std.jsonl", "bf16"), ("cuda-fp8.jsonl", "e4m3")):
        for r in rows(name):
            if r["B"] > 1 or (r["Hq"], r["Hkv"]) != (32, 8) or r["N"] not in (512, 2048, 8192, 32768, 131072):
                continue
            u, (peer, who) = r["us"], best_peer(r)
            out.append(f"| {kv} | {heads(r)[1]} | {r['N']:,} | {r['MB']:g} | {r['floor_us']:.1f} | {u['split1']:.1f} | {u['split1_pdl']:.1f} | {u['split2']:.1f} "
                       f"| {u['nosplit']:.1f} | {peer:.1f} {who} | {peer / u['split1']:.2f} |")
    return out if len(out) > 2 else []


def gpu_page():
    """docs/results-cuda.md: every cell."""
    out = ["# CUDA decode attention, measured", "",
           "Written by `bench/tables.py` from `bench/results/cuda-*.jsonl`. One NVIDIA H200, µs on the device per call: a graph of calls that rotate over at least",
           "512 MB of K/V, median of 11 replays; head dim 128, one query token, pages of 16 tokens in a block table. `floor`: a kernel that only reads the K/V bytes.",
           "`one launch` is split1, `chain` the same as a link of dependent launches that copies older tokens before it waits, `flat` and `contiguous` the same without a",
           "block table. Peers ran on the same machine minutes before, on the layout that suits each; TileOPs (contiguous) is from another machine of the kind.", "", "![latency against context](cuda-latency.svg)", ""]
    for name, title in (("cuda-std.jsonl", "bf16"), ("cuda-fp8.jsonl", "FP8 (e4m3) KV"), ("cuda-long.jsonl", "bf16, long")):
        rs = rows(name)
        if not rs:
            continue
        out += [f"## {title}", "", "| B × tokens | heads | MB | floor | one launch | % of floor | chain | flat | contiguous | two launches | no split | naive | best peer | × |",
                "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|--:|"]
        for r in rs:
            u, (peer, who) = r["us"], best_peer(r)
            cell = lambda n: f"{u[n]:.1f}" if n in u else ""
            out.append(f"| {' | '.join(heads(r))} | {r['MB']:g} | {r['floor_us']:.1f} | {cell('split1')} | {100 * r['floor_us'] / u['split1']:.0f} | {cell('split1_pdl')} "
                       f"| {cell('split1_flat')} | {cell('split1_contig')} | {cell('split2')} | {cell('nosplit')} | {cell('naive')} | "
                       + (f"{peer:.1f} {who} | {peer / u['split1']:.2f} |" if peer else " | |"))
        out.append("")
    return out + gpu_sources() + gpu_skew()


def gpu_sources():
    """The tables of the two documents that the product implements."""
    out = ["## The source documents' shapes", "",
           "Both documents compare splitting with an attention that does not split. Here the baseline is one CTA per sequence and KV head (`no split`); with as many KV heads as query",
           "heads it is one CTA per query head, as the documents have it. The 16-head table is given at batch 1 and at the 65,536 tokens a batch that its figures fit.", "",
           "| B × tokens | heads | floor | naive | no split | two launches | one launch | no split / one launch | two / one |", "|---|---|--:|--:|--:|--:|--:|--:|--:|"]
    rs = rows("cuda-seeds.jsonl")
    for r in rs:
        u = r["us"]
        naive = f"{u['naive']:.1f}" if "naive" in u else ""
        out.append(f"| {' | '.join(heads(r))} | {r['floor_us']:.1f} | {naive} | {u['nosplit']:.1f} | {u['split2']:.1f} | {u['split1']:.1f} "
                   f"| {u['nosplit'] / u['split1']:.2f} | {u['split2'] / u['split1']:.2f} |")
    return out + [""] if rs else []


def gpu_skew():
    out = ["## Uneven batches", "", "Each against the same bytes spread evenly (the row below it).", "",
           "| batch | MB | floor | one launch | × even | flat | no split |", "|---|--:|--:|--:|--:|--:|--:|"]
    rs = rows("cuda-skew.jsonl")
    for r, even in zip(rs[::2], rs[1::2]):
        for x, title in ((r, f"{r['B']} sequences, the longest {r['N']:,}"), (even, f"{even['B']} of {even['N']:,}")):
            u = x["us"]
            out.append(f"| {title} | {x['MB']:,.0f} | {x['floor_us']:.1f} | {u['split1']:.1f} | {u['split1'] / even['us']['split1']:.2f} | {u['split1_flat']:.1f} | {u['nosplit']:.1f} |")
    return out + [""] if rs else []


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
                  "`bench/results/cpu-attention.jsonl`). The memory of this shared machine has slow and fast spells; the second block fell into a fast one:", "", *table, ""]
    table = gpu_short()
    if table:
        parts += ["Decode attention on one NVIDIA H200, µs, batch 1 (`flashdecode bench attn --device cuda`); × is the best peer's time over one launch's. "
                  "[Every cell](docs/results-cuda.md), batches and 1M tokens included:", "", *table, ""]
    return "\n".join(parts + [END])


def main():
    path = ROOT / "README.md"
    old = path.read_text()
    head, rest = old.split(BEGIN, 1)
    new = head + text() + rest.split(END, 1)[1]
    page, cells = ROOT / "docs" / "results-cuda.md", "\n".join(gpu_page())
    if "--check" in sys.argv[1:]:
        if new != old or page.read_text() != cells:
            sys.exit("README.md or docs/results-cuda.md: tables are not those of bench/results: run bench/tables.py")
        return
    path.write_text(new)
    page.write_text(cells)


if __name__ == "__main__":
    main()
