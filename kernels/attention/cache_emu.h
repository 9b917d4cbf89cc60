// A cache for tests: one layer's K and V of a batch in one of the three address modes, all of it NaN until written, with
// pages in random order and absurd numbers in the unused part of the table.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>
#include "../emu/test.h"
#include "params_prefill.h"

namespace cache {

enum Mode { kContiguous, kTable, kFlat };
inline const char* const kModeNames[] = {"contiguous", "table", "flat"};

struct Shape { int heads, k_dim, v_dim, page_size, element_bytes; };

// Room for room tokens of each sequence. Inside a page: [K or V][head][token][dim]; the two may have different dims, then both
// have rows of the longer one. shared_rows: V is the front of K's rows (latent attention).
class Cache {
 public:
  Cache(emu::Test& t, Mode mode, const Shape& shape, const std::vector<int>& room)
      : s(shape), mode_(mode), batch_((int)room.size()), pages_(layout(room)), bytes(pool_bytes(mode, room), "cache"),
        table(table_entries_ + 3, "table"), indptr(room.size() + 1, "table_indptr"), base(room.size(), "seq_base") {
    std::vector<int> order(table_entries_);
    for (size_t i = 0; i < order.size(); i++) order[i] = (int)i;
    for (size_t i = order.size(); i > 1; i--) std::swap(order[i - 1], order[t.below((unsigned)i)]);
    table.fill(1 << 30);
    indptr[0] = 0;
    for (int b = 0; b < batch_; b++) {
      indptr[b + 1] = indptr[b] + pages_[b];
      base[b] = mode == kFlat ? bytes.address() + (uint64_t)indptr[b] * page_bytes() : 0;
    }
    for (size_t i = 0; i < order.size(); i++) table[i] = order[i];
    table.read_only(); indptr.read_only(); base.read_only();
  }

  FdKvRows rows() const {
    FdKvRows r{};
    if (mode_ == kTable) { r.table = table.address(); r.table_indptr = indptr.address(); }
    if (mode_ == kFlat) r.seq_base = base.address();
    r.page_stride = page_bytes();
    r.seq_stride = mode_ == kContiguous ? longest_ * page_bytes() : 0;
    r.token_stride = (uint32_t)row_bytes();
    r.head_stride = (uint32_t)(s.page_size * row_bytes());
    r.page_size = s.page_size;
    return r;
  }
  uint64_t k() const { return mode_ == kFlat ? 0 : bytes.address(); }
  uint64_t v() const { return k() + (uint64_t)s.heads * s.page_size * row_bytes(); }

  // The address of a row.
  void* row(bool value, int seq, int head, int token) const {
    const int i = token / s.page_size;
    const int64_t page = mode_ == kContiguous ? seq * longest_ + i : mode_ == kFlat ? indptr[seq] + i : table[indptr[seq] + i];
    return bytes.data() + page * page_bytes() + ((int64_t)((value ? s.heads : 0) + head) * s.page_size + token % s.page_size) * row_bytes();
  }
  int64_t row_bytes() const { return (int64_t)std::max(s.k_dim, s.v_dim) * s.element_bytes; }
  int64_t page_bytes() const { return 2 * s.heads * s.page_size * row_bytes(); }

  const Shape s;

 private:
  std::vector<int> layout(const std::vector<int>& room) {
    std::vector<int> pages;
    for (int n : room) {
      pages.push_back((n + s.page_size - 1) / s.page_size);
      table_entries_ += pages.back();
      longest_ = std::max<int64_t>(longest_, pages.back());
    }
    return pages;
  }
  size_t pool_bytes(Mode mode, const std::vector<int>& room) const {
    return std::max<size_t>(16, (size_t)((mode == kContiguous ? longest_ * (int64_t)room.size() : table_entries_) * page_bytes()));
  }

  const Mode mode_;
  const int batch_;
  int64_t table_entries_ = 0, longest_ = 0;
  const std::vector<int> pages_;

 public:
  emu::Buffer<char> bytes;
  emu::Buffer<int32_t> table, indptr;
  emu::Buffer<uint64_t> base;
};

}  // namespace cache
