// The primitives of gpu.cuh and hopper.cuh as C++ for the emulator: same names, same meaning, checked. What each does is said there.
#pragma once
#include "cuda_names.h"

#define DEV inline
#define GLOBAL
#define GRID_CONSTANT
#define LAUNCH_BOUNDS(...)
#define UNROLL
#define NO_UNROLL
#define INFINITY_F __builtin_inff()
#define SHARED_BYTES(name) char* const name = ::emu::dynamic_shared()
#define SHARED_ARRAY(type, name, count) \
  static const char shared_key_##name = 0; \
  type(&name)[count] = *(type(*)[count])::emu::static_shared(&shared_key_##name, sizeof(type) * (count))
#define MUTANT(name) ([] { static ::emu::MutantSite site{#name}; return site.on(); }())

namespace fd {
using emu::Where;

// ---- shared memory

inline uint32_t smem_u32(const void* p, Where w = {}) { return emu::shared_address(p, w); }
template <class T> inline T shared_load(uint32_t a, Where w) { return *(T*)emu::own_shared(a, sizeof(T), w); }
template <class T> inline void shared_store(uint32_t a, const T& v, Where w) { *(T*)emu::own_shared(a, sizeof(T), w) = v; }
inline uint32_t lds32(uint32_t a, Where w = {}) { return shared_load<uint32_t>(a, w); }
inline uint2 lds64(uint32_t a, Where w = {}) { return shared_load<uint2>(a, w); }
inline uint4 lds128(uint32_t a, Where w = {}) { return shared_load<uint4>(a, w); }
inline void sts32(uint32_t a, uint32_t v, Where w = {}) { shared_store(a, v, w); }
inline void sts64(uint32_t a, uint2 v, Where w = {}) { shared_store(a, v, w); }
inline void sts128(uint32_t a, uint4 v, Where w = {}) { shared_store(a, v, w); }

// ---- global memory

template <class T> inline T global_load(const void* p, Where w) { return *(const T*)emu::global_memory(p, sizeof(T), w); }
template <class T> inline void global_store(void* p, const T& v, Where w) { *(T*)emu::global_memory(p, sizeof(T), w) = v; }
inline uint32_t ldg32(const void* p, Where w = {}) { return global_load<uint32_t>(p, w); }
inline uint2 ldg64(const void* p, Where w = {}) { return global_load<uint2>(p, w); }
inline uint4 ldg128(const void* p, Where w = {}) { return global_load<uint4>(p, w); }
inline uint4 ldg128_once(const void* p, Where w = {}) { return global_load<uint4>(p, w); }
inline uint32_t ld32(const void* p, Where w = {}) { return global_load<uint32_t>(p, w); }
inline uint2 ld64(const void* p, Where w = {}) { return global_load<uint2>(p, w); }
inline uint4 ld128(const void* p, Where w = {}) { return global_load<uint4>(p, w); }
inline void st16(void* p, uint16_t v, Where w = {}) { global_store(p, v, w); }
inline void st32(void* p, uint32_t v, Where w = {}) { global_store(p, v, w); }
inline void st64(void* p, uint2 v, Where w = {}) { global_store(p, v, w); }
inline void st128(void* p, uint4 v, Where w = {}) { global_store(p, v, w); }

// Relaxed accesses of several words are several accesses: others may run between the words.
inline uint32_t ld_relaxed1(const void* p, Where w = {}) {
  emu::poll_point("memory to change (ld_relaxed)", w);
  return global_load<uint32_t>(p, w);
}
template <class T> inline T relaxed_load(const void* p, Where w) {
  emu::poll_point("memory to change (ld_relaxed)", w);
  const uint32_t* from = (const uint32_t*)emu::global_memory(p, sizeof(T), w);
  uint32_t v[sizeof(T) / 4];
  for (uint32_t& x : v) {
    x = *from++;
    if (emu::random_bits() % 16 == 0) emu::poll_point("memory to change (ld_relaxed)", w);
  }
  return *(T*)v;
}
template <class T> inline void relaxed_store(void* p, const T& v, Where w) {
  uint32_t* to = (uint32_t*)emu::global_memory(p, sizeof(T), w);
  for (size_t i = 0; i < sizeof(T) / 4; i++) {
    memcpy(to + i, (const char*)&v + 4 * i, 4);
    if (emu::random_bits() % 16 == 0) emu::maybe_switch();
  }
}
inline uint2 ld_relaxed2(const void* p, Where w = {}) { return relaxed_load<uint2>(p, w); }
inline uint4 ld_relaxed4(const void* p, Where w = {}) { return relaxed_load<uint4>(p, w); }
inline void st_relaxed1(void* p, uint32_t v, Where w = {}) { relaxed_store(p, v, w); }
inline void st_relaxed2(void* p, float x, float y, Where w = {}) { relaxed_store(p, float2{x, y}, w); }
inline void st_relaxed4(void* p, float4 v, Where w = {}) { relaxed_store(p, v, w); }
inline uint32_t ld_acquire(const void* p, Where w = {}) { return ld_relaxed1(p, w); }
inline void st_release(void* p, uint32_t v, Where w = {}) { relaxed_store(p, v, w); }
inline uint32_t ld_volatile(const void* p, Where w = {}) { return ld_relaxed1(p, w); }
inline void st_volatile(void* p, uint32_t v, Where w = {}) { relaxed_store(p, v, w); }

// ---- atomics

template <class T, class F> inline T atomic(T* p, Where w, F change) {
  emu::maybe_switch();
  emu::global_memory(p, sizeof(T), w);
  const T old = *p;
  *p = change(old);
  emu::maybe_switch();
  return old;
}
inline uint32_t atom_inc_acq_rel(uint32_t* p, uint32_t wrap, Where w = {}) { return atomic(p, w, [=](uint32_t v) { return v >= wrap ? 0 : v + 1; }); }
inline uint32_t atom_add_acq_rel(uint32_t* p, uint32_t x, Where w = {}) { return atomic(p, w, [=](uint32_t v) { return v + x; }); }
inline uint32_t atom_add(uint32_t* p, uint32_t x, Where w = {}) { return atomic(p, w, [=](uint32_t v) { return v + x; }); }
inline uint32_t atom_exch(uint32_t* p, uint32_t x, Where w = {}) { return atomic(p, w, [=](uint32_t) { return x; }); }
inline uint32_t atom_cas(uint32_t* p, uint32_t expect, uint32_t x, Where w = {}) { return atomic(p, w, [=](uint32_t v) { return v == expect ? x : v; }); }
inline void red_add(uint32_t* p, uint32_t x, Where w = {}) { atomic(p, w, [=](uint32_t v) { return v + x; }); }
inline void red_add(float* p, float x, Where w = {}) { atomic(p, w, [=](float v) { return v + x; }); }
inline void red_or(uint32_t* p, uint32_t x, Where w = {}) { atomic(p, w, [=](uint32_t v) { return v | x; }); }
inline void red_max(uint32_t* p, uint32_t x, Where w = {}) { atomic(p, w, [=](uint32_t v) { return v > x ? v : x; }); }
inline void fence_gpu() { emu::maybe_switch(); }

// ---- copies

inline uint64_t policy_evict_first() { return 1; }
inline uint64_t policy_evict_last() { return 2; }
inline void cp_async16(uint32_t dst, const void* src, int bytes, Where w = {}) { emu::copy_async(dst, src, 16, bytes, w); }
inline void cp_async16(uint32_t dst, const void* src, int bytes, uint64_t, Where w = {}) { emu::copy_async(dst, src, 16, bytes, w); }
inline void cp_async8(uint32_t dst, const void* src, int bytes, Where w = {}) { emu::copy_async(dst, src, 8, bytes, w); }
inline void cp_async4(uint32_t dst, const void* src, int bytes, Where w = {}) { emu::copy_async(dst, src, 4, bytes, w); }
inline void cp_commit() { emu::copy_commit(); }
template <int N> inline void cp_wait() { emu::copy_wait(N); }
inline void cp_wait_all() { emu::copy_commit(); emu::copy_wait(0); }
inline void prefetch_l2(const void*) {}

// ---- barriers, clocks

inline void bar_sync(int id, int threads, Where w = {}) { emu::barrier_sync(id, threads, w); }
inline void bar_arrive(int id, int threads, Where w = {}) { emu::barrier_arrive(id, threads, w); }
inline void nanosleep(unsigned, Where w = {}) { emu::poll_point("nanosleep", w); }
inline void trap(Where w = {}) { emu::fail("trap at line %d", w.line); }
inline uint64_t global_timer() { return emu::random_bits() >> 8; }
inline uint32_t sm_id() { return (uint32_t)emu::random_bits() % 132; }

// ---- clusters, mbarriers, dependent launch

inline uint32_t cluster_rank() { return emu::self->block->rank; }
inline uint32_t cluster_size() { return emu::self->block->grid->how.cluster; }
inline void cluster_arrive(Where w = {}) { emu::cluster_arrive(w); }
inline void cluster_wait(Where w = {}) { emu::cluster_wait(w); }
inline uint32_t cluster_addr(uint32_t a, uint32_t rank) { return (rank + 1) << 24 | (a & emu::kOffsetMask); }
template <class T> inline T& cluster_memory(uint32_t a, Where w) {
  if (a % sizeof(T)) emu::fail("line %d: cluster address %x is not aligned to %zu bytes", w.line, a, sizeof(T));
  return *(T*)emu::shared_pointer(emu::cluster_block(a, w), a, sizeof(T), w);
}
inline uint32_t ld_cluster1(uint32_t a, Where w = {}) { return cluster_memory<uint32_t>(a, w); }
inline uint4 ld_cluster4(uint32_t a, Where w = {}) { return cluster_memory<uint4>(a, w); }
inline void st_cluster4(uint32_t a, float4 v, Where w = {}) { cluster_memory<float4>(a, w) = v; }

inline void mbar_init(uint32_t bar, uint32_t arrivals, Where w = {}) { emu::mbar_init(bar, arrivals, w); }
inline void mbar_fence_init() {}
inline void mbar_inval(uint32_t bar, Where w = {}) { emu::mbar_inval(bar, w); }
inline void mbar_arrive(uint32_t bar, Where w = {}) { emu::own_shared(bar, 8, w), emu::mbar_arrive(bar, 0, w); }
inline void mbar_arrive_expect(uint32_t bar, uint32_t bytes, Where w = {}) { emu::own_shared(bar, 8, w), emu::mbar_arrive(bar, bytes, w); }
inline void mbar_arrive_cluster(uint32_t bar, Where w = {}) { emu::mbar_arrive(bar, 0, w); }
inline bool mbar_test(uint32_t bar, uint32_t parity, Where w = {}) { return emu::mbar_test(bar, parity, w); }
inline void mbar_wait(uint32_t bar, uint32_t parity, Where w = {}) { emu::mbar_wait(bar, parity, w); }
inline void cp_arrive_noinc(uint32_t bar, Where w = {}) { emu::copy_arrive(bar, w); }
inline void st_async1(uint32_t a, float x, uint32_t bar, Where w = {}) { emu::store_async(a, &x, 4, bar, w); }
inline void st_async2(uint32_t a, float x, float y, uint32_t bar, Where w = {}) { float2 v{x, y}; emu::store_async(a, &v, 8, bar, w); }
inline void st_async4(uint32_t a, float4 v, uint32_t bar, Where w = {}) { emu::store_async(a, &v, 16, bar, w); }
inline void bulk_load(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar, Where w = {}) { emu::bulk_load(dst, src, bytes, bar, w); }
inline void bulk_load(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar, uint64_t, Where w = {}) { emu::bulk_load(dst, src, bytes, bar, w); }
inline void bulk_prefetch(const void*, uint32_t) {}
inline void fence_async() { emu::maybe_switch(); }
inline void pdl_launch() { emu::pdl_launch(); }
inline void pdl_wait(Where w = {}) { emu::pdl_wait(w); }
template <int N> inline void registers_inc() {}
template <int N> inline void registers_dec() {}

// ---- numbers. ftz: what is below 2^-126 is 0, before and after.

inline float flush(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.f, x) : x; }
inline float ex2(float x) { return flush(exp2f(flush(x))); }
inline float lg2(float x) { return log2f(flush(x)); }
inline float rcp(float x) { return flush(1.f / flush(x)); }
inline float tanh_approx(float x) { return __uint_as_float((__float_as_uint(tanhf(x)) + 0x800u) & ~0xfffu); }  // as few digits as the device may give
inline float max3(float a, float b, float c) { return fmaxf(fmaxf(a, b), c); }

inline uint16_t to_bf16_bits(float f) {
  const uint32_t u = __float_as_uint(f);
  return f == f ? (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16) : 0x7fff;
}
inline float f16_value(uint16_t h) {
  const int e = h >> 10 & 31, m = h & 1023;
  const float a = e == 31 ? (m ? NAN : INFINITY_F) : e ? ldexpf((float)(1024 + m), e - 25) : ldexpf((float)m, -24);
  return h >> 15 ? -a : a;
}
inline float from_f16_bits(uint16_t h) {
  static const std::vector<float> table = [] {
    std::vector<float> t(65536);
    for (size_t i = 0; i < t.size(); i++) t[i] = f16_value((uint16_t)i);
    return t;
  }();
  return table[h];
}
// round_bits: f to nearest even at a unit of 2^exponent. Exact in double.
inline double round_at(float f, int exponent) { return ldexp(nearbyint(ldexp((double)f, -exponent)), exponent); }
inline uint16_t to_f16_bits(float f) {
  if (f != f) return 0x7fff;
  const uint16_t sign = __float_as_uint(f) >> 16 & 0x8000;
  const float a = fabsf(f);
  int e = 0;
  frexpf(a, &e);                                   // a in [2^(e-1), 2^e)
  const double r = round_at(a, e - 1 < -14 ? -24 : e - 11);
  if (r > 65504) return sign | 0x7c00;
  if (r < 0x1p-14) return sign | (uint16_t)(r * 0x1p24);
  frexp(r, &e);
  return sign | (uint16_t)(((e + 14) << 10) + (int)ldexp(r, 11 - e) - 1024);
}
inline uint8_t to_e4m3_bits(float f) {
  const uint8_t sign = __float_as_uint(f) >> 24 & 0x80;
  if (f != f) return 0x7f;
  const float a = fabsf(f);
  if (a > 448) return sign | 0x7e;
  int e = 0;
  frexpf(a, &e);
  const double r = round_at(a, e - 1 < -6 ? -9 : e - 4);
  if (r < 0x1p-6) return sign | (uint8_t)(r * 0x1p9);
  frexp(r, &e);
  return sign | (uint8_t)(((e + 6) << 3) + (int)ldexp(r, 4 - e) - 8);
}
inline uint16_t e4m3_to_f16_bits(uint8_t b) {
  const int e = b >> 3 & 15, m = b & 7;
  if ((b & 0x7f) == 0x7f) return 0x7fff;
  return to_f16_bits((b & 0x80 ? -1.f : 1.f) * (e ? ldexpf((float)(8 + m), e - 10) : ldexpf((float)m, -9))) | (b & 0x80) << 8;
}

inline uint32_t pack_bf16(float lo, float hi) { return to_bf16_bits(lo) | (uint32_t)to_bf16_bits(hi) << 16; }
inline uint32_t pack_f16(float lo, float hi) { return to_f16_bits(lo) | (uint32_t)to_f16_bits(hi) << 16; }
inline float2 unpack_bf16(uint32_t x) { return {__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u)}; }
inline float2 unpack_f16(uint32_t x) { return {from_f16_bits((uint16_t)x), from_f16_bits((uint16_t)(x >> 16))}; }
inline uint32_t mul_f16x2(uint32_t a, uint32_t b) {
  const float2 x = unpack_f16(a), y = unpack_f16(b);
  return pack_f16(x.x * y.x, x.y * y.y);           // 22 bits: exact in float, so rounded once
}
inline void e4m3x4_to_f16(uint32_t x, uint32_t& lo, uint32_t& hi) {
  static const std::vector<uint16_t> table = [] {
    std::vector<uint16_t> t(256);
    for (size_t i = 0; i < t.size(); i++) t[i] = e4m3_to_f16_bits((uint8_t)i);
    return t;
  }();
  lo = table[x & 255] | (uint32_t)table[x >> 8 & 255] << 16;
  hi = table[x >> 16 & 255] | (uint32_t)table[x >> 24] << 16;
}
inline uint16_t pack_e4m3(float lo, float hi) { return (uint16_t)(to_e4m3_bits(lo) | to_e4m3_bits(hi) << 8); }
inline float to_float(bf16 x) { return __uint_as_float((uint32_t)x.bits << 16); }
inline float to_float(f16 x) { return from_f16_bits(x.bits); }
inline float to_float(e4m3 x) { uint32_t lo, hi; e4m3x4_to_f16(x.bits, lo, hi); return from_f16_bits((uint16_t)lo); }
inline void from_float(bf16& y, float x) { y.bits = to_bf16_bits(x); }
inline void from_float(f16& y, float x) { y.bits = to_f16_bits(x); }
inline void from_float(e4m3& y, float x) { y.bits = to_e4m3_bits(x); }

