// The inside of the emulator, shared by its parts and by prim/cpu.h. See emu.h.
#pragma once
#include <stdint.h>
#include <stdio.h>
#include <deque>
#include <map>
#include <memory>
#include <vector>
#include "emu.h"
#include "race.h"

namespace emu {

struct Where {  // the caller's place in the kernel, as a default argument
  const char* file;
  int line;
  constexpr Where(const char* f = __builtin_FILE(), int l = __builtin_LINE()) : file(f), line(l) {}
};

struct Thread;
struct Block;
struct Grid;

struct WaitList {
  std::vector<Thread*> threads;
  void wake_all();
};

constexpr int kLaneBytes = 48;  // most that a lane brings to or takes from a warp operation

// One warp operation that its lanes are gathering for. The last to come computes all results; it is free again when all have theirs.
struct Exchange {
  uint32_t mask = 0, arrived = 0, unread = 0;
  const char* kind = nullptr;
  Where where;
  void (*compute)(Exchange&) = nullptr;
  WaitList waiting;
  alignas(16) unsigned char in[32][kLaneBytes], out[32][kLaneBytes];
  template <class T> T& input(int lane) { return *(T*)in[lane]; }
  template <class T> T& output(int lane) { return *(T*)out[lane]; }
};

struct Warp {
  Block* block = nullptr;
  uint32_t ready = 0, live = 0;        // lanes
  int number = 0;                      // in its block
  int position = -1;                   // in the scheduler's list of warps with ready lanes
  Thread* lanes[32] = {};
  std::vector<std::unique_ptr<Exchange>> exchanges;
};

// cp.async operations of a thread, grouped; shared with an mbarrier arrival that waits for them too.
struct CopyOp { Block* block; char* dst; const char* src; int size, bytes; bool taken, landed; unsigned char snapshot[16]; };
struct CopyGroup {
  std::vector<CopyOp> ops;
  void land(size_t first, bool through_mbarrier);   // the first of them
};

struct Thread {
  void* stack_pointer = nullptr;
  char* stack = nullptr;
  Dim index;                           // threadIdx
  int lane = 0;
  Warp* warp = nullptr;
  Block* block = nullptr;
  const char* waiting = nullptr;       // what for, null if it is ready
  Where where;
  bool done = false, polling = false;
  unsigned cluster_phase = 0;
  bool cluster_pending = false;        // arrived, not waited yet
  std::deque<std::shared_ptr<CopyGroup>> copies;
  std::shared_ptr<CopyGroup> open_copies;
};

struct Barrier { int expected = 0, arrived = 0; std::vector<int> lines; WaitList waiting; };  // lines: by warp, where its lanes came from

struct MBarrier { int expected = 0, pending = 0; int64_t bytes = 0; unsigned phase = 0; Clock clock; WaitList waiting; };

struct Cluster {
  std::vector<Block*> blocks;
  int arrived = 0, live = 0;
  unsigned phase = 0;
  WaitList waiting;
};

struct SharedArray { uint32_t offset, bytes; };

struct Block {
  Grid* grid = nullptr;
  std::shared_ptr<Cluster> cluster;
  Dim index;
  unsigned rank = 0;                   // in its cluster
  std::vector<Thread*> threads;
  std::vector<std::unique_ptr<Warp>> warps;
  int live = 0;
  bool launched_dependents = false;
  int in_flight = 0;                   // asynchronous writes into its shared memory
  std::unique_ptr<Memory> dynamic_shared, static_shared;
  uint32_t static_used = 0;
  std::map<const void*, SharedArray> arrays;
  std::map<uint32_t, MBarrier> mbarriers;
  Barrier barriers[16];
  std::unique_ptr<Races> races;
};

struct Grid {
  Launch how;
  std::function<void()> kernel;
  std::vector<unsigned> to_start;      // first blocks of clusters, in the order to start them
  std::vector<Block*> resident;
  unsigned blocks = 0, ended = 0, launched_dependents = 0, max_resident = 1;
  bool complete() const { return ended == blocks; }
  WaitList waiting;                    // threads of the next grid in pdl_wait
  Grid* previous = nullptr;
};

extern Thread* self;                   // the thread that runs

// Something that will happen by itself, at a moment of the scheduler's choice.
void later(std::function<void()> event);
void wait_on(WaitList& list, const char* what, Where where);
void poll_point(const char* what, Where where);   // let others run; a loop over nothing else is a livelock
void maybe_switch();                              // let others run, sometimes: another interleaving of atomics
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

Exchange& gather(const char* kind, uint32_t mask, Where where, const void* in, size_t bytes, void (*compute)(Exchange&), bool whole_warp);
template <class Out, class In> Out collective(const char* kind, uint32_t mask, Where where, const In& in, void (*compute)(Exchange&), bool whole_warp = false) {
  static_assert(sizeof(In) <= kLaneBytes && sizeof(Out) <= kLaneBytes);
  Thread* me = self;
  Exchange& e = gather(kind, mask, where, &in, sizeof(In), compute, whole_warp);
  Out out = e.output<Out>(me->lane);
  e.unread &= ~(1u << me->lane);
  return out;
}

// ---- memory.cc
void check_global(const void* p, size_t bytes, size_t alignment, Where where);
void* global_memory(const void* p, size_t bytes, Where where);        // checked, aligned to bytes
char* dynamic_shared();
void* static_shared(const void* key, size_t bytes);
uint32_t shared_address(const void* p, Where where);
char* shared_pointer(Block* block, uint32_t address, size_t bytes, Where where);
char* own_shared(uint32_t address, size_t bytes, Where where);         // aligned to bytes
Block* cluster_block(uint32_t address, Where where);
constexpr uint32_t kDynamicBase = 0x400, kStaticBase = 0x80000, kOffsetMask = 0xffffff, kStaticBytes = 48 << 10;

// ---- async.cc
void copy_async(uint32_t dst, const void* src, int size, int bytes, Where where);
void copy_commit();
void copy_wait(int newest);
void mbar_init(uint32_t bar, uint32_t arrivals, Where where);
void mbar_inval(uint32_t bar, Where where);
void mbar_arrive(uint32_t bar, uint32_t bytes, Where where);
bool mbar_test(uint32_t bar, uint32_t parity, Where where);
void mbar_wait(uint32_t bar, uint32_t parity, Where where);
void copy_arrive(uint32_t bar, Where where);
void store_async(uint32_t dst, const void* value, size_t bytes, uint32_t bar, Where where);
void bulk_load(uint32_t dst, const void* src, uint32_t bytes, uint32_t bar, Where where);

// ---- barriers (sched.cc)
void barrier_sync(int id, int threads, Where where);                   // threads 0: all of the block
void barrier_arrive(int id, int threads, Where where);
void cluster_arrive(Where where);
void cluster_wait(Where where);
void pdl_launch();
void pdl_wait(Where where);

struct MutantSite {
  const char* name;
  bool on();
};

}  // namespace emu
