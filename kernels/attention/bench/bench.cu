#include "bench.h"

#define KIND_bf16 BF16
#define KIND_f16 F16
#define KIND_e4m3 E4M3
#define ROW(combine, kv, D, N, W, opt) {#combine, KIND_##kv, D, N, W, #opt[0] != 0, nullptr, "fd_decode_" #combine "_" #kv "_d" #D "_n" #N "_w" #W #opt},
#define ROWS(kv, D) add("decode_" #kv "_d" #D ".cubin", {FD_DECODE_##kv##_##D(ROW) FD_DECODE_##kv##_##D##_SM90(ROW)});

const std::vector<Variant>& variants() {
  static std::vector<Variant> all;
  if (!all.empty()) return all;
  const char* dir = getenv("FD_CUBINS");
  auto add = [&](const char* file, std::vector<Variant> rows) {
    cudaLibrary_t lib;
    if (cudaLibraryLoadFromFile(&lib, (std::string(dir ? dir : ".device") + "/" + file).c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0)) {
      (void)cudaGetLastError();
      return;  // not built: not tested
    }
    for (auto& v : rows) {
      cudaKernel_t k;
      CK(cudaLibraryGetKernel(&k, lib, v.name.c_str()));
      v.fn = (void*)k;
      CK(cudaFuncSetAttribute(v.fn, cudaFuncAttributeMaxDynamicSharedMemorySize, v.smem()));
      if (v.combine == "cluster") CK(cudaFuncSetAttribute(v.fn, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
      all.push_back(v);
    }
  };
  FD_DECODE_UNITS(ROWS)
  return all;
}

void* kernel(const char* unit, const std::string& name) {
  const char* dir = getenv("FD_CUBINS");
  cudaLibrary_t lib;
  cudaKernel_t k;
  if (cudaLibraryLoadFromFile(&lib, (std::string(dir ? dir : ".device") + "/" + unit + ".cubin").c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0)) {
    (void)cudaGetLastError();
    return nullptr;
  }
  CK(cudaLibraryGetKernel(&k, lib, name.c_str()));
  return k;
}

Machine::Machine() {
  cudaDeviceProp pr;
  CK(cudaGetDeviceProperties(&pr, 0));
  sms = pr.multiProcessorCount;
  printf("{\"device\":\"%s\",\"sms\":%d}\n", pr.name, sms);
  CK(cudaStreamCreate(&stream));
  pool_bytes = 20ull << 30;
  auto get = [](auto& p, size_t n) { CK(cudaMalloc((void**)&p, n)); };
  get(pool, pool_bytes);
  get(mailbox, 64 << 20);
  get(counters, 1 << 20);
  get(state_o, 256 << 20);
  get(state_ml, 16 << 20);
  get(q, 32 << 20);
  get(out, 32 << 20);
  get(lse, 1 << 20);
  get(ref, 64 << 20);
  get(ref_lse, 1 << 20);
  get(scratch, 512 << 20);
  get(table, 16 << 20);
  get(indptr, 1 << 16);
  get(kv_len, 1 << 16);
  get(q_indptr, 1 << 16);
  get(seq_base, 1 << 16);
  get(k_scale, 1 << 12);
  get(v_scale, 1 << 12);
  get(sinks, 1 << 12);
  CK(cudaMemset(mailbox, 0xff, 64 << 20));
  CK(cudaMemset(counters, 0, 1 << 20));
  std::vector<float> s(1024);
  for (int i = 0; i < 1024; i++) s[i] = 0.5f + 0.01f * (i % 7);
  CK(cudaMemcpy(k_scale, s.data(), 4096, cudaMemcpyHostToDevice));
  CK(cudaMemcpy(v_scale, s.data(), 4096, cudaMemcpyHostToDevice));
  for (int i = 0; i < 1024; i++) s[i] = 3.f * sinf((float)i);
  CK(cudaMemcpy(sinks, s.data(), 4096, cudaMemcpyHostToDevice));
  printf("{\"kernels\":%d}\n", (int)variants().size());
}

// ---- memory

__device__ uint64_t mix(uint64_t z) {
  z = z * 0x9E3779B97F4A7C15ull + 12345;
  z ^= z >> 31;
  z *= 0xBF58476D1CE4E5B9ull;
  z ^= z >> 27;
  z *= 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}
__device__ float gauss(uint64_t i) {  // of four uniform numbers: near enough
  const uint64_t z = mix(i);
  float f = 0;
  for (int k = 0; k < 4; k++) f += ((z >> (16 * k)) & 0xffff) / 65536.f - 0.5f;
  return f * 1.73f;
}
__device__ void put(char* p, Kind kv, float x) {
  if (kv == BF16) fd::from_float(*(fd::bf16*)p, x);
  else if (kv == F16) fd::from_float(*(fd::f16*)p, x);
  else fd::from_float(*(fd::e4m3*)p, 2.f * x);
}
__device__ float get(const char* p, Kind kv) { return kv == BF16 ? fd::to_float(*(const fd::bf16*)p) : kv == F16 ? fd::to_float(*(const fd::f16*)p) : fd::to_float(*(const fd::e4m3*)p); }

// Address of a token's K or V as the documentation of FdDecodeParams says it, by division.
__device__ char* kv_at(const FdDecodeParams& p, int page_tokens, int which, int b, int j, int h) {
  int64_t page = j / page_tokens;
  uint64_t base = which ? p.v : p.k;
  if (p.table) page = ((const int*)p.table)[(p.table_indptr ? ((const int*)p.table_indptr)[b] : (int64_t)b * p.table_stride) + page];
  if (p.seq_base) base += ((const uint64_t*)p.seq_base)[b];
  else if (!p.table) base += b * p.seq_stride;
  return (char*)(base + page * p.page_stride + (uint64_t)(j % page_tokens) * p.token_stride + (uint64_t)h * p.head_stride);
}
__global__ void fill_valid(FdDecodeParams p, int page_tokens, Kind kv, int keep_from_left) {
  const int b = blockIdx.y, len = ((const int*)p.kv_len)[b], esz = kv == E4M3 ? 1 : 2;
  const int q_len = p.q_indptr ? ((const int*)p.q_indptr)[b + 1] - ((const int*)p.q_indptr)[b] : p.q_len;
  const int lo = keep_from_left >= 0 ? max(0, len - q_len - keep_from_left) : 0;  // tokens left of every row's window stay NaN
  for (int j = lo + blockIdx.x; j < len; j += gridDim.x)
    for (int i = threadIdx.x; i < 2 * p.kv_heads * p.head_dim; i += blockDim.x) {
      const int which = i / (p.kv_heads * p.head_dim), h = i / p.head_dim % p.kv_heads, e = i % p.head_dim;
      put(kv_at(p, page_tokens, which, b, j, h) + e * esz, kv, gauss(((uint64_t)b << 40) + ((uint64_t)j << 14) + i));
    }
}
__global__ void fill_all(char* p, Kind kv, size_t n) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) put(p + i * (kv == E4M3 ? 1 : 2), kv, gauss(i));
}
__global__ void fill_q(char* p, Kind kv, size_t n, float scale) {
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) put(p + 2 * i, kv == F16 ? F16 : BF16, scale * gauss(i + (1ull << 60)));
}

