#include "plan.cuh"

extern "C" GLOBAL void LAUNCH_BOUNDS(FD_PLAN_THREADS, 1) fd_plan(const GRID_CONSTANT FdPlanParams p) { fd::plan_kernel(p); }
