// append and copy against float64: every element of q and of the cache, what was not to be written included.
#include <string.h>
#include "append.cuh"
#include "copy.cuh"
#include "cache_emu.h"

using namespace fd;
using cache::Cache;
using emu::Buffer;
using emu::Test;

namespace {

struct Case {
  std::string name;
  cache::Mode mode = cache::kTable;
  int q_heads = 4, kv_heads = 2, k_dim = 64, v_dim = 64, page = 16, pairs = 32, spread = 2;
  bool interleaved = false, in_place = true;
  std::vector<std::vector<int>> positions;  // of each sequence's rows; -1: padding
};

template <class T> struct Matrix {
  Buffer<T> data;
  int columns;
  Matrix(Test& t, int rows, int columns, const char* name) : data((size_t)std::max(rows, 1) * columns, name), columns(columns) {
    for (T& x : data) from_float(x, (float)t.normal());
  }
  T* row(int r, int head, int dim) const { return data.data() + (int64_t)r * columns + head * dim; }
};

// One head's row after the rotation, in float64.
template <class T> std::vector<double> rotated(const Case& c, const T* x, int dim, bool turns, int position, const Buffer<float>& freq, double scale) {
  std::vector<double> y(dim);
  for (int i = 0; i < dim; i++) y[i] = to_float(x[i]);
  if (turns) for (int i = 0; i < c.pairs; i++) {
    const int a = c.interleaved ? 2 * i : i, b = c.interleaved ? 2 * i + 1 : i + c.pairs;
    const double angle = (double)position * freq[i], co = std::cos(angle) * scale, si = std::sin(angle) * scale, u = y[a], v = y[b];
    y[a] = u * co - v * si;
    y[b] = u * si + v * co;
  }
  return y;
}

// Half a unit in the last place of the result, and three float32 roundings before it.
double tolerance(double want, int mantissa, double smallest) {
  const int e = std::ilogb(std::max(std::fabs(want), smallest));
  return std::ldexp(0.5, e - mantissa) * (1 + 1e-3) + std::fabs(want) * 4e-7 + 1e-6;
}
template <class T> double tolerance_of(double want) { return sizeof(T) == 1 ? tolerance(want, 3, 0x1p-6) : half::is_bf16<T>::value ? tolerance(want, 7, 0x1p-126) : tolerance(want, 10, 0x1p-14); }

template <int E, class S, class D> void run(Test& t, const Case& c) {
  const int batch = (int)c.positions.size();
  Buffer<int32_t> q_indptr(batch + 1, "q_indptr");
  std::vector<int> flat, seq, room;
  q_indptr[0] = 0;
  for (int b = 0; b < batch; b++) {
    int most = 0;
    for (int p : c.positions[b]) { flat.push_back(p); seq.push_back(b); most = std::max(most, p + 1); }
    q_indptr[b + 1] = (int)flat.size();
    room.push_back(most + 5);
  }
  const int rows = (int)flat.size();
  Buffer<int32_t> positions(std::max(rows, 1), "positions");
  for (int r = 0; r < rows; r++) positions[r] = flat[r];
  Cache kv(t, c.mode, {c.kv_heads, c.k_dim, c.v_dim, c.page, (int)sizeof(D)}, room);
  Matrix<S> q(t, rows, c.q_heads * c.k_dim, "q"), k(t, rows, c.kv_heads * c.k_dim, "k"), v(t, rows, c.kv_heads * c.v_dim, "v"), out(t, rows, c.q_heads * c.k_dim, "q_out");
  const std::vector<S> q_before(q.data.begin(), q.data.end());
  Buffer<float> freq(std::max(c.pairs, 1), "inv_freq"), k_scale(c.kv_heads, "k_scale"), v_scale(c.kv_heads, "v_scale");
  for (int i = 0; i < c.pairs; i++) freq[i] = (float)std::pow(10000.0, -(double)i / c.pairs);
  for (int h = 0; h < c.kv_heads; h++) { k_scale[h] = 0.01f * (1 + h); v_scale[h] = 0.02f * (1 + h); }
  k.data.read_only(); v.data.read_only(); positions.read_only(); freq.read_only();
  if (!c.in_place) q.data.read_only();

  FdAppendParams p{};
  p.q = q.data.address(); p.q_out = c.in_place ? p.q : out.data.address(); p.k = k.data.address(); p.v = v.data.address();
  p.k_cache = kv.k(); p.v_cache = kv.v(); p.rows = kv.rows();
  p.positions = positions.address(); p.q_indptr = q_indptr.address(); p.inv_freq = freq.address();
  p.k_scale = k_scale.address(); p.v_scale = v_scale.address();
  p.q_token_stride = p.q_out_token_stride = c.q_heads * c.k_dim * 2; p.q_head_stride = p.q_out_head_stride = c.k_dim * 2;
  p.k_token_stride = c.kv_heads * c.k_dim * 2; p.v_token_stride = c.kv_heads * c.v_dim * 2;
  p.q_heads = c.q_heads; p.kv_heads = c.kv_heads; p.k_head_dim = c.k_dim; p.v_head_dim = c.v_dim;
  p.rope_pairs = c.pairs; p.batch = batch; p.flags = c.interleaved ? FD_ROPE_INTERLEAVED : 0; p.rope_scale = 1.25f;
  emu::run({.grid = {(unsigned)std::max(rows, 1), (unsigned)c.spread}, .block = {append::kThreads}}, [&] { if ((int)blockIdx.x < rows) append::kernel<E, S, D>(p); });

  for (int r = 0; r < rows; r++) for (int h = 0; h < c.q_heads; h++) {
    const S* before = q_before.data() + (int64_t)r * q.columns + h * c.k_dim;
    const auto want = rotated(c, before, c.k_dim, flat[r] >= 0, flat[r], freq, 1.25);
    const S* got = (c.in_place || flat[r] < 0 ? q : out).row(r, h, c.k_dim);
    for (int i = 0; i < c.k_dim; i++) t.near("q", r * 1000 + i, to_float(got[i]), want[i], tolerance_of<S>(want[i]));
  }
  std::vector<char> written(kv.bytes.size());  // by the reference
  for (int r = 0; r < rows; r++) for (int h = 0; h < c.kv_heads && flat[r] >= 0; h++) for (int is_v = 0; is_v < 2; is_v++) {
    const int dim = is_v ? c.v_dim : c.k_dim;
    auto want = rotated(c, (is_v ? v : k).row(r, h, dim), dim, !is_v, flat[r], freq, 1.25);
    const D* got = (const D*)kv.row(is_v, seq[r], h, flat[r]);
    memset(written.data() + ((const char*)got - kv.bytes.data()), 1, dim * sizeof(D));
    const double scale = sizeof(D) > 1 ? 1 : is_v ? v_scale[h] : k_scale[h];
    for (int i = 0; i < dim; i++) {
      const double x = sizeof(D) > 1 ? want[i] : std::max(-448., std::min(448., want[i] / scale));
      t.near(is_v ? "v" : "k", r * 1000 + i, to_float(got[i]), x, tolerance_of<D>(x));
    }
  }
  for (size_t i = 0; i < written.size(); i++) if (!written[i]) t.equal("cache outside of the rows", i, (unsigned char)kv.bytes[i], 0xff);
}

void add(emu::Suite& s, Case c) {
  s.add("append/" + c.name + "/bf16", [=](Test& t) { run<8, bf16, bf16>(t, c); });
  s.add("append/" + c.name + "/f16", [=](Test& t) { run<8, f16, f16>(t, c); });
  s.add("append/" + c.name + "/bf16,e4m3", [=](Test& t) { run<8, bf16, e4m3>(t, c); });
  s.add("append/" + c.name + "/f16,e4m3,any", [=](Test& t) { run<1, f16, e4m3>(t, c); });
  s.add("append/" + c.name + "/bf16,any", [=](Test& t) { run<1, bf16, bf16>(t, c); });
}

void copies(emu::Suite& s) {
  for (int bytes : {4, 16, 60, 4096, 20000}) for (int grid : {1, 3}) s.add("copy_pages/bytes=" + std::to_string(bytes) + "/grid=" + std::to_string(grid), [=](Test& t) {
    const int stride = (bytes + 12) / 4 * 4 + (bytes > 100 ? 16 - (bytes + 12) / 4 * 4 % 16 : 0), pages = 7;
    Buffer<char> pool((size_t)stride * pages, "pool");
    for (char& x : pool) x = (char)t.below(255);
    const std::vector<char> before(pool.begin(), pool.end());
    Buffer<int32_t> src(3, "src"), dst(3, "dst");
    const int from[] = {6, 0, 6}, to[] = {1, 2, 5};
    for (int i = 0; i < 3; i++) { src[i] = from[i]; dst[i] = to[i]; }
    const FdCopyPagesParams p{pool.address(), pool.address(), src.address(), dst.address(), (uint64_t)stride, (uint64_t)bytes};
    emu::run({.grid = {(unsigned)grid, 3}, .block = {copy::kThreads}}, [&] { copy::kernel(p); });
    std::vector<char> want = before;
    for (int i = 0; i < 3; i++) memcpy(want.data() + to[i] * stride, before.data() + from[i] * stride, bytes);
    for (size_t i = 0; i < want.size(); i++) t.equal("pool", i, (unsigned char)pool[i], (unsigned char)want[i]);
  });
}

}  // namespace

void emu::cases(emu::Suite& s) {
  const std::vector<std::vector<int>> some = {{0}, {}, {15, 16, 17}, {-1}, {1 << 10}};
  for (int mode = 0; mode < 3; mode++) for (bool interleaved : {false, true})
    add(s, {.name = std::string(cache::kModeNames[mode]) + (interleaved ? "/interleaved" : "/half"), .mode = (cache::Mode)mode, .interleaved = interleaved, .positions = some});
  add(s, {.name = "no rope", .pairs = 0, .positions = some});
  add(s, {.name = "part turns, q apart", .k_dim = 96, .v_dim = 96, .page = 5, .pairs = 16, .spread = 1, .in_place = false, .positions = some});
  add(s, {.name = "latent", .q_heads = 3, .kv_heads = 1, .k_dim = 64, .v_dim = 512, .page = 64, .interleaved = true, .positions = {{3, 64}}});
  add(s, {.name = "far", .mode = cache::kFlat, .q_heads = 1, .kv_heads = 1, .positions = {{1 << 17}}});
  copies(s);
}
