// check: the lengths and the table of each sequence, before attention trusts them. Reference: ops.Batch.Check.
// A bad sequence gets length 0 in the copies that attention is given, and a flag says what was bad: the host looks at it
// when it likes. grid (sequence), block 128. Bound: latency; a table of 65,536 entries takes 512 rounds.
#pragma once
#include "../prim/prim.cuh"
#include "params_check.h"

namespace fd::check {

constexpr int kThreads = 128;

DEV int load(uint64_t array, int i) { return (int)ld32((const char*)array + (uint64_t)i * 4); }
DEV void store(uint64_t array, int i, int v) { st32((char*)array + (uint64_t)i * 4, (uint32_t)v); }
DEV int clamp(int x, int most) { return max(0, min(x, most)); }

// span clamps entry i of an offset array into its copy, the last entry too, and returns whether [i], [i+1] are a range.
DEV bool span(uint64_t in, uint64_t out, int i, int last, int most, int& count) {
  const int a = load(in, i), b = load(in, i + 1);
  if (threadIdx.x == 0) {
    store(out, i, clamp(a, most));
    if (i == last) store(out, i + 1, clamp(b, most));
  }
  count = b - a;
  return a >= 0 && b >= a && b <= most;
}

// pages_bad is nonzero if one of the first n entries of the table at first is no page.
DEV bool pages_bad(const FdCheckParams& p, int64_t first, int n) {
  bool bad = false;
  for (int i = threadIdx.x; i < n; i += kThreads) {
    const int page = (int)ld32((const char*)p.table + (first + i) * 4);
    bad = bad || page < 0 || page >= p.pages;
  }
  SHARED_ARRAY(uint32_t, found, kThreads / 32);
  const bool any = __any_sync(~0u, bad);
  if (threadIdx.x % 32 == 0) found[threadIdx.x / 32] = any;
  __syncthreads();
  return (found[0] | found[1] | found[2] | found[3]) != 0;
}

DEV void kernel(const FdCheckParams& p) {
  const int b = blockIdx.x, last = p.seqs - 1, len = load(p.kv_len, b);
  int fault = len < 0 || len > p.max_kv_len ? FD_FAULT_KV_LEN : 0, count = 0;
  if (p.q_indptr && (!span(p.q_indptr, p.q_indptr_out, b, last, p.q_rows, count) || count > p.q_len)) fault = FD_FAULT_Q_INDPTR;
  const int need = fault ? 0 : (int)(((int64_t)len + p.page_size - 1) / p.page_size);
  int64_t first = (int64_t)b * p.table_stride;
  if (p.table_indptr) {
    first = load(p.table_indptr, b);
    if ((!span(p.table_indptr, p.table_indptr_out, b, last, p.entries, count) || count < need) && !fault) fault = FD_FAULT_INDPTR;
  } else if (p.table && need > p.table_stride) {
    fault = FD_FAULT_INDPTR;
  }
  if (p.table && !fault && pages_bad(p, first, need)) fault = FD_FAULT_PAGE;  // the same branch for the whole block
  if (threadIdx.x) return;
  store(p.kv_len_out, b, fault ? 0 : len);
  if (fault) st64((void*)p.fault, make_uint2((uint32_t)fault, (uint32_t)b));
}

}  // namespace fd::check
