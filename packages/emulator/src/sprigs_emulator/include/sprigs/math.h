// Mathematical functions. Device results differ from the host's libm in the last places, and so do those of the
// fast intrinsics (__expf and its kin, here the accurate functions): compare with a tolerance. IEEE operations
// (+ - * / sqrt fma, conversions) are exact on both.
#pragma once

extern "C" {
double sqrt(double) noexcept;
float sqrtf(float) noexcept;
double cbrt(double) noexcept;
float cbrtf(float) noexcept;
double exp(double) noexcept;
float expf(float) noexcept;
double exp2(double) noexcept;
float exp2f(float) noexcept;
double expm1(double) noexcept;
float expm1f(float) noexcept;
double log(double) noexcept;
float logf(float) noexcept;
double log2(double) noexcept;
float log2f(float) noexcept;
double log10(double) noexcept;
float log10f(float) noexcept;
double log1p(double) noexcept;
float log1pf(float) noexcept;
double sin(double) noexcept;
float sinf(float) noexcept;
double cos(double) noexcept;
float cosf(float) noexcept;
double tan(double) noexcept;
float tanf(float) noexcept;
double asin(double) noexcept;
float asinf(float) noexcept;
double acos(double) noexcept;
float acosf(float) noexcept;
double atan(double) noexcept;
float atanf(float) noexcept;
double sinh(double) noexcept;
float sinhf(float) noexcept;
double cosh(double) noexcept;
float coshf(float) noexcept;
double tanh(double) noexcept;
float tanhf(float) noexcept;
double asinh(double) noexcept;
float asinhf(float) noexcept;
double acosh(double) noexcept;
float acoshf(float) noexcept;
double atanh(double) noexcept;
float atanhf(float) noexcept;
double erf(double) noexcept;
float erff(float) noexcept;
double erfc(double) noexcept;
float erfcf(float) noexcept;
double tgamma(double) noexcept;
float tgammaf(float) noexcept;
double lgamma(double) noexcept;
float lgammaf(float) noexcept;
double floor(double) noexcept;
float floorf(float) noexcept;
double ceil(double) noexcept;
float ceilf(float) noexcept;
double trunc(double) noexcept;
float truncf(float) noexcept;
double round(double) noexcept;
float roundf(float) noexcept;
double rint(double) noexcept;
float rintf(float) noexcept;
double nearbyint(double) noexcept;
float nearbyintf(float) noexcept;
double fabs(double) noexcept;
float fabsf(float) noexcept;
double logb(double) noexcept;
float logbf(float) noexcept;
double pow(double, double) noexcept;
float powf(float, float) noexcept;
double fmod(double, double) noexcept;
float fmodf(float, float) noexcept;
double atan2(double, double) noexcept;
float atan2f(float, float) noexcept;
double hypot(double, double) noexcept;
float hypotf(float, float) noexcept;
double fmin(double, double) noexcept;
float fminf(float, float) noexcept;
double fmax(double, double) noexcept;
float fmaxf(float, float) noexcept;
double fdim(double, double) noexcept;
float fdimf(float, float) noexcept;
double copysign(double, double) noexcept;
float copysignf(float, float) noexcept;
double nextafter(double, double) noexcept;
float nextafterf(float, float) noexcept;
double remainder(double, double) noexcept;
float remainderf(float, float) noexcept;
double fma(double, double, double) noexcept;
float fmaf(float, float, float) noexcept;
double ldexp(double, int) noexcept;
float ldexpf(float, int) noexcept;
double scalbn(double, int) noexcept;
float scalbnf(float, int) noexcept;
double frexp(double, int*) noexcept;
float frexpf(float, int*) noexcept;
double modf(double, double*) noexcept;
float modff(float, float*) noexcept;
int ilogb(double) noexcept;
int ilogbf(float) noexcept;
long lrint(double) noexcept;
long lrintf(float) noexcept;
long lround(double) noexcept;
long lroundf(float) noexcept;
long long llrint(double) noexcept;
long long llrintf(float) noexcept;
long long llround(double) noexcept;
long long llroundf(float) noexcept;
double j0(double) noexcept;
double j1(double) noexcept;
double y0(double) noexcept;
double y1(double) noexcept;
int abs(int) noexcept;
long labs(long) noexcept;
long long llabs(long long) noexcept;
void* memcpy(void*, const void*, sprigs::size) noexcept;
void* memmove(void*, const void*, sprigs::size) noexcept;
void* memset(void*, int, sprigs::size) noexcept;
}

