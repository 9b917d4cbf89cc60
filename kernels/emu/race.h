// The race detector of the emulator: vector clocks over the threads of a block, for its shared memory. Two accesses race if they touch a byte, one writes,
// and no chain of barriers orders them, whatever the schedule was. Programs built with -fsanitize=thread report every access to race.cc;
// in others the detector is asleep. Only __syncwarp and barriers order memory: a shuffle or an mma does not.
#pragma once
#include <stdint.h>
#include <memory>
#include <vector>

namespace emu {

struct Block;
struct Thread;

using Clock = std::vector<uint32_t>;   // by thread of the block

struct Races {
  struct Access { uint32_t clock, pc; uint16_t thread; uint8_t bytes; };   // bytes: which of the word's four; 0 for none
  struct Word { Access write, reads[3]; uint8_t next; };
  std::vector<Clock> clocks;           // of each thread
  Clock barriers[16], cluster;
  struct Shadow { const char* begin = nullptr; size_t bytes = 0; Word* words = nullptr; ~Shadow(); } dynamic, fixed;   // of dynamic and static shared memory
};

void detect_races(bool on);
// release: what the thread has done is before whatever acquires the clock later.
void race_release(Clock& c);
void race_acquire(const Clock& c, Thread* by = nullptr);   // null: by the running thread
Races* race_state(Block* b);           // null if the detector is asleep
// meet: the threads are at one point; all before is before all after.
void race_meet(Thread* const* threads, size_t n);
// copied: an asynchronous write of the running thread; later, when it is waited for, landed: by the thread (own) or through an mbarrier (not).
void race_copy(char* p, size_t bytes);
void race_landed(Block* b, char* p, size_t bytes, bool own);

}  // namespace emu
