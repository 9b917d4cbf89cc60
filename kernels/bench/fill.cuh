// fill: numbers that look random and that host and device agree on. Reference: numbers.go of the device tests.
// grid any, block 256. Bound: memory.
#pragma once
#include "../prim/prim.cuh"
#include "params_bench.h"

namespace fd::bench {

// mix is the finalizer of splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
DEV uint64_t mix(uint64_t z) {
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}

// unit is a sum of four uniform 16-bit numbers, shifted to mean 0 and scaled to deviation about 1: near enough to normal, and
// exact up to its one multiplication. Sum - 2*65535 has deviation 65536/sqrt(3).
DEV float unit(uint64_t seed, uint64_t i) {
  const uint64_t z = mix(seed + (i + 1) * 0x9e3779b97f4a7c15ull);
  const int sum = (int)(z & 0xffff) + (int)(z >> 16 & 0xffff) + (int)(z >> 32 & 0xffff) + (int)(z >> 48);
  return (float)(sum - 2 * 65535) * 2.6429e-5f;
}

template <class T> DEV void fill(const FdFillParams& p) {
  T* dst = (T*)p.dst;
  const uint64_t step = (uint64_t)gridDim.x * 256;
  for (uint64_t i = (uint64_t)blockIdx.x * 256 + threadIdx.x; i < p.count; i += step) {
    T x;
    from_float(x, unit(p.seed, p.first + i) * p.scale);
    dst[i] = x;
  }
}

}  // namespace fd::bench
