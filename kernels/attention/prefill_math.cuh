// The parts of prefill that do not depend on the matrix instruction: copies, masks, softmax. A Shape S has
//   T, D, kM packed rows and kN tokens a tile; kWarps warps compute, kMTiles tiles of 16 rows each, kCopyWarps warps copy
//   kPanels: rows lie in panels of 128 bytes (wgmma.cuh), else whole (ldmatrix)
#pragma once
#include "half.cuh"
#include "prefill_work.cuh"

namespace fd::prefill {

// Where chunk c (16 bytes) of a row of a tile of kRows rows lies. Within 128 bytes of a row chunks are exchanged by twist, so that
// the 8 rows of a matrix fall into different banks. Whole rows of 192 bytes start half a bank line apart: there every second row
// needs another twist.
template <class S> DEV int twist(int row) { return !S::kPanels && S::D == 96 ? row >> 1 & 3 : row & 7; }
template <class S, int kRows> DEV uint32_t chunk_at(int row, int c) {
  if constexpr (S::kPanels) return c / 8 * (kRows * 128) + row * 128 + ((c % 8 ^ twist<S>(row)) << 4);
  else return row * (S::D * 2) + ((c ^ twist<S>(row)) << 4);
}

// This warp among those that copy: the last ones of the block, or all.
template <class S> DEV int copy_warp() { return threadIdx.x / 32 - (S::kThreads / 32 - S::kCopyWarps); }

// Copies a tile of kRows rows: each copying warp its share of whole rows, whose offsets from the tensor are in its lanes; ~0: zeros,
// and nothing is read.
template <class S, int kRows> DEV void copy_rows(uint32_t dst, uint64_t tensor, uint64_t offset, int head_dim) {
  constexpr int kShare = kRows / S::kCopyWarps, kChunks = S::D / 8;
  constexpr int kAtOnce = 32 / kChunks, kBusy = kAtOnce * kChunks;  // whole rows of one copy of the warp, its lanes at work (D = 96: 24)
  static_assert(kShare <= 32 && kShare % kAtOnce == 0 && kShare % 4 == 0);
  const int lane = threadIdx.x % 32, first = copy_warp<S>() * kShare, c = lane % kChunks;
  const uint32_t start = dst + chunk_at<S, kRows>(first + lane / kChunks, c);
  UNROLL for (int i = 0; i < kShare / kAtOnce; i++) {
    const int row = i * kAtOnce + lane / kChunks;
    const uint32_t lo = __shfl_sync(~0u, (uint32_t)offset, row), hi = __shfl_sync(~0u, (uint32_t)(offset >> 32), row);
    const bool read = hi != ~0u && c * 8 < head_dim;
    // Rows of later copies differ from the first one's in bits of their own, so twists combine.
    const uint32_t to = (start ^ (twist<S>(i * kAtOnce) << 4)) + i * kAtOnce * (S::kPanels ? 128 : S::D * 2);
    if (kBusy == 32 || lane < kBusy) cp_async16(to, at<char>(tensor + (read ? ((uint64_t)hi << 32 | lo) + c * 16 : 0)), read ? 16 : 0);
  }
}
// The offset that this lane provides for copy_rows: of a token of the tile at token tile, of a packed query row.
template <class S> DEV uint64_t token_offset(const Work& w, int tile) {
  constexpr int kShare = S::kN / S::kCopyWarps;
  const int lane = threadIdx.x % 32, token = tile + copy_warp<S>() * kShare + lane;
  return lane < kShare && token >= w.lowest && token < w.end ? w.kv.offset(token) : ~0ull;
}
template <class S> DEV uint64_t query_offset(const FdDecodeParams& p, const Work& w) {
  constexpr int kShare = S::kM / S::kCopyWarps;
  const int lane = threadIdx.x % 32, row = copy_warp<S>() * kShare + lane;
  return lane < kShare && row < w.rows ? row_offset(p, w, row, p.q_token_stride) : ~0ull;
}

// The state of a warp's rows: thread 4*g + t of a quad holds rows g and g+8 of each 16-row tile.
template <class S> struct State {
  float o[S::kMTiles][S::kAccs][4];
  float m[S::kMTiles][2], l[S::kMTiles][2];  // m: reference logit, log2; l: this thread's columns only until the end
};
template <class S> using Scores = float[S::kMTiles][S::kScores][4];

// cap * tanh(x) with s * inverse = 2 * log2(e) * x. As 1 - 2 / (e^2x + 1): exact at both ends, where tanh.approx is off by 2^-11 of cap.
DEV float soft_cap(float s, float cap, float inverse) {
  return cap * (1.f - 2.f * rcp(ex2(s * inverse) + 1.f));
}

// Tokens that all rows of a warp attend: tiles inside need no mask.
template <class S> DEV Span common_span(const FdDecodeParams& p, const Work& w, int warp_row) {
  const int row0 = w.row0 + warp_row, row1 = w.row0 + min(warp_row + S::kMTiles * 16, w.rows) - 1;
  const Span a = span_of(p, w.position() + row0 / p.group, w.kv_len), b = span_of(p, w.position() + row1 / p.group, w.kv_len);
  return Span{b.lo, min(a.hi, w.end - 1)};
}

// Caps and masks the scores of the tile that starts at token tile. They are logits in log2 once multiplied by factor.
DEV float factor_of(const FdDecodeParams& p) { return p.softcap > 0.f ? 1.f : p.scale_log2; }
template <class S> DEV void shape_scores(const FdDecodeParams& p, const Work& w, Scores<S>& s, int tile, int warp_row, Span common) {
  if (p.softcap > 0.f) {
    const float cap = p.softcap * 1.4426950408889634f, inverse = p.scale_log2 * 2.f / p.softcap;
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

// Online softmax: s becomes exp2(factor * s - m), l moves to the new m, and o has to, by shrink: now, or later with rescale. m stays -inf while a row has seen nothing.
template <class S> using Shrink = float[S::kMTiles][2];
template <class S, bool kNow> DEV void softmax(State<S>& st, Scores<S>& s, Shrink<S>& shrinks, float factor) {
  UNROLL for (int m = 0; m < S::kMTiles; m++) UNROLL for (int half = 0; half < 2; half++) {
    float top = -INFINITY_F;
    UNROLL for (int n = 0; n < S::kScores; n++) top = max3(top, s[m][n][half * 2], s[m][n][half * 2 + 1]);
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(st.m[m][half], factor * fmaxf(top, __shfl_xor_sync(~0u, top, 2)));
    const float base = top == -INFINITY_F ? 0.f : top, shrink = ex2(st.m[m][half] - base);  // all masked: -inf - -inf would be NaN
    st.m[m][half] = top;
    float sum = 0.f;
    UNROLL for (int n = 0; n < S::kScores; n++) UNROLL for (int i = 0; i < 2; i++) {
      float& x = s[m][n][half * 2 + i];
      x = ex2(fmaf(x, factor, -base));
      sum += x;
    }
    st.l[m][half] = MUTANT(prefill_sum_not_rescaled) ? st.l[m][half] + sum : st.l[m][half] * shrink + sum;
    shrinks[m][half] = shrink;
    if constexpr (kNow) UNROLL for (int d = 0; d < S::kAccs; d++) UNROLL for (int i = 0; i < 2; i++) st.o[m][d][half * 2 + i] *= shrink;
  }
}
template <class S> DEV void rescale(State<S>& st, const Shrink<S>& shrinks) {
  UNROLL for (int m = 0; m < S::kMTiles; m++) UNROLL for (int d = 0; d < S::kAccs; d++) UNROLL for (int i = 0; i < 4; i++) st.o[m][d][i] *= shrinks[m][i / 2];
}

// P as the A operand of P V: what a thread holds of S is what it needs of P.
template <class S> using Weights = uint32_t[S::kScores / 2][S::kMTiles][4];
template <class S> DEV void pack_weights(Weights<S>& a, const Scores<S>& s) {
  using T = typename S::T;
  UNROLL for (int n = 0; n < S::kScores; n += 2) UNROLL for (int m = 0; m < S::kMTiles; m++) UNROLL for (int i = 0; i < 4; i++)
    a[n / 2][m][i] = half::pack<T>(s[m][n + i / 2][i % 2 * 2], s[m][n + i / 2][i % 2 * 2 + 1]);
}

// Adds up the parts of l that the four threads of a row have.
template <class S> DEV void close(State<S>& st) {
  UNROLL for (int m = 0; m < S::kMTiles; m++) UNROLL for (int half = 0; half < 2; half++) {
    float& l = st.l[m][half];
    l += __shfl_xor_sync(~0u, l, 1);
    l += __shfl_xor_sync(~0u, l, 2);
  }
}

template <class S> DEV void clear(State<S>& st) {
  UNROLL for (int m = 0; m < S::kMTiles; m++) {
    UNROLL for (int d = 0; d < S::kAccs; d++) st.o[m][d][0] = st.o[m][d][1] = st.o[m][d][2] = st.o[m][d][3] = 0.f;
    st.m[m][0] = st.m[m][1] = -INFINITY_F;
    st.l[m][0] = st.l[m][1] = 0.f;
  }
}

}  // namespace fd::prefill
