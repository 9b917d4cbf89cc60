// prefill against float64: lengths around tiles and pages, prefixes, every mask, and mixed batches of items.
#include "prefill.cuh"
#include "prefill_wg.cuh"
#include "attend_emu.h"

using namespace fd;
using attend::Call;
using attend::Rig;
using emu::Buffer;
using emu::Test;

namespace {

template <class S> void launch(const FdDecodeParams& p, unsigned x, unsigned y, unsigned z) {
  emu::run({.grid = {x, y, z}, .block = {(unsigned)S::kThreads}, .shared_bytes = S::kSharedBytes}, [&] { if constexpr (S::kPanels) prefill::group_kernel<S>(p); else prefill::kernel<S>(p); });
}

template <class S> void grid(Test& t, const Call& c) {
  Rig<typename S::T> rig(t, c);
  const int longest = *std::max_element(c.q_len.begin(), c.q_len.end()), tokens = S::kM / c.group;
  launch<S>(rig.p, std::max(1, (longest + tokens - 1) / tokens), c.kv_heads, rig.batch);
  rig.compare(t);
}

// Items as the planner makes them: a sequence's rows in one unit, its tokens cut into item_splits parts.
struct Items {
  Buffer<FdItem> items;
  Buffer<FdMergeItem> merges;
  Buffer<int32_t> count;
  Buffer<uint32_t> counters;
  Buffer<float> o, ml;
  int used = 0, tiles = 1;

