// Shared by the device programs of this folder: cases, memory, launches. CUDA runtime, no framework; kernels are loaded from
// the cubins in $FD_CUBINS (default .device), as the product loads them. Not part of it: the Go host has its own tests.
#pragma once
#include <cuda_runtime.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>
#include "../../prim/prim.cuh"
#include "../params.h"
#include "../variants.h"

#define CK(x)                                                                                        \
  do {                                                                                               \
    cudaError_t e_ = (x);                                                                            \
    if (e_) { printf("{\"error\":\"%s\",\"line\":%d}\n", cudaGetErrorString(e_), __LINE__); exit(1); } \
  } while (0)

enum Kind { BF16, F16, E4M3 };
inline const char* kind_name(Kind k) { return k == BF16 ? "bf16" : k == F16 ? "f16" : "e4m3"; }
inline int kind_bytes(Kind k) { return k == E4M3 ? 1 : 2; }

struct Variant {
  std::string combine;
  Kind kv;
  int D, N, W;
  bool opt;
  void* fn;
  std::string name;
  int row_bytes() const { return D * kind_bytes(kv); }
  int smem() const { return fd_decode_smem(row_bytes(), D, N, W, fd_decode_stages(row_bytes(), W)); }
};
const std::vector<Variant>& variants();
void* kernel(const char* unit, const std::string& name);  // of another cubin; null if it was not built

enum Addressing { TABLE, CSR, CONTIGUOUS, FLAT };

// Case is one attention call. Lengths and query lengths per sequence; page 0: no pages.
struct Case {
  std::vector<int> len, q_len;
  int kv_heads = 8, group = 4, d = 128, page = 16;
  Kind kv = BF16;
  Addressing addressing = TABLE;
  bool causal = true;
  int left = -1, right = -1;
  float softcap = 0;
  bool sinks = false;
  float q_scale = 1;  // magnitude of q: large ones make large logits
  int batch() const { return (int)len.size(); }
  int longest() const { return *std::max_element(len.begin(), len.end()); }
  bool ragged_q() const { for (int q : q_len) if (q != q_len[0]) return true; return false; }
  int64_t q_tokens() const { return std::accumulate(q_len.begin(), q_len.end(), (int64_t)0); }
  int q_heads() const { return kv_heads * group; }
  int row_bytes() const { return (d * kind_bytes(kv) + 15) / 16 * 16; }
  int page_tokens() const { return page ? page : 1 << 30; }
  int pages_of(int n) const { return page ? (n + page - 1) / page : 0; }
  int capacity = 0;  // tokens that a sequence's memory has room for; 0: the longest
  int room() const { int n = std::max({capacity, longest(), 1}); return page ? pages_of(n) * page : n; }
  int64_t page_bytes() const { return (int64_t)2 * kv_heads * page * row_bytes(); }
  int64_t kv_bytes() const { return (int64_t)batch() * room() * 2 * kv_heads * row_bytes(); }
};

// Plan is how a case is launched.
struct Plan {
  const Variant* v = nullptr;
  int P = 1, chunk = 0;
  bool pdl = false, early = false, partials = false;
};

// Machine holds the device's memory for all cases.
struct Machine {
  int sms;
  cudaStream_t stream;
  char* pool;
  size_t pool_bytes;
  char *mailbox, *counters, *state_o, *state_ml;
  char *q, *out, *lse, *ref, *ref_lse, *scratch;
  int *table, *indptr, *kv_len, *q_indptr;
  uint64_t* seq_base;
  float *k_scale, *v_scale, *sinks;
  Machine();
};

FdDecodeParams prepare(Machine& m, const Case& c);                    // uploads tables and lengths; K/V at the pool's start
FdDecodeParams at_set(const Machine& m, const Case& c, FdDecodeParams p, int set);  // the same case over another copy of K/V
void fill_kv(Machine& m, const Case& c, const FdDecodeParams& p);     // valid tokens random, every other byte of the pool's part NaN
void fill_pool(Machine& m, Kind kv, size_t bytes);                    // all of it random
bool supports(const Case& c, const Plan& pl);
void launch(const Machine& m, const Case& c, const Plan& pl, FdDecodeParams p);
void launch_merge(const Machine& m, const Case& c, const Plan& pl, FdDecodeParams p);  // after a launch with partials
void launch_naive(const Machine& m, const Case& c, const FdDecodeParams& p);
void reference(Machine& m, const Case& c, const FdDecodeParams& p);   // float64 sums into ref, ref_lse
float graph_us(Machine& m, const std::function<void(int)>& f, int n); // median of replays of n launches, per launch
