// prefill: exact causal attention of many query tokens over the pages of a cache (FlashAttention tiling), and of a mixed
// batch: a decode token is an item with few rows, its KV range may be split. Reference: attn.Reference, attn.Merge.
//   q, out  [token][q head][head_dim]      rows of a KV head's group are packed: row r is token r / group, head r % group
//   states  O, (M, L) of items that are one split of several; the last of them to finish merges them in order of split
// grid (items, row tiles) or (token tiles, kv_heads, batch); block 32 * kWarps.
// shared memory: Q [kM][D], then kStages times K [kN][D], then as often V [kN][D]; rows swizzled in 16-byte chunks.
// Two barriers a tile: K of the next tile is copied behind S = Q K^T, V of the next one behind O += P V.
// Bound: tensor cores. A warp holds 32 query rows (16 for D = 256): with 16 it would wait for shared memory instead.
#pragma once
#include "half.cuh"
#include "rows.cuh"

namespace fd::prefill {

template <class T_, int D_, int MTiles_, int Warps_, int N_> struct Shape {
  using T = T_;
  static constexpr int D = D_, kWarps = Warps_, kMTiles = MTiles_;  // 16-row tiles of a warp
  static constexpr int kM = kWarps * kMTiles * 16, kN = N_, kStages = 2, kThreads = kWarps * 32;
  static constexpr int kRowBytes = D * 2, kChunks = D / 8;
  static constexpr int kTileBytes = kN * kRowBytes, kQBytes = kM * kRowBytes;
  static constexpr int kSharedBytes = kQBytes + 2 * kStages * kTileBytes;
  static constexpr int kWarpRows = kN / kWarps, kCopies = kWarpRows * kChunks / 32;
  static_assert(kN % kWarps == 0 && kWarpRows <= 32 && kWarpRows * kChunks % 32 == 0);
  static constexpr int kAccs = D / 8, kScores = kN / 8;  // 8-column tiles of O and S
};

// Chunk c of a row lies at chunk c ^ twist(row): the 8 rows of an ldmatrix fall into different banks. Rows of 192 bytes start
// half a bank line apart, so there only every second row needs another twist.
template <class S> DEV int twist(int row) { return S::D == 96 ? row >> 1 & 3 : row & 7; }
template <class S> DEV uint32_t chunk_at(int row, int c) { return row * S::kRowBytes + ((c ^ twist<S>(row)) << 4); }

// A lane's walk along pairs of chunks of its row: chunk 2*pair + second. Written so that a pair costs one instruction and no
// register: the twist only changes bits that the row's start leaves free (or, in rows of 192 bytes, the lower two of a chunk).
template <class S> struct Walk {
  uint32_t even, odd;
  DEV Walk(uint32_t tile, int row, int second) : even(tile + chunk_at<S>(row, second)), odd(S::D == 96 ? tile + chunk_at<S>(row, second + 2) : 0) {}
  DEV uint32_t at(int pair) const { return S::D == 96 ? (pair & 1 ? odd : even) + (pair >> 1) * 64 : even ^ (pair << 5); }
};

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

// Copies one tile of K or V: each warp kWarpRows whole rows, whose offsets its lanes looked up one tile ahead.
template <class S> DEV uint64_t look_up(const Work& w, int tile) {
  const int lane = threadIdx.x % 32, token = tile + (threadIdx.x / 32) * S::kWarpRows + lane;
  return lane < S::kWarpRows && token >= w.lowest && token < w.end ? w.kv.offset(token) : ~0ull;
}
template <class S> DEV void copy_tile(uint32_t dst, uint64_t tensor, uint64_t offset, int head_dim) {
  const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * S::kWarpRows;
  constexpr int kRows = 32 / S::kChunks;  // whole rows of one copy of the warp; 0: rows straddle copies
  const uint32_t start = dst + chunk_at<S>(first + lane / S::kChunks, lane % S::kChunks);
  UNROLL for (int i = 0; i < S::kCopies; i++) {
    const int e = i * 32 + lane, row = e / S::kChunks, c = e % S::kChunks;
    const uint32_t lo = __shfl_sync(~0u, (uint32_t)offset, row), hi = __shfl_sync(~0u, (uint32_t)(offset >> 32), row);
    const bool read = hi != ~0u && c * 8 < head_dim;  // else zeros: nothing past the length is read
    const uint32_t to = kRows * S::kChunks == 32 ? (start ^ (twist<S>(i * kRows) << 4)) + i * kRows * S::kRowBytes : dst + chunk_at<S>(first + row, c);
    cp_async16(to, at<char>(tensor + (read ? ((uint64_t)hi << 32 | lo) + c * 16 : 0)), read ? 16 : 0);
  }
}

// The packed row's place in q and out, in bytes.
DEV uint64_t row_offset(const FdDecodeParams& p, const Work& w, int r, uint32_t token_stride) {
  const int packed = w.row0 + r, token = packed / p.group;
  return (uint64_t)(w.q_start + w.token + token) * token_stride + (uint64_t)(w.kv_head * p.group + packed - token * p.group) * p.head_dim * 2;
}

template <class S> DEV void copy_q(const FdDecodeParams& p, const Work& w, uint32_t dst) {
  for (int e = threadIdx.x; e < S::kM * S::kChunks; e += S::kThreads) {
    const int row = e / S::kChunks, c = e % S::kChunks;
    const bool read = row < w.rows && c * 8 < p.head_dim;
    cp_async16(dst + chunk_at<S>(row, c), at<char>(p.q) + (read ? row_offset(p, w, row, p.q_token_stride) + c * 16 : 0), read ? 16 : 0);
  }
}

// The state of a warp's rows: thread 4*g + t of a quad holds rows g and g+8 of each 16-row tile.
template <class S> struct State {
  float o[S::kMTiles][S::kAccs][4];
  float m[S::kMTiles][2], l[S::kMTiles][2];  // m: reference logit, log2; l: this thread's columns only until the end
};
template <class S> using Scores = float[S::kMTiles][S::kScores][4];

// s = Q K^T of the warp's rows and a tile of tokens.
template <class S> DEV void scores(Scores<S>& s, uint32_t q, uint32_t k) {
  const int lane = threadIdx.x % 32;
  UNROLL for (int m = 0; m < S::kMTiles; m++) UNROLL for (int n = 0; n < S::kScores; n++) s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0.f;
  const Walk<S> q_walk(q, lane & 15, lane >> 4), k_walk(k, (lane & 7) + (lane >> 4 << 3), lane >> 3 & 1);
  UNROLL for (int d = 0; d < S::D / 16; d++) {
    uint32_t a[S::kMTiles][4];
    UNROLL for (int m = 0; m < S::kMTiles; m++) ldmatrix4(a[m], q_walk.at(d) + m * 16 * S::kRowBytes);
    UNROLL for (int n = 0; n < S::kScores; n += 2) {
      uint32_t b[4];
      ldmatrix4(b, k_walk.at(d) + n * 8 * S::kRowBytes);
      UNROLL for (int m = 0; m < S::kMTiles; m++) {
        half::mma<typename S::T>(s[m][n], a[m], b[0], b[1]);
        half::mma<typename S::T>(s[m][n + 1], a[m], b[2], b[3]);
      }
    }
  }
}

// cap * tanh(s / cap), both in units of log2. As 1 - 2 / (e^2x + 1): exact at both ends, where tanh.approx is off by 2^-11 of cap.
DEV float soft_cap(float s, float cap, float inverse) {
  return cap * (1.f - 2.f * rcp(ex2(s * inverse) + 1.f));
}

// Tokens that all rows of a warp attend: tiles inside need no mask.
template <class S> DEV Span common_span(const FdDecodeParams& p, const Work& w, int warp_row) {
  const int row0 = w.row0 + warp_row, row1 = w.row0 + min(warp_row + S::kMTiles * 16, w.rows) - 1;
  const Span a = span_of(p, w.position() + row0 / p.group, w.kv_len), b = span_of(p, w.position() + row1 / p.group, w.kv_len);
  return Span{b.lo, min(a.hi, w.end - 1)};
}

// Scales, caps and masks the scores of the tile that starts at token tile.
template <class S> DEV void shape_scores(const FdDecodeParams& p, const Work& w, Scores<S>& s, int tile, int warp_row, Span common) {
  const float scale = p.scale_log2;
  UNROLL for (int m = 0; m < S::kMTiles; m++) UNROLL for (int n = 0; n < S::kScores; n++) UNROLL for (int i = 0; i < 4; i++) s[m][n][i] *= scale;
  if (p.softcap > 0.f) {
    const float cap = p.softcap * 1.4426950408889634f, inverse = 2.f * 1.4426950408889634f / cap;
    UNROLL for (int m = 0; m < S::kMTiles; m++) UNROLL for (int n = 0; n < S::kScores; n++) UNROLL for (int i = 0; i < 4; i++) s[m][n][i] = soft_cap(s[m][n][i], cap, inverse);
  }
  if (common.lo <= tile && tile + S::kN - 1 <= common.hi) return;
  const int lane = threadIdx.x % 32;
  UNROLL for (int m = 0; m < S::kMTiles; m++) UNROLL for (int half = 0; half < 2; half++) {
    const Span c = span_of(p, w.position() + (w.row0 + warp_row + m * 16 + half * 8 + lane / 4) / p.group, w.kv_len);
    const int hi = MUTANT(prefill_mask_one_late) ? min(c.hi, w.end) : min(c.hi, w.end - 1);
    UNROLL for (int n = 0; n < S::kScores; n++) UNROLL for (int i = 0; i < 2; i++) {
      const int token = tile + n * 8 + lane % 4 * 2 + i;
      if (token > hi || token < c.lo) s[m][n][half * 2 + i] = -INFINITY_F;
    }
  }
}

// Online softmax: s becomes exp2(s - m), o and l move to the new m. m stays -inf while a row has seen nothing.
template <class S> DEV void softmax(State<S>& st, Scores<S>& s) {
  UNROLL for (int m = 0; m < S::kMTiles; m++) UNROLL for (int half = 0; half < 2; half++) {
    float top = st.m[m][half];
    UNROLL for (int n = 0; n < S::kScores; n++) top = max3(top, s[m][n][half * 2], s[m][n][half * 2 + 1]);
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
    const float base = top == -INFINITY_F ? 0.f : top, shrink = ex2(st.m[m][half] - base);  // all masked: -inf - -inf would be NaN
    st.m[m][half] = top;
    float sum = 0.f;
    UNROLL for (int n = 0; n < S::kScores; n++) UNROLL for (int i = 0; i < 2; i++) {
      float& x = s[m][n][half * 2 + i];
      x = ex2(x - base);
      sum += x;
    }
    st.l[m][half] = MUTANT(prefill_sum_not_rescaled) ? st.l[m][half] + sum : st.l[m][half] * shrink + sum;
    UNROLL for (int d = 0; d < S::kAccs; d++) UNROLL for (int i = 0; i < 2; i++) st.o[m][d][half * 2 + i] *= shrink;
  }
}

// P as the A operand of P V: what a thread holds of S is what it needs of P.
template <class S> using Weights = uint32_t[S::kScores / 2][S::kMTiles][4];
template <class S> DEV void pack_weights(Weights<S>& a, const Scores<S>& s) {
  using T = typename S::T;
  UNROLL for (int n = 0; n < S::kScores; n += 2) UNROLL for (int m = 0; m < S::kMTiles; m++) UNROLL for (int i = 0; i < 4; i++)
    a[n / 2][m][i] = half::pack<T>(s[m][n + i / 2][i % 2 * 2], s[m][n + i / 2][i % 2 * 2 + 1]);
}

// o += P V.
template <class S> DEV void weigh(State<S>& st, const Weights<S>& a, uint32_t v) {
  using T = typename S::T;
  const int lane = threadIdx.x % 32;
  const Walk<S> walk(v, lane & 15, lane >> 4);
  UNROLL for (int n = 0; n < S::kScores / 2; n++) UNROLL for (int d = 0; d < S::kAccs; d += 2) {
    uint32_t b[4];
    ldmatrix4_trans(b, walk.at(d / 2) + n * 16 * S::kRowBytes);
    UNROLL for (int m = 0; m < S::kMTiles; m++) {
      half::mma<T>(st.o[m][d], a[n][m], b[0], b[1]);
      half::mma<T>(st.o[m][d + 1], a[n][m], b[2], b[3]);
    }
  }
}

// All tiles of this CTA. Every warp copies, only warps with rows compute.
template <class S> DEV void attend(const FdDecodeParams& p, const Work& w, State<S>& st, uint32_t shared) {
  const int warp_row = threadIdx.x / 32 * S::kMTiles * 16;
  const bool active = warp_row < w.rows;
  const int end = w.end;
  if (w.first >= end) return;  // the State is empty
  const uint32_t q = shared, k = q + S::kQBytes, v = k + S::kStages * S::kTileBytes;
  const Span common = common_span<S>(p, w, warp_row);
  copy_q<S>(p, w, q);
  uint64_t offset = look_up<S>(w, w.first);
  copy_tile<S>(k, w.k, offset, p.head_dim);
  cp_commit();
  copy_tile<S>(v, w.v, offset, p.head_dim);
  cp_commit();
  offset = look_up<S>(w, w.first + S::kN);
  NO_UNROLL for (int tile = w.first, stage = 0; tile < end; tile += S::kN, stage ^= 1) {
    const bool more = tile + S::kN < end;
    const uint32_t now = stage * S::kTileBytes, next = S::kTileBytes - now;
    cp_wait<1>();      // K of this tile; V of it may be under way
    __syncthreads();   // for everyone, and everyone is done with K and V of the tile before
    if (more) copy_tile<S>(k + next, w.k, offset, p.head_dim);
    cp_commit();       // an empty group keeps the count of groups
    Weights<S> weights;
    if (active) {
      Scores<S> s;
      scores<S>(s, q + warp_row * S::kRowBytes, k + now);
      shape_scores<S>(p, w, s, tile, warp_row, common);
      softmax<S>(st, s);
      pack_weights<S>(weights, s);
    }
    if (!MUTANT(prefill_wait_short)) cp_wait<1>(); else cp_wait<2>();
    if (!MUTANT(prefill_v_barrier)) __syncthreads();
    if (more) copy_tile<S>(v + next, w.v, offset, p.head_dim);
    cp_commit();
    offset = look_up<S>(w, tile + 2 * S::kN);
    if (active) weigh<S>(st, weights, v + now);
  }
  cp_wait_all();
  UNROLL for (int m = 0; m < S::kMTiles; m++) UNROLL for (int half = 0; half < 2; half++) {
    float& l = st.l[m][half];
    l += __shfl_xor_sync(~0u, l, 1);
    l += __shfl_xor_sync(~0u, l, 2);
  }
}

}  // namespace fd::prefill
