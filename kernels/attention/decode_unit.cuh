// Which part of the work a CTA has: the unit (sequence and tile of query rows), the KV head, the tokens.
#pragma once
#include "decode_tile.cuh"

// What a flag switches on, moved out of the usual path: a kernel of a few microseconds waits for its instructions.
#define RARE(x) __builtin_expect((x) != 0, 0)

namespace fd {

enum Combine { CLUSTER, MAILBOX, CHUNK };
enum Paging { FAST, ANY };  // FAST: 2^k >= 16 tokens a page, or none; a tile lies in one page

struct Unit {
  int b, h, len;           // sequence, KV head, tokens in the cache
  int q_len, q_first;      // query tokens of the sequence; the first one's index in q
  int row0, rows;          // rows of this CTA: row0 ... row0+rows-1 of the sequence's q_len * group
  int lo, hi;              // positions that any of these rows attends, as far as this CTA computes them: lo <= j < hi
  int inner_lo, inner_hi;  // tiles that all rows attend entirely, and the item contains
  int tile, step, end;     // tiles of this CTA: tile + warp, ... by step, below end
  int split, splits;       // this CTA is number split of splits for the pair
  int slot, first_slot;    // CHUNK: first State slot of this CTA, and of split 0
  int slot_stride;         // slots from split to split
  int counter;             // CHUNK: arrival counter
};

// n * stride, neither negative: one multiplication.
DEV uint64_t times(int n, uint32_t stride) { return (uint64_t)(uint32_t)n * stride; }

// Are there masks other than the length?
template <class S> DEV bool masked(const FdDecodeParams& p) { return S::OPTIONS && RARE(p.flags & FD_MASKED); }
// The query token of a row.
template <class S> DEV int token_of(const FdDecodeParams& p, int row) { return masked<S>(p) ? (int)(times(2 * row, p.group_rcp) >> 32) : 0; }

DEV int read_int(uint64_t base, int i) { return (int)ldg32((const char*)base + times(i, 4)); }

// Positions that query token i attends: row_lo <= j < row_hi. Bottom-right aligned: token i has position len - q_len + i.
DEV int row_lo(const FdDecodeParams& p, const Unit& u, int i) {
  return p.window_left >= 0 ? max(0, u.len - u.q_len + i - p.window_left) : 0;
}
DEV int row_hi(const FdDecodeParams& p, const Unit& u, int i) {
  const int pos = u.len - u.q_len + i;
  int hi = u.len;
  if (p.flags & FD_CAUSAL) hi = min(hi, pos + 1 + MUTANT(decode_causal_off_by_one));
  if (p.window_right >= 0) hi = min(hi, pos + p.window_right + 1);
  return hi;
}

// later: x, which the compiler cannot compute before the loop that counts turn (below 2^24) is at that turn. It would hoist
// what only the edges of a sequence or an option need to the start of the kernel, where every cycle counts.
DEV int later(int x, int turn) { return x ^ (turn >> 24); }

// set_end: all tokens below len, without masks.
DEV void set_end(Unit& u, int len) {
  u.hi = len;
  u.inner_hi = len >> 4;
  u.end = (len + 15) >> 4;
}

// set_range: from the rows' masks to the positions and tiles that matter. Without masks: all tokens.
template <class S> DEV void set_range(const FdDecodeParams& p, Unit& u) {
  u.lo = 0;
  u.hi = u.len;
  u.inner_lo = 0;
  int inner = u.len;
  if (masked<S>(p)) {
    const int first = token_of<S>(p, u.row0), last = token_of<S>(p, u.row0 + u.rows - 1);  // bounds grow with the token
    u.lo = row_lo(p, u, first);
    u.hi = max(row_hi(p, u, last), u.lo);
    u.inner_lo = (row_lo(p, u, last) + 15) >> 4;
    inner = max(row_hi(p, u, first), 0);
  }
  u.inner_hi = inner >> 4;
  u.end = u.hi > u.lo ? (u.hi + 15) >> 4 : 0;
}

// grid_unit reads what the grid position says, row tiles being of n rows. False: no rows for this CTA.
template <class S> DEV bool grid_unit(const FdDecodeParams& p, Unit& u, int n) {
  const int z = blockIdx.z;
  u.b = z >> p.row_tiles_log2;
  u.h = blockIdx.y;
  u.len = read_int(p.kv_len, u.b);
  u.q_len = p.q_len;
  u.q_first = u.b * p.q_len;
  if (S::OPTIONS && RARE(p.flags & FD_RAGGED_Q)) {
    u.q_first = read_int(p.q_indptr, u.b);
    u.q_len = read_int(p.q_indptr, u.b + 1) - u.q_first;
  }
  u.row0 = (z - (u.b << p.row_tiles_log2)) * n;
  u.rows = min(n, u.q_len * p.group - u.row0);
  return u.rows > 0;
}

// chunk_range: CTA x takes the x-th chunk that the unit touches, chunks counted from token 0. With split >= splits it has
// none, which the caller checks only after its first loads are under way.
template <class S> DEV void chunk_range(const FdDecodeParams& p, Unit& u, int warp) {
  int first = u.lo >> 4, chunk = u.split;
  u.splits = (u.end + p.chunk_tiles - 1) / p.chunk_tiles;
  if (S::OPTIONS && RARE(first)) {
    const int skipped = first / p.chunk_tiles;
    u.splits -= skipped;
    chunk += skipped;
  }
  u.splits = max(u.splits, 1);
  if (S::OPTIONS && RARE(first)) u.tile = max(first, chunk * p.chunk_tiles) + warp;
  u.end = min(u.end, (chunk + 1) * p.chunk_tiles);
  const int pair = blockIdx.z * p.kv_heads + u.h;
  u.counter = pair;
  u.slot_stride = p.state_rows;
  u.first_slot = pair * p.splits * p.state_rows;
  u.slot = u.first_slot + u.split * p.state_rows;
}

// item_unit reads item x of the plan; y is the tile of its rows. False: beyond the plan, or no rows.
template <class S> DEV bool item_unit(const FdDecodeParams& p, Unit& u) {
  const int x = blockIdx.x;
  if (p.item_count && x >= read_int(p.item_count, 0)) return false;
  const char* item = (const char*)p.items + (int64_t)x * sizeof(FdItem);
  const uint4 a = ldg128(item), c = ldg128(item + 16);
  const int row = a.z, first = c.x, merge = c.w;
  u.b = a.x;
  u.h = a.y;
  u.len = read_int(p.kv_len, u.b);
  u.q_len = p.q_len;
  u.q_first = u.b * p.q_len;
  if (S::OPTIONS && RARE(p.flags & FD_RAGGED_Q)) {
    u.q_first = read_int(p.q_indptr, u.b);
    u.q_len = read_int(p.q_indptr, u.b + 1) - u.q_first;
  }
  const int tile = blockIdx.y * S::N;
  u.row0 = row * p.group + tile;
  u.rows = min(S::N, (int)a.w * p.group - tile);
  if (u.rows <= 0) return false;
  set_range<S>(p, u);
  u.lo = max(u.lo, first);
  u.hi = max(min(u.hi, first + (int)c.y), u.lo);
  u.inner_lo = max(u.inner_lo, (first + 15) >> 4);
  u.inner_hi = min(u.inner_hi, (first + (int)c.y) >> 4);
  u.tile = u.lo >> 4;
  u.end = u.hi > u.lo ? (u.hi + 15) >> 4 : 0;
  u.split = 0;
  u.splits = 1;
  if (merge >= 0) {
    const char* m = (const char*)p.merges + (int64_t)merge * sizeof(FdMergeItem);
    const uint2 s = ldg64(m + 16);  // state, splits
    u.splits = s.y;
    u.slot_stride = (int)a.w * p.group;
    u.first_slot = (int)s.x + tile;
    u.slot = (int)c.z + tile;
    u.counter = merge * (int)gridDim.y + blockIdx.y;
  }
  return true;
}

}  // namespace fd
