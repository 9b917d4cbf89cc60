// Device check and timing of append, copy, prefill and mla: prefill_check check|check_mla|prefill|prefill_wg|prefill_brief|mla|mla_brief|mla_profile|append. One JSON line a case. Needs
// only a driver to run. Times: µs a launch, median of 11 graph replays that rotate over 512 MB of cache where it is the bound.
#include "prefill_bench.h"

static float graph_us(const std::function<void(int)>& f, int n) {
  cudaGraph_t g; cudaGraphExec_t ge;
  CK(cudaStreamBeginCapture(st, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < n; i++) f(i);
  CK(cudaStreamEndCapture(st, &g)); CK(cudaGraphInstantiate(&ge, g, 0));
  for (int i = 0; i < 2; i++) CK(cudaGraphLaunch(ge, st));
  CK(cudaStreamSynchronize(st));
  std::vector<float> t;
  for (int r = 0; r < 11; r++) {
    float ms;
    cudaEventRecord(ea, st); CK(cudaGraphLaunch(ge, st)); cudaEventRecord(eb, st); CK(cudaEventSynchronize(eb));
    cudaEventElapsedTime(&ms, ea, eb);
    t.push_back(ms * 1000 / n);
  }
  std::sort(t.begin(), t.end());
  cudaGraphExecDestroy(ge); cudaGraphDestroy(g);
  return t[5];
}

// ---- append

static double from_e4m3(int x) {
  const int e = x >> 3 & 15, m = x & 7;
  const double v = e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
  return x & 128 ? -v : v;
}

static FdAppendParams append_params(int rows, int q_heads, int kv_heads, int dim, int page, bool e4m3, bool interleaved) {
  FdAppendParams p{};
  const int bytes = e4m3 ? 1 : 2;
  p.q = p.q_out = dev(q); p.k = dev(q) + (128 << 20); p.v = dev(q) + (256 << 20);
  p.k_cache = dev(pool); p.v_cache = dev(pool) + (uint64_t)kv_heads * page * dim * bytes;
  p.positions = dev(items); p.q_indptr = 0; p.q_len = rows; p.batch = 1; p.inv_freq = dev(states); p.k_scale = p.v_scale = dev(states_ml);
  p.rows.table = dev(table); p.rows.table_stride = 1 << 20; p.rows.page_size = page; p.rows.token_stride = dim * bytes; p.rows.head_stride = page * dim * bytes;
  p.rows.page_stride = (uint64_t)2 * kv_heads * page * dim * bytes;
  p.q_token_stride = p.q_out_token_stride = q_heads * dim * 2; p.q_head_stride = p.q_out_head_stride = dim * 2; p.k_token_stride = p.v_token_stride = kv_heads * dim * 2;
  p.q_heads = q_heads; p.kv_heads = kv_heads; p.k_head_dim = p.v_head_dim = dim; p.rope_pairs = dim / 2; p.flags = interleaved ? FD_ROPE_INTERLEAVED : 0; p.rope_scale = 1;
  std::vector<int> pos(rows), tab(rows / page + 2);
  for (int i = 0; i < rows; i++) pos[i] = i;
  for (size_t i = 0; i < tab.size(); i++) tab[i] = (int)(i ^ 1);
  std::vector<float> freq(dim / 2), scale(kv_heads, 0.02f);
  for (int i = 0; i < dim / 2; i++) freq[i] = (float)pow(500000.0, -2.0 * i / dim);
  upload(items, pos); upload(table, tab); upload(states, freq); upload(states_ml, scale);
  return p;
}
static void check_append(const char* name, Kernel fn, bool e4m3, bool interleaved) {
  const int rows = 333, hq = 8, hk = 2, d = 128, page = 16;
  FdAppendParams p = append_params(rows, hq, hk, d, page, e4m3, interleaved);
  fill<<<512, 256, 0, st>>>((uint16_t*)q, kQ / 2, false, 1);
  std::vector<uint16_t> k((size_t)rows * hk * d), cache16;
  std::vector<uint8_t> cache(2 * hk * page * d * (rows / page + 2) * (e4m3 ? 1 : 2));
  CK(cudaMemsetAsync(pool, 0xff, cache.size(), st)); CK(cudaStreamSynchronize(st));
  CK(cudaMemcpy(k.data(), (void*)p.k, k.size() * 2, cudaMemcpyDeviceToHost));
  void* args[] = {&p};
  CK(cudaLaunchKernel(fn, dim3(rows, 2), 128, args, 0, st)); CK(cudaStreamSynchronize(st));
  CK(cudaMemcpy(cache.data(), pool, cache.size(), cudaMemcpyDeviceToHost));
  double worst = 0;
  auto bf = [](uint16_t x) { uint32_t u = (uint32_t)x << 16; float f; memcpy(&f, &u, 4); return (double)f; };
  for (int r = 0; r < rows; r++) for (int h = 0; h < hk; h++) for (int i = 0; i < d / 2; i++) {
    const int a = interleaved ? 2 * i : i, b = interleaved ? 2 * i + 1 : i + d / 2;
    const uint16_t* x = &k[((size_t)r * hk + h) * d];
    const double angle = r * (double)(float)pow(500000.0, -2.0 * i / d), want[2] = {bf(x[a]) * cos(angle) - bf(x[b]) * sin(angle), bf(x[a]) * sin(angle) + bf(x[b]) * cos(angle)};
    for (int e = 0; e < 2; e++) {
      const size_t at = ((size_t)((r / page) ^ 1) * 2 * hk + h) * page * d + r % page * d + (e ? b : a);
      uint16_t y; memcpy(&y, &cache[e4m3 ? 0 : at * 2], 2);
      const double got = e4m3 ? from_e4m3(cache[at]) * 0.02 : bf(y), bound = e4m3 ? std::max(std::fabs(want[e]) / 16, 0.02 / 1024) : std::fabs(want[e]) / 256 + 1e-6;
      const double x2 = std::fabs(got - want[e]) / bound;
      worst = std::max(worst, x2 == x2 ? x2 : 1e30);
    }
  }
  failures += !(worst <= 1.01);
  printf("{\"check\":\"append %s%s\",\"of_bound\":%.3f,\"ok\":%d}\n", name, interleaved ? " interleaved" : "", worst, worst <= 1.01);
}

static void time_append() {
  for (bool e4m3 : {false, true}) for (int rows : {1, 16, 256, 8192}) {
    FdAppendParams p = append_params(rows, 32, 8, 128, 16, e4m3, false);
    const Kernel fn = load("append", e4m3 ? "fd_append_bf16_e4m3" : "fd_append_bf16_bf16");
    const double mb = rows * 128.0 * (32 * 4 + 8 * 4 + 8 * (e4m3 ? 2 : 4)) / 1048576;
    for (int y : {1, 2, 4, 8}) {
      if (rows > 256 && y > 2) continue;
      void* args[] = {&p};
      const float us = graph_us([&](int) { CK(cudaLaunchKernel(fn, dim3(rows, y), 128, args, 0, st)); }, 50);
      printf("{\"kind\":\"append\",\"kv\":\"%s\",\"rows\":%d,\"y\":%d,\"us\":%.2f,\"GBps\":%.0f}\n", e4m3 ? "e4m3" : "bf16", rows, y, us, mb * 1.048576e3 / us);
    }
  }
  const Kernel copy = load("append", "fd_copy_pages");
  for (int pairs : {1, 8, 128}) for (int x : {8, 32, 128}) {
    std::vector<int> src(pairs), dst(pairs);
    for (int i = 0; i < pairs; i++) { src[i] = 2 * i; dst[i] = 2 * i + 1; }
    upload(items, src); upload(merges, dst);
    const FdCopyPagesParams p{dev(pool), dev(pool), dev(items), dev(merges), 2 << 20, 2 << 20};
    void* args[] = {(void*)&p};
    const float us = graph_us([&](int) { CK(cudaLaunchKernel(copy, dim3(x, pairs), 256, args, 0, st)); }, 20);
    printf("{\"kind\":\"copy_pages\",\"pages\":%d,\"x\":%d,\"us\":%.2f,\"GBps\":%.0f}\n", pairs, x, us, pairs * 4.194304e3 / us);
  }
}

static void check_copy() {
  fill<<<512, 256, 0, st>>>((uint16_t*)pool, 64 << 20, false, 1);
  std::vector<int> src{9, 3}, dst{1, 30};
  upload(items, src); upload(merges, dst);
  const FdCopyPagesParams p{dev(pool), dev(pool), dev(items), dev(merges), 2 << 20, 2 << 20};
  void* args[] = {(void*)&p};
  CK(cudaLaunchKernel(load("append", "fd_copy_pages"), dim3(7, 2), 256, args, 0, st)); CK(cudaStreamSynchronize(st));
  std::vector<char> a(64 << 20);
  CK(cudaMemcpy(a.data(), pool, a.size(), cudaMemcpyDeviceToHost));
  bool ok = true;
  for (int i = 0; i < 2; i++) ok &= !memcmp(&a[(size_t)src[i] << 21], &a[(size_t)dst[i] << 21], 2 << 20);
  ok &= memcmp(&a[2 << 21], &a[1 << 21], 2 << 20) != 0;
  failures += !ok;
  printf("{\"check\":\"copy_pages\",\"ok\":%d}\n", ok);
}

// ---- prefill and mla

static void run_check(const Case& c, int most = 400, int runs = 3) {
  if ((size_t)c.tokens() * c.heads() * c.dim * 2 > kQ) { printf("{\"error\":\"%s does not fit\"}\n", c.name.c_str()); return; }
  const FdDecodeParams p = prepare(c);
  CK(cudaMemsetAsync(pool, 0xff, c.kv_bytes(), st));
  fill_valid<<<dim3(std::max(1, c.longest()), c.len.size()), 128, 0, st>>>(p, c.f16, c.mla);
  fill<<<512, 256, 0, st>>>((uint16_t*)q, c.tokens() * c.heads() * c.dim, c.f16, c.q_scale);
  check(c, p, most, runs);
}

static void check_prefill(bool wg) {
  auto run = [&](Case c, int most = 400) { c.wg = wg; if (wg) c.name += " wg"; run_check(c, most); };
  for (bool f16 : {false, true}) for (int d : {64, 96, 128, 256, 80}) {
    run({.name = "prefill d" + std::to_string(d), .len = {1, 63, 64, 65, 300, 0}, .q_len = {1, 63, 64, 65, 129, 0}, .kv_heads = 2, .group = 3, .dim = d, .f16 = f16});
    run({.name = "mixed d" + std::to_string(d), .len = {1000, 300, 17, 5000}, .q_len = {1, 129, 4, 1}, .kv_heads = 2, .group = 7, .dim = d, .f16 = f16, .sinks = true, .item_splits = {4, 1, 2, 9}});
  }
  for (Mode m : {CONTIGUOUS, TABLE, FLAT}) for (int page : {1, 5, 16, 64})
    run({.name = "prefill mode " + std::to_string(m) + " page " + std::to_string(page), .len = {777, 100}, .q_len = {333, 100}, .page = page, .mode = m});
  const Case base{.name = "", .len = {900, 200}, .q_len = {300, 200}};
  auto with = [&](const char* n, auto f) { Case c = base; c.name = std::string("prefill ") + n; f(c); run(c); };
  with("window", [](Case& c) { c.left = 100; });
  with("not causal, both windows", [](Case& c) { c.causal = false; c.left = 50; c.right = 20; });
  with("softcap", [](Case& c) { c.softcap = 5; c.q_scale = 5; });
  with("sinks", [](Case& c) { c.sinks = true; });
  with("large logits", [](Case& c) { c.q_scale = 3e4; });
  with("more queries than tokens", [](Case& c) { c.len = {100, 0}; });
  run({.name = "prefill long", .len = {40000}, .q_len = {2000}, .page = 16}, 100);
}

static void check_mla() {
  for (bool f16 : {false, true}) for (bool resident : {false, true}) for (int splits : {1, 2, 7}) {
    if (resident && splits == 1) continue;
    const std::string n = std::string(f16 ? "mla f16" : "mla") + (resident ? " resident" : "") + " splits " + std::to_string(splits);
    run_check({.name = n, .len = {1, 64, 65, 500}, .q_len = {1, 1, 1, 1}, .group = 128, .dim = 576, .page = 64, .mla = true, .f16 = f16, .resident = resident, .splits = splits});
    run_check({.name = n + " q_len", .len = {1000, 3, 0}, .q_len = {5, 4, 1}, .group = 20, .dim = 576, .page = 16, .mla = true, .f16 = f16, .sinks = true, .resident = resident, .splits = splits});
  }
  run_check({.name = "mla flat", .len = {700, 90}, .q_len = {2, 1}, .group = 16, .dim = 576, .page = 5, .mla = true, .mode = FLAT, .splits = 3});
  run_check({.name = "mla large logits", .len = {700}, .q_len = {1}, .group = 128, .dim = 576, .page = 64, .mla = true, .resident = true, .splits = 4, .q_scale = 3e3});
  run_check({.name = "mla 4k", .len = {4096}, .q_len = {1}, .group = 128, .dim = 576, .page = 64, .mla = true, .resident = true, .splits = 64}, 128, 20);
  run_check({.name = "mla 32k", .len = {32768}, .q_len = {1}, .group = 128, .dim = 576, .page = 64, .mla = true, .resident = true, .splits = 66}, 128, 20);
  run_check({.name = "mla 32k, 16 heads", .len = {32768}, .q_len = {1}, .group = 16, .dim = 576, .page = 64, .mla = true, .resident = true, .splits = 132}, 16, 20);
  run_check({.name = "mla batch", .len = std::vector<int>(32, 4000), .q_len = std::vector<int>(32, 1), .group = 128, .dim = 576, .page = 64, .mla = true}, 300, 5);
}

static void time_prefill(bool wg, bool brief) {
  fill<<<2048, 256, 0, st>>>((uint16_t*)pool, kPool / 2, false, 1);
  fill<<<512, 256, 0, st>>>((uint16_t*)q, kQ / 2, false, 1);
  auto one = [&](Case c) {
    c.wg = wg;
    if (wg) c.name += " wg";
    const FdDecodeParams p = prepare(c);
    double flop = 0;
    for (size_t b = 0; b < c.len.size(); b++) for (int i = 0; i < c.q_len[b]; i++) flop += 4.0 * c.heads() * c.dim * (c.len[b] - c.q_len[b] + i + 1);
    const float us = graph_us([&](int i) { launch(c, at_set(c, p, i)); }, std::max(3, std::min(30, (int)(2e12 / flop / 30))));
    printf("{\"kind\":\"prefill\",\"name\":\"%s\",\"heads\":\"%d/%d\",\"d\":%d,\"B\":%zu,\"q\":%d,\"N\":%d,\"page\":%d,\"us\":%.2f,\"TFLOPS\":%.1f}\n", c.name.c_str(), c.heads(), c.kv_heads, c.dim, c.len.size(), c.q_len[0], c.longest(), c.page, us, flop / us / 1e6);
    fflush(stdout);
  };
  for (int n : {512, 1024, 2048, 4096, 8192, 16384}) one({.name = "causal", .len = {n}, .q_len = {n}});
  if (brief) return;
  for (int d : {64, 96, 256}) one({.name = "causal", .len = {4096}, .q_len = {4096}, .dim = d});
  one({.name = "causal", .len = {8192}, .q_len = {8192}, .page = 64});
  one({.name = "causal contiguous", .len = {8192}, .q_len = {8192}, .page = 8192, .mode = CONTIGUOUS});
  for (int n : {8192, 32768, 131072}) one({.name = "chunk", .len = {n}, .q_len = {2048}});
  one({.name = "ragged", .len = {1024, 512, 4096, 100, 2048, 3000, 10, 1500}, .q_len = {1024, 512, 4096, 100, 2048, 3000, 10, 1500}});
  Case mixed{.name = "decode only", .len = std::vector<int>(32, 4096), .q_len = std::vector<int>(32, 1), .item_splits = std::vector<int>(32, 1)};
  one(mixed);
  mixed.name = "32 decode and 1 chunk of 2048";
  mixed.len.push_back(4096); mixed.q_len.push_back(2048); mixed.item_splits.push_back(1);
  one(mixed);
  one({.name = "the chunk alone", .len = {4096}, .q_len = {2048}});
}

// Where the time of a CTA goes, for builds of mla that leave clock stamps at mailbox; the shipped ones do not.
static void profile_mla() {
  fill<<<2048, 256, 0, st>>>((uint16_t*)pool, kPool / 2, false, 0.3f);
  fill<<<512, 256, 0, st>>>((uint16_t*)q, kQ / 2, false, 1);
  for (int n : {1024, 4096, 16384, 32768}) for (int splits : {16, 32, 64, 66}) {
    if (splits * 64 > n) continue;
    const Case c{.name = "mla", .len = {n}, .q_len = {1}, .group = 128, .dim = 576, .page = 64, .mla = true, .resident = true, .splits = splits};
    FdDecodeParams p = prepare(c);
    p.mailbox = dev(scratch);
    graph_us([&](int i) { launch(c, at_set(c, p, i)); }, 20);
    std::vector<unsigned long long> t(splits * 2 * 8);
    CK(cudaMemcpy(t.data(), scratch, t.size() * 8, cudaMemcpyDeviceToHost));
    double sum[8] = {};
    for (size_t i = 0; i < t.size(); i += 8) for (int k = 1; k < 8; k++) sum[k] += (double)(t[i + k] - t[i + k - 1]) / (splits * 2);
    printf("{\"kind\":\"mla_profile\",\"N\":%d,\"splits\":%d,\"clocks\":{\"found\":%.0f,\"q\":%.0f,\"first S\":%.0f,\"loop\":%.0f,\"stored\":%.0f,\"all arrived\":%.0f,\"merged\":%.0f}}\n", n, splits, sum[1], sum[2], sum[3], sum[4], sum[5], sum[6], sum[7]);
  }
}

static void time_mla(bool brief) {
  fill<<<2048, 256, 0, st>>>((uint16_t*)pool, kPool / 2, false, 0.3f);
  fill<<<512, 256, 0, st>>>((uint16_t*)q, kQ / 2, false, 1);
  auto one = [&](int B, int heads, int q_len, int n, int splits, bool resident, bool pdl = false) {
    const Case c{.name = "mla", .len = std::vector<int>(B, n), .q_len = std::vector<int>(B, q_len), .group = heads, .dim = 576, .page = 64, .mla = true, .resident = resident, .pdl = pdl, .splits = splits};
    const FdDecodeParams p = prepare(c);
    const double mb = c.kv_bytes() / 1048576.0;
    const float us = graph_us([&](int i) { launch(c, at_set(c, p, i)); }, (int)std::min(200., std::max(8., 512 / mb)));
    printf("{\"kind\":\"mla\",\"B\":%d,\"hq\":%d,\"sq\":%d,\"N\":%d,\"MB\":%.1f,\"splits\":%d,\"resident\":%d,\"pdl\":%d,\"us\":%.2f,\"TFLOPS\":%.1f}\n", B, heads, q_len, n, mb, splits, resident, pdl, us,
           2.0 * B * heads * q_len * n * (576 + 512) / us / 1e6);
    fflush(stdout);
  };
  if (brief) {
    for (int n : {4096, 16384, 32768}) for (int splits : {32, 64, 66}) one(1, 128, 1, n, std::min(splits, n / 64), true);
    one(8, 128, 1, 4096, 8, true);
    one(128, 128, 1, 4096, 1, false);
    one(128, 16, 1, 4096, 1, false);
    return;
  }
  for (int n : {1024, 4096, 16384, 32768, 131072}) {
    for (int splits : {8, 16, 32, 48, 64, 66}) if (splits * 64 <= n) for (bool pdl : {false, true}) one(1, 128, 1, n, splits, true, pdl);
    for (int splits : {32, 64, 128, 132}) if (splits * 64 <= n) one(1, 16, 1, n, splits, true);
  }
  for (int splits : {4, 8}) one(8, 128, 1, 4096, splits, true);
  one(64, 128, 1, 4096, 1, false);
  one(66, 128, 1, 4096, 1, false);
  one(128, 128, 1, 4096, 1, false);
  one(128, 128, 1, 8192, 1, false);
  one(128, 128, 2, 4096, 1, false);
  one(128, 16, 1, 4096, 1, false);
  one(64, 16, 1, 8192, 2, true);
}

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "check";
  CK(cudaStreamCreate(&st)); cudaEventCreate(&ea); cudaEventCreate(&eb);
  CK(cudaMalloc(&pool, kPool)); CK(cudaMalloc(&q, kQ)); CK(cudaMalloc(&out, kQ)); CK(cudaMalloc(&states, kStates)); CK(cudaMalloc(&states_ml, 64 << 20));
  CK(cudaMalloc(&items, 64 << 20)); CK(cudaMalloc(&merges, 16 << 20)); CK(cudaMalloc(&lse, 64 << 20)); CK(cudaMalloc(&sinks, 4096)); CK(cudaMalloc(&kv_len, 65536)); CK(cudaMalloc(&q_indptr, 65536));
  CK(cudaMalloc(&table, 16 << 20)); CK(cudaMalloc(&table_indptr, 65536)); CK(cudaMalloc(&seq_base, 65536)); CK(cudaMalloc(&counters, 4 << 20)); CK(cudaMemset(counters, 0, 4 << 20));
  CK(cudaMalloc(&scratch, 1 << 30)); CK(cudaMalloc(&ref_o, 64 << 20)); CK(cudaMalloc(&ref_l, 4 << 20)); CK(cudaMalloc(&ref_rows, 4 << 20));
  std::vector<float> s(1024);
  for (int i = 0; i < 1024; i++) s[i] = (float)(i % 7) - 3;
  upload(sinks, s);
  for (bool f16 : {false, true}) for (int d : {64, 96, 128, 256}) {
    const std::string t = f16 ? "f16" : "bf16";
    prefills.push_back({d, f16, false, load("prefill_" + t, "fd_prefill_" + t + "_d" + std::to_string(d), fd_prefill_shared_bytes(d))});
    prefills.push_back({d, f16, true, load("prefill_wg", "fd_prefill_wg_" + t + "_d" + std::to_string(d), fd_prefill_wg_shared_bytes(d))});
  }
  mla_bf16 = load("mla", "fd_mla_bf16", FD_MLA_SHARED_BYTES); mla_f16 = load("mla", "fd_mla_f16", FD_MLA_SHARED_BYTES);
  if (what == "check") {
    for (bool i : {false, true}) { check_append("bf16", load("append", "fd_append_bf16_bf16"), false, i); check_append("e4m3", load("append", "fd_append_bf16_e4m3"), true, i); check_append("any", load("append", "fd_append_bf16_bf16_any"), false, i); }
    check_copy();
    check_prefill(false);
    check_prefill(true);
  }
  if (what == "check_mla") check_mla();
  if (what == "prefill") time_prefill(false, false);
  if (what == "prefill_wg") time_prefill(true, false);
  if (what == "prefill_brief") time_prefill(true, true);
  if (what == "mla") time_mla(false);
  if (what == "mla_brief") time_mla(true);
  if (what == "mla_profile") profile_mla();
  if (what == "append") time_append();
  CK(cudaDeviceSynchronize());
  printf("{\"part\":\"%s\",\"failures\":%d}\n", what.c_str(), failures);
  return failures != 0;
}
