// copy: whole pages, all layers, within a pool or between two. Reference: ops.KV.CopyPage.
// grid (x, pairs), block 256; four 16-byte loads of a thread are under way at a time. Bound: memory.
#pragma once
#include "rows.cuh"

namespace fd::copy {

constexpr int kThreads = 256, kBatch = 4;

DEV void kernel(const FdCopyPagesParams& p) {
  const int i = blockIdx.y;
  const uint64_t from = p.from + (uint64_t)load_i32(p.src, i) * p.page_stride, to = p.to + (uint64_t)load_i32(p.dst, i) * p.page_stride;
  const uint64_t quads = (from | to) % 16 ? 0 : p.page_bytes / 16, step = (uint64_t)gridDim.x * kThreads;
  const uint64_t first = (uint64_t)blockIdx.x * kThreads + threadIdx.x;
  for (uint64_t n = first; n < quads; n += step * kBatch) {
    uint4 x[kBatch];
    UNROLL for (int j = 0; j < kBatch; j++) if (n + j * step < quads) x[j] = ldg128_once(at<char>(from) + (n + j * step) * 16);
    UNROLL for (int j = 0; j < kBatch; j++) if (n + j * step < quads) st128(at<char>(to) + (n + j * step) * 16, x[j]);
  }
  // The rest: less than 16 bytes, or all of it where pages are not aligned.
  for (uint64_t n = quads * 4 + first; n < p.page_bytes / 4; n += step) st32(at<char>(to) + n * 4, ldg32(at<char>(from) + n * 4));
}

}  // namespace fd::copy
