// reference: attention by the definition, to compare with. Reference: attn.Reference, whose three passes these are: the
// greatest logit, the denominator, the weighted sum, all in double. It shares nothing with the kernels under test but the
// struct that says where things are, and is itself compared with attn.Reference on small cases.
// grid (query token, q head, sequence), block 256. Bound: nobody minds.
#pragma once
#include "../prim/prim.cuh"
#include "params_bench.h"

namespace fd::bench {

constexpr int kThreads = 256;

struct Call {
  int b, head, kv_head, row;     // row: query token of all
  int len, lo, hi;               // attends tokens lo <= j < hi
  uint64_t origin;               // address of the sequence, or of page 0
  const int32_t* table;
};

template <class T> DEV const T* at(uint64_t a) { return (const T*)a; }

DEV uint64_t token_offset(const FdDecodeParams& d, const Call& c, int j) {
  const int size = d.page_size > 0 ? d.page_size : 1 << d.page_shift;
  const int64_t page = c.table ? c.table[j / size] : j / size;
  return c.origin + page * d.page_stride + (uint64_t)(j % size) * d.token_stride + (uint64_t)c.kv_head * d.head_stride;
}

// locate returns false if the grid has a query token more than the sequence.
DEV bool locate(const FdDecodeParams& d, Call& c) {
  c.b = blockIdx.z, c.head = blockIdx.y, c.kv_head = c.head / d.group;
  const int first = d.q_indptr ? at<int32_t>(d.q_indptr)[c.b] : c.b * d.q_len;
  const int q_len = d.q_indptr ? at<int32_t>(d.q_indptr)[c.b + 1] - first : d.q_len;
  if ((int)blockIdx.x >= q_len) return false;
  c.row = first + blockIdx.x, c.len = at<int32_t>(d.kv_len)[c.b];
  const int64_t pos = (int64_t)c.len - q_len + blockIdx.x;
  int64_t lo = 0, hi = c.len;
  if (d.flags & FD_CAUSAL) hi = hi < pos + 1 ? hi : pos + 1;
  if (d.window_left >= 0 && pos - d.window_left > lo) lo = pos - d.window_left;
  if (d.window_right >= 0 && pos + d.window_right + 1 < hi) hi = pos + d.window_right + 1;
  c.lo = (int)lo, c.hi = (int)(hi > lo ? hi : lo);
  c.origin = d.seq_base ? at<uint64_t>(d.seq_base)[c.b] : d.table ? 0 : c.b * d.seq_stride;
  c.table = !d.table ? nullptr : at<int32_t>(d.table) + (d.table_indptr ? at<int32_t>(d.table_indptr)[c.b] : (int64_t)c.b * d.table_stride);
  return true;
}

// reduce combines one value of each thread, a maximum or a sum.
DEV double reduce(double x, bool sum) {
  SHARED_ARRAY(double, part, kThreads);
  __syncthreads();
  part[threadIdx.x] = x;
  for (int n = kThreads / 2; n; n /= 2) {
    __syncthreads();
    if ((int)threadIdx.x < n) {
      const double y = part[threadIdx.x + n];
      part[threadIdx.x] = sum ? part[threadIdx.x] + y : y > part[threadIdx.x] ? y : part[threadIdx.x];
    }
  }
  __syncthreads();
  return part[0];
}

template <class Q, class KV> DEV double logit(const FdDecodeParams& d, const Call& c, int j) {
  const Q* q = (const Q*)(d.q + (uint64_t)c.row * d.q_token_stride) + c.head * d.head_dim;
  const KV* k = (const KV*)(d.k + token_offset(d, c, j));
  double s = 0;
  for (int i = 0; i < d.head_dim; i++) s += (double)to_float(q[i]) * (double)to_float(k[i]);
  s *= (double)d.scale_log2 * 0.69314718055994530942 * (d.k_scale ? (double)at<float>(d.k_scale)[c.kv_head] : 1.0);
  return d.softcap > 0 ? (double)d.softcap * tanh(s / (double)d.softcap) : s;
}

template <class Q, class KV> DEV void reference(const FdReferenceParams& p) {
  const FdDecodeParams& d = p.decode;
  Call c;
  if (!locate(d, c)) return;
  const int heads = d.kv_heads * d.group, t = threadIdx.x;
  double* s = (double*)p.scores + ((uint64_t)c.row * heads + c.head) * p.max_kv_len;
  const double minus_inf = -(double)INFINITY_F, sink = d.sinks ? (double)at<float>(d.sinks)[c.head] : minus_inf;
  double m = sink;
  for (int j = c.lo + t; j < c.hi; j += kThreads) s[j] = logit<Q, KV>(d, c, j), m = s[j] > m ? s[j] : m;
  m = reduce(m, false);
  float* out = (float*)p.out + ((uint64_t)c.row * heads + c.head) * d.head_dim;
  float* lse = (float*)p.lse + (uint64_t)c.row * heads + c.head;
  if (m == minus_inf) {  // nothing attended, and no sink
    if (t == 0) *lse = -INFINITY_F;
    for (int i = t; i < d.head_dim; i += kThreads) out[i] = 0;
    return;
  }
  double l = t == 0 && d.sinks ? exp(sink - m) : 0;
  for (int j = c.lo + t; j < c.hi; j += kThreads) l += s[j] = exp(s[j] - m);
  l = reduce(l, true);
  if (t == 0) *lse = (float)(m + log(l));
  const double v_scale = d.v_scale ? (double)at<float>(d.v_scale)[c.kv_head] : 1.0;
  for (int i0 = 0; i0 < d.head_dim; i0 += 64) {  // 64 dims at a time, each by four threads that share out the tokens
    const int i = i0 + t % 64;
    double o = 0;
    if (i < d.head_dim)
      for (int j = c.lo + t / 64; j < c.hi; j += 4) o += s[j] * (double)to_float(((const KV*)(d.v + token_offset(d, c, j)))[i]);
    SHARED_ARRAY(double, quarter, kThreads);
    __syncthreads();
    quarter[t] = o;
    __syncthreads();
    if (t < 64 && i < d.head_dim) out[i] = (float)((quarter[t] + quarter[t + 64] + quarter[t + 128] + quarter[t + 192]) / l * v_scale);
  }
}

}  // namespace fd::bench
