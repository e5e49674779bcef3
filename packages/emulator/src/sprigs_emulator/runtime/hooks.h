// What compiled kernels call: the functions of abi.h, and those that -fsanitize=thread and -fsanitize=undefined insert.
// libtsan and libubsan are not linked; these take their place.
#pragma once

#include <cstdarg>
#include <cstdio>

#include "scheduler.h"

sprigs::Thread* sprigs_self;
sprigs::u32 sprigs_grid_dim[3];
sprigs::u32 sprigs_block_dim[3];
int sprigs_checking;

namespace sprigs {

// An access outside the reserved range: the stack, constants and globals of the kernel's library, or astray.
static void check_outside(const void* p, u32 bytes, u32 access, SiteNumber site) {
    const unsigned char* address = static_cast<const unsigned char*>(p);
    if (stacks.contains(p)) return;
    if (static_cast<size_t>(address - S.parameters.data()) < S.parameters.size()) return;
    uintptr_t at = reinterpret_cast<uintptr_t>(p);
    if (at >= S.library_low && at < S.library_high) {
        for (u32 i = 0; i < S.module->global_count; ++i) {
            const GlobalVariable& v = S.module->globals[i];
            const unsigned char* start = static_cast<const unsigned char*>(v.address);
            if (address >= start && address < start + v.bytes) {
                for (const Region& region : heap.regions) {
                    if (region.space != GLOBAL || region.number != i) continue;
                    return check_heap(region.low + static_cast<u64>(address - start), p, bytes, access, site);
                }
            }
        }
        return;
    }
    S.report->access_bytes = bytes;
    describe_site_number(site, S.report->here);
    S.report->here.access = access;
    snprintf(S.report->detail, sizeof S.report->detail, "address %p belongs to no array", p);
    fail_unless_early(WILD);
}

static inline void check_access(const void* p, u32 bytes, u32 access, SiteNumber site) {
    if (__builtin_expect(S.expired, 0)) {
        describe_site_number(site, S.report->here);
        fail(TIMEOUT);
    }
    u64 offset = static_cast<u64>(static_cast<const unsigned char*>(p) - heap.base);
    if (__builtin_expect(offset < heap.bytes, 1)) return check_heap(offset, p, bytes, access, site);
    check_outside(p, bytes, access, site);
}

static inline SiteNumber site_of(const void* return_address) {
    return static_cast<SiteNumber>(reinterpret_cast<uintptr_t>(return_address) - 1 - S.library);
}

static inline u64 flag_address(const void* p) { return reinterpret_cast<u64>(p) & ~3ull; }

// A volatile access is how flags between blocks are read and raised: it lets others run, and orders.
static void volatile_access(const void* p, u32 bytes, u32 access, SiteNumber site, Site explicit_site) {
    Fiber* f = self();
    if (stacks.contains(p)) return;
    if (access & READ) {
        if (sprigs_checking) check_access(p, bytes, access | VOLATILE, site);
        // Others may have run meanwhile, and the read that counts is the one that follows.
        bool others_ran = note_poll(f, p, bytes, explicit_site, site);
        if (!sprigs_checking) return;
        if (others_ran) check_access(p, bytes, access | VOLATILE, site);
        order_acquire(f, flag_address(p));
    } else {
        maybe_yield(f);
        ++S.progress;
        if (!sprigs_checking) return;
        check_access(p, bytes, access | VOLATILE, site);
        order_publish(f, flag_address(p), false);
    }
}

static void range_access(const void* p, u64 bytes, u32 access, const void* pc) {
    if (!sprigs_checking || bytes == 0) return;
    const unsigned char* at = static_cast<const unsigned char*>(p);
    // In pieces: a cell's site is one access, and 1 GiB in a struct assignment does not occur.
    for (u64 done = 0; done < bytes; done += 64) {
        u64 piece = bytes - done < 64 ? bytes - done : 64;
        check_access(at + done, static_cast<u32>(piece), access, site_of(pc));
    }
}

}  // namespace sprigs

