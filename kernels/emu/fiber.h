// Switching stacks. switch_stack saves the callee's registers on the running stack, stores its stack pointer and continues on another.
#pragma once
#include <stddef.h>

namespace emu {
constexpr size_t kStackBytes = 128 << 10;
void switch_stack(void** save, void* to);
void* new_stack_frame(char* stack, void (*entry)());   // a stack pointer that, switched to, calls entry (which never returns)
}  // namespace emu