// CUDA overloads the plain names by type.
SPRIGS_API float sqrt(float x) { return sqrtf(x); }
SPRIGS_API float cbrt(float x) { return cbrtf(x); }
SPRIGS_API float exp(float x) { return expf(x); }
SPRIGS_API float exp2(float x) { return exp2f(x); }
SPRIGS_API float expm1(float x) { return expm1f(x); }
SPRIGS_API float log(float x) { return logf(x); }
SPRIGS_API float log2(float x) { return log2f(x); }
SPRIGS_API float log10(float x) { return log10f(x); }
SPRIGS_API float log1p(float x) { return log1pf(x); }
SPRIGS_API float sin(float x) { return sinf(x); }
SPRIGS_API float cos(float x) { return cosf(x); }
SPRIGS_API float tan(float x) { return tanf(x); }
SPRIGS_API float asin(float x) { return asinf(x); }
SPRIGS_API float acos(float x) { return acosf(x); }
SPRIGS_API float atan(float x) { return atanf(x); }
SPRIGS_API float sinh(float x) { return sinhf(x); }
SPRIGS_API float cosh(float x) { return coshf(x); }
SPRIGS_API float tanh(float x) { return tanhf(x); }
SPRIGS_API float asinh(float x) { return asinhf(x); }
SPRIGS_API float acosh(float x) { return acoshf(x); }
SPRIGS_API float atanh(float x) { return atanhf(x); }
SPRIGS_API float erf(float x) { return erff(x); }
SPRIGS_API float erfc(float x) { return erfcf(x); }
SPRIGS_API float tgamma(float x) { return tgammaf(x); }
SPRIGS_API float lgamma(float x) { return lgammaf(x); }
SPRIGS_API float floor(float x) { return floorf(x); }
SPRIGS_API float ceil(float x) { return ceilf(x); }
SPRIGS_API float trunc(float x) { return truncf(x); }
SPRIGS_API float round(float x) { return roundf(x); }
SPRIGS_API float rint(float x) { return rintf(x); }
SPRIGS_API float nearbyint(float x) { return nearbyintf(x); }
SPRIGS_API float fabs(float x) { return fabsf(x); }
SPRIGS_API float logb(float x) { return logbf(x); }
SPRIGS_API float pow(float x, float y) { return powf(x, y); }
SPRIGS_API float fmod(float x, float y) { return fmodf(x, y); }
SPRIGS_API float atan2(float x, float y) { return atan2f(x, y); }
SPRIGS_API float hypot(float x, float y) { return hypotf(x, y); }
SPRIGS_API float fmin(float x, float y) { return fminf(x, y); }
SPRIGS_API float fmax(float x, float y) { return fmaxf(x, y); }
SPRIGS_API float fdim(float x, float y) { return fdimf(x, y); }
SPRIGS_API float copysign(float x, float y) { return copysignf(x, y); }
SPRIGS_API float nextafter(float x, float y) { return nextafterf(x, y); }
SPRIGS_API float remainder(float x, float y) { return remainderf(x, y); }
SPRIGS_API float fma(float x, float y, float z) { return fmaf(x, y, z); }
SPRIGS_API float ldexp(float x, int n) { return ldexpf(x, n); }
SPRIGS_API float abs(float x) { return fabsf(x); }
SPRIGS_API double abs(double x) { return fabs(x); }
SPRIGS_API long abs(long x) { return labs(x); }
SPRIGS_API long long abs(long long x) { return llabs(x); }

SPRIGS_API bool isnan(float x) { return __builtin_isnan(x); }
SPRIGS_API bool isnan(double x) { return __builtin_isnan(x); }
SPRIGS_API bool isinf(float x) { return __builtin_isinf(x); }
SPRIGS_API bool isinf(double x) { return __builtin_isinf(x); }
SPRIGS_API bool isfinite(float x) { return __builtin_isfinite(x); }
SPRIGS_API bool isfinite(double x) { return __builtin_isfinite(x); }
SPRIGS_API bool signbit(float x) { return __builtin_signbit(x); }
SPRIGS_API bool signbit(double x) { return __builtin_signbit(x); }

