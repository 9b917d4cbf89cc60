// The primitives in PTX that every device from sm_80 up has. prim.cuh says how they are used, cpu.h is the other body,
// prim_test.cu confirms each on a device. PTX ISA: https://docs.nvidia.com/cuda/parallel-thread-execution/
#pragma once

#define DEV __device__ __forceinline__
#define GLOBAL __global__
#define GRID_CONSTANT __grid_constant__
#define LAUNCH_BOUNDS(...) __launch_bounds__(__VA_ARGS__)
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")
#define INFINITY_F __int_as_float(0x7f800000)
#define SHARED_BYTES(name) extern __shared__ __align__(1024) char name[]            // all of the launch's dynamic shared memory
#define SHARED_ARRAY(type, name, count) __shared__ __align__(16) type name[count]  // static; one for each place in the source
#define MUTANT(name) false                                                         // a planted bug: see docs/kernels.md

namespace fd {

// ---- shared memory: 32-bit addresses. lds has no "memory" clobber: what a thread stored through a plain pointer is read by
// lds only after a barrier, which others' stores need anyway.

DEV uint32_t smem_u32(const void* p) { return (uint32_t)__cvta_generic_to_shared(p); }
DEV uint32_t lds32(uint32_t a) { uint32_t v; asm volatile("ld.shared.u32 %0,[%1];" : "=r"(v) : "r"(a)); return v; }
DEV uint2 lds64(uint32_t a) { uint2 v; asm volatile("ld.shared.v2.u32 {%0,%1},[%2];" : "=r"(v.x), "=r"(v.y) : "r"(a)); return v; }
DEV uint4 lds128(uint32_t a) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(a));
  return v;
}
DEV void sts32(uint32_t a, uint32_t v) { asm volatile("st.shared.u32 [%0],%1;" ::"r"(a), "r"(v) : "memory"); }
DEV void sts64(uint32_t a, uint2 v) { asm volatile("st.shared.v2.u32 [%0],{%1,%2};" ::"r"(a), "r"(v.x), "r"(v.y) : "memory"); }
DEV void sts128(uint32_t a, uint4 v) { asm volatile("st.shared.v4.u32 [%0],{%1,%2,%3,%4};" ::"r"(a), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory"); }

// ---- global memory. ldg: data that no one writes during this kernel (ld.global.nc); volatile, so that a load stays where it
// was written: the compiler would sink the first loads of a kernel behind its copies. once: also leaves L1 alone.

DEV uint32_t ldg32(const void* p) { uint32_t v; asm volatile("ld.global.nc.u32 %0,[%1];" : "=r"(v) : "l"(p)); return v; }
DEV uint2 ldg64(const void* p) { uint2 v; asm volatile("ld.global.nc.v2.u32 {%0,%1},[%2];" : "=r"(v.x), "=r"(v.y) : "l"(p)); return v; }
DEV uint4 ldg128(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
DEV uint4 ldg128_once(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
// ld: like a plain load, but stays in its place.
DEV uint32_t ld32(const void* p) { uint32_t v; asm volatile("ld.global.u32 %0,[%1];" : "=r"(v) : "l"(p) : "memory"); return v; }
DEV uint2 ld64(const void* p) { uint2 v; asm volatile("ld.global.v2.u32 {%0,%1},[%2];" : "=r"(v.x), "=r"(v.y) : "l"(p) : "memory"); return v; }
DEV uint4 ld128(const void* p) {
  uint4 v;
  asm volatile("ld.global.v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
  return v;
}
DEV void st16(void* p, uint16_t v) { asm volatile("st.global.u16 [%0],%1;" ::"l"(p), "h"(v) : "memory"); }
DEV void st32(void* p, uint32_t v) { asm volatile("st.global.u32 [%0],%1;" ::"l"(p), "r"(v) : "memory"); }
DEV void st64(void* p, uint2 v) { asm volatile("st.global.v2.u32 [%0],{%1,%2};" ::"l"(p), "r"(v.x), "r"(v.y) : "memory"); }
DEV void st128(void* p, uint4 v) { asm volatile("st.global.v4.u32 [%0],{%1,%2,%3,%4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory"); }

// relaxed: other threads of the device may write at the same time; each 4-byte word arrives whole.
DEV uint32_t ld_relaxed1(const void* p) { uint32_t v; asm volatile("ld.relaxed.gpu.global.u32 %0,[%1];" : "=r"(v) : "l"(p) : "memory"); return v; }
DEV uint2 ld_relaxed2(const void* p) { uint2 v; asm volatile("ld.relaxed.gpu.global.v2.u32 {%0,%1},[%2];" : "=r"(v.x), "=r"(v.y) : "l"(p) : "memory"); return v; }
DEV uint4 ld_relaxed4(const void* p) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
  return v;
}
DEV void st_relaxed1(void* p, uint32_t v) { asm volatile("st.relaxed.gpu.global.u32 [%0],%1;" ::"l"(p), "r"(v) : "memory"); }
DEV void st_relaxed2(void* p, float x, float y) { asm volatile("st.relaxed.gpu.global.v2.f32 [%0],{%1,%2};" ::"l"(p), "f"(x), "f"(y) : "memory"); }
DEV void st_relaxed4(void* p, float4 v) { asm volatile("st.relaxed.gpu.global.v4.f32 [%0],{%1,%2,%3,%4};" ::"l"(p), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w) : "memory"); }
DEV uint32_t ld_acquire(const void* p) { uint32_t v; asm volatile("ld.acquire.gpu.global.u32 %0,[%1];" : "=r"(v) : "l"(p) : "memory"); return v; }
DEV void st_release(void* p, uint32_t v) { asm volatile("st.release.gpu.global.u32 [%0],%1;" ::"l"(p), "r"(v) : "memory"); }
DEV uint32_t ld_volatile(const void* p) { uint32_t v; asm volatile("ld.volatile.global.u32 %0,[%1];" : "=r"(v) : "l"(p) : "memory"); return v; }
DEV void st_volatile(void* p, uint32_t v) { asm volatile("st.volatile.global.u32 [%0],%1;" ::"l"(p), "r"(v) : "memory"); }

// ---- atomics on global memory. inc: old >= wrap ? 0 : old + 1 is stored, old returned: a counter that resets itself.

DEV uint32_t atom_inc_acq_rel(uint32_t* p, uint32_t wrap) { uint32_t v; asm volatile("atom.acq_rel.gpu.global.inc.u32 %0,[%1],%2;" : "=r"(v) : "l"(p), "r"(wrap) : "memory"); return v; }
DEV uint32_t atom_add_acq_rel(uint32_t* p, uint32_t x) { uint32_t v; asm volatile("atom.acq_rel.gpu.global.add.u32 %0,[%1],%2;" : "=r"(v) : "l"(p), "r"(x) : "memory"); return v; }
DEV uint32_t atom_add(uint32_t* p, uint32_t x) { uint32_t v; asm volatile("atom.relaxed.gpu.global.add.u32 %0,[%1],%2;" : "=r"(v) : "l"(p), "r"(x) : "memory"); return v; }
DEV uint32_t atom_exch(uint32_t* p, uint32_t x) { uint32_t v; asm volatile("atom.relaxed.gpu.global.exch.b32 %0,[%1],%2;" : "=r"(v) : "l"(p), "r"(x) : "memory"); return v; }
DEV uint32_t atom_cas(uint32_t* p, uint32_t expect, uint32_t x) {
  uint32_t v;
  asm volatile("atom.acq_rel.gpu.global.cas.b32 %0,[%1],%2,%3;" : "=r"(v) : "l"(p), "r"(expect), "r"(x) : "memory");
  return v;
}
DEV void red_add(uint32_t* p, uint32_t x) { asm volatile("red.relaxed.gpu.global.add.u32 [%0],%1;" ::"l"(p), "r"(x) : "memory"); }
DEV void red_add(float* p, float x) { asm volatile("red.relaxed.gpu.global.add.f32 [%0],%1;" ::"l"(p), "f"(x) : "memory"); }
DEV void red_or(uint32_t* p, uint32_t x) { asm volatile("red.relaxed.gpu.global.or.b32 [%0],%1;" ::"l"(p), "r"(x) : "memory"); }
DEV void red_max(uint32_t* p, uint32_t x) { asm volatile("red.relaxed.gpu.global.max.u32 [%0],%1;" ::"l"(p), "r"(x) : "memory"); }
DEV void fence_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// ---- cp.async: global to shared without registers. 'bytes' of the 16 (8, 4) come from src, the rest is zero; 0 reads nothing.
// A trap with a policy: where dst is the base of shared memory plus something of the lane and no more, ptxas 13.0.88 encodes an instruction
// that the device calls illegal (nvdisasm shows an odd register, desc[UR1]; internal/pack refuses such an image). Addresses that a loop carries
// are safe, as in the ring of the decode kernels. The policy has to be the same in all lanes.

DEV uint64_t policy_evict_first() { uint64_t p; asm volatile("createpolicy.fractional.L2::evict_first.b64 %0,1.0;" : "=l"(p)); return p; }
DEV uint64_t policy_evict_last() { uint64_t p; asm volatile("createpolicy.fractional.L2::evict_last.b64 %0,1.0;" : "=l"(p)); return p; }
DEV void cp_async16(uint32_t dst, const void* src, int bytes) { asm volatile("cp.async.cg.shared.global [%0],[%1],16,%2;" ::"r"(dst), "l"(src), "r"(bytes) : "memory"); }
DEV void cp_async16(uint32_t dst, const void* src, int bytes, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0],[%1],16,%2,%3;" ::"r"(dst), "l"(src), "r"(bytes), "l"(policy) : "memory");
}
DEV void cp_async8(uint32_t dst, const void* src, int bytes) { asm volatile("cp.async.ca.shared.global [%0],[%1],8,%2;" ::"r"(dst), "l"(src), "r"(bytes) : "memory"); }
DEV void cp_async4(uint32_t dst, const void* src, int bytes) { asm volatile("cp.async.ca.shared.global [%0],[%1],4,%2;" ::"r"(dst), "l"(src), "r"(bytes) : "memory"); }
DEV void cp_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// cp_wait: of this thread's groups all but the newest N have landed. Other threads see them after a barrier.
template <int N> DEV void cp_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory"); }
DEV void cp_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }
DEV void prefetch_l2(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }

// ---- barriers. Named barriers 1..15 for a part of the block (0 is __syncthreads'); threads is a multiple of 32.

DEV void bar_sync(int id, int threads) { asm volatile("bar.sync %0,%1;" ::"r"(id), "r"(threads) : "memory"); }
DEV void bar_arrive(int id, int threads) { asm volatile("bar.arrive %0,%1;" ::"r"(id), "r"(threads) : "memory"); }
DEV void nanosleep(unsigned ns) { asm volatile("nanosleep.u32 %0;" ::"r"(ns)); }
DEV void trap() { asm volatile("trap;"); }
DEV uint64_t global_timer() { uint64_t t; asm volatile("mov.u64 %0,%globaltimer;" : "=l"(t)); return t; }
DEV uint32_t sm_id() { uint32_t s; asm volatile("mov.u32 %0,%smid;" : "=r"(s)); return s; }

// ---- matrices of 16-bit elements. Fragments as in the PTX ISA, "Matrix fragments for mma.m16n8k16": lane = 4*g + t holds of
//   A [16][16]: a0 = rows g, columns 2t..2t+1; a1 = row g+8; a2 = columns 2t+8..; a3 = both
//   B [16][8]:  b0 = rows 2t..2t+1, column g; b1 = rows 2t+8..2t+9
//   C [16][8]:  c0,c1 = row g, columns 2t, 2t+1; c2,c3 = row g+8

DEV void mma_bf16(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
DEV void mma_f16(float (&c)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// ldmatrix: matrix i of 8x8 elements has its row r at the 16-byte aligned address that lane 8*i + r passes; lane 4*g + t
// receives row g, columns 2t..2t+1 (trans: rows 2t..2t+1, column g) of each.
DEV void ldmatrix4(uint32_t (&r)[4], uint32_t a) { asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a) : "memory"); }
DEV void ldmatrix4_trans(uint32_t (&r)[4], uint32_t a) { asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(a) : "memory"); }
DEV void ldmatrix2(uint32_t (&r)[2], uint32_t a) { asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1},[%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(a) : "memory"); }
DEV void ldmatrix2_trans(uint32_t (&r)[2], uint32_t a) { asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1},[%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(a) : "memory"); }
DEV uint32_t transpose8x8(uint32_t a) { uint32_t d; asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0,%1;" : "=r"(d) : "r"(a)); return d; }

// ---- numbers

DEV float ex2(float x) { float y; asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x)); return y; }           // 2^x; 0 at -inf
DEV float lg2(float x) { float y; asm("lg2.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x)); return y; }           // log2 x
DEV float rcp(float x) { float y; asm("rcp.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x)); return y; }           // 1 ulp
DEV float tanh_approx(float x) { float y; asm("tanh.approx.f32 %0,%1;" : "=f"(y) : "f"(x)); return y; }      // error up to 2^-11
DEV float max3(float a, float b, float c) { return fmaxf(fmaxf(a, b), c); }

// pack: lo into bits 0..15, to nearest even. unpack: exact.
DEV uint32_t pack_bf16(float lo, float hi) { uint32_t d; asm("cvt.rn.bf16x2.f32 %0,%1,%2;" : "=r"(d) : "f"(hi), "f"(lo)); return d; }
DEV uint32_t pack_f16(float lo, float hi) { uint32_t d; asm("cvt.rn.f16x2.f32 %0,%1,%2;" : "=r"(d) : "f"(hi), "f"(lo)); return d; }
DEV float2 unpack_bf16(uint32_t x) { return make_float2(__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u)); }
DEV float2 unpack_f16(uint32_t x) {
  float2 f;
  asm("{.reg .b16 a,b; mov.b32 {a,b},%2; cvt.f32.f16 %0,a; cvt.f32.f16 %1,b;}" : "=f"(f.x), "=f"(f.y) : "r"(x));
  return f;
}
DEV uint32_t mul_f16x2(uint32_t a, uint32_t b) { uint32_t d; asm("mul.rn.f16x2 %0,%1,%2;" : "=r"(d) : "r"(a), "r"(b)); return d; }

// e4m3x4_to_f16: four bytes to two pairs of f16, exact; byte 0 to the low half of lo. pack_e4m3: two floats to two bytes, to
// nearest even, beyond 448 to 448, NaN to NaN.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
DEV void e4m3x4_to_f16(uint32_t x, uint32_t& lo, uint32_t& hi) {
  asm("{.reg .b16 a,b; mov.b32 {a,b},%2; cvt.rn.f16x2.e4m3x2 %0,a; cvt.rn.f16x2.e4m3x2 %1,b;}" : "=r"(lo), "=r"(hi) : "r"(x));
}
DEV uint16_t pack_e4m3(float lo, float hi) { uint16_t d; asm("cvt.rn.satfinite.e4m3x2.f32 %0,%1,%2;" : "=h"(d) : "f"(hi), "f"(lo)); return d; }
#else
// Without the instructions. s.eeee.mmm, shifted into f16's s.eeeee.mmmmmmmmmm, is the number / 2^8 (biases 7 and 15),
// subnormals included; only NaN would come out as 480.
DEV uint32_t e4m3x2_to_f16_soft(uint32_t x) {  // bytes 1 and 3
  const uint32_t magnitude = mul_f16x2((x & 0x7f007f00u) >> 1, 0x5c005c00u), sign = x & 0x80008000u;
  const uint32_t nan = ((x & 0x7f00u) == 0x7f00u ? 0x7fffu : 0) | ((x & 0x7f000000u) == 0x7f000000u ? 0x7fff0000u : 0);
  return magnitude | sign | nan;
}
DEV void e4m3x4_to_f16(uint32_t x, uint32_t& lo, uint32_t& hi) {
  lo = e4m3x2_to_f16_soft(__byte_perm(x, 0, 0x1404));
  hi = e4m3x2_to_f16_soft(__byte_perm(x, 0, 0x3424));
}
DEV uint32_t to_e4m3_soft(float f) {
  const uint32_t u = __float_as_uint(f), sign = u >> 24 & 0x80;
  float a = fabsf(f);
  if (!(a == a)) return sign | 0x7f;
  if (a >= 448.f) return sign | 0x7e;
  if (a < 0.015625f) return sign | (uint32_t)__float2int_rn(a * 512.f);  // subnormal: steps of 2^-9
  uint32_t b = __float_as_uint(a);
  b += 0x7ffffu + (b >> 20 & 1);                                         // to nearest even at 3 bits of mantissa
  b = (b >> 20) - (120u << 3);                                           // exponent bias 127 -> 7
  return sign | min(b, 0x7eu);
}
DEV uint16_t pack_e4m3(float lo, float hi) { return (uint16_t)(to_e4m3_soft(lo) | to_e4m3_soft(hi) << 8); }
#endif

DEV float to_float(bf16 x) { return __uint_as_float((uint32_t)x.bits << 16); }
DEV float to_float(f16 x) { float f; asm("cvt.f32.f16 %0,%1;" : "=f"(f) : "h"(x.bits)); return f; }
DEV float to_float(e4m3 x) { uint32_t lo, hi; e4m3x4_to_f16(x.bits, lo, hi); return unpack_f16(lo).x; }
DEV void from_float(bf16& y, float x) { asm("cvt.rn.bf16.f32 %0,%1;" : "=h"(y.bits) : "f"(x)); }
DEV void from_float(f16& y, float x) { asm("cvt.rn.f16.f32 %0,%1;" : "=h"(y.bits) : "f"(x)); }
DEV void from_float(e4m3& y, float x) { y.bits = (uint8_t)pack_e4m3(x, 0.f); }

}  // namespace fd
