// Switching between the stacks of fibers. On x86-64 and aarch64 a few instructions; elsewhere, or with
// SPRIGS_UCONTEXT defined, swapcontext, which enters the kernel to save the signal mask and is some 80 times slower.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if !defined(__x86_64__) && !defined(__aarch64__)
#define SPRIGS_UCONTEXT 1
#endif

#if defined(SPRIGS_UCONTEXT)

#include <ucontext.h>

namespace sprigs {

struct Context {
    ucontext_t machine;
};

inline void prepare(Context& context, unsigned char* low, size_t bytes, void (*entry)()) {
    getcontext(&context.machine);
    context.machine.uc_stack.ss_sp = low;
    context.machine.uc_stack.ss_size = bytes;
    context.machine.uc_link = nullptr;
    makecontext(&context.machine, entry, 0);
}

inline void switch_context(Context& from, Context& to) { swapcontext(&from.machine, &to.machine); }

}  // namespace sprigs

#else

extern "C" void sprigs_switch_stack(void** save, void* load);

#if defined(__x86_64__)
// System V ABI: rbx, rbp and r12-r15 belong to the caller, and so do the control words of SSE and x87. Loading those
// is slow, and they hardly ever differ, so they are compared first.
asm(".text\n"
    ".globl sprigs_switch_stack\n"
    "sprigs_switch_stack:\n"
    "  pushq %rbp\n"
    "  pushq %rbx\n"
    "  pushq %r12\n"
    "  pushq %r13\n"
    "  pushq %r14\n"
    "  pushq %r15\n"
    "  subq $8, %rsp\n"
    "  stmxcsr (%rsp)\n"
    "  fnstcw 4(%rsp)\n"
    "  movq (%rsp), %rax\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  xorq (%rsp), %rax\n"
    "  shlq $16, %rax\n"   // the top 16 bits are not part of the control words
    "  jz 1f\n"
    "  ldmxcsr (%rsp)\n"
    "  fldcw 4(%rsp)\n"
    "1:\n"
    "  addq $8, %rsp\n"
    "  popq %r15\n"
    "  popq %r14\n"
    "  popq %r13\n"
    "  popq %r12\n"
    "  popq %rbx\n"
    "  popq %rbp\n"
    "  ret\n");
#else
// AAPCS64: x19-x30, d8-d15 and the rounding control belong to the caller.
asm(".text\n"
    ".p2align 2\n"
    ".globl sprigs_switch_stack\n"
    "sprigs_switch_stack:\n"
    "  sub sp, sp, #176\n"
    "  stp x19, x20, [sp, #0]\n"
    "  stp x21, x22, [sp, #16]\n"
    "  stp x23, x24, [sp, #32]\n"
    "  stp x25, x26, [sp, #48]\n"
    "  stp x27, x28, [sp, #64]\n"
    "  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n"
    "  stp d10, d11, [sp, #112]\n"
    "  stp d12, d13, [sp, #128]\n"
    "  stp d14, d15, [sp, #144]\n"
    "  mrs x9, fpcr\n"
    "  str x9, [sp, #160]\n"
    "  mov x9, sp\n"
    "  str x9, [x0]\n"
    "  mov sp, x1\n"
    "  ldr x9, [sp, #160]\n"
    "  msr fpcr, x9\n"
    "  ldp x19, x20, [sp, #0]\n"
    "  ldp x21, x22, [sp, #16]\n"
    "  ldp x23, x24, [sp, #32]\n"
    "  ldp x25, x26, [sp, #48]\n"
    "  ldp x27, x28, [sp, #64]\n"
    "  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n"
    "  ldp d10, d11, [sp, #112]\n"
    "  ldp d12, d13, [sp, #128]\n"
    "  ldp d14, d15, [sp, #144]\n"
    "  add sp, sp, #176\n"
    "  ret\n");
#endif

namespace sprigs {

struct Context {
    void* stack_pointer;
};

// Leaves on the new stack what the switch will pop, so that its `ret` enters `entry`.
inline void prepare(Context& context, unsigned char* low, size_t bytes, void (*entry)()) {
    uintptr_t top = (reinterpret_cast<uintptr_t>(low) + bytes) & ~static_cast<uintptr_t>(15);
#if defined(__x86_64__)
    // Seven words are popped, then `entry`, above it the return address that `entry` never uses: at its first instruction
    // the stack pointer is 8 short of a multiple of 16, as after a call.
    uintptr_t* frame = reinterpret_cast<uintptr_t*>(top) - 9;
    memset(frame, 0, 9 * sizeof *frame);
    uint32_t mxcsr;
    uint16_t control;
    asm volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(mxcsr), "=m"(control));
    frame[0] = mxcsr | static_cast<uintptr_t>(control) << 32;
    frame[7] = reinterpret_cast<uintptr_t>(entry);
#else
    uintptr_t* frame = reinterpret_cast<uintptr_t*>(top - 176);
    memset(frame, 0, 176);
    frame[11] = reinterpret_cast<uintptr_t>(entry);   // x30
    uintptr_t control;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    frame[20] = control;
#endif
    context.stack_pointer = frame;
}

inline void switch_context(Context& from, Context& to) { sprigs_switch_stack(&from.stack_pointer, to.stack_pointer); }

}  // namespace sprigs

#endif