FdDecodeParams prepare(Machine& m, const Case& c) {
  FdDecodeParams p = {};
  const int B = c.batch(), rb = c.row_bytes();
  p.q = (uint64_t)m.q;
  p.out = (uint64_t)m.out;
  p.lse = (uint64_t)m.lse;
  p.kv_len = (uint64_t)m.kv_len;
  p.mailbox = (uint64_t)m.mailbox;
  p.counters = (uint64_t)m.counters;
  p.state_o = (uint64_t)m.state_o;
  p.state_ml = (uint64_t)m.state_ml;
  p.kv_heads = c.kv_heads;
  p.group = c.group;
  p.group_rcp = fd_reciprocal(c.group);
  p.head_dim = c.d;
  p.q_len = c.q_len[0];
  p.scale_log2 = 1.4426950408889634f / sqrtf((float)c.d);
  p.q_token_stride = p.out_token_stride = c.q_heads() * c.d * 2;
  p.window_left = c.left;
  p.window_right = c.right;
  p.softcap = c.softcap;
  p.flags = c.causal ? FD_CAUSAL : 0;
  if (c.sinks) p.sinks = (uint64_t)m.sinks;
  if (c.kv == E4M3) p.k_scale = (uint64_t)m.k_scale, p.v_scale = (uint64_t)m.v_scale;
  CK(cudaMemcpy(m.kv_len, c.len.data(), B * 4, cudaMemcpyHostToDevice));
  if (c.ragged_q()) {
    std::vector<int> ip(B + 1, 0);
    for (int b = 0; b < B; b++) ip[b + 1] = ip[b] + c.q_len[b];
    CK(cudaMemcpy(m.q_indptr, ip.data(), ip.size() * 4, cudaMemcpyHostToDevice));
    p.q_indptr = (uint64_t)m.q_indptr;
  }
  p.page_size = c.page;
  p.page_shift = c.page ? fd_ceil_log2(c.page) : 30;
  if (c.page) {  // [page][K|V][head][token][dim]
    p.page_stride = c.page_bytes();
    p.token_stride = rb;
    p.head_stride = c.page * rb;
    p.k = (uint64_t)m.pool;
    p.v = p.k + (uint64_t)c.kv_heads * c.page * rb;
  } else {  // [sequence][token][head][dim]
    p.token_stride = c.kv_heads * rb;
    p.head_stride = rb;
    p.page_stride = (uint64_t)p.token_stride << 30;
    p.seq_stride = (uint64_t)c.room() * p.token_stride;
    p.k = (uint64_t)m.pool;
    p.v = p.k + B * p.seq_stride;
  }
  const int per = c.pages_of(c.room());
  std::vector<int> t((size_t)B * std::max(per, 1));
  std::iota(t.begin(), t.end(), 0);
  std::shuffle(t.begin(), t.end(), std::mt19937(7));
  if (c.addressing == TABLE) {
    p.table = (uint64_t)m.table;
    p.table_stride = per;
  } else if (c.addressing == CSR) {  // only the pages in use, tightly
    std::vector<int> ip(B + 1, 0), dense;
    for (int b = 0; b < B; b++) {
      const int n = c.pages_of(c.len[b]);
      ip[b + 1] = ip[b] + n;
      dense.insert(dense.end(), t.begin() + (size_t)b * per, t.begin() + (size_t)b * per + n);
    }
    t = dense;
    t.push_back(1 << 30);
    CK(cudaMemcpy(m.indptr, ip.data(), ip.size() * 4, cudaMemcpyHostToDevice));
    p.table = (uint64_t)m.table;
    p.table_indptr = (uint64_t)m.indptr;
  } else if (c.addressing == FLAT) {
    std::vector<uint64_t> base(B);
    for (int b = 0; b < B; b++) base[b] = (uint64_t)m.pool + (uint64_t)(B - 1 - b) * per * p.page_stride;
    CK(cudaMemcpy(m.seq_base, base.data(), B * 8, cudaMemcpyHostToDevice));
    p.seq_base = (uint64_t)m.seq_base;
    p.v -= p.k;
    p.k = 0;
  } else if (c.page) {
    p.seq_stride = per * p.page_stride;
  }
  for (int b = 0; b < B && c.addressing == TABLE; b++)  // entries past the length: a page that does not exist
    for (int e = c.pages_of(c.len[b]); e < per; e++) t[(size_t)b * per + e] = 1 << 30;
  CK(cudaMemcpy(m.table, t.data(), t.size() * 4, cudaMemcpyHostToDevice));
  fill_q<<<256, 256, 0, m.stream>>>(m.q, c.kv, c.q_tokens() * c.q_heads() * c.d, c.q_scale);
  CK(cudaStreamSynchronize(m.stream));
  return p;
}

