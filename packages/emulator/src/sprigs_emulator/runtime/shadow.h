// The shadow of device memory: who wrote and read each word last, and whether it holds anything yet. A word whose bytes
// are accessed singly is split into four cells of its own.
#pragma once

#include "order.h"

namespace sprigs {

// A site is 32 bits: the pc relative to the library, or with the top bit a number into `sites`.
typedef u32 SiteNumber;

struct Record {
    u32 id, time;
    SiteNumber site;
};

enum Kind : u32 { PLAIN = 0, VOLATILE_KIND = 1, ATOMIC_KIND = 2 };

struct Cell {
    Record write, older_write;     // the older one of another thread, kept while both are atomic or volatile
    Record read, other_read;       // of two threads, since the last write
    u32 generation;
    uint8_t kinds[4];
    uint8_t initial;               // bit per byte: holds a value
    uint8_t split;
    uint16_t unused;
    u32 bytes;                     // of `split`: number of the first of four cells in `byte_cells`
};
static_assert(sizeof(Cell) == CELL_BYTES, "a cell fills one cache line");

static std::deque<Cell> byte_cells;
static std::vector<Site> sites;

struct Attempt {
    Fiber* fiber;
    const Region* region;
    u64 offset;
    const void* address;   // what the offset stands for: a module's globals lie outside the reserved range
    u32 bytes, access;
    SiteNumber site;
    Kind kind;
};

static SiteNumber number_site(const char* file, int line) {
    static u32 last;
    Site site{file, static_cast<u32>(line)};
    if (last < sites.size() && sites[last].line == site.line && sites[last].file == file) return last | 1u << 31;
    for (last = 0; last < sites.size(); ++last) {
        if (sites[last].line == site.line && sites[last].file == file) return last | 1u << 31;
    }
    sites.push_back(site);
    return last | 1u << 31;
}

static void describe_site_number(SiteNumber number, Where& where) {
    if (number >> 31) {
        describe_site(sites[number & ~(1u << 31)], where);
    } else {
        where.pc = number;
    }
}

static bool declared_same_value(SiteNumber number) {
    if (number >> 31) return false;
    for (u32 i = 0; i < S.launch->same_value_count; ++i) {
        const Range& range = S.launch->same_value[i];
        if (number >= range.low && number < range.high) return true;
    }
    return false;
}

[[noreturn]] static void fail_access(Outcome outcome, const Attempt& at) {
    describe_place(at.offset, at.bytes);
    describe_site_number(at.site, S.report->here);
    S.report->here.access = at.access;
    if (outcome == RACE) fail(outcome);
    fail_unless_early(outcome);
}

static void report_early_read(const EarlyRead& early) {
    Report& r = *S.report;
    r.outcome = UNINITIALISED;
    describe_place(early.offset, early.bytes);
    describe_site_number(early.site, r.here);
    describe_thread(early.id, r.here);
    r.here.access = early.access;
}

static void settle_early_read(LiveBlock* b) {
    if (__builtin_expect(b->early.id == 0, 1)) return;
    report_early_read(b->early);
    abandon();
}

[[noreturn]] static void fail_race(const Attempt& at, const Record& other, Kind kind, bool other_writes) {
    Where& where = S.report->other;
    describe_thread(other.id, where);
    describe_site_number(other.site, where);
    where.access = other_writes ? WRITE : READ;
    if (kind == ATOMIC_KIND) where.access |= ATOMIC;
    if (kind == VOLATILE_KIND) where.access |= VOLATILE;
    fail_access(RACE, at);
}

// Two unordered accesses do no harm if both are atomic or volatile. Not so volatile accesses of one warp to shared
// memory: that is how warp-synchronous code was written before lanes could diverge.
static inline bool harmless(const Attempt& at, u32 id, Kind other) {
    if (at.kind == PLAIN || other == PLAIN) return false;
    if (at.kind == ATOMIC_KIND || other == ATOMIC_KIND || at.region->space == ARRAY || at.region->space == GLOBAL) {
        return true;
    }
    u32 first = at.fiber->warp->first->id;
    return id - first >= 32;
}

// Remembers what a same-value write must leave in place; `confirm` looks when the thread does something next.
static void await_confirmation(const Attempt& at) {
    Fiber* f = at.fiber;
    f->unconfirmed = static_cast<const unsigned char*>(at.address);
    f->unconfirmed_bytes = at.bytes < 16 ? at.bytes : 16;
    memcpy(f->unconfirmed_value, f->unconfirmed, f->unconfirmed_bytes);
    describe_place(at.offset, at.bytes);
    describe_site_number(at.site, S.report->here);
    S.report->here.access = at.access;
}

static void confirm(Fiber* f) {
    if (__builtin_expect(f->unconfirmed == nullptr, 1)) return;
    const unsigned char* p = f->unconfirmed;
    f->unconfirmed = nullptr;
    if (memcmp(p, f->unconfirmed_value, f->unconfirmed_bytes) != 0) {
        strcpy(S.report->detail, "declared a same-value write, but the values differ");
        fail(RACE);
    }
}

constexpr u32 SHORT_SEARCH = 64;   // which two readers are remembered may be decided roughly

// Of many readers two are remembered, and the further apart they are, the more writers they will be in the way of:
// whether f is further from `kept` than `other` is, by warps and blocks.
static bool apart_more(const Fiber* f, u32 kept, u32 other) {
    const LiveBlock* b = block_of(f);
    if (kept - f->warp->first->id < 32) return false;                         // as near as can be
    if (kept - b->first_id < b->threads) {                                    // f is in another warp of its block
        return other - b->first_id < b->threads && (other - b->first_id) / 32 == (kept - b->first_id) / 32;
    }
    return (other - 1) / b->threads == (kept - 1) / b->threads;               // f is in another block
}

static void check_cell(Cell& c, const Attempt& at, u32 mask) {
    Fiber* f = at.fiber;
    Record mine{f->id, S.now, at.site};
    if (at.access & READ) {
        EarlyRead& early = block_of(f)->early;
        if (at.region->track_initial && (c.initial & mask) != mask && early.id == 0) {
            early = {f->id, at.bytes, at.access, at.site, at.offset};
        }
    }
    const bool writes = at.access & WRITE;
    bool same_value = false;
    const Record* before[2] = {&c.write, &c.older_write};
    bool apart[2] = {false, false};
    for (int i = 0; i < 2; ++i) {
        const Record& w = *before[i];
        if (w.id == 0 || w.id == f->id) continue;
        Kind kind = static_cast<Kind>(c.kinds[i]);
        // The cheap question first: what a thread knows of flags and tickets would be a long search.
        if (harmless(at, w.id, kind)) {
            apart[i] = true;
            continue;
        }
        if (ordered(f, w.id, w.time)) continue;
        apart[i] = true;
        if (writes && !(at.access & READ) && declared_same_value(at.site) && declared_same_value(w.site)) {
            same_value = true;
            continue;
        }
        // Both ends of a same-value write are fine; the second of them is what this thread must not see change.
        fail_race(at, w, kind, true);
    }
    if (!writes) {
        if (c.read.id == f->id || c.read.id == 0) {
            c.read = mine, c.kinds[2] = at.kind;
        } else if (c.other_read.id == f->id || c.other_read.id == 0) {
            c.other_read = mine, c.kinds[3] = at.kind;
        } else if (ordered(f, c.read.id, c.read.time, SHORT_SEARCH)) {
            c.read = mine, c.kinds[2] = at.kind;
        } else if (ordered(f, c.other_read.id, c.other_read.time, SHORT_SEARCH) ||
                   apart_more(f, c.read.id, c.other_read.id)) {
            c.other_read = mine, c.kinds[3] = at.kind;
        }
        return;
    }
    const Record* reads[2] = {&c.read, &c.other_read};
    for (int i = 0; i < 2; ++i) {
        const Record& r = *reads[i];
        if (r.id == 0 || r.id == f->id) continue;
        Kind kind = static_cast<Kind>(c.kinds[2 + i]);
        if (!harmless(at, r.id, kind) && !ordered(f, r.id, r.time)) fail_race(at, r, kind, false);
    }
    if (same_value) await_confirmation(at);
    if (apart[0]) {
        c.older_write = c.write;
        c.kinds[1] = c.kinds[0];
    } else if (!apart[1]) {
        c.older_write.id = 0;
    }
    c.write = mine;
    c.kinds[0] = at.kind;
    c.read.id = c.other_read.id = 0;
    c.initial |= mask;
}

static void check_word(Cell& c, const Attempt& at, u32 mask) {
    const Region& region = *at.region;
    if (c.generation != region.generation) {
        c = Cell{};
        c.generation = region.generation;
    }
    if (mask == 15 && !c.split) return check_cell(c, at, mask);
    if (!c.split) {
        u32 first = static_cast<u32>(byte_cells.size());
        for (int i = 0; i < 4; ++i) byte_cells.push_back(c);
        c.split = 1;
        c.bytes = first;
    }
    for (u32 i = 0; i < 4; ++i) {
        if (mask >> i & 1) {
            Cell& byte = byte_cells[c.bytes + i];
            check_cell(byte, at, 1u << i);
            c.initial |= byte.initial & (1u << i);
        }
    }
}

// Which variable of the static arena a byte belongs to; 0xff: none, the gap between two.
static std::vector<uint8_t> arena_owner;

static inline bool inside(const Region& region, u64 offset, u32 bytes) {
    if (offset < region.low || offset + bytes > region.high) return false;
    if (region.space != STATIC_SHARED) return true;
    u64 first = (offset - region.low) / 4, last = (offset + bytes - 1 - region.low) / 4;
    if (arena_owner[first] == 0xff || arena_owner[first] != arena_owner[last]) return false;
    const SharedVariable& v = S.module->shared[arena_owner[first]];
    return offset - region.low >= v.offset && offset + bytes - region.low <= v.offset + static_cast<u64>(v.bytes);
}

static void check_heap(u64 offset, const void* address, u32 bytes, u32 access, SiteNumber site) {
    Fiber* f = self();
    confirm(f);
    Kind kind = access & ATOMIC ? ATOMIC_KIND : access & VOLATILE ? VOLATILE_KIND : PLAIN;
    u32 owner = heap.owner[offset >> GRANULE_BITS];
    Attempt at{f, nullptr, offset, address, bytes, access, site, kind};
    if (owner == 0) fail_access(OUT_OF_BOUNDS, at);
    const Region& region = heap.regions[owner - 1];
    at.region = &region;
    if (!inside(region, offset, bytes)) fail_access(OUT_OF_BOUNDS, at);
    if ((access & ATOMIC) && (bytes & (bytes - 1)) == 0 && (offset & (bytes - 1))) fail_access(MISALIGNED, at);
    // Shared memory of another block that is alive at the same time is nobody's business.
    const bool shared = region.space == STATIC_SHARED || region.space == DYNAMIC_SHARED;
    if (shared && region.number != block_of(f)->slot) fail_access(WILD, at);
    Cell* cell = reinterpret_cast<Cell*>(heap.cells) + offset / 4;
    u64 done = 0, lead = offset & 3;
    while (done < bytes) {
        u32 here = static_cast<u32>(4 - lead);
        if (here > bytes - done) here = static_cast<u32>(bytes - done);
        check_word(*cell++, at, ((1u << here) - 1) << lead);
        done += here;
        lead = 0;
    }
}

static void forget_shadow() {
    byte_cells.clear();
    sites.clear();
}

// The first byte of a poisoned array that no thread has written, or -1.
static long long first_unwritten(const Region& region) {
    for (u64 offset = region.low; offset < region.high; ++offset) {
        const Cell& c = reinterpret_cast<const Cell*>(heap.cells)[offset / 4];
        if (c.generation != region.generation || !(c.initial >> (offset & 3) & 1)) {
            return static_cast<long long>(offset - region.low);
        }
    }
    return -1;
}

}  // namespace sprigs
