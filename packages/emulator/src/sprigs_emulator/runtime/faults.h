// Signals during a launch: a touched guard page, a division by zero, a kernel that never comes back. The handlers that
// were there before get everything that is not the launch's own, and are put back at its end.
#pragma once

#include <pthread.h>
#include <time.h>
#include <ucontext.h>

#include "scheduler.h"

namespace sprigs {

// Harmless by default, so that one that arrives too late does nothing.
constexpr int WAKE_SIGNAL = SIGURG;
constexpr int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, WAKE_SIGNAL};
constexpr int SIGNAL_COUNT = 4;

static struct sigaction previous[SIGNAL_COUNT];
static stack_t previous_stack;
static pthread_t launching;
static unsigned char alternate_stack[64 * 1024];

static const void* program_counter(const void* context) {
    const ucontext_t* u = static_cast<const ucontext_t*>(context);
    (void)u;
#if defined(__x86_64__)
    return reinterpret_cast<const void*>(u->uc_mcontext.gregs[REG_RIP]);
#elif defined(__aarch64__)
    return reinterpret_cast<const void*>(u->uc_mcontext.pc);
#else
    return nullptr;
#endif
}

static u32 access_of(const void* context) {
#if defined(__x86_64__)
    // Bit 1 of the page-fault error code: the access was a write (Intel SDM vol. 3, 4.7).
    return static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2 ? WRITE : READ;
#else
    (void)context;
    return 0;
#endif
}

// The faulting instruction; failing that, the line of the atomic or hinted load that the runtime was called for.
static void describe_fault(const void* context) {
    Where& here = S.report->here;
    describe_site(self()->site, here);
    describe_pc(program_counter(context), false, here);
    // The runtime itself reads what a volatile access polls.
    if (here.pc == 0 && here.line == 0) here.pc = self()->polled_at;
    here.access = access_of(context);
}

static void pass_on(int signal, siginfo_t* info, void* context) {
    for (int i = 0; i < SIGNAL_COUNT; ++i) {
        if (SIGNALS[i] != signal) continue;
        const struct sigaction& before = previous[i];
        if (before.sa_flags & SA_SIGINFO) return before.sa_sigaction(signal, info, context);
        if (before.sa_handler == SIG_IGN || (before.sa_handler == SIG_DFL && signal == WAKE_SIGNAL)) return;
        if (before.sa_handler != SIG_DFL) return before.sa_handler(signal);
        sigaction(signal, &before, nullptr);   // the faulting instruction runs again and meets the default action
        return;
    }
}

static void on_signal(int signal, siginfo_t* info, void* context) {
    if (!pthread_equal(pthread_self(), launching) || !S.inside || !self()) return pass_on(signal, info, context);
    if (signal == WAKE_SIGNAL) {
        uintptr_t pc = reinterpret_cast<uintptr_t>(program_counter(context));
        // Only out of the kernel's own code: the runtime or libc may be in the middle of something.
        if (pc && (pc < S.library_low || pc >= S.library_high)) {
            S.expired = sprigs_checking;
            return;
        }
        describe_fault(context);
        S.report->here.access = 0;
        fail(TIMEOUT);
    }
    if (signal == SIGFPE) {
        describe_fault(context);
        fail_unless_early(DIVISION);
    }
    const unsigned char* address = static_cast<const unsigned char*>(info->si_addr);
    describe_fault(context);
    if (stacks.is_guard(address)) fail(STACK_OVERFLOW);
    u64 offset = static_cast<u64>(address - heap.base);
    if (offset < heap.bytes) {
        describe_place(offset, 0);
        fail_unless_early(OUT_OF_BOUNDS);
    }
    // An address that no page fault delivers: a vector instruction at an address it does not allow.
    if (address == nullptr && info->si_code > 0 && signal == SIGSEGV && info->si_code != SEGV_MAPERR) fail(MISALIGNED);
    snprintf(S.report->detail, sizeof S.report->detail, "address %p belongs to no array", info->si_addr);
    fail_unless_early(WILD);
}

static void install_handlers() {
    launching = pthread_self();
    stack_t own{};
    own.ss_sp = alternate_stack;
    own.ss_size = sizeof alternate_stack;
    sigaltstack(&own, &previous_stack);
    struct sigaction action{};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < SIGNAL_COUNT; ++i) sigaction(SIGNALS[i], &action, &previous[i]);
}

static void restore_handlers() {
    for (int i = 0; i < SIGNAL_COUNT; ++i) sigaction(SIGNALS[i], &previous[i], nullptr);
    sigaltstack(&previous_stack, nullptr);
}

// A second thread that looks at the clock: ten times a second the launch returns to Python, which may have received Ctrl-C, and a
// thread that has run for `timeout` seconds without meeting another is taken out.
struct Watchdog {
    pthread_t thread;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
    bool stop = false, running = false;
    double timeout = 0;

    static void* watch(void* argument) {
        Watchdog& w = *static_cast<Watchdog*>(argument);
        u64 seen = ~0ull;
        double stuck = 0;
        const double step = 0.1;
        pthread_mutex_lock(&w.mutex);
        while (!w.stop) {
            timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_nsec += static_cast<long>(step * 1e9);
            if (until.tv_nsec >= 1000000000L) until.tv_nsec -= 1000000000L, ++until.tv_sec;
            pthread_cond_timedwait(&w.wake, &w.mutex, &until);
            if (w.stop) break;
            stuck = S.switches == seen ? stuck + step : 0;
            seen = S.switches;
            S.tick = 1;
            if (stuck >= w.timeout) pthread_kill(launching, WAKE_SIGNAL);
        }
        pthread_mutex_unlock(&w.mutex);
        return nullptr;
    }

    void begin(double seconds) {
        timeout = seconds;
        stop = false;
        sigset_t all, before;
        sigfillset(&all);
        // The process's other signals are for the threads that expect them.
        pthread_sigmask(SIG_SETMASK, &all, &before);
        running = pthread_create(&thread, nullptr, watch, this) == 0;
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    void end() {
        if (!running) return;
        pthread_mutex_lock(&mutex);
        stop = true;
        pthread_cond_signal(&wake);
        pthread_mutex_unlock(&mutex);
        pthread_join(thread, nullptr);
        running = false;
    }
};

static Watchdog watchdog;

}  // namespace sprigs