using namespace sprigs;

extern "C" {

int sprigs_barrier(u32 kind, int predicate, const char* file, int line) {
    Fiber* f = self();
    LiveBlock* b = block_of(f);
    Site site{file, static_cast<u32>(line)};
    if (sprigs_checking) confirm(f);
    if (b->arrived == 0) {
        b->site = site;
        b->operation = kind;
        b->count = 0;
        b->all = true;
        b->any = b->mixed = false;
    } else if (b->site.line != site.line || b->site.file != site.file || b->operation != kind) {
        b->mixed = true;
    }
    b->count += predicate != 0;
    b->all = b->all && predicate;
    b->any = b->any || predicate;
    f->state = AT_BARRIER;
    f->operation = kind;
    f->site = site;
    f->warp->waiting |= 1u << f->lane;
    if (++b->arrived < b->threads) {
        settle_active_masks(f->warp);
        leave(f);
        return b->result;
    }
    if (b->mixed) {
        list_waiters(BARRIERS_DIFFER);
        abandon();
    }
    if (sprigs_checking) {
        settle_early_read(b);
        order_barrier(b);
    }
    b->result = kind == BARRIER_COUNT ? b->count : kind == BARRIER_AND ? b->all : b->any;
    b->arrived = 0;
    if (S.launch->delay_block == static_cast<long long>(b->number)) b->delayed = true;
    for (Warp& w : b->warps) w.waiting = 0;
    for (u32 i = 0; i < b->threads; ++i) make_ready(&b->fibers[i]);
    leave(f);
    return b->result;
}

u64 sprigs_collective(u32 kind, u32 mask, u64 value, u32 source, const char* file, int line) {
    Fiber* f = self();
    Warp* w = f->warp;
    u32 bit = 1u << f->lane;
    Site site{file, static_cast<u32>(line)};
    if (sprigs_checking) confirm(f);
    if (__builtin_expect(!(mask & bit), 0)) {
        describe_site(site, S.report->here);
        snprintf(S.report->detail, sizeof S.report->detail, "lane %u calls with mask 0x%08x, which leaves it out",
                 f->lane, mask);
        fail(LANE_OUTSIDE_MASK);
    }
    w->value[f->lane] = value;
    w->source[f->lane] = static_cast<unsigned char>(source);
    u32 i = 0;
    for (; i < w->gatherings; ++i) {
        const Gathering& g = w->gathering[i];
        if (g.site.line == site.line && g.mask == mask && g.operation == kind && g.site.file == file) break;
    }
    if (i == w->gatherings) {
        w->gathering[w->gatherings++] = {mask, 0, kind, site};
        w->active_masks += kind == ACTIVEMASK;
    }
    Gathering& g = w->gathering[i];
    g.arrived |= bit;
    w->waiting |= bit;
    f->state = AT_COLLECTIVE;
    f->operation = kind;
    f->mask = mask;
    f->site = site;
    if (kind != ACTIVEMASK && g.arrived == (mask & w->alive)) {
        finish_gathering(w, i);
    } else {
        settle_active_masks(w);
    }
    leave(f);
    return w->result[f->lane];
}

void sprigs_fence(u32 scope) {
    Fiber* f = self();
    if (sprigs_checking) {
        confirm(f);
        order_fence(f, scope);
    }
    maybe_yield(f);
}

void sprigs_spin_hint() {
    Fiber* f = self();
    ++S.far_polls;
    make_ready(f);
    leave(f);
}

void sprigs_atomic_begin(const void* address, size_t bytes, const char* file, int line) {
    Fiber* f = self();
    f->site = {file, static_cast<u32>(line)};
    maybe_yield(f);
    if (!sprigs_checking) return;
    f->site = {file, static_cast<u32>(line)};
    check_access(address, static_cast<u32>(bytes), READ | WRITE | ATOMIC, number_site(file, line));
    order_acquire(f, flag_address(address));
    order_publish(f, flag_address(address), true);
}

void sprigs_atomic_end(const void* address, int changed) {
    Fiber* f = self();
    if (S.launch->delay_block == static_cast<long long>(block_of(f)->number)) block_of(f)->delayed = true;
    if (changed) {
        ++S.progress;
    } else {
        note_poll(f, address, 2, f->site, 0);
    }
}

void sprigs_access(const void* address, size_t bytes, u32 access, const char* file, int line) {
    self()->site = {file, static_cast<u32>(line)};
    if (access & VOLATILE) {
        volatile_access(address, static_cast<u32>(bytes), access & ~static_cast<u32>(VOLATILE),
                        sprigs_checking ? number_site(file, line) : 0, {file, static_cast<u32>(line)});
    } else if (sprigs_checking) {
        SiteNumber site = number_site(file, line);
        if (reinterpret_cast<uintptr_t>(address) % (bytes & -bytes) && (bytes & (bytes - 1)) == 0) {
            describe_site_number(site, S.report->here);
            S.report->here.access = access;
            describe_place(static_cast<u64>(static_cast<const unsigned char*>(address) - heap.base), static_cast<u32>(bytes));
            fail_unless_early(MISALIGNED);
        }
        check_access(address, static_cast<u32>(bytes), access, site);
    }
}

u32 sprigs_shared_declare(Module* module, const char* name, size_t bytes, size_t align, size_t element, int line) {
    // Between two variables stays a gap that belongs to none, so that running over the end of one is seen.
    u32 step = align < 16 ? 16 : static_cast<u32>(align);
    u32 offset = (module->shared_bytes + 16 + step - 1) / step * step;
    if (module->shared_count >= SPRIGS_MAX_SHARED - 2 || offset + bytes + 16 > STATIC_SHARED_BYTES) {
        snprintf(S.report->detail, sizeof S.report->detail, "%s: the static shared memory of this file exceeds %u bytes",
                 name, STATIC_SHARED_BYTES);
        describe_site({nullptr, static_cast<u32>(line)}, S.report->here);
        fail(RESOURCES);
    }
    u32 number = module->shared_count++;
    module->shared[number] = {name, offset, static_cast<u32>(bytes), static_cast<u32>(element), static_cast<u32>(line)};
    module->shared_bytes = offset + static_cast<u32>(bytes);
    for (LiveBlock& b : S.blocks) memset(b.static_shared + offset, S.poison, bytes);
    for (u64 word = offset / 4; word < (offset + bytes + 3) / 4; ++word) arena_owner[word] = static_cast<uint8_t>(number);
    return offset;
}

int sprigs_printf(const char* format, ...) {
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    char text[512];
    int length = vsnprintf(text, sizeof text, format, arguments);
    if (length >= static_cast<int>(sizeof text)) {
        size_t before = S.printed.size();
        S.printed.resize(before + static_cast<size_t>(length) + 1);
        vsnprintf(&S.printed[before], static_cast<size_t>(length) + 1, format, again);
        S.printed.pop_back();
    } else if (length > 0) {
        S.printed.append(text, static_cast<size_t>(length));
    }
    va_end(again);
    va_end(arguments);
    return length;
}

void sprigs_assert_failed(const char* expression, const char* file, int line) {
    describe_site({file, static_cast<u32>(line)}, S.report->here);
    snprintf(S.report->detail, sizeof S.report->detail, "%s", expression);
    fail(ASSERTION);
}

void sprigs_trap(const char* file, int line) {
    describe_site({file, static_cast<u32>(line)}, S.report->here);
    fail(TRAP);
}

u64 sprigs_clock() {
    static u64 ticks;
    return ticks += 32;   // monotone; a thread that reads it twice sees it advance
}

// --- -fsanitize=thread ------------------------------------------------------------------------------------------

#define SPRIGS_TSAN(size)                                                                                           \
    void __tsan_read##size(void* p) {                                                                               \
        if (sprigs_checking) check_access(p, size, READ, site_of(__builtin_return_address(0)));                     \
    }                                                                                                               \
    void __tsan_write##size(void* p) {                                                                              \
        if (sprigs_checking) check_access(p, size, WRITE, site_of(__builtin_return_address(0)));                    \
    }                                                                                                               \
    void __tsan_unaligned_read##size(void* p) {                                                                     \
        if (sprigs_checking) check_access(p, size, READ, site_of(__builtin_return_address(0)));                     \
    }                                                                                                               \
    void __tsan_unaligned_write##size(void* p) {                                                                    \
        if (sprigs_checking) check_access(p, size, WRITE, site_of(__builtin_return_address(0)));                    \
    }                                                                                                               \
    void __tsan_read_write##size(void* p) {                                                                         \
        if (sprigs_checking) check_access(p, size, READ | WRITE, site_of(__builtin_return_address(0)));             \
    }                                                                                                               \
    void __tsan_unaligned_read_write##size(void* p) {                                                               \
        if (sprigs_checking) check_access(p, size, READ | WRITE, site_of(__builtin_return_address(0)));             \
    }                                                                                                               \
    void __tsan_volatile_read##size(void* p) {                                                                      \
        volatile_access(p, size, READ, site_of(__builtin_return_address(0)), {nullptr, 0});                         \
    }                                                                                                               \
    void __tsan_volatile_write##size(void* p) {                                                                     \
        volatile_access(p, size, WRITE, site_of(__builtin_return_address(0)), {nullptr, 0});                        \
    }                                                                                                               \
    void __tsan_unaligned_volatile_read##size(void* p) {                                                            \
        volatile_access(p, size, READ, site_of(__builtin_return_address(0)), {nullptr, 0});                         \
    }                                                                                                               \
    void __tsan_unaligned_volatile_write##size(void* p) {                                                           \
        volatile_access(p, size, WRITE, site_of(__builtin_return_address(0)), {nullptr, 0});                        \
    }