// Floats ignore one NaN; integers of mixed sign compare unsigned, as in CUDA.
#define SPRIGS_MINMAX(type)                                                  \
    SPRIGS_API type min(type x, type y) { return y < x ? y : x; }            \
    SPRIGS_API type max(type x, type y) { return x < y ? y : x; }
SPRIGS_MINMAX(int)
SPRIGS_MINMAX(unsigned)
SPRIGS_MINMAX(long)
SPRIGS_MINMAX(unsigned long)
SPRIGS_MINMAX(long long)
SPRIGS_MINMAX(unsigned long long)
SPRIGS_API unsigned min(int x, unsigned y) { return min((unsigned)x, y); }
SPRIGS_API unsigned min(unsigned x, int y) { return min(x, (unsigned)y); }
SPRIGS_API unsigned max(int x, unsigned y) { return max((unsigned)x, y); }
SPRIGS_API unsigned max(unsigned x, int y) { return max(x, (unsigned)y); }
SPRIGS_API unsigned long long min(long long x, unsigned long long y) { return min((unsigned long long)x, y); }
SPRIGS_API unsigned long long min(unsigned long long x, long long y) { return min(x, (unsigned long long)y); }
SPRIGS_API unsigned long long max(long long x, unsigned long long y) { return max((unsigned long long)x, y); }
SPRIGS_API unsigned long long max(unsigned long long x, long long y) { return max(x, (unsigned long long)y); }
SPRIGS_API float min(float x, float y) { return fminf(x, y); }
SPRIGS_API float max(float x, float y) { return fmaxf(x, y); }
SPRIGS_API double min(double x, double y) { return fmin((double)x, (double)y); }
SPRIGS_API double max(double x, double y) { return fmax((double)x, (double)y); }
SPRIGS_API double min(float x, double y) { return fmin((double)x, (double)y); }
SPRIGS_API double min(double x, float y) { return fmin((double)x, (double)y); }
SPRIGS_API double max(float x, double y) { return fmax((double)x, (double)y); }
SPRIGS_API double max(double x, float y) { return fmax((double)x, (double)y); }

SPRIGS_API float rsqrtf(float x) { return (float)(1.0 / sqrt((double)x)); }
SPRIGS_API double rsqrt(double x) { return 1.0 / sqrt(x); }
SPRIGS_API float rsqrt(float x) { return rsqrtf(x); }
SPRIGS_API float rcbrtf(float x) { return (float)(1.0 / cbrt((double)x)); }
SPRIGS_API double rcbrt(double x) { return 1.0 / cbrt(x); }
SPRIGS_API float exp10f(float x) { return (float)pow(10.0, (double)x); }
SPRIGS_API double exp10(double x) { return pow(10.0, x); }
template <class T>
SPRIGS_API void sprigs_store(T* address, T value, const char* file, int line) {
    sprigs_access(address, sizeof(T), sprigs::WRITE, file, line);
    *address = value;
}
SPRIGS_API void sincosf(float x, float* s, float* c, SPRIGS_SITE) {
    sprigs_store(s, sinf(x), file, line);
    sprigs_store(c, cosf(x), file, line);
}
SPRIGS_API void sincos(double x, double* s, double* c, SPRIGS_SITE) {
    sprigs_store(s, sin(x), file, line);
    sprigs_store(c, cos(x), file, line);
}
SPRIGS_API double sinpi(double x) { return sin(fmod(x, 2.0) * 3.14159265358979323846); }
SPRIGS_API double cospi(double x) { return cos(fmod(x, 2.0) * 3.14159265358979323846); }
SPRIGS_API float sinpif(float x) { return (float)sinpi((double)x); }
SPRIGS_API float cospif(float x) { return (float)cospi((double)x); }
SPRIGS_API double normcdf(double x) { return 0.5 * erfc(-x * 0.70710678118654752440); }
SPRIGS_API float normcdff(float x) { return (float)normcdf((double)x); }
SPRIGS_API float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
SPRIGS_API float saturate(float x) { return __saturatef(x); }
SPRIGS_API float norm3df(float x, float y, float z) {
    return (float)sqrt((double)x * x + (double)y * y + (double)z * z);
}
SPRIGS_API double norm3d(double x, double y, double z) { return sqrt(x * x + y * y + z * z); }

