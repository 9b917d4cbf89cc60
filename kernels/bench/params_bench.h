// What the host passes to the kernels of benchmarks and device tests.
#ifndef FD_BENCH_PARAMS_H
#define FD_BENCH_PARAMS_H
#include "../attention/params.h"

// fd_fill_{bf16,f16,e4m3}: element i becomes scale times a number that only seed and first + i decide (fd::bench::unit), the
// same on host and device. Grid any, block 256.
typedef struct FdFillParams {
  uint64_t dst, count, first, seed;
  float scale;
  int32_t pad;
} FdFillParams;

// fd_read_u{4,8}: reads count times 16 bytes and keeps nothing: the floor under any kernel that has to read them. Grid any,
// block 256; U is the loads that a thread has under way.
typedef struct FdReadParams {
  uint64_t src, count;
  uint64_t sink;  // uint32 [grid]; never written in practice, so that the loads have to happen
} FdReadParams;

// fd_reference_{bf16,f16,e4m3}: attention by the definition, in double precision and three passes. Grid (query tokens of a
// sequence, q heads, sequences), block 256.
typedef struct FdReferenceParams {
  FdDecodeParams decode;  // what the kernel under test was given: inputs, addressing, options
  uint64_t scores;        // double [query token][q head][max_kv_len]
  uint64_t out;           // float [query token][q head][head_dim]
  uint64_t lse;           // float [query token][q head]
  int64_t max_kv_len;
} FdReferenceParams;
#endif
