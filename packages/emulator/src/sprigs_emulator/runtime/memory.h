// Device memory: one reserved range of addresses in which arrays and shared memory are islands among inaccessible
// pages, and fiber stacks, each above a guard page.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <vector>

#include "report.h"

namespace sprigs {

constexpr u32 GRANULE_BITS = 20;
constexpr u64 GRANULE = 1ull << GRANULE_BITS;
// 64 GiB either side of the first array: an index of 32 bits times an element of 16 bytes stays inside.
constexpr u32 MOST_GRANULES = 1u << 17;
constexpr u32 STATIC_SHARED_BYTES = 256 * 1024;

struct Region {
    u64 low, high;          // offsets into the reserved range; the array or buffer itself
    u64 start, mapped;      // offset and size of the accessible pages
    Space space;
    u32 number;             // array number, or slot of the block
    u32 generation;
    bool track_initial;     // reading before writing is an error
};

struct Heap {
    unsigned char* base = nullptr;
    unsigned char* cells = nullptr;   // shadow, CELL_BYTES for each 4 bytes
    u64 bytes = 0;
    u32 granules = 0;
    u32 next_array = 0, next_shared = 0;
    std::vector<Region> regions;
    uint16_t owner[MOST_GRANULES];    // region number + 1
};

constexpr u64 CELL_BYTES = 64;

static Heap heap;

static inline u64 page_bytes() {
    static const u64 bytes = static_cast<u64>(sysconf(_SC_PAGESIZE));
    return bytes;
}
static inline u64 page_up(u64 bytes) { return (bytes + page_bytes() - 1) & ~(page_bytes() - 1); }

static inline void* reserve(u64 bytes) {
    void* found = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return found == MAP_FAILED ? nullptr : found;
}

// Where address space is rationed (RLIMIT_AS), smaller ranges are tried.
static bool reserve_heap() {
    if (heap.base) return true;
    for (u32 granules = MOST_GRANULES; granules >= 1024; granules /= 2) {
        u64 bytes = granules * GRANULE, shadow = bytes / 4 * CELL_BYTES;
        void* base = reserve(bytes + GRANULE);
        void* cells = base ? reserve(shadow) : nullptr;
        if (cells) {
            heap.base = reinterpret_cast<unsigned char*>((reinterpret_cast<uintptr_t>(base) + GRANULE - 1) & ~(GRANULE - 1));
            heap.cells = static_cast<unsigned char*>(cells);
            heap.bytes = bytes;
            heap.granules = granules;
            return true;
        }
        if (base) munmap(base, bytes + GRANULE);
    }
    return false;
}

static bool open_pages(unsigned char* at, u64 bytes) {
    return bytes == 0 || mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
                              -1, 0) != MAP_FAILED;
}
static void close_pages(unsigned char* at, u64 bytes) {
    if (bytes) mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

static void shadow_span(const Region& region, unsigned char** at, u64* bytes) {
    u64 first = region.start / 4 * CELL_BYTES, last = (region.start + region.mapped) / 4 * CELL_BYTES;
    *at = heap.cells + first;
    *bytes = page_up(last - first);
}

// Takes the granules for `bytes` and one more, which stays inaccessible. The address is `residue` modulo 16; `right`
// puts the end, else the start, as close to an inaccessible page as that allows. Returns false when memory is short.
static bool place(Space space, u32 number, u64 bytes, u32 residue, bool right, bool shadow, u32* region_number) {
    u64 mapped = bytes ? page_up(bytes + residue) : 0;
    u32 granules = static_cast<u32>((mapped + GRANULE - 1) / GRANULE) + 1;
    u32& next = space == ARRAY ? heap.next_array : heap.next_shared;
    u32 limit = space == ARRAY ? heap.granules : heap.granules / 2;
    if (granules + 1 > limit - next || heap.regions.size() >= 65000) return false;
    Region region{};
    region.space = space;
    region.number = number;
    // With `right` the pages end where the granules end but one, so that the next page is inaccessible either way.
    region.start = static_cast<u64>(next) * GRANULE;
    region.mapped = mapped;
    u64 low = region.start + residue;
    if (right) {
        u64 end = region.start + mapped;
        low = ((end - bytes - residue) & ~15ull) + residue;
    }
    region.low = low;
    region.high = low + bytes;
    if (!open_pages(heap.base + region.start, mapped)) return false;
    unsigned char* cells;
    u64 cell_bytes;
    shadow_span(region, &cells, &cell_bytes);
    if (shadow && !open_pages(cells, cell_bytes)) return false;
    heap.regions.push_back(region);
    *region_number = static_cast<u32>(heap.regions.size()) - 1;
    for (u32 i = 0; i < granules; ++i) heap.owner[next + i] = static_cast<uint16_t>(*region_number + 1);
    next += granules;
    return true;
}

static void start_placing() {
    heap.regions.clear();
    heap.next_array = heap.granules / 2;
    heap.next_shared = 1;   // the first granule stays inaccessible
}

static void release_all(bool shadow) {
    for (const Region& region : heap.regions) {
        close_pages(heap.base + region.start, region.mapped);
        unsigned char* cells;
        u64 bytes;
        shadow_span(region, &cells, &bytes);
        if (shadow) close_pages(cells, bytes);
        u64 first = region.start >> GRANULE_BITS, count = (region.mapped + GRANULE - 1) / GRANULE + 1;
        for (u64 i = 0; i < count; ++i) heap.owner[first + i] = 0;
    }
    heap.regions.clear();
}

// The region nearest to an address inside the reserved range: the one a stray access most likely meant.
static const Region* nearest(u64 offset) {
    const Region* best = nullptr;
    u64 least = ~0ull;
    for (const Region& region : heap.regions) {
        u64 distance = offset < region.low ? region.low - offset : offset >= region.high ? offset - region.high + 1 : 0;
        if (distance < least) least = distance, best = &region;
    }
    return best;
}

struct Stacks {
    unsigned char* base = nullptr;
    u64 bytes = 0, each = 0;   // `each` counts the guard page, which lies below
    u32 count = 0;

    bool provide(u32 wanted, u64 usable) {
        // One page more than asked for: fibers start at different offsets in it, or their frames would all compete
        // for the same sets of the cache.
        u64 size = page_up(usable) + 2 * page_bytes();
        if (base && size == each && wanted <= count) return true;
        if (base) munmap(base, bytes);
        base = nullptr;
        count = 0;
        void* found = mmap(nullptr, size * wanted, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (found == MAP_FAILED) return false;
        base = static_cast<unsigned char*>(found);
        bytes = size * wanted;
        each = size;
        for (u32 i = 0; i < wanted; ++i) {
            if (mprotect(base + i * size, page_bytes(), PROT_NONE) != 0) {
                munmap(base, bytes);   // more mappings than the system allows a process
                base = nullptr;
                return false;
            }
        }
        count = wanted;
        return true;
    }
    unsigned char* low(u32 i) const { return base + i * each + page_bytes(); }
    u64 usable(u32 i) const { return each - page_bytes() - (i * 192) % page_bytes() / 64 * 64; }
    bool contains(const void* p) const {
        return static_cast<u64>(static_cast<const unsigned char*>(p) - base) < bytes && base;
    }
    bool is_guard(const void* p) const {
        return contains(p) && static_cast<u64>(static_cast<const unsigned char*>(p) - base) % each < page_bytes();
    }
};

static Stacks stacks;

}  // namespace sprigs