FdDecodeParams at_set(const Machine& m, const Case& c, FdDecodeParams p, int set) {
  const uint64_t off = (set % (m.pool_bytes / c.kv_bytes())) * c.kv_bytes();
  p.k += off;
  p.v += off;
  return p;
}
void fill_kv(Machine& m, const Case& c, const FdDecodeParams& p) {
  CK(cudaMemsetAsync(m.pool, 0xff, c.kv_bytes(), m.stream));
  fill_valid<<<dim3(512, c.batch()), 256, 0, m.stream>>>(p, c.page_tokens(), c.kv, c.left);
  CK(cudaStreamSynchronize(m.stream));
}
void fill_pool(Machine& m, Kind kv, size_t bytes) {
  fill_all<<<4096, 256, 0, m.stream>>>(m.pool, kv, bytes / kind_bytes(kv));
  CK(cudaStreamSynchronize(m.stream));
}

// ---- reference: one block per query token and head; float64 softmax sums, logits in float64

__global__ void reference_kernel(FdDecodeParams p, int batch, int page_tokens, Kind kv, double* scratch, int64_t room, float* out, float* lse) {
  const int heads = p.kv_heads * p.group, hq = blockIdx.x % heads, token = blockIdx.x / heads, h = hq / p.group, tid = threadIdx.x;
  const int* ip = (const int*)p.q_indptr;
  int b = 0, i = 0, q_len = p.q_len;
  if (ip) { while (token >= ip[b + 1]) b++; i = token - ip[b]; q_len = ip[b + 1] - ip[b]; }
  else { b = token / q_len; i = token % q_len; }
  const int len = ((const int*)p.kv_len)[b], pos = len - q_len + i, esz = kv == E4M3 ? 1 : 2;
  int lo = 0, hi = len;
  if (p.flags & FD_CAUSAL) hi = min(hi, pos + 1);
  if (p.window_right >= 0) hi = min(hi, pos + p.window_right + 1);
  if (p.window_left >= 0) lo = max(lo, pos - p.window_left);
  double* s = scratch + (int64_t)blockIdx.x * room;
  const char* q = (const char*)p.q + (int64_t)token * p.q_token_stride + (int64_t)hq * p.head_dim * 2;
  const double ks = p.k_scale ? ((const float*)p.k_scale)[h] : 1, vs = p.v_scale ? ((const float*)p.v_scale)[h] : 1;
  const double scale = (double)p.scale_log2 * 0.6931471805599453 * ks;
  for (int j = lo + tid; j < hi; j += blockDim.x) {
    const char* k = kv_at(p, page_tokens, 0, b, j, h);
    double a = 0;
    for (int e = 0; e < p.head_dim; e++) a += (double)get(q + 2 * e, kv == F16 ? F16 : BF16) * get(k + e * esz, kv);
    a *= scale;
    s[j] = p.softcap > 0 ? p.softcap * tanh(a / p.softcap) : a;
  }
  __syncthreads();
  __shared__ double red[256];
  double m = -INFINITY;
  for (int j = lo + tid; j < hi; j += blockDim.x) m = fmax(m, s[j]);
  red[tid] = m;
  __syncthreads();
  for (int k = 128; k; k >>= 1) { if (tid < k) red[tid] = fmax(red[tid], red[tid + k]); __syncthreads(); }
  m = red[0];
  if (p.sinks) m = fmax(m, (double)((const float*)p.sinks)[hq]);
  __syncthreads();
  double l = 0;
  for (int j = lo + tid; j < hi; j += blockDim.x) l += s[j] = exp(s[j] - m);
  red[tid] = l;
  __syncthreads();
  for (int k = 128; k; k >>= 1) { if (tid < k) red[tid] += red[tid + k]; __syncthreads(); }
  l = red[0];
  if (p.sinks) l += exp(((const float*)p.sinks)[hq] - m);
  for (int e = tid; e < p.head_dim; e += blockDim.x) {
    double a = 0;
    for (int j = lo; j < hi; j++) a += s[j] * get(kv_at(p, page_tokens, 1, b, j, h) + e * esz, kv);
    out[(int64_t)blockIdx.x * p.head_dim + e] = l > 0 && hi > lo ? (float)(a / l * vs) : 0.f;
  }
  if (tid == 0) lse[blockIdx.x] = l > 0 ? (float)(m + log(l)) : -INFINITY;
}
void reference(Machine& m, const Case& c, const FdDecodeParams& p) {
  const int64_t blocks = c.q_tokens() * c.q_heads(), room = c.room();
  if (blocks * room * 8 > (512ll << 20)) { printf("{\"error\":\"case too large for the reference\"}\n"); exit(1); }
  if (blocks) reference_kernel<<<(int)blocks, 256, 0, m.stream>>>(p, c.batch(), c.page_tokens(), c.kv, (double*)m.scratch, room, (float*)m.ref, (float*)m.ref_lse);
  CK(cudaStreamSynchronize(m.stream));
}

