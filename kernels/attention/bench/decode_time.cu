// Device timing of the decode kernels: for every cell the read floor of the same bytes, then every sensible plan, one JSON line
// each. Times are per launch, from graphs of 32 to 1024 launches that rotate over at least 512 MB of K/V (the L2 holds 60).
#include "bench.h"

template <int U> __global__ void __launch_bounds__(256) read_kernel(const uint4* p, size_t n, unsigned* out) {
  const size_t per = (n + gridDim.x - 1) / gridDim.x, b = per * blockIdx.x, e = min(n, b + per);
  unsigned acc = 0;
  for (size_t i = b + threadIdx.x; i < e; i += 256 * U) {
    uint4 v[U];
#pragma unroll
    for (int u = 0; u < U; u++) {
      const size_t j = i + u * 256;
      v[u] = make_uint4(0, 0, 0, 0);
      if (j < e) v[u] = fd::ldg128_once(p + j);
    }
#pragma unroll
    for (int u = 0; u < U; u++) acc ^= v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
  }
  if (acc == 0x12345678) out[blockIdx.x] = acc;
}

static int launches(size_t bytes) { return (int)std::min<size_t>(1024, std::max<size_t>(32, (512ull << 20) / std::max<size_t>(bytes, 1))); }

static float floor_us(Machine& m, size_t bytes) {
  float best = 1e9;
  const size_t n = bytes / 16, sets = m.pool_bytes / (n * 16);
  for (int per_sm : {1, 2, 4, 8}) for (int u : {4, 8}) best = std::min(best, graph_us(m, [&](int i) {
    const uint4* src = (const uint4*)m.pool + i % sets * n;
    if (u == 4) read_kernel<4><<<m.sms * per_sm, 256, 0, m.stream>>>(src, n, (unsigned*)m.scratch);
    else read_kernel<8><<<m.sms * per_sm, 256, 0, m.stream>>>(src, n, (unsigned*)m.scratch);
  }, launches(bytes)));
  return best;
}

static const bool with_options = getenv("FD_OPT") != nullptr;
static std::vector<Plan> plans(const Machine& m, const Case& c, bool sweep) {
  std::vector<Plan> r;
  const int T = std::max(1, (c.longest() + 15) / 16), pairs = c.batch() * c.kv_heads;
  auto add = [&](const Variant& v, int P, int chunk) { Plan p; p.v = &v; p.P = P; p.chunk = chunk; if (supports(c, p)) r.push_back(p); };
  for (auto& v : variants()) {
    if (v.kv != c.kv || v.D != 128 || (v.opt && v.combine != "any" && !with_options) || v.N != (c.group > 8 ? 16 : 8)) continue;
    if (v.combine == "cluster" && pairs * 2 <= 120)
      for (int P = 2; P <= 16; P *= 2) if (P * v.W >= T / 8 && P * v.W / 2 <= T && pairs * P <= (P == 16 ? 112 : 120)) add(v, P, 0);
    if (v.combine == "mailbox" && pairs * 2 <= m.sms) {
      const int most = std::min((T + v.W - 1) / v.W, m.sms / pairs);
      add(v, most, 0);
      if (sweep && v.W == 4 && T > 64 * most) for (int k : {2, 4}) add(v, k * m.sms / pairs, 0);
      if (sweep && most >= 8) { int p2 = 1; while (p2 * 2 <= most) p2 *= 2; if (p2 != most) add(v, p2, 0); }
      if (sweep && most >= 24) add(v, most / 2, 0);
    }
    if (v.combine == "chunk" && pairs * 2 > m.sms / 4)
      for (int chunk : {32, 64, 128, 256}) if (chunk <= T || chunk == 32) add(v, (T + chunk - 1) / chunk, chunk);
    if (v.combine == "chunk" && pairs >= m.sms) add(v, 1, T);
    if (v.combine == "chunk" && pairs * 2 <= m.sms && sweep && !getenv("FD_NOFLOOR")) {  // no split, and two launches without and with PDL
      add(v, 1, T);
      const int chunk = std::max(v.W, (T + m.sms / pairs - 1) / (m.sms / pairs));
      add(v, (T + chunk - 1) / chunk, chunk);
      if (r.back().P > 1) {
        r.back().partials = true;
        r.push_back(r.back());
        r.back().pdl = true;
      }
    }
  }
  return r;
}

static float time_plan(Machine& m, const Case& c, const FdDecodeParams& p, const Plan& pl, int n) {
  return graph_us(m, [&](int i) {
    const FdDecodeParams q = at_set(m, c, p, i);
    launch(m, c, pl, q);
    if (pl.partials) launch_merge(m, c, pl, q);
  }, n);
}

