// The planner on the device: package plan in one CTA, in the same integer arithmetic, so that a captured graph can plan anew at
// every replay. Names follow the Go source, which is the specification; what differs is who does what: a thread makes a sequence's
// units, a warp evaluates a candidate of Auto, a warp lists a unit's items, a warp places a class of them.
#pragma once
#include "plan_model.cuh"

namespace fd {

// make_units writes the units of all sequences, in order. Returns their number, or -1 after setting the status.
DEV int make_units(const FdPlanParams& p, FdPlanUnit* units, PlanShared& sh) {
  int64_t base = 0;
  NO_UNROLL for (int b0 = 0; b0 < p.batch; b0 += FD_PLAN_THREADS) {
    const int b = b0 + threadIdx.x;
    int q_len = 0, kv_len = 0, first = 0;
    if (b < p.batch) {
      kv_len = (int)ld32((const char*)p.kv_len + (int64_t)b * 4);
      q_len = p.q_len;
      if (p.q_indptr) q_len = (int)(ld32((const char*)p.q_indptr + (int64_t)(b + 1) * 4) - ld32((const char*)p.q_indptr + (int64_t)b * 4));
      if (q_len < 0 || kv_len < 0 || q_len > kMaxTokens || kv_len > kMaxTokens || (int64_t)q_len * p.group > 0x7fffffff) {
        set_status(p, FD_PLAN_BAD_LENGTH, b);
        q_len = 0;
      }
      if (p.window_left >= 0) first = min(max(0, kv_len - q_len - p.window_left), kv_len);
    }
    const int tile = p.q_tile > 0 ? (int)min64(q_len, p.q_tile) : q_len;
    const int tiles = q_len > 0 ? (q_len + tile - 1) / tile : 0;
    int64_t total;
    const int64_t at = base + block_scan(tiles, total, sh);
    base += total;
    if (base > p.unit_capacity) {
      set_status(p, FD_PLAN_TOO_LARGE, b);
      return -1;
    }
    NO_UNROLL for (int k = 0; k < tiles; k++) units[at + k] = make_unit(p, b, q_len, kv_len, first, k * tile, min(tile, q_len - k * tile));
  }
  __syncthreads();
  return failed(p) ? -1 : (int)base;
}

// cut_units decides every unit's splits by the policy.
DEV void cut_units(const FdPlanParams& p, FdPlanUnit* units, int n, PlanShared& sh) {
  const int64_t budget = p.mode == FD_PLAN_AUTO ? choose(p, units, n, sh) : 0;
  NO_UNROLL for (int i = threadIdx.x; i < n; i += FD_PLAN_THREADS) {
    FdPlanUnit& u = units[i];
    if (budget > 0) u.splits = splits_within(u, budget);
    if (p.mode == FD_PLAN_SPLITS) u.splits = max(1, min(p.n, u.pages));
    if (p.mode != FD_PLAN_FIXED) continue;
    u.chunk = (int)(((int64_t)p.n + p.page_size - 1) / p.page_size * p.page_size);
    if (u.end > u.first) u.splits = (u.end - 1) / u.chunk - u.first / u.chunk + 1;
  }
  __syncthreads();
}

// number gives every unit its first item, merge and State. False if there is no room.
DEV bool number(const FdPlanParams& p, FdPlanUnit* units, int n, PlanShared& sh, FdPlanHeader& h) {
  int64_t items = 0, merges = 0, states = 0;
  NO_UNROLL for (int i0 = 0; i0 < n; i0 += FD_PLAN_THREADS) {
    const int i = i0 + threadIdx.x;
    int64_t mine = 0, my_states = 0, total;
    bool cut = false;
    if (i < n) {
      mine = (int64_t)p.kv_heads * units[i].splits;
      cut = units[i].splits > 1;
      if (cut) my_states = mine * units[i].rows * p.group;
    }
    const int64_t item = items + block_scan(mine, total, sh);
    items += total;
    const int64_t merge = merges + block_scan(cut ? p.kv_heads : 0, total, sh);
    merges += total;
    const int64_t state = states + block_scan(my_states, total, sh);
    states += total;
    if (items > p.item_capacity || items > kMaxItems || merges > p.merge_capacity || states > p.state_capacity) {
      set_status(p, FD_PLAN_TOO_LARGE, i0);
      return false;
    }
    if (i < n) units[i].item = (int)item, units[i].merge = (int)merge, units[i].state = (int)state;
  }
  h.item_count = (int)items, h.merge_count = (int)merges, h.states = (int)states, h.units = n;
  __syncthreads();
  return true;
}

// list writes the items in natural order with their cost classes, and the merges.
DEV void list(const FdPlanParams& p, const FdPlanUnit* units, int n, FdItem* natural, uint8_t* classes, int64_t longest) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  FdMergeItem* merges = (FdMergeItem*)p.merges;
  NO_UNROLL for (int i = warp; i < n; i += FD_PLAN_THREADS / 32) {
    const FdPlanUnit u = units[i];
    const int slots = u.rows * p.group;
    NO_UNROLL for (int k = lane; k < p.kv_heads * u.splits; k += 32) {
      const int h = k / u.splits, s = k - h * u.splits;
      FdItem it = {u.seq, h, u.row, u.rows, cut(p, u, s), 0, -1, -1};
      it.count = cut(p, u, s + 1) - it.first;
      if (u.splits > 1) {
        it.merge = u.merge + h;
        it.state = u.state + k * slots;
        if (s == 0) merges[it.merge] = {u.seq, h, u.row, u.rows, it.state, u.splits};
      }
      natural[u.item + k] = it;
      classes[u.item + k] = (uint8_t)cost_class(item_ns(p, u, it.count, u.splits), longest);
    }
  }
  __syncthreads();
}

