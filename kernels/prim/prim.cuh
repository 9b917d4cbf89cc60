// The primitives that every kernel is written over. One name, two bodies:
//
//   gpu.cuh, hopper.cuh   raw PTX, what nvcc compiles
//   cpu.h                 C++ on fibers (kernels/emu), what g++ compiles: the same kernel body, testable without a GPU
//
// A kernel includes this file and nothing of CUDA's. It may use these of CUDA's own names, which cpu.h defines too:
// threadIdx, blockIdx, blockDim, gridDim, __syncthreads, __syncwarp, __shfl_*_sync, __any_sync, __all_sync, __ballot_sync,
// __byte_perm, __ffs, __popc, __clz, __ldg, __float_as_uint (and its kin), fmaxf, fminf, fmaf, min, max,
// uint2, uint4, float2, float4, int2, int4 and their make_ functions. Everything else is in namespace fd.
//
// Three rules keep the two bodies one text:
//   1. shared memory is asked for with SHARED_BYTES or SHARED_ARRAY, never with __shared__;
//   2. what another thread may change while we look is read with ld_relaxed or ld_acquire (they are yield points of the
//      emulator; a loop over a plain load would spin for ever there, and may be hoisted on the GPU);
//   3. entry points are extern "C" GLOBAL functions, templates live in a named namespace (byte-identical builds).
#pragma once
#include <stdint.h>

#ifdef __CUDACC__
#define FD_GPU 1
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define FD_SM90 1  // clusters, mbarrier transactions, st.async, bulk copies, dependent launch
#else
#define FD_SM90 0  // kernels that need them are not in the image at all
#endif
#else
#define FD_CPU 1
#define FD_SM90 1
#endif

namespace fd {
// Storage of a number; arithmetic is float. See to_float, from_float and the pack functions.
struct bf16 { uint16_t bits; };
struct f16 { uint16_t bits; };
struct e4m3 { uint8_t bits; };  // OCP FP8: 4 exponent bits, bias 7, no infinities, 0x7f and 0xff are NaN, largest 448
}  // namespace fd

#ifdef FD_GPU
#include "gpu.cuh"
#if FD_SM90
#include "hopper.cuh"
#endif
#else
#include "cpu.h"
#endif
