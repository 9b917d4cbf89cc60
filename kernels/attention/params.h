// What the host passes to the decode-attention kernels: plain C structs of fixed-width fields, device
// addresses as uint64_t. The host mirrors them field by field and compares sizes and offsets.
//
// Terms. A unit is a sequence, or a tile of its query rows. A row is one query token of one query head:
// row r of a sequence is token r / group and head r % group of the KV head's group, so rows of a KV head
// number q_len * group, and a kernel compiled for N rows (8 or 16) takes tile rt = rows rt*N ... rt*N+N-1.
// A tile of tokens is 16 tokens, aligned to the sequence's token 0. P is the number of CTAs (splits) of a
// (unit, KV head) pair. A state is (M, L, O) of attn.State with M in units of log2: M is only a reference,
// never compared between kernels.
//
// Symbols: fd_decode_<combine>_<kv>_d<D>_n<N>_w<W>[_opt]   D 64 128 256: compiled head dim (smaller ones are padded
// with zeros in shared memory), N 8 16: query rows, W 4 8: warps. kv: bf16, f16 (q and out of the same type),
// e4m3 (q and out bf16). _opt: with the code for options (FD_OPTIONS, softcap, sinks), which the others do without.
//   combine  grid (x, y, z)                              what x is
//   cluster  (P, kv_heads, batch << row_tiles_log2)      a cluster of P CTAs per pair; P a power of two, 2 ... 16
//   mailbox  (P, kv_heads, batch << row_tiles_log2)      cooperative launch; all CTAs co-resident; P >= 2
//   chunk    (P, kv_heads, batch << row_tiles_log2)      chunk_tiles tiles from token 0 (fixed:N); no limit on P
//   chunk    (items, row tiles, 1) with items != 0       one planned FdItem each; surplus CTAs return
//   any      as chunk, for pages whose size is not a power of two or is below 16 tokens
// With P = 1, or a chunk as long as the sequence, chunk is the no-split kernel. With FD_PARTIALS it leaves the
// merging of units of more than one split to fd_merge_states (Flash-Decoding in two launches).
#ifndef FD_ATTENTION_PARAMS_H
#define FD_ATTENTION_PARAMS_H
#include <stdint.h>

enum {
  FD_TILE_TOKENS = 16,
  // FdDecodeParams.flags
  FD_CAUSAL = 1,     // a row at position p attends none after p; read with FD_MASKED
  FD_EARLY_KV = 2,   // K and V of all but the last fresh_tokens tokens, kv_len, table and q_indptr were written
                     // before the launch's predecessor started: copy them before griddepcontrol.wait
  FD_PARTIALS = 4,   // chunk, any: write States and leave merging to another kernel
  // derived (fd_decode_flags), so that a kernel looks at one word at its start
  FD_MASKED = 8,     // masks other than the length: a q_len may exceed 1, or there is a window
  FD_RAGGED_Q = 16,  // q_indptr is set
  FD_CSR = 32,       // table_indptr is set
  FD_FLAT = 64,      // seq_base is set
  FD_ITEMS = 128,    // items is set
  // any of these, a softcap, sinks, or e4m3 with a head_dim that is not a multiple of 16: the kernel must be one with options
  FD_OPTIONS = FD_MASKED | FD_RAGGED_Q | FD_CSR,
};

