// Entry points fd_prim_<name> of prim_test.cuh.
#include "prim_test.cuh"

#define ENTRY(name, blocks, threads, cluster, shared_bytes, words, how) \
  extern "C" GLOBAL void LAUNCH_BOUNDS(threads) fd_prim_##name(const GRID_CONSTANT FdPrimParams p) { fd::prim::name(p.in, p.out); }

FD_PRIM(ENTRY)
#if FD_SM90
FD_PRIM_SM90(ENTRY)
#endif
