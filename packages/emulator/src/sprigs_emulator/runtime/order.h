// Happens-before among the threads of a grid. Time steps at every event that orders memory; an access by thread a at
// time t happens before now in thread b if b knows of a up to t: through a barrier of their block (its time), a
// __syncwarp (warp_knowledge), or a flag that a published after a fence and b has read (knowledge). Release needs the
// fence; reading a flag by a volatile or atomic access acquires, as in CUDA's own threadFenceReduction sample, where
// the reader has no fence.
#pragma once

#include <deque>

#include "state.h"

namespace sprigs {

// "Of the threads first + i with bit i of `mask` (or of all `count` if there are more than 32), every access up to
// `time`, or to times[i]; and whatever a and b say."
struct Knowledge {
    u32 first, count, mask, time;
    Knowledge *a, *b;
    const u32* times;
    u64 visit;
};

static std::deque<Knowledge> all_knowledge;   // of the launch; never freed singly
static std::deque<std::vector<u32>> all_times;
static std::vector<Knowledge*> to_visit;
static u64 visits;

static Knowledge* know(u32 first, u32 count, u32 mask, u32 time, Knowledge* a, Knowledge* b) {
    all_knowledge.push_back({first, count, mask, time, a, b, nullptr, 0});
    return &all_knowledge.back();
}

static Knowledge* join(Knowledge* a, Knowledge* b) {
    if (!a || a == b) return b;
    if (!b || a->a == b || a->b == b) return a;
    if (b->a == a || b->b == a) return b;
    return know(0, 0, 0, 0, a, b);
}

// A search of more than `most` steps is given up, and nothing is known.
static bool knows(Knowledge* root, u32 id, u32 time, u32 most = ~0u) {
    if (!root) return false;
    u64 visit = ++visits;
    to_visit.clear();
    to_visit.push_back(root);
    while (!to_visit.empty() && most-- > 0) {
        Knowledge* k = to_visit.back();
        to_visit.pop_back();
        if (k->visit == visit) continue;
        k->visit = visit;
        u32 i = id - k->first;
        if (i < k->count && time <= (k->times ? k->times[i] : k->time) && (k->count > 32 || (k->mask >> i & 1))) return true;
        if (k->b) to_visit.push_back(k->b);
        if (k->a) to_visit.push_back(k->a);
    }
    return false;
}

static inline bool ordered(const Fiber* f, u32 id, u32 time, u32 most = ~0u) {
    if (id == f->id) return true;
    const LiveBlock* b = block_of(f);
    if (id - b->first_id < b->threads && time <= b->barrier_time) return true;
    return knows(f->warp_knowledge, id, time, most) || knows(f->knowledge, id, time, most);
}

// Everything f could vouch for now.
static Knowledge* snapshot(const Fiber* f) {
    const LiveBlock* b = block_of(f);
    Knowledge* own = know(f->id, 1, 1, S.now, f->knowledge, f->warp_knowledge);
    return b->barrier_time ? know(b->first_id, b->threads, ~0u, b->barrier_time, own, nullptr) : own;
}

static void order_fence(Fiber* f, u32 scope) {
    f->fenced_block = snapshot(f);
    if (scope == FENCE_DEVICE) {
        f->fenced = f->fenced_block;
        f->fence_time = S.now;
        block_of(f)->fences++;
    }
    S.now++;
}

static void order_barrier(LiveBlock* b) {
    // A fence before the barrier covers its own thread's writes also when another thread raises the flag afterwards
    // (__threadfence(); __syncthreads(); if (first) flag = 1;).
    if (b->fences) {
        std::vector<u32> times(b->threads);
        for (u32 i = 0; i < b->threads; ++i) times[i] = b->fibers[i].fence_time;
        all_times.push_back(std::move(times));
        b->published = know(b->first_id, b->threads, ~0u, 0, nullptr, nullptr);
        b->published->times = all_times.back().data();
        b->fences = 0;
    }
    Knowledge* all = b->knowledge;
    for (u32 i = 0; i < b->threads; ++i) all = join(all, b->fibers[i].knowledge);
    b->knowledge = all;
    for (u32 i = 0; i < b->threads; ++i) {
        b->fibers[i].knowledge = all;
        b->fibers[i].warp_knowledge = nullptr;
    }
    b->barrier_time = S.now++;
}

static void order_syncwarp(Warp* w, u32 lanes) {
    Knowledge *acquired = nullptr, *within = nullptr;
    u32 base = w->first->id;
    for (u32 rest = lanes; rest; rest &= rest - 1) {
        const Fiber& f = w->first[__builtin_ctz(rest)];
        acquired = join(acquired, f.knowledge);
        within = join(within, f.warp_knowledge);
    }
    // A newer sync of the same lanes, or more, makes the older one redundant.
    while (within && within->first == base && within->count == 32 && (within->mask & ~lanes) == 0 && !within->b) {
        within = within->a;
    }
    within = know(base, 32, lanes, S.now++, within, nullptr);
    for (u32 rest = lanes; rest; rest &= rest - 1) {
        Fiber& f = w->first[__builtin_ctz(rest)];
        f.knowledge = acquired;
        f.warp_knowledge = within;
    }
}

// What flags carry, by address.
struct Published {
    Knowledge *device, *block;
    u32 block_first_id;
};

static std::unordered_map<u64, Published> flags;

static void order_acquire(Fiber* f, u64 address) {
    if (flags.empty()) return;
    auto found = flags.find(address);
    if (found == flags.end()) return;
    const Published& p = found->second;
    Knowledge* k = p.block_first_id == block_of(f)->first_id ? p.block : p.device;
    if (k && k != f->last_acquired) {
        f->knowledge = join(k, f->knowledge);
        f->last_acquired = k;
    }
}

// A plain store of a flag without a fence takes away what the flag carried; an atomic update passes it on.
static void order_publish(Fiber* f, u64 address, bool update) {
    LiveBlock* b = block_of(f);
    Knowledge* device = join(f->fenced, b->published);
    Knowledge* block = join(f->fenced_block, device);
    if (!device && !block) {
        if (!update && !flags.empty()) flags.erase(address);
        return;
    }
    Published& p = flags[address];
    if (update) {
        p.device = join(device, p.device);
        p.block = join(block, p.block_first_id == b->first_id ? p.block : p.device);
    } else {
        p.device = device;
        p.block = block;
    }
    p.block_first_id = b->first_id;
}

static void forget_order() {
    all_knowledge.clear();
    all_times.clear();
    flags.clear();
}

}  // namespace sprigs
