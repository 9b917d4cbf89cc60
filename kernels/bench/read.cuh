// read: the least that a kernel does which has to see so many bytes. What it takes is the floor that attention is measured
// against. Each CTA has one contiguous piece; U loads of 16 bytes a thread are under way. Grid any, block 256.
#pragma once
#include "../prim/prim.cuh"
#include "params_bench.h"

namespace fd::bench {

template <int U> DEV void read(const FdReadParams& p) {
  const uint64_t piece = (p.count + gridDim.x - 1) / gridDim.x, first = piece * blockIdx.x;
  const uint64_t end = first + piece < p.count ? first + piece : p.count;
  uint32_t acc = 0;
  for (uint64_t i = first + threadIdx.x; i < end; i += 256 * U) {
    uint4 v[U];
    UNROLL for (int u = 0; u < U; u++) {
      v[u] = make_uint4(0, 0, 0, 0);
      if (i + u * 256 < end) v[u] = ldg128_once((const char*)p.src + (i + u * 256) * 16);
    }
    UNROLL for (int u = 0; u < U; u++) acc ^= v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
  }
  if (acc == 0x12345678) st32((char*)p.sink + blockIdx.x * 4, acc);  // unlikely, but the compiler can't know
}

}  // namespace fd::bench
