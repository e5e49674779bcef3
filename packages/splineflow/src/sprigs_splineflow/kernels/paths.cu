// Samples of B-spline paths, and the interpolation of many records at once.
//
// path_sample: a thread (LANES = 1, few dimensions) or a warp (LANES = 32, lanes over dimensions) a sample. A thread looks
// for the span, computes the basis functions and their slopes in registers and takes K + 1 neighbouring control points,
// which lie together in memory; normal numbers are drawn by counter (Philox), so that they depend on seed, offset, sample
// and dimension alone. An "element" is a sample of three dimensions, cubic, float32: it must move 48 bytes of control
// points, 12 of index and time and 40 of results (knots stay in cache). A pair of normal numbers costs about 100
// operations, the spline 90. The floor is memory.
// banded_solve: a thread a record. The collocation matrix has K diagonals on either side and is totally positive, so that
// elimination needs no pivots; the rows it still needs are a window in registers, upper diagonals go to a scratch array.
// Arrays are time-major, [.., record]: neighbouring threads touch neighbouring addresses. Row i holds the observation at
// time i; its entries stand in columns span - K .. span, the band's positions span - i .. span - i + K.
// path_sample: moves 100 bytes and does 400 operations per element
// banded_solve: moves 48 bytes and does 90 operations per element
//
// variant: linear, float: -DREAL=float -DK=1
// variant: quadratic, float: -DREAL=float -DK=2
// variant: cubic, float: -DREAL=float -DK=3
// variant: cubic, float, warps: -DREAL=float -DK=3 -DLANES=32
// variant: quintic, float: -DREAL=float -DK=5
// variant: cubic, double: -DREAL=double -DK=3
// variant: quintic, double, warps: -DREAL=double -DK=5 -DLANES=32
// at most, linear, float: path_sample 622, banded_solve 477
// at most, quadratic, float: path_sample 658, banded_solve 802
// at most, cubic, float: path_sample 717, banded_solve 970
// at most, cubic, float, warps: path_sample 735, banded_solve 970
// at most, quintic, float: path_sample 899, banded_solve 1424
// at most, cubic, double: path_sample 883, banded_solve 1042
// at most, quintic, double, warps: path_sample 1131, banded_solve 1644

#ifndef REAL
#define REAL float
#endif
#ifndef K
#define K 3
#endif
#ifndef LANES
#define LANES 1
#endif

typedef unsigned int u32;
typedef unsigned long long u64;

// The K + 1 basis functions of a span at t, and what they add to the derivative. tau[0 .. 2K - 1] are the knots around the
// span: tau[K - 1] <= t <= tau[K].
__device__ inline void basis(const REAL* tau, REAL t, REAL* value, REAL* slope) {
#pragma unroll
    for (int r = 0; r <= K; r++) value[r] = slope[r] = REAL(0);
    value[0] = REAL(1);
#pragma unroll
    for (int p = 1; p <= K; p++) {
        REAL saved = REAL(0), steep = REAL(0);
#pragma unroll
        for (int r = 0; r < p; r++) {
            const REAL right = tau[K + r], left = tau[K + r - p];
            const REAL share = value[r] / (right - left);
            if (p == K) {
                slope[r] = steep - K * share;
                steep = K * share;
            }
            value[r] = saved + (right - t) * share;
            saved = (t - left) * share;
        }
        value[p] = saved;
        if (p == K) slope[p] = steep;
    }
}

// The last of `count` positions whose value is not above t; the first is taken to be.
__device__ inline int last_not_above(const REAL* values, int count, REAL t) {
    int low = 0;
    while (count > 1) {
        const int half = count >> 1;
        low += t >= values[low + half] ? half : 0;
        count -= half;
    }
    return low;
}

// A standard normal number of counter and seed: Philox 4x32-10 (Salmon et al., 2011), then Box and Muller.
__device__ inline REAL normal(u64 counter, u64 seed) {
    u32 c0 = (u32)counter, c1 = (u32)(counter >> 32), c2 = 0u, c3 = 0u;
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const u64 a = (u64)0xD2511F53u * c0, b = (u64)0xCD9E8D57u * c2;
        const u32 d0 = (u32)(b >> 32) ^ c1 ^ k0, d2 = (u32)(a >> 32) ^ c3 ^ k1;
        c1 = (u32)b;
        c3 = (u32)a;
        c0 = d0;
        c2 = d2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    // Open on the left: the logarithm of zero is never taken.
    const REAL u = (REAL(c0 >> 8) + REAL(0.5)) * REAL(5.9604644775390625e-08);
    const REAL v = REAL(c1 >> 8) * REAL(5.9604644775390625e-08);
#ifdef SPRIGS_EMULATOR
    return sqrt(REAL(-2) * log(u)) * cos(REAL(6.283185307179586) * v);
#else
    // Without the reduction of large arguments, which keeps a table in local memory.
    return sqrt(REAL(-2) * log(u)) * cospi(REAL(2) * v);
#endif
}