SPRIGS_API float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
SPRIGS_API float __fmaf_ieee_rn(float x, float y, float z) { return fmaf(x, y, z); }
SPRIGS_API double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
SPRIGS_API float __fadd_rn(float x, float y) { return x + y; }
SPRIGS_API float __fsub_rn(float x, float y) { return x - y; }
SPRIGS_API float __fmul_rn(float x, float y) { return x * y; }
SPRIGS_API float __fdiv_rn(float x, float y) { return x / y; }
SPRIGS_API float __frcp_rn(float x) { return 1.0f / x; }
SPRIGS_API float __fsqrt_rn(float x) { return sqrtf(x); }
SPRIGS_API float __frsqrt_rn(float x) { return rsqrtf(x); }
SPRIGS_API double __dadd_rn(double x, double y) { return x + y; }
SPRIGS_API double __dsub_rn(double x, double y) { return x - y; }
SPRIGS_API double __dmul_rn(double x, double y) { return x * y; }
SPRIGS_API double __ddiv_rn(double x, double y) { return x / y; }
SPRIGS_API double __drcp_rn(double x) { return 1.0 / x; }
SPRIGS_API double __dsqrt_rn(double x) { return sqrt(x); }

SPRIGS_API float __expf(float x) { return expf(x); }
SPRIGS_API float __exp10f(float x) { return exp10f(x); }
SPRIGS_API float __logf(float x) { return logf(x); }
SPRIGS_API float __log2f(float x) { return log2f(x); }
SPRIGS_API float __log10f(float x) { return log10f(x); }
SPRIGS_API float __sinf(float x) { return sinf(x); }
SPRIGS_API float __cosf(float x) { return cosf(x); }
SPRIGS_API float __tanf(float x) { return tanf(x); }
SPRIGS_API void __sincosf(float x, float* s, float* c, SPRIGS_SITE) { sincosf(x, s, c, file, line); }
SPRIGS_API float __powf(float x, float y) { return powf(x, y); }
SPRIGS_API float __fdividef(float x, float y) { return x / y; }
SPRIGS_API float fdividef(float x, float y) { return x / y; }

// Conversions. Out of range and NaN clamp, as PTX cvt does, instead of being undefined.
namespace sprigs {
template <class I, class F>
SPRIGS_API I clamped(F x, double low, double beyond) {
    if (__builtin_isnan(x)) return sizeof(I) == 8 ? (I)((u64)1 << 63) : (I)0;
    if ((double)x < low) return (I)-1 < (I)0 ? (I)((u64)1 << (8 * sizeof(I) - 1)) : (I)0;
    if ((double)x >= beyond) return (I)-1 < (I)0 ? (I)(((u64)1 << (8 * sizeof(I) - 1)) - 1) : (I)~(I)0;
    return (I)x;
}
}  // namespace sprigs