typedef struct FdDecodeParams {
  // -- the first 128 bytes: what a CTA reads before its first copy is under way, unless a flag says otherwise
  uint64_t q;              // [token][q head][head_dim]
  uint64_t k, v;           // this layer's K and V at head 0, token 0, of page 0 (table) or of the sequence: added
                           // to seq_base[b] or to b * seq_stride
  uint64_t kv_len;         // int32 [batch]; 0 is valid
  uint64_t table;          // int32 page numbers; 0: pages of a sequence follow each other
  uint64_t page_stride;    // bytes from page to page
  uint64_t seq_stride;     // bytes from sequence to sequence (contiguous); 0 with a table or seq_base
  uint32_t token_stride;   // bytes from token to token within a page; a multiple of 16
  uint32_t head_stride;    // bytes from KV head to KV head within a page; a multiple of 16
  uint32_t q_token_stride; // bytes from token to token of q (heads are dense); a multiple of 16
  int32_t flags;           // fd_decode_flags
  int32_t page_shift;      // log2 of tokens per page, 4 ... 30; contiguous without pages: 30. any: unused
  int32_t table_stride;    // entries a sequence without table_indptr
  int32_t kv_heads;
  int32_t group;           // query heads per KV head
  int32_t q_len;           // query tokens per sequence if q_indptr is 0
  int32_t splits;          // P (gridDim.x)
  int32_t chunk_tiles;     // chunk, any: tiles per CTA
  int32_t head_dim;        // a multiple of 8, <= D
  int32_t row_tiles_log2;  // row tiles of a sequence, rounded up to a power of two
  int32_t slice_log2;      // cluster, mailbox: log2 of float4 elements a CTA reduces (fd_slice_log2)
  float scale_log2;        // softmax scale * log2(e)
  uint32_t group_rcp;      // fd_reciprocal(group)
  uint64_t k_scale;        // e4m3: float [kv_heads]; 0: 1
  // -- needed later, or rarely
  uint64_t v_scale;        // as k_scale
  uint64_t out;            // [token][q head][head_dim], type of q
  uint64_t lse;            // float [token][q head], natural log, sinks included; 0: not wanted
  uint64_t sinks;          // float [q heads], natural-log logits; 0: none
  uint64_t mailbox;        // mailbox: (unit, head) boxes of box_stride bytes, all bits one between launches.
                           // Launches that may overlap need different mailboxes; refill after a failed launch
  uint64_t box_stride;     // bytes (fd_box_bytes)
  uint64_t state_o;        // chunk, any: float [slot][head_dim]
  uint64_t state_ml;       // chunk, any: float2 [slot]; grid form: slot = ((z*kv_heads+y)*P+x)*state_rows + row of tile
  uint64_t counters;       // chunk, any without FD_PARTIALS: uint32 [unit*kv_heads or merge*row tiles]; 0 between launches
  uint64_t q_indptr;       // int32 [batch+1]: first query token of each sequence; 0: q_len each
  uint64_t table_indptr;   // int32 [batch+1]: first entry of each sequence in table; 0: rows of table_stride entries
  uint64_t seq_base;       // uint64 [batch]: flat mode, address of each sequence's range (k and v are offsets then)
  uint64_t items;          // FdItem []; 0: grid form
  uint64_t merges;         // FdMergeItem []; read with items
  uint64_t item_count;     // int32: items in use, <= gridDim.x; 0: all
  uint64_t merge_count;    // int32: merges in use, for fd_merge_states; 0: all
  float softcap;           // > 0: s becomes softcap * tanh(s/softcap)
  int32_t window_left;     // a row at p attends p-window_left ... p+window_right; < 0: unlimited; <= 2^30
  int32_t window_right;
  int32_t state_rows;      // rows of a state slot in the grid form
  int32_t fresh_tokens;    // FD_EARLY_KV: last tokens of each sequence that the predecessor may still be writing
  int32_t page_size;       // tokens; any, naive
  uint32_t out_token_stride; // bytes
  uint32_t pad;
} FdDecodeParams;

// FdItem and FdMergeItem are plan.Item and plan.Merge.
typedef struct FdItem {
  int32_t seq, kv_head, row, rows;  // query tokens row ... row+rows-1
  int32_t first, count;             // tokens
  int32_t state, merge;             // -1: none
} FdItem;

typedef struct FdMergeItem {
  int32_t seq, kv_head, row, rows;
  int32_t state, splits;
} FdMergeItem;

// fd_merge_states_{bf16,f16}_d<D>: the second launch of Flash-Decoding, 128 threads, no dynamic shared memory. Takes the
// FdDecodeParams of the first launch (FD_PARTIALS), finds the number of States by the same arithmetic and writes out and lse.
// Units of one split were written by the first launch and are skipped. A CTA merges FD_MERGE_F4 float4 elements of O:
//   grid form  (ceil(min(rows, N) * D/4 / FD_MERGE_F4), kv_heads, batch << row_tiles_log2)
//   items      (merges, ceil(most rows * group * D/4 / FD_MERGE_F4), 1)
enum { FD_MERGE_F4 = 32 };

