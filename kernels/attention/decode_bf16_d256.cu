#include "decode_entry.cuh"

FD_DECODE_bf16_256(FD_DECODE_ENTRY)
#if FD_SM90
FD_DECODE_bf16_256_SM90(FD_DECODE_ENTRY)
#endif
