// Merging what others computed: States of Flash-Decoding's first launch, or pairs of output and LSE.
#pragma once
#include "decode_combine.cuh"

namespace fd {

static constexpr int kMergeWarps = 4;

// merge_unit finds the pair and the number of its States: as the first launch did (decode.cuh), or from the plan.
template <class S> DEV bool merge_unit(const FdDecodeParams& p, Unit& u) {
  if (!(p.flags & FD_ITEMS)) {
    if (!grid_unit<S>(p, u, p.state_rows)) return false;  // N, or less if all rows are in one tile
    set_range<S>(p, u);
    u.split = 0;
    chunk_range<S>(p, u, 0);
    return u.splits > 1;
  }
  const int x = blockIdx.x;
  if (p.merge_count && x >= read_int(p.merge_count, 0)) return false;
  const char* m = (const char*)p.merges + times(x, sizeof(FdMergeItem));
  const uint2 unit = ldg64(m), rows = ldg64(m + 8), states = ldg64(m + 16);
  u.b = unit.x, u.h = unit.y;
  u.row0 = (int)rows.x * p.group, u.rows = (int)rows.y * p.group;
  u.first_slot = states.x, u.splits = states.y, u.slot_stride = u.rows;
  u.q_len = p.q_len;
  u.q_first = p.flags & FD_RAGGED_Q ? read_int(p.q_indptr, u.b) : u.b * p.q_len;
  return true;
}

// merge_states_kernel: a lane takes an element, the warps every fourth State; warp 0 joins them.
template <class S> DEV void merge_states_kernel(const FdDecodeParams& p) {
#if FD_SM90
  pdl_wait();
#endif
  SHARED_ARRAY(float4, joined, kMergeWarps * FD_MERGE_F4);
  SHARED_ARRAY(float2, joined_ml, kMergeWarps * FD_MERGE_F4);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  Unit u;
  if (!merge_unit<S>(p, u)) return;
  const int part = p.flags & FD_ITEMS ? blockIdx.y : blockIdx.x, e = part * FD_MERGE_F4 + lane;
  if (part * FD_MERGE_F4 >= u.rows << S::ROW_LOG2) return;
  Sum a;
  if (e < u.rows << S::ROW_LOG2 && warp < u.splits)
    a = merge_states<S>(p, u.first_slot + warp * u.slot_stride, kMergeWarps * u.slot_stride, (u.splits - warp + kMergeWarps - 1) / kMergeWarps, e);
  joined[threadIdx.x] = a.o;
  joined_ml[threadIdx.x] = make_float2(a.m, a.l);
  if (!MUTANT(merge_no_barrier)) __syncthreads();
  if (warp > 0 || e >= u.rows << S::ROW_LOG2) return;
  Sum b;
  UNROLL for (int w = 0; w < kMergeWarps; w++) b.m = fmaxf(b.m, joined_ml[w * 32 + lane].x);
  UNROLL for (int w = 0; w < kMergeWarps; w++) b.add(joined_ml[w * 32 + lane].x, joined_ml[w * 32 + lane].y, joined[w * 32 + lane]);
  finish<S>(p, u, e, b);
}

// Two elements of a row of outputs.
template <class T> DEV float2 unpack2(uint32_t x) { return unpack_f16(x); }
template <> DEV float2 unpack2<bf16>(uint32_t x) { return unpack_bf16(x); }
template <class T> DEV float2 load_pair(const char* row, int col) { return unpack2<T>(ld32(row + col * 2)); }
template <> DEV float2 load_pair<float>(const char* row, int col) {
  const uint2 x = ld64(row + col * 4);
  return make_float2(__uint_as_float(x.x), __uint_as_float(x.y));
}
template <class T> DEV void store_pair(char* row, int col, float x, float y) { st32(row + col * 2, pack2<T>(x, y)); }
template <> DEV void store_pair<float>(char* row, int col, float x, float y) { st64(row + col * 4, make_uint2(__float_as_uint(x), __float_as_uint(y))); }

// merge_pairs: the weight of a pair is exp(lse_i - lse). A warp reads all of a row's inputs before it writes, so that out may
// be one of them. A pair whose lse is -inf attended nothing: its O is not read.
template <class T> DEV void merge_pairs(const FdMergePairsParams& p) {
#if FD_SM90
  pdl_wait();
#endif
  const int lane = threadIdx.x & 31;
  const int64_t row = (int64_t)blockIdx.x * 4 + (threadIdx.x >> 5);
  if (row >= p.rows) return;
  const char* lse = (const char*)p.lse + row * 4;
  float M = kNoMax, sum = 0.f;
  NO_UNROLL for (int i = 0; i < p.count; i++) M = fmaxf(M, __uint_as_float(ld32(lse + i * p.lse_pair_stride)) * 1.44269504f);
  NO_UNROLL for (int i = 0; i < p.count; i++) sum += ex2(__uint_as_float(ld32(lse + i * p.lse_pair_stride)) * 1.44269504f - M);
  const float f = sum > 0.f ? 1.f / sum : 0.f;
  NO_UNROLL for (int col = 2 * lane; col < p.head_dim; col += 64) {
    float x = 0.f, y = 0.f;
    NO_UNROLL for (int i = 0; i < p.count; i++) {
      const float w = ex2(__uint_as_float(ld32(lse + i * p.lse_pair_stride)) * 1.44269504f - M) * f;
      if (w == 0.f) continue;
      const float2 o = load_pair<T>((const char*)p.o + i * p.o_pair_stride + row * p.o_row_stride, col);
      x += w * o.x;
      y += w * o.y;
    }
    store_pair<T>((char*)p.out + row * p.out_row_stride, col, x, y);
  }
  __syncwarp();  // every lane has read the row's lse
  if (lane == 0 && p.out_lse) st32((char*)p.out_lse + row * 4, __float_as_uint(sum > 0.f ? (M + lg2(sum)) * 0.69314718f : -INFINITY_F));
}

}  // namespace fd