// ---- launching

static int most_rows(const Case& c) { return *std::max_element(c.q_len.begin(), c.q_len.end()) * c.group; }
static int row_tiles(const Case& c, const Variant& v) { return std::max(1, (most_rows(c) + v.N - 1) / v.N); }

bool supports(const Case& c, const Plan& pl) {
  const Variant& v = *pl.v;
  const bool fast = c.page == 0 || (c.page >= 16 && (c.page & (c.page - 1)) == 0);
  if (v.kv != c.kv || v.D < c.d || (v.combine != "any" && !fast) || (v.combine == "any" && c.page == 0)) return false;
  const bool options = most_rows(c) > c.group || c.ragged_q() || c.left >= 0 || c.right >= 0 || c.softcap > 0 || c.sinks || c.addressing == CSR || (c.kv == E4M3 && c.d % 16);
  if (options && !v.opt) return false;
  if (v.combine == "chunk" || v.combine == "any") return true;
  const int rows = std::min(most_rows(c), v.N), pairs = c.batch() * c.kv_heads << fd_ceil_log2(row_tiles(c, v));
  if (pl.P < 2 || fd_slice_log2(rows, v.D, pl.P) > fd_ceil_log2(32 * v.W)) return false;
  if (v.combine == "cluster") return pl.P <= 16 && (pl.P & (pl.P - 1)) == 0;
  return pairs * pl.P <= 132 * std::min(227 * 1024 / (v.smem() + 1024), 65536 / (v.W * 32 * 168));  // resident
}

