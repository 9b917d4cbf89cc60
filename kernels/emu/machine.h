// The scheduler's state, for sched.cc and barriers.cc.
#pragma once
#include "sched.h"

namespace emu {

struct Machine {
  std::deque<std::unique_ptr<Grid>> grids;             // in launch order; the completed ones in front are dropped
  std::vector<Warp*> ready;                            // warps that have a ready lane
  std::vector<std::function<void()>> events;
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<std::unique_ptr<Thread>> threads;
  // What is unfair just now, for the next 'left' choices.
  struct Bias { Warp *favour = nullptr, *starve = nullptr; Thread* starve_lane = nullptr; bool late = false, in_order = false; int left = 0; } bias;
  bool start_blocks = true;                            // a block may have become startable
  uint64_t polls = 0;                                  // since a thread last did anything else
};

extern Machine* machine;

void make_ready(Thread* t);
void switch_out();                                     // to the scheduler
void thread_ended(Thread* t);                          // barriers.cc: who was waiting for it
std::string describe(const Thread* t);
[[noreturn]] void deadlock(const char* what);
char* take_stack();
void give_stack(char* stack);

}  // namespace emu