// place copies the items in the order of their classes, long ones first; items of a class keep their order.
DEV void place(const FdPlanParams& p, const FdItem* natural, const uint8_t* classes, int count, PlanShared& sh) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  constexpr int WARPS = FD_PLAN_THREADS / 32;
  NO_UNROLL for (int c = warp; c < kClasses; c += WARPS) {
    int in_class = 0;
    NO_UNROLL for (int i0 = 0; i0 < count; i0 += 32) in_class += __popc(__ballot_sync(~0u, i0 + lane < count && classes[min(i0 + lane, count - 1)] == c));
    if (lane == 0) sh.in_class[c] = in_class;
  }
  __syncthreads();
  FdItem* items = (FdItem*)p.items;
  NO_UNROLL for (int c = warp; c < kClasses; c += WARPS) {
    if (sh.in_class[c] == 0) continue;
    int at = 0;
    NO_UNROLL for (int k = c + 1; k < kClasses; k++) at += sh.in_class[k];
    NO_UNROLL for (int i0 = 0; i0 < count; i0 += 32) {
      const int i = i0 + lane;
      const bool mine = i < count && classes[min(i, count - 1)] == c;
      const unsigned vote = __ballot_sync(~0u, mine);
      if (mine) items[at + __popc(vote & ((1u << lane) - 1))] = natural[i];
      at += __popc(vote);
    }
  }
}

DEV void plan_kernel(const FdPlanParams& p) {
  SHARED_ARRAY(PlanShared, shared, 1);
  PlanShared& sh = shared[0];
  FdPlanUnit* units = (FdPlanUnit*)p.scratch;
  FdItem* natural = (FdItem*)(units + p.unit_capacity);
  uint8_t* classes = (uint8_t*)(natural + p.item_capacity);
  FdPlanHeader* header = (FdPlanHeader*)p.header;
  FdPlanHeader h = {};
  if (threadIdx.x == 0) *header = h;
  __syncthreads();
  const int n = make_units(p, units, sh);
  if (n < 0 || !affordable(p, units, n, sh)) return;
  cut_units(p, units, n, sh);
  if (!number(p, units, n, sh, h)) return;
  int64_t longest = 0;
  int splits = 1;
  NO_UNROLL for (int i = threadIdx.x; i < n; i += FD_PLAN_THREADS) {
    longest = max64(longest, longest_ns(p, units[i], units[i].splits));
    splits = max(splits, units[i].splits);
  }
  longest = block_max(longest, sh);
  h.splits = (int)block_max(splits, sh);
  list(p, units, n, natural, classes, longest);
  place(p, natural, classes, h.item_count, sh);
  if (threadIdx.x == 0) *header = h;
}

}  // namespace fd
