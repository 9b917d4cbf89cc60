// The end of prefill: a State becomes output and LSE, or one of several States that the last CTA of a merge adds up.
#pragma once
#include "normalise.cuh"
#include "prefill_math.cuh"

namespace fd::prefill {

DEV void store_lse(const FdDecodeParams& p, const Work& w, int r, float lse) {
  const int packed = w.row0 + r, token = packed / p.group;
  st32(at<float>(p.lse) + (int64_t)(w.q_start + w.token + token) * p.kv_heads * p.group + w.kv_head * p.group + packed - token * p.group, __float_as_uint(lse));
}

// Output of a warp's rows, through its own part of Q's shared memory so that rows leave in 16-byte pieces.
template <class S> DEV void store_output(const FdDecodeParams& p, const Work& w, State<S>& st, uint32_t shared) {
  using T = typename S::T;
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * S::kMTiles * 16;
  UNROLL for (int m = 0; m < S::kMTiles; m++) UNROLL for (int half = 0; half < 2; half++) {
    const int row = m * 16 + half * 8 + lane / 4;
    if (warp_row + row >= w.rows) continue;
    const int q_head = w.kv_head * p.group + (w.row0 + warp_row + row) % p.group;
    const Norm n = normalise(p, q_head, st.m[m][half], st.l[m][half]);
    if (p.lse && lane % 4 == 0) store_lse(p, w, warp_row + row, n.lse);
    UNROLL for (int d = 0; d < S::kAccs; d++)
      sts32(shared + chunk_at<S, S::kM>(warp_row + row, d) + lane % 4 * 4, half::pack<T>(st.o[m][d][half * 2] * n.factor, st.o[m][d][half * 2 + 1] * n.factor));
  }
  __syncwarp();
  for (int e = lane; e < S::kMTiles * 16 * (S::D / 8); e += 32) {
    const int row = e / (S::D / 8), c = e % (S::D / 8);
    if (warp_row + row < w.rows && c * 8 < p.head_dim) st128(at<char>(p.out) + row_offset(p, w, warp_row + row, p.out_token_stride) + c * 16, lds128(shared + chunk_at<S, S::kM>(warp_row + row, c)));
  }
}

template <class S> DEV void store_state(const FdDecodeParams& p, const Work& w, const State<S>& st) {
  const int lane = threadIdx.x % 32, warp_row = threadIdx.x / 32 * S::kMTiles * 16;
  UNROLL for (int m = 0; m < S::kMTiles; m++) UNROLL for (int half = 0; half < 2; half++) {
    const int row = warp_row + m * 16 + half * 8 + lane / 4;
    if (row >= w.rows) continue;
    const int64_t slot = w.slot + w.row0 + row;
    if (lane % 4 == 0) st64(at<char>(p.state_ml) + slot * 8, make_uint2(__float_as_uint(st.m[m][half]), __float_as_uint(st.l[m][half])));
    char* o = at<char>(p.state_o) + slot * p.head_dim * 4;
    UNROLL for (int d = 0; d < S::kAccs; d++)
      if (d * 8 < p.head_dim) st64(o + (d * 8 + lane % 4 * 2) * 4, make_uint2(__float_as_uint(st.o[m][d][half * 2]), __float_as_uint(st.o[m][d][half * 2 + 1])));
  }
}

// One warp a row; States in order of split, so that the result does not depend on who came last.
template <class S> DEV void merge(const FdDecodeParams& p, const Work& w) {
  using T = typename S::T;
  const int lane = threadIdx.x % 32;
  for (int r = threadIdx.x / 32; r < w.rows; r += S::kThreads / 32) {
    const int64_t slot = w.first_slot + w.row0 + r;
    float top = -INFINITY_F, sum = 0.f;
    for (int i = 0; i < w.splits; i++) top = fmaxf(top, __uint_as_float(ld64(at<char>(p.state_ml) + (slot + (int64_t)i * w.slots) * 8).x));
    const int q_head = w.kv_head * p.group + (w.row0 + r) % p.group;
    constexpr int kQuads = (S::D / 4 + 31) / 32;
    float4 o[kQuads];
    UNROLL for (int j = 0; j < kQuads; j++) o[j] = make_float4(0.f, 0.f, 0.f, 0.f);
    for (int i = 0; i < w.splits; i++) {
      const uint2 ml = ld64(at<char>(p.state_ml) + (slot + (int64_t)i * w.slots) * 8);
      const float m = __uint_as_float(ml.x), f = m == -INFINITY_F ? 0.f : ex2(m - top);
      sum += f * __uint_as_float(ml.y);
      UNROLL for (int j = 0; j < kQuads; j++) {
        const int d = (j * 32 + lane) * 4;
        if (d >= p.head_dim) continue;
        const uint4 x = ld128(at<char>(p.state_o) + ((slot + (int64_t)i * w.slots) * p.head_dim + d) * 4);
        o[j].x += f * __uint_as_float(x.x); o[j].y += f * __uint_as_float(x.y); o[j].z += f * __uint_as_float(x.z); o[j].w += f * __uint_as_float(x.w);
      }
    }
    const Norm n = normalise(p, q_head, top, sum);
    if (p.lse && lane == 0) store_lse(p, w, r, n.lse);
    UNROLL for (int j = 0; j < kQuads; j++) {
      const int d = (j * 32 + lane) * 4;
      if (d < p.head_dim) st64(at<char>(p.out) + row_offset(p, w, r, p.out_token_stride) + d * 2, make_uint2(half::pack<T>(o[j].x * n.factor, o[j].y * n.factor), half::pack<T>(o[j].z * n.factor, o[j].w * n.factor)));
    }
  }
}

// Counts this CTA; true in the last one of its merge, which sees what all others stored.
DEV bool last_of(uint32_t* counter, int splits) {
  SHARED_ARRAY(uint32_t, before, 4);
  __syncthreads();
  if (threadIdx.x == 0) before[0] = atom_inc_acq_rel(counter, splits - 1);
  __syncthreads();
  return before[0] == (uint32_t)splits - 1;
}

// Thread 0 finds this CTA's work for all.
template <class S> DEV void find_work(const FdDecodeParams& p, Work& w) {
  Work mine;
  if (!find<S::kM>(p, mine)) mine.rows = mine.seq = mine.kv_head = 0;
  else trim<S::kN>(p, mine);
  mine.kv = seq_rows(kv_rows(p), mine.seq);
  mine.k = p.k + (int64_t)mine.kv_head * p.head_stride;
  mine.v = p.v + (int64_t)mine.kv_head * p.head_stride;
  w = mine;
}

}  // namespace fd::prefill
