#define FD_PREFILL_TYPE fd::f16
#define FD_PREFILL_NAME(d) fd_prefill_f16_d##d
#include "prefill_entry.cuh"
