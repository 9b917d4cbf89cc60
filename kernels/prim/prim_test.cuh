// One small kernel for each group of primitives. prim_emu.cc compares them with formulae in the emulator; a device must give the same
// words (package kernels/primtest). 'out' is zero at the start. Words 0..255 of 'in' are random bits, 256..511 normal floats.
#pragma once
#include "prim.cuh"
#if FD_SM90
#include "../attention/wgmma.cuh"
#endif

struct FdPrimParams { const uint32_t* in; uint32_t* out; };

// FD_PRIM lists them: X(name, blocks, threads, blocks of a cluster, dynamic shared bytes, words of out, how out is compared).
#define FD_PRIM(X)                           \
  X(shared, 1, 32, 1, 1024, 256, exact)      \
  X(global, 1, 32, 1, 0, 560, exact)         \
  X(copies, 1, 32, 1, 2048, 352, exact)      \
  X(matrix, 1, 32, 1, 512, 416, exact)       \
  X(mma, 1, 32, 1, 0, 256, exact)            \
  X(warp, 1, 32, 1, 0, 384, exact)           \
  X(pack_bf16, 1, 32, 1, 0, 256, bf16)       \
  X(pack_f16, 1, 32, 1, 0, 544, f16)         \
  X(pack_e4m3, 1, 32, 1, 0, 256, e4m3)       \
  X(unpack, 1, 32, 1, 0, 640, f32)           \
  X(math, 1, 32, 1, 0, 256, approx20)        \
  X(tanh, 1, 32, 1, 0, 128, approx10)        \
  X(barriers, 1, 96, 1, 0, 64, exact)        \
  X(atomics, 4, 64, 1, 0, 8, exact)          \
  X(flags, 2, 32, 1, 0, 320, exact)
#define FD_PRIM_SM90(X)                      \
  X(cluster, 8, 32, 4, 1024, 256, exact)     \
  X(bulk, 1, 64, 1, 4096, 32, exact)         \
  X(dependent, 1, 32, 1, 0, 64, exact)       \
  X(wgmma_f16, 1, 128, 1, 18432, 256, exact) \
  X(wgmma_bf16, 1, 128, 1, 18432, 256, exact)

