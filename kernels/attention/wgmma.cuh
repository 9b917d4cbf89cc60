// Warpgroup matrix multiplication: D[64][n] (+)= A[64][16] B[16][n], both operands in shared memory, by the four warps of a
// warpgroup. D as the C of mma.sync: warp w of the group, lane 4*g + t holds of row 16*w + g columns 8*j + 2*t, +1 in d[4*j], d[4*j+1],
// and of row 16*w + g + 8 the same columns in d[4*j+2], d[4*j+3]. PTX ISA, "Asynchronous warpgroup level matrix instructions".
//
// Operands lie in panels of 64 elements (128 bytes) a row, 8 rows 1024 bytes, start aligned to 1024, chunk c of row r at chunk
// c ^ (r & 7): what TMA calls a 128-byte swizzle.
//   rows_desc     (address + offset) the panel's rows are rows of A or columns of B, its columns the 16 of the sum: A = Q or P, B = K^T
//   columns_desc  the panel's rows are the 16 of the sum, its columns columns of B, and columns 64, 128, ... are in the next panels: B = V
// An accumulator belongs to the tensor cores from wgmma to the wgmma_wait that covers it.
#pragma once
#include "half.cuh"
#ifdef FD_CPU
#include <array>
#endif

namespace fd {

#ifdef FD_GPU
#if FD_SM90

// Address, leading and stride offsets in units of 16 bytes; 128-byte swizzle. The upper word is a constant, and an address has 14 bits
// of which shared memory cannot carry out, so a later part of the panel costs one 32-bit addition.
DEV uint64_t wgmma_desc(uint32_t low) { return (uint64_t)(64 | 1 << 30) << 32 | low; }
DEV uint64_t rows_desc(uint32_t a, uint32_t offset) { return wgmma_desc((a >> 4 | 1 << 16) + (offset >> 4)); }
DEV uint64_t columns_desc(uint32_t a, uint32_t offset, uint32_t panel_bytes) { return wgmma_desc((a >> 4 | panel_bytes >> 4 << 16) + (offset >> 4)); }
DEV void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEV void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> DEV void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }

// pin: these registers have their values here. Without it the compiler may set accumulators between a fence and the wgmma, and
// then makes it safe by waiting after every single wgmma.
template <int N> DEV void wgmma_pin(float (&d)[N]) { UNROLL for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i])::"memory"); }

#define FD_F4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define FD_F16(d, i) FD_F4(d, i), FD_F4(d, i + 4), FD_F4(d, i + 8), FD_F4(d, i + 12)
#define FD_F32(d, i) FD_F16(d, i), FD_F16(d, i + 16)
// Operands of the instruction text: the accumulators of 64, 96, 128, 256 columns.
#define FD_D64 \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define FD_D96 \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31" "," \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define FD_D128 \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31" "," \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define FD_D256 \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31" "," \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63" "," \
  "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95" "," \
  "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
// SS: A and B by descriptors. RS: A in registers, as the A of mma.sync, of the warp's 16 rows.
#define FD_SS(n, i0, i1, i2, type, trans, ...) \
  asm volatile("{.reg .pred p; setp.ne.b32 p,%" i2 ",0; wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" FD_D##n "},%" i0 ",%" i1 ",p,1,1,0," trans ";}" \
               : __VA_ARGS__ : "l"(a), "l"(b), "r"((int)add))
#define FD_RS(n, i0, i1, i2, i3, i4, type, ...) \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" FD_D##n "},{%" i0 ",%" i1 ",%" i2 ",%" i3 "},%" i4 ",1,1,1,1;" \
               : __VA_ARGS__ : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))

// D[64][2*R] (+)= A B, B by rows_desc. add: false starts from 0.
template <class T, int R> DEV void wgmma_rows(float (&d)[R], uint64_t a, uint64_t b, bool add) {
  static_assert(R == 32 || R == 64);
  if constexpr (R == 32) {
    if constexpr (half::is_bf16<T>::value) FD_SS(64, "32", "33", "34", "bf16", "0", FD_F32(d, 0)); else FD_SS(64, "32", "33", "34", "f16", "0", FD_F32(d, 0));
  } else {
    if constexpr (half::is_bf16<T>::value) FD_SS(128, "64", "65", "66", "bf16", "0", FD_F32(d, 0), FD_F32(d, 32)); else FD_SS(128, "64", "65", "66", "f16", "0", FD_F32(d, 0), FD_F32(d, 32));
  }
}
// D[64][256] (+)= A B, B by columns_desc.
template <class T> DEV void wgmma_columns(float (&d)[128], uint64_t a, uint64_t b, bool add) {
#define FD_ALL FD_F32(d, 0), FD_F32(d, 32), FD_F32(d, 64), FD_F32(d, 96)
  if constexpr (half::is_bf16<T>::value) FD_SS(256, "128", "129", "130", "bf16", "1", FD_ALL); else FD_SS(256, "128", "129", "130", "f16", "1", FD_ALL);
}
// D[64][2*R] += A B, A in registers, B by columns_desc.
template <class T, int R> DEV void wgmma_columns(float (&d)[R], const uint32_t (&a)[4], uint64_t b) {
  static_assert(R == 32 || R == 48 || R == 64 || R == 128);
  if constexpr (R == 32) {
    if constexpr (half::is_bf16<T>::value) FD_RS(64, "32", "33", "34", "35", "36", "bf16", FD_F32(d, 0)); else FD_RS(64, "32", "33", "34", "35", "36", "f16", FD_F32(d, 0));
  } else if constexpr (R == 48) {
    if constexpr (half::is_bf16<T>::value) FD_RS(96, "48", "49", "50", "51", "52", "bf16", FD_F32(d, 0), FD_F16(d, 32)); else FD_RS(96, "48", "49", "50", "51", "52", "f16", FD_F32(d, 0), FD_F16(d, 32));
  } else if constexpr (R == 64) {
    if constexpr (half::is_bf16<T>::value) FD_RS(128, "64", "65", "66", "67", "68", "bf16", FD_F32(d, 0), FD_F32(d, 32)); else FD_RS(128, "64", "65", "66", "67", "68", "f16", FD_F32(d, 0), FD_F32(d, 32));
  } else {
    if constexpr (half::is_bf16<T>::value) FD_RS(256, "128", "129", "130", "131", "132", "bf16", FD_ALL); else FD_RS(256, "128", "129", "130", "131", "132", "f16", FD_ALL);
  }
}
#undef FD_ALL
#undef FD_SS
#undef FD_RS
#undef FD_F4
#undef FD_F16
#undef FD_F32
#undef FD_D64
#undef FD_D96
#undef FD_D128
#undef FD_D256

#endif  // FD_SM90
#else
#include "wgmma_cpu.h"
#endif

}  // namespace fd
