// The decode kernels in the emulator, against float64. Memory that a kernel must not read, or that no row attends, is NaN.
#include <math.h>
#include <algorithm>
#include <map>
#include <memory>
#include <string.h>
#include <numeric>
#include "../emu/test.h"
#include "decode.cuh"

using namespace fd;
using emu::Buffer;
using emu::Test;

namespace {

enum Addressing { TABLE, CSR, CONTIGUOUS, FLAT };

// Call is one attention call: its geometry, its options, and how to launch it.
struct Call {
  std::vector<int> len, q_len;
  int kv_heads = 1, group = 4, d = 0, page = 16;  // d 0: as compiled
  Addressing addressing = TABLE;
  bool causal = true;
  int left = -1, right = -1;
  float softcap = 0, q_scale = 1;
  bool sinks = false, early = false;
  int P = 2, chunk = 0, runs = 1;                 // chunk 0: cluster or mailbox

  bool ragged() const { return std::any_of(q_len.begin(), q_len.end(), [&](int q) { return q != q_len[0]; }); }
  int q_tokens() const { return std::accumulate(q_len.begin(), q_len.end(), 0); }
};

// Rig holds the buffers of a call and the parameters that point to them.
template <class S> struct Rig {
  using KV = typename S::KV;
  using Q = typename S::Q;
  const Call c;
  int B, heads, per, page_tokens, tiles;
  Buffer<KV> kv;
  Buffer<Q> q, out;
  Buffer<float> lse, k_scale, v_scale, sinks, mailbox, state_o, state_ml;
  Buffer<int> len, table, indptr, q_indptr, counters;
  Buffer<uint64_t> base;
  std::vector<int> pages;  // [sequence][per]
  FdDecodeParams p = {};

  static int longest(const Call& c) { return std::max(1, *std::max_element(c.len.begin(), c.len.end())); }
  static int per_of(const Call& c) { return c.page ? (longest(c) + c.page - 1) / c.page + 1 : 1; }
  static int row_elements(const Call& c) { return (c.d * (int)sizeof(KV) + 15) / 16 * 16 / (int)sizeof(KV); }
  static Call resolve(Call c) { if (!c.d) c.d = S::D; return c; }

  Rig(Test& t, const Call& call)
      : c(resolve(call)), B((int)c.len.size()), heads(c.kv_heads * c.group), per(per_of(c)), page_tokens(c.page ? c.page : longest(c)),
        kv((size_t)B * per * page_tokens * 2 * c.kv_heads * row_elements(c), "kv"), q((size_t)std::max(1, c.q_tokens()) * heads * c.d, "q"),
        out(q.size(), "out"), lse((size_t)std::max(1, c.q_tokens()) * heads, "lse"), k_scale(c.kv_heads, "k_scale"), v_scale(c.kv_heads, "v_scale"),
        sinks(heads, "sinks"), mailbox(1 << 16, "mailbox"), state_o(1 << 17, "state_o"), state_ml(1 << 12, "state_ml"), len(B, "len"),
        table((size_t)B * per, "table"), indptr(B + 1, "indptr"), q_indptr(B + 1, "q_indptr"), counters(256, "counters"), base(B, "base") {
    int most = *std::max_element(c.q_len.begin(), c.q_len.end());
    tiles = std::max(1, (most * c.group + S::N - 1) / S::N);
    geometry(most);
    addresses();
    inputs(t);
  }

  void geometry(int most) {
    const int rows = std::max(1, std::min(most * c.group, S::N));
    p.kv_heads = c.kv_heads, p.group = c.group, p.group_rcp = fd_reciprocal(c.group), p.head_dim = c.d;
    p.q_len = c.q_len[0];
    p.q_token_stride = p.out_token_stride = heads * c.d * 2;
    p.scale_log2 = 1.44269504f / sqrtf((float)c.d);
    p.softcap = c.softcap, p.window_left = c.left, p.window_right = c.right;
    p.fresh_tokens = 1;
    p.row_tiles_log2 = fd_ceil_log2(tiles);
    p.splits = c.P, p.chunk_tiles = c.chunk, p.state_rows = rows;
    p.slice_log2 = fd_slice_log2(rows, S::D, c.P);
    p.box_stride = fd_box_bytes(rows, S::D, c.P, p.slice_log2);
  }

  void addresses() {
    const uint32_t row = row_elements(c) * sizeof(KV);
    p.q = q.address(), p.out = out.address(), p.lse = lse.address(), p.kv_len = len.address();
    p.mailbox = mailbox.address(), p.counters = counters.address(), p.state_o = state_o.address(), p.state_ml = state_ml.address();
    if (S::FP8) p.k_scale = k_scale.address(), p.v_scale = v_scale.address();
    if (c.sinks) p.sinks = sinks.address();
    p.page_size = page_tokens;
    p.page_shift = c.page ? fd_ceil_log2(c.page) : 30;
    p.token_stride = row, p.head_stride = page_tokens * row;  // [page][K|V][head][token][dim]
    p.page_stride = (uint64_t)2 * c.kv_heads * page_tokens * row;
    p.k = kv.address();
    p.v = p.k + p.page_stride / 2;
    pages.resize(B * per);
    std::iota(pages.begin(), pages.end(), 0);
    if (c.addressing == CONTIGUOUS) p.seq_stride = per * p.page_stride;
    if (c.addressing == FLAT) {
      for (int b = 0; b < B; b++) base[b] = p.k + (uint64_t)(B - 1 - b) * per * p.page_stride;
      for (int i = 0; i < B * per; i++) pages[i] = (B - 1 - i / per) * per + i % per;
      p.seq_base = base.address();
      p.v -= p.k;
      p.k = 0;
    }
    if (c.addressing == TABLE || c.addressing == CSR) {
      std::reverse(pages.begin(), pages.end());
      std::swap(pages.front(), pages[pages.size() / 2]);
      p.table = table.address();
      if (c.addressing == TABLE) p.table_stride = per;
      else p.table_indptr = indptr.address();
    }
    table.fill(1 << 30);  // a page that does not exist
    int n = 0;
    for (int b = 0; b < B; b++) {
      indptr[b] = n;
      for (int e = 0; e < per && c.page && e * c.page < c.len[b]; e++) table[c.addressing == TABLE ? b * per + e : n++] = pages[b * per + e];
    }
    indptr[B] = n;
    if (c.ragged()) p.q_indptr = q_indptr.address();
    p.flags = fd_decode_flags((c.causal ? FD_CAUSAL : 0) | (c.early ? FD_EARLY_KV : 0), p.q_len, p.window_left, p.window_right, p.q_indptr, p.table_indptr, p.seq_base, p.items);
  }

  size_t at(int which, int b, int j, int h) const {
    return (((size_t)(pages[b * per + j / page_tokens] * 2 + which) * c.kv_heads + h) * page_tokens + j % page_tokens) * row_elements(c);
  }
  // First position that any row of a sequence attends; what is left of it stays NaN.
  int lowest(int b) const { return c.left >= 0 ? std::max(0, c.len[b] - c.q_len[b] - c.left) : 0; }

  void inputs(Test& t) {
    for (int b = 0, n = 0; b < B; n += c.q_len[b++]) {
      len[b] = c.len[b], q_indptr[b] = n, q_indptr[b + 1] = n + c.q_len[b];
      for (int j = lowest(b); j < c.len[b]; j++)
        for (int h = 0; h < c.kv_heads; h++)
          for (int e = 0; e < c.d; e++)
            for (int w = 0; w < 2; w++) from_float(kv[at(w, b, j, h) + e], (float)t.normal());
    }
    for (size_t i = 0; i < (size_t)c.q_tokens() * heads * c.d; i++) from_float(q[i], (float)(c.q_scale * t.normal()));
    for (int h = 0; h < c.kv_heads; h++) k_scale[h] = 0.5f + h, v_scale[h] = 2.f - h * 0.25f;
    for (float& x : sinks) x = (float)(2 * t.normal());
    counters.fill(0);
    kv.read_only(), q.read_only(), len.read_only(), table.read_only();
  }

  void expect(int b, int i, int token, int hq, std::vector<double>& o, double& l) const {
    const int h = hq / c.group, pos = c.len[b] - c.q_len[b] + i;
    int lo = 0, hi = c.len[b];
    if (c.causal) hi = std::min(hi, pos + 1);
    if (c.right >= 0) hi = std::min(hi, pos + c.right + 1);
    if (c.left >= 0) lo = std::max(lo, pos - c.left);
    std::vector<double> s;
    double m = c.sinks ? sinks[hq] : -INFINITY, sum = 0;
    for (int j = lo; j < hi; j++) {
      double a = 0;
      for (int e = 0; e < c.d; e++) a += (double)to_float(q[((size_t)token * heads + hq) * c.d + e]) * to_float(kv[at(0, b, j, h) + e]);
      a *= (S::FP8 ? k_scale[h] : 1.0) / sqrt((double)c.d);
      s.push_back(c.softcap > 0 ? c.softcap * tanh(a / c.softcap) : a);
      m = std::max(m, s.back());
    }
    if (c.sinks) sum = exp(sinks[hq] - m);
    o.assign(c.d, 0);
    for (int j = lo; j < hi; j++) {
      const double w = exp(s[j - lo] - m);
      sum += w;
      for (int e = 0; e < c.d; e++) o[e] += w * to_float(kv[at(1, b, j, h) + e]) * (S::FP8 ? v_scale[h] : 1.0);
    }
    for (double& x : o) x = sum > 0 ? x / sum : 0;
    l = sum > 0 ? m + log(sum) : -INFINITY;
  }

  void check(Test& t) const {
    // Weights and outputs are rounded to 16 bits: relative 2^-9 (bf16) or 2^-12; values are below 6, times v_scale.
    const double unit = std::is_same<Q, bf16>::value ? 1.0 / 512 : 1.0 / 4096;
    std::vector<double> o;
    double l;
    for (int b = 0, token = 0; b < B; b++)
      for (int i = 0; i < c.q_len[b]; i++, token++)
        for (int hq = 0; hq < heads; hq++) {
          expect(b, i, token, hq, o, l);
          const size_t row = (size_t)token * heads + hq;
          t.near("lse", row, lse[row], l, 2e-5 + 2e-6 * fabs(l));
          for (int e = 0; e < c.d; e++) t.near("out", row * c.d + e, to_float(out[row * c.d + e]), o[e], 8 * unit * (0.25 + fabs(o[e])) + 1e-6);
        }
  }

  // Buffers that kernels have to hand back as they found them.
  void check_clean(Test& t) const {
    for (size_t i = 0; i < mailbox.size(); i++)
      if (__float_as_uint(mailbox[i]) != ~0u) return t.fail("mailbox word %zu is not empty", i);
    for (size_t i = 0; i < counters.size(); i++) t.equal("counter", i, counters[i], 0);
  }
};

template <class S, int COMBINE, int PAGING = FAST> void add(emu::Suite& s, const std::string& name, const Call& call) {
  s.add(name, [=](Test& t) {
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

// Kernels without options run the cases without them; everything else has them compiled in.
template <class S> using Plain = Shape<typename S::KV, typename S::Q, S::D, S::N, S::W, false>;
bool plain(const Call& c) {
  return !c.ragged() && c.q_len[0] == 1 && c.left < 0 && c.right < 0 && c.softcap == 0 && !c.sinks && c.addressing != CSR;
}

// A kernel of each combine over one call; P, chunk as the call asks for.
template <class S> void add_all(emu::Suite& s, const std::string& name, Call c, bool fast = true) {
  if (S::OPTIONS && fast && plain(c)) add_all<Plain<S>>(s, name + "/plain", c);
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

Call call(std::vector<int> len, std::vector<int> q_len = {}) {
  Call c;
  c.len = len;
  c.q_len = q_len.empty() ? std::vector<int>(len.size(), 1) : q_len;
  return c;
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
  for (int n : {333, 0, 1, 15, 16, 17}) add_all<Bf128>(s, "len=" + std::to_string(n), call({n}));
  Call c = call({700});  // more tiles than page numbers read ahead
  c.chunk = 1000, c.P = 1, c.kv_heads = 1;
  add<Shape<bf16, bf16, 64, 8, 1, true>, CHUNK>(s, "len=700/one warp", c);
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

}  // namespace

void emu::cases(emu::Suite& s) {
  lengths(s);
  options(s);
  shapes(s);
  addressing(s);
}
