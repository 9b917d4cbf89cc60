#include "decode_entry.cuh"

FD_DECODE_bf16_64(FD_DECODE_ENTRY)
#if FD_SM90
FD_DECODE_bf16_64_SM90(FD_DECODE_ENTRY)
#endif
