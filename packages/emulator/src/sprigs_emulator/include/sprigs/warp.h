// Barriers and warp collectives. Each carries its line, which is both its identity and what reports name.
#pragma once

#define SPRIGS_API static inline __attribute__((unused)) SPRIGS_UNCHECKED

SPRIGS_API void __syncthreads(SPRIGS_SITE) { sprigs_barrier(sprigs::BARRIER, 0, file, line); }
SPRIGS_API int __syncthreads_count(int predicate, SPRIGS_SITE) {
    return sprigs_barrier(sprigs::BARRIER_COUNT, predicate, file, line);
}
SPRIGS_API int __syncthreads_and(int predicate, SPRIGS_SITE) {
    return sprigs_barrier(sprigs::BARRIER_AND, predicate, file, line);
}
SPRIGS_API int __syncthreads_or(int predicate, SPRIGS_SITE) {
    return sprigs_barrier(sprigs::BARRIER_OR, predicate, file, line);
}
SPRIGS_API void __syncwarp(unsigned mask = 0xffffffffu, SPRIGS_SITE) {
    sprigs_collective(sprigs::SYNCWARP, mask, 0, 0, file, line);
}

SPRIGS_API void __threadfence() { sprigs_fence(sprigs::FENCE_DEVICE); }
SPRIGS_API void __threadfence_system() { sprigs_fence(sprigs::FENCE_DEVICE); }
SPRIGS_API void __threadfence_block() { sprigs_fence(sprigs::FENCE_BLOCK); }
SPRIGS_API void __nanosleep(unsigned) { sprigs_spin_hint(); }

SPRIGS_API unsigned __ballot_sync(unsigned mask, int predicate, SPRIGS_SITE) {
    return (unsigned)sprigs_collective(sprigs::BALLOT, mask, predicate != 0, 0, file, line);
}
SPRIGS_API int __any_sync(unsigned mask, int predicate, SPRIGS_SITE) {
    return (int)sprigs_collective(sprigs::ANY, mask, predicate != 0, 0, file, line);
}
SPRIGS_API int __all_sync(unsigned mask, int predicate, SPRIGS_SITE) {
    return (int)sprigs_collective(sprigs::ALL, mask, predicate != 0, 0, file, line);
}
SPRIGS_API unsigned __activemask(SPRIGS_SITE) {
    return (unsigned)sprigs_collective(sprigs::ACTIVEMASK, 0xffffffffu, 0, 0, file, line);
}

SPRIGS_API unsigned __reduce_add_sync(unsigned mask, unsigned value, SPRIGS_SITE) {
    return (unsigned)sprigs_collective(sprigs::REDUCE_ADD, mask, value, 0, file, line);
}
SPRIGS_API int __reduce_add_sync(unsigned mask, int value, SPRIGS_SITE) {
    return (int)sprigs_collective(sprigs::REDUCE_ADD, mask, (unsigned)value, 0, file, line);
}
SPRIGS_API unsigned __reduce_min_sync(unsigned mask, unsigned value, SPRIGS_SITE) {
    return (unsigned)sprigs_collective(sprigs::REDUCE_MIN, mask, value, 0, file, line);
}
SPRIGS_API int __reduce_min_sync(unsigned mask, int value, SPRIGS_SITE) {
    return (int)sprigs_collective(sprigs::REDUCE_MIN_SIGNED, mask, (unsigned)value, 0, file, line);
}
SPRIGS_API unsigned __reduce_max_sync(unsigned mask, unsigned value, SPRIGS_SITE) {
    return (unsigned)sprigs_collective(sprigs::REDUCE_MAX, mask, value, 0, file, line);
}
SPRIGS_API int __reduce_max_sync(unsigned mask, int value, SPRIGS_SITE) {
    return (int)sprigs_collective(sprigs::REDUCE_MAX_SIGNED, mask, (unsigned)value, 0, file, line);
}
SPRIGS_API unsigned __reduce_and_sync(unsigned mask, unsigned value, SPRIGS_SITE) {
    return (unsigned)sprigs_collective(sprigs::REDUCE_AND, mask, value, 0, file, line);
}
SPRIGS_API unsigned __reduce_or_sync(unsigned mask, unsigned value, SPRIGS_SITE) {
    return (unsigned)sprigs_collective(sprigs::REDUCE_OR, mask, value, 0, file, line);
}
SPRIGS_API unsigned __reduce_xor_sync(unsigned mask, unsigned value, SPRIGS_SITE) {
    return (unsigned)sprigs_collective(sprigs::REDUCE_XOR, mask, value, 0, file, line);
}