// schedule 0: sigma = g. 1: the Brownian bridge between observations. 2: the same, as wide in every gap.
extern "C" __global__ void __launch_bounds__(256, 2)
path_sample(const REAL* coef, const REAL* knots, const REAL* sites, const int* counts, const int* index, const REAL* t,
            REAL* mu, REAL* x, REAL* velocity, REAL* eps, REAL* sigma, int n, int d, int batch, int shared_grid,
            int schedule, REAL g, u64 seed, u64 offset) {
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const int lane = (int)(thread % LANES);
    for (long long b = thread / LANES; b < batch; b += (long long)gridDim.x * blockDim.x / LANES) {
        const long long i = index[b];
        const long long grid = shared_grid ? 0 : i;
        const REAL* row = knots + grid * (n + K + 1);
        const REAL* observed = sites + grid * n;
        const int count = counts[grid];
        const REAL first = row[K], last = row[count];
        const REAL held = t[b] < first ? first : (t[b] > last ? last : t[b]);
        const REAL alive = held == t[b] ? REAL(1) : REAL(0);
        const int span = K + last_not_above(row + K, count - K, held);
        REAL tau[2 * K], value[K + 1], slope[K + 1];
#pragma unroll
        for (int r = 0; r < 2 * K; r++) tau[r] = row[span - K + 1 + r];
        basis(tau, held, value, slope);
        REAL s = g, ds = REAL(0);
        if (schedule > 0) {
            const int q = last_not_above(observed, count - 1, held);
            const REAL gap = observed[q + 1] - observed[q];
            const REAL below = held - observed[q], above = observed[q + 1] - held;
            const REAL spread = sqrt(below * above);
            const REAL norm = schedule == 1 ? sqrt(gap) : gap;
            s = g * spread / norm;
            ds = spread > REAL(0) ? g * (above - below) / (REAL(2) * spread * norm) : REAL(0);
        }
        if (lane == 0) sigma[b] = s;
        const REAL* points = coef + (i * n + span - K) * d;
        for (int j = lane; j < d; j += LANES) {
            REAL m = REAL(0), v = REAL(0);
#pragma unroll
            for (int r = 0; r <= K; r++) {
                const REAL c = points[(long long)r * d + j];
                m += value[r] * c;
                v += slope[r] * c;
            }
            const REAL e = normal(offset + (u64)b * (u64)d + (u64)j, seed);
            const long long at = b * d + j;
            mu[at] = m;
            x[at] = m + s * e;
            velocity[at] = alive * v + ds * e;
            eps[at] = e;
        }
    }
}

// Knot j of a record of `count` times: sites inside for odd K, middles of gaps for even.
__device__ inline REAL knot(const REAL* times, long long records, int count, int j) {
    if (j <= K) return times[0];
    if (j >= count) return times[(count - 1) * records];
    const int q = j - K - 1 + (K % 2 ? (K + 1) / 2 : K / 2);
    if (K % 2) return times[q * records];
    return (times[q * records] + times[(q + 1) * records]) / REAL(2);
}

extern "C" __global__ void __launch_bounds__(128, 2)
banded_solve(const REAL* times, const int* counts, const REAL* values, REAL* upper, REAL* knots, REAL* coef, int n,
             int records) {
    for (long long s = (long long)blockIdx.x * blockDim.x + threadIdx.x; s < records;
         s += (long long)gridDim.x * blockDim.x) {
        const int count = counts[s];
        const REAL* own = times + s;
        for (int j = 0; j < n + K + 1; j++) knots[(long long)j * records + s] = knot(own, records, count, j);
        // The last K rows above, each divided by its pivot: rows[q - 1] is q rows up.
        REAL rows[K][K], right[K];
#pragma unroll
        for (int q = 0; q < K; q++) {
            right[q] = REAL(0);
#pragma unroll
            for (int c = 0; c < K; c++) rows[q][c] = REAL(0);
        }
        for (int i = 0; i < count; i++) {
            const REAL t = own[(long long)i * records];
            const int passed = K % 2 ? i - (K + 1) / 2 + 1 : i - K / 2;
            const int span = K + (passed < 0 ? 0 : (passed > count - K - 1 ? count - K - 1 : passed));
            REAL tau[2 * K], value[K + 1], slope[K + 1], band[2 * K + 1];
#pragma unroll
            for (int r = 0; r < 2 * K; r++) tau[r] = knot(own, records, count, span - K + 1 + r);
            basis(tau, t, value, slope);
            // Registers have no addresses: every position is compared with every function's.
#pragma unroll
            for (int p = 0; p <= 2 * K; p++) {
                band[p] = REAL(0);
#pragma unroll
                for (int r = 0; r <= K; r++) band[p] += p - r == span - i ? value[r] : REAL(0);
            }
            REAL y = values[(long long)i * records + s];
#pragma unroll
            for (int q = K; q >= 1; q--) {
                const REAL factor = band[K - q];
                y -= factor * right[q - 1];
#pragma unroll
                for (int c = 1; c <= K; c++) band[K - q + c] -= factor * rows[q - 1][c - 1];
            }
            const REAL inverse = REAL(1) / band[K];
#pragma unroll
            for (int q = K - 1; q >= 1; q--) {
                right[q] = right[q - 1];
#pragma unroll
                for (int c = 0; c < K; c++) rows[q][c] = rows[q - 1][c];
            }
            right[0] = y * inverse;
            coef[(long long)i * records + s] = right[0];
#pragma unroll
            for (int c = 0; c < K; c++) {
                rows[0][c] = band[K + 1 + c] * inverse;
                upper[((long long)i * K + c) * records + s] = rows[0][c];
            }
        }
        // Upwards: next[c] is the control point c + 1 rows below.
        REAL next[K];
#pragma unroll
        for (int c = 0; c < K; c++) next[c] = REAL(0);
        for (int i = count - 1; i >= 0; i--) {
            REAL total = coef[(long long)i * records + s];
#pragma unroll
            for (int c = 0; c < K; c++) total -= upper[((long long)i * K + c) * records + s] * next[c];
            coef[(long long)i * records + s] = total;
#pragma unroll
            for (int c = K - 1; c >= 1; c--) next[c] = next[c - 1];
            next[0] = total;
        }
        for (int i = count; i < n; i++) coef[(long long)i * records + s] = coef[(long long)(count - 1) * records + s];
    }
}
