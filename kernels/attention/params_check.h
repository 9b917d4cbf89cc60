// What the host passes to fd_check, which looks at lengths and tables before attention uses them.
#ifndef FD_ATTENTION_PARAMS_CHECK_H
#define FD_ATTENTION_PARAMS_CHECK_H
#include <stdint.h>

enum {
  // FdCheckParams.fault
  FD_FAULT_KV_LEN = 1,  // outside 0 ... max_kv_len
  FD_FAULT_Q_INDPTR,    // descends, leaves 0 ... q_rows, or more than q_len tokens
  FD_FAULT_INDPTR,      // descends, leaves 0 ... entries, or fewer entries than the length needs
  FD_FAULT_PAGE,        // a page number outside 0 ... pages-1
};

// Grid (seqs), block 128. Outputs are copies with which nothing out of bounds is read or written: a bad sequence has
// length 0, offsets are clamped.
typedef struct FdCheckParams {
  uint64_t kv_len;            // int32 [seqs]
  uint64_t q_indptr;          // int32 [seqs+1], or 0
  uint64_t table;             // int32 page numbers, or 0
  uint64_t table_indptr;      // int32 [seqs+1], or 0: rows of table_stride entries
  uint64_t kv_len_out;        // int32 [seqs]
  uint64_t q_indptr_out;      // int32 [seqs+1]; unused without q_indptr
  uint64_t table_indptr_out;  // int32 [seqs+1]; unused without table_indptr
  uint64_t fault;             // uint32 [2], memory that the host reads: what, sequence. The last one found stays
  int32_t seqs, max_kv_len;
  int32_t q_len, q_rows;      // most of a sequence, of all
  int32_t table_stride, entries;
  int32_t page_size, pages;
} FdCheckParams;
#endif
