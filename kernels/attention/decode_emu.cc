// The decode kernels in the emulator, against float64.
#include "decode_rig.h"

using namespace rig;

namespace {

template <class S, int COMBINE, int PAGING = FAST> void add(emu::Suite& s, const std::string& name, const Call& call) {
  const uint64_t turn = s.all().size();
  s.add(name, [=](Test& t) {
    if (!call.thorough && (t.seed + turn) % 2) return;  // every other seed: many cases differ in shape, not in waits
    Rig<S> rig(t, call);
    const Call& c = rig.c;
    emu::Launch how;
    how.grid = {(unsigned)c.P, (unsigned)c.kv_heads, (unsigned)(rig.B << rig.p.row_tiles_log2)};
    how.block = {S::THREADS};
    how.shared_bytes = fd_decode_smem(S::ROW, S::D, S::N, S::W, S::STAGES);
    if (COMBINE == CLUSTER) how.cluster = c.P;
    how.cooperative = COMBINE == MAILBOX;
    how.dependent = c.early;
    for (int run = 0; run < std::max(1, call.runs); run++) {
      memset((void*)rig.out.data(), 0xff, rig.out.size() * 2);
      emu::run(how, [&] { decode<S, COMBINE, PAGING>(rig.p); });
      rig.check(t);
      rig.check_clean(t);
    }
  });
}

// Kernels without options run the cases without them, if large enough to be worth it; others have options compiled in.
template <class S> using Plain = Shape<typename S::KV, typename S::Q, S::D, S::N, S::W, false>;
bool plain(const Call& c) {
  return !c.ragged() && c.q_len[0] == 1 && c.left < 0 && c.right < 0 && c.softcap == 0 && !c.sinks && c.addressing != CSR && c.d % 16 == 0;
}

// A kernel of each combine over one call; P, chunk as the call asks for.
template <class S> void add_all(emu::Suite& s, const std::string& name, Call c, bool fast = true) {
  if (S::OPTIONS && fast && plain(c) && S::D != 64) add_all<Plain<S>>(s, name + "/plain", c);
  const int tiles = (Rig<S>::longest(c) + 15) / 16;
  if (fast) {
    c.chunk = 0;
    c.P = 4, add<S, CLUSTER>(s, name + "/cluster", c);
    const int most = *std::max_element(c.q_len.begin(), c.q_len.end());
    c.P = 3;
    while (1 << fd_slice_log2(std::min(S::N, most * c.group), S::D, c.P) > S::THREADS) c.P++;
    add<S, MAILBOX>(s, name + "/mailbox", c);
  }
  c.chunk = 6, c.P = std::max(1, (tiles + 5) / 6);
  if (fast) add<S, CHUNK>(s, name + "/chunk", c);
  else add<S, CHUNK, ANY>(s, name + "/any", c);
  c.chunk = 1000, c.P = 1;
  if (fast) add<S, CHUNK>(s, name + "/nosplit", c);
  else add<S, CHUNK, ANY>(s, name + "/any whole", c);
}

using Bf128 = Shape<bf16, bf16, 128, 8, 4, true>;
using Bf128n16 = Shape<bf16, bf16, 128, 16, 4, true>;
using Bf64 = Shape<bf16, bf16, 64, 8, 2, true>;
using Bf256 = Shape<bf16, bf16, 256, 8, 4, true>;
using Fp64 = Shape<f16, f16, 64, 8, 2, true>;
using Fp64n16 = Shape<f16, f16, 64, 16, 2, true>;
using E64 = Shape<e4m3, bf16, 64, 8, 2, true>;
using E128 = Shape<e4m3, bf16, 128, 8, 4, true>;
using E128n16 = Shape<e4m3, bf16, 128, 16, 4, true>;
using E256 = Shape<e4m3, bf16, 256, 8, 4, true>;

void lengths(emu::Suite& s) {
  for (int n : {333, 0, 1, 15, 16, 17}) {
    Call c = call({n});
    c.thorough = true;
    add_all<Bf128>(s, "len=" + std::to_string(n), c);
  }
  Call c = call({700});  // more tiles than page numbers read ahead
  c.chunk = 1000, c.P = 1, c.kv_heads = 1;
  add<Shape<bf16, bf16, 64, 8, 1, true>, CHUNK>(s, "len=700/one warp", c);
  c = call({64});  // CTAs arrive at the counter close together
  c.chunk = 1, c.P = 4, c.runs = 9;
  add<Shape<bf16, bf16, 64, 8, 4, false>, CHUNK>(s, "arrivals", c);
  Call many = call({200, 0, 45});
  many.kv_heads = 2, many.runs = 3;
  add_all<Bf64>(s, "thrice", many);
}

void shapes(emu::Suite& s) {
  Call c = call({70, 35});
  c.kv_heads = 2;
  add_all<Bf256>(s, "bf16 d256", c);
  add_all<Fp64>(s, "f16 d64", c);
  add_all<E64>(s, "e4m3 d64", c);
  add_all<E128>(s, "e4m3 d128", c);
  add_all<E256>(s, "e4m3 d256", c);
  for (int g : {1, 3, 7, 8}) c.group = g, add_all<Fp64>(s, "group=" + std::to_string(g), c);
  for (int g : {9, 16, 20}) c.group = g, add_all<Fp64n16>(s, "group=" + std::to_string(g), c);
  c.group = 12;
  add_all<Bf128n16>(s, "bf16 d128 n16", c);
  add_all<E128n16>(s, "e4m3 d128 n16", c);
  add_all<Fp64>(s, "group=12 in two row tiles", c);
  c.group = 4;
  for (int d : {8, 40, 56}) c.d = d, add_all<Fp64>(s, "f16 d=" + std::to_string(d), c), add_all<E64>(s, "e4m3 d=" + std::to_string(d), c);
}

void addressing(emu::Suite& s) {
  for (Addressing a : {TABLE, CSR, CONTIGUOUS, FLAT}) for (int page : {16, 64, 128}) {
    Call c = call({90, 0, 150});
    c.addressing = a, c.page = page, c.kv_heads = 2;
    const std::string name = "addressing=" + std::to_string(a) + "/page=" + std::to_string(page);
    if (page == 16) add_all<Fp64>(s, name, c);
    else c.chunk = 6, c.P = 2, add<Fp64, CHUNK>(s, name, c);
  }
  for (Addressing a : {TABLE, CSR, FLAT}) for (int page : {1, 3, 24}) {
    Call c = call({90, 33});
    c.addressing = a, c.page = page, c.kv_heads = 2;
    add_all<Fp64>(s, "addressing=" + std::to_string(a) + "/page=" + std::to_string(page), c, false);
  }
  Call c = call({90, 33});
  c.addressing = CONTIGUOUS, c.page = 0;
  add_all<Bf64>(s, "no pages", c);
}

void options(emu::Suite& s) {
  for (bool causal : {true, false}) {
    Call c = call({5, 100, 0, 3}, {3, 3, 3, 5});  // ragged: 5 query tokens over 3 of the cache
    c.causal = causal;
    add_all<Fp64>(s, causal ? "causal" : "not causal", c);
    c = call({100, 64}, {8, 8});
    c.causal = causal, c.group = 5;
    add_all<Fp64n16>(s, causal ? "causal q_len 8" : "not causal q_len 8", c);
  }
  add_all<Bf64>(s, "q_len 0", call({50, 60, 70}, {1, 0, 2}));
  for (int left : {0, 20, 100}) for (int page : {16, 3}) {
    Call c = call({150, 37, 1}, {1, 1, 1});
    c.left = left, c.page = page;
    add_all<Fp64>(s, "window=" + std::to_string(left) + "/page=" + std::to_string(page), c, page == 16);
    c = call({150, 37, 1}, {3, 3, 3});
    c.left = left, c.page = page, c.right = 1, c.causal = false;
    add_all<Fp64>(s, "two-sided window=" + std::to_string(left) + "/page=" + std::to_string(page), c, page == 16);
  }
  Call c = call({100, 0});
  c.softcap = 3, c.q_scale = 5;
  add_all<Fp64>(s, "softcap", c);
  c.sinks = true;
  add_all<Fp64>(s, "softcap and sinks", c);
  add_all<E64>(s, "softcap and sinks e4m3", c);
  c = call({200});
  c.q_scale = 3000;
  add_all<Bf64>(s, "large logits", c);
}

// A chain of dependent launches: the kernel before writes q and the newest token, the kernels copy the others before it is done.
template <class S, int COMBINE> void add_chain(emu::Suite& s, const std::string& name, Call call) {
  call.early = true;
  s.add(name, [=](Test& t) {
    Rig<S> rig(t, call);
    emu::Launch how;
    how.grid = {(unsigned)call.P, (unsigned)call.kv_heads, (unsigned)(rig.B << rig.p.row_tiles_log2)};
    how.block = {S::THREADS};
    how.shared_bytes = fd_decode_smem(S::ROW, S::D, S::N, S::W, S::STAGES);
    if (COMBINE == CLUSTER) how.cluster = call.P;
    how.cooperative = COMBINE == MAILBOX;
    how.dependent = true;
    emu::launch({.grid = {1}, .block = {32}}, rig.hide());
    for (int i = 0; i < 2; i++) emu::launch(how, [&] { decode<S, COMBINE, FAST>(rig.p); });
    emu::sync();
    rig.check(t);
    rig.check_clean(t);
  });
}

void chains(emu::Suite& s) {
  Call c = call({150, 0, 16, 17});
  c.P = 4;
  add_chain<Plain<Fp64>, CLUSTER>(s, "chain/cluster", c);
  add_chain<Plain<Fp64>, MAILBOX>(s, "chain/mailbox", c);
  c.chunk = 3;
  add_chain<Plain<Fp64>, CHUNK>(s, "chain/chunk", c);
  add_chain<Fp64, CHUNK>(s, "chain/chunk with options", c);
  add_chain<Plain<E128>, CHUNK>(s, "chain/chunk e4m3", c);
}

}  // namespace

void emu::cases(emu::Suite& s) {
  lengths(s);
  chains(s);
  options(s);
  shapes(s);
  addressing(s);
}
