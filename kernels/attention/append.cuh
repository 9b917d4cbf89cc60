// append: rotary embedding of q and k, k and v into their pages, FP8 on the way if the cache is FP8. Reference: ops.RopeAppend.
//   a row's work is units of E pairs that turn (2E elements), then units of E elements that pass through; of all heads of q,
//   then k, then v. E = 8: 16-byte loads; E = 1: any number of pairs.
// grid (rows, y), block 128, static shared memory 1 KB, one barrier. Bound: memory; at one row: latency.
#pragma once
#include "half.cuh"
#include "rows.cuh"

namespace fd::append {

constexpr int kThreads = 128, kMaxPairs = 128;

// (cos, sin) of 2*pi*turns for turns >= 0. The product of position and frequency needs float64: at position 2^20 a float32 one
// is off by 0.06 radians. Cut to an eighth of a turn in float64, a Taylor polynomial leaves an error below 1e-8.
DEV float2 cos_sin(double turns) {
  const int64_t k = (int64_t)(turns * 4 + 0.5);
  const float x = (float)((turns - 0.25 * (double)k) * 6.283185307179586), y = x * x;
  const float s = x * (1.f + y * (-1.f / 6 + y * (1.f / 120 + y * (-1.f / 5040 + y * (1.f / 362880)))));
  const float c = 1.f + y * (-1.f / 2 + y * (1.f / 24 + y * (-1.f / 720 + y * (1.f / 40320 + y * (-1.f / 3628800)))));
  switch (k & 3) {
    case 0: return make_float2(c, s);
    case 1: return make_float2(-s, c);
    case 2: return make_float2(-c, -s);
    default: return make_float2(s, -c);
  }
}

// E numbers of type T at p, as float.
template <int E, class T> DEV void load(float (&x)[E], const T* p) {
  if constexpr (E == 8) {
    const uint4 v = ld128(p);
    const uint32_t w[4] = {v.x, v.y, v.z, v.w};
    UNROLL for (int i = 0; i < 4; i++) { const float2 f = half::unpack<T>(w[i]); x[2 * i] = f.x; x[2 * i + 1] = f.y; }
  } else {
    x[0] = to_float(*p);
  }
}

template <int E, class T> DEV void store(T* p, const float (&x)[E]) {
  if constexpr (E != 8) from_float(*p, x[0]);
  else if constexpr (sizeof(T) == 1)
    st64(p, make_uint2(pack_e4m3(x[0], x[1]) | (uint32_t)pack_e4m3(x[2], x[3]) << 16, pack_e4m3(x[4], x[5]) | (uint32_t)pack_e4m3(x[6], x[7]) << 16));
  else
    st128(p, make_uint4(half::pack<T>(x[0], x[1]), half::pack<T>(x[2], x[3]), half::pack<T>(x[4], x[5]), half::pack<T>(x[6], x[7])));
}

// One head's unit: from src to dst, both at the head's element 0.
template <int E, class S, class D> DEV void unit(const FdAppendParams& p, const float2* turn, int pairs, int u, const S* src, D* dst, float factor) {
  float a[E], b[E];
  const int turning = pairs / E, i = u * E;
  if (u >= turning) {
    const int e = 2 * pairs + (u - turning) * E;
    load<E>(a, src + e);
    UNROLL for (int j = 0; j < E; j++) a[j] *= factor;
    store<E>(dst + e, a);
    return;
  }
  const bool interleaved = p.flags & FD_ROPE_INTERLEAVED;
  const int lo = interleaved ? 2 * i : i, hi = interleaved ? 2 * i + E : i + pairs;
  load<E>(a, src + lo);
  load<E>(b, src + hi);
  float x[E], y[E];
  UNROLL for (int j = 0; j < E; j++) {  // the two elements of pair i+j
    x[j] = !interleaved || E == 1 ? a[j] : 2 * j < E ? a[2 * j % E] : b[2 * j % E];
    y[j] = !interleaved || E == 1 ? b[j] : 2 * j < E ? a[(2 * j + 1) % E] : b[(2 * j + 1) % E];
  }
  UNROLL for (int j = 0; j < E; j++) {
    const float2 t = turn[i + j];
    const float r = (x[j] * t.x - y[j] * t.y) * factor, s = (x[j] * t.y + y[j] * t.x) * factor;
    if (!interleaved || E == 1) { a[j] = r; b[j] = s; }
    else if (2 * j < E) { a[2 * j % E] = r; a[(2 * j + 1) % E] = s; }
    else { b[2 * j % E] = r; b[(2 * j + 1) % E] = s; }
  }
  store<E>(dst + lo, a);
  store<E>(dst + hi, b);
}

DEV float inverse_scale(uint64_t scales, int head) { return scales ? 1.f / __uint_as_float(ldg32(at<float>(scales) + head)) : 1.f; }

template <int E, class S, class D> DEV void row(const FdAppendParams& p, const float2* turn, int r, int seq, int position) {
  const uint64_t token = seq_rows(p.rows, seq).offset(position);
  const int turning = p.rope_pairs / E, k_units = turning + (p.k_head_dim - 2 * p.rope_pairs) / E, v_units = p.v_head_dim / E;
  // A query head that passes through and stays where it is needs no unit.
  const int q_units = !p.q ? 0 : p.q == p.q_out ? turning : k_units;
  const int q_end = p.q_heads * q_units, k_end = q_end + p.kv_heads * k_units, v_end = k_end + p.kv_heads * v_units;
  for (int n = blockIdx.y * kThreads + threadIdx.x; n < v_end; n += gridDim.y * kThreads) {
    if (n < q_end) {
      const int h = n / q_units;
      unit<E, S, S>(p, turn, p.rope_pairs, n - h * q_units, at<S>(p.q + (uint64_t)r * p.q_token_stride + (uint64_t)h * p.q_head_stride),
                    at<S>(p.q_out + (uint64_t)r * p.q_out_token_stride + (uint64_t)h * p.q_out_head_stride), 1.f);
      continue;
    }
    const bool is_k = n < k_end;
    const int m = n - (is_k ? q_end : k_end), units = is_k ? k_units : v_units, h = m / units, dim = is_k ? p.k_head_dim : p.v_head_dim;
    const uint64_t src = is_k ? p.k + (uint64_t)r * p.k_token_stride : p.v + (uint64_t)r * p.v_token_stride;
    const uint64_t dst = (is_k ? p.k_cache : p.v_cache) + token + (uint64_t)h * p.rows.head_stride;
    unit<E, S, D>(p, turn, is_k ? p.rope_pairs : 0, m - h * units, at<S>(src) + (int64_t)h * dim, at<D>(dst),
                  sizeof(D) == 1 ? inverse_scale(is_k ? p.k_scale : p.v_scale, h) : 1.f);
  }
}

template <int E, class S, class D> DEV void kernel(const FdAppendParams& p) {
  SHARED_ARRAY(float2, turn, kMaxPairs);
  const int r = blockIdx.x, position = load_i32(p.positions, r);
  if (position < 0) return;
  const int seq = p.q_indptr ? seq_of_row(p.q_indptr, p.batch, r) : r / p.q_len;
  const float scale = p.rope_scale;
  for (int i = threadIdx.x; i < p.rope_pairs; i += kThreads) {
    const double f = __uint_as_float(ldg32(at<float>(p.inv_freq) + i));
    const float2 t = cos_sin(position * f * 0.15915494309189535);  // 1 / (2*pi)
    turn[i] = make_float2(t.x * scale, t.y * scale);
  }
  if (!MUTANT(append_turns_unsynchronised)) __syncthreads();
  row<E, S, D>(p, turn, r, seq, position);
}

}  // namespace fd::append
