// Entry points of the decode kernels: FD_DECODE_ENTRY is the X of the lists in variants.h.
#pragma once
#include "decode.cuh"
#include "variants.h"

#define FD_IS_cluster fd::CLUSTER, fd::FAST
#define FD_IS_mailbox fd::MAILBOX, fd::FAST
#define FD_IS_chunk fd::CHUNK, fd::FAST
#define FD_IS_any fd::CHUNK, fd::ANY
#define FD_TYPES_bf16 fd::bf16, fd::bf16
#define FD_TYPES_f16 fd::f16, fd::f16
#define FD_TYPES_e4m3 fd::e4m3, fd::bf16

#define FD_HAS false
#define FD_HAS_opt true

#define FD_DECODE_NAME(combine, kv, D, N, W, opt) fd_decode_##combine##_##kv##_d##D##_n##N##_w##W##opt
#define FD_DECODE_ENTRY(combine, kv, D, N, W, opt)                                                                              \
  extern "C" GLOBAL void LAUNCH_BOUNDS(32 * W, 1) FD_DECODE_NAME(combine, kv, D, N, W, opt)(const GRID_CONSTANT FdDecodeParams p) { \
    fd::decode<fd::Shape<FD_TYPES_##kv, D, N, W, FD_HAS##opt>, FD_IS_##combine>(p);                                              \
  }
