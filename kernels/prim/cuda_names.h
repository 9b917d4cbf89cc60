// CUDA's own names for the emulator: vectors, thread coordinates, warp operations, bit casts. Only what kernels use; add here what
// prim.cuh lists.
#pragma once
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <type_traits>
#include "../emu/sched.h"

struct alignas(8) int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct uint3 { unsigned x, y, z; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(4) ushort2 { unsigned short x, y; };
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

#define threadIdx (::emu::self->index)
#define blockIdx (::emu::self->block->index)
#define blockDim (::emu::self->block->grid->how.block)
#define gridDim (::emu::self->block->grid->how.grid)

// CUDA's min and max take mixed integers.
template <class A, class B> constexpr std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, std::common_type_t<A, B>> min(A a, B b) {
  using C = std::common_type_t<A, B>;
  return (C)a < (C)b ? (C)a : (C)b;
}
template <class A, class B> constexpr std::enable_if_t<std::is_arithmetic_v<A> && std::is_arithmetic_v<B>, std::common_type_t<A, B>> max(A a, B b) {
  using C = std::common_type_t<A, B>;
  return (C)a > (C)b ? (C)a : (C)b;
}

namespace emu {
template <class To, class From> inline To bits_as(From x) {
  static_assert(sizeof(To) == sizeof(From));
  To y;
  memcpy(&y, &x, sizeof y);
  return y;
}
}  // namespace emu

inline uint32_t __float_as_uint(float x) { return emu::bits_as<uint32_t>(x); }
inline int __float_as_int(float x) { return emu::bits_as<int>(x); }
inline float __uint_as_float(uint32_t x) { return emu::bits_as<float>(x); }
inline float __int_as_float(int x) { return emu::bits_as<float>(x); }
inline int __float2int_rn(float x) { return (int)nearbyintf(x); }
inline int __float2int_rd(float x) { return (int)floorf(x); }
inline int __float2int_rz(float x) { return (int)x; }
inline float __int2float_rn(int x) { return (float)x; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float rsqrtf(float x) { return 1.f / sqrtf(x); }
inline void sincospif(float x, float* s, float* c) { *s = (float)sin(M_PI * x), *c = (float)cos(M_PI * x); }

inline int __popc(uint32_t x) { return __builtin_popcount(x); }
inline int __popcll(uint64_t x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline uint32_t __umulhi(uint32_t a, uint32_t b) { return (uint32_t)((uint64_t)a * b >> 32); }
inline uint64_t __umul64hi(uint64_t a, uint64_t b) { return (uint64_t)((unsigned __int128)a * b >> 64); }
inline uint32_t __funnelshift_l(uint32_t lo, uint32_t hi, uint32_t n) { return (uint32_t)((((uint64_t)hi << 32 | lo) << (n & 31)) >> 32); }
inline uint32_t __funnelshift_r(uint32_t lo, uint32_t hi, uint32_t n) { return (uint32_t)(((uint64_t)hi << 32 | lo) >> (n & 31)); }
inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t both = (uint64_t)b << 32 | a;
  uint32_t r = 0;
  for (int i = 0; i < 4; i++) {
    const uint32_t s = selector >> 4 * i;
    uint32_t byte = (uint32_t)(both >> 8 * (s & 7)) & 0xff;
    if (s & 8) byte = byte & 0x80 ? 0xff : 0;       // replicate the sign
    r |= byte << 8 * i;
  }
  return r;
}

template <class T> inline T __ldg(const T* p, emu::Where w = {}) {
  emu::check_global(p, sizeof(T), alignof(T), w);
  return *p;
}

// ---- the block and the warp

inline void __syncthreads(emu::Where w = {}) { emu::barrier_sync(0, 0, w); }
inline void __threadfence() { emu::maybe_switch(); }
inline void __threadfence_block() { emu::maybe_switch(); }
inline void __trap(emu::Where w = {}) { emu::fail("trap at line %d", w.line); }
inline void __syncwarp(uint32_t mask = ~0u, emu::Where w = {}) {
  emu::collective<char>("__syncwarp", mask, w, (char)0, [](emu::Exchange&) {});
  emu::maybe_switch();
}

namespace emu {
// The lanes of an exchange that take part; f(lane).
template <class F> inline void for_lanes(Exchange& e, F f) {
  for (uint32_t m = e.arrived; m; m &= m - 1) f(__builtin_ctz(m));
}
struct Vote { int predicate; };
template <class T> struct Shuffle { T value; int from, in_range; };
template <class T> inline T shuffle(uint32_t mask, T value, int from, bool in_range, Where w) {
  return collective<T>("shuffle", mask, w, Shuffle<T>{value, from, in_range}, [](Exchange& e) {
    for_lanes(e, [&](int l) {
      const auto& s = e.input<Shuffle<T>>(l);
      const int from = s.in_range ? s.from : l;
      if (e.arrived >> from & 1) e.output<T>(l) = e.input<Shuffle<T>>(from).value;
      else memset(&e.output<T>(l), 0xff, sizeof(T));     // a lane that takes no part: undefined on the device
    });
  });
}
inline int lane() { return self->lane; }
}  // namespace emu

inline int __any_sync(uint32_t mask, int p, emu::Where w = {}) {
  return emu::collective<int>("__any_sync", mask, w, emu::Vote{p}, [](emu::Exchange& e) {
    int any = 0;
    emu::for_lanes(e, [&](int l) { any |= e.input<emu::Vote>(l).predicate != 0; });
    emu::for_lanes(e, [&](int l) { e.output<int>(l) = any; });
  });
}
inline int __all_sync(uint32_t mask, int p, emu::Where w = {}) {
  return emu::collective<int>("__all_sync", mask, w, emu::Vote{p}, [](emu::Exchange& e) {
    int all = 1;
    emu::for_lanes(e, [&](int l) { all &= e.input<emu::Vote>(l).predicate != 0; });
    emu::for_lanes(e, [&](int l) { e.output<int>(l) = all; });
  });
}
inline uint32_t __ballot_sync(uint32_t mask, int p, emu::Where w = {}) {
  return emu::collective<uint32_t>("__ballot_sync", mask, w, emu::Vote{p}, [](emu::Exchange& e) {
    uint32_t bits = 0;
    emu::for_lanes(e, [&](int l) { bits |= (uint32_t)(e.input<emu::Vote>(l).predicate != 0) << l; });
    emu::for_lanes(e, [&](int l) { e.output<uint32_t>(l) = bits; });
  });
}
template <class T> inline T __shfl_sync(uint32_t mask, T v, int from, int width = 32, emu::Where w = {}) {
  return emu::shuffle(mask, v, (emu::lane() & ~(width - 1)) | (from & (width - 1)), true, w);
}
template <class T> inline T __shfl_xor_sync(uint32_t mask, T v, int x, int width = 32, emu::Where w = {}) {
  const int from = emu::lane() ^ x;
  return emu::shuffle(mask, v, from, from < (emu::lane() & ~(width - 1)) + width, w);
}
template <class T> inline T __shfl_up_sync(uint32_t mask, T v, unsigned d, int width = 32, emu::Where w = {}) {
  const int from = emu::lane() - (int)d;
  return emu::shuffle(mask, v, from, from >= (emu::lane() & ~(width - 1)), w);
}
template <class T> inline T __shfl_down_sync(uint32_t mask, T v, unsigned d, int width = 32, emu::Where w = {}) {
  const int from = emu::lane() + (int)d;
  return emu::shuffle(mask, v, from, from < (emu::lane() & ~(width - 1)) + width, w);
}