static void complete(const Case& c, const Plan& pl, FdDecodeParams& p) {
  const Variant& v = *pl.v;
  const int rows = std::min(most_rows(c), v.N);
  p.row_tiles_log2 = fd_ceil_log2(row_tiles(c, v));
  p.splits = pl.P;
  p.chunk_tiles = pl.chunk;
  p.state_rows = rows;
  p.slice_log2 = fd_slice_log2(std::max(rows, 1), v.D, pl.P);
  p.box_stride = fd_box_bytes(std::max(rows, 1), v.D, pl.P, p.slice_log2);
  p.fresh_tokens = 1;
  p.flags = fd_decode_flags(p.flags | (pl.early ? FD_EARLY_KV : 0) | (pl.partials ? FD_PARTIALS : 0), p.q_len, p.window_left, p.window_right, p.q_indptr, p.table_indptr, p.seq_base, p.items);
}

void launch(const Machine& m, const Case& c, const Plan& pl, FdDecodeParams p) {
  const Variant& v = *pl.v;
  complete(c, pl, p);
  cudaLaunchConfig_t cfg = {};
  cfg.gridDim = dim3(pl.P, c.kv_heads, c.batch() << p.row_tiles_log2);
  cfg.blockDim = dim3(32 * v.W);
  cfg.dynamicSmemBytes = v.smem();
  cfg.stream = m.stream;
  cudaLaunchAttribute at[2];
  cfg.attrs = at;
  if (v.combine == "cluster") {
    at[cfg.numAttrs].id = cudaLaunchAttributeClusterDimension;
    at[cfg.numAttrs].val.clusterDim.x = pl.P;
    at[cfg.numAttrs].val.clusterDim.y = at[cfg.numAttrs].val.clusterDim.z = 1;
    cfg.numAttrs++;
  }
  if (v.combine == "mailbox" && !pl.pdl) {
    at[cfg.numAttrs].id = cudaLaunchAttributeCooperative;
    at[cfg.numAttrs++].val.cooperative = 1;
  }
  if (pl.pdl) {
    at[cfg.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    at[cfg.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  void* args[] = {&p};
  CK(cudaLaunchKernelExC(&cfg, v.fn, args));
}

// start launches a plain kernel, as a dependent one if pdl.
static void start(const Machine& m, void* k, dim3 grid, int threads, void* params, bool pdl) {
  cudaLaunchConfig_t cfg = {};
  cfg.gridDim = grid;
  cfg.blockDim = dim3(threads);
  cfg.stream = m.stream;
  cudaLaunchAttribute at[1];
  at[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  at[0].val.programmaticStreamSerializationAllowed = 1;
  cfg.attrs = at;
  cfg.numAttrs = pdl ? 1 : 0;
  void* args[] = {params};
  CK(cudaLaunchKernelExC(&cfg, k, args));
}

void launch_merge(const Machine& m, const Case& c, const Plan& pl, FdDecodeParams p) {
  static std::vector<std::pair<std::string, void*>> known;
  const std::string name = std::string("fd_merge_states_") + (c.kv == F16 ? "f16" : "bf16") + "_d" + std::to_string(pl.v->D);
  void* k = nullptr;
  for (auto& e : known) if (e.first == name) k = e.second;
  if (!k) known.push_back({name, k = kernel("merge", name)});
  complete(c, pl, p);
  start(m, k, dim3((p.state_rows * pl.v->D / 4 + FD_MERGE_F4 - 1) / FD_MERGE_F4, c.kv_heads, c.batch() << p.row_tiles_log2), 128, &p, pl.pdl);
}

void launch_naive(const Machine& m, const Case& c, const FdDecodeParams& p) {
  static void *scores[3], *values[3], *softmax = kernel("naive", "fd_naive_softmax");
  if (!scores[c.kv]) {
    scores[c.kv] = kernel("naive", std::string("fd_naive_scores_") + kind_name(c.kv));
    values[c.kv] = kernel("naive", std::string("fd_naive_values_") + kind_name(c.kv));
  }
  FdNaiveParams n = {};
  n.d = p;
  n.scores = (uint64_t)m.scratch;
  n.room = c.room();
  n.batch = c.batch();
  const unsigned heads = c.q_heads(), tokens = (unsigned)c.q_tokens();
  start(m, scores[c.kv], dim3((c.longest() + FD_NAIVE_TOKENS - 1) / FD_NAIVE_TOKENS + 1, heads, tokens), 128, &n, false);
  start(m, softmax, dim3(heads, tokens), 256, &n, false);
  start(m, values[c.kv], dim3(heads, tokens), 256, &n, false);
}

float graph_us(Machine& m, const std::function<void(int)>& f, int n) {
  cudaGraph_t g;
  cudaGraphExec_t ge;
  cudaEvent_t a, b;
  CK(cudaEventCreate(&a));
  CK(cudaEventCreate(&b));
  CK(cudaStreamBeginCapture(m.stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < n; i++) f(i);
  CK(cudaStreamEndCapture(m.stream, &g));
  CK(cudaGraphInstantiate(&ge, g, 0));
  for (int i = 0; i < 2; i++) CK(cudaGraphLaunch(ge, m.stream));
  CK(cudaStreamSynchronize(m.stream));
  std::vector<float> t;
  for (int r = 0; r < 11; r++) {
    CK(cudaEventRecord(a, m.stream));
    CK(cudaGraphLaunch(ge, m.stream));
    CK(cudaEventRecord(b, m.stream));
    CK(cudaEventSynchronize(b));
    float ms;
    CK(cudaEventElapsedTime(&ms, a, b));
    t.push_back(ms * 1000 / n);
  }
  std::sort(t.begin(), t.end());
  CK(cudaGraphExecDestroy(ge));
  CK(cudaGraphDestroy(g));
  CK(cudaEventDestroy(a));
  CK(cudaEventDestroy(b));
  return t[t.size() / 2];
}
