// Device test of the decode kernels against float64: every compiled kernel over odd lengths, groups, pages and options. Prints
// one JSON line per failure and a summary; exits non-zero on failure. Slots that must not be read hold NaN.
#include "bench.h"

static int cases, failures, skipped;
static double worst[3], worst_lse;

static float from16(uint16_t x, Kind kv) {
  if (kv == F16) {
    const int e = x >> 10 & 31, f = x & 1023;
    const float v = e == 31 ? (f ? NAN : INFINITY) : e ? ldexpf(1024 + f, e - 25) : ldexpf(f, -24);
    return x & 0x8000 ? -v : v;
  }
  const uint32_t u = (uint32_t)x << 16;
  float f;
  memcpy(&f, &u, 4);
  return f;
}

static void check(Machine& m, const Case& c, const Plan& pl, const FdDecodeParams& p, const char* what, bool naive = false) {
  if (!naive && !supports(c, pl)) { skipped++; return; }
  const size_t n = c.q_tokens() * c.q_heads() * c.d, rows = c.q_tokens() * c.q_heads();
  std::vector<float> ref(n), ref_lse(rows), lse(rows);
  std::vector<uint16_t> o(n), again(n);
  CK(cudaMemcpy(ref.data(), m.ref, n * 4, cudaMemcpyDeviceToHost));
  CK(cudaMemcpy(ref_lse.data(), m.ref_lse, rows * 4, cudaMemcpyDeviceToHost));
  bool same = true;
  for (int i = 0; i < 3; i++) {
    CK(cudaMemsetAsync(m.out, 0xff, n * 2, m.stream));
    CK(cudaMemsetAsync(m.lse, 0xff, rows * 4, m.stream));
    if (naive) launch_naive(m, c, p);
    else launch(m, c, pl, p);
    if (pl.partials) launch_merge(m, c, pl, p);
    CK(cudaStreamSynchronize(m.stream));
    CK(cudaMemcpy(i ? again.data() : o.data(), m.out, n * 2, cudaMemcpyDeviceToHost));
    if (i) same &= !memcmp(o.data(), again.data(), n * 2);
  }
  CK(cudaMemcpy(lse.data(), m.lse, rows * 4, cudaMemcpyDeviceToHost));
  double a = 0, b = 0, dl = 0;
  for (size_t i = 0; i < n; i++) {
    const double d = from16(o[i], c.kv == F16 ? F16 : BF16) - ref[i];
    if (!(d == d)) { a = 1e30; break; }
    a += d * d;
    b += (double)ref[i] * ref[i];
  }
  const double e = b > 0 ? sqrt(a / b) : sqrt(a);
  for (size_t i = 0; i < rows; i++) {
    if (std::isinf(ref_lse[i]) && std::isinf(lse[i]) && ref_lse[i] == lse[i]) continue;
    const double d = fabs(lse[i] - ref_lse[i]) / (1e-5 + 1e-6 * fabs(ref_lse[i]));
    if (!(d <= dl)) dl = d == d ? d : 1e30;
  }
  cases++;
  const double tol = c.kv == F16 ? 6e-4 : 4e-3;  // rounding of P and of the output to 16 bits: 2^-9 or 2^-12, random signs
  worst[c.kv] = std::max(worst[c.kv], e);
  worst_lse = std::max(worst_lse, dl);
  if (e < tol && same && dl <= 1) return;
  failures++;
  printf("{\"fail\":\"%s\",\"variant\":\"%s\",\"P\":%d,\"chunk\":%d,\"err\":%.2e,\"lse\":%.2e,\"same\":%d,\"B\":%d,\"len0\":%d,\"q0\":%d,\"kv_heads\":%d,\"group\":%d,\"d\":%d,\"page\":%d,\"addr\":%d,\"left\":%d,\"right\":%d,\"causal\":%d}\n",
         what, pl.v->name.c_str(), pl.P, pl.chunk, e, dl, same, c.batch(), c.len[0], c.q_len[0], c.kv_heads, c.group, c.d, c.page, c.addressing, c.left, c.right, c.causal);
  fflush(stdout);
}

