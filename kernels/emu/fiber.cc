#include "fiber.h"
#include <stdint.h>
#include <string.h>

// By hand because ucontext makes a system call for the signal mask at each switch: 20 times slower than these few instructions.

#if defined(__x86_64__)
asm(R"(
.text
.globl emu_switch_stack
.type emu_switch_stack, @function
emu_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emu_switch_stack, .-emu_switch_stack
)");
static constexpr int kSaved = 6;
#elif defined(__aarch64__)
asm(R"(
.text
.globl emu_switch_stack
.type emu_switch_stack, %function
emu_switch_stack:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size emu_switch_stack, .-emu_switch_stack
)");
#else
#error "the emulator switches stacks on amd64 and arm64 only"
#endif

extern "C" void emu_switch_stack(void** save, void* to);

namespace emu {

void switch_stack(void** save, void* to) { emu_switch_stack(save, to); }

void* new_stack_frame(char* stack, void (*entry)()) {
  uint64_t* top = (uint64_t*)(stack + kStackBytes);
#if defined(__x86_64__)
  top -= 2;                                     // so that at entry the stack pointer is 8 off a multiple of 16, as after a call
  top[0] = (uint64_t)entry;
  top[1] = 0;
  top -= kSaved;
  memset(top, 0, kSaved * 8);
#else
  top -= 20;
  memset(top, 0, 160);
  top[11] = (uint64_t)entry;                    // x30, the link register
#endif
  return top;
}

}  // namespace emu
