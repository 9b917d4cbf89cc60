// What the emulator tests of the decode kernels share: calls, their buffers, and float64 to compare with. Memory that a kernel
// must not read, or that no row attends, is NaN.
#pragma once
#include <math.h>
#include <string.h>
#include <algorithm>
#include <functional>
#include <memory>
#include <numeric>
#include "../emu/test.h"
#include "decode.cuh"

namespace rig {

using namespace fd;
using emu::Buffer;
using emu::Test;

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
  bool thorough = false;                          // every seed

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
    if (!c.early) kv.read_only(), q.read_only();
    len.read_only(), table.read_only();
  }

  // hide takes q and the last token of every sequence away; the function it returns, a kernel, brings them back late.
  std::function<void()> hide() {
    auto hidden = std::make_shared<std::vector<std::pair<char*, char>>>();
    auto take = [&](void* p, size_t bytes) {
      for (size_t i = 0; i < bytes; i++) {
        hidden->push_back({(char*)p + i, ((char*)p)[i]});
        ((char*)p)[i] = (char)0xff;
      }
    };
    take(q.data(), q.size() * sizeof(Q));
    for (int b = 0; b < B; b++)
      for (int h = 0; h < c.kv_heads && c.len[b] > 0; h++)
        for (int w = 0; w < 2; w++) take(&kv[at(w, b, c.len[b] - 1, h)], c.d * sizeof(KV));
    return [hidden] {
      pdl_launch();
      for (int i = 0; i < 300; i++) nanosleep(1000);
      for (size_t i = threadIdx.x; i < hidden->size(); i += 32) *(*hidden)[i].first = (*hidden)[i].second;
    };
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

inline Call call(std::vector<int> len, std::vector<int> q_len = {}) {
  Call c;
  c.len = len;
  c.q_len = q_len.empty() ? std::vector<int>(len.size(), 1) : q_len;
  return c;
}

}  // namespace rig
