// The emulator: runs kernels as C++ on fibers, one for each CUDA thread, on one host thread and from one seed.
//
// It is unfair on purpose. Which thread goes on at each wait is drawn at random, warps and lanes are starved or favoured for
// a while, asynchronous copies land as late as they may, and what has not landed reads as NaN. What it reports: deadlocks, polling
// that never ends, accesses outside of shared memory or of registered buffers, misaligned ones, collectives that lanes of a warp
// disagree on, barriers used before init, blocks that end while something is still in flight to them.
// On seed 1 it also reports races on shared memory, whether the schedule showed them or not (race.h).
// What it cannot see: missing fences (its memory is sequentially consistent), bank conflicts, registers, time.
//
// This header is what tests use; sched.h is the inside, prim/cpu.h the primitives on top of it.
#pragma once
#include <stdint.h>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace emu {

// A violation by the kernel; thrown by sync() and run() on the caller's stack.
struct Fault : std::runtime_error { using std::runtime_error::runtime_error; };

struct Dim { unsigned x = 1, y = 1, z = 1; };

struct Launch {
  Dim grid = {}, block = {};
  uint32_t shared_bytes = 0;    // dynamic shared memory
  unsigned cluster = 1;         // blocks of a cluster, along x
  bool cooperative = false;     // all blocks resident at once; otherwise only a few are, in any order
  bool dependent = false;       // programmatic dependent launch: may start when the kernel before has said pdl_launch
};

// launch queues a kernel behind those launched before; sync runs the queue to its end. run does both.
void launch(const Launch& how, std::function<void()> kernel);
void sync();
void run(const Launch& how, std::function<void()> kernel);

void set_seed(uint64_t seed);
uint64_t random_bits();               // of the seed's sequence

// Memory that stands for the device's, between inaccessible pages: right against the page behind it or against the one before it, as
// the seed wills. Primitives refuse addresses in no buffer; a plain access off the edge is a fault too. It starts as 0xff bytes, NaN
// in every format.
class Memory {
 public:
  Memory(size_t bytes, std::string name);
  ~Memory();
  Memory(Memory&&) noexcept;
  Memory(const Memory&) = delete;
  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  void read_only(bool on);            // the kernel must not write it (whole pages: all of it, as nothing else is in them)

 private:
  char *map_, *data_;
  size_t map_bytes_, bytes_;
};

template <class T> class Buffer {
 public:
  Buffer(size_t count, std::string name) : memory_(count * sizeof(T), std::move(name)), count_(count) {}
  T* data() const { return (T*)memory_.data(); }
  T* begin() const { return data(); }
  T* end() const { return data() + count_; }
  size_t size() const { return count_; }
  T& operator[](size_t i) const { return data()[i]; }
  uint64_t address() const { return (uint64_t)memory_.data(); }
  void fill(const T& v) const { for (T& x : *this) x = v; }
  void read_only(bool on = true) { memory_.read_only(on); }

 private:
  Memory memory_;
  size_t count_;
};

// Planted bugs. MUTANT(name) in a kernel is true in the emulator while that name is chosen, and the constant false on the GPU.
void choose_mutant(const std::string& name);   // "" for none
bool mutant_reached();

}  // namespace emu
