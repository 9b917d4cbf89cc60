#!/usr/bin/env python3
"""Makes weights/safetensors/testdata with the `safetensors` package, independent of this repository.

Usage: pip install safetensors==0.5.3 numpy==2.4.6 && scripts/golden_safetensors.py

    python.safetensors     five dtypes, metadata
    sharded/               two shards, an index and a config.json
"""

import json
import pathlib

import numpy as np
from safetensors import serialize_file

TESTDATA = pathlib.Path(__file__).resolve().parent.parent / "weights" / "safetensors" / "testdata"


def tensor(dtype, shape, size):
    n = int(np.prod(shape)) * size
    return {"dtype": dtype, "shape": list(shape), "data": (np.arange(n) * 7 % 256).astype(np.uint8).tobytes()}


if __name__ == "__main__":
    sharded = TESTDATA / "sharded"
    sharded.mkdir(parents=True, exist_ok=True)
    serialize_file({
        "a.weight": tensor("float32", (2, 3), 4),
        "b.weight": tensor("float16", (4, 5), 2),
        "c.weight": tensor("bfloat16", (3, 1, 2), 2),
        "d.ids": tensor("int64", (3,), 8),
        "e.scalar": tensor("float32", (), 4),
        "f.empty": tensor("float32", (0, 4), 4),
    }, TESTDATA / "python.safetensors", {"format": "pt", "note": "h\u00e9llo"})
    weight_map = {}
    for i in range(2):
        name = f"model-{i + 1:05}-of-00002.safetensors"
        names = [f"layers.{i}.weight", f"layers.{i}.bias"]
        serialize_file({n: tensor("float32", (i + 1, 2), 4) for n in names + ["unlisted"]}, sharded / name, {"format": "pt"})
        weight_map.update({n: name for n in names})
    (sharded / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": 48}, "weight_map": weight_map}, indent=1) + "\n")
    (sharded / "config.json").write_text('{"model_type": "llama"}\n')
