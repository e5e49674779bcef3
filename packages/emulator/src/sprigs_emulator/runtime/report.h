// What a launch is given and what it tells; laid out as the Python side declares them.
#pragma once

#include <cstdint>

#include "sprigs/abi.h"

namespace sprigs {

enum Outcome : u32 {
    FINE = 0,
    OUT_OF_BOUNDS, MISALIGNED, INTEGER_OVERFLOW, DIVISION, SHIFT, BAD_INDEX, WILD, STACK_OVERFLOW, SLACK_WRITTEN,
    RACE, UNINITIALISED, UNWRITTEN,
    DEADLOCK, LIVELOCK, LANE_OUTSIDE_MASK, SOURCE_OUTSIDE_MASK, BARRIERS_DIFFER,
    ASSERTION, TRAP, TIMEOUT, RESOURCES,
    UNFINISHED,   // not a fault: the launch is suspended so that Python can look for Ctrl-C
};

enum Space : u32 { NOWHERE = 0, ARRAY, STATIC_SHARED, DYNAMIC_SHARED, GLOBAL };

struct Where {
    u32 block[3], thread[3];
    u64 pc;          // relative to the kernel's library; 0: `line` says all
    u32 line;
    u32 access;
    char file[256];
};

struct Waiter {
    u32 block[3], thread[3];
    u32 state, operation, mask, line;
    u64 pc;          // of a spin, when `line` is not known
};

constexpr u32 MOST_WAITERS = 4096;

struct Report {
    u32 outcome;
    u32 space;
    u32 array;               // with ARRAY: which of the launch's arrays
    u32 access_bytes;
    long long offset;        // bytes from the start of the array or variable
    u64 extent, element;     // of the variable; the arrays' are known to the caller
    char name[128];          // of the shared or global variable
    char detail[512];
    Where here, other;       // `other` of a race
    u32 waiters;             // all there are; at most MOST_WAITERS are listed
    u32 unstarted_blocks;
    Waiter waiter[MOST_WAITERS];
};

struct Array {
    void* host;
    u64 bytes;
    u32 residue;             // address modulo 16 that the device array would have
    u32 read_only, poisoned;
};

struct Argument {
    void* value;             // of a scalar; ignored for arrays
    int array;               // -1: a scalar
    u64 offset;              // in the array; of a scalar, its size
};

struct Range {
    u64 low, high;           // of pcs relative to the library
};

struct Launch {
    Module* module;
    u32 kernel;
    u32 grid[3], block[3];
    u32 dynamic_bytes;
    u32 interleave;
    u32 checking, stack_bytes;
    u64 seed;
    long long delay_block;   // -1: none
    double timeout;
    Array* arrays;
    u32 array_count;
    u32 argument_count;
    Argument* arguments;
    Range* same_value;       // code whose same-value writes are declared harmless
    u32 same_value_count;
};

}  // namespace sprigs
