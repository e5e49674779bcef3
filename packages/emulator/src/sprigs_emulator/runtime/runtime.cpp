// One launch from arrays in to arrays out. This file is the runtime's only translation unit; it is compiled without
// instrumentation into a library of its own, which every compiled kernel is linked with.

#include <link.h>

#include "arithmetic.h"
#include "compiler_atomics.h"
#include "faults.h"

namespace sprigs {

// Where the kernel's own code and data lie; pcs in reports are relative to it.
static int find_extent(dl_phdr_info* info, size_t, void*) {
    uintptr_t low = ~static_cast<uintptr_t>(0), high = 0;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& segment = info->dlpi_phdr[i];
        if (segment.p_type != PT_LOAD) continue;
        uintptr_t start = info->dlpi_addr + segment.p_vaddr, end = start + segment.p_memsz;
        if (start < low) low = start;
        if (end > high) high = end;
    }
    uintptr_t module = reinterpret_cast<uintptr_t>(S.module);
    if (module < low || module >= high) return 0;
    S.library = info->dlpi_addr;
    S.library_low = low;
    S.library_high = high;
    return 1;
}

static bool fail_to_start(const char* what) {
    S.report->outcome = RESOURCES;
    snprintf(S.report->detail, sizeof S.report->detail, "%s", what);
    return false;
}

// Arrays in, against an inaccessible page on their right or their left; what is around them on their pages is marked.
constexpr unsigned char SLACK = 0xa7;

static bool place_arrays(const Launch& l) {
    const bool right = l.seed % 2 == 0;
    for (u32 i = 0; i < l.array_count; ++i) {
        const Array& a = l.arrays[i];
        u32 number;
        if (!place(ARRAY, i, a.bytes, a.residue, right, l.checking, &number)) {
            return fail_to_start("the arrays do not fit into the address space reserved for them");
        }
        Region& region = heap.regions[number];
        region.generation = ++S.generation;
        region.track_initial = a.poisoned;
        memset(heap.base + region.start, SLACK, region.low - region.start);
        memset(heap.base + region.high, SLACK, region.start + region.mapped - region.high);
        if (a.poisoned) {
            memset(heap.base + region.low, S.poison, a.bytes);
        } else {
            memcpy(heap.base + region.low, a.host, a.bytes);
        }
    }
    return true;
}

static bool place_shared(const Launch& l) {
    for (u32 i = 0; i < S.blocks.size(); ++i) {
        LiveBlock& b = S.blocks[i];
        if (!place(STATIC_SHARED, i, STATIC_SHARED_BYTES, 0, true, l.checking, &b.static_region) ||
            !place(DYNAMIC_SHARED, i, l.dynamic_bytes, 0, true, l.checking, &b.dynamic_region)) {
            return fail_to_start("the shared memory of this many interleaved blocks does not fit");
        }
        b.static_shared = heap.base + heap.regions[b.static_region].low;
        b.dynamic_shared = heap.base + heap.regions[b.dynamic_region].low;
        heap.regions[b.static_region].track_initial = heap.regions[b.dynamic_region].track_initial = true;
    }
    if (!l.checking) return true;
    for (u32 i = 0; i < S.module->global_count; ++i) {
        const GlobalVariable& v = S.module->globals[i];
        u32 number, residue = static_cast<u32>(reinterpret_cast<uintptr_t>(v.address) % 16);
        if (!place(GLOBAL, i, v.bytes, residue, false, true, &number)) return fail_to_start("too many globals");
        heap.regions[number].generation = ++S.generation;
    }
    return true;
}

static bool prepare_fibers(const Launch& l) {
    u32 threads = l.block[0] * l.block[1] * l.block[2];
    u64 blocks = static_cast<u64>(l.grid[0]) * l.grid[1] * l.grid[2];
    u32 alive = static_cast<u32>(l.interleave < blocks ? l.interleave : blocks);
    u32 count = alive * threads;
    if (!stacks.provide(count, l.stack_bytes)) {
        return fail_to_start("no room for the stacks of this many threads at once: lower interleave= or stack=");
    }
    S.fibers.assign(count, Fiber{});
    S.blocks.assign(alive, LiveBlock{});
    S.lists.resize(3 * static_cast<size_t>(count));
    S.ready = S.lists.data();
    S.spinning = S.ready + count;
    S.delayed = S.spinning + count;
    for (u32 slot = 0; slot < alive; ++slot) {
        LiveBlock& b = S.blocks[slot];
        b.slot = slot;
        b.threads = threads;
        b.fibers = &S.fibers[static_cast<size_t>(slot) * threads];
        b.warps.resize((threads + 31) / 32);
        for (u32 i = 0; i < b.warps.size(); ++i) {
            b.warps[i].first = b.fibers + 32 * i;
            b.warps[i].block = &b;
        }
        for (u32 i = 0; i < threads; ++i) {
            Fiber& f = b.fibers[i];
            f.block = &b;
            f.rank = i;
            f.lane = i % 32;
            f.warp = &b.warps[i / 32];
            f.index[0] = i % l.block[0];
            f.index[1] = i / l.block[0] % l.block[1];
            f.index[2] = i / l.block[0] / l.block[1];
            u32 stack = slot * threads + i;
            prepare(f.context, stacks.low(stack), stacks.usable(stack), fiber_main);
        }
    }
    S.order.resize(blocks);
    for (u32 i = 0; i < blocks; ++i) S.order[i] = i;
    for (u32 i = static_cast<u32>(blocks); i > 1; --i) std::swap(S.order[i - 1], S.order[below(i)]);
    return true;
}