namespace fd {
namespace prim {

DEV void store4(uint32_t* o, uint4 v) { o[0] = v.x; o[1] = v.y; o[2] = v.z; o[3] = v.w; }
DEV void store2(uint32_t* o, uint2 v) { o[0] = v.x; o[1] = v.y; }
DEV float value(const uint32_t* in, int i) { return __uint_as_float(in[256 + (i & 255)]); }

DEV void shared(const uint32_t* in, uint32_t* out) {
  SHARED_BYTES(smem);
  SHARED_ARRAY(uint32_t, array, 32);
  const uint32_t a = smem_u32(smem), l = threadIdx.x, other = l ^ 3;
  sts128(a + 16 * l, ldg128(in + 4 * l));
  sts64(a + 512 + 8 * l, ldg64(in + 2 * l));
  sts32(a + 768 + 4 * l, in[l]);
  array[l] = in[l + 32];
  __syncwarp();
  store4(out + 4 * l, lds128(a + 16 * other));
  store2(out + 128 + 2 * l, lds64(a + 512 + 8 * other));
  out[192 + l] = lds32(a + 768 + 4 * other);
  out[224 + l] = lds32(smem_u32(&array[other])) ^ ((const uint32_t*)smem)[192 + l];
}

DEV void global(const uint32_t* in, uint32_t* out) {
  const int l = (int)threadIdx.x;
  st128(out + 4 * l, ld128(in + 4 * l));
  st128(out + 128 + 4 * l, ldg128(in + 4 * l));
  st64(out + 256 + 2 * l, ldg64(in + 2 * l));
  st64(out + 320 + 2 * l, ld64(in + 64 + 2 * l));
  st32(out + 384 + l, ldg32(in + l) ^ ld32(in + l + 1));
  st16((uint16_t*)(out + 416) + l, (uint16_t)in[l]);
  st128(out + 432 + 4 * l, ldg128_once(in + 4 * l));
}

DEV void copies(const uint32_t* in, uint32_t* out) {
  SHARED_BYTES(smem);
  const uint32_t a = smem_u32(smem), l = threadIdx.x, other = l ^ 1;
  prefetch_l2(in);
  cp_async16(a + 16 * l, in + 4 * l, (int)l % 17);     // the rest is zero
  cp_commit();
  cp_async8(a + 512 + 8 * l, in + 2 * l, (int)l % 9);
  cp_async4(a + 768 + 4 * l, in + l, (int)l % 5);
  cp_commit();
  cp_async16(__shfl_sync(~0u, a + 1024 + 16 * l, (int)l), in + 4 * l, (int)(l + 3) % 17, policy_evict_first());   // see gpu.cuh
  cp_commit();
  if (!MUTANT(prim_wait_one_short)) cp_wait<1>(); else cp_wait<2>();
  __syncwarp();
  store4(out + 4 * l, lds128(a + 16 * other));
  store2(out + 128 + 2 * l, lds64(a + 512 + 8 * other));
  cp_wait_all();
  if (!MUTANT(prim_no_syncwarp)) __syncwarp();
  out[192 + l] = lds32(a + 768 + 4 * other);
  store4(out + 224 + 4 * l, lds128(a + 1024 + 16 * other));
}

DEV void matrix(const uint32_t* in, uint32_t* out) {
  SHARED_BYTES(smem);
  const uint32_t a = smem_u32(smem), l = threadIdx.x;
  uint32_t r[4], s[2];
  sts128(a + 16 * l, ldg128(in + 4 * l));
  __syncwarp();
  ldmatrix4(r, a + 16 * l);
  store4(out + 4 * l, make_uint4(r[0], r[1], r[2], r[3]));
  ldmatrix4_trans(r, a + 16 * l);
  store4(out + 128 + 4 * l, make_uint4(r[0], r[1], r[2], r[3]));
  ldmatrix2(s, a + 16 * (l & 15));
  store2(out + 256 + 2 * l, make_uint2(s[0], s[1]));
  ldmatrix2_trans(s, a + 16 * (l & 15));
  store2(out + 320 + 2 * l, make_uint2(s[0], s[1]));
  out[384 + l] = transpose8x8(in[l]);
}

// Small integers: sums of products are exact in any order.
DEV float small(const uint32_t* in, int i) { return (float)(int)(in[i & 255] & 15) - 8.f; }

DEV void mma(const uint32_t* in, uint32_t* out) {
  const int l = (int)threadIdx.x, g = l >> 2, t = l & 3;
  auto A = [&](int i, int k) { return small(in, 16 * i + k); };
  auto B = [&](int k, int j) { return small(in, 17 * k + 5 * j); };
  UNROLL for (int half = 0; half < 2; half++) {
    auto pack = [&](float lo, float hi) { return half ? pack_f16(lo, hi) : pack_bf16(lo, hi); };
    uint32_t a[4], b[2];
    UNROLL for (int i = 0; i < 4; i++) {
      const int row = g + 8 * (i & 1), column = 2 * t + 8 * (i >> 1);
      a[i] = pack(A(row, column), A(row, column + 1));
    }
    UNROLL for (int i = 0; i < 2; i++) b[i] = pack(B(2 * t + 8 * i, g), B(2 * t + 8 * i + 1, g));
    float c[4];
    UNROLL for (int i = 0; i < 4; i++) c[i] = small(in, 8 * (g + 8 * (i >> 1)) + 2 * t + (i & 1));
    if (half) mma_f16(c, a[0], a[1], a[2], a[3], b[0], b[1]);
    else mma_bf16(c, a[0], a[1], a[2], a[3], b[0], b[1]);
    UNROLL for (int i = 0; i < 4; i++) out[128 * half + 8 * (g + 8 * (i >> 1)) + 2 * t + (i & 1)] = __float_as_uint(c[i]);
  }
}

DEV void warp(const uint32_t* in, uint32_t* out) {
  const uint32_t l = threadIdx.x, v = in[l];
  out[l] = __shfl_sync(~0u, v, 5);
  out[32 + l] = __shfl_xor_sync(~0u, v, 9);
  out[64 + l] = __shfl_up_sync(~0u, v, 3);
  out[96 + l] = __shfl_down_sync(~0u, v, 3);
  out[128 + l] = __shfl_sync(~0u, v, 3, 8);
  out[160 + l] = __ballot_sync(~0u, v & 1);
  out[192 + l] = (uint32_t)(__any_sync(~0u, v == in[7]) != 0) | (uint32_t)(__all_sync(~0u, v == in[7]) != 0) << 1;
  out[224 + l] = __byte_perm(v, in[l + 32], 0x7362);
  out[256 + l] = __byte_perm(v, in[l + 32], 0x5140);
  out[288 + l] = (uint32_t)__popc(v) | (uint32_t)__clz((int)(v >> l)) << 8 | (uint32_t)__ffs((int)(v << l)) << 16;
  out[320 + l] = __shfl_xor_sync(~0u, v, 4, 16);
  out[352 + l] = __umulhi(v, in[l + 32]);
}

DEV void pack_bf16(const uint32_t* in, uint32_t* out) {
  for (int i = (int)threadIdx.x; i < 128; i += 32) {
    out[i] = fd::pack_bf16(__uint_as_float(in[i]), __uint_as_float(in[i + 128]));   // of all magnitudes, NaN too
    bf16 x;
    from_float(x, value(in, i));
    out[128 + i] = x.bits | (uint32_t)(fd::pack_bf16(value(in, i), 0.f) << 16);
  }
}

DEV void pack_f16(const uint32_t* in, uint32_t* out) {
  for (int i = (int)threadIdx.x; i < 128; i += 32) {
    f16 x;
    from_float(x, value(in, i));
    out[i] = fd::pack_f16(value(in, i) * 0x1p-15f, value(in, i + 128) * 0x1p15f);   // subnormals and overflows
    out[128 + i] = mul_f16x2(in[i], in[i + 128]);
    uint32_t lo, hi;
    e4m3x4_to_f16(in[i], lo, hi);
    out[256 + i] = lo;
    out[384 + i] = hi;
    if (i < 32) out[512 + i] = x.bits;
  }
}

DEV void pack_e4m3(const uint32_t* in, uint32_t* out) {
  for (int i = (int)threadIdx.x; i < 256; i += 32) {
    e4m3 x;
    from_float(x, value(in, i));
    const uint32_t pair = fd::pack_e4m3(value(in, i) * 200.f, value(in, i + 1) * 0.01f);   // saturation and subnormals
    out[i] = pair | (uint32_t)x.bits << 16 | (fd::pack_e4m3(__uint_as_float(in[i]), 0.f) & 0xffu) << 24;
  }
}

DEV void unpack(const uint32_t* in, uint32_t* out) {
  for (int i = (int)threadIdx.x; i < 128; i += 32) {
    const float2 b = unpack_bf16(in[i]), h = unpack_f16(in[i]);
    const float e = to_float(e4m3{(uint8_t)(in[i] & 0xff)}), x = i & 1 ? to_float(bf16{(uint16_t)in[i]}) : to_float(f16{(uint16_t)in[i]});
    store4(out + 5 * i, make_uint4(__float_as_uint(b.x), __float_as_uint(b.y), __float_as_uint(h.x), __float_as_uint(h.y)));
    out[5 * i + 4] = __float_as_uint(e == e ? e + x : x);
  }
}

DEV void math(const uint32_t* in, uint32_t* out) {
  for (int i = (int)threadIdx.x; i < 64; i += 32) {
    const float x = value(in, i);
    out[i] = __float_as_uint(i == 0 ? ex2(-INFINITY_F) : i == 1 ? ex2(0.f) : ex2(8.f * x));
    out[64 + i] = __float_as_uint(lg2(fabsf(x) + 2.f));
    out[128 + i] = __float_as_uint(rcp(x));
    out[192 + i] = __float_as_uint(max3(x, value(in, i + 1), 0.f));
  }
}

DEV void tanh(const uint32_t* in, uint32_t* out) {
  for (int i = (int)threadIdx.x; i < 128; i += 32) out[i] = __float_as_uint(tanh_approx(value(in, i) * (i & 1 ? 4.f : 0.1f)));
}

// Warp 0 hands eight words to warps 1 and 2: barrier 1 says full, 2 empty.
DEV void barriers(const uint32_t* in, uint32_t* out) {
  SHARED_ARRAY(uint32_t, word, 1);
  uint32_t sum = 0;
  for (int i = 0; i < 8; i++) {
    if (threadIdx.x < 32) {
      if (threadIdx.x == 0) word[0] = in[i];
      __syncwarp();
      bar_arrive(1, 96);
      bar_sync(2, 96);
    } else {
      bar_sync(1, 96);
      sum = sum * 3 + word[0];
      if (!MUTANT(prim_no_empty)) bar_arrive(2, 96);
    }
  }
  __syncthreads();
  if (threadIdx.x >= 32) out[threadIdx.x - 32] = sum;
}

DEV void atomics(const uint32_t* in, uint32_t* out) {
  const uint32_t i = blockIdx.x * 64 + threadIdx.x;
  red_add(&out[0], in[i]);
  atom_add(&out[1], in[i] >> 3);
  atom_inc_acq_rel(&out[2], 99);
  red_or(&out[3], in[i] & in[(i + 1) & 255] & in[(i + 2) & 255]);
  red_max(&out[4], in[i]);
  red_add((float*)&out[5], small(in, (int)i));
  uint32_t old = ld_relaxed1(&out[6]);
  for (uint32_t seen; (seen = atom_cas(&out[6], old, old + 2)) != old; old = seen) {}
  fence_gpu();
  atom_add_acq_rel(&out[7], atom_exch(&out[7], 0) + 1);  // however they meet, the counts stay in the word or in flight to it
}

// Block 0 publishes, block 1 waits for each kind of flag and copies.
DEV void flags(const uint32_t* in, uint32_t* out) {
  const uint32_t l = threadIdx.x;
  if (blockIdx.x == 0) {
    st_relaxed4(out + 4 * l, make_float4(small(in, (int)l), 1.f, 2.f, 3.f));
    st_relaxed2(out + 128 + 2 * l, 4.f, small(in, (int)l));
    fence_gpu();
    st_relaxed1(out + 192 + l, 1);
    st_release(out + 224 + l, 2);
    st_volatile(out + 256 + l, 3);
    return;
  }
  while (ld_acquire(out + 224 + l) != 2) nanosleep(20);
  const uint4 a = ld_relaxed4(out + 4 * l);
  const uint2 b = ld_relaxed2(out + 128 + 2 * l);
  while (ld_relaxed1(out + 192 + l) != 1 || ld_volatile(out + 256 + l) != 3) {}
  out[288 + l] = a.x + a.y + a.z + a.w + b.x + b.y;
}

#if FD_SM90
// Each block of a cluster sends to all: by st.async with transaction bytes, then by plain stores between cluster barriers.
DEV void cluster(const uint32_t* in, uint32_t* out) {
  SHARED_BYTES(smem);
  const uint32_t a = smem_u32(smem), bar = a + 512, bar2 = a + 520, l = threadIdx.x, me = cluster_rank(), n = cluster_size();
  if (l == 0) {
    mbar_init(bar, 1);
    mbar_init(bar2, n);
    mbar_fence_init();
    mbar_arrive_expect(bar, n * 28);
  }
  __syncwarp();
  cluster_arrive();
  cluster_wait();
  const float x = small(in, (int)(blockIdx.x * 8));
  if (l < n) {
    const uint32_t to = cluster_addr(bar, l);
    st_async4(cluster_addr(a + 16 * me, l), make_float4(x, x + 1, x + 2, x + 3), to);
    st_async2(cluster_addr(a + 64 + 8 * me, l), x + 4, x + 5, to);
    st_async1(cluster_addr(a + 96 + 4 * me, l), x + 6, to);
  }
  if (!MUTANT(prim_no_mbar_wait)) mbar_wait(bar, 0);
  if (l < 28) out[blockIdx.x * 32 + l] = lds32(a + 4 * l);
  if (l < n) st_cluster4(cluster_addr(a + 256 + 16 * me, l), make_float4(x, 2 * x, 3 * x, 4 * x));
  __syncwarp();
  if (l < n) mbar_arrive_cluster(cluster_addr(bar2, l));
  mbar_wait(bar2, 0);
  if (l < 4) out[blockIdx.x * 32 + 28 + l] = ld_cluster1(cluster_addr(a + 256 + 16 * l, me)) ^ ld_cluster4(cluster_addr(a + 256 + 16 * ((l + 1) & 3), (me + 1) & 3)).y;
  cluster_arrive();   // nobody leaves while others read its memory
  cluster_wait();
}

// Warp 0 loads stages, half of one by bulk copy and half by cp.async; warp 1 adds them up.
DEV void bulk(const uint32_t* in, uint32_t* out) {
  SHARED_BYTES(smem);
  const uint32_t a = smem_u32(smem), full = a + 2048, empty = full + 16, l = threadIdx.x & 31;
  if (threadIdx.x == 0) for (uint32_t s = 0; s < 2; s++) { mbar_init(full + 8 * s, 33); mbar_init(empty + 8 * s, 1); }
  fence_async();
  __syncthreads();
  uint32_t sum = 0;
  for (uint32_t i = 0; i < 4; i++) {
    const uint32_t stage = i & 1, phase = i >> 1;
    if (threadIdx.x < 32) {
      if (!MUTANT(prim_no_stage_wait)) { if (i >= 2) mbar_wait(empty + 8 * stage, phase ^ 1); }
      if (l == 0) {
        bulk_prefetch(in + 64 * i, 128);
        mbar_arrive_expect(full + 8 * stage, 128);
        bulk_load(a + 512 * stage, in + 64 * i, 64, full + 8 * stage);
        bulk_load(a + 512 * stage + 64, in + 64 * i + 16, 64, full + 8 * stage, policy_evict_last());
      }
      cp_async4(a + 512 * stage + 128 + 4 * l, in + 64 * i + 32 + l, 4);
      cp_arrive_noinc(full + 8 * stage);
    } else {
      while (!mbar_test(full + 8 * stage, phase)) {}
      sum = sum * 5 + (lds32(a + 512 * stage + 4 * l) ^ lds32(a + 512 * stage + 128 + 4 * (31 - l)));
      __syncwarp();
      if (l == 0) mbar_arrive(empty + 8 * stage);
    }
  }
  if (threadIdx.x >= 32) out[l] = sum;
  __syncthreads();
  if (threadIdx.x == 0) mbar_inval(full);
}

// In a plain launch both are no-ops. Launched twice in a row as dependents, the second finds what the first wrote.
DEV void dependent(const uint32_t* in, uint32_t* out) {
  pdl_launch();
  if (!MUTANT(prim_no_pdl_wait)) pdl_wait();
  const uint32_t l = threadIdx.x, a = out[l], b = out[32 + (l ^ 1)];
  __syncwarp();
  out[l] = b + in[l];
  out[32 + l] = a * 7 + 1;
}

// Both operands by rows, then A in registers and B by columns. Each thread gives a weighted sum of its 32 results, which are integers.
DEV int weighted(const float (&d)[32]) {
  int sum = 0;
  UNROLL for (int j = 0; j < 32; j++) sum += (j + 1) * (int)d[j];
  return sum;
}

template <class T> DEV void wgmma(const uint32_t* in, uint32_t* out) {
  SHARED_BYTES(smem);
  const uint32_t a = smem_u32(smem), b = a + 8192, c = a + 16384;
  const int tid = (int)threadIdx.x, g = tid % 32 / 4, t = tid % 4, row = tid / 32 * 16 + g;
  auto A = [&](int i, int k) { return small(in, 16 * i + k); };
  auto B = [&](int k, int j) { return small(in, 19 * k + 7 * j); };
  auto element = [&](uint32_t panel, int r, int column) { return (T*)(smem + (panel - a) + r * 128 + ((column / 8 ^ (r & 7)) * 16) + column % 8 * 2); };
  for (int i = tid; i < 64 * 64; i += 128) {        // the sum runs over columns 16..31 of A and B, the others must not matter
    const int r = i / 64, column = i % 64;
    const bool used = column >= 16 && column < 32;
    from_float(*element(a, r, column), used ? A(r, column - 16) : 100.f);
    from_float(*element(b, r, column), used ? B(column - 16, r) : 100.f);
    if (r < 16) from_float(*element(c, r, column), B(r, column));
  }
  fence_async();
  __syncthreads();
  float d[32], e[32];
  UNROLL for (int j = 0; j < 32; j++) { d[j] = 0.f; e[j] = 1.f; }
  uint32_t regs[4];
  UNROLL for (int i = 0; i < 4; i++) {
    T lo, hi;
    from_float(lo, A(row + 8 * (i & 1), 2 * t + 8 * (i >> 1)));
    from_float(hi, A(row + 8 * (i & 1), 2 * t + 8 * (i >> 1) + 1));
    regs[i] = lo.bits | (uint32_t)hi.bits << 16;
  }
  wgmma_pin(d);
  wgmma_pin(e);
  wgmma_fence();
  wgmma_rows<T, 32>(d, rows_desc(a, 32), rows_desc(b, 32), false);
  wgmma_columns<T, 32>(e, regs, columns_desc(c, 0, 2048));
  wgmma_commit();
  if (!MUTANT(prim_no_wgmma_wait)) wgmma_wait<0>(); else wgmma_wait<1>();
  wgmma_pin(d);
  wgmma_pin(e);
  out[tid] = (uint32_t)weighted(d);
  out[128 + tid] = (uint32_t)weighted(e);
}
DEV void wgmma_f16(const uint32_t* in, uint32_t* out) { wgmma<f16>(in, out); }
DEV void wgmma_bf16(const uint32_t* in, uint32_t* out) { wgmma<bf16>(in, out); }
#endif

}  // namespace prim
}  // namespace fd