// ---- matrices: all lanes bring their fragments, the last to come multiplies. Fragment layouts: gpu.cuh.

struct MmaIn { float c[4]; uint32_t a[4], b[2]; };
struct MmaOut { float c[4]; };
template <float2 (*unpack)(uint32_t)> inline void mma_all(emu::Exchange& e) {
  float a[16][16], b[16][8];
  for (int l = 0; l < 32; l++) {
    const int g = l >> 2, t = l & 3;
    const MmaIn& in = e.input<MmaIn>(l);
    for (int i = 0; i < 4; i++) {
      const float2 v = unpack(in.a[i]);
      float* to = &a[g + 8 * (i & 1)][2 * t + 8 * (i >> 1)];
      to[0] = v.x, to[1] = v.y;
    }
    for (int i = 0; i < 2; i++) {
      const float2 v = unpack(in.b[i]);
      b[2 * t + 8 * i][g] = v.x, b[2 * t + 8 * i + 1][g] = v.y;
    }
  }
  for (int row = 0; row < 16; row++) {
    float sum[8] = {};
    for (int k = 0; k < 16; k++)
      for (int j = 0; j < 8; j++) sum[j] += a[row][k] * b[k][j];
    for (int j = 0; j < 8; j++) {
      const int l = 4 * (row & 7) + (j >> 1), i = 2 * (row >> 3) + (j & 1);
      e.output<MmaOut>(l).c[i] = e.input<MmaIn>(l).c[i] + sum[j];
    }
  }
}
template <float2 (*unpack)(uint32_t)> inline void mma(float (&c)[4], const MmaIn& in, Where w) {
  const MmaOut out = emu::collective<MmaOut>("mma", ~0u, w, in, mma_all<unpack>, true);
  memcpy(c, out.c, sizeof c);
}
inline void mma_bf16(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1, Where w = {}) {
  mma<unpack_bf16>(c, {{c[0], c[1], c[2], c[3]}, {a0, a1, a2, a3}, {b0, b1}}, w);
}
inline void mma_f16(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1, Where w = {}) {
  mma<unpack_f16>(c, {{c[0], c[1], c[2], c[3]}, {a0, a1, a2, a3}, {b0, b1}}, w);
}

