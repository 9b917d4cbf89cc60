// Attention as it is written down: scores to memory, softmax of each row, weighted sum of V, in three launches. One query head
// at a time, so the heads of a group read the same K and V again. This is the baseline that the other kernels are compared with;
// it shares their parameters and options, not their code.
#pragma once
#include "../prim/prim.cuh"
#include "params.h"

namespace fd {

// NaiveRow is one query token of one query head.
struct NaiveRow {
  int b, h, hq, lo, hi;    // sequence; KV head; query head; positions attended: lo <= j < hi
  int64_t token;           // query token
  char* scores;
};

DEV int naive_int(uint64_t base, int64_t i) { return (int)ldg32((const char*)base + i * 4); }

DEV NaiveRow naive_row(const FdNaiveParams& n, int hq, int token) {
  const FdDecodeParams& p = n.d;
  NaiveRow r;
  r.hq = hq, r.h = hq / p.group, r.token = token;
  int i, q_len = p.q_len;
  if (p.q_indptr) {
    r.b = 0;
    while (r.b + 1 < n.batch && token >= naive_int(p.q_indptr, r.b + 1)) r.b++;
    i = token - naive_int(p.q_indptr, r.b);
    q_len = naive_int(p.q_indptr, r.b + 1) - (token - i);
  } else {
    r.b = token / q_len;
    i = token - r.b * q_len;
  }
  const int len = naive_int(p.kv_len, r.b), pos = len - q_len + i;
  r.lo = p.window_left >= 0 ? max(0, pos - p.window_left) : 0;
  r.hi = len;
  if (p.flags & FD_CAUSAL) r.hi = min(r.hi, pos + 1);
  if (p.window_right >= 0) r.hi = min(r.hi, pos + p.window_right + 1);
  r.scores = (char*)n.scores + (r.token * p.kv_heads * p.group + hq) * n.room * 4;
  return r;
}

// The row of token j in K (base p.k) or V (base p.v).
DEV const char* naive_kv(const FdDecodeParams& p, uint64_t base, const NaiveRow& r, int j) {
  int64_t page = p.page_size ? j / p.page_size : 0;
  const int in_page = p.page_size ? j - (int)page * p.page_size : j;
  if (p.table) page = naive_int(p.table, (p.table_indptr ? (int64_t)naive_int(p.table_indptr, r.b) : (int64_t)r.b * p.table_stride) + page);
  uint64_t at = base + page * p.page_stride + (uint64_t)in_page * p.token_stride + (uint64_t)r.h * p.head_stride;
  if (p.seq_base) {
    const uint2 x = ldg64((const char*)p.seq_base + (int64_t)r.b * 8);
    at += (uint64_t)x.y << 32 | x.x;
  } else if (!p.table) {
    at += r.b * p.seq_stride;
  }
  return (const char*)at;
}

// Eight elements as floats.
DEV void naive_load8(const bf16* p, float (&x)[8]) {
  const uint4 v = ld128(p);
  const uint32_t w[4] = {v.x, v.y, v.z, v.w};
  UNROLL for (int i = 0; i < 4; i++) { const float2 f = unpack_bf16(w[i]); x[2 * i] = f.x, x[2 * i + 1] = f.y; }
}
DEV void naive_load8(const f16* p, float (&x)[8]) {
  const uint4 v = ld128(p);
  const uint32_t w[4] = {v.x, v.y, v.z, v.w};
  UNROLL for (int i = 0; i < 4; i++) { const float2 f = unpack_f16(w[i]); x[2 * i] = f.x, x[2 * i + 1] = f.y; }
}
DEV void naive_load8(const e4m3* p, float (&x)[8]) {
  const uint2 v = ld64(p);
  const uint32_t w[2] = {v.x, v.y};
  UNROLL for (int i = 0; i < 2; i++) {
    uint32_t lo, hi;
    e4m3x4_to_f16(w[i], lo, hi);
    const float2 a = unpack_f16(lo), b = unpack_f16(hi);
    x[4 * i] = a.x, x[4 * i + 1] = a.y, x[4 * i + 2] = b.x, x[4 * i + 3] = b.y;
  }
}

// naive_scores: a warp takes tokens in turn, a lane eight elements of the head dim.
template <class KV, class Q> DEV void naive_scores(const FdNaiveParams& n) {
  const FdDecodeParams& p = n.d;
  const NaiveRow r = naive_row(n, blockIdx.y, blockIdx.z);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, e = lane * 8, first = blockIdx.x * FD_NAIVE_TOKENS;
  float q[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  if (e < p.head_dim) naive_load8((const Q*)((const char*)p.q + r.token * p.q_token_stride) + (int64_t)r.hq * p.head_dim + e, q);
  const float scale = p.k_scale ? __uint_as_float(ldg32((const char*)p.k_scale + r.h * 4)) * p.scale_log2 : p.scale_log2;
  const int end = min(r.hi, first + FD_NAIVE_TOKENS);
  NO_UNROLL for (int j = max(r.lo, first) + warp; j < end; j += 4) {
    float k[8] = {0, 0, 0, 0, 0, 0, 0, 0}, s = 0.f;
    if (e < p.head_dim) naive_load8((const KV*)naive_kv(p, p.k, r, j) + e, k);
    UNROLL for (int i = 0; i < 8; i++) s += q[i] * k[i];
    UNROLL for (int i = 16; i; i >>= 1) s += __shfl_xor_sync(~0u, s, i);
    s *= scale;
    if (p.softcap > 0.f) {
      const float cap = p.softcap * 1.44269504f;
      s = cap - 2.f * cap * rcp(ex2(2.f * s / p.softcap) + 1.f);
    }
    if (lane == 0) st32(r.scores + (int64_t)j * 4, __float_as_uint(s));  // in units of log2
  }
}

// block_reduce over 256 threads; max or sum.
template <bool MAX> DEV float block_reduce(float x, float* shared) {
  UNROLL for (int i = 16; i; i >>= 1) { const float y = __shfl_xor_sync(~0u, x, i); x = MAX ? fmaxf(x, y) : x + y; }
  __syncthreads();
  if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = x;
  __syncthreads();
  x = shared[0];
  UNROLL for (int i = 1; i < 8; i++) x = MAX ? fmaxf(x, shared[i]) : x + shared[i];
  return x;
}

DEV void naive_softmax(const FdNaiveParams& n) {
  const FdDecodeParams& p = n.d;
  SHARED_ARRAY(float, shared, 8);
  const NaiveRow r = naive_row(n, blockIdx.x, blockIdx.y);
  const int tid = threadIdx.x;
  const bool sinks = p.sinks != 0;
  const float sink = sinks ? __uint_as_float(ldg32((const char*)p.sinks + r.hq * 4)) * 1.44269504f : -1e38f;
  float m = sink, l = 0.f;
  NO_UNROLL for (int j = r.lo + tid; j < r.hi; j += 256) m = fmaxf(m, __uint_as_float(ld32(r.scores + (int64_t)j * 4)));
  m = fmaxf(block_reduce<true>(m, shared), -1e38f);
  NO_UNROLL for (int j = r.lo + tid; j < r.hi; j += 256) l += ex2(__uint_as_float(ld32(r.scores + (int64_t)j * 4)) - m);
  l = block_reduce<false>(l, shared);
  if (sinks) l += ex2(sink - m);
  const float f = l > 0.f ? 1.f / l : 0.f;
  NO_UNROLL for (int j = r.lo + tid; j < r.hi; j += 256) {
    char* s = r.scores + (int64_t)j * 4;
    st32(s, __float_as_uint(ex2(__uint_as_float(ld32(s)) - m) * f));
  }
  if (tid == 0 && p.lse) st32((char*)p.lse + (r.token * p.kv_heads * p.group + r.hq) * 4, __float_as_uint(l > 0.f ? (m + lg2(l)) * 0.69314718f : -INFINITY_F));
}

// naive_values: a thread takes eight dimensions and every (threads / (head_dim/8))-th token.
template <class KV, class Q> DEV void naive_values(const FdNaiveParams& n) {
  const FdDecodeParams& p = n.d;
  SHARED_ARRAY(float, shared, 256 * 8);
  const NaiveRow r = naive_row(n, blockIdx.x, blockIdx.y);
  const int width = p.head_dim / 8, groups = 256 / width, group = threadIdx.x / width, e = (threadIdx.x - group * width) * 8;
  float o[8] = {0, 0, 0, 0, 0, 0, 0, 0};
  if (group < groups) {
    NO_UNROLL for (int j = r.lo + group; j < r.hi; j += groups) {
      float v[8];
      naive_load8((const KV*)naive_kv(p, p.v, r, j) + e, v);
      const float w = __uint_as_float(ld32(r.scores + (int64_t)j * 4));
      UNROLL for (int i = 0; i < 8; i++) o[i] += w * v[i];
    }
  }
  UNROLL for (int i = 0; i < 8; i++) shared[threadIdx.x * 8 + i] = o[i];
  __syncthreads();
  if (group > 0) return;
  NO_UNROLL for (int k = 1; k < groups; k++) UNROLL for (int i = 0; i < 8; i++) o[i] += shared[(k * width + threadIdx.x) * 8 + i];
  const float scale = p.v_scale ? __uint_as_float(ldg32((const char*)p.v_scale + r.h * 4)) : 1.f;
  Q* out = (Q*)((char*)p.out + r.token * p.out_token_stride) + (int64_t)r.hq * p.head_dim + e;
  UNROLL for (int i = 0; i < 8; i++) from_float(out[i], o[i] * scale);
}

}  // namespace fd
