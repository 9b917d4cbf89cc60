// Addresses of cache rows, token by token: any page size, all three address modes (FdKvRows).
#pragma once
#include "../prim/prim.cuh"
#include "params_prefill.h"

namespace fd {

template <class T> DEV T* at(uint64_t address) { return (T*)(uintptr_t)address; }
DEV int32_t load_i32(uint64_t array, int64_t i) { return (int32_t)ldg32(at<char>(array) + i * 4); }

// One sequence of a cache.
struct SeqRows {
  uint64_t base;           // bytes
  const int32_t* table;    // null: pages follow each other
  uint64_t page_stride;
  uint32_t token_stride;
  uint32_t page_size;

  // Byte offset of a token from its tensor.
  DEV uint64_t offset(uint32_t token) const {
    const uint32_t i = token / page_size;
    const uint64_t page = table ? (uint64_t)ldg32(table + i) : i;
    return base + page * page_stride + (uint64_t)(token - i * page_size) * token_stride;
  }
};

DEV SeqRows seq_rows(const FdKvRows& r, int seq) {
  SeqRows s{0, nullptr, r.page_stride, r.token_stride, (uint32_t)r.page_size};
  if (r.table) s.table = at<int32_t>(r.table) + (r.table_indptr ? (int64_t)load_i32(r.table_indptr, seq) : (int64_t)seq * r.table_stride);
  else if (r.seq_base) { const uint2 b = ldg64(at<char>(r.seq_base) + (int64_t)seq * 8); s.base = (uint64_t)b.y << 32 | b.x; }
  else s.base = (uint64_t)seq * r.seq_stride;
  return s;
}

// The same fields of the attention kernels' parameters.
DEV FdKvRows kv_rows(const FdDecodeParams& p) {
  return FdKvRows{p.table, p.table_indptr, p.seq_base, p.page_stride, p.seq_stride, p.token_stride, p.head_stride, p.page_size, p.table_stride};
}

// The sequence that brings query row: the last one whose first row is not after it (so not an empty one before it).
DEV int seq_of_row(uint64_t q_indptr, int batch, int row) {
  int lo = 0, hi = batch;
  while (hi - lo > 1) {
    const int mid = (lo + hi) / 2;
    if (load_i32(q_indptr, mid) <= row) lo = mid; else hi = mid;
  }
  return lo;
}

}  // namespace fd