static void cell(Machine& m, const Case& c, const char* name, bool sweep) {
  FdDecodeParams p = prepare(m, c);
  size_t tokens = 0;
  for (int n : c.len) tokens += n;
  const size_t bytes = tokens * c.kv_heads * 2 * c.row_bytes();
  const float fl = getenv("FD_NOFLOOR") ? 1.f : floor_us(m, bytes);
  const int n = launches(c.kv_bytes());
  auto all = plans(m, c, sweep);
  float best = 1e9;
  Plan best_plan;
  auto report = [&](const Plan& pl, float us) {
    printf("{\"cell\":\"%s\",\"kv\":\"%s\",\"heads\":\"%d/%d\",\"B\":%d,\"N\":%d,\"MB\":%.1f,\"floor\":%.2f,\"us\":%.2f,\"over\":%.2f,\"of_floor\":%.3f,\"plan\":\"%s w%d%s P%d c%d%s%s%s\"}\n", name, kind_name(c.kv),
           c.q_heads(), c.kv_heads, c.batch(), c.longest(), bytes / 1048576.0, fl, us, us - fl, fl / us, pl.v->combine.c_str(), pl.v->W, pl.v->opt ? "opt" : "", pl.P, pl.chunk, pl.pdl ? " pdl" : "", pl.early ? " early" : "", pl.partials ? " split2" : "");
    fflush(stdout);
  };
  for (auto& pl : all) {
    const float us = time_plan(m, c, p, pl, n);
    if (us < best && !pl.partials) best = us, best_plan = pl;
    report(pl, us);
  }
  std::vector<Plan> chained;
  if (getenv("FD_CHAIN")) chained = all;
  else for (auto& pl : all) if (pl.v == best_plan.v && pl.P == best_plan.P && pl.chunk == best_plan.chunk) chained.push_back(pl);
  for (Plan pl : chained) {
    pl.pdl = true;
    report(pl, time_plan(m, c, p, pl, n));
    pl.early = true;
    report(pl, time_plan(m, c, p, pl, n));
  }
}

int main(int argc, char** argv) {
  Machine m;
  const std::string what = argc > 1 ? argv[1] : "all";
  fill_pool(m, BF16, m.pool_bytes);
  auto one = [&](int heads, int kv_heads, int n, Kind kv, Addressing ad) {
    Case c; c.kv = kv; c.len = {n}; c.q_len = {1}; c.kv_heads = kv_heads; c.group = heads / kv_heads; c.addressing = ad;
    if (ad == CONTIGUOUS) c.page = 0;
    cell(m, c, ad == TABLE ? "paged" : ad == FLAT ? "flat" : "contiguous", true);
  };
  if (what == "tune") {
    for (int n : {512, 1024, 4096, 8192, 32768}) one(16, 2, n, BF16, TABLE);
    for (int n : {512, 1024, 2048, 4096, 8192, 32768, 131072}) one(32, 8, n, BF16, TABLE);
    return 0;
  }
  if (what == "large") {
    for (int n : {8192, 16384, 32768, 65536, 131072}) one(32, 8, n, BF16, TABLE);
    for (int n : {8192, 16384, 32768, 65536, 131072}) one(16, 2, n, BF16, TABLE);
    one(64, 8, 16384, BF16, TABLE);
    one(32, 4, 16384, BF16, TABLE);
    fill_pool(m, E4M3, m.pool_bytes);
    for (int n : {1024, 4096, 16384, 65536, 131072}) one(32, 8, n, E4M3, TABLE);
    return 0;
  }
  if (what == "tune8") {
    fill_pool(m, E4M3, m.pool_bytes);
    for (int n : {1024, 4096, 16384, 65536, 131072}) one(32, 8, n, E4M3, TABLE);
    return 0;
  }
  for (int n = 512; n <= 131072; n *= what == "short" ? 8 : 2) { one(16, 2, n, BF16, TABLE); one(32, 8, n, BF16, TABLE); }
  if (what == "short") return 0;
  for (int n = 512; n <= 131072; n *= 8) { one(32, 8, n, BF16, CONTIGUOUS); one(32, 8, n, BF16, FLAT); one(64, 8, n, BF16, TABLE); one(32, 4, n, BF16, TABLE); }
  one(32, 8, 1048576, BF16, TABLE);
  auto batch = [&](int B, int n, int ragged, Kind kv) {
    Case c; c.kv = kv; c.len.assign(B, n); c.q_len.assign(B, 1);
    if (ragged) {
      std::mt19937 r(ragged);
      for (auto& x : c.len) x = (int)(n * pow(2.0, -6 * ((r() & 0xffffff) / double(0x1000000))));
      c.len[0] = n;
    }
    cell(m, c, ragged ? "ragged" : "batch", true);
  };
  batch(8, 4096, 0, BF16);
  batch(16, 4096, 0, BF16);
  batch(256, 1024, 0, BF16);
  batch(16, 32768, 5, BF16);
  batch(64, 8192, 6, BF16);
  fill_pool(m, E4M3, m.pool_bytes);
  for (int n : {1024, 4096, 16384, 65536, 131072}) one(32, 8, n, E4M3, TABLE);
  batch(8, 4096, 0, E4M3);
  batch(8, 16384, 0, E4M3);
}
