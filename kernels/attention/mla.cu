// Entry points of latent attention: sm_90a only.
#include "../prim/prim.cuh"
#if FD_SM90
#include "mla_finish.cuh"
extern "C" GLOBAL void LAUNCH_BOUNDS(fd::mla::kThreads, 1) fd_mla_bf16(const GRID_CONSTANT FdDecodeParams p) { fd::mla::kernel<fd::bf16>(p); }
extern "C" GLOBAL void LAUNCH_BOUNDS(fd::mla::kThreads, 1) fd_mla_f16(const GRID_CONSTANT FdDecodeParams p) { fd::mla::kernel<fd::f16>(p); }
#endif
