// Merge kernels in the emulator: the second launch of Flash-Decoding, over the grid and over a plan, and pairs of (O, LSE).
#include "merge.cuh"
#include "decode_rig.h"

using namespace rig;

namespace {

template <class S> emu::Launch decode_launch(emu::Dim grid) {
  emu::Launch how;
  how.grid = grid;
  how.block = {S::THREADS};
  how.shared_bytes = fd_decode_smem(S::ROW, S::D, S::N, S::W, S::STAGES);
  return how;
}

template <class S> void two_launches(emu::Suite& s, const std::string& name, const Call& call, bool dependent) {
  s.add(name + (dependent ? "/dependent" : ""), [=](Test& t) {
    Rig<S> r(t, call);
    r.p.flags |= FD_PARTIALS;
    const unsigned units = (unsigned)(r.B << r.p.row_tiles_log2), heads = (unsigned)r.c.kv_heads;
    emu::launch(decode_launch<S>({(unsigned)r.c.P, heads, units}), [&] { decode<S, CHUNK, FAST>(r.p); });
    emu::Launch how;
    how.grid = {(unsigned)(r.p.state_rows * S::ROW_F4 + FD_MERGE_F4 - 1) / FD_MERGE_F4, heads, units};
    how.block = {128};
    how.dependent = dependent;
    emu::launch(how, [&] { merge_states_kernel<Shape<e4m3, typename S::Q, S::D, 8, 8, true>>(r.p); });
    emu::sync();
    r.check(t);
  });
}

// A plan by hand: every sequence cut at multiples of `cut` tokens, longest items first is not required of it. One item more than
// needed, to be ignored.
template <class S, int PAGING = FAST> void planned(emu::Suite& s, const std::string& name, const Call& call, int cut, bool partials) {
  s.add(name + (partials ? "/partials" : "/one launch"), [=](Test& t) {
    Rig<S> r(t, call);
    std::vector<FdItem> items;
    std::vector<FdMergeItem> merges;
    int state = 0, most = 1;
    for (int b = r.B - 1; b >= 0; b--)
      for (int h = 0; h < r.c.kv_heads; h++) {
        const int len = r.c.len[b], splits = std::max(1, (len + cut - 1) / cut), rows = r.c.q_len[b], slots = rows * r.c.group;
        most = std::max(most, slots);
        for (int k = 0; k < splits; k++) items.push_back({b, h, 0, rows, k * cut, std::min(cut, len - k * cut), splits > 1 ? state + k * slots : -1, splits > 1 ? (int)merges.size() : -1});
        if (splits == 1) continue;
        merges.push_back({b, h, 0, rows, state, splits});
        state += splits * slots;
      }
    Buffer<FdItem> item_buffer(items.size(), "items");
    Buffer<FdMergeItem> merge_buffer(std::max<size_t>(1, merges.size()), "merges");
    Buffer<int> counts(2, "counts");
    std::copy(items.begin(), items.end(), item_buffer.begin());
    std::copy(merges.begin(), merges.end(), merge_buffer.begin());
    counts[0] = (int)items.size(), counts[1] = (int)merges.size();
    r.p.items = item_buffer.address(), r.p.merges = merge_buffer.address(), r.p.item_count = counts.address(), r.p.merge_count = counts.address() + 4;
    r.p.flags |= FD_ITEMS | (partials ? FD_PARTIALS : 0);
    emu::launch(decode_launch<S>({(unsigned)items.size() + 1, (unsigned)((most + S::N - 1) / S::N), 1}), [&] { decode<S, CHUNK, PAGING>(r.p); });
    emu::Launch how;
    how.grid = {(unsigned)merges.size() + 1, (unsigned)(most * S::ROW_F4 + FD_MERGE_F4 - 1) / FD_MERGE_F4, 1};
    how.block = {128};
    if (partials) emu::launch(how, [&] { merge_states_kernel<Shape<e4m3, typename S::Q, S::D, 8, 8, true>>(r.p); });
    emu::sync();
    r.check(t);
    r.check_clean(t);
  });
}

template <class T> void pairs(emu::Suite& s, const std::string& name, int count, int rows, int d, bool in_place) {
  s.add(name + "/count=" + std::to_string(count) + (in_place ? "/in place" : ""), [=](Test& t) {
    Buffer<T> o((size_t)count * rows * d, "o"), out((size_t)rows * d, "out");
    Buffer<float> lse((size_t)count * rows, "lse"), out_lse(rows, "out_lse");
    std::vector<double> want(out.size()), want_lse(rows);
    for (int r = 0; r < rows; r++) {
      double m = -INFINITY, l = 0;
      for (int i = 0; i < count; i++) {
        const bool empty = t.below(4) == 0 || r == 0;  // row 0: all empty; an empty pair's O stays NaN
        lse[i * rows + r] = empty ? -INFINITY : (float)(20 * t.normal());
        m = std::max(m, (double)lse[i * rows + r]);
        for (int e = 0; e < d && !empty; e++) {
          if constexpr (std::is_same<T, float>::value) o[((size_t)i * rows + r) * d + e] = (float)t.normal();
          else from_float(o[((size_t)i * rows + r) * d + e], (float)t.normal());
        }
      }
      for (int i = 0; i < count; i++) {
        if (std::isinf(lse[i * rows + r])) continue;
        const double w = exp(lse[i * rows + r] - m);
        l += w;
        for (int e = 0; e < d; e++) {
          const T& x = o[((size_t)i * rows + r) * d + e];
          if constexpr (std::is_same<T, float>::value) want[(size_t)r * d + e] += w * x;
          else want[(size_t)r * d + e] += w * to_float(x);
        }
      }
      for (int e = 0; e < d; e++) want[(size_t)r * d + e] = l > 0 ? want[(size_t)r * d + e] / l : 0;
      want_lse[r] = l > 0 ? m + log(l) : -INFINITY;
    }
    FdMergePairsParams p = {};
    const int last = count - 1;
    p.o = o.address(), p.lse = lse.address(), p.rows = rows, p.count = count, p.head_dim = d;
    p.o_row_stride = p.out_row_stride = d * sizeof(T), p.o_pair_stride = rows * p.o_row_stride, p.lse_pair_stride = rows * 4;
    p.out = in_place ? p.o + last * p.o_pair_stride : out.address();
    p.out_lse = in_place ? p.lse + last * p.lse_pair_stride : out_lse.address();
    emu::Launch how;
    how.grid = {(unsigned)(rows + 3) / 4};
    how.block = {128};
    emu::run(how, [&] { merge_pairs<T>(p); });
    const T* got = (const T*)p.out;
    const double unit = std::is_same<T, float>::value ? 1e-5 : std::is_same<T, f16>::value ? 1.0 / 2048 : 1.0 / 256;
    for (int r = 0; r < rows; r++) {
      t.near("lse", r, ((const float*)p.out_lse)[r], want_lse[r], 1e-5 + 1e-6 * fabs(want_lse[r]));
      for (int e = 0; e < d; e++) {
        double x;
        if constexpr (std::is_same<T, float>::value) x = got[(size_t)r * d + e];
        else x = to_float(got[(size_t)r * d + e]);
        t.near("out", (size_t)r * d + e, x, want[(size_t)r * d + e], unit * (0.1 + fabs(want[(size_t)r * d + e])));
      }
    }
  });
}

using F = Shape<f16, f16, 64, 8, 2, true>;
using F16 = Shape<f16, f16, 64, 16, 2, true>;
using B = Shape<bf16, bf16, 128, 8, 4, true>;

}  // namespace

