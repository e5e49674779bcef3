// Integer and bit intrinsics, read-only loads, bit casts. Semantics: CUDA Math API, "Integer Intrinsics".
#pragma once

#define SPRIGS_API static inline __attribute__((unused)) SPRIGS_UNCHECKED

SPRIGS_API int __popc(unsigned x) { return __builtin_popcount(x); }
SPRIGS_API int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
SPRIGS_API int __ffs(int x) { return __builtin_ffs(x); }
SPRIGS_API int __ffsll(long long x) { return __builtin_ffsll(x); }
SPRIGS_API int __clz(int x) { return x == 0 ? 32 : __builtin_clz((unsigned)x); }
SPRIGS_API int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll((unsigned long long)x); }
SPRIGS_API unsigned __brev(unsigned x) {
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}
SPRIGS_API unsigned long long __brevll(unsigned long long x) {
    return (unsigned long long)__brev((unsigned)x) << 32 | __brev((unsigned)(x >> 32));
}

SPRIGS_API unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    unsigned long long bytes = (unsigned long long)y << 32 | x;
    unsigned result = 0;
    for (unsigned i = 0; i < 4; ++i) {
        unsigned control = selector >> (4 * i) & 15u;
        unsigned byte = (unsigned)(bytes >> (8 * (control & 7u))) & 255u;
        // Bit 3 of a selector replicates the sign of the chosen byte (PTX prmt, default mode).
        if (control & 8u) byte = byte & 128u ? 255u : 0u;
        result |= byte << (8 * i);
    }
    return result;
}

SPRIGS_API unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((unsigned long long)high << 32 | low) << (shift & 31u) >> 32);
}
SPRIGS_API unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
    unsigned clamped = shift < 32u ? shift : 32u;
    return clamped == 32u ? low : __funnelshift_l(low, high, clamped);
}
SPRIGS_API unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return (unsigned)(((unsigned long long)high << 32 | low) >> (shift & 31u));
}
SPRIGS_API unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
    unsigned clamped = shift < 32u ? shift : 32u;
    return (unsigned)(((unsigned long long)high << 32 | low) >> clamped);
}

SPRIGS_API int __mulhi(int x, int y) { return (int)((long long)x * y >> 32); }
SPRIGS_API unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)((unsigned long long)x * y >> 32); }
SPRIGS_API long long __mul64hi(long long x, long long y) { return (long long)((__int128)x * y >> 64); }
SPRIGS_API unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return (unsigned long long)((unsigned __int128)x * y >> 64);
}
SPRIGS_API int __mul24(int x, int y) {
    // Shifting the unsigned value up and the signed value down sign-extends 24 bits.
    long long a = (int)((unsigned)x << 8) >> 8, b = (int)((unsigned)y << 8) >> 8;
    return (int)(unsigned)(unsigned long long)(a * b);
}
SPRIGS_API unsigned __umul24(unsigned x, unsigned y) { return (x & 0xffffffu) * (y & 0xffffffu); }
SPRIGS_API unsigned __sad(int x, int y, unsigned z) {
    return z + (x > y ? (unsigned)x - (unsigned)y : (unsigned)y - (unsigned)x);
}
SPRIGS_API unsigned __usad(unsigned x, unsigned y, unsigned z) { return z + (x > y ? x - y : y - x); }
SPRIGS_API int __hadd(int x, int y) { return (int)(((long long)x + y) >> 1); }
SPRIGS_API int __rhadd(int x, int y) { return (int)(((long long)x + y + 1) >> 1); }
SPRIGS_API unsigned __uhadd(unsigned x, unsigned y) { return (unsigned)(((unsigned long long)x + y) >> 1); }
SPRIGS_API unsigned __urhadd(unsigned x, unsigned y) { return (unsigned)(((unsigned long long)x + y + 1) >> 1); }

SPRIGS_API int __dp4a(int a, int b, int c) {
    unsigned sum = (unsigned)c;
    for (int i = 0; i < 4; ++i) {
        int x = (signed char)((unsigned)a >> (8 * i)), y = (signed char)((unsigned)b >> (8 * i));
        sum += (unsigned)(x * y);
    }
    return (int)sum;
}
SPRIGS_API unsigned __dp4a(unsigned a, unsigned b, unsigned c) {
    for (int i = 0; i < 4; ++i) c += (a >> (8 * i) & 255u) * (b >> (8 * i) & 255u);
    return c;
}

// The SIMD-in-a-word intrinsics that codecs use.
#define SPRIGS_BYTEWISE(name, lanes, width, expression)                                \
    SPRIGS_API unsigned name(unsigned a, unsigned b) {                                 \
        unsigned result = 0, field = (width) == 8 ? 255u : 65535u;                     \
        for (unsigned i = 0; i < (lanes); ++i) {                                       \
            unsigned x = a >> ((width) * i) & field, y = b >> ((width) * i) & field;   \
            result |= ((unsigned)(expression) & field) << ((width) * i);               \
        }                                                                              \
        return result;                                                                 \
    }
