// The kernels of prim_test.cuh in the emulator, against formulae that share no code with it. The formulae's words are also what devices are
// held to: FD_GOLDEN=write makes them anew in primtest/golden.txt, and otherwise they must be what is there.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fstream>
#include <sstream>
#include "../emu/test.h"
#include "prim_test.cuh"

using emu::Buffer;
using emu::Test;
using Words = std::vector<uint32_t>;

namespace {

const Words& input() {
  static const Words in = [] {
    Test t(4);
    Words w;
    for (int i = 0; i < 256; i++) w.push_back((uint32_t)t.bits());
    for (int i = 0; i < 256; i++) { const float x = (float)t.normal(); uint32_t u; memcpy(&u, &x, 4); w.push_back(u); }
    return w;
  }();
  return in;
}
uint32_t in(int i) { return input()[(size_t)i]; }
float as_float(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
uint32_t as_word(double x) { const float f = (float)x; uint32_t u; memcpy(&u, &f, 4); return u; }
float value(int i) { return as_float(in(256 + (i & 255))); }
int small(int i) { return (int)(in(i & 255) & 15) - 8; }
const uint8_t* bytes(int word) { return (const uint8_t*)&input()[(size_t)word]; }

// ---- formats, by search: the nearest of all values, the even one of two

double decode(uint32_t bits, int exponent_bits, int mantissa_bits, bool infinities) {
  const int bias = (1 << (exponent_bits - 1)) - 1, e = (int)(bits >> mantissa_bits) & ((1 << exponent_bits) - 1), m = (int)bits & ((1 << mantissa_bits) - 1);
  const double sign = bits >> (exponent_bits + mantissa_bits) ? -1 : 1;
  if (infinities && e == (1 << exponent_bits) - 1) return m ? NAN : sign * INFINITY;
  if (!infinities && (bits & 0x7f) == 0x7f) return NAN;
  return sign * (e ? ldexp(1 + ldexp(m, -mantissa_bits), e - bias) : ldexp(m, 1 - bias - mantissa_bits));
}
double from_f16(uint32_t b) { return decode(b & 0xffff, 5, 10, true); }
double from_bf16(uint32_t b) { return decode(b & 0xffff, 8, 7, true); }
double from_e4m3(uint32_t b) { return decode(b & 0xff, 4, 3, false); }

uint32_t encode(double x, int exponent_bits, int mantissa_bits, bool infinities) {
  const uint32_t sign = signbit(x) ? 1u << (exponent_bits + mantissa_bits) : 0;
  const uint32_t top = infinities ? ((1u << exponent_bits) - 1) << mantissa_bits : 0x7f;   // the first that is not finite
  if (isnan(x)) return infinities ? top + 1 : top;
  const double a = fabs(x);
  uint32_t lo = 0, hi = top;                       // positive encodings are in order: lo is the last not above a
  while (hi - lo > 1) {
    const uint32_t mid = (lo + hi) / 2;
    (decode(mid, exponent_bits, mantissa_bits, infinities) <= a ? lo : hi) = mid;
  }
  if (lo == top - 1) {                             // beyond the largest: as if the format went on
    const double largest = decode(lo, exponent_bits, mantissa_bits, infinities), step = largest - decode(lo - 1, exponent_bits, mantissa_bits, infinities);
    return sign | (infinities && a >= largest + step / 2 ? top : lo);
  }
  const double below = a - decode(lo, exponent_bits, mantissa_bits, infinities), above = decode(lo + 1, exponent_bits, mantissa_bits, infinities) - a;
  return sign | (lo + (below > above || (below == above && lo & 1)));
}
uint32_t to_f16(double x) { return encode(x, 5, 10, true); }
uint32_t to_bf16(double x) { return encode(x, 8, 7, true); }
uint32_t to_e4m3(double x) { return encode(x, 4, 3, false); }

// ---- what each kernel must give

void want_shared(Words& o) {
  for (int l = 0; l < 32; l++) {
    const int other = l ^ 3;
    for (int j = 0; j < 4; j++) o[4 * l + j] = in(4 * other + j);
    for (int j = 0; j < 2; j++) o[128 + 2 * l + j] = in(2 * other + j);
    o[192 + l] = in(other);
    o[224 + l] = in(other + 32) ^ in(l);
  }
}

void want_global(Words& o) {
  for (int i = 0; i < 128; i++) o[i] = o[128 + i] = o[432 + i] = in(i);
  for (int i = 0; i < 64; i++) o[256 + i] = in(i), o[320 + i] = in(64 + i);
  for (int l = 0; l < 32; l++) o[384 + l] = in(l) ^ in(l + 1), o[416 + l / 2] |= (in(l) & 0xffff) << 16 * (l & 1);
}

void want_copies(Words& o) {
  uint8_t* out = (uint8_t*)o.data();
  for (int l = 0; l < 32; l++) {
    const int other = l ^ 1;
    memcpy(out + 16 * l, bytes(4 * other), (size_t)(other % 17));
    memcpy(out + 512 + 8 * l, bytes(2 * other), (size_t)(other % 9));
    memcpy(out + 768 + 4 * l, bytes(other), (size_t)(other % 5));
    memcpy(out + 896 + 16 * l, bytes(4 * other), (size_t)((other + 3) % 17));
  }
}

void want_matrix(Words& o) {
  auto element = [](int matrix, int row, int column) { return in(32 * matrix + 4 * row + column / 2) >> 16 * (column & 1) & 0xffff; };
  for (int l = 0; l < 32; l++)
    for (int m = 0; m < 4; m++) {
      const int g = l / 4, t = l % 4;
      const uint32_t plain = element(m, g, 2 * t) | element(m, g, 2 * t + 1) << 16, turned = element(m, 2 * t, g) | element(m, 2 * t + 1, g) << 16;
      o[4 * l + m] = plain, o[128 + 4 * l + m] = turned;
      if (m < 2) o[256 + 2 * l + m] = plain, o[320 + 2 * l + m] = turned;
      if (m == 0) o[384 + l] = turned;             // lane 4g+t holds row g, columns 2t, 2t+1: the same words as matrix 0 in memory
    }
}

void want_mma(Words& o) {
  for (int i = 0; i < 16; i++)
    for (int j = 0; j < 8; j++) {
      int sum = small(8 * i + j);
      for (int k = 0; k < 16; k++) sum += small(16 * i + k) * small(17 * k + 5 * j);
      o[8 * i + j] = o[128 + 8 * i + j] = as_word(sum);
    }
}

void want_warp(Words& o) {
  uint32_t odd = 0;
  for (int l = 0; l < 32; l++) odd |= (in(l) & 1) << l;
  for (int l = 0; l < 32; l++) {
    const uint32_t v = in(l), w = in(l + 32);
    auto byte = [&](int i) { return i < 4 ? v >> 8 * i & 0xff : w >> 8 * (i - 4) & 0xff; };
    const uint32_t right = v >> l, left = v << l;
    int ones = 0, zeros = 0, first = 0;
    for (int b = 0; b < 32; b++) ones += v >> b & 1;
    while (zeros < 32 && !(right >> (31 - zeros) & 1)) zeros++;
    while (first < 32 && !(left >> first & 1)) first++;
    o[l] = in(5);
    o[32 + l] = in(l ^ 9);
    o[64 + l] = in(l < 3 ? l : l - 3);
    o[96 + l] = in(l > 28 ? l : l + 3);
    o[128 + l] = in(l / 8 * 8 + 3);
    o[160 + l] = odd;
    o[192 + l] = 1;
    o[224 + l] = byte(2) | byte(6) << 8 | byte(3) << 16 | byte(7) << 24;
    o[256 + l] = byte(0) | byte(4) << 8 | byte(1) << 16 | byte(5) << 24;
    o[288 + l] = (uint32_t)ones | (uint32_t)zeros << 8 | (uint32_t)(left ? first + 1 : 0) << 16;
    o[320 + l] = in(l ^ 4);
    o[352 + l] = (uint32_t)((uint64_t)v * w >> 32);
  }
}

void want_pack_bf16(Words& o) {
  for (int i = 0; i < 128; i++) {
    o[i] = to_bf16(as_float(in(i))) | to_bf16(as_float(in(i + 128))) << 16;
    o[128 + i] = to_bf16(value(i)) * 0x10001;
  }
}

void want_pack_f16(Words& o) {
  for (int i = 0; i < 128; i++) {
    const uint32_t a = in(i), b = in(i + 128);
    o[i] = to_f16(value(i) * 0x1p-15) | to_f16(value(i + 128) * 0x1p15) << 16;
    o[128 + i] = to_f16(from_f16(a) * from_f16(b)) | to_f16(from_f16(a >> 16) * from_f16(b >> 16)) << 16;
    for (int half = 0; half < 2; half++) o[256 + 128 * half + i] = to_f16(from_e4m3(a >> 16 * half)) | to_f16(from_e4m3(a >> (16 * half + 8))) << 16;
    if (i < 32) o[512 + i] = to_f16(value(i));
  }
}

void want_pack_e4m3(Words& o) {
  for (int i = 0; i < 256; i++)
    o[i] = to_e4m3(value(i) * 200.f) | to_e4m3(value(i + 1) * 0.01f) << 8 | to_e4m3(value(i)) << 16 | to_e4m3(as_float(in(i))) << 24;
}

void want_unpack(Words& o) {
  for (int i = 0; i < 128; i++) {
    const uint32_t v = in(i);
    const float e = (float)from_e4m3(v), x = (float)(i & 1 ? from_bf16(v) : from_f16(v));
    o[5 * i] = as_word(from_bf16(v)), o[5 * i + 1] = as_word(from_bf16(v >> 16));
    o[5 * i + 2] = as_word(from_f16(v)), o[5 * i + 3] = as_word(from_f16(v >> 16));
    o[5 * i + 4] = as_word(e == e ? e + x : x);
  }
}

void want_math(Words& o) {
  for (int i = 0; i < 64; i++) {
    const double x = value(i);
    o[i] = as_word(i == 0 ? 0 : i == 1 ? 1 : exp2(8 * x));
    o[64 + i] = as_word(log2(fabs(x) + 2));
    o[128 + i] = as_word(1 / x);
    o[192 + i] = as_word(fmax(fmax(x, value(i + 1)), 0));
  }
}

void want_tanh(Words& o) { for (int i = 0; i < 128; i++) o[i] = as_word(::tanh(value(i) * (i & 1 ? 4. : 0.1))); }

void want_barriers(Words& o) {
  uint32_t sum = 0;
  for (int i = 0; i < 8; i++) sum = sum * 3 + in(i);
  for (uint32_t& x : o) x = sum;
}

void want_atomics(Words& o) {
  int sum = 0;
  for (int i = 0; i < 256; i++) {
    o[0] += in(i);
    o[1] += in(i) >> 3;
    o[3] |= in(i) & in((i + 1) & 255) & in((i + 2) & 255);
    o[4] = std::max(o[4], in(i));
    sum += small(i);
  }
  o[2] = 256 % 100, o[5] = as_word(sum), o[6] = 512, o[7] = 256;
}

void want_flags(Words& o) {
  for (int l = 0; l < 32; l++) {
    const float a[4] = {(float)small(l), 1, 2, 3}, b[2] = {4, (float)small(l)};
    for (int j = 0; j < 4; j++) o[288 + l] += o[4 * l + j] = as_word(a[j]);
    for (int j = 0; j < 2; j++) o[288 + l] += o[128 + 2 * l + j] = as_word(b[j]);
    o[192 + l] = 1, o[224 + l] = 2, o[256 + l] = 3;
  }
}

void want_cluster(Words& o) {
  for (int block = 0; block < 8; block++)
    for (int from = 0; from < 4; from++) {
      const int x = small(8 * (block / 4 * 4 + from)), next = small(8 * (block / 4 * 4 + (from + 1) % 4));
      uint32_t* to = &o[32 * (size_t)block];
      for (int j = 0; j < 4; j++) to[4 * from + j] = as_word(x + j);
      for (int j = 0; j < 2; j++) to[16 + 2 * from + j] = as_word(x + 4 + j);
      to[24 + from] = as_word(x + 6);
      to[28 + from] = as_word(x) ^ as_word(2 * next);
    }
}

void want_bulk(Words& o) {
  for (int l = 0; l < 32; l++)
    for (int i = 0; i < 4; i++) o[l] = o[l] * 5 + (in(64 * i + l) ^ in(64 * i + 32 + 31 - l));
}

void want_dependent(Words& o) { for (int l = 0; l < 32; l++) o[l] = in(l) + 1, o[32 + l] = in(l) * 7 + 1; }   // launched twice

void want_wgmma(Words& o) {
  for (int tid = 0; tid < 128; tid++)
    for (int j = 0; j < 32; j++) {
      const int row = tid / 32 * 16 + tid % 32 / 4 + 8 * (j / 2 % 2), column = j / 4 * 8 + 2 * (tid % 4) + j % 2;
      int sum = 0;
      for (int k = 0; k < 16; k++) sum += small(16 * row + k) * small(19 * k + 7 * column);
      o[tid] += (uint32_t)((j + 1) * sum);
      o[128 + tid] += (uint32_t)((j + 1) * (sum + 1));
    }
}
void want_wgmma_f16(Words& o) { want_wgmma(o); }
void want_wgmma_bf16(Words& o) { want_wgmma(o); }

// ---- comparing. primtest/primtest.go has the same rules.

bool alike(const std::string& how, uint32_t got, uint32_t want) {
  auto same = [&](int width, double (*value)(uint32_t)) {  // each part, or both are NaN
    for (int i = 0; i < 32; i += width) {
      const uint32_t mask = width == 32 ? ~0u : (1u << width) - 1, g = got >> i & mask, w = want >> i & mask;
      if (g != w && !(isnan(value(g)) && isnan(value(w)))) return false;
    }
    return true;
  };
  if (how == "bf16") return same(16, from_bf16);
  if (how == "f16") return same(16, from_f16);
  if (how == "e4m3") return same(8, from_e4m3);
  if (how == "f32") return same(32, [](uint32_t u) { return (double)as_float(u); });
  if (how.rfind("approx", 0) == 0) {
    const double w = as_float(want);
    return fabs(as_float(got) - w) <= ldexp(fabs(w), -atoi(how.c_str() + 6));
  }
  return got == want;
}

struct Golden { const char *name, *how; int words; void (*want)(Words&); };

Words expected(const Golden& g) {
  Words w((size_t)g.words);
  g.want(w);
  return w;
}

#define GOLDEN(NAME, BLOCKS, THREADS, CLUSTER, SHARED, WORDS, HOW) {#NAME, #HOW, WORDS, want_##NAME},
const Golden goldens[] = {FD_PRIM(GOLDEN) FD_PRIM_SM90(GOLDEN)};

#define LINE(NAME, BLOCKS, THREADS, CLUSTER, SHARED, WORDS, HOW) #NAME " " #BLOCKS " " #THREADS " " #CLUSTER " " #SHARED " " #HOW,
const char* const lines[] = {FD_PRIM(LINE) FD_PRIM_SM90(LINE)};

std::string golden_text() {
  std::ostringstream s;
  auto print = [&](const std::string& head, const Words& w) {
    char x[16];
    s << head;
    for (uint32_t v : w) snprintf(x, sizeof x, " %x", v), s << x;
    s << "\n";
  };
  s << "# Code generated by prim_emu.cc: FD_GOLDEN=write make emu-test. DO NOT EDIT.\n";
  s << "# name, blocks, threads, blocks of a cluster, shared bytes, how to compare, words of the result; first the input\n";
  print("in 0 0 0 0 exact", input());
  for (size_t i = 0; i < std::size(goldens); i++) print(lines[i], expected(goldens[i]));
  return s.str();
}

void golden(Test& t) {
  const char* file = "primtest/golden.txt";
  if (const char* w = getenv("FD_GOLDEN"); w && !strcmp(w, "write")) std::ofstream(file) << golden_text();
  std::ifstream f(file);
  std::stringstream have;
  have << f.rdbuf();
  if (have.str() != golden_text()) t.fail("%s is not what the formulae give: FD_GOLDEN=write makes it anew", file);
}

void one(Test& t, const Golden& g, const emu::Launch& how, void (*kernel)(const uint32_t*, uint32_t*)) {
  Buffer<uint32_t> in(512, "in"), out((size_t)g.words, "out");
  std::copy(input().begin(), input().end(), in.begin());
  in.read_only();
  out.fill(0);
  const int times = how.dependent ? 2 : 1;
  for (int i = 0; i < times; i++) emu::launch(how, [&] { kernel(in.data(), out.data()); });
  emu::sync();
  const Words want = expected(g);
  for (size_t i = 0; i < out.size(); i++)
    if (!alike(g.how, out[i], want[i])) t.fail("%s: out[%zu] = %08x, want %08x (%s)", g.name, i, out[i], want[i], g.how);
}

}  // namespace

void emu::cases(Suite& suite) {
  size_t i = 0;
#define CASE(NAME, BLOCKS, THREADS, CLUSTER, SHARED, WORDS, HOW)                                                          \
  suite.add("prim/" #NAME, [g = &goldens[i++]](Test& t) {                                                               \
    const bool chain = !strcmp(g->name, "dependent"), together = !strcmp(g->name, "flags");                                 \
    emu::Launch how = {.grid = {BLOCKS}, .block = {THREADS}, .shared_bytes = SHARED, .cluster = CLUSTER};                   \
    how.cooperative = together, how.dependent = chain;                                                                    \
    one(t, *g, how, fd::prim::NAME);                                                                                      \
  });
  FD_PRIM(CASE)
  FD_PRIM_SM90(CASE)
  suite.add("prim/golden", golden);
}
