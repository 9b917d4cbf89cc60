// The kernels that benchmarks and device tests need besides those they are about.
#include "fill.cuh"
#include "read.cuh"
#include "reference.cuh"

#define ENTRY extern "C" GLOBAL void LAUNCH_BOUNDS(256)

ENTRY fd_fill_bf16(const GRID_CONSTANT FdFillParams p) { fd::bench::fill<fd::bf16>(p); }
ENTRY fd_fill_f16(const GRID_CONSTANT FdFillParams p) { fd::bench::fill<fd::f16>(p); }
ENTRY fd_fill_e4m3(const GRID_CONSTANT FdFillParams p) { fd::bench::fill<fd::e4m3>(p); }

ENTRY fd_read_u4(const GRID_CONSTANT FdReadParams p) { fd::bench::read<4>(p); }
ENTRY fd_read_u8(const GRID_CONSTANT FdReadParams p) { fd::bench::read<8>(p); }

ENTRY fd_reference_bf16(const GRID_CONSTANT FdReferenceParams p) { fd::bench::reference<fd::bf16, fd::bf16>(p); }
ENTRY fd_reference_f16(const GRID_CONSTANT FdReferenceParams p) { fd::bench::reference<fd::f16, fd::f16>(p); }
ENTRY fd_reference_e4m3(const GRID_CONSTANT FdReferenceParams p) { fd::bench::reference<fd::bf16, fd::e4m3>(p); }
