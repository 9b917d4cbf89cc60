#include "naive.cuh"

#define NAIVE(kv, q)                                                                                                                                              \
  extern "C" GLOBAL void LAUNCH_BOUNDS(128) fd_naive_scores_##kv(const GRID_CONSTANT FdNaiveParams p) { fd::naive_scores<fd::kv, fd::q>(p); } \
  extern "C" GLOBAL void LAUNCH_BOUNDS(256) fd_naive_values_##kv(const GRID_CONSTANT FdNaiveParams p) { fd::naive_values<fd::kv, fd::q>(p); }
NAIVE(bf16, bf16)
NAIVE(f16, f16)
NAIVE(e4m3, bf16)

extern "C" GLOBAL void LAUNCH_BOUNDS(256) fd_naive_softmax(const GRID_CONSTANT FdNaiveParams p) { fd::naive_softmax(p); }
