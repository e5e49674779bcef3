// What a compiled kernel and the runtime agree on. No standard header: NVRTC offers none to kernels, and their names
// (uint64_t, std::...) stay free for the kernel text.
#pragma once

#define SPRIGS_MAX_SHARED 256

#if defined(__clang__)
#define SPRIGS_UNCHECKED __attribute__((no_sanitize("thread", "undefined")))
#else
#define SPRIGS_UNCHECKED __attribute__((no_sanitize_thread, no_sanitize_undefined))
#endif

// Where the call stands in the user's text: default arguments are evaluated at the caller.
#define SPRIGS_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

namespace sprigs {

typedef decltype(sizeof(0)) size;
typedef unsigned long long u64;
typedef unsigned int u32;

// The part of a live block that kernels see.
struct Block {
    u32 index[3];
    unsigned char* static_shared;
    unsigned char* dynamic_shared;
};

// The part of a thread that kernels see.
struct Thread {
    u32 index[3];
    u32 lane;
    Block* block;
};

struct SharedVariable {
    const char* name;
    u32 offset, bytes, element, line;
};

struct GlobalVariable {
    const char* name;
    void* address;
    size bytes, element;
    char kind;
};

struct Parameter {
    size bytes;
    size pointee_bytes;   // 0: not a pointer; 1 with kind 'x' for void
    char kind;            // of the value, or of what is pointed at: i, u, f, h, b, B, v (vector), s (struct), x (void)
    char element_kind;    // of a vector's elements
    char pointee_const;
    size element_bytes;
};

struct Kernel {
    const char* name;
    void (*run)(void** arguments);
    const Parameter* parameters;
    u32 count;
    u32 most_threads;   // of __launch_bounds__; 0: not stated
};

// One per compiled kernel file; shared variables enter it when first reached.
struct Module {
    const Kernel* kernels;
    u32 kernel_count;
    const GlobalVariable* globals;
    u32 global_count;
    void*** dynamic_pointers;   // the file-scope `extern __shared__` names
    u32 dynamic_pointer_count;
    u32 shared_count, shared_bytes;
    SharedVariable shared[SPRIGS_MAX_SHARED];
};

enum Collective : u32 {
    SYNCWARP, SHUFFLE, BALLOT, ANY, ALL, MATCH_ANY, MATCH_ALL, ACTIVEMASK,
    REDUCE_ADD, REDUCE_MIN, REDUCE_MAX, REDUCE_MIN_SIGNED, REDUCE_MAX_SIGNED, REDUCE_AND, REDUCE_OR, REDUCE_XOR,
};

enum Barrier : u32 { BARRIER, BARRIER_COUNT, BARRIER_AND, BARRIER_OR };

enum Fence : u32 { FENCE_BLOCK, FENCE_DEVICE };

enum Access : u32 { READ = 1, WRITE = 2, ATOMIC = 4, VOLATILE = 8 };

}  // namespace sprigs

extern "C" {
extern sprigs::Thread* sprigs_self;
extern sprigs::u32 sprigs_grid_dim[3];
extern sprigs::u32 sprigs_block_dim[3];
extern int sprigs_checking;   // 0 in fast mode

int sprigs_barrier(sprigs::u32 kind, int predicate, const char* file, int line);
// `source` is the lane read by a shuffle; other collectives ignore it.
sprigs::u64 sprigs_collective(sprigs::u32 kind, sprigs::u32 mask, sprigs::u64 value, sprigs::u32 source,
                              const char* file, int line);
void sprigs_fence(sprigs::u32 scope);
// Before an atomic operation: lets others run, checks the address, orders.
void sprigs_atomic_begin(const void* address, sprigs::size bytes, const char* file, int line);
// After it: whether memory changed decides whether a loop around it is a spin.
void sprigs_atomic_end(const void* address, int changed);
void sprigs_access(const void* address, sprigs::size bytes, sprigs::u32 access, const char* file, int line);
void sprigs_spin_hint();
sprigs::u32 sprigs_shared_declare(sprigs::Module*, const char* name, sprigs::size bytes, sprigs::size align,
                                  sprigs::size element, int line);
int sprigs_printf(const char* format, ...) __attribute__((format(printf, 1, 2)));
[[noreturn]] void sprigs_assert_failed(const char* expression, const char* file, int line);
[[noreturn]] void sprigs_trap(const char* file, int line);
sprigs::u64 sprigs_clock();
void* sprigs_memcpy(void* to, const void* from, sprigs::size bytes);
void* sprigs_memmove(void* to, const void* from, sprigs::size bytes);
void* sprigs_memset(void* to, int value, sprigs::size bytes);
}
