#include "merge.cuh"

// The type of K and V matters only in that there may be a scale of V.
#define STATES(q, D)                                                                                            \
  extern "C" GLOBAL void LAUNCH_BOUNDS(128) fd_merge_states_##q##_d##D(const GRID_CONSTANT FdDecodeParams p) { \
    fd::merge_states_kernel<fd::Shape<fd::e4m3, fd::q, D, 8, 8, true>>(p);                                     \
  }
STATES(bf16, 64)
STATES(bf16, 128)
STATES(bf16, 256)
STATES(f16, 64)
STATES(f16, 128)
STATES(f16, 256)

extern "C" GLOBAL void LAUNCH_BOUNDS(128) fd_merge_pairs_bf16(const GRID_CONSTANT FdMergePairsParams p) { fd::merge_pairs<fd::bf16>(p); }
extern "C" GLOBAL void LAUNCH_BOUNDS(128) fd_merge_pairs_f16(const GRID_CONSTANT FdMergePairsParams p) { fd::merge_pairs<fd::f16>(p); }
extern "C" GLOBAL void LAUNCH_BOUNDS(128) fd_merge_pairs_f32(const GRID_CONSTANT FdMergePairsParams p) { fd::merge_pairs<float>(p); }
