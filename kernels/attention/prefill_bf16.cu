#define FD_PREFILL_TYPE fd::bf16
#define FD_PREFILL_NAME(d) fd_prefill_bf16_d##d
#include "prefill_entry.cuh"