// fd_merge_pairs_{bf16,f16,f32}: merges count (O, LSE) pairs of normalised outputs, in the order of their index, into out and
// out_lse, which may be one of the inputs. Grid (ceil(rows / 4)), 128 threads: one warp a row.
typedef struct FdMergePairsParams {
  uint64_t o;              // pair i, row r: o + i*o_pair_stride + r*o_row_stride (bytes)
  uint64_t lse;            // float, likewise: lse + i*lse_pair_stride + 4*r
  uint64_t out, out_lse;   // out_lse may be 0
  uint64_t o_pair_stride, lse_pair_stride;
  uint64_t o_row_stride, out_row_stride;
  int64_t rows;
  int32_t count, head_dim; // head_dim a multiple of 8
} FdMergePairsParams;

// Naive attention in three launches, the baseline: scores to memory, softmax of each row, weighted sum of V. Any page size and
// all options. No dynamic shared memory.
//   fd_naive_scores_{bf16,f16,e4m3}   grid (ceil(room / FD_NAIVE_TOKENS), q heads, q tokens), 128 threads
//   fd_naive_softmax                  grid (q heads, q tokens), 256 threads: scores become weights; writes lse
//   fd_naive_values_{bf16,f16,e4m3}   grid (q heads, q tokens), 256 threads
enum { FD_NAIVE_TOKENS = 64 };
typedef struct FdNaiveParams {
  FdDecodeParams d;        // page_size is read, page_shift is not; 0: no pages
  uint64_t scores;         // float [q token][q head][room]
  int64_t room;            // tokens: the longest kv_len or more
  int32_t batch, pad;
} FdNaiveParams;

// fd_plan: package plan's Plan on the device, from device lengths; one CTA of FD_PLAN_THREADS, no dynamic shared memory. The
// fields mirror plan.Shape, plan.Limits and plan.Policy; the result is the same, item for item. Scratch: fd_plan_scratch.
enum {
  FD_PLAN_THREADS = 512,
  // plan.Mode
  FD_PLAN_AUTO = 0, FD_PLAN_NONE = 1, FD_PLAN_FIXED = 2, FD_PLAN_SPLITS = 3,
  // FdPlanHeader.status
  FD_PLAN_OK = 0,
  FD_PLAN_BAD_LENGTH = 1,  // a length is negative or beyond 2^30: see bad_seq
  FD_PLAN_TOO_LARGE = 2,   // more units, items, merges or states than there is room for, or costs beyond int64
};
typedef struct FdPlanParams {
  uint64_t kv_len, q_indptr;           // int32 [batch], int32 [batch+1]; q_indptr 0: q_len each
  uint64_t items, merges, header;      // FdItem [item_capacity], FdMergeItem [merge_capacity], FdPlanHeader
  uint64_t scratch;
  int32_t batch, q_len, window_left, causal;
  int32_t kv_heads, group, head_dim, value_dim;  // value_dim: as head_dim if they are equal, never 0
  int32_t page_size, token_bytes, mode, n;
  int32_t unit_capacity, item_capacity, merge_capacity, state_capacity;
  int64_t workers;                     // SMs * ctas_per_sm
  int64_t ctas_per_sm, max_splits, max_waves, min_tokens, q_tile, jitter_pct, item_ns, merge_ns, merge_fan_in;
  int64_t worker_bytes_per_us, shared_bytes_per_us, macs_per_us, merge_bytes_per_us;
} FdPlanParams;
typedef struct FdPlanHeader {          // with a status other than FD_PLAN_OK all counts are 0
  int32_t item_count, merge_count, states, status;
  int32_t bad_seq, splits, units, pad;
} FdPlanHeader;
typedef struct FdPlanUnit {            // scratch
  int32_t seq, row, rows, first, end, first_page, pages, splits, chunk, max_splits;
  int32_t item, merge, state, pad;     // first of each
  int64_t token_ps, state_ns;
} FdPlanUnit;

