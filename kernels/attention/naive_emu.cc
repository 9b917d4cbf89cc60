// Naive attention in the emulator.
#include "naive.cuh"
#include "decode_rig.h"

using namespace rig;

namespace {

template <class S> void add(emu::Suite& s, const std::string& name, const Call& call) {
  s.add(name, [=](Test& t) {
    Rig<S> r(t, call);
    FdNaiveParams n = {};
    n.d = r.p;
    n.batch = r.B;
    n.room = Rig<S>::longest(call) + 3;
    Buffer<float> scores((size_t)n.room * r.heads * std::max(1, r.c.q_tokens()), "scores");
    n.scores = scores.address();
    const unsigned heads = (unsigned)r.heads, tokens = (unsigned)r.c.q_tokens();
    using KV = typename S::KV;
    using Q = typename S::Q;
    emu::launch({.grid = {(unsigned)(n.room + FD_NAIVE_TOKENS - 1) / FD_NAIVE_TOKENS, heads, tokens}, .block = {128}}, [&] { naive_scores<KV, Q>(n); });
    emu::launch({.grid = {heads, tokens}, .block = {256}}, [&] { naive_softmax(n); });
    emu::launch({.grid = {heads, tokens}, .block = {256}}, [&] { naive_values<KV, Q>(n); });
    emu::sync();
    r.check(t);
  });
}

}  // namespace

void emu::cases(emu::Suite& s) {
  using F = Shape<f16, f16, 64, 8, 2, true>;
  for (int n : {0, 1, 64, 150}) add<F>(s, "len=" + std::to_string(n), call({n}));
  for (Addressing a : {TABLE, CSR, CONTIGUOUS, FLAT}) {
    Call c = call({70, 0, 33});
    c.addressing = a, c.page = 5, c.kv_heads = 2, c.group = 3;
    add<F>(s, "addressing=" + std::to_string(a), c);
  }
  Call c = call({100, 64, 2}, {3, 1, 4});
  c.sinks = true, c.softcap = 4, c.left = 30;
  add<F>(s, "options", c);
  c.causal = false, c.right = 1;
  add<Shape<bf16, bf16, 128, 8, 4, true>>(s, "options bf16", c);
  c = call({90});
  c.d = 72;
  add<Shape<e4m3, bf16, 128, 8, 4, true>>(s, "e4m3 d=72", c);
}
