// The cost model of package plan on the device, and the choice of Auto. Integers only: the same numbers as in Go.
#pragma once
#include "../prim/prim.cuh"
#include "params.h"

namespace fd {

static constexpr int kMaxTokens = 1 << 30, kMaxItems = 1 << 22, kClasses = 64;
static constexpr int64_t kMaxCost = 1ll << 56, kMostPS = 1000000000, kMostNS = 1000000000, kNever = 0x7fffffffffffffffll;

struct PlanShared {
  int64_t warp[FD_PLAN_THREADS / 32];  // of a reduction or a scan
  int64_t upper[FD_PLAN_THREADS / 32]; // of a warp's best candidate
  int candidate[FD_PLAN_THREADS / 32];
  int64_t none_lower;
  int in_class[kClasses];
};

DEV int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
DEV int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
DEV int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
DEV int64_t shuffle64(int64_t x, int lane) {
  const uint32_t lo = __shfl_sync(~0u, (uint32_t)x, lane), hi = __shfl_sync(~0u, (uint32_t)((uint64_t)x >> 32), lane);
  return (int64_t)((uint64_t)hi << 32 | lo);
}
DEV int64_t warp_max(int64_t x) {
  UNROLL for (int k = 16; k; k >>= 1) x = max64(x, shuffle64(x, (threadIdx.x & 31) ^ k));
  return x;
}
DEV int64_t block_max(int64_t x, PlanShared& sh) {
  x = warp_max(x);
  __syncthreads();
  if ((threadIdx.x & 31) == 0) sh.warp[threadIdx.x >> 5] = x;
  __syncthreads();
  NO_UNROLL for (int w = 0; w < FD_PLAN_THREADS / 32; w++) x = max64(x, sh.warp[w]);
  return x;
}
// block_scan returns the sum of x over the threads before this one, and in total that over all.
DEV int64_t block_scan(int64_t x, int64_t& total, PlanShared& sh) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int64_t sum = x;
  UNROLL for (int k = 1; k < 32; k <<= 1) {
    const int64_t y = shuffle64(sum, lane >= k ? lane - k : lane);
    if (lane >= k) sum += y;
  }
  __syncthreads();
  if (lane == 31) sh.warp[warp] = sum;
  __syncthreads();
  int64_t before = 0;
  total = 0;
  NO_UNROLL for (int w = 0; w < FD_PLAN_THREADS / 32; w++) {
    if (w < warp) before += sh.warp[w];
    total += sh.warp[w];
  }
  return before + sum - x;
}

DEV void set_status(const FdPlanParams& p, int status, int seq) {
  FdPlanHeader* h = (FdPlanHeader*)p.header;
  st_relaxed1(&h->bad_seq, (uint32_t)seq);
  st_relaxed1(&h->status, (uint32_t)status);
}
DEV bool failed(const FdPlanParams& p) { return ld_relaxed1(&((FdPlanHeader*)p.header)->status) != FD_PLAN_OK; }

// ---- costs

DEV int64_t state_bytes(const FdPlanParams& p) { return (int64_t)(p.value_dim + 2) * 4; }