SPRIGS_API int __float2int_rn(float x) { return sprigs::clamped<int>(rintf(x), -2147483648.0, 2147483648.0); }
SPRIGS_API int __float2int_rz(float x) { return sprigs::clamped<int>(truncf(x), -2147483648.0, 2147483648.0); }
SPRIGS_API int __float2int_rd(float x) { return sprigs::clamped<int>(floorf(x), -2147483648.0, 2147483648.0); }
SPRIGS_API int __float2int_ru(float x) { return sprigs::clamped<int>(ceilf(x), -2147483648.0, 2147483648.0); }
SPRIGS_API unsigned __float2uint_rn(float x) { return sprigs::clamped<unsigned>(rintf(x), 0.0, 4294967296.0); }
SPRIGS_API unsigned __float2uint_rz(float x) { return sprigs::clamped<unsigned>(truncf(x), 0.0, 4294967296.0); }
SPRIGS_API unsigned __float2uint_rd(float x) { return sprigs::clamped<unsigned>(floorf(x), 0.0, 4294967296.0); }
SPRIGS_API unsigned __float2uint_ru(float x) { return sprigs::clamped<unsigned>(ceilf(x), 0.0, 4294967296.0); }
SPRIGS_API long long __float2ll_rn(float x) { return sprigs::clamped<long long>(rintf(x), -9223372036854775808.0, 9223372036854775808.0); }
SPRIGS_API long long __float2ll_rz(float x) { return sprigs::clamped<long long>(truncf(x), -9223372036854775808.0, 9223372036854775808.0); }
SPRIGS_API long long __float2ll_rd(float x) { return sprigs::clamped<long long>(floorf(x), -9223372036854775808.0, 9223372036854775808.0); }
SPRIGS_API long long __float2ll_ru(float x) { return sprigs::clamped<long long>(ceilf(x), -9223372036854775808.0, 9223372036854775808.0); }
SPRIGS_API unsigned long long __float2ull_rn(float x) { return sprigs::clamped<unsigned long long>(rintf(x), 0.0, 18446744073709551616.0); }
SPRIGS_API unsigned long long __float2ull_rz(float x) { return sprigs::clamped<unsigned long long>(truncf(x), 0.0, 18446744073709551616.0); }
SPRIGS_API unsigned long long __float2ull_rd(float x) { return sprigs::clamped<unsigned long long>(floorf(x), 0.0, 18446744073709551616.0); }
SPRIGS_API unsigned long long __float2ull_ru(float x) { return sprigs::clamped<unsigned long long>(ceilf(x), 0.0, 18446744073709551616.0); }
SPRIGS_API int __double2int_rn(double x) { return sprigs::clamped<int>(rint(x), -2147483648.0, 2147483648.0); }
SPRIGS_API int __double2int_rz(double x) { return sprigs::clamped<int>(trunc(x), -2147483648.0, 2147483648.0); }
SPRIGS_API int __double2int_rd(double x) { return sprigs::clamped<int>(floor(x), -2147483648.0, 2147483648.0); }
SPRIGS_API int __double2int_ru(double x) { return sprigs::clamped<int>(ceil(x), -2147483648.0, 2147483648.0); }
SPRIGS_API unsigned __double2uint_rn(double x) { return sprigs::clamped<unsigned>(rint(x), 0.0, 4294967296.0); }
SPRIGS_API unsigned __double2uint_rz(double x) { return sprigs::clamped<unsigned>(trunc(x), 0.0, 4294967296.0); }
SPRIGS_API unsigned __double2uint_rd(double x) { return sprigs::clamped<unsigned>(floor(x), 0.0, 4294967296.0); }
SPRIGS_API unsigned __double2uint_ru(double x) { return sprigs::clamped<unsigned>(ceil(x), 0.0, 4294967296.0); }
SPRIGS_API long long __double2ll_rn(double x) { return sprigs::clamped<long long>(rint(x), -9223372036854775808.0, 9223372036854775808.0); }
SPRIGS_API long long __double2ll_rz(double x) { return sprigs::clamped<long long>(trunc(x), -9223372036854775808.0, 9223372036854775808.0); }
SPRIGS_API long long __double2ll_rd(double x) { return sprigs::clamped<long long>(floor(x), -9223372036854775808.0, 9223372036854775808.0); }
SPRIGS_API long long __double2ll_ru(double x) { return sprigs::clamped<long long>(ceil(x), -9223372036854775808.0, 9223372036854775808.0); }
SPRIGS_API unsigned long long __double2ull_rn(double x) { return sprigs::clamped<unsigned long long>(rint(x), 0.0, 18446744073709551616.0); }
SPRIGS_API unsigned long long __double2ull_rz(double x) { return sprigs::clamped<unsigned long long>(trunc(x), 0.0, 18446744073709551616.0); }
SPRIGS_API unsigned long long __double2ull_rd(double x) { return sprigs::clamped<unsigned long long>(floor(x), 0.0, 18446744073709551616.0); }
SPRIGS_API unsigned long long __double2ull_ru(double x) { return sprigs::clamped<unsigned long long>(ceil(x), 0.0, 18446744073709551616.0); }
SPRIGS_API float __int2float_rn(int x) { return (float)x; }
SPRIGS_API double __int2double_rn(int x) { return (double)x; }
SPRIGS_API float __uint2float_rn(unsigned x) { return (float)x; }
SPRIGS_API double __uint2double_rn(unsigned x) { return (double)x; }
SPRIGS_API float __ll2float_rn(long long x) { return (float)x; }
SPRIGS_API double __ll2double_rn(long long x) { return (double)x; }
SPRIGS_API float __ull2float_rn(unsigned long long x) { return (float)x; }
SPRIGS_API double __ull2double_rn(unsigned long long x) { return (double)x; }
SPRIGS_API float __double2float_rn(double x) { return (float)x; }
