// __atomic built-ins, as cuda::atomic_ref-like code and std::atomic use them, arrive as __tsan_atomic* calls.
#pragma once

#include "hooks.h"

namespace sprigs {

// The memory orders as the compilers number them: relaxed 0, acquire 2, release 3, acq_rel 4, seq_cst 5.
static void builtin_atomic(const volatile void* p, u32 bytes, u32 access, int order, const void* pc) {
    Fiber* f = self();
    maybe_yield(f);
    if (!sprigs_checking) return;
    const void* address = const_cast<const void*>(p);
    if ((access & WRITE) && order >= 3) order_fence(f, FENCE_DEVICE);
    check_access(address, bytes, access | ATOMIC, site_of(pc));
    if (access & READ) order_acquire(f, flag_address(address));
    if (access & WRITE) order_publish(f, flag_address(address), (access & READ) != 0);
}

static void builtin_done(const volatile void* p, u32 bytes, bool changed, const void* return_address) {
    Fiber* f = self();
    if (changed) {
        ++S.progress;
    } else {
        note_poll(f, const_cast<const void*>(p), bytes, {nullptr, 0}, site_of(return_address));
    }
}

}  // namespace sprigs

#define SPRIGS_TSAN_UPDATE(bits, type, name, expression)                                          \
    type __tsan_atomic##bits##_##name(volatile type* p, type v, int order) {                      \
        builtin_atomic(p, bits / 8, READ | WRITE, order, __builtin_return_address(0));            \
        type old = *p;                                                                            \
        *p = static_cast<type>(expression);                                                       \
        builtin_done(p, bits / 8, *p != old, __builtin_return_address(0));                                                     \
        return old;                                                                               \
    }
#define SPRIGS_TSAN_ATOMIC(bits, type)                                                            \
    type __tsan_atomic##bits##_load(const volatile type* p, int order) {                          \
        builtin_atomic(p, bits / 8, READ, order, __builtin_return_address(0));                    \
        type value = *p;                                                                          \
        builtin_done(p, bits / 8, false, __builtin_return_address(0));                                                         \
        return value;                                                                             \
    }                                                                                             \
    void __tsan_atomic##bits##_store(volatile type* p, type v, int order) {                       \
        builtin_atomic(p, bits / 8, WRITE, order, __builtin_return_address(0));                   \
        *p = v;                                                                                   \
        ++S.progress;                                                                             \
    }                                                                                             \
    int __tsan_atomic##bits##_compare_exchange_strong(volatile type* p, type* expected, type v,   \
                                                      int order, int) {                           \
        builtin_atomic(p, bits / 8, READ | WRITE, order, __builtin_return_address(0));            \
        type old = *p;                                                                            \
        bool same = old == *expected;                                                             \
        if (same) *p = v;                                                                         \
        *expected = old;                                                                          \
        builtin_done(p, bits / 8, same && old != v, __builtin_return_address(0));                                              \
        return same;                                                                              \
    }                                                                                             \
    int __tsan_atomic##bits##_compare_exchange_weak(volatile type* p, type* expected, type v,     \
                                                    int order, int failure) {                     \
        return __tsan_atomic##bits##_compare_exchange_strong(p, expected, v, order, failure);     \
    }                                                                                             \
    type __tsan_atomic##bits##_compare_exchange_val(volatile type* p, type expected, type v,      \
                                                    int order, int failure) {                     \
        __tsan_atomic##bits##_compare_exchange_strong(p, &expected, v, order, failure);           \
        return expected;                                                                          \
    }                                                                                             \
    SPRIGS_TSAN_UPDATE(bits, type, exchange, v)                                                   \
    SPRIGS_TSAN_UPDATE(bits, type, fetch_add, old + v)                                            \
    SPRIGS_TSAN_UPDATE(bits, type, fetch_sub, old - v)                                            \
    SPRIGS_TSAN_UPDATE(bits, type, fetch_and, old & v)                                            \
    SPRIGS_TSAN_UPDATE(bits, type, fetch_or, old | v)                                             \
    SPRIGS_TSAN_UPDATE(bits, type, fetch_xor, old ^ v)                                            \
    SPRIGS_TSAN_UPDATE(bits, type, fetch_nand, ~(old & v))

extern "C" {
SPRIGS_TSAN_ATOMIC(8, unsigned char)
SPRIGS_TSAN_ATOMIC(16, unsigned short)
SPRIGS_TSAN_ATOMIC(32, unsigned int)
SPRIGS_TSAN_ATOMIC(64, unsigned long long)

void __tsan_atomic_thread_fence(int) { sprigs_fence(FENCE_DEVICE); }
void __tsan_atomic_signal_fence(int) {}
}
