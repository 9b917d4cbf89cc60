// What prefill_check.cu is made of: cases of prefill and mla, their memory and launches, and a reference that accumulates in
// float64 on the device, for rows drawn at random.
#pragma once
#include <cuda_runtime.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>
#include "../../prim/prim.cuh"
#include "../params_prefill.h"

#define CK(x) do { cudaError_t e_ = (x); if (e_) { printf("{\"error\":\"%s\",\"line\":%d}\n", cudaGetErrorString(e_), __LINE__); exit(1); } } while (0)

// Kernels come from the images that the product loads: <unit>.sm_90a in $FD_IMAGES (default .device).
using Kernel = void*;
static Kernel load(const std::string& unit, const std::string& name, int shared_bytes = 0) {
  const char* folder = getenv("FD_IMAGES");
  cudaLibrary_t library; cudaKernel_t k;
  CK(cudaLibraryLoadFromFile(&library, (std::string(folder ? folder : ".device") + "/" + unit + ".sm_90a").c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  CK(cudaLibraryGetKernel(&k, library, name.c_str()));
  if (shared_bytes) CK(cudaFuncSetAttribute((const void*)k, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  return (Kernel)k;
}
struct Prefill { int D; bool f16, wg; Kernel fn; };
static std::vector<Prefill> prefills;
static Kernel mla_bf16, mla_f16;

// ---- the case

enum Mode { CONTIGUOUS, TABLE, FLAT };
struct Case {
  std::string name;
  std::vector<int> len, q_len;
  int kv_heads = 8, group = 4, dim = 128, page = 16;
  bool mla = false, wg = false, f16 = false, causal = true, sinks = false, resident = false, pdl = false;
  Mode mode = TABLE;
  int left = -1, right = -1, splits = 1, chunk = 0;
  float softcap = 0, q_scale = 1;
  std::vector<int> item_splits;  // prefill by items
  int heads() const { return mla ? group : kv_heads * group; }
  int out_dim() const { return mla ? 512 : dim; }
  int longest() const { return *std::max_element(len.begin(), len.end()); }
  int longest_q() const { return *std::max_element(q_len.begin(), q_len.end()); }
  int64_t tokens() const { int64_t n = 0; for (int q : q_len) n += q; return n; }
  int pages(int b) const { return (len[b] + page - 1) / page; }
  int64_t page_bytes() const { return (int64_t)page * dim * 2 * (mla ? 1 : 2 * kv_heads); }
  int64_t total_pages() const { int64_t n = 0; for (size_t b = 0; b < len.size(); b++) n += mode == CONTIGUOUS ? (longest() + page - 1) / page : pages((int)b); return n; }
  int64_t kv_bytes() const { return std::max<int64_t>(1, total_pages()) * page_bytes(); }
};

constexpr size_t kPool = 4ull << 30, kQ = 512ull << 20, kStates = 512ull << 20;
static char *pool, *q, *out, *states, *states_ml, *items, *merges;
static float *lse, *sinks;
static int *kv_len, *q_indptr, *table, *table_indptr;
static uint64_t* seq_base;
static unsigned* counters;
static cudaStream_t st;
static cudaEvent_t ea, eb;
static int failures;

static uint64_t dev(const void* p) { return (uint64_t)(uintptr_t)p; }
template <class T> static void upload(void* to, const std::vector<T>& v) { if (!v.empty()) CK(cudaMemcpy(to, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice)); }

static FdDecodeParams prepare(const Case& c) {
  FdDecodeParams p{};
  std::vector<int> indptr{0}, tab, qi{0};
  std::vector<uint64_t> base;
  std::mt19937 r(1);
  const int64_t per = (c.longest() + c.page - 1) / c.page;
  std::vector<int> order(c.total_pages());
  for (size_t i = 0; i < order.size(); i++) order[i] = (int)i;
  std::shuffle(order.begin(), order.end(), r);
  for (size_t b = 0; b < c.len.size(); b++) {
    for (int i = 0; i < c.pages((int)b); i++) tab.push_back(order[indptr[b] + i]);
    base.push_back(dev(pool) + (uint64_t)indptr[b] * c.page_bytes());
    indptr.push_back(indptr[b] + c.pages((int)b));
    qi.push_back(qi[b] + c.q_len[b]);
  }
  tab.push_back(1 << 30);
  upload(kv_len, c.len); upload(q_indptr, qi); upload(table, tab); upload(table_indptr, indptr); upload(seq_base, base);
  if (c.mode == TABLE) { p.table = dev(table); p.table_indptr = dev(table_indptr); }
  if (c.mode == FLAT) p.seq_base = dev(seq_base);
  p.seq_stride = c.mode == CONTIGUOUS ? per * c.page_bytes() : 0;
  p.page_stride = c.page_bytes(); p.page_size = c.page; p.token_stride = c.dim * 2; p.head_stride = c.page * c.dim * 2;
  p.q = dev(q); p.out = dev(out); p.lse = dev(lse); p.k = c.mode == FLAT ? 0 : dev(pool); p.v = p.k + (c.mla ? 0 : c.page_bytes() / 2);
  p.kv_len = dev(kv_len); p.q_indptr = dev(q_indptr); p.sinks = c.sinks ? dev(sinks) : 0;
  p.q_token_stride = c.heads() * c.dim * 2; p.out_token_stride = c.heads() * c.out_dim() * 2;
  p.kv_heads = c.mla ? 1 : c.kv_heads; p.group = c.group; p.head_dim = c.dim; p.q_len = c.q_len[0]; p.chunk_tiles = c.chunk;
  p.scale_log2 = 1.4426950408889634f / sqrtf(c.mla ? 192.f : (float)c.dim);
  p.flags = (c.causal ? FD_CAUSAL : 0) | FD_MASKED | (c.resident ? FD_RESIDENT : 0);
  p.softcap = c.softcap; p.window_left = c.left; p.window_right = c.right;
  p.state_o = dev(states); p.state_ml = dev(states_ml); p.counters = dev(counters);
  if (!c.item_splits.empty()) {
    std::vector<FdItem> it;
    std::vector<FdMergeItem> me;
    int state = 0;
    for (size_t b = 0; b < c.len.size(); b++) for (int row = 0; row < c.q_len[b]; row += 128 / c.group) for (int h = 0; h < c.kv_heads; h++) {
      const int n = c.item_splits[b], rows = std::min(128 / c.group, c.q_len[b] - row);
      if (n > 1) me.push_back(FdMergeItem{(int)b, h, row, rows, state, n});
      for (int s = 0; s < n; s++) {
        const int first = (int)((int64_t)c.pages((int)b) * s / n) * c.page, end = std::min(c.len[b], (int)((int64_t)c.pages((int)b) * (s + 1) / n) * c.page);
        it.push_back(FdItem{(int)b, h, row, rows, first, end - first, n > 1 ? state : -1, n > 1 ? (int)me.size() - 1 : -1});
        if (n > 1) state += rows * c.group;
      }
    }
    std::stable_sort(it.begin(), it.end(), [&](const FdItem& a, const FdItem& b) { return (int64_t)a.count * a.rows > (int64_t)b.count * b.rows; });
    upload(items, it); upload(merges, me);
    p.items = dev(items); p.merges = dev(merges); p.splits = (int)it.size();
  }
  return p;
}

static FdDecodeParams at_set(const Case& c, FdDecodeParams p, int set) {  // another copy of the cache (not in flat mode)
  const uint64_t o = (uint64_t)(set % std::max<int64_t>(1, (int64_t)(kPool / c.kv_bytes()))) * c.kv_bytes();
  p.k += o; p.v += o;
  return p;
}

static void launch(const Case& c, const FdDecodeParams& p) {
  dim3 grid, block;
  Kernel fn = nullptr;
  int shared;
  if (c.mla) {
    fn = c.f16 ? mla_f16 : mla_bf16; block = FD_MLA_THREADS; shared = FD_MLA_SHARED_BYTES;
    grid = dim3(c.splits, (c.longest_q() * c.group + 63) / 64, c.len.size());
  } else {
    int D = 0;
    for (auto& k : prefills) if (k.f16 == c.f16 && k.wg == c.wg && k.D >= c.dim && !fn) { fn = k.fn; D = k.D; }
    block = c.wg ? FD_PREFILL_WG_THREADS : fd_prefill_warps(D) * 32; shared = c.wg ? fd_prefill_wg_shared_bytes(D) : fd_prefill_shared_bytes(D);
    const int tokens = fd_prefill_rows(D) / c.group;
    grid = c.item_splits.empty() ? dim3((c.longest_q() + tokens - 1) / tokens, c.kv_heads, c.len.size()) : dim3(p.splits, 1, 1);
  }
  void* args[] = {(void*)&p};
  if (c.pdl) {  // resident as well: the blocks of a launch start only when all of the one before run, and end without help
    cudaLaunchConfig_t config{};
    cudaLaunchAttribute a{};
    a.id = cudaLaunchAttributeProgrammaticStreamSerialization; a.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = grid; config.blockDim = block; config.dynamicSmemBytes = shared; config.stream = st; config.attrs = &a; config.numAttrs = 1;
    CK(cudaLaunchKernelExC(&config, fn, args));
  } else if (c.resident) CK(cudaLaunchCooperativeKernel(fn, grid, block, args, shared, st));
  else CK(cudaLaunchKernel(fn, grid, block, args, shared, st));
}

// ---- inputs and reference

__device__ float noise(uint64_t i) {  // about normal: the sum of four uniforms
  i = (i + 1) * 0x9E3779B97F4A7C15ull; i ^= i >> 29; i *= 0xBF58476D1CE4E5B9ull; i ^= i >> 32;
  return ((i & 0xffff) + (i >> 16 & 0xffff) + (i >> 32 & 0xffff) + (i >> 48)) * (1.f / 65536) * 1.732f - 3.464f;
}
__global__ void fill(uint16_t* p, size_t n, bool f16, float scale) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
    fd::bf16 b; fd::f16 h;
    fd::from_float(b, noise(i) * scale); fd::from_float(h, noise(i) * scale);
    p[i] = f16 ? h.bits : b.bits;
  }
}
__device__ const uint16_t* cache_row(const FdDecodeParams& p, bool v, int seq, int head, int j) {
  const int i = j / p.page_size;
  const uint64_t page = p.table ? ((const int*)p.table)[((const int*)p.table_indptr)[seq] + i] : i;
  const uint64_t base = p.table ? 0 : p.seq_base ? ((const uint64_t*)p.seq_base)[seq] : seq * p.seq_stride;
  return (const uint16_t*)((v ? p.v : p.k) + base + page * p.page_stride + (uint64_t)(j - i * p.page_size) * p.token_stride + (uint64_t)head * p.head_stride);
}
__global__ void fill_valid(FdDecodeParams p, bool f16, bool mla) {  // grid (tokens, seqs)
  const int j = blockIdx.x, b = blockIdx.y;
  if (j >= ((const int*)p.kv_len)[b]) return;
  for (int h = 0; h < p.kv_heads; h++) for (int v = 0; v < (mla ? 1 : 2); v++) for (int i = threadIdx.x; i < p.head_dim; i += blockDim.x) {
    fd::bf16 x; fd::f16 y;
    const float n = noise((((uint64_t)b << 22 | j) * 64 + h * 2 + v) * 1024 + i);
    fd::from_float(x, n); fd::from_float(y, n);
    ((uint16_t*)cache_row(p, v, b, h, j))[i] = f16 ? y.bits : x.bits;
  }
}
struct Row { int seq, i, token, head; };
__device__ double number(uint16_t x, bool f16) { return f16 ? fd::to_float(fd::f16{x}) : fd::to_float(fd::bf16{x}); }
__global__ void reference(FdDecodeParams p, const Row* rows, bool f16, bool mla, double* scratch, int stride, float* o, float* l) {
  __shared__ double red[256];
  const Row r = rows[blockIdx.x];
  const int len = ((const int*)p.kv_len)[r.seq], q_len = ((const int*)p.q_indptr)[r.seq + 1] - ((const int*)p.q_indptr)[r.seq], pos = len - q_len + r.i, t = threadIdx.x;
  const int lo = p.window_left >= 0 ? max(0, pos - p.window_left) : 0, hi = min(min(len - 1, p.flags & FD_CAUSAL ? pos : len), p.window_right >= 0 ? pos + p.window_right : len);
  const int heads = p.kv_heads * p.group, dv = mla ? 512 : p.head_dim, kvh = r.head / p.group;
  const uint16_t* x = (const uint16_t*)(p.q + (uint64_t)r.token * p.q_token_stride) + (size_t)r.head * p.head_dim;
  double* s = scratch + (size_t)blockIdx.x * stride;
  double m = -INFINITY;
  for (int j = lo + t; j <= hi; j += 256) {
    const uint16_t* k = cache_row(p, false, r.seq, kvh, j);
    double d = 0;
    for (int i = 0; i < p.head_dim; i++) d += number(x[i], f16) * number(k[i], f16);
    d *= p.scale_log2 * 0.6931471805599453;
    if (p.softcap > 0) d = p.softcap * tanh(d / p.softcap);
    s[j - lo] = d;
    m = max(m, d);
  }
  red[t] = m; __syncthreads();
  for (int w = 128; w; w /= 2) { if (t < w) red[t] = max(red[t], red[t + w]); __syncthreads(); }
  m = red[0]; __syncthreads();
  const double sink = p.sinks ? ((const float*)p.sinks)[r.head] : -INFINITY;
  m = max(m, sink);
  double sum = 0;
  for (int j = lo + t; j <= hi; j += 256) { s[j - lo] = exp(s[j - lo] - m); sum += s[j - lo]; }
  red[t] = sum; __syncthreads();
  for (int w = 128; w; w /= 2) { if (t < w) red[t] += red[t + w]; __syncthreads(); }
  sum = red[0] + (sink > -INFINITY ? exp(sink - m) : 0);
  for (int i = t; i < dv; i += 256) {
    double a = 0;
    for (int j = lo; j <= hi; j++) a += s[j - lo] * number(cache_row(p, !mla, r.seq, kvh, j)[i], f16);
    o[(size_t)blockIdx.x * 512 + i] = sum > 0 ? a / sum : 0;
  }
  if (t == 0) l[blockIdx.x] = sum > 0 ? log(sum) + m : -INFINITY;
  (void)heads;
}

// Checks up to most rows of the output against the reference.
static double *scratch; static float *ref_o, *ref_l; static Row* ref_rows;
static void check(const Case& c, const FdDecodeParams& p, int most, int runs) {
  const size_t n = (size_t)c.tokens() * c.heads();
  std::vector<uint16_t> got(n * c.out_dim()), again(n * c.out_dim());
  std::vector<float> got_l(n);
  bool same = true;
  for (int i = 0; i < runs; i++) {
    CK(cudaMemsetAsync(out, 0xff, n * c.out_dim() * 2, st)); CK(cudaMemsetAsync(lse, 0xff, n * 4, st));
    launch(c, p);
    CK(cudaStreamSynchronize(st));
    CK(cudaMemcpy((i ? again : got).data(), out, got.size() * 2, cudaMemcpyDeviceToHost));
    if (i) same &= !memcmp(got.data(), again.data(), got.size() * 2);
  }
  CK(cudaMemcpy(got_l.data(), lse, n * 4, cudaMemcpyDeviceToHost));
  std::vector<Row> all, rows;
  for (size_t b = 0, t = 0; b < c.len.size(); t += c.q_len[b++]) for (int i = 0; i < c.q_len[b]; i++) for (int h = 0; h < c.heads(); h++) all.push_back({(int)b, i, (int)t + i, h});
  std::mt19937 r(7);
  most = std::min<int64_t>(most, (512ll << 20) / 8 / std::max(1, c.longest()));
  if ((int)all.size() <= most) rows = all; else for (int i = 0; i < most; i++) rows.push_back(all[i < 8 ? i : i < 16 ? all.size() - i + 7 : r() % all.size()]);
  upload(ref_rows, rows);
  reference<<<rows.size(), 256, 0, st>>>(p, ref_rows, c.f16, c.mla, scratch, std::max(1, c.longest()), ref_o, ref_l);
  std::vector<float> want(rows.size() * 512), want_l(rows.size());
  CK(cudaStreamSynchronize(st));
  CK(cudaMemcpy(want.data(), ref_o, want.size() * 4, cudaMemcpyDeviceToHost));
  CK(cudaMemcpy(want_l.data(), ref_l, want_l.size() * 4, cudaMemcpyDeviceToHost));
  double wrong = 0, size = 0, worst_l = 0;
  for (size_t i = 0; i < rows.size(); i++) {
    const size_t row = (size_t)rows[i].token * c.heads() + rows[i].head;
    for (int e = 0; e < c.out_dim(); e++) {
      const uint16_t x = got[row * c.out_dim() + e];
      uint32_t u = (uint32_t)x << 16; float f; memcpy(&f, &u, 4);
      if (c.f16) { _Float16 h; memcpy(&h, &x, 2); f = (float)h; }
      const double d = f - want[i * 512 + e];
      wrong += d == d ? d * d : 1e30; size += (double)want[i * 512 + e] * want[i * 512 + e];
    }
    const double l = got_l[row] == want_l[i] ? 0 : std::fabs(got_l[row] - want_l[i]) / (1e-5 + 1e-6 * std::fabs(want_l[i]));
    worst_l = std::max(worst_l, l == l ? l : 1e30);
  }
  const double err = size > 0 ? sqrt(wrong / size) : sqrt(wrong);
  const bool bad = !(err < (c.f16 ? 6e-4 : 4.5e-3)) || !(worst_l <= (c.q_scale > 10 ? 1e4 : 3)) || !same;
  failures += bad;
  printf("{\"check\":\"%s\",\"rows\":%zu,\"err\":%.3g,\"lse\":%.3g,\"same\":%d,\"ok\":%d}\n", c.name.c_str(), rows.size(), err, worst_l, same, !bad);
  fflush(stdout);
}