SPRIGS_TSAN(1)
SPRIGS_TSAN(2)
SPRIGS_TSAN(4)
SPRIGS_TSAN(8)
SPRIGS_TSAN(16)

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_read_range(void* p, unsigned long bytes) { range_access(p, bytes, READ, __builtin_return_address(0)); }
void __tsan_write_range(void* p, unsigned long bytes) { range_access(p, bytes, WRITE, __builtin_return_address(0)); }
void __tsan_vptr_update(void** p, void*) {
    if (sprigs_checking) check_access(p, sizeof *p, WRITE, site_of(__builtin_return_address(0)));
}
void __tsan_vptr_read(void** p) {
    if (sprigs_checking) check_access(p, sizeof *p, READ, site_of(__builtin_return_address(0)));
}

// Memory functions under three names: what the header makes of the user's own calls, which the compiler would else
// expand behind the checks' back; what clang turns struct copies into (the kernel's library is linked with --wrap);
// and what newer clangs insert.
#define SPRIGS_MEMORY_FUNCTIONS(prefix)                                                  \
    void* prefix##memcpy(void* to, const void* from, size_t bytes) {                     \
        range_access(from, bytes, READ, __builtin_return_address(0));                    \
        range_access(to, bytes, WRITE, __builtin_return_address(0));                     \
        return memcpy(to, from, bytes);                                                  \
    }                                                                                    \
    void* prefix##memmove(void* to, const void* from, size_t bytes) {                    \
        range_access(from, bytes, READ, __builtin_return_address(0));                    \
        range_access(to, bytes, WRITE, __builtin_return_address(0));                     \
        return memmove(to, from, bytes);                                                 \
    }                                                                                    \
    void* prefix##memset(void* to, int value, size_t bytes) {                            \
        range_access(to, bytes, WRITE, __builtin_return_address(0));                     \
        return memset(to, value, bytes);                                                 \
    }
SPRIGS_MEMORY_FUNCTIONS(sprigs_)
SPRIGS_MEMORY_FUNCTIONS(__wrap_)
SPRIGS_MEMORY_FUNCTIONS(__tsan_)
}  // extern "C"