DEV void row_costs(const FdPlanParams& p, int64_t rows, int64_t& token_ps, int64_t& state_ns) {
  token_ps = (int64_t)p.token_bytes * 1000000 * p.ctas_per_sm / p.worker_bytes_per_us;
  const int64_t row_ps = max64(1, (int64_t)(p.head_dim + p.value_dim) * 1000000 * p.ctas_per_sm / p.macs_per_us);
  state_ns = min64(kMostNS, rows * state_bytes(p) * 1000 / p.merge_bytes_per_us);
  token_ps = rows >= kMostPS / row_ps ? kMostPS : min64(kMostPS, max64(max64(1, token_ps), rows * row_ps));
}
DEV int64_t unit_bytes(const FdPlanParams& p, const FdPlanUnit& u) { return (int64_t)(u.end - u.first) * p.token_bytes; }
DEV int64_t tokens_ns(const FdPlanUnit& u) { return (int64_t)(u.end - u.first) * u.token_ps / 1000; }
DEV int64_t item_ns(const FdPlanParams& p, const FdPlanUnit& u, int64_t count, int splits) {
  return p.item_ns + count * u.token_ps / 1000 + (splits > 1 ? u.state_ns : 0);
}
DEV int64_t longest_ns(const FdPlanParams& p, const FdPlanUnit& u, int splits) {
  int64_t count = u.end - u.first;
  if (splits > 1 && u.chunk > 0) count = min64(count, u.chunk);
  else if (splits > 1) count = min64(count, ceil_div(u.pages, splits) * p.page_size);
  return item_ns(p, u, count, splits);
}
DEV int64_t tail_ns(const FdPlanParams& p, const FdPlanUnit& u, int splits) {
  return splits == 1 ? 0 : (int64_t)splits * u.state_ns / p.merge_fan_in;
}
DEV int64_t call_ns(const FdPlanParams& p, int64_t bytes, int64_t tail, int64_t longest, bool merges) {
  int64_t ns = tail + longest * p.jitter_pct / 100;
  if (const int64_t r = p.shared_bytes_per_us; r > 0) ns += bytes / r * 1000 + bytes % r * 1000 / r;
  return merges ? ns + p.merge_ns : ns;
}
DEV int cost_class(int64_t ns, int64_t longest) { return (int)(ns * kClasses / (longest + 1)); }
DEV int64_t class_floor(int c, int64_t longest) { return ceil_div((int64_t)c * (longest + 1), kClasses); }
DEV int splits_within(const FdPlanUnit& u, int64_t budget) { return (int)max64(1, min64(ceil_div(tokens_ns(u), budget) + MUTANT(plan_one_more_split), u.max_splits)); }

DEV FdPlanUnit make_unit(const FdPlanParams& p, int b, int q_len, int kv_len, int first, int row, int rows) {
  FdPlanUnit u = {};
  u.seq = b, u.row = row, u.rows = rows, u.first = first, u.first_page = first / p.page_size, u.splits = 1;
  u.end = p.causal ? max(first, min(kv_len, kv_len - q_len + row + rows)) : kv_len;
  if (u.end > first) u.pages = (u.end + p.page_size - 1) / p.page_size - u.first_page;
  const int min_pages = (int)((p.min_tokens + p.page_size - 1) / p.page_size);
  u.max_splits = max(1, min((int)p.max_splits, u.pages / min_pages));
  row_costs(p, (int64_t)rows * p.group, u.token_ps, u.state_ns);
  return u;
}

// cut returns the first token of split s; cut(splits) is the end.
DEV int cut(const FdPlanParams& p, const FdPlanUnit& u, int s) {
  if (s == 0) return u.first;
  if (s == u.splits) return u.end;
  if (u.chunk > 0) return (u.first / u.chunk + s) * u.chunk;
  return (u.first_page + (int)((int64_t)s * u.pages / u.splits)) * p.page_size;
}

// affordable: do the sums that plans are made of stay within int64?
DEV bool affordable(const FdPlanParams& p, const FdPlanUnit* units, int n, PlanShared& sh) {
  int64_t ns = 0, bytes = 0, all_ns, all_bytes;
  NO_UNROLL for (int i = threadIdx.x; i < n; i += FD_PLAN_THREADS) {
    ns += tokens_ns(units[i]);
    bytes += unit_bytes(p, units[i]);
  }
  block_scan(ns, all_ns, sh);
  block_scan(bytes, all_bytes, sh);
  const bool fits = max64(all_ns, all_bytes) <= kMaxCost / p.kv_heads && n <= kMaxItems / p.kv_heads;
  if (!fits && threadIdx.x == 0) set_status(p, FD_PLAN_TOO_LARGE, 0);
  return fits;
}

// ---- Auto

struct Bounds { int64_t lower, upper; int splits; };

