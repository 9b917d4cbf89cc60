// Entry points of prefill for FD_PREFILL_TYPE, one for each compiled head dim.
#include "prefill.cuh"

#define FD_PREFILL(d, m_tiles, warps, n, blocks)                                                                       \
  extern "C" GLOBAL void LAUNCH_BOUNDS(warps * 32, blocks) FD_PREFILL_NAME(d)(const GRID_CONSTANT FdDecodeParams p) { \
    fd::prefill::kernel<fd::prefill::Shape<FD_PREFILL_TYPE, d, m_tiles, warps, n>>(p);                                 \
  }
FD_PREFILL(64, 2, 4, 64, 2)
FD_PREFILL(96, 2, 4, 64, 2)
FD_PREFILL(128, 2, 4, 64, 2)
FD_PREFILL(256, 1, 8, 32, 1)
