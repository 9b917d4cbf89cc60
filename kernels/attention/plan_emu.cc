// The device planner in the emulator, against plans of package plan (testdata/plans.txt, written by internal/plangolden).
#include <stdio.h>
#include <stdlib.h>
#include <fstream>
#include <sstream>
#include "../emu/test.h"
#include "plan.cuh"

using namespace fd;
using emu::Buffer;
using emu::Test;

namespace {

struct Golden {
  FdPlanParams p = {};
  std::vector<int> q_len, kv_len;
  int items, merges, states;
  uint64_t hash;
};

std::vector<Golden> read_goldens() {
  std::ifstream f("attention/testdata/plans.txt");
  std::vector<Golden> all;
  for (std::string text; std::getline(f, text);) {
    std::istringstream in(text);
    Golden g;
    FdPlanParams& p = g.p;
    in >> p.mode >> p.n >> p.kv_heads >> p.group >> p.head_dim >> p.value_dim >> p.page_size >> p.token_bytes >> p.causal >> p.window_left;
    in >> p.workers >> p.ctas_per_sm >> p.max_splits >> p.max_waves >> p.min_tokens >> p.q_tile >> p.jitter_pct >> p.item_ns >> p.merge_ns >> p.merge_fan_in;
    in >> p.worker_bytes_per_us >> p.shared_bytes_per_us >> p.macs_per_us >> p.merge_bytes_per_us >> p.batch;
    for (int i = 0, q, n; i < p.batch && in >> q >> n; i++) g.q_len.push_back(q), g.kv_len.push_back(n);
    if (!(in >> g.items >> g.merges >> g.states >> std::hex >> g.hash)) abort();
    all.push_back(g);
  }
  return all;
}

// FNV-1a over the bytes of all items, then all merges.
uint64_t hash(const void* data, size_t bytes, uint64_t h) {
  for (size_t i = 0; i < bytes; i++) h = (h ^ ((const uint8_t*)data)[i]) * 0x100000001b3ull;
  return h;
}

// Room: what is short is one short of what the plan needs.
struct Room { int items, merges, states; };

FdPlanHeader run(const Golden& g, const Room& room, uint64_t& got) {
  FdPlanParams p = g.p;
  Buffer<int> kv_len(std::max(1, p.batch), "kv_len"), q_indptr(p.batch + 1, "q_indptr");
  q_indptr[0] = 0;
  for (int i = 0; i < p.batch; i++) kv_len[i] = g.kv_len[i], q_indptr[i + 1] = q_indptr[i] + g.q_len[i];
  p.unit_capacity = q_indptr[p.batch] + 1, p.item_capacity = room.items, p.merge_capacity = room.merges, p.state_capacity = room.states;
  Buffer<FdItem> items(std::max(1, room.items), "items");
  Buffer<FdMergeItem> merges(std::max(1, room.merges), "merges");
  Buffer<FdPlanHeader> header(1, "header");
  Buffer<uint64_t> scratch(fd_plan_scratch(p.unit_capacity, p.item_capacity) / 8 + 1, "scratch");
  p.kv_len = kv_len.address(), p.q_indptr = q_indptr.address(), p.items = items.address(), p.merges = merges.address();
  p.header = header.address(), p.scratch = scratch.address();
  emu::run({.grid = {1}, .block = {FD_PLAN_THREADS}}, [&] { plan_kernel(p); });
  got = hash(items.data(), header[0].item_count * sizeof(FdItem), 0xcbf29ce484222325ull);
  got = hash(merges.data(), header[0].merge_count * sizeof(FdMergeItem), got);
  return header[0];
}

}  // namespace

void emu::cases(emu::Suite& s) {
  static const std::vector<Golden> goldens = read_goldens();
  if (goldens.empty()) s.add("goldens", [](Test& t) { t.fail("no attention/testdata/plans.txt: run from kernels/"); });
  for (const Golden& g : goldens) s.add("line " + std::to_string(&g - goldens.data() + 1), [&g](Test& t) {
    if (t.seed > 1 && &g - goldens.data() >= 20) return;  // schedules matter little here
    uint64_t got;
    const FdPlanHeader h = run(g, {g.items, g.merges, g.states}, got);
    t.equal("status", 0, h.status, FD_PLAN_OK);
    t.equal("items", 0, h.item_count, g.items);
    t.equal("merges", 0, h.merge_count, g.merges);
    t.equal("states", 0, h.states, g.states);
    t.equal("hash", 0, got, g.hash);
  });
  for (int what = 0; what < 3; what++) s.add("too little room/" + std::to_string(what), [=](Test& t) {
    for (const Golden& g : goldens) {
      if (g.merges == 0 || g.items > 200) continue;
      uint64_t got;
      const FdPlanHeader h = run(g, {g.items - (what == 0), g.merges - (what == 1), g.states - (what == 2)}, got);
      t.equal("status", 0, h.status, FD_PLAN_TOO_LARGE);
      t.equal("items", 0, h.item_count, 0);
      return;
    }
    t.fail("no plan fits the test");
  });
  s.add("bad length", [](Test& t) {
    Golden g = goldens[1];
    g.kv_len[5] = -1;
    uint64_t got;
    const FdPlanHeader h = run(g, {1 << 12, 1 << 12, 1 << 20}, got);
    t.equal("status", 0, h.status, FD_PLAN_BAD_LENGTH);
    t.equal("sequence", 0, h.bad_seq, 5);
    t.equal("items", 0, h.item_count, 0);
  });
}