void emu::cases(emu::Suite& s) {
  for (bool dependent : {false, true}) {
    Call c = call({300, 0, 70, 96});
    c.kv_heads = 2, c.chunk = 3, c.P = 7;
    two_launches<F>(s, "states", c, dependent);
    two_launches<B>(s, "states bf16", c, dependent);
    c = call({300, 0, 70, 96}, {3, 1, 2, 0});
    c.group = 5, c.chunk = 3, c.P = 7, c.sinks = true;
    two_launches<F16>(s, "states of rows", c, dependent);
    two_launches<F>(s, "states of row tiles", c, dependent);
    c = call({300, 170});
    c.left = 150, c.chunk = 2, c.P = 6;
    two_launches<F>(s, "states in a window", c, dependent);
    c = call({300, 170});
    c.chunk = 5, c.P = 4;
    two_launches<Shape<e4m3, bf16, 64, 8, 2, false>>(s, "states e4m3", c, dependent);
  }
  for (bool partials : {false, true}) {
    Call c = call({300, 0, 70, 96});
    c.kv_heads = 2;
    planned<Shape<f16, f16, 64, 8, 2, false>>(s, "plan", c, 64, partials);
    planned<F>(s, "plan, cut within tiles", c, 77, partials);
    c.page = 7;
    planned<F, ANY>(s, "plan, pages of 7", c, 77, partials);
    c = call({300, 0, 70, 96}, {3, 1, 2, 4});
    c.group = 6;
    planned<F>(s, "plan of row tiles", c, 64, partials);
    planned<F16>(s, "plan of rows", c, 64, partials);
  }
  for (int count : {1, 2, 5}) for (bool in_place : {false, true}) {
    pairs<float>(s, "pairs f32", count, 5, 64, in_place);
    pairs<bf16>(s, "pairs bf16", count, 9, 136, in_place);
    pairs<f16>(s, "pairs f16", count, 1, 8, in_place);
  }
}