struct Rows { const char* row; };
struct Words4 { uint32_t r[4]; };
template <int N, bool TRANS> inline void ldmatrix_all(emu::Exchange& e) {
  for (int l = 0; l < 32; l++)
    for (int m = 0; m < N; m++) {
      auto element = [&](int row, int column) { uint16_t h; memcpy(&h, e.input<Rows>(8 * m + row).row + 2 * column, 2); return (uint32_t)h; };
      const int g = l >> 2, t = l & 3;
      e.output<Words4>(l).r[m] = TRANS ? element(2 * t, g) | element(2 * t + 1, g) << 16 : element(g, 2 * t) | element(g, 2 * t + 1) << 16;
    }
}
template <int N, bool TRANS> inline void ldmatrix(uint32_t (&r)[N], uint32_t a, Where w) {
  const bool used = emu::self->lane < 8 * N;       // the other lanes' addresses are ignored
  const Rows in = {used ? emu::own_shared(a, 16, w) : nullptr};
  const Words4 out = emu::collective<Words4>("ldmatrix", ~0u, w, in, ldmatrix_all<N, TRANS>, true);
  memcpy(r, out.r, sizeof r);
}
inline void ldmatrix4(uint32_t (&r)[4], uint32_t a, Where w = {}) { ldmatrix<4, false>(r, a, w); }
inline void ldmatrix4_trans(uint32_t (&r)[4], uint32_t a, Where w = {}) { ldmatrix<4, true>(r, a, w); }
inline void ldmatrix2(uint32_t (&r)[2], uint32_t a, Where w = {}) { ldmatrix<2, false>(r, a, w); }
inline void ldmatrix2_trans(uint32_t (&r)[2], uint32_t a, Where w = {}) { ldmatrix<2, true>(r, a, w); }
inline uint32_t transpose8x8(uint32_t a, Where w = {}) {
  return emu::collective<uint32_t>("transpose8x8", ~0u, w, a, [](emu::Exchange& e) {
    auto element = [&](int row, int column) { return e.input<uint32_t>(4 * row + (column >> 1)) >> 16 * (column & 1) & 0xffff; };
    for (int l = 0; l < 32; l++) e.output<uint32_t>(l) = element(2 * (l & 3), l >> 2) | element(2 * (l & 3) + 1, l >> 2) << 16;
  }, true);
}

}  // namespace fd
