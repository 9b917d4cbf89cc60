// Tests of kernels in the emulator. A file *_emu.cc includes this and its kernels and defines
//
//   void emu::cases(emu::Suite& suite) {
//     for (int n : {0, 1, 15, 16, 17}) suite.add("copy/n=" + std::to_string(n), [=](emu::Test& t) {
//       auto in = t.floats(n, "in"); emu::Buffer<float> out(n, "out"); in.read_only();
//       emu::run({.grid = {1}, .block = {128}}, [&] { copy_kernel({in.address(), out.address(), n}); });
//       for (int i = 0; i < n; i++) t.near("out", i, out[i], in[i], 0);
//     });
//   }
//
// Each case runs once for each seed; it must build everything anew, because a fault leaves a launch half done. References are
// double precision. Cases that catch planted bugs soonest come first: a mutant is dead at the first case that fails.
#pragma once
#include "emu.h"

namespace emu {

class Test {
 public:
  explicit Test(uint64_t seed) : seed(seed), state_(seed * 0x2545F4914F6CDD1Dull + 0x1234567) {}
  const uint64_t seed;

  // near fails unless |got - want| <= tolerance, so NaN fails; two infinities of one sign are near.
  bool near(const char* what, size_t index, double got, double want, double tolerance);
  bool equal(const char* what, size_t index, uint64_t got, uint64_t want);
  void fail(const char* format, ...) __attribute__((format(printf, 2, 3)));
  bool failed() const { return failures_ > 0; }
  const std::string& report() const { return report_; }

  // Inputs of the case: the same for all schedules of a seed.
  uint64_t bits();
  double uniform();                                   // [0, 1)
  double normal();                                    // mean 0, variance 1, within 6
  unsigned below(unsigned n) { return (unsigned)(bits() % n); }
  Buffer<float> floats(size_t n, const char* name);   // normal

 private:
  uint64_t state_;
  int failures_ = 0;
  std::string report_;
};

class Suite {
 public:
  struct Case { std::string name; std::function<void(Test&)> body; };
  void add(std::string name, std::function<void(Test&)> body) { cases_.push_back({std::move(name), std::move(body)}); }
  const std::vector<Case>& all() const { return cases_; }

 private:
  std::vector<Case> cases_;
};

void cases(Suite& suite);   // defined by each test program

}  // namespace emu
