// What a CTA of prefill computes, from items or from its place in the grid.
#pragma once
#include "rows.cuh"

namespace fd::prefill {

// What a CTA computes: packed rows row0 ... row0+rows-1 of a sequence's KV head over tokens [first, end).
struct Work {
  int seq, kv_head;
  int q_start, q_len, kv_len;   // the sequence
  int token, row0, rows;        // query token of row 0; first packed row behind it; rows of this CTA
  int first, end, lowest;       // tokens before lowest are outside of every row's window: not read, as their pages may be gone
  int slot, splits, first_slot; // State slots of the item's row 0: its own, and of split 0; splits 0: write the output
  int slots, counter;           // State slots of a split: rows * group of the item
  SeqRows kv;
  uint64_t k, v;                // the head's tensors
  DEV int position() const { return kv_len - q_len + token; }
};

struct Span { int lo, hi; };  // tokens lo ... hi

// Tokens that the query token at this position attends, of [0, kv_len).
DEV Span span_of(const FdDecodeParams& p, int position, int kv_len) {
  Span s{0, kv_len - 1};
  if (p.flags & FD_CAUSAL) s.hi = min(s.hi, position);
  if (p.window_right >= 0) s.hi = min(s.hi, position + p.window_right);
  if (p.window_left >= 0) s.lo = max(0, position - p.window_left);
  return s;
}

// find: this CTA's work; false: none.
template <int kM> DEV bool find(const FdDecodeParams& p, Work& w) {
  int rows, count = -1;
  w.splits = w.slot = w.first_slot = w.slots = w.counter = 0;
  if (p.items) {
    if (p.item_count && (int)blockIdx.x >= load_i32(p.item_count, 0)) return false;
    const char* item = at<char>(p.items) + (int64_t)blockIdx.x * sizeof(FdItem);
    const uint4 a = ldg128(item), b = ldg128(item + 16);
    w.seq = a.x; w.kv_head = a.y; w.token = a.z; rows = a.w;
    w.first = b.x; count = b.y;
    w.row0 = blockIdx.y * kM;
    if ((int)b.w >= 0) {
      const char* merge = at<char>(p.merges) + (int64_t)(int)b.w * sizeof(FdMergeItem);
      const uint2 m = ldg64(merge + 16);
      w.slot = b.z; w.first_slot = m.x; w.splits = m.y; w.slots = rows * p.group; w.counter = (int)b.w * gridDim.y + blockIdx.y;
    }
  } else {
    w.seq = blockIdx.z; w.kv_head = blockIdx.y; w.first = 0; w.row0 = 0;
    rows = kM / p.group;
    w.token = (gridDim.x - 1 - blockIdx.x) * rows;  // causal: the last tokens attend most, so they go first
  }
  w.kv_len = load_i32(p.kv_len, w.seq);
  w.q_start = p.q_indptr ? load_i32(p.q_indptr, w.seq) : w.seq * p.q_len;
  w.q_len = p.q_indptr ? load_i32(p.q_indptr, w.seq + 1) - w.q_start : p.q_len;
  rows = min(rows, w.q_len - w.token);
  w.rows = min(rows * p.group - w.row0, kM);
  w.end = count < 0 ? w.kv_len : min(w.first + count, w.kv_len);
  return w.rows > 0;  // with q_len 0, or a surplus CTA of a captured graph, there is nothing to do
}

// trim cuts [first, end) to what the CTA's rows attend, and first to a whole number of tiles from token 0, so that a row's
// arithmetic does not depend on how its chunk of the prompt was cut.
template <int kN> DEV void trim(const FdDecodeParams& p, Work& w) {
  const int last = w.position() + (w.row0 + w.rows - 1) / p.group;
  const Span a = span_of(p, w.position() + w.row0 / p.group, w.kv_len), b = span_of(p, last, w.kv_len);
  w.end = min(w.end, b.hi + 1);
  w.lowest = a.lo;
  if (a.lo > w.first) w.first = max(w.first, a.lo / kN * kN);
}

// The packed row's place in q and out, in bytes.
DEV uint64_t row_offset(const FdDecodeParams& p, const Work& w, int r, uint32_t token_stride) {
  const int packed = w.row0 + r, token = packed / p.group;
  return (uint64_t)(w.q_start + w.token + token) * token_stride + (uint64_t)(w.kv_head * p.group + packed - token * p.group) * p.head_dim * 2;
}

}  // namespace fd::prefill
