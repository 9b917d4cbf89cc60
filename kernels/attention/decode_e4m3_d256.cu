#include "decode_entry.cuh"

FD_DECODE_e4m3_256(FD_DECODE_ENTRY)
#if FD_SM90
FD_DECODE_e4m3_256_SM90(FD_DECODE_ENTRY)
#endif
