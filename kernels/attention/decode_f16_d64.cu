#include "decode_entry.cuh"

FD_DECODE_f16_64(FD_DECODE_ENTRY)
#if FD_SM90
FD_DECODE_f16_64_SM90(FD_DECODE_ENTRY)
#endif
