#include "race.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <algorithm>
#include "sched.h"

namespace emu {

namespace {

bool reporting;                        // some object of the program reports its accesses
bool active;                     // and that is wanted

std::string place(uint32_t pc) {       // programs are linked at fixed addresses, below 4 GB
  char command[96], line[256] = "";
  snprintf(command, sizeof command, "addr2line -se /proc/%d/exe 0x%x 2>/dev/null", (int)getpid(), pc - 1);
  if (FILE* f = popen(command, "r")) {
    if (!fgets(line, sizeof line, f)) line[0] = 0;
    pclose(f);
  }
  line[strcspn(line, " \n")] = 0;
  return line[0] ? line : "an unknown line";
}

void cover(Races::Shadow& s, const std::unique_ptr<Memory>& m) {
  if (s.words || !m) return;
  s.begin = (const char*)m->data();
  s.bytes = m->bytes();
  s.words = (Races::Word*)calloc(s.bytes / 4 + 1, sizeof(Races::Word));
}

void begin(Block* b) {
  b->races = std::make_unique<Races>();
  const size_t n = b->threads.size();
  b->races->clocks.assign(n, Clock(n, 0));
  for (size_t i = 0; i < n; i++) b->races->clocks[i][i] = 1;
  cover(b->races->dynamic, b->dynamic_shared);
}

inline Races& races(Block* b) {
  if (__builtin_expect(!b->races, 0)) begin(b);
  return *b->races;
}

unsigned number(const Thread* t) { return (unsigned)t->warp->number * 32 + (unsigned)t->lane; }

void join(Clock& into, const Clock& from) {
  if (into.size() < from.size()) into.resize(from.size(), 0);
  for (size_t i = 0; i < from.size(); i++) into[i] = std::max(into[i], from[i]);
}

bool ordered(const Races& r, const Races::Access& before, unsigned thread) {
  return before.thread == thread || before.clock <= r.clocks[thread][before.thread];
}

[[noreturn]] void report(const char* what, const Races::Access& other, uint32_t pc, size_t offset) {
  const std::string here = place(pc), there = place(other.pc);
  fail("race at byte %zu of shared memory: %s, %s, and thread %u's at %s: no barrier orders them", offset, what, here.c_str(), other.thread, there.c_str());
}

void touch(Races& r, Races::Word& w, uint8_t bytes, bool write, uint32_t pc, unsigned thread, size_t offset) {
  if (w.write.bytes & bytes && !ordered(r, w.write, thread)) report(write ? "a write" : "a read", w.write, pc, offset);
  if (!write) for (auto& x : w.reads) if (x.thread == thread && x.clock == r.clocks[thread][thread] && !(bytes & ~x.bytes)) return;
  const Races::Access now = {r.clocks[thread][thread], pc, (uint16_t)thread, bytes};
  if (write) {
    for (auto& x : w.reads) if (x.bytes & bytes && !ordered(r, x, thread)) report("a write", x, pc, offset);
    w.write = now;
    for (auto& x : w.reads) x.bytes &= ~bytes;
    return;
  }
  for (auto& x : w.reads) if (!x.bytes || x.thread == thread) { x = now; return; }
  w.reads[w.next++ % 3] = now;
}

// words calls f(word, mask of bytes, offset) for the words of [p, p+n) if they are the block's shared memory.
template <class F> void words(Block* b, const char* p, size_t n, F f) {
  Races& r = races(b);
  Races::Shadow* s = &r.dynamic;
  size_t start = (size_t)(p - s->begin);
  if (start >= s->bytes) {
    if (!b->static_shared) return;
    cover(r.fixed, b->static_shared);
    s = &r.fixed;
    start = (size_t)(p - s->begin);
    if (start >= s->bytes) return;
  }
  for (const size_t end = std::min(start + n, s->bytes); start < end;) {
    const size_t in = start & 3, count = std::min(4 - in, end - start);
    f(r, s->words[start / 4], (uint8_t)(((1u << count) - 1) << in), start - in);
    start += count;
  }
}

void access(const void* p, size_t n, bool write, const void* pc) {
  if (!self || !active) return;
  words(self->block, (const char*)p, n, [&](Races& r, Races::Word& w, uint8_t mask, size_t offset) {
    touch(r, w, mask, write, (uint32_t)(uintptr_t)pc, number(self), offset);
  });
}

}  // namespace

Races::Shadow::~Shadow() { free(words); }

void detect_races(bool on) { active = on && reporting; }

void race_release(Clock& c) {
  if (!active) return;
  Clock& mine = races(self->block).clocks[number(self)];
  join(c, mine);
  mine[number(self)]++;
}

void race_acquire(const Clock& c, Thread* by) {
  if (!by) by = self;
  if (active && by) join(races(by->block).clocks[number(by)], c);
}

Races* race_state(Block* b) { return active ? &races(b) : nullptr; }

void race_meet(Thread* const* threads, size_t n) {
  if (!active || !n) return;
  Races& r = races(threads[0]->block);
  Clock all(r.clocks.size(), 0);
  for (size_t i = 0; i < n; i++) join(all, r.clocks[number(threads[i])]);
  for (size_t i = 0; i < n; i++) {
    Clock& c = r.clocks[number(threads[i])];
    c = all;
    c[number(threads[i])]++;
  }
}

void race_copy(char* p, size_t bytes) {
  if (active) access(p, bytes, true, __builtin_return_address(0));
}

void race_landed(Block* b, char* p, size_t bytes, bool own) {
  if (!active) return;
  words(b, p, bytes, [&](Races& r, Races::Word& w, uint8_t mask, size_t) {
    if (own) { if (w.write.thread == number(self)) w.write.clock = r.clocks[number(self)][number(self)]; }
    else w.write.bytes &= ~mask;
  });
}

}  // namespace emu

// ---- what the compiler calls. Only this file knows of it; there is no other runtime.

#define PC __builtin_return_address(0)
extern "C" {
void __tsan_init() { emu::reporting = emu::active = true; }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
int __tsan_atomic32_fetch_add(volatile int* p, int x, int) { return __atomic_fetch_add(p, x, __ATOMIC_ACQ_REL); }   // of shared_ptr
char __tsan_atomic8_load(const volatile char* p, int) { return __atomic_load_n(p, __ATOMIC_ACQUIRE); }   // of guards of local statics
void __tsan_read_range(void* p, unsigned long n) { emu::access(p, n, false, PC); }
void __tsan_write_range(void* p, unsigned long n) { emu::access(p, n, true, PC); }
#define ACCESS(n)                                                             \
  void __tsan_read##n(void* p) { emu::access(p, n, false, PC); }             \
  void __tsan_write##n(void* p) { emu::access(p, n, true, PC); }             \
  void __tsan_unaligned_read##n(void* p) { emu::access(p, n, false, PC); }   \
  void __tsan_unaligned_write##n(void* p) { emu::access(p, n, true, PC); }   \
  void __tsan_volatile_read##n(void* p) { emu::access(p, n, false, PC); }    \
  void __tsan_volatile_write##n(void* p) { emu::access(p, n, true, PC); }
ACCESS(1) ACCESS(2) ACCESS(4) ACCESS(8) ACCESS(16)
}
