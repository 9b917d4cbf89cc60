#include "check.cuh"

extern "C" GLOBAL void LAUNCH_BOUNDS(128) fd_check(const GRID_CONSTANT FdCheckParams p) { fd::check::kernel(p); }
