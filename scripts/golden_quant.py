#!/usr/bin/env python3
"""Makes weights/quant/testdata/<type>.gz, the goldens of the number formats.

Usage: pip install gguf==0.19.0 numpy==2.4.6 && scripts/golden_quant.py

The `gguf` package implements the published reference formulae in numpy, independently of this
repository. Each file, gunzipped, is little endian:

    u32 n, n blocks, their weights as float32             (dequantisation)
    u32 n, weights of n blocks as float32, their blocks   (quantisation; n = 0 for the K formats,
                                                           which the package cannot quantise)
"""

import gzip
import io
import pathlib
import struct

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize, quantize

TESTDATA = pathlib.Path(__file__).resolve().parent.parent / "weights" / "quant" / "testdata"
TYPES = ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"]

# Where each format keeps its halves: byte offsets in a block.
HALVES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}

# Zero, the smallest and largest subnormal, the smallest normal, 1, the largest half, infinity, a NaN.
EDGE_HALVES = [0x0000, 0x0001, 0x03FF, 0x0400, 0x3C00, 0x7BFF, 0x7C00, 0x7E01]


def blocks_to_read(name, rng):
    weights, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    if weights == 1:
        patterns = [h << 16 for h in EDGE_HALVES] if size == 4 else list(EDGE_HALVES)
        patterns += [p | 1 << (8 * size - 1) for p in patterns]
        edge = np.array(patterns, dtype=f"<u{size}").view(np.uint8).reshape(-1, size)
        return np.concatenate([edge, rng.integers(0, 256, (64, size), dtype=np.uint8)])
    blocks = [np.full(size, fill, dtype=np.uint8) for fill in (0x00, 0xFF, 0x80, 0x7F)]
    for i, half in enumerate(EDGE_HALVES):
        for sign in (0, 0x8000):
            block = rng.integers(0, 256, size, dtype=np.uint8)
            for k, at in enumerate(HALVES[name]):  # the second half differs from the first
                edge = (half if k == 0 else EDGE_HALVES[(i + 3) % len(EDGE_HALVES)]) | sign
                block[at:at + 2] = [edge & 255, edge >> 8]
            blocks.append(block)
    for _ in range(8):  # random codes with scales as models have them
        block = rng.integers(0, 256, size, dtype=np.uint8)
        for at in HALVES[name]:
            block[at:at + 2] = np.array([rng.normal() * 0.01], dtype=np.float16).view(np.uint8)
        blocks.append(block)
    return np.stack(blocks)


def fusion_rows(name, rng):
    """A block in which some codes would differ if the quantiser fused its multiplication and addition:
    weights whose exact product falls just below the point where the sum rounds up to an integer, but
    whose rounded product falls on it."""
    if name == "Q8_0":
        return np.empty((0, 32), dtype=np.float32)
    codes = 16 if name.startswith("Q4") else 32
    symmetric = name.endswith("_0")
    # Without the shift by half the codes, only the step to code 1 has a sum coarser than its product.
    targets = np.arange(2, codes - 1) if symmetric else [1]
    while True:
        row = np.zeros(32, dtype=np.float32)  # the last weight stays 0: the min of the _1 formats
        row[0] = rng.uniform(1, 2)
        d = row[0] / np.float32(-codes / 2 if symmetric else codes - 1)
        inv, offset = np.float32(1) / d, np.float32(codes / 2 + 0.5 if symmetric else 0.5)
        found = np.zeros(32, dtype=bool)
        for i, code in zip(range(1, 31), np.resize(np.array(targets, dtype=np.float32), 30)):
            below = np.nextafter(code, np.float32(0))
            target = np.float32(((float(code) + float(below)) / 2 - float(offset)) / float(inv))
            for steps in range(-4, 5):
                x = np.float32(target * (1 + steps * 2.0**-23))
                fused = np.float32(float(x) * float(inv) + float(offset))
                if np.trunc(x * inv + offset) != np.trunc(fused):
                    row[i], found[i] = x, True
        if found[:16].any() and found[16:].any():
            return row.reshape(1, 32)


def weights_to_write(name, rng):
    weights, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    if weights == 1:
        edge = np.array([0.0, -0.0, 1.0, -1.0, 65504.0, 65519.996, 65520.0, 1e-8, 2.0**-24, 2.0**-25, 1.5 * 2.0**-25,
                         6.1e-5, 3.4e38, 1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-8, 1 + 3 * 2.0**-8],
                        dtype=np.float32)
        return np.concatenate([edge, rng.normal(size=64).astype(np.float32)]).reshape(-1, 1)
    rows = [np.zeros(32), np.full(32, 0.75), np.full(32, -0.75), np.arange(32) - 16.0, 15.0 - np.arange(32),
            np.arange(32) / 4.0, np.tile([1.0, -1.0], 16), np.tile([-1.0, 1.0], 16),
            (np.arange(32) - 16.0) * 2.0**-20, (np.arange(32) - 15.5) / 127.0, 1000.0 + np.arange(32) / 64.0,
            np.concatenate([np.zeros(31), [3e4]]), np.concatenate([[-5e4], np.ones(31)])]
    rows += [rng.normal(size=32) * 10.0**e for e in (-6, -4, -3, -2, -2, -1, -1, 0, 0, 1, 2, 3)]
    rows += [np.round(rng.normal(size=32) * 4) / 2 for _ in range(8)]  # many exact ties
    return np.concatenate([np.stack(rows).astype(np.float32), fusion_rows(name, rng)])


def main():
    TESTDATA.mkdir(parents=True, exist_ok=True)
    np.seterr(all="ignore")
    for index, name in enumerate(TYPES):
        rng = np.random.default_rng(1000 + index)
        kind = GGMLQuantizationType[name]
        out = io.BytesIO()
        blocks = blocks_to_read(name, rng)
        out.write(struct.pack("<I", len(blocks)))
        out.write(blocks.tobytes())
        out.write(dequantize(blocks, kind).astype("<f4").tobytes())
        if name.endswith("_K"):
            out.write(struct.pack("<I", 0))
        else:
            weights = weights_to_write(name, rng)
            out.write(struct.pack("<I", len(weights)))
            out.write(weights.astype("<f4").tobytes())
            out.write(quantize(weights, kind).tobytes())
        (TESTDATA / f"{name}.gz").write_bytes(gzip.compress(out.getvalue(), mtime=0))


if __name__ == "__main__":
    main()
