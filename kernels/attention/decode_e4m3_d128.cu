#include "decode_entry.cuh"

FD_DECODE_e4m3_128(FD_DECODE_ENTRY)
#if FD_SM90
FD_DECODE_e4m3_128_SM90(FD_DECODE_ENTRY)
#endif