static void start_counting(const Launch& l) {
    // Any seed but zero keeps xorshift going; nearby seeds are spread by splitmix64's finaliser (Steele et al. 2014).
    u64 z = l.seed + 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    S.random = (z ^ (z >> 31)) | 1;
    S.poison = static_cast<unsigned char>(random_bits() >> 56) | 0x81;   // never 0, and negative as an integer
    S.tick = S.expired = 0;
    S.switches = 0;
    S.next_block = S.live = 0;
    S.ready_count = S.spinning_count = S.delayed_count = 0;
    S.slot_free = false;
    S.entered = nullptr;
    S.progress = 1;
    S.idle_polls = S.idle_progress = S.far_polls = S.starved_steps = 0;
    S.now = 1;
    S.printed.clear();
    sprigs_checking = static_cast<int>(l.checking);
    for (int i = 0; i < 3; ++i) {
        sprigs_grid_dim[i] = l.grid[i];
        sprigs_block_dim[i] = l.block[i];
    }
    arena_owner.assign(STATIC_SHARED_BYTES / 4, 0xff);
    for (u32 n = 0; n < S.module->shared_count; ++n) {
        const SharedVariable& v = S.module->shared[n];
        for (u32 word = v.offset / 4; word < (v.offset + v.bytes + 3) / 4; ++word) arena_owner[word] = static_cast<uint8_t>(n);
    }
}

// Scalars and pointers side by side, as in a device's parameter memory; kernels copy structs out of it.
static std::vector<void*> arguments;

static void point_arguments(const Launch& l) {
    std::vector<size_t> starts(l.argument_count + 1);
    S.parameters.clear();
    for (u32 i = 0; i < l.argument_count; ++i) {
        const Argument& a = l.arguments[i];
        starts[i] = (S.parameters.size() + 15) / 16 * 16;
        S.parameters.resize(starts[i] + (a.array < 0 ? a.offset : sizeof(void*)));
        void* slot = &S.parameters[starts[i]];
        if (a.array < 0) {
            memcpy(slot, a.value, a.offset);
        } else {
            void* pointer = heap.base + heap.regions[static_cast<u32>(a.array)].low + a.offset;
            memcpy(slot, &pointer, sizeof pointer);
        }
    }
    arguments.resize(l.argument_count + 1);
    for (u32 i = 0; i < l.argument_count; ++i) arguments[i] = &S.parameters[starts[i]];
    S.arguments = arguments.data();
}

// After a launch without faults: nothing around the arrays has changed, every declared output is written.
static bool check_afterwards(const Launch& l) {
    Report& r = *S.report;
    for (u32 i = 0; i < l.array_count; ++i) {
        const Region& region = heap.regions[i];
        for (u64 offset = region.start; offset < region.start + region.mapped; ++offset) {
            if (offset == region.low && region.high > region.low) offset = region.high;
            if (offset >= region.start + region.mapped) break;
            if (heap.base[offset] == SLACK) continue;
            r.outcome = SLACK_WRITTEN;
            describe_place(offset, 1);
            return false;
        }
        if (!l.checking || !region.track_initial) continue;
        long long unwritten = first_unwritten(region);
        if (unwritten < 0) continue;
        r.outcome = UNWRITTEN;
        describe_place(region.low + static_cast<u64>(unwritten), 0);
        return false;
    }
    return true;
}

static void take_arrays_out(const Launch& l) {
    for (u32 i = 0; i < l.array_count; ++i) {
        const Array& a = l.arrays[i];
        if (!a.read_only && a.bytes) memcpy(a.host, heap.base + heap.regions[i].low, a.bytes);
    }
}

}  // namespace sprigs

extern "C" {

// Places the arrays and prepares every fiber. `sprigs_step` runs them, `sprigs_end` must follow whatever came out.
int sprigs_begin(const Launch* launch, Report* report) {
    const Launch& l = *launch;
    memset(report, 0, offsetof(Report, waiter));
    S.launch = launch;
    S.report = report;
    S.module = l.module;
    sprigs_self = nullptr;
    dl_iterate_phdr(find_extent, nullptr);
    start_counting(l);
    if (!reserve_heap()) {
        fail_to_start("no address space can be reserved for the arrays");
    } else {
        start_placing();
        if (place_arrays(l) && prepare_fibers(l) && place_shared(l)) {
            point_arguments(l);
            S.entry = S.module->kernels[l.kernel].run;
        }
    }
    return static_cast<int>(report->outcome);
}

// Runs until the end, a fault, or the next tick of the watchdog (UNFINISHED).
int sprigs_step() {
    Report& r = *S.report;
    r.outcome = FINE;
    install_handlers();
    watchdog.begin(S.launch->timeout);
    if (sigsetjmp(S.escape, 1) == 0) run_blocks();
    S.inside = false;
    sprigs_self = nullptr;
    watchdog.end();
    restore_handlers();
    if (r.outcome == FINE && check_afterwards(*S.launch)) take_arrays_out(*S.launch);
    return static_cast<int>(r.outcome);
}

void sprigs_end() {
    release_all(S.launch->checking);
    forget_order();
    forget_shadow();
}

const char* sprigs_printed(u64* bytes) {
    *bytes = S.printed.size();
    return S.printed.data();
}
}
