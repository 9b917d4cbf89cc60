#!/usr/bin/env python3
"""Write ../filler.txt, the text that hides a needle: the opening of Pride and Prejudice (1813).

    python prepare_corpus.py --out corpus --only austen
    python make_filler.py --corpus corpus
"""
import argparse
import pathlib
import re

LIMIT = 100_000  # bytes: 16k tokens need about 70,000
DOC_SEP = "<|endoftext|>"
HEADING = re.compile(r"(chapter\s+\w+|pride and prejudice|by jane austen|volume \w+)\W*", re.I)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--corpus", type=pathlib.Path, required=True)
    ap.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent / "filler.txt")
    a = ap.parse_args()
    novels = (a.corpus / "text" / "austen.txt").read_text().split(f"\n{DOC_SEP}\n")
    novel = next(n for n in novels if n.lstrip().upper().startswith("PRIDE AND PREJUDICE"))
    kept, size = [], 0
    for p in novel.strip().split("\n\n"):
        if HEADING.fullmatch(p):
            continue
        size += len(p) + 2
        if size > LIMIT:
            break
        kept.append(p)
    a.out.write_text("\n\n".join(kept) + "\n")
    print(f"{a.out.name}: {len(kept)} paragraphs, {a.out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
