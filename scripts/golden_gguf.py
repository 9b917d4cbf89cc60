#!/usr/bin/env python3
"""Makes weights/gguf/testdata/*.gguf with the `gguf` package's writer, independent of this repository.

Usage: pip install gguf==0.19.0 numpy==2.4.6 && scripts/golden_gguf.py

    python.gguf                     every metadata type, tensors of five formats, alignment 64
    split-0000N-of-00003.gguf       one model in three shards

The Go tests hold the same contents written out: they check what they read, and that writing the same
contents gives python.gguf byte for byte.
"""

import pathlib

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import GGUFValueType as V
from gguf import GGUFReader, GGUFWriter

TESTDATA = pathlib.Path(__file__).resolve().parent.parent / "weights" / "gguf" / "testdata"


def pattern(n, step):
    return (np.arange(n) * step % 256).astype(np.uint8)


def write(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def everything(path):
    w = GGUFWriter(path, "llama")
    w.add_custom_alignment(64)
    w.add_uint8("t.u8", 200)
    w.add_int8("t.i8", -100)
    w.add_uint16("t.u16", 60000)
    w.add_int16("t.i16", -30000)
    w.add_uint32("t.u32", 4000000000)
    w.add_int32("t.i32", -2000000000)
    w.add_uint64("t.u64", 2**63 + 5)
    w.add_int64("t.i64", -2**62)
    w.add_float32("t.f32", 1e-5)
    w.add_float64("t.f64", 0.1)
    w.add_bool("t.yes", True)
    w.add_bool("t.no", False)
    w.add_string("t.str", "héllo\n\u2581world")
    w.add_key_value("t.empty", "", V.STRING)
    w.add_array("a.str", ["<s>", "", "\u2581the", "\U0001f600"])
    w.add_key_value("a.i32", [1, -2, 3], V.ARRAY, sub_type=V.INT32)
    w.add_key_value("a.u16", [1, 2, 65535], V.ARRAY, sub_type=V.UINT16)
    w.add_key_value("a.i64", [-1, 2**40], V.ARRAY, sub_type=V.INT64)
    w.add_key_value("a.f32", [0.5, -1000.0], V.ARRAY, sub_type=V.FLOAT32)
    w.add_key_value("a.f64", [0.1], V.ARRAY, sub_type=V.FLOAT64)
    w.add_key_value("a.bool", [True, False, True], V.ARRAY, sub_type=V.BOOL)
    w.add_tensor("norm.weight", np.arange(5, dtype=np.float32) / 2 - 1)
    w.add_tensor("full.weight", np.arange(16, dtype=np.float32))  # 64 bytes: no padding behind it
    w.add_tensor("half.weight", np.arange(12, dtype=np.float16).reshape(3, 4))
    w.add_tensor("q8.weight", pattern(2 * 3 * 2 * 34, 7).reshape(2, 3, 2 * 34), raw_dtype=T.Q8_0)
    w.add_tensor("q4k.weight", pattern(2 * 144, 5).reshape(2, 144), raw_dtype=T.Q4_K)
    w.add_tensor("bf16.weight", pattern(6 * 2, 3).reshape(6, 2), raw_dtype=T.BF16)
    write(w)
    reader = GGUFReader(path)  # the package reads what it wrote
    assert [t.name for t in reader.tensors][0] == "norm.weight"


def split(path):
    w = GGUFWriter(path, "llama", split_max_tensors=1)
    w.add_uint32("llama.block_count", 3)
    for i in range(3):
        w.add_tensor(f"blk.{i}.weight", np.full(4, i, dtype=np.float32))
    write(w)


if __name__ == "__main__":
    TESTDATA.mkdir(parents=True, exist_ok=True)
    everything(TESTDATA / "python.gguf")
    split(TESTDATA / "split.gguf")