// ---- launch arithmetic, shared by host and kernels

#if defined(__CUDACC__)
#define FD_HD __host__ __device__ __forceinline__ constexpr
#elif defined(__cplusplus)
#define FD_HD static inline constexpr
#else
#define FD_HD static inline
#endif

// float4 elements of O per row of a kernel compiled for head dim D.
FD_HD int fd_row_f4(int D) { return D / 4; }

FD_HD int fd_ceil_log2(int x) { int l = 0; while ((1 << l) < x) l++; return l; }

// The flags of p: FD_CAUSAL, FD_EARLY_KV and FD_PARTIALS as asked for, and what follows from the other fields.
FD_HD int fd_decode_flags(int asked, int q_len, int window_left, int window_right, uint64_t q_indptr, uint64_t table_indptr, uint64_t seq_base, uint64_t items) {
  int masked = q_len > 1 || q_indptr != 0 || window_left >= 0 || window_right >= 0;
  return asked | (masked ? FD_MASKED : 0) | (q_indptr ? FD_RAGGED_Q : 0) | (table_indptr ? FD_CSR : 0) | (seq_base ? FD_FLAT : 0) | (items ? FD_ITEMS : 0);
}

// Division by x: a / x == (uint64_t)(2 * a) * fd_reciprocal(x) >> 32 for a * x < 2^31.
FD_HD uint32_t fd_reciprocal(int x) { return (uint32_t)(((1u << 31) + (uint32_t)x - 1) / (uint32_t)x); }

// Slices of a pair's output: CTA x of a cluster or a mailbox reduces float4 elements x<<l ... Slices must not outnumber the
// CTAs, nor a slice the threads (32*W): if fd_slice_log2(...) > log2(32*W), use chunk.
FD_HD int fd_slice_log2(int rows, int D, int P) {
  int n = rows * fd_row_f4(D), l = 0;
  while ((n + (1 << l) - 1) >> l > P) l++;
  return l;
}

// Bytes of one (unit, head) box: O as float4 [slice][split][1<<slice_log2], then (M, L) as float2 [segment][split]. A segment
// is the part of a slice that lies in one row. rows: most rows of a row tile (<= N).
FD_HD uint64_t fd_box_bytes(int rows, int D, int P, int slice_log2) {
  int n = rows * fd_row_f4(D), slices = (n + (1 << slice_log2) - 1) >> slice_log2;
  int seg_log2 = slice_log2 < fd_ceil_log2(fd_row_f4(D)) ? slice_log2 : fd_ceil_log2(fd_row_f4(D));
  uint64_t o = ((uint64_t)(slices * P) << slice_log2) * 16, ml = (uint64_t)(((slices << slice_log2) >> seg_log2) * P) * 8;
  return (o + ml + 127) & ~(uint64_t)127;
}

// Ring stages of 16 K rows and 16 V rows that a warp cycles through.
FD_HD int fd_decode_stages(int row_bytes, int W) {
  return row_bytes >= 512 ? (W == 8 ? 1 : 3) : W == 8 && row_bytes == 256 ? 2 : 3;
}

// Dynamic shared memory of fd_decode_*: ring, (M, L) of each warp, received slices, barrier and flag. row_bytes is D times the
// bytes of a KV element.
FD_HD uint32_t fd_decode_smem(int row_bytes, int D, int N, int W, int stages) {
  int box = N * fd_row_f4(D) > 32 * W ? N * fd_row_f4(D) : 32 * W;
  return (uint32_t)(W * stages * 32 * row_bytes + W * N * 8 + box * 16 + 256 * 8 + 16);
}
FD_HD uint64_t fd_plan_scratch(int unit_capacity, int item_capacity) {
  return (uint64_t)unit_capacity * sizeof(FdPlanUnit) + (uint64_t)item_capacity * (sizeof(FdItem) + 1) + 16;
}
#undef FD_HD
#endif
