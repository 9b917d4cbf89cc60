// mla against float64: tiles and parts of tiles, row tiles that straddle tokens, splits and both ways to merge them.
#include "mla_finish.cuh"
#include "attend_emu.h"

using namespace fd;
using attend::Call;
using attend::Rig;
using emu::Buffer;
using emu::Test;

namespace {

template <class T> void call(Test& t, const Call& c, bool resident) {
  Rig<T> rig(t, c);
  const unsigned tiles = (unsigned)std::max(1, (*std::max_element(c.q_len.begin(), c.q_len.end()) * c.heads() + mla::kM - 1) / mla::kM);
  const size_t ctas = (size_t)c.splits * tiles * rig.batch;
  Buffer<uint4> o(ctas * mla::kUnits, "state_o");
  Buffer<mla::Scale> ml(ctas * mla::kM, "state_ml");
  Buffer<uint32_t> counters((size_t)tiles * rig.batch, "counters");
  counters.fill(0);
  FdDecodeParams p = rig.p;
  p.state_o = o.address(); p.state_ml = ml.address(); p.counters = counters.address();
  if (resident) p.flags |= FD_RESIDENT;
  std::vector<T> before;
  for (int i = 0; i < c.runs; i++) {
    emu::run({.grid = {(unsigned)c.splits, tiles, (unsigned)rig.batch}, .block = {mla::kThreads}, .shared_bytes = mla::kSharedBytes, .cooperative = resident},
             [&] { mla::kernel<T>(p); });
    rig.compare(t);
    for (size_t j = 0; j < before.size(); j++) t.equal("another run", j, rig.out[j].bits, before[j].bits);
    before.assign(rig.out.begin(), rig.out.end());
  }
  for (size_t i = 0; i < counters.size(); i++) t.equal("counter", i, counters[i], 0);
}

void add(emu::Suite& s, Call c) {
  c.kv_heads = 1; c.dim = mla::kDim; c.v_dim = mla::kValueDim; c.scale = 0.07;
  if (c.group == 4) c.group = 16;
  s.add("mla/" + c.name, [=](Test& t) { call<bf16>(t, c, false); });
  if (c.splits > 1) s.add("mla/" + c.name + "/resident", [=](Test& t) { call<bf16>(t, c, true); });
}

}  // namespace

void emu::cases(emu::Suite& s) {
  for (int n : {0, 1, 63, 64, 65, 129, 192, 330}) add(s, {.name = "n=" + std::to_string(n), .kv_len = {n}, .q_len = {1}, .page = 64});
  add(s, {.name = "splits=2", .kv_len = {200}, .q_len = {1}, .splits = 2, .runs = 2});
  add(s, {.name = "splits=5, ragged", .kv_len = {330, 10, 0, 257}, .q_len = {1, 1, 1, 1}, .group = 3, .page = 5, .splits = 5, .runs = 2});
  add(s, {.name = "chunks", .kv_len = {330, 10, 128}, .q_len = {1, 1, 1}, .mode = cache::kFlat, .uniform_q = true, .splits = 3, .chunk_tiles = 2});
  add(s, {.name = "128 heads", .kv_len = {150}, .q_len = {1}, .group = 128, .page = 64, .splits = 2});
  add(s, {.name = "q_len=5", .kv_len = {130, 70}, .q_len = {5, 3}, .group = 20, .mode = cache::kContiguous, .splits = 2});
  add(s, {.name = "not causal, sinks", .kv_len = {130}, .q_len = {3}, .causal = false, .sinks = true, .splits = 2});
  add(s, {.name = "large logits", .kv_len = {300}, .q_len = {1}, .q_scale = 3e3, .splits = 1});
  add(s, {.name = "more queries than tokens", .kv_len = {2}, .q_len = {4}, .group = 20});
  Call f16{.name = "f16", .kv_len = {190}, .q_len = {2}, .group = 16, .dim = mla::kDim, .v_dim = mla::kValueDim, .scale = 0.07, .splits = 2};
  s.add("mla/f16", [=](Test& t) { call<fd::f16>(t, f16, false); });
}
