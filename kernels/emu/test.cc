// The test program's main: runs the cases, or every given mutant until a case fails.
#include "race.h"
#include "test.h"
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

namespace emu {

void Test::fail(const char* format, ...) {
  if (failures_++ >= 4) return;                        // the rest says nothing new
  char s[512];
  va_list args;
  va_start(args, format);
  vsnprintf(s, sizeof s, format, args);
  va_end(args);
  report_ += std::string("\n    ") + s;
}

bool Test::near(const char* what, size_t index, double got, double want, double tolerance) {
  if (got == want || fabs(got - want) <= tolerance) return true;
  fail("%s[%zu] = %.9g, want %.9g ± %.2g (off by %.2g)", what, index, got, want, tolerance, fabs(got - want));
  return false;
}

bool Test::equal(const char* what, size_t index, uint64_t got, uint64_t want) {
  if (got == want) return true;
  fail("%s[%zu] = %#llx, want %#llx", what, index, (unsigned long long)got, (unsigned long long)want);
  return false;
}

uint64_t Test::bits() {
  uint64_t z = state_ += 0x9E3779B97F4A7C15ull;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ z >> 27) * 0x94D049BB133111EBull;
  return z ^ z >> 31;
}
double Test::uniform() { return (double)(bits() >> 11) * 0x1p-53; }
double Test::normal() {
  double s = 0;
  for (int i = 0; i < 12; i++) s += uniform();
  return s - 6;
}
Buffer<float> Test::floats(size_t n, const char* name) {
  Buffer<float> b(n, name);
  for (float& x : b) x = (float)normal();
  return b;
}

namespace {

struct Options { int seeds = 2, mutant_seeds = 6; const char *program = "", *only = ""; bool verbose = false, list = false; std::vector<std::string> mutants; };

double seconds() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// run_case returns what went wrong, or nothing.
std::string run_case(const Suite::Case& c, uint64_t seed) {
  set_seed(seed);
  detect_races(seed == 1);                             // races do not depend on the schedule
  Test t(seed);
  try {
    c.body(t);
  } catch (const Fault& f) {
    return std::string("\n    ") + f.what();
  }
  return t.report();
}

int run_all(const Suite& suite, const Options& o) {
  int ran = 0, failed = 0;
  const double start = seconds();
  for (const auto& c : suite.all()) {
    if (!strstr(c.name.c_str(), o.only)) continue;
    const double before = seconds();
    for (int seed = 1; seed <= o.seeds; seed++) {
      ran++;
      const std::string wrong = run_case(c, (uint64_t)seed);
      if (wrong.empty()) continue;
      failed++;
      printf("FAIL %s (seed %d)%s\n", c.name.c_str(), seed, wrong.c_str());
    }
    if (o.verbose) printf("%7.3f s  %s\n", seconds() - before, c.name.c_str());
  }
  printf("%s: %d passed, %d failed (%zu cases, seeds 1 to %d, %.1f s)\n", o.program, ran - failed, failed, suite.all().size(), o.seeds, seconds() - start);
  if (!ran) printf("no case matches %s\n", o.only);
  return failed || !ran;
}

// caught runs the cases, seed by seed, until one fails with the mutant in place.
bool caught(const Suite& suite, const std::string& mutant, const Options& o) {
  bool reached = false;
  for (int seed = 1; seed <= o.mutant_seeds; seed++)
    for (const auto& c : suite.all()) {
      choose_mutant(mutant);
      const std::string wrong = run_case(c, (uint64_t)seed);
      reached |= mutant_reached();
      choose_mutant("");
      if (wrong.empty()) continue;
      if (!reached) { printf("FAIL %s: %s fails without reaching it%s\n", mutant.c_str(), c.name.c_str(), wrong.c_str()); return false; }
      const size_t line = wrong.find('\n', 1);
      printf("caught %-28s by %s, seed %d: %s\n", mutant.c_str(), c.name.c_str(), seed, wrong.substr(5, line == std::string::npos ? 110 : line - 5).c_str());
      return true;
    }
  printf("SURVIVED %s%s\n", mutant.c_str(), reached ? "" : ": no case reaches it");
  return false;
}

// caught_apart does so in a process of its own: a planted bug may do anything.
bool caught_apart(const Suite& suite, const std::string& mutant, const Options& o) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    alarm(100);
    const bool ok = caught(suite, mutant, o);
    fflush(stdout);
    _exit(!ok);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) < 0) { perror("fork"); return false; }
  if (!WIFSIGNALED(status)) return status == 0;
  if (WTERMSIG(status) == SIGALRM) { printf("FAIL %s: no case failed in 100 s\n", mutant.c_str()); return false; }
  printf("caught %-28s by signal %d, which ended the program\n", mutant.c_str(), WTERMSIG(status));
  return true;
}

Options parse(int argc, char** argv) {
  Options o;
  const char* slash = strrchr(argv[0], '/');
  o.program = slash ? slash + 1 : argv[0];
  for (int i = 1; i < argc; i++) {
    auto value = [&] { if (++i == argc) { fprintf(stderr, "%s needs a value\n", argv[i - 1]); exit(2); } return argv[i]; };
    if (!strcmp(argv[i], "-seeds")) o.seeds = o.mutant_seeds = atoi(value());
    else if (!strcmp(argv[i], "-run")) o.only = value();
    else if (!strcmp(argv[i], "-v")) o.verbose = true;
    else if (!strcmp(argv[i], "-list")) o.list = true;
    else if (!strcmp(argv[i], "-mutants")) while (i + 1 < argc) o.mutants.push_back(argv[++i]);
    else { fprintf(stderr, "usage: %s [-v] [-list] [-run part-of-name] [-seeds n] [-mutants name...]\n", argv[0]); exit(2); }
  }
  return o;
}

}  // namespace
}  // namespace emu

int main(int argc, char** argv) {
  const emu::Options o = emu::parse(argc, argv);
  emu::Suite suite;
  emu::cases(suite);
  setvbuf(stdout, nullptr, _IOLBF, 0);
  if (o.list) {
    for (const auto& c : suite.all()) printf("%s\n", c.name.c_str());
    return 0;
  }
  if (o.mutants.empty()) return emu::run_all(suite, o);
  int survived = 0;
  for (const auto& m : o.mutants) survived += !emu::caught_apart(suite, m, o);
  printf("%zu of %zu mutants caught\n", o.mutants.size() - (size_t)survived, o.mutants.size());
  return survived != 0;
}