SPRIGS_BYTEWISE(__vadd4, 4, 8, x + y)
SPRIGS_BYTEWISE(__vsub4, 4, 8, x - y)
SPRIGS_BYTEWISE(__vadd2, 2, 16, x + y)
SPRIGS_BYTEWISE(__vsub2, 2, 16, x - y)
SPRIGS_BYTEWISE(__vminu4, 4, 8, x < y ? x : y)
SPRIGS_BYTEWISE(__vmaxu4, 4, 8, x > y ? x : y)
SPRIGS_BYTEWISE(__vminu2, 2, 16, x < y ? x : y)
SPRIGS_BYTEWISE(__vmaxu2, 2, 16, x > y ? x : y)
SPRIGS_BYTEWISE(__vcmpeq4, 4, 8, x == y ? field : 0u)
SPRIGS_BYTEWISE(__vcmpne4, 4, 8, x != y ? field : 0u)
SPRIGS_BYTEWISE(__vcmpgtu4, 4, 8, x > y ? field : 0u)
SPRIGS_BYTEWISE(__vcmpltu4, 4, 8, x < y ? field : 0u)
SPRIGS_BYTEWISE(__vcmpeq2, 2, 16, x == y ? field : 0u)
SPRIGS_BYTEWISE(__vcmpgtu2, 2, 16, x > y ? field : 0u)
SPRIGS_BYTEWISE(__vcmpltu2, 2, 16, x < y ? field : 0u)
SPRIGS_BYTEWISE(__vabsdiffu4, 4, 8, x > y ? x - y : y - x)

// Loads with a cache hint read memory as a plain load does; the access is reported at the caller's line.
#define SPRIGS_LOAD(name)                                            \
    template <class T>                                               \
    SPRIGS_API T name(const T* address, SPRIGS_SITE) {               \
        sprigs_access(address, sizeof(T), sprigs::READ, file, line); \
        return *address;                                             \
    }
SPRIGS_LOAD(__ldg)
SPRIGS_LOAD(__ldca)
SPRIGS_LOAD(__ldcs)
SPRIGS_LOAD(__ldlu)
SPRIGS_LOAD(__ldcg)

template <class T>
SPRIGS_API T __ldcv(const T* address, SPRIGS_SITE) {
    sprigs_access(address, sizeof(T), sprigs::READ | sprigs::VOLATILE, file, line);
    return *address;
}

#define SPRIGS_STORE(name)                                            \
    template <class T>                                                \
    SPRIGS_API void name(T* address, T value, SPRIGS_SITE) {          \
        sprigs_access(address, sizeof(T), sprigs::WRITE, file, line); \
        *address = value;                                             \
    }
SPRIGS_STORE(__stwb)
SPRIGS_STORE(__stcg)
SPRIGS_STORE(__stcs)

template <class T>
SPRIGS_API void __stwt(T* address, T value, SPRIGS_SITE) {
    sprigs_access(address, sizeof(T), sprigs::WRITE | sprigs::VOLATILE, file, line);
    *address = value;
}

#define SPRIGS_BITCAST(name, to, from)    \
    SPRIGS_API to name(from value) {      \
        to result;                        \
        __builtin_memcpy(&result, &value, sizeof(to)); \
        return result;                    \
    }
SPRIGS_BITCAST(__float_as_int, int, float)
SPRIGS_BITCAST(__float_as_uint, unsigned, float)
SPRIGS_BITCAST(__int_as_float, float, int)
SPRIGS_BITCAST(__uint_as_float, float, unsigned)
SPRIGS_BITCAST(__double_as_longlong, long long, double)
SPRIGS_BITCAST(__longlong_as_double, double, long long)
SPRIGS_API int __double2hiint(double x) { return (int)((unsigned long long)__double_as_longlong(x) >> 32); }
SPRIGS_API int __double2loint(double x) { return (int)(unsigned)__double_as_longlong(x); }
SPRIGS_API double __hiloint2double(int high, int low) {
    return __longlong_as_double((long long)((unsigned long long)(unsigned)high << 32 | (unsigned)low));
}

SPRIGS_API long long clock64() { return (long long)sprigs_clock(); }
SPRIGS_API int clock() { return (int)(unsigned)sprigs_clock(); }
SPRIGS_API unsigned long long __globaltimer() { return sprigs_clock(); }
SPRIGS_API void __trap(SPRIGS_SITE) { sprigs_trap(file, line); }
SPRIGS_API void __brkpt() {}
SPRIGS_API void __prof_trigger(int) {}
