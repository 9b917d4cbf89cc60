// The decode kernels that are compiled, as lists for the preprocessor: X(combine, kv, D, N, W, opt), see params.h for the names.
// The .cu files make entry points of them; hosts and tests read names and launch facts from the same lists. A list ends in
// _SM90 if its kernels need that architecture.
//
// opt: _opt for a kernel with options, else empty. W 4 serves CTAs that get few tiles (half the partials to merge), W 8 the others. N 16 serves groups above 8 and several
// query tokens. Rows of 512 bytes leave room in shared memory for 4 warps only.
#ifndef FD_ATTENTION_VARIANTS_H
#define FD_ATTENTION_VARIANTS_H

#define FD_DECODE_NARROW_SM90(X, kv, D) \
  X(cluster, kv, D, 8, 4, ) X(cluster, kv, D, 8, 8, ) X(cluster, kv, D, 16, 8, ) X(cluster, kv, D, 8, 8, _opt) X(cluster, kv, D, 16, 8, _opt)
#define FD_DECODE_NARROW(X, kv, D)                                                                                \
  X(mailbox, kv, D, 8, 4, ) X(mailbox, kv, D, 8, 8, ) X(mailbox, kv, D, 16, 8, ) X(mailbox, kv, D, 8, 8, _opt)    \
  X(mailbox, kv, D, 16, 8, _opt) X(chunk, kv, D, 8, 8, ) X(chunk, kv, D, 16, 8, ) X(chunk, kv, D, 8, 8, _opt)     \
  X(chunk, kv, D, 16, 8, _opt) X(any, kv, D, 8, 8, _opt)
#define FD_DECODE_WIDE_SM90(X, kv, D, W) X(cluster, kv, D, 8, W, ) X(cluster, kv, D, 8, W, _opt)
#define FD_DECODE_WIDE(X, kv, D, W) \
  X(mailbox, kv, D, 8, W, ) X(mailbox, kv, D, 8, W, _opt) X(chunk, kv, D, 8, W, ) X(chunk, kv, D, 8, W, _opt) X(any, kv, D, 8, W, _opt)

#define FD_DECODE_bf16_64_SM90(X) FD_DECODE_NARROW_SM90(X, bf16, 64)
#define FD_DECODE_bf16_64(X) FD_DECODE_NARROW(X, bf16, 64)
#define FD_DECODE_bf16_128_SM90(X) FD_DECODE_NARROW_SM90(X, bf16, 128)
#define FD_DECODE_bf16_128(X) FD_DECODE_NARROW(X, bf16, 128)
#define FD_DECODE_bf16_256_SM90(X) FD_DECODE_WIDE_SM90(X, bf16, 256, 4)
#define FD_DECODE_bf16_256(X) FD_DECODE_WIDE(X, bf16, 256, 4)
#define FD_DECODE_f16_64_SM90(X) FD_DECODE_NARROW_SM90(X, f16, 64)
#define FD_DECODE_f16_64(X) FD_DECODE_NARROW(X, f16, 64)
#define FD_DECODE_f16_128_SM90(X) FD_DECODE_NARROW_SM90(X, f16, 128)
#define FD_DECODE_f16_128(X) FD_DECODE_NARROW(X, f16, 128)
#define FD_DECODE_f16_256_SM90(X) FD_DECODE_WIDE_SM90(X, f16, 256, 4)
#define FD_DECODE_f16_256(X) FD_DECODE_WIDE(X, f16, 256, 4)
#define FD_DECODE_e4m3_64_SM90(X) FD_DECODE_NARROW_SM90(X, e4m3, 64)
#define FD_DECODE_e4m3_64(X) FD_DECODE_NARROW(X, e4m3, 64)
#define FD_DECODE_e4m3_128_SM90(X) FD_DECODE_NARROW_SM90(X, e4m3, 128)
#define FD_DECODE_e4m3_128(X) FD_DECODE_NARROW(X, e4m3, 128)
#define FD_DECODE_e4m3_256_SM90(X) FD_DECODE_WIDE_SM90(X, e4m3, 256, 8)
#define FD_DECODE_e4m3_256(X) FD_DECODE_WIDE(X, e4m3, 256, 8)

// F(kv, D): one translation unit each.
#define FD_DECODE_UNITS(F) F(bf16, 64) F(bf16, 128) F(bf16, 256) F(f16, 64) F(f16, 128) F(f16, 256) F(e4m3, 64) F(e4m3, 128) F(e4m3, 256)
#endif
