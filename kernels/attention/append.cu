// Entry points of append and copy.
#include "append.cuh"
#include "copy.cuh"

#define FD_APPEND(name, E, S, D) \
  extern "C" GLOBAL void LAUNCH_BOUNDS(fd::append::kThreads) name(const GRID_CONSTANT FdAppendParams p) { fd::append::kernel<E, S, D>(p); }

FD_APPEND(fd_append_bf16_bf16, 8, fd::bf16, fd::bf16)
FD_APPEND(fd_append_f16_f16, 8, fd::f16, fd::f16)
FD_APPEND(fd_append_bf16_e4m3, 8, fd::bf16, fd::e4m3)
FD_APPEND(fd_append_f16_e4m3, 8, fd::f16, fd::e4m3)
FD_APPEND(fd_append_bf16_bf16_any, 1, fd::bf16, fd::bf16)
FD_APPEND(fd_append_f16_f16_any, 1, fd::f16, fd::f16)
FD_APPEND(fd_append_bf16_e4m3_any, 1, fd::bf16, fd::e4m3)
FD_APPEND(fd_append_f16_e4m3_any, 1, fd::f16, fd::e4m3)

extern "C" GLOBAL void LAUNCH_BOUNDS(fd::copy::kThreads) fd_copy_pages(const GRID_CONSTANT FdCopyPagesParams p) { fd::copy::kernel(p); }
