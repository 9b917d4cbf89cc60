// Entry points of prefill by warpgroups: sm_90a only.
#include "../prim/prim.cuh"
#if FD_SM90
#include "prefill_wg.cuh"
#define FD_PREFILL_WG(name, T, d, n) \
  extern "C" GLOBAL void LAUNCH_BOUNDS(384, 1) name(const GRID_CONSTANT FdDecodeParams p) { fd::prefill::group_kernel<fd::prefill::GroupShape<T, d, n>>(p); }
FD_PREFILL_WG(fd_prefill_wg_bf16_d64, fd::bf16, 64, 128)
FD_PREFILL_WG(fd_prefill_wg_bf16_d96, fd::bf16, 96, 128)
FD_PREFILL_WG(fd_prefill_wg_bf16_d128, fd::bf16, 128, 128)
FD_PREFILL_WG(fd_prefill_wg_bf16_d256, fd::bf16, 256, 64)
FD_PREFILL_WG(fd_prefill_wg_f16_d64, fd::f16, 64, 128)
FD_PREFILL_WG(fd_prefill_wg_f16_d96, fd::f16, 96, 128)
FD_PREFILL_WG(fd_prefill_wg_f16_d128, fd::f16, 128, 128)
FD_PREFILL_WG(fd_prefill_wg_f16_d256, fd::f16, 256, 64)
#endif
