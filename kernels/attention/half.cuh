// The operations on pairs of 16-bit numbers by type, for kernels that are templates over bf16 and f16.
#pragma once
#include "../prim/prim.cuh"

namespace fd::half {

template <class T> struct is_bf16 { static constexpr bool value = false; };
template <> struct is_bf16<bf16> { static constexpr bool value = true; };

template <class T> DEV uint32_t pack(float lo, float hi) {
  if constexpr (is_bf16<T>::value) return pack_bf16(lo, hi); else return pack_f16(lo, hi);
}
template <class T> DEV float2 unpack(uint32_t x) {
  if constexpr (is_bf16<T>::value) return unpack_bf16(x); else return unpack_f16(x);
}
template <class T> DEV void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (is_bf16<T>::value) mma_bf16(c, a[0], a[1], a[2], a[3], b0, b1); else mma_f16(c, a[0], a[1], a[2], a[3], b0, b1);
}

}  // namespace fd::half
