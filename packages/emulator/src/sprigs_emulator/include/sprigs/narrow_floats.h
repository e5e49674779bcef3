// What half and bfloat16 share: rounding to nearest even, arithmetic in float, the intrinsics in both spellings.
#pragma once

namespace sprigs {

// Rounds the magnitude bits of a double to `mantissa` bits with exponents from `minimum` (biased as the target's),
// to nearest even, and packs them with `exponent` exponent bits. Every float is a double, so one rounding serves both.
template <int exponent, int mantissa>
SPRIGS_API unsigned short narrow(double value) {
    constexpr int bias = (1 << (exponent - 1)) - 1, most = 2 * bias + 1;
    u64 bits = to_bits(value);
    unsigned short sign = (unsigned short)(bits >> 63 << 15);
    if (__builtin_isnan(value)) return 0x7fff;   // the canonical NaN of the device
    u64 fraction = bits & 0xfffffffffffffull;
    int power = (int)(bits >> 52 & 2047) - 1023;
    if (power == 1024) return (unsigned short)(sign | most << mantissa);
    if (power == -1023) return sign;             // far below the smallest subnormal
    u64 significand = fraction | 1ull << 52;
    int field = power + bias, drop = 52 - mantissa;
    if (field >= most) return (unsigned short)(sign | most << mantissa);
    if (field <= 0) {
        drop += 1 - field;
        field = 0;
        if (drop > 63) return sign;
    } else {
        significand &= ~(1ull << 52);
    }
    u64 kept = significand >> drop, rest = significand & ((1ull << drop) - 1), half = 1ull << (drop - 1);
    if (rest > half || (rest == half && (kept & 1))) ++kept;
    u64 packed = ((u64)field << mantissa) + kept;   // a carry moves into the exponent, and on to infinity
    return (unsigned short)(sign | packed);
}

template <int exponent, int mantissa>
SPRIGS_API float widen(unsigned short bits) {
    constexpr int bias = (1 << (exponent - 1)) - 1, most = 2 * bias + 1;
    unsigned sign = (unsigned)(bits >> 15) << 31, field = bits >> mantissa & most;
    unsigned fraction = bits & ((1u << mantissa) - 1);
    if (field == most) return from_bits<float>(sign | 0x7f800000u | fraction << (23 - mantissa));
    if (field == 0) {
        // Subnormal: exact in float, or for bfloat16 a float subnormal with the same bits.
        if (exponent == 8) return from_bits<float>(sign | fraction << (23 - mantissa));
        float magnitude = (float)fraction * from_bits<float>((unsigned)(127 + 1 - bias - mantissa) << 23);
        return from_bits<float>(sign | (unsigned)to_bits(magnitude));
    }
    return from_bits<float>(sign | (field + 127 - bias) << 23 | fraction << (23 - mantissa));
}

// a * b + c with one rounding: the product is exact in double, the sum is rounded to odd so that the last rounding
// cannot meet a false tie (Boldo and Melquiond, IEEE Trans. Computers 57(4), 2008).
SPRIGS_API double fused(double a, double b, double c) {
    double p = a * b, s = p + c, v = s - p, error = (p - (s - v)) + (c - v);
    u64 bits = to_bits(s);
    if (error != 0 && !__builtin_isinf(s) && !(bits & 1)) bits += (error > 0) == (s > 0) ? 1ull : -1ull;
    return from_bits<double>(bits);
}

}  // namespace sprigs

// Members work on numbers where they lie, in arrays too: their accesses are checked, and being part of the caller they
// are reported at its line.
#define SPRIGS_MEMBER inline __attribute__((always_inline))