static void check_all(Machine& m, const Case& c, const char* what, int only_D = 0) {
  FdDecodeParams p = prepare(m, c);
  fill_kv(m, c, p);
  reference(m, c, p);
  const int tiles = (c.longest() + 15) / 16;
  Plan whole;
  whole.v = &variants()[0];
  check(m, c, whole, p, (std::string("naive ") + what).c_str(), true);
  for (auto& v : variants()) {
    if (only_D && v.D != only_D) continue;
    Plan pl;
    pl.v = &v;
    if (v.combine == "cluster") { for (int P : {2, 4, 16}) pl.P = P, check(m, c, pl, p, what); continue; }
    if (v.combine == "mailbox") { for (int P : {2, 5, 16, 33}) pl.P = P, check(m, c, pl, p, what); continue; }
    for (int chunk : {16, 37, 1 << 20}) {
      pl.chunk = chunk;
      pl.P = std::max(1, (tiles + chunk - 1) / chunk);
      pl.partials = false;
      check(m, c, pl, p, what);
      pl.partials = true;
      check(m, c, pl, p, what);
    }
  }
}

int main(int argc, char** argv) {
  Machine m;
  const bool quick = argc > 1;
  std::vector<Kind> kinds;
  for (Kind k : {BF16, F16, E4M3}) for (auto& v : variants()) if (v.kv == k) { kinds.push_back(k); break; }
  for (Kind kv : kinds) {
    for (int L : {0, 1, 15, 16, 17, 1000, 4097}) for (Addressing ad : {TABLE, CSR, CONTIGUOUS, FLAT}) {
      if (quick && L != 17 && L != 1000) continue;
      Case c; c.kv = kv; c.len = {L}; c.q_len = {1}; c.addressing = ad; c.capacity = 4200;
      if (ad == CONTIGUOUS) c.page = 0;
      check_all(m, c, "length");
    }
    for (int G : {1, 2, 3, 5, 7, 8, 9, 12, 16, 17}) {
      Case c; c.kv = kv; c.len = {300, 0, 1, 777}; c.q_len = {1, 1, 1, 1}; c.kv_heads = 2; c.group = G; c.page = 64;
      check_all(m, c, "group");
    }
    for (int d : {8, 64, 72, 96, 128, 192, 256}) {
      Case c; c.kv = kv; c.len = {515}; c.q_len = {1}; c.kv_heads = 2; c.d = d;
      check_all(m, c, "head dim");
    }
    for (int page : {1, 3, 8, 16, 24, 32, 128}) for (Addressing ad : {TABLE, CSR, FLAT}) {
      Case c; c.kv = kv; c.len = {301, 33}; c.q_len = {1, 1}; c.kv_heads = 2; c.page = page; c.addressing = ad;
      check_all(m, c, "page");
    }
    for (int q : {2, 4, 8}) for (int causal = 0; causal < 2; causal++) {
      Case c; c.kv = kv; c.len = {3, 300, 1030, 0}; c.q_len = {q, q, q, q}; c.kv_heads = 2; c.causal = causal;
      check_all(m, c, "q_len", 128);
    }
    { Case c; c.kv = kv; c.len = {300, 40, 1030, 5}; c.q_len = {3, 0, 1, 8}; c.kv_heads = 2; c.group = 5; check_all(m, c, "ragged q_len"); }
    for (int left : {0, 1, 100, 500}) for (int page : {16, 3}) {
      Case c; c.kv = kv; c.len = {1500, 90, 1, 0}; c.q_len = {1, 1, 1, 1}; c.kv_heads = 2; c.left = left; c.page = page; check_all(m, c, "window");
      c.q_len = {3, 3, 3, 3}; check_all(m, c, "window, q_len 3", 128);
      c.causal = false; c.right = 2; check_all(m, c, "window both sides", 128);
    }
    { Case c; c.kv = kv; c.len = {700, 0}; c.q_len = {1, 1}; c.softcap = 5; c.q_scale = 10; check_all(m, c, "softcap"); }
    { Case c; c.kv = kv; c.len = {700, 0, 1}; c.q_len = {1, 1, 1}; c.sinks = true; check_all(m, c, "sinks"); }
    { Case c; c.kv = kv; c.len = {2000}; c.q_len = {1}; c.q_scale = kv == BF16 ? 20000.f : 4000.f; check_all(m, c, "large logits"); }
  }
  printf("{\"cases\":%d,\"skipped\":%d,\"failures\":%d,\"worst_bf16\":%.2e,\"worst_f16\":%.2e,\"worst_e4m3\":%.2e,\"worst_lse_of_tolerance\":%.2f}\n", cases, skipped, failures, worst[0], worst[1], worst[2], worst_lse);
  return failures != 0;
}
