// Atomic functions. One operating-system thread runs every fiber, so the operation itself is plain; what surrounds it
// lets other fibers in, checks the address and orders memory. Scopes (_block, _system) behave alike.
#pragma once

namespace sprigs {

template <class T> struct same { typedef T type; };
template <class T, class... U> struct one_of { static constexpr bool value = false; };
template <class T, class U, class... Rest> struct one_of<T, U, Rest...> {
    static constexpr bool value = __is_same(T, U) || one_of<T, Rest...>::value;
};

template <class T, class F>
SPRIGS_API T atomic(T* address, F next, const char* file, int line) {
    sprigs_atomic_begin(address, sizeof(T), file, line);
    T old = *address, desired = next(old);
    *address = desired;
    sprigs_atomic_end(address, __builtin_memcmp(&old, &desired, sizeof(T)) != 0);
    return old;
}

}  // namespace sprigs

#define SPRIGS_ATOMIC_1(name, body, ...)                                                                     \
    template <class T>                                                                                       \
    SPRIGS_API T name(T* address, typename sprigs::same<T>::type value, SPRIGS_SITE) {                       \
        static_assert(sprigs::one_of<T, __VA_ARGS__>::value, #name " does not exist for this type in CUDA"); \
        return sprigs::atomic(address, [value](T old) SPRIGS_UNCHECKED -> T { body; }, file, line);          \
    }
#define SPRIGS_ATOMIC(name, body, ...)                  \
    SPRIGS_ATOMIC_1(name, body, __VA_ARGS__)            \
    SPRIGS_ATOMIC_1(name##_block, body, __VA_ARGS__)    \
    SPRIGS_ATOMIC_1(name##_system, body, __VA_ARGS__)

struct __half;
struct __half2;
struct __nv_bfloat16;
struct __nv_bfloat162;

namespace sprigs {
template <class T> SPRIGS_API T wrapping_add(T a, T b) { return a + b; }
SPRIGS_API int wrapping_add(int a, int b) { return (int)((unsigned)a + (unsigned)b); }
SPRIGS_API float2 wrapping_add(float2 a, float2 b) { return {a.x + b.x, a.y + b.y}; }
SPRIGS_API float4 wrapping_add(float4 a, float4 b) {
    return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}
template <class T> SPRIGS_API T wrapping_sub(T a, T b) { return a - b; }
SPRIGS_API int wrapping_sub(int a, int b) { return (int)((unsigned)a - (unsigned)b); }
}  // namespace sprigs

SPRIGS_ATOMIC(atomicAdd, return sprigs::wrapping_add(old, value), int, unsigned, unsigned long long, float, double,
              __half, __half2, __nv_bfloat16, __nv_bfloat162, float2, float4)
SPRIGS_ATOMIC(atomicSub, return sprigs::wrapping_sub(old, value), int, unsigned)
SPRIGS_ATOMIC(atomicExch, (void)old; return value, int, unsigned, unsigned long long, float)
SPRIGS_ATOMIC(atomicMin, return value < old ? value : old, int, unsigned, long long, unsigned long long)
SPRIGS_ATOMIC(atomicMax, return value > old ? value : old, int, unsigned, long long, unsigned long long)
SPRIGS_ATOMIC(atomicAnd, return old & value, int, unsigned, unsigned long long)
SPRIGS_ATOMIC(atomicOr, return old | value, int, unsigned, unsigned long long)
SPRIGS_ATOMIC(atomicXor, return old ^ value, int, unsigned, unsigned long long)
// CUDA C++ Programming Guide, "Atomic Functions": both wrap at `value`.
SPRIGS_ATOMIC(atomicInc, return old >= value ? 0u : old + 1, unsigned)
SPRIGS_ATOMIC(atomicDec, return old == 0 || old > value ? value : old - 1, unsigned)

#define SPRIGS_CAS(name)                                                                                        \
    template <class T>                                                                                          \
    SPRIGS_API T name(T* address, typename sprigs::same<T>::type compare, typename sprigs::same<T>::type value, \
                      SPRIGS_SITE) {                                                                            \
        static_assert(sprigs::one_of<T, int, unsigned, unsigned long long, unsigned short>::value,              \
                      #name " does not exist for this type in CUDA");                                           \
        return sprigs::atomic(                                                                                  \
            address, [=](T old) SPRIGS_UNCHECKED -> T { return old == compare ? value : old; }, file, line);    \
    }
SPRIGS_CAS(atomicCAS)
SPRIGS_CAS(atomicCAS_block)
SPRIGS_CAS(atomicCAS_system)
