// Who runs next. Between two barriers the runnable threads run in an order drawn from the seed; a fiber that must wait
// picks its successor itself, and the launcher's stack is entered only when something has to be decided.
#pragma once

#include "shadow.h"

namespace sprigs {

// Polls in vain, with nothing else left to run, after which a spin is declared hopeless: a thousandfold of what a
// thread needs that only waits for another to be scheduled.
constexpr u64 MOST_IDLE_POLLS = 200000;
constexpr u64 MOST_FAR_POLLS = 50000000;

static void enter_block(LiveBlock* b) {
    S.entered = b;
    for (u32 i = 0; i < S.module->dynamic_pointer_count; ++i) *S.module->dynamic_pointers[i] = b->dynamic_shared;
}

static inline void make_ready(Fiber* f) {
    f->state = RUNNING;
    if (block_of(f)->delayed) {
        S.delayed[S.delayed_count++] = f;
    } else {
        S.ready[S.ready_count++] = f;
    }
}

static inline Fiber* take(Fiber** list, u32& count) {
    u32 i = below(count);
    Fiber* f = list[i];
    list[i] = list[--count];
    return f;
}

// A block is delayed from its first atomic or barrier on; its threads that were ready then are sorted out here.
static inline Fiber* take_ready() {
    while (S.ready_count) {
        Fiber* f = take(S.ready, S.ready_count);
        if (__builtin_expect(!block_of(f)->delayed, 1)) return f;
        S.delayed[S.delayed_count++] = f;
    }
    return nullptr;
}

// Null sends control to the launcher.
static inline Fiber* pick() {
    if (S.tick | S.slot_free) return nullptr;
    if (__builtin_expect(S.spinning_count != 0, 0) && S.ready_count != 0 && below(32) == 0) {
        return take(S.spinning, S.spinning_count);
    }
    return take_ready();
}

static inline void hand_over(Fiber* from, Fiber* to) {
    ++S.switches;
    sprigs_self = to;
    if (to) {
        if (to->block != S.entered) enter_block(block_of(to));
        to->state = RUNNING;
    }
    switch_context(from->context, to ? to->context : S.launcher);
}

// The calling fiber stops: it waits, or stands in one of the lists.
static inline void leave(Fiber* f) {
    Fiber* next = pick();
    if (next != f) hand_over(f, next);
    f->state = RUNNING;
}

static void finish_gathering(Warp* w, u32 index);

// __activemask has no mask to wait for: it answers once no other lane of the warp can come along.
static inline void settle_active_masks(Warp* w) {
    if (__builtin_expect(w->active_masks == 0, 1) || w->waiting != w->alive) return;
    for (u32 i = 0; i < w->gatherings; ++i) {
        if (w->gathering[i].operation == ACTIVEMASK) return finish_gathering(w, i);
    }
}

static u64 reduce(u32 operation, const Warp* w, u32 lanes) {
    u64 total = w->value[__builtin_ctz(lanes)];
    for (u32 rest = lanes & (lanes - 1); rest; rest &= rest - 1) {
        u64 v = w->value[__builtin_ctz(rest)];
        switch (operation) {
            case REDUCE_ADD: total = static_cast<u32>(total + v); break;
            case REDUCE_MIN: total = v < total ? v : total; break;
            case REDUCE_MAX: total = v > total ? v : total; break;
            case REDUCE_MIN_SIGNED: total = static_cast<int>(v) < static_cast<int>(total) ? v : total; break;
            case REDUCE_MAX_SIGNED: total = static_cast<int>(v) > static_cast<int>(total) ? v : total; break;
            case REDUCE_AND: total &= v; break;
            case REDUCE_OR: total |= v; break;
            default: total ^= v;
        }
    }
    return total;
}

[[noreturn]] static void fail_source(Warp* w, const Gathering& g, u32 lane) {
    Fiber& f = w->first[lane];
    describe_thread(f.id, S.report->here);
    describe_site(g.site, S.report->here);
    u32 source = w->source[lane], in_mask = g.mask >> source & 1;
    snprintf(S.report->detail, sizeof S.report->detail, "lane %u reads lane %u, which %s (mask 0x%08x)", lane, source,
             in_mask ? "has returned or does not exist" : "is not in the mask", g.mask);
    S.report->outcome = SOURCE_OUTSIDE_MASK;
    abandon();
}

// Every lane has arrived: works out each one's result and lets them go.
static void finish_gathering(Warp* w, u32 index) {
    Gathering g = w->gathering[index];
    w->gathering[index] = w->gathering[--w->gatherings];
    u32 lanes = g.arrived;
    if (g.operation == ACTIVEMASK && below(4) == 0) {
        // A device may run the lanes of a branch in any groups it likes, so now and then only some are together.
        u32 some = lanes & static_cast<u32>(random_bits() >> 32);
        if (some != 0 && some != lanes) {
            w->gathering[w->gatherings++] = {g.mask, lanes & ~some, g.operation, g.site};
            ++w->active_masks;
            lanes = some;
        }
    }
    if (g.operation == SHUFFLE) {
        for (u32 rest = lanes; rest; rest &= rest - 1) {
            u32 lane = static_cast<u32>(__builtin_ctz(rest)), source = w->source[lane];
            if (__builtin_expect(!(lanes >> source & 1), 0)) fail_source(w, g, lane);
            w->result[lane] = w->value[source];
        }
    } else if (g.operation == MATCH_ANY) {
        for (u32 rest = lanes; rest; rest &= rest - 1) {
            u32 lane = static_cast<u32>(__builtin_ctz(rest)), same = 0;
            for (u32 others = lanes; others; others &= others - 1) {
                u32 other = static_cast<u32>(__builtin_ctz(others));
                if (w->value[other] == w->value[lane]) same |= 1u << other;
            }
            w->result[lane] = same;
        }
    } else {
        u64 common = 0;
        u32 ballot = 0;
        for (u32 rest = lanes; rest; rest &= rest - 1) {
            u32 lane = static_cast<u32>(__builtin_ctz(rest));
            if (w->value[lane]) ballot |= 1u << lane;
        }
        switch (g.operation) {
            case SYNCWARP:
                if (sprigs_checking) order_syncwarp(w, lanes);
                break;
            case BALLOT: common = ballot; break;
            case ANY: common = ballot != 0; break;
            case ALL: common = ballot == lanes; break;
            case MATCH_ALL: {
                u64 first = w->value[__builtin_ctz(lanes)];
                common = lanes;
                for (u32 rest = lanes; rest; rest &= rest - 1) {
                    if (w->value[__builtin_ctz(rest)] != first) common = 0;
                }
                break;
            }
            case ACTIVEMASK:
                --w->active_masks;
                common = lanes;
                break;
            default: common = reduce(g.operation, w, lanes);
        }
        for (u32 rest = lanes; rest; rest &= rest - 1) w->result[__builtin_ctz(rest)] = common;
    }
    w->waiting &= ~lanes;
    for (u32 rest = lanes; rest; rest &= rest - 1) make_ready(&w->first[__builtin_ctz(rest)]);
}

static void return_fiber(Fiber* f) {
    confirm(f);
    LiveBlock* b = block_of(f);
    Warp* w = f->warp;
    f->state = RETURNED;
    w->alive &= ~(1u << f->lane);
    ++S.progress;
    // Those who wait for a lane that has returned wait for the others only (CUDA C++ Programming Guide, "Warp Shuffle
    // Functions": all non-exited threads named in mask).
    for (u32 i = 0; i < w->gatherings;) {
        Gathering& g = w->gathering[i];
        if (g.operation != ACTIVEMASK && g.arrived == (g.mask & w->alive)) {
            finish_gathering(w, i);
            i = 0;
        } else {
            ++i;
        }
    }
    settle_active_masks(w);
    if (++b->returned == b->threads) {
        settle_early_read(b);
        b->live = false;
        --S.live;
        S.slot_free = true;
    }
}

// Every fiber runs this; a new block's thread takes over where the old one returned.
static void fiber_main() {
    for (;;) {
        S.entry(S.arguments);
        Fiber* f = self();
        return_fiber(f);
        hand_over(f, pick());
    }
}

// The calling thread has polled in vain; it steps aside so that what it waits for can happen.
static void step_aside(Fiber* f, bool same) {
    if (same) {
        f->state = SPINNING;
        S.spinning[S.spinning_count++] = f;
    } else {
        ++S.far_polls;
        make_ready(f);
    }
    f->polls = 0;
    Fiber* next = pick();
    if (next != f) hand_over(f, next);
    f->state = RUNNING;
}

// Returns whether others may have run.
static bool note_poll(Fiber* f, const void* address, u32 bytes, Site site, u32 pc) {
    f->site = site;
    f->polled_at = pc;
    u64 value = 0;
    memcpy(&value, address, bytes < 8 ? bytes : 8);
    bool same = f->polled == address && f->polled_value == value && f->polled_progress == S.progress;
    if (f->polled_progress != S.progress) f->polls = 0;
    f->polled = address;
    f->polled_value = value;
    f->polled_progress = S.progress;
    if (!same && ++f->polls < 64) return false;
    step_aside(f, same);
    return true;
}

static inline void maybe_yield(Fiber* f) {
    // One time in eight another thread gets in between: between data and flag, between two atomics.
    if (below(8) != 0) return;
    make_ready(f);
    leave(f);
}

static void start_block(LiveBlock& b) {
    const Launch& l = *S.launch;
    u32 number = S.order[S.next_block++];
    b.number = number;
    b.index[0] = number % l.grid[0];
    b.index[1] = number / l.grid[0] % l.grid[1];
    b.index[2] = number / l.grid[0] / l.grid[1];
    b.first_id = number * b.threads + 1;
    b.returned = b.arrived = 0;
    b.mixed = b.delayed = false;
    b.live = true;
    b.generation = ++S.generation;
    b.barrier_time = 0;
    b.fences = 0;
    b.knowledge = b.published = nullptr;
    b.early.id = 0;
    Region& statics = heap.regions[b.static_region];
    Region& dynamic = heap.regions[b.dynamic_region];
    statics.generation = dynamic.generation = b.generation;
    memset(b.static_shared, S.poison, S.module->shared_bytes);
    if (l.dynamic_bytes) memset(b.dynamic_shared, S.poison, l.dynamic_bytes);
    ++S.live;
    for (u32 i = 0; i < b.warps.size(); ++i) {
        Warp& w = b.warps[i];
        u32 lanes = b.threads - 32 * i;
        w.alive = lanes >= 32 ? ~0u : (1u << lanes) - 1;
        w.waiting = w.gatherings = w.active_masks = 0;
    }
    for (u32 i = 0; i < b.threads; ++i) {
        Fiber& f = b.fibers[i];
        f.id = b.first_id + i;
        f.polled = nullptr;
        f.polls = 0;
        f.fenced = f.fenced_block = f.warp_knowledge = f.knowledge = f.last_acquired = nullptr;
        f.fence_time = 0;
        f.unconfirmed = nullptr;
        make_ready(&f);
    }
}

static void list_waiters(Outcome outcome) {
    Report& r = *S.report;
    for (const LiveBlock& b : S.blocks) {
        if (b.live && b.early.id) return report_early_read(b.early);
    }
    r.outcome = outcome;
    r.waiters = 0;
    r.unstarted_blocks = static_cast<u32>(S.order.size()) - S.next_block;
    for (const LiveBlock& b : S.blocks) {
        if (!b.live) continue;
        for (u32 i = 0; i < b.threads; ++i) {
            const Fiber& f = b.fibers[i];
            if (r.waiters++ >= MOST_WAITERS) continue;
            Waiter& w = r.waiter[r.waiters - 1];
            Where where;
            describe_thread(f.id, where);
            memcpy(w.block, where.block, sizeof w.block);
            memcpy(w.thread, where.thread, sizeof w.thread);
            w.state = f.state;
            w.operation = f.operation;
            w.mask = f.mask;
            w.line = f.site.line;
            w.pc = f.state == SPINNING && !f.site.line ? f.polled_at : 0;
        }
    }
}

// Nobody is ready. Somebody who polls may try again, a delayed block may move; else this is the end.
static Fiber* last_resort() {
    for (LiveBlock& b : S.blocks) {
        if (!b.live) continue;
        for (Warp& w : b.warps) {
            for (u32 i = 0; i < w.gatherings; ++i) {
                if (w.gathering[i].operation == ACTIVEMASK) {
                    finish_gathering(&w, i);
                    if (Fiber* f = take_ready()) return f;
                    break;
                }
            }
        }
    }
    if (S.idle_progress != S.progress) {
        S.idle_progress = S.progress;
        S.idle_polls = S.far_polls = 0;
    }
    if (S.delayed_count) {
        // The others poll sixteen times for every step of the starved block.
        if (!S.spinning_count || ++S.starved_steps % 16 == 0) return take(S.delayed, S.delayed_count);
        return take(S.spinning, S.spinning_count);
    }
    if (S.spinning_count) {
        if (++S.idle_polls > MOST_IDLE_POLLS) {
            list_waiters(LIVELOCK);
            return nullptr;
        }
        return take(S.spinning, S.spinning_count);
    }
    list_waiters(DEADLOCK);
    return nullptr;
}

// Runs every block to its end, or to the watchdog's next tick; on a fault control arrives in `sprigs_step` by
// siglongjmp instead.
static void run_blocks() {
    for (;;) {
        if (S.tick) {
            S.tick = 0;
            if (S.far_polls > MOST_FAR_POLLS) return list_waiters(LIVELOCK);
            S.report->outcome = UNFINISHED;
            return;
        }
        if (S.slot_free || S.live == 0) {
            S.slot_free = false;
            for (LiveBlock& b : S.blocks) {
                if (!b.live && S.next_block < S.order.size()) start_block(b);
            }
            if (S.live == 0) return;
        }
        Fiber* next = take_ready();
        if (!next) next = last_resort();
        if (!next) return;
        ++S.switches;
        sprigs_self = next;
        if (next->block != S.entered) enter_block(block_of(next));
        next->state = RUNNING;
        S.inside = true;
        switch_context(S.launcher, next->context);
        S.inside = false;
    }
}

}  // namespace sprigs
