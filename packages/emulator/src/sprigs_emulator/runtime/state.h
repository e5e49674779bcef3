// Fibers, warps, live blocks, and the one launch that is under way.
#pragma once

#include <setjmp.h>
#include <signal.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "context.h"
#include "memory.h"
#include "report.h"

namespace sprigs {

struct Knowledge;
struct LiveBlock;
struct Warp;

struct Site {
    const char* file;
    u32 line;
};

// A read of something that nobody has written yet. It is reported at the next barrier or the block's end: if another
// thread writes there before that, it was a race, and only the schedule put the read first.
struct EarlyRead {
    u32 id;        // of the thread; 0: none
    u32 bytes, access, site;
    u64 offset;
};

enum State : u32 { RUNNING, AT_BARRIER, AT_COLLECTIVE, SPINNING, RETURNED };

struct Fiber : Thread {
    Context context;
    Warp* warp;
    u32 id;                // 1 + the thread's number in the whole grid; 0 is nobody
    u32 rank;              // in its block
    State state;
    u32 operation, mask;
    Site site;
    // Polling: what it read last, and how often since anything changed.
    const void* polled;
    u64 polled_value, polled_progress;
    u32 polls;
    u32 polled_at;         // where, if `site` does not say
    // Order: what its next flag would publish, and what it knows of others.
    Knowledge *fenced, *fenced_block, *warp_knowledge, *knowledge, *last_acquired;
    u32 fence_time;
    // A same-value write that the next event must confirm.
    const unsigned char* unconfirmed;
    u32 unconfirmed_bytes;
    unsigned char unconfirmed_value[16];
};

struct Gathering {
    u32 mask, arrived, operation;
    Site site;
};

struct Warp {
    Fiber* first;
    LiveBlock* block;
    u32 alive, waiting;    // lanes
    u32 gatherings, active_masks;
    Gathering gathering[32];
    u64 value[32], result[32];
    unsigned char source[32];
};

struct LiveBlock : Block {
    u32 number, threads, slot;
    u32 first_id;
    u32 returned, arrived;
    Site site;
    u32 operation;
    bool mixed, all, any, delayed, live;
    int count, result;
    u32 generation;        // of its shared memory
    u32 barrier_time;
    u32 fences;            // since the last barrier
    Knowledge *knowledge, *published;
    EarlyRead early;
    u32 dynamic_region, static_region;
    Fiber* fibers;
    std::vector<Warp> warps;
};

struct LaunchState {
    const Launch* launch;
    Report* report;
    Module* module;
    void (*entry)(void**);
    void** arguments;
    uintptr_t library, library_low, library_high;
    Context launcher;
    sigjmp_buf escape;
    bool inside;                   // a fiber may be running
    volatile sig_atomic_t tick;    // the watchdog wants the launcher
    volatile sig_atomic_t expired; // a thread has run for too long; it ends at its next access
    volatile u64 switches;
    u64 random;
    std::vector<Fiber> fibers;
    std::vector<LiveBlock> blocks;
    std::vector<u32> order;        // of the blocks
    u32 next_block, live;
    Fiber **ready, **spinning, **delayed;
    std::vector<Fiber*> lists;
    u32 ready_count, spinning_count, delayed_count;
    bool slot_free;
    LiveBlock* entered;
    u64 progress;                  // threads returned, and atomics and volatile stores that changed memory
    u64 idle_polls, idle_progress, far_polls, starved_steps;
    u32 now;                       // steps at every event that orders memory
    u32 generation;
    unsigned char poison;
    std::string printed;
    std::vector<unsigned char> parameters;
};

static LaunchState S;

static inline u64 random_bits() {
    // xorshift64* (Vigna 2016): fast, and good in the upper bits, which are the ones used.
    S.random ^= S.random >> 12;
    S.random ^= S.random << 25;
    S.random ^= S.random >> 27;
    return S.random * 2685821657736338717ull;
}
static inline u32 below(u32 count) { return static_cast<u32>((random_bits() >> 32) * count >> 32); }

static inline Fiber* self() { return static_cast<Fiber*>(sprigs_self); }
static inline LiveBlock* block_of(const Fiber* fiber) { return static_cast<LiveBlock*>(fiber->block); }

// The coordinates of any thread of the grid, live or not, from its id.
static inline void describe_thread(u32 id, Where& where) {
    const Launch& l = *S.launch;
    u32 threads = l.block[0] * l.block[1] * l.block[2], block = (id - 1) / threads, rank = (id - 1) % threads;
    where.block[0] = block % l.grid[0];
    where.block[1] = block / l.grid[0] % l.grid[1];
    where.block[2] = block / l.grid[0] / l.grid[1];
    where.thread[0] = rank % l.block[0];
    where.thread[1] = rank / l.block[0] % l.block[1];
    where.thread[2] = rank / l.block[0] / l.block[1];
}

static inline void describe_site(Site site, Where& where) {
    where.line = site.line;
    where.pc = 0;
    if (site.file) {
        strncpy(where.file, site.file, sizeof where.file - 1);
        where.file[sizeof where.file - 1] = 0;
    }
}

static inline void describe_pc(const void* pc, bool is_return_address, Where& where) {
    uintptr_t at = reinterpret_cast<uintptr_t>(pc) - (is_return_address ? 1 : 0);
    where.pc = at >= S.library_low && at < S.library_high ? at - S.library : 0;
}

// Ends the launch: every fiber is abandoned where it stands.
[[noreturn]] static void abandon() { siglongjmp(S.escape, 1); }

[[noreturn]] static void fail(Outcome outcome) {
    S.report->outcome = outcome;
    if (Fiber* fiber = self()) describe_thread(fiber->id, S.report->here);
    abandon();
}

static void report_early_read(const EarlyRead& early);

// What follows from a value that was never written is not worth reporting; that read is.
[[noreturn]] static void fail_unless_early(Outcome outcome) {
    if (Fiber* fiber = self()) {
        const EarlyRead& early = block_of(fiber)->early;
        if (early.id) {
            report_early_read(early);
            abandon();
        }
    }
    fail(outcome);
}

// Names what lies at an offset of the reserved range, for a report.
static void describe_place(u64 offset, u32 bytes) {
    Report& r = *S.report;
    r.access_bytes = bytes;
    const Region* region = offset < heap.bytes ? nearest(offset) : nullptr;
    if (!region) return;
    r.space = region->space;
    r.offset = static_cast<long long>(offset - region->low);
    r.extent = region->high - region->low;
    r.element = 1;
    if (region->space == ARRAY) r.array = region->number;
    if (region->space == STATIC_SHARED) {
        const SharedVariable* best = nullptr;
        long long least = 0;
        for (u32 i = 0; i < S.module->shared_count; ++i) {
            const SharedVariable& v = S.module->shared[i];
            long long start = v.offset, end = start + v.bytes;
            long long distance = r.offset < start ? start - r.offset : r.offset >= end ? r.offset - end + 1 : 0;
            if (!best || distance < least) best = &v, least = distance;
        }
        if (best) {
            strncpy(r.name, best->name, sizeof r.name - 1);
            r.offset -= best->offset;
            r.extent = best->bytes;
            r.element = best->element;
        }
    }
    if (region->space == GLOBAL) {
        const GlobalVariable& v = S.module->globals[region->number];
        strncpy(r.name, v.name, sizeof r.name - 1);
        r.element = v.element;
    }
    if (region->space == DYNAMIC_SHARED) strncpy(r.name, "dynamic shared memory", sizeof r.name - 1);
}

}  // namespace sprigs