  Items(const Call& c, int tile_rows)
      : items(room(c), "items"), merges(room(c), "merges"), count(1, "item_count"), counters(room(c) * 8, "counters"),
        o(states(c) * c.dim, "state_o"), ml(states(c) * 2, "state_ml") {
    int merge = 0, state = 0;
    counters.fill(0);
    for (size_t b = 0; b < c.kv_len.size(); b++) for (int h = 0; h < c.kv_heads; h++) {
      const int n = c.item_splits[b], q = c.q_len[b];
      tiles = std::max(tiles, (q * c.group + tile_rows - 1) / tile_rows);
      if (n > 1) merges[merge] = FdMergeItem{(int)b, h, 0, q, state, n};
      for (int s = 0; s < n; s++) {
        const int first = c.kv_len[b] * s / n, end = c.kv_len[b] * (s + 1) / n;
        items[used++] = FdItem{(int)b, h, 0, q, first, end - first, n > 1 ? state : -1, n > 1 ? merge : -1};
        if (n > 1) state += q * c.group;
      }
      merge += n > 1;
    }
    count[0] = used;
  }
  static size_t room(const Call& c) { return std::accumulate(c.item_splits.begin(), c.item_splits.end(), 0) * c.kv_heads + 2; }
  static size_t states(const Call& c) {
    size_t n = 1;
    for (size_t b = 0; b < c.q_len.size(); b++) n += (size_t)c.q_len[b] * c.heads() * c.item_splits[b];
    return n;
  }
};

template <class S> void mixed(Test& t, const Call& c) {
  Rig<typename S::T> rig(t, c);
  Items items(c, S::kM);
  FdDecodeParams p = rig.p;
  p.items = items.items.address(); p.merges = items.merges.address(); p.item_count = items.count.address();
  p.counters = items.counters.address(); p.state_o = items.o.address(); p.state_ml = items.ml.address();
  std::vector<typename S::T> before;
  for (int run = 0; run < c.runs; run++) {
    launch<S>(p, items.used + 2, items.tiles, 1);  // two surplus CTAs
    rig.compare(t);
    for (size_t i = 0; i < before.size(); i++) t.equal("another run", i, rig.out[i].bits, before[i].bits);
    before.assign(rig.out.begin(), rig.out.end());
  }
}

// Small ones for most of the logic: the same bodies with fewer rows and tokens a tile.
template <class T, int D> using Full = prefill::Shape<T, D, D == 256 ? 1 : 2, D == 256 ? 8 : 4, D == 256 ? 32 : 64>;
using Small = prefill::Shape<bf16, 64, 1, 2, 16>;
using SmallF16 = prefill::Shape<f16, 64, 2, 1, 32>;

template <class S> void add(emu::Suite& s, const char* shape, const Call& c) {
  s.add(std::string("prefill/") + shape + "/" + c.name, [=](Test& t) { if (c.item_splits.empty()) grid<S>(t, c); else mixed<S>(t, c); });
}

void lengths(emu::Suite& s) {
  for (int n : {1, 15, 16, 17, 33, 50}) for (int prefix : {0, 1, 16, 31})
    add<Small>(s, "small", {.name = "q=" + std::to_string(n) + "/prefix=" + std::to_string(prefix), .kv_len = {n + prefix}, .q_len = {n}, .kv_heads = 2, .group = 1});
  add<Small>(s, "small", {.name = "ragged", .kv_len = {0, 40, 7, 100, 5}, .q_len = {0, 20, 7, 3, 9}, .group = 3, .page = 5});
  add<Small>(s, "small", {.name = "more queries than tokens", .kv_len = {3, 0}, .q_len = {10, 2}});
  add<Small>(s, "small", {.name = "page=1", .kv_len = {37}, .q_len = {9}, .page = 1});
  for (int mode = 0; mode < 3; mode++)
    add<SmallF16>(s, "small f16", {.name = cache::kModeNames[mode], .kv_len = {70, 33}, .q_len = {21, 21}, .kv_heads = 2, .mode = (cache::Mode)mode, .uniform_q = true});
  for (int group : {1, 5, 7, 8, 16, 32})
    add<Small>(s, "small", {.name = "group=" + std::to_string(group), .kv_len = {41}, .q_len = {11}, .group = group});
}

void options(emu::Suite& s) {
  const Call base{.kv_len = {75, 20}, .q_len = {25, 20}, .kv_heads = 2, .group = 2};
  auto with = [&](const char* name, auto change) {
    Call c = base;
    c.name = name;
    change(c);
    add<Small>(s, "small", c);
  };
  with("window", [](Call& c) { c.left = 17; });
  with("window 0", [](Call& c) { c.left = 0; });
  with("window both ways", [](Call& c) { c.causal = false; c.left = 9; c.right = 5; });
  with("not causal", [](Call& c) { c.causal = false; c.lse = false; });
  with("softcap", [](Call& c) { c.softcap = 3; c.q_scale = 5; });
  with("sinks", [](Call& c) { c.sinks = true; });
  with("sinks, empty rows", [](Call& c) { c.sinks = true; c.kv_len = {4, 0}; });
  with("all options", [](Call& c) { c.sinks = true; c.left = 20; c.softcap = 20; c.q_scale = 3; });
  with("large logits", [](Call& c) { c.q_scale = 3e4; });
  with("head_dim=40", [](Call& c) { c.dim = 40; });
}

void mixed_batches(emu::Suite& s) {
  for (int splits : {1, 2, 3, 5})
    add<Small>(s, "small", {.name = "mixed/splits=" + std::to_string(splits), .kv_len = {90, 30, 200, 61}, .q_len = {1, 30, 1, 12}, .kv_heads = 2, .group = 3,
                            .runs = 3, .item_splits = {splits, 1, splits + 1, 2}});
  add<Small>(s, "small", {.name = "mixed/all options", .kv_len = {90, 30, 0, 61}, .q_len = {1, 30, 1, 5}, .group = 4, .mode = cache::kFlat, .sinks = true, .left = 40,
                          .softcap = 30, .runs = 2, .item_splits = {3, 1, 2, 4}});
}

template <class T, int D> void full(emu::Suite& s, const char* name) {
  add<Full<T, D>>(s, name, {.name = "prefix", .kv_len = {150}, .q_len = {70}, .group = 3, .dim = D, .page = 64});
  add<Full<T, D>>(s, name, {.name = "padded", .kv_len = {65, 130}, .q_len = {40, 1}, .group = 4, .dim = D - 8, .item_splits = {1, 2}});
}

// By warpgroups: full size only, so fewer cases; with 64 or fewer rows the second warpgroup rests.
template <class T, int D> using Group = prefill::GroupShape<T, D, D == 256 ? 64 : 128>;
template <class T, int D> void group(emu::Suite& s, const std::string& name) {
  add<Group<T, D>>(s, name.c_str(), {.name = "prefix", .kv_len = {300, 129}, .q_len = {50, 1}, .kv_heads = 2, .group = 3, .dim = D, .page = 64});
  add<Group<T, D>>(s, name.c_str(), {.name = "padded, split", .kv_len = {150, 401}, .q_len = {40, 1}, .group = 4, .dim = D - 8, .runs = 2, .item_splits = {1, 2}});
}
void groups(emu::Suite& s) {
  group<bf16, 64>(s, "wg bf16 d64");
  group<bf16, 96>(s, "wg bf16 d96");
  group<bf16, 128>(s, "wg bf16 d128");
  group<bf16, 256>(s, "wg bf16 d256");
  group<f16, 128>(s, "wg f16 d128");
  auto one = [&](Call c) { add<Group<bf16, 64>>(s, "wg bf16 d64", c); };
  one({.name = "q=1 to 600 tokens", .kv_len = {600}, .q_len = {1}, .group = 1});
  one({.name = "rows=64,65", .kv_len = {64, 65}, .q_len = {64, 65}, .group = 1});
  one({.name = "empty", .kv_len = {0, 3}, .q_len = {2, 40}, .group = 2});
  one({.name = "all options", .kv_len = {500}, .q_len = {70}, .group = 2, .page = 5, .mode = cache::kFlat, .sinks = true, .left = 200, .softcap = 20, .q_scale = 3});
  one({.name = "large logits", .kv_len = {400}, .q_len = {60}, .group = 2, .q_scale = 3e4});
}

}  // namespace

void emu::cases(emu::Suite& s) {
  lengths(s);
  options(s);
  mixed_batches(s);
  full<bf16, 64>(s, "bf16 d64");
  full<bf16, 96>(s, "bf16 d96");
  full<bf16, 128>(s, "bf16 d128");
  full<bf16, 256>(s, "bf16 d256");
  full<f16, 128>(s, "f16 d128");
  groups(s);
}