// One type of 16 bits and its pair; `Raw` is the name of its bit-pattern struct.
#define SPRIGS_NARROW_FLOAT(Name, Pair, Raw, exponent, mantissa)                                          \
    struct Raw { unsigned short x; };                                                                     \
    struct __attribute__((aligned(2))) Name {                                                             \
        unsigned short bits;                                                                              \
        Name() = default;                                                                                 \
        SPRIGS_MEMBER Name(float v) : bits(sprigs::narrow<exponent, mantissa>(v)) {}                   \
        SPRIGS_MEMBER Name(double v) : bits(sprigs::narrow<exponent, mantissa>(v)) {}                  \
        SPRIGS_MEMBER Name(int v) : bits(sprigs::narrow<exponent, mantissa>(v)) {}                     \
        SPRIGS_MEMBER Name(unsigned v) : bits(sprigs::narrow<exponent, mantissa>(v)) {}                \
        SPRIGS_MEMBER Name(Raw v) : bits(v.x) {}                                                       \
        SPRIGS_MEMBER operator float() const { return sprigs::widen<exponent, mantissa>(bits); }       \
        SPRIGS_MEMBER operator Raw() const { return {bits}; }                                          \
        SPRIGS_MEMBER Name& operator+=(Name o) { return *this = Name((float)*this + (float)o); }       \
        SPRIGS_MEMBER Name& operator-=(Name o) { return *this = Name((float)*this - (float)o); }       \
        SPRIGS_MEMBER Name& operator*=(Name o) { return *this = Name((float)*this * (float)o); }       \
        SPRIGS_MEMBER Name& operator/=(Name o) { return *this = Name((float)*this / (float)o); }       \
    };                                                                                                    \
    SPRIGS_API Name operator+(Name a, Name b) { return Name((float)a + (float)b); }                       \
    SPRIGS_API Name operator-(Name a, Name b) { return Name((float)a - (float)b); }                       \
    SPRIGS_API Name operator*(Name a, Name b) { return Name((float)a * (float)b); }                       \
    SPRIGS_API Name operator/(Name a, Name b) { return Name((float)a / (float)b); }                       \
    SPRIGS_API Name operator-(Name a) { return Name(Raw{(unsigned short)(a.bits ^ 0x8000)}); }            \
    SPRIGS_API bool operator==(Name a, Name b) { return (float)a == (float)b; }                           \
    SPRIGS_API bool operator!=(Name a, Name b) { return (float)a != (float)b; }                           \
    SPRIGS_API bool operator<(Name a, Name b) { return (float)a < (float)b; }                             \
    SPRIGS_API bool operator>(Name a, Name b) { return (float)a > (float)b; }                             \
    SPRIGS_API bool operator<=(Name a, Name b) { return (float)a <= (float)b; }                           \
    SPRIGS_API bool operator>=(Name a, Name b) { return (float)a >= (float)b; }                           \
    struct __attribute__((aligned(4))) Pair {                                                             \
        Name x, y;                                                                                        \
        Pair() = default;                                                                                 \
        SPRIGS_MEMBER Pair(Name a, Name b) : x(a), y(b) {}                                             \
    };                                                                                                    \
    SPRIGS_API Pair operator+(Pair a, Pair b) { return {a.x + b.x, a.y + b.y}; }                          \
    SPRIGS_API Pair operator-(Pair a, Pair b) { return {a.x - b.x, a.y - b.y}; }                          \
    SPRIGS_API Pair operator*(Pair a, Pair b) { return {a.x * b.x, a.y * b.y}; }                          \
    SPRIGS_API Pair operator/(Pair a, Pair b) { return {a.x / b.x, a.y / b.y}; }                          \
    SPRIGS_API Name __hadd(Name a, Name b) { return a + b; }                                              \
    SPRIGS_API Name __hsub(Name a, Name b) { return a - b; }                                              \
    SPRIGS_API Name __hmul(Name a, Name b) { return a * b; }                                              \
    SPRIGS_API Name __hdiv(Name a, Name b) { return a / b; }                                              \
    SPRIGS_API Name __hadd_rn(Name a, Name b) { return a + b; }                                           \
    SPRIGS_API Name __hmul_rn(Name a, Name b) { return a * b; }                                           \
    SPRIGS_API Name __hneg(Name a) { return -a; }                                                         \
    SPRIGS_API Name __habs(Name a) { return Name(Raw{(unsigned short)(a.bits & 0x7fff)}); }               \
    SPRIGS_API Name __hfma(Name a, Name b, Name c) { return Name(sprigs::fused((float)a, (float)b, (float)c)); } \
    SPRIGS_API Name __hmax(Name a, Name b) { return Name(fmaxf(a, b)); }                                  \
    SPRIGS_API Name __hmin(Name a, Name b) { return Name(fminf(a, b)); }                                  \
    SPRIGS_API bool __heq(Name a, Name b) { return a == b; }                                              \
    SPRIGS_API bool __hne(Name a, Name b) { return a != b; }                                              \
    SPRIGS_API bool __hlt(Name a, Name b) { return a < b; }                                               \
    SPRIGS_API bool __hle(Name a, Name b) { return a <= b; }                                              \
    SPRIGS_API bool __hgt(Name a, Name b) { return a > b; }                                               \
    SPRIGS_API bool __hge(Name a, Name b) { return a >= b; }                                              \
    SPRIGS_API bool __hisnan(Name a) { return __builtin_isnan((float)a); }                                \
    SPRIGS_API int __hisinf(Name a) { return __builtin_isinf((float)a) ? ((float)a > 0 ? 1 : -1) : 0; }   \
    SPRIGS_API Name hsqrt(Name a) { return Name(sqrtf(a)); }                                              \
    SPRIGS_API Name hexp(Name a) { return Name(expf(a)); }                                                \
    SPRIGS_API Name hlog(Name a) { return Name(logf(a)); }                                                \
    SPRIGS_API Name hrsqrt(Name a) { return Name(rsqrtf(a)); }                                            \
    SPRIGS_API Name hrcp(Name a) { return Name(1.0f / (float)a); }                                        \
    SPRIGS_API Name hsin(Name a) { return Name(sinf(a)); }                                                \
    SPRIGS_API Name hcos(Name a) { return Name(cosf(a)); }                                                \
    SPRIGS_API Name hfloor(Name a) { return Name(floorf(a)); }                                            \
    SPRIGS_API Name hceil(Name a) { return Name(ceilf(a)); }                                              \
    SPRIGS_API Name hrint(Name a) { return Name(rintf(a)); }                                              \
    SPRIGS_API Name htrunc(Name a) { return Name(truncf(a)); }                                            \
    SPRIGS_API Pair __hadd2(Pair a, Pair b) { return a + b; }                                             \
    SPRIGS_API Pair __hsub2(Pair a, Pair b) { return a - b; }                                             \
    SPRIGS_API Pair __hmul2(Pair a, Pair b) { return a * b; }                                             \
    SPRIGS_API Pair __h2div(Pair a, Pair b) { return a / b; }                                             \
    SPRIGS_API Pair __hneg2(Pair a) { return {-a.x, -a.y}; }                                              \
    SPRIGS_API Pair __habs2(Pair a) { return {__habs(a.x), __habs(a.y)}; }                                \
    SPRIGS_API Pair __hmax2(Pair a, Pair b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }              \
    SPRIGS_API Pair __hmin2(Pair a, Pair b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }              \
    SPRIGS_API Pair __hfma2(Pair a, Pair b, Pair c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }

#define SPRIGS_NARROW_CONVERSIONS(Name, Pair, Raw, word, both)                                            \
    SPRIGS_API Name __float2##word(float v) { return Name(v); }                                           \
    SPRIGS_API Name __float2##word##_rn(float v) { return Name(v); }                                      \
    SPRIGS_API Name __double2##word(double v) { return Name(v); }                                         \
    SPRIGS_API Name __int2##word##_rn(int v) { return Name((double)v); }                                  \
    SPRIGS_API Name __uint2##word##_rn(unsigned v) { return Name((double)v); }                            \
    SPRIGS_API float __##word##2float(Name v) { return v; }                                               \
    SPRIGS_API int __##word##2int_rn(Name v) { return __float2int_rn(v); }                                \
    SPRIGS_API int __##word##2int_rz(Name v) { return __float2int_rz(v); }                                \
    SPRIGS_API unsigned __##word##2uint_rn(Name v) { return __float2uint_rn(v); }                         \
    SPRIGS_API Name __ushort_as_##word(unsigned short v) { return Name(Raw{v}); }                         \
    SPRIGS_API Name __short_as_##word(short v) { return Name(Raw{(unsigned short)v}); }                   \
    SPRIGS_API unsigned short __##word##_as_ushort(Name v) { return v.bits; }                             \
    SPRIGS_API short __##word##_as_short(Name v) { return (short)v.bits; }                                \
    SPRIGS_API Pair __float2##word##2_rn(float v) { return {Name(v), Name(v)}; }                          \
    SPRIGS_API Pair __floats2##word##2_rn(float a, float b) { return {Name(a), Name(b)}; }                \
    SPRIGS_API Pair __float22##word##2_rn(float2 v) { return {Name(v.x), Name(v.y)}; }                    \
    SPRIGS_API float2 __##word##22float2(Pair v) { return {(float)v.x, (float)v.y}; }                     \
    SPRIGS_API Pair __##word##2##word##2(Name v) { return {v, v}; }                                       \
    SPRIGS_API Pair both(Name a, Name b) { return {a, b}; }                                               \
    SPRIGS_API Pair make_##word##2(Name a, Name b) { return {a, b}; }                                     \
    SPRIGS_API Name __low2##word(Pair v) { return v.x; }                                                  \
    SPRIGS_API Name __high2##word(Pair v) { return v.y; }                                                 \
    SPRIGS_API Pair __low2##word##2(Pair v) { return {v.x, v.x}; }                                        \
    SPRIGS_API Pair __high2##word##2(Pair v) { return {v.y, v.y}; }                                       \
    SPRIGS_API Pair __lowhigh2highlow(Pair v) { return {v.y, v.x}; }                                      \
    SPRIGS_API float __low2float(Pair v) { return v.x; }                                                  \
    SPRIGS_API float __high2float(Pair v) { return v.y; }
