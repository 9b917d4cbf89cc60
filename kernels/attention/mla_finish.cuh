// The end of mla: output, or States and their merge by all CTAs of a row tile at once (FD_RESIDENT) or by the last of them.
#pragma once
#include "mla.cuh"

namespace fd::mla {

DEV uint64_t out_row(const FdDecodeParams& p, const Work& w, int r) {
  const int packed = w.row0 + r, token = packed / w.heads;
  return p.out + (uint64_t)(w.q_start + token) * p.out_token_stride + (uint64_t)(packed - token * w.heads) * (kValueDim * 2);
}

DEV Norm norm_of(const FdDecodeParams& p, const Work& w, int r, float m, float l, bool store_lse) {
  const int packed = w.row0 + r;
  const Norm n = normalise(p, packed % w.heads, m, l);
  if (p.lse && store_lse) st32(at<float>(p.lse) + (int64_t)w.q_start * w.heads + packed, __float_as_uint(n.lse));
  return n;
}

template <class T> DEV void store_output(const FdDecodeParams& p, const Work& w, const Output& o, const Row (&rows)[2], int group) {
  const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane / 4;
  UNROLL for (int half = 0; half < 2; half++) {
    const int r = row + 8 * half;
    if (r >= w.rows) continue;
    const Norm n = norm_of(p, w, r, rows[half].m, rows[half].l, group == 0 && lane % 4 == 0);
    char* to = at<char>(out_row(p, w, r)) + group * 512 + lane % 4 * 4;
    UNROLL for (int j = 0; j < 32; j++) st32(to + j * 16, half::pack<T>(o[4 * j + 2 * half] * n.factor, o[4 * j + 2 * half + 1] * n.factor));
  }
}

// ---- States. 16 bits are enough for O: scaled by the largest of its row's 256 columns it is off by 2^-12 of that, an eighth of
// what rounding the output to bf16 costs, and a State is half as large; writing and reading States is most of a short call.
// A split's O is kUnits units of 16 bytes, in the order in which threads hold it:
//   [16 rows 4][warpgroup 2][32 columns 8][8 rows 2][row 8][4]: elements 8*j + 2*t, +1 for four j
// and for each row a Scale.
constexpr int kUnits = 4096, kStrips = kUnits / 32;
struct Scale { float m, l, o[2]; };  // of the State, and of either warpgroup's columns

DEV int64_t first_state() { return ((int64_t)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x; }  // of split 0

DEV void store_state(const FdDecodeParams& p, const Output& o, const Row (&rows)[2], int group) {
  const int lane = threadIdx.x % 32, block = threadIdx.x % 128 / 32;
  const int64_t state = first_state() + blockIdx.x;
  char* to = at<char>(p.state_o) + (state * kUnits + (block * 2 + group) * 512 + lane) * 16;
  UNROLL for (int half = 0; half < 2; half++) {
    float top = 0.f;
    UNROLL for (int j = 0; j < 32; j++) top = max3(top, fabsf(o[4 * j + 2 * half]), fabsf(o[4 * j + 2 * half + 1]));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
    const float f = top > 0.f ? 1.f / top : 0.f;
    if (lane % 4 == 0) {
      char* scale = at<char>(p.state_ml) + (state * kM + block * 16 + half * 8 + lane / 4) * sizeof(Scale);
      if (group == 0) st64(scale, make_uint2(__float_as_uint(rows[half].m), __float_as_uint(rows[half].l)));
      st32(scale + 8 + group * 4, __float_as_uint(top));
    }
    UNROLL for (int j = 0; j < 8; j++) {
      uint32_t x[4];
      UNROLL for (int i = 0; i < 4; i++) x[i] = pack_f16(o[16 * j + 4 * i + 2 * half] * f, o[16 * j + 4 * i + 2 * half + 1] * f);
      st128(to + (j * 64 + half * 32) * 16, make_uint4(x[0], x[1], x[2], x[3]));
    }
  }
}

// Shared memory of a merge; the tiles are done with.
struct Merging {
  float sums[kWarps][8][32];
  float weights[2][kM][kMaxSplits + 1];  // an odd stride keeps rows in different banks; of either warpgroup's columns: what a split's O is to be multiplied by
  Row rows[kM];                      // reference logit and sum over all splits
};

// Fills weights and rows for packed rows first ... first+count-1: half a warp a row, its lanes the splits, all loads at once.
DEV void merge_rows(const FdDecodeParams& p, const Work& w, Merging& s, int first, int count) {
  constexpr int kLoads = kMaxSplits / 16;
  const int lane = threadIdx.x % 16;
  for (int base = 0; base < count; base += kThreads / 16) {
    const int i = base + threadIdx.x / 16, row = first + i;
    const char* scales = at<char>(p.state_ml) + (first_state() * kM + row) * sizeof(Scale);
    uint4 x[kLoads];
    UNROLL for (int j = 0; j < kLoads; j++) {
      x[j] = make_uint4(0xff800000u, 0u, 0u, 0u);  // -inf: no split
      if (i < count && lane + 16 * j < w.splits) x[j] = ld128(scales + (int64_t)(lane + 16 * j) * (kM * sizeof(Scale)));
    }
    Row all{-INFINITY_F, 0.f};
    UNROLL for (int j = 0; j < kLoads; j++) all.m = fmaxf(all.m, __uint_as_float(x[j].x));
    UNROLL for (int d = 8; d > 0; d /= 2) all.m = fmaxf(all.m, __shfl_xor_sync(~0u, all.m, d));
    UNROLL for (int j = 0; j < kLoads; j++) {
      const float m = __uint_as_float(x[j].x), f = m == -INFINITY_F ? 0.f : ex2(m - all.m);
      all.l += f * __uint_as_float(x[j].y);
      if (i >= count || lane + 16 * j >= w.splits) continue;
      s.weights[0][row][lane + 16 * j] = f * __uint_as_float(x[j].z);
      s.weights[1][row][lane + 16 * j] = f * __uint_as_float(x[j].w);
    }
    UNROLL for (int d = 8; d > 0; d /= 2) all.l += __shfl_xor_sync(~0u, all.l, d);
    if (i < count && lane == 0) s.rows[row] = all;
  }
}

// A warp's part of a strip (32 units): splits first, first+step, ..., kLoads of them under way at a time.
constexpr int kLoads = 16;
DEV void load_units(uint4 (&x)[kLoads], const char* o, int splits, int first, int step) {
  UNROLL for (int j = 0; j < kLoads; j++) if (first + j * step < splits) x[j] = ld128(o + (int64_t)(first + j * step) * (kUnits * 16));
}
DEV void add_units(float (&sum)[8], const uint4 (&x)[kLoads], int splits, int first, int step, const float* weights) {
  UNROLL for (int j = 0; j < kLoads; j++) {
    if (first + j * step >= splits) continue;
    const float f = weights[first + j * step];
    const uint32_t y[4] = {x[j].x, x[j].y, x[j].z, x[j].w};
    UNROLL for (int e = 0; e < 4; e++) { const float2 z = unpack_f16(y[e]); sum[2 * e] += f * z.x; sum[2 * e + 1] += f * z.y; }
  }
}

// Merges this part's share of the row tile's strips. A strip is shared by as many warps as there are to spare, whose sums are
// added in order: the result depends on the numbers of splits and parts only. The first units are on their way while the weights
// of the strips' rows are worked out.
template <class T> DEV void merge(const FdDecodeParams& p, const Work& w, Merging& s, int part, int parts) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, begin = kStrips * part / parts, end = kStrips * (part + 1) / parts, strips = end - begin;
  if (strips == 0) return;
  const int team = max(1, min(6, kWarps / strips)), teams = kWarps / team, member = warp / teams;
  for (int base = 0; base < strips; base += teams) {
    const int i = base + warp % teams, strip = begin + i, r = strip / 32 * 16 + strip % 2 * 8 + lane / 4, group = strip / 16 % 2;
    const bool mine = i < strips && member < team;
    const char* o = at<char>(p.state_o) + (first_state() * kUnits + strip * 32 + lane) * 16;
    uint4 x[kLoads];
    float sum[8] = {};
    if (mine) load_units(x, o, w.splits, member, team);
    if (base == 0) {
      merge_rows(p, w, s, begin / 32 * 16, ((end - 1) / 32 - begin / 32 + 1) * 16);
      __syncthreads();
    }
    if (mine) {
      add_units(sum, x, w.splits, member, team, s.weights[group][r]);
      for (int next = member + kLoads * team; next < w.splits; next += kLoads * team) {
        load_units(x, o, w.splits, next, team);
        add_units(sum, x, w.splits, next, team, s.weights[group][r]);
      }
      if (member > 0) UNROLL for (int e = 0; e < 8; e++) s.sums[warp][e][lane] = sum[e];
    }
    if (team > 1) __syncthreads();
    if (mine && member == 0 && r < w.rows) {
      for (int j = 1; j < team; j++) UNROLL for (int e = 0; e < 8; e++) sum[e] += s.sums[warp + j * teams][e][lane];
      const Norm n = norm_of(p, w, r, s.rows[r].m, s.rows[r].l, strip % 32 < 2 && lane % 4 == 0);
      char* to = at<char>(out_row(p, w, r)) + (group * 256 + strip / 2 % 8 * 32 + lane % 4 * 2) * 2;
      UNROLL for (int e = 0; e < 4; e++) st32(to + e * 16, half::pack<T>(sum[2 * e] * n.factor, sum[2 * e + 1] * n.factor));
    }
    if (team > 1) __syncthreads();
  }
}

// States are stored; all CTAs of the row tile come here. FD_RESIDENT: all of them run at once, so each waits for all and merges
// its share; the counter counts to splits, then on to 2*splits as they leave, and wraps to 0. Else the last one merges all.
template <class T> DEV void combine(const FdDecodeParams& p, const Work& w, Merging& s) {
  SHARED_ARRAY(uint32_t, before, 4);
  uint32_t* counter = at<uint32_t>(p.counters) + blockIdx.z * gridDim.y + blockIdx.y;
  const bool resident = p.flags & FD_RESIDENT;
  __syncthreads();
  if (threadIdx.x == 0) {
    before[0] = atom_inc_acq_rel(counter, (resident ? 2 : 1) * w.splits - 1);
    if (resident && !MUTANT(mla_merge_not_awaited)) while (ld_acquire(counter) < (uint32_t)w.splits) {}
  }
  __syncthreads();
  if (!resident && before[0] != (uint32_t)w.splits - 1) return;
  merge<T>(p, w, s, resident ? blockIdx.x : 0, resident ? w.splits : 1);
  if (resident && threadIdx.x == 0) atom_inc_acq_rel(counter, 2 * w.splits - 1);
}

DEV void init_barriers(Shared& s) {
  for (int i = 0; i < kParts; i++) {
    for (int b = 0; b < kBuffers; b++) {
      mbar_init(smem_u32(&s.full[b][i]), 128);
      mbar_init(smem_u32(&s.empty[b][i]), i == 2 ? 8 : 4);  // warps: of one warpgroup, or of both
    }
  }
  mbar_fence_init();
}

template <class T> DEV void kernel(const FdDecodeParams& p) {
  SHARED_BYTES(shared);
  SHARED_ARRAY(Shared, shared_state, 1);
  Shared& s = shared_state[0];
  if (threadIdx.x == 32) init_barriers(s);
  pdl_wait();  // in a chain of dependent launches all of the above overlaps the kernel before
  if (threadIdx.x == 0) {
    Work w;
    if (!find(p, w)) w.rows = 0;
    s.work = w;
  }
  __syncthreads();
  const Work& w = s.work;
  if (w.rows <= 0) return;
  const int group = __shfl_sync(~0u, threadIdx.x / 128, 0);  // known to be the same in a warp, as wgmma must be
  if (group == 2) {
    registers_dec<40>();
    produce(p, s, smem_u32(shared));
    registers_inc<168>();
  } else {
    registers_inc<232>();
    Output o;
    Row rows[2];
    consume<T>(p, s, smem_u32(shared), group, o, rows);
    pdl_launch();
    if (w.splits == 1) store_output<T>(p, w, o, rows, group);
    else store_state(p, o, rows, group);
    registers_dec<168>();
  }
  if (w.splits > 1) combine<T>(p, w, *(Merging*)shared);
}

}  // namespace fd::mla
