// What the host passes to the kernels of a step's other phases: appending to the cache, copying pages, prefill and latent
// attention. Same conventions as params.h: plain C structs of fixed-width fields, device addresses as uint64_t.
#ifndef FD_ATTENTION_PARAMS_PREFILL_H
#define FD_ATTENTION_PARAMS_PREFILL_H
#include <stdint.h>
#include "params.h"

// Where the rows of a cache are. Byte offset of token j of sequence b, KV head h, from the address of a tensor:
//   seq + page(j / page_size) * page_stride + (j % page_size) * token_stride + h * head_stride
// table != 0: seq is 0 and page(i) the i-th entry of the sequence's part of the table. Else page(i) is i and seq is seq_base[b],
// or b * seq_stride if that is 0. A cache without pages has page_size 1 << 30.
typedef struct FdKvRows {
  uint64_t table;          // int32 page numbers
  uint64_t table_indptr;   // int32 [batch+1]: first entry of each sequence in table; 0: rows of table_stride entries
  uint64_t seq_base;       // uint64 [batch]
  uint64_t page_stride, seq_stride;
  uint32_t token_stride, head_stride;  // multiples of 16 (8 and up for FP8)
  int32_t page_size, table_stride;
} FdKvRows;

enum {
  FD_ROPE_INTERLEAVED = 1,  // FdAppendParams.flags: pair i is elements (2i, 2i+1), else (i, i + rope_pairs)
};

// fd_append_<src>_<kv>[_any]: ops.RopeAppend. Rotates q, and writes k (rotated) and v of every row to token positions[r] of its
// sequence. src bf16 or f16: q, k, v; kv: src itself or e4m3. Grid (rows, y), 128 threads, y free: it only spreads a row over y
// blocks. The kernel without _any wants rope_pairs, both head dims and all strides to be multiples of 8 elements.
// The latent cache of MLA takes two tensors of one head too: k = the rotated 64 elements, v = the other 512.
typedef struct FdAppendParams {
  uint64_t q, q_out;            // [token][q head][k_head_dim]; q_out may be q; q 0: none
  uint64_t k, v;                // [token][kv head][k_head_dim or v_head_dim]
  uint64_t k_cache, v_cache;    // the tensors at token 0, head 0 of page 0 or of the sequence
  uint64_t positions;           // int32 [rows]; < 0: padding of a captured graph, the row is skipped
  uint64_t q_indptr;            // int32 [batch+1]: first row of each sequence; 0: q_len each
  uint64_t inv_freq;            // float [rope_pairs]
  uint64_t k_scale, v_scale;    // e4m3: float [kv_heads], cache = value / scale; 0: 1
  FdKvRows rows;
  uint32_t q_token_stride, q_head_stride, q_out_token_stride, q_out_head_stride;  // bytes
  uint32_t k_token_stride, v_token_stride;                                        // bytes; heads are dense
  int32_t q_heads, kv_heads;
  int32_t k_head_dim, v_head_dim;
  int32_t rope_pairs;           // 0: nothing turns. Elements past 2 * rope_pairs pass through
  int32_t batch, q_len, flags;
  float rope_scale;             // of cosine and sine
  int32_t pad;
} FdAppendParams;

// fd_copy_pages: page src[i] of the pool over page dst[i]. No dst may be another pair's src or dst. Grid (x, pairs), 256
// threads, x free.
typedef struct FdCopyPagesParams {
  uint64_t from, to;            // pools; may be the same
  uint64_t src, dst;            // int32 [pairs]
  uint64_t page_stride;         // bytes from page to page
  uint64_t page_bytes;          // bytes to copy; a multiple of 4
} FdCopyPagesParams;


// fd_prefill_{bf16,f16}_d<D> (64 96 128 256; smaller head dims are padded in shared memory) takes FdDecodeParams: query rows of many
// tokens, a page of any size, group up to the rows of a tile. Grid (ceil(longest q_len / (fd_prefill_rows(D) / group)), kv_heads, batch), or
// (items, row tiles) with items != 0, where an item has any number of rows and decode items may be among them; splits of a merge
// are added up by the CTA that finishes last, in their order, unless FD_PARTIALS leaves that to another kernel. counters: uint32
// [merges * row tiles], 0 between launches. fd_prefill_wg_{bf16,f16}_d<D> (sm_90a) is the same by wgmma, block FD_PREFILL_WG_THREADS. Not read: page_shift, splits, chunk_tiles, mailbox, k_scale, v_scale, FD_EARLY_KV.
//
// fd_mla_{bf16,f16} (sm_90a) takes FdDecodeParams with kv_heads 1, group = query heads, k = the latent cache of 576 elements a token
// (v is not read), q [token][head][576], out [token][head][512]. Grid (splits, ceil(longest q_len * heads / 64), batch), block 384.
// Split x of gridDim.x takes an equal share of the 64-token tiles, or chunk_tiles of them from token 0. gridDim.x <= 160.
// Workspace, as more than one split needs it: state_o 65536 bytes and state_ml 1024 bytes for each CTA, counters uint32 for each (y, z),
// 0 between launches. FD_PARTIALS is not read.
enum {
  FD_RESIDENT = 1 << 16,    // mla: all CTAs of the grid run at once, so that all of them merge, each a share. Else the last one merges
  FD_MLA_SHARED_BYTES = 3 * 9 * 8192,
  FD_MLA_THREADS = 384,
  FD_PREFILL_WG_THREADS = 384,
};

static inline int fd_prefill_warps(int D) { return D == 256 ? 8 : 4; }   // of 32 threads
static inline int fd_prefill_rows(int D) { (void)D; return 128; }        // packed query rows of a CTA
static inline int fd_prefill_shared_bytes(int D) { return 128 * D * 2 + 4 * (D == 256 ? 32 : 64) * D * 2; }
static inline int fd_prefill_wg_shared_bytes(int D) { return (D + 63) / 64 * 128 * (128 + 4 * (D == 256 ? 64 : 128)); }

#endif
