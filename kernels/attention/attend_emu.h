// One attention call over a test cache, and its result in float64, for kernels that take FdDecodeParams.
#pragma once
#include <limits>
#include <numeric>
#include "cache_emu.h"
#include "rows.cuh"

namespace attend {

using emu::Buffer;
using emu::Test;

struct Call {
  std::string name;
  std::vector<int> kv_len, q_len;
  int kv_heads = 1, group = 4, dim = 64, v_dim = 0, page = 16;  // v_dim 0: as dim. Else V is the front of K's rows
  cache::Mode mode = cache::kTable;
  bool causal = true, sinks = false, lse = true, uniform_q = false;  // uniform_q: no q_indptr, all q_len alike
  int left = -1, right = -1;
  float softcap = 0, q_scale = 1, scale = 0;                         // scale 0: 1 / sqrt(dim)
  int splits = 1, chunk_tiles = 0, runs = 1;                         // as the kernel understands them
  std::vector<int> item_splits;                                      // items: of each sequence
  int out_dim() const { return v_dim ? v_dim : dim; }
  int heads() const { return kv_heads * group; }
};

template <class T> struct Rig {
  const Call c;
  const int batch, tokens;
  cache::Cache kv;
  Buffer<T> q, out;
  Buffer<float> lse, sinks;
  Buffer<int32_t> kv_len, q_indptr;
  FdDecodeParams p{};

  Rig(Test& t, const Call& call)
      : c(call), batch((int)c.kv_len.size()), tokens(std::accumulate(c.q_len.begin(), c.q_len.end(), 0)),
        kv(t, c.mode, {c.kv_heads, c.dim, c.dim, c.page, 2}, room(c)), q((size_t)std::max(1, tokens) * c.heads() * c.dim, "q"),
        out((size_t)std::max(1, tokens) * c.heads() * c.out_dim(), "out"), lse((size_t)std::max(1, tokens) * c.heads(), "lse"),
        sinks(c.heads(), "sinks"), kv_len(batch, "kv_len"), q_indptr(batch + 1, "q_indptr") {
    for (T& x : q) fd::from_float(x, (float)(c.q_scale * t.normal()));
    for (float& x : sinks) x = (float)(2 * t.normal());
    q_indptr[0] = 0;
    for (int b = 0; b < batch; b++) {
      kv_len[b] = c.kv_len[b];
      q_indptr[b + 1] = q_indptr[b] + c.q_len[b];
      for (int h = 0; h < c.kv_heads; h++) for (int j = first_read(b); j < c.kv_len[b]; j++) for (int v = 0; v < (c.v_dim ? 1 : 2); v++) {
        T* row = (T*)kv.row(v, b, h, j);
        for (int i = 0; i < c.dim; i++) fd::from_float(row[i], (float)t.normal());
      }
    }
    q.read_only(); kv.bytes.read_only(); kv_len.read_only(); q_indptr.read_only(); sinks.read_only();
    params();
  }

  static std::vector<int> room(const Call& c) {
    std::vector<int> r;
    for (int n : c.kv_len) r.push_back(n + 3);
    return r;
  }
  // Tokens before this one are outside of every row's window and stay NaN.
  int first_read(int b) const { return c.left < 0 ? 0 : std::max(0, c.kv_len[b] - c.q_len[b] - c.left); }
  double scale() const { return c.scale ? c.scale : 1 / std::sqrt((double)c.dim); }

  void params() {
    const FdKvRows r = kv.rows();
    p.table = r.table; p.table_indptr = r.table_indptr; p.seq_base = r.seq_base; p.page_stride = r.page_stride; p.seq_stride = r.seq_stride;
    p.token_stride = r.token_stride; p.head_stride = r.head_stride; p.page_size = r.page_size;
    p.q = q.address(); p.out = out.address(); p.k = kv.k(); p.v = kv.v(); p.kv_len = kv_len.address();
    p.lse = c.lse ? lse.address() : 0; p.sinks = c.sinks ? sinks.address() : 0;
    p.q_indptr = c.uniform_q ? 0 : q_indptr.address(); p.q_len = c.q_len[0];
    p.q_token_stride = c.heads() * c.dim * 2; p.out_token_stride = c.heads() * c.out_dim() * 2;
    p.kv_heads = c.kv_heads; p.group = c.group; p.head_dim = c.dim; p.scale_log2 = (float)(scale() * M_LOG2E);
    p.flags = c.causal ? FD_CAUSAL : 0; p.softcap = c.softcap; p.window_left = c.left; p.window_right = c.right; p.chunk_tiles = c.chunk_tiles;
  }

  // Rounding of P to T (relative eps), of the result, and of scores whose terms add up to size (float32, in any order).
  void compare(Test& t) const {
    const double eps = fd::half::is_bf16<T>::value ? 0x1p-8 : 0x1p-11;
    std::vector<double> s, o(c.out_dim()), size(c.out_dim());
    for (int b = 0; b < batch; b++) for (int i = 0; i < c.q_len[b]; i++) for (int h = 0; h < c.heads(); h++) {
      const int position = c.kv_len[b] - c.q_len[b] + i, token = q_indptr[b] + i, kv_head = h / c.group;
      const int lo = c.left < 0 ? 0 : std::max(0, position - c.left);
      const int hi = std::min({c.kv_len[b] - 1, c.causal ? position : 1 << 30, c.right < 0 ? 1 << 30 : position + c.right});
      const T* query = q.data() + ((int64_t)token * c.heads() + h) * c.dim;
      s.clear();
      double top = -std::numeric_limits<double>::infinity(), terms = 0, sum = 0;
      for (int j = lo; j <= hi; j++) {
        const T* key = (const T*)kv.row(false, b, kv_head, j);
        double x = 0, y = 0;
        for (int e = 0; e < c.dim; e++) { const double z = (double)fd::to_float(query[e]) * fd::to_float(key[e]); x += z; y += std::fabs(z); }
        x *= scale();
        if (c.softcap > 0) x = c.softcap * std::tanh(x / c.softcap);
        terms = std::max(terms, y * scale());
        s.push_back(x);
        top = std::max(top, x);
      }
      if (c.sinks) top = std::max(top, (double)sinks[h]);
      std::fill(o.begin(), o.end(), 0.); std::fill(size.begin(), size.end(), 0.);
      for (size_t j = 0; j < s.size(); j++) {
        const double w = std::exp(s[j] - top);
        const T* value = (const T*)kv.row(!c.v_dim, b, kv_head, lo + (int)j);
        sum += w;
        for (int e = 0; e < c.out_dim(); e++) { const double v = w * fd::to_float(value[e]); o[e] += v; size[e] += std::fabs(v); }
      }
      if (c.sinks) sum += std::exp(sinks[h] - top);
      const double wrong_scores = sum > 0 ? terms * 0x1p-22 + 4e-7 * (1 + std::fabs(top)) : 0;
      const size_t row = (size_t)token * c.heads() + h;
      for (int e = 0; e < c.out_dim(); e++) {
        const double want = sum > 0 ? o[e] / sum : 0, spread = sum > 0 ? size[e] / sum : 0;
        t.near("out", row * 1000 + e, fd::to_float(out[row * c.out_dim() + e]), want, std::fabs(want) * eps + spread * (eps + 2 * wrong_scores) + 1e-7);
      }
      if (c.lse) t.near("lse", row, lse[row], sum > 0 ? std::log(sum) + top : -std::numeric_limits<double>::infinity(), sum > 0 ? 1e-5 + 1e-6 * std::fabs(top) + wrong_scores : 0);
    }
  }
};

}  // namespace attend