namespace sprigs {

// Any value of at most eight bytes travels as its bits.
template <class T>
SPRIGS_API u64 to_bits(const T& value) {
    static_assert(sizeof(T) <= 8, "warp collectives take values of at most 8 bytes, as on the device");
    u64 bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(T));
    return bits;
}

template <class T>
SPRIGS_API T from_bits(u64 bits) {
    T value;
    __builtin_memcpy(&value, &bits, sizeof(T));
    return value;
}

// PTX ISA, shfl.sync: a lane reads its own value where the source would leave its segment of `width` lanes.
SPRIGS_API u32 shuffle_indexed(int source, int width) {
    u32 own = lane(), base = own & ~(u32)(width - 1);
    return base | ((u32)source & (u32)(width - 1));
}
SPRIGS_API u32 shuffle_up(unsigned delta, int width) {
    u32 own = lane(), base = own & ~(u32)(width - 1);
    return own - base >= delta ? own - delta : own;
}
SPRIGS_API u32 shuffle_down(unsigned delta, int width) {
    u32 own = lane(), last = own | (u32)(width - 1);
    return delta <= last - own ? own + delta : own;
}
SPRIGS_API u32 shuffle_xor(int lane_mask, int width) {
    u32 own = lane(), source = own ^ (u32)lane_mask, last = own | (u32)(width - 1);
    return source <= last ? source : own;
}

}  // namespace sprigs

template <class T>
SPRIGS_API T __shfl_sync(unsigned mask, T value, int source, int width = 32, SPRIGS_SITE) {
    return sprigs::from_bits<T>(sprigs_collective(sprigs::SHUFFLE, mask, sprigs::to_bits(value),
                                                  sprigs::shuffle_indexed(source, width), file, line));
}
template <class T>
SPRIGS_API T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, SPRIGS_SITE) {
    return sprigs::from_bits<T>(sprigs_collective(sprigs::SHUFFLE, mask, sprigs::to_bits(value),
                                                  sprigs::shuffle_up(delta, width), file, line));
}
template <class T>
SPRIGS_API T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, SPRIGS_SITE) {
    return sprigs::from_bits<T>(sprigs_collective(sprigs::SHUFFLE, mask, sprigs::to_bits(value),
                                                  sprigs::shuffle_down(delta, width), file, line));
}
template <class T>
SPRIGS_API T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, SPRIGS_SITE) {
    return sprigs::from_bits<T>(sprigs_collective(sprigs::SHUFFLE, mask, sprigs::to_bits(value),
                                                  sprigs::shuffle_xor(lane_mask, width), file, line));
}
template <class T>
SPRIGS_API unsigned __match_any_sync(unsigned mask, T value, SPRIGS_SITE) {
    return (unsigned)sprigs_collective(sprigs::MATCH_ANY, mask, sprigs::to_bits(value), 0, file, line);
}
template <class T>
SPRIGS_API unsigned __match_all_sync(unsigned mask, T value, int* predicate, SPRIGS_SITE) {
    unsigned same = (unsigned)sprigs_collective(sprigs::MATCH_ALL, mask, sprigs::to_bits(value), 0, file, line);
    sprigs_access(predicate, sizeof *predicate, sprigs::WRITE, file, line);
    *predicate = same != 0;
    return same;
}