// bounds: see the Go source. By one warp, whose lanes hold the histogram: lane l classes l and l+32.
DEV Bounds bounds(const FdPlanParams& p, const FdPlanUnit* units, int n, int64_t budget, int64_t bytes) {
  const int lane = threadIdx.x & 31;
  int64_t longest = 0, tail = 0, splits = 0, count0 = 0, count1 = 0, sum0 = 0, sum1 = 0;
  NO_UNROLL for (int i = lane; i < n; i += 32) {
    const int s = splits_within(units[i], budget);
    splits = max64(splits, s);
    longest = max64(longest, longest_ns(p, units[i], s));
    tail = max64(tail, tail_ns(p, units[i], s));
  }
  longest = warp_max(longest), tail = warp_max(tail), splits = warp_max(splits);
  NO_UNROLL for (int i0 = 0; i0 < n; i0 += 32) {
    int c = 0;
    int64_t count = 0, sum = 0;
    if (i0 + lane < n) {
      const FdPlanUnit& u = units[i0 + lane];
      const int s = splits_within(u, budget);
      c = cost_class(longest_ns(p, u, s), longest);
      count = (int64_t)p.kv_heads * s;
      sum = p.kv_heads * (s * item_ns(p, u, 0, s) + tokens_ns(u));
    }
    NO_UNROLL for (int k = 0; k < min(32, n - i0); k++) {
      const int ck = __shfl_sync(~0u, c, k);
      const int64_t count_k = shuffle64(count, k), sum_k = shuffle64(sum, k);
      if (ck == lane) count0 += count_k, sum0 += sum_k;
      if (ck == lane + 32) count1 += count_k, sum1 += sum_k;
    }
  }
  Bounds b = {0, 0, (int)splits};
  int64_t items = 0, work = 0;
  NO_UNROLL for (int c = kClasses - 1; c >= 0; c--) {
    const int64_t count = shuffle64(c >= 32 ? count1 : count0, c & 31), sum = shuffle64(c >= 32 ? sum1 : sum0, c & 31);
    if (count == 0) continue;
    items += count;
    work += sum;
    const int64_t waves = ceil_div(items, p.workers), last = class_floor(c + 1, longest) - 1;
    b.upper = max64(b.upper, min64(waves * longest, ceil_div(work, p.workers) + last - last / p.workers));
    b.lower = max64(b.lower, waves * class_floor(c, longest));
  }
  b.lower = max64(b.lower, max64(longest, work / p.workers));
  const int64_t call = call_ns(p, bytes, tail, longest, splits > 1);
  b.lower += call;
  b.upper += call;
  return b;
}

// choose returns the budget that Auto cuts by, or 0 for no split. Every warp takes candidates in turn; the least upper bound wins,
// of equal ones the least number of pieces.
DEV int64_t choose(const FdPlanParams& p, const FdPlanUnit* units, int n, PlanShared& sh) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  int64_t longest = 0, tokens = 0, bytes = 0, room = 1, total, all_bytes;
  NO_UNROLL for (int i = threadIdx.x; i < n; i += FD_PLAN_THREADS) {
    longest = max64(longest, tokens_ns(units[i]));
    room = max64(room, units[i].max_splits);
    tokens += tokens_ns(units[i]);
    bytes += unit_bytes(p, units[i]);
  }
  longest = block_max(longest, sh), room = block_max(room, sh);
  block_scan(tokens * p.kv_heads, total, sh);
  block_scan(bytes * p.kv_heads, all_bytes, sh);
  if (n == 0 || p.workers == 1 || room == 1) return 0;
  int64_t most = room;
  if (const int64_t per_worker = total / p.workers; per_worker > 0) most = min64(most, max64(2, ceil_div(longest * p.max_waves, per_worker)));
  int64_t upper = kNever;
  int best = 0;
  NO_UNROLL for (int k = 1 + warp; k <= most; k += FD_PLAN_THREADS / 32) {
    const Bounds b = bounds(p, units, n, max64(1, ceil_div(longest, k)), all_bytes);
    if (k == 1 && lane == 0) sh.none_lower = b.lower;
    if (k > 1 && b.splits > 1 && b.upper < upper) upper = b.upper, best = k;
  }
  if (lane == 0) sh.upper[warp] = upper, sh.candidate[warp] = best;
  __syncthreads();
  NO_UNROLL for (int w = 0; w < FD_PLAN_THREADS / 32; w++) {
    const int64_t x = sh.upper[w];
    const int k = sh.candidate[w];
    if (k > 0 && (x < upper || (x == upper && (best == 0 || k < best)))) upper = x, best = k;
  }
  if (best == 0 || upper > sh.none_lower - sh.none_lower / 32) return 0;
  return max64(1, ceil_div(longest, best));
}

}  // namespace fd
