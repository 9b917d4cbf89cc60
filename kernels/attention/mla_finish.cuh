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

DEV int64_t first_slot() { return ((int64_t)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x * kM; }  // of split 0

DEV void store_state(const FdDecodeParams& p, const Work& w, const Output& o, const Row (&rows)[2], int group) {
  const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane / 4;
  UNROLL for (int half = 0; half < 2; half++) {
    const int r = row + 8 * half;
    if (r >= w.rows) continue;
    const int64_t slot = first_slot() + blockIdx.x * kM + r;
    if (group == 0 && lane % 4 == 0) st64(at<char>(p.state_ml) + slot * 8, make_uint2(__float_as_uint(rows[half].m), __float_as_uint(rows[half].l)));
    char* to = at<char>(p.state_o) + slot * (kValueDim * 4) + group * 1024 + lane % 4 * 8;
    UNROLL for (int j = 0; j < 32; j++) st64(to + j * 32, make_uint2(__float_as_uint(o[4 * j + 2 * half]), __float_as_uint(o[4 * j + 2 * half + 1])));
  }
}

// Adds the States of one strip (128 columns of a row) over splits first, first+step, ...; 8 loads are under way at a time.
DEV float4 add_strip(const char* o, int splits, int first, int step, const float* weights) {
  float4 sum = make_float4(0.f, 0.f, 0.f, 0.f);
  constexpr int kLoads = 8;
  for (int i = first; i < splits; i += kLoads * step) {
    uint4 x[kLoads];
    UNROLL for (int j = 0; j < kLoads; j++) if (i + j * step < splits) x[j] = ld128(o + (int64_t)(i + j * step) * (kM * kValueDim * 4));
    UNROLL for (int j = 0; j < kLoads; j++) {
      if (i + j * step >= splits) continue;
      const float f = weights[i + j * step];
      sum.x += f * __uint_as_float(x[j].x); sum.y += f * __uint_as_float(x[j].y); sum.z += f * __uint_as_float(x[j].z); sum.w += f * __uint_as_float(x[j].w);
    }
  }
  return sum;
}

// Reference logit and sum over all splits of row r; weights gets every split's factor.
DEV Row merge_row(const FdDecodeParams& p, const Work& w, int r, float* weights) {
  constexpr int kSteps = kMaxSplits / 32;
  const int lane = threadIdx.x % 32;
  const char* ml = at<char>(p.state_ml) + (first_slot() + r) * 8;
  uint2 x[kSteps];
  Row all{-INFINITY_F, 0.f};
  UNROLL for (int k = 0; k < kSteps; k++) {
    const int split = lane + 32 * k;
    x[k] = split < w.splits ? ld64(ml + split * (kM * 8)) : make_uint2(0xff800000u, 0u);
    all.m = fmaxf(all.m, __uint_as_float(x[k].x));
  }
  UNROLL for (int d = 16; d > 0; d /= 2) all.m = fmaxf(all.m, __shfl_xor_sync(~0u, all.m, d));
  UNROLL for (int k = 0; k < kSteps; k++) {
    const float m = __uint_as_float(x[k].x), f = m == -INFINITY_F ? 0.f : ex2(m - all.m);
    weights[lane + 32 * k] = f;
    all.l += f * __uint_as_float(x[k].y);
  }
  UNROLL for (int d = 16; d > 0; d /= 2) all.l += __shfl_xor_sync(~0u, all.l, d);
  __syncwarp();
  return all;
}

// Shared memory of a merge; the tiles are done with.
struct Merging { float4 sums[kWarps][32]; float weights[kWarps][kMaxSplits]; };

// Merges strips part, part+parts, ... of the row tile. A strip is shared by as many warps as there are to spare, whose sums are
// added in order: the result depends on the number of splits and parts only.
template <class T> DEV void merge(const FdDecodeParams& p, const Work& w, Merging& s, int part, int parts) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, strips = (w.rows * 4 - part + parts - 1) / parts;
  const int team = strips > 6 ? 1 : strips > 4 ? 2 : strips > 3 ? 3 : 4, teams = kWarps / team, member = warp / teams;
  for (int base = 0; base < strips; base += teams) {
    const int i = base + warp % teams, strip = part + i * parts, r = strip / 4;
    const bool mine = i < strips;
    Row row{0.f, 0.f};
    float4 sum;
    if (mine) {
      row = merge_row(p, w, r, s.weights[warp]);
      sum = add_strip(at<char>(p.state_o) + (first_slot() + r) * (kValueDim * 4) + (strip % 4 * 32 + lane) * 16, w.splits, member, team, s.weights[warp]);
      if (member > 0) s.sums[warp][lane] = sum;
    }
    __syncthreads();
    if (mine && member == 0) {
      for (int j = 1; j < team; j++) {
        const float4 x = s.sums[warp + j * teams][lane];
        sum.x += x.x; sum.y += x.y; sum.z += x.z; sum.w += x.w;
      }
      const Norm n = norm_of(p, w, r, row.m, row.l, strip % 4 == 0 && lane == 0);
      st64(at<char>(out_row(p, w, r)) + (strip % 4 * 32 + lane) * 8, make_uint2(half::pack<T>(sum.x * n.factor, sum.y * n.factor), half::pack<T>(sum.z * n.factor, sum.w * n.factor)));
    }
    __syncthreads();
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
    mbar_init(smem_u32(&s.q_full[i]), 128);
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
  if (threadIdx.x == 0) {
    Work w;
    if (!find(p, w)) w.rows = 0;
    s.work = w;
    init_barriers(s);
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
    if (w.splits == 1) store_output<T>(p, w, o, rows, group);
    else store_state(p, w, o, rows, group);
    registers_dec<168>();
  }
  if (w.splits > 1 && !(p.flags & FD_PARTIALS)) combine<T>(p, w, *(Merging*)shared);
}

}  // namespace fd::mla
