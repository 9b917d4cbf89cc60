#!/usr/bin/env python3
"""Extracts model/testdata/real/austen.txt, the opening of Persuasion (Jane Austen, 1817: public domain).

The text comes from Debian's package r-cran-janeaustenr 1.0.0-1:

    apt-get download r-cran-janeaustenr
    dpkg-deb -x r-cran-janeaustenr_1.0.0-1_all.deb deb
    python scripts/austen_text.py deb/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb model/testdata/real/austen.txt

An .rdb file is a row of records: the unpacked length (4 bytes, big endian), for some a letter that names
the compression, then one compressed R object (R Internals, section 1.8, "Serialization Formats").
"""
import bz2
import lzma
import struct
import sys
import zlib

LIMIT = 48_000  # bytes; cut back to a whole paragraph


def records(blob):
    while len(blob) > 5:
        letter = blob[4:5]
        unpack = {b"2": bz2.BZ2Decompressor, b"Z": lzma.LZMADecompressor}.get(letter)
        stream = unpack() if unpack else zlib.decompressobj()
        yield stream.decompress(blob[5 if unpack else 4:])
        blob = stream.unused_data


def strings(record):
    """The strings of a serialized character vector (type 16 of CHARSXP, type 9), or nothing."""
    at = 14 if record[:2] == b"X\n" else 0  # format and the three version numbers
    (version,) = struct.unpack_from(">i", record, 2)
    if version == 3:  # then the name of the encoding follows
        (n,) = struct.unpack_from(">i", record, at)
        at += 4 + n
    flags, count = struct.unpack_from(">ii", record, at)
    at += 8
    if flags & 255 != 16:
        return
    for _ in range(count):
        flags, n = struct.unpack_from(">ii", record, at)
        at += 8
        yield "" if n < 0 else record[at:at + n].decode("utf-8")
        at += max(n, 0)


def main(source, target):
    with open(source, "rb") as f:
        novels = ["\n".join(strings(r)) for r in records(f.read())]
    text = next(n for n in novels if n.lower().startswith("persuasion")).encode()[:LIMIT]
    text = text[: text.rindex(b"\n\n") + 1]
    with open(target, "wb") as f:
        f.write(text)
    print(f"{target}: {len(text)} bytes, {text.count(10)} lines")


if __name__ == "__main__":
    main(*sys.argv[1:])
