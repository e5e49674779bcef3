// Samples of B-spline paths, and the interpolation of many records at once.
//
// path_sample: a thread (LANES = 1, few dimensions) or a warp (LANES = 32, lanes over dimensions) a sample. A thread looks
// for the span, computes the basis functions and their slopes in registers and takes K + 1 neighbouring control points,
// which lie together in memory. Normal numbers are drawn by counter (Philox), four from one counter, so that they depend
// on seed, offset, sample and dimension alone: neither on the launch nor on LANES. An "element" is a sample of three
// dimensions, cubic, float32: it must move 48 bytes of control points, 8 of index and time and 52 of results (knots stay in
// cache). A counter costs about 100 operations, the two pairs of normal numbers 130, the spline 120. The floor is memory.
// banded_solve: a thread a record. The collocation matrix has K diagonals on either side and is totally positive, so that
// elimination needs no pivots; the rows it still needs are a window in registers, upper diagonals go to a scratch array.
// Arrays are time-major, [.., record]: neighbouring threads touch neighbouring addresses. Row i holds the observation at
// time i; its entries stand in columns span - K .. span, the band's positions span - i .. span - i + K.
// path_sample: moves 108 bytes and does 350 operations per element
// banded_solve: moves 48 bytes and does 90 operations per element
//
// variant: linear, float: -DREAL=float -DK=1
// variant: quadratic, float: -DREAL=float -DK=2
// variant: cubic, float: -DREAL=float -DK=3
// variant: cubic, float, warps: -DREAL=float -DK=3 -DLANES=32
// variant: quintic, float: -DREAL=float -DK=5
// variant: cubic, double: -DREAL=double -DK=3
// variant: quintic, double, warps: -DREAL=double -DK=5 -DLANES=32
// at most, linear, float: path_sample 855, banded_solve 477
// at most, quadratic, float: path_sample 922, banded_solve 802
// at most, cubic, float: path_sample 995, banded_solve 970
// at most, cubic, float, warps: path_sample 883, banded_solve 970
// at most, quintic, float: path_sample 1197, banded_solve 1424
// at most, cubic, double: path_sample 1356, banded_solve 1042
// at most, quintic, double, warps: path_sample 1344, banded_solve 1644

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

// The K + 1 basis functions of a span at t, and K weights of the differences of neighbouring control points in the
// derivative: differences keep digits that slopes of basis functions, which cancel, would lose. tau[0 .. 2K - 1] are the
// knots around the span: tau[K - 1] <= t <= tau[K].
__device__ inline void basis(const REAL* tau, REAL t, REAL* value, REAL* rate) {
#pragma unroll
    for (int r = 0; r <= K; r++) value[r] = REAL(0);
    value[0] = REAL(1);
#pragma unroll
    for (int p = 1; p <= K; p++) {
        REAL saved = REAL(0);
#pragma unroll
        for (int r = 0; r < p; r++) {
            const REAL right = tau[K + r], left = tau[K + r - p];
            const REAL share = value[r] / (right - left);
            if (p == K) rate[r] = K * share;
            value[r] = saved + (right - t) * share;
            saved = (t - left) * share;
        }
        value[p] = saved;
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

// Philox 4x32-10 (Salmon et al., 2011) of the counter (counter, 0).
__device__ inline void philox(u64 counter, u64 seed, u32* c) {
    c[0] = (u32)counter;
    c[1] = (u32)(counter >> 32);
    c[2] = c[3] = 0u;
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const u64 a = (u64)0xD2511F53u * c[0], b = (u64)0xCD9E8D57u * c[2];
        c[0] = (u32)(b >> 32) ^ c[1] ^ k0;
        c[2] = (u32)(a >> 32) ^ c[3] ^ k1;
        c[1] = (u32)b;
        c[3] = (u32)a;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

// Two standard normal numbers of two words (Box and Muller).
__device__ inline void normals(u32 radius, u32 angle, REAL& first, REAL& second) {
    // Open on the left: the logarithm of zero is never taken.
    const REAL u = REAL(radius) * REAL(2.3283064365386963e-10) + REAL(1.1641532182693481e-10);
    const REAL r = sqrt(REAL(-2) * log(u)), turn = REAL(angle) * REAL(4.656612873077393e-10);
    // In half turns: the reduction of large arguments would keep a table in local memory.
#ifdef SPRIGS_EMULATOR
    first = r * REAL(cospi(turn));
    second = r * REAL(sinpi(turn));
#else
    REAL sine, cosine;
    sincospi(turn, &sine, &cosine);
    first = r * cosine;
    second = r * sine;
#endif
}

// coef: [rows][n][d]; knots: [G][n + K + 1]; sites: [G][n]; counts: [G], K + 1 to n; G is 1 (shared_grid) or rows; index and
// t: [batch]; sigma: [batch]; the other results: [batch][d]. A row that does not exist gives NaN.
// schedule 0: sigma = g. 1: the Brownian bridge between observations. 2: the same, as wide in every gap.
// Noise of dimension j is number offset + b * (d rounded up to 4) + j of the seed; offset is a multiple of 4.
extern "C" __global__ void __launch_bounds__(256, 2)
path_sample(const REAL* __restrict__ coef, const REAL* __restrict__ knots, const REAL* __restrict__ sites,
            const int* __restrict__ counts, const int* __restrict__ index, const REAL* __restrict__ t,
            REAL* __restrict__ mu, REAL* __restrict__ x, REAL* __restrict__ velocity, REAL* __restrict__ eps,
            REAL* __restrict__ sigma, int rows, int n, int d, int batch, int shared_grid, int schedule, REAL g,
            u64 seed, u64 offset) {
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const int lane = (int)(thread % LANES);
    const u64 blocks = (u64)(d + 3) / 4;
    for (long long b = thread / LANES; b < batch; b += (long long)gridDim.x * blockDim.x / LANES) {
        const long long i = index[b];
        const long long grid = shared_grid ? 0 : i;
        const bool known = i >= 0 && i < rows;
        const int count = known ? counts[grid] : 0;
        if (count <= K || count > n) {
            const REAL nothing = REAL(0) / REAL(0);
            if (lane == 0) sigma[b] = nothing;
            for (int j = lane; j < d; j += LANES)
                mu[b * d + j] = x[b * d + j] = velocity[b * d + j] = eps[b * d + j] = nothing;
            continue;
        }
        const REAL* row = knots + grid * (n + K + 1);
        const REAL* observed = sites + grid * n;
        const REAL time = t[b], first = row[K], last = row[count];
        const REAL held = time < first ? first : (time > last ? last : time);
        const REAL alive = held == time ? REAL(1) : REAL(0);
        const int span = K + last_not_above(row + K, count - K, held);
        REAL tau[2 * K], value[K + 1], rate[K];
#pragma unroll
        for (int r = 0; r < 2 * K; r++) tau[r] = row[span - K + 1 + r];
        basis(tau, held, value, rate);
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
        auto put = [&](int j, REAL e) {
            REAL before = points[j], m = value[0] * before, v = REAL(0);
#pragma unroll
            for (int r = 1; r <= K; r++) {
                const REAL c = points[(long long)r * d + j];
                m += value[r] * c;
                v += rate[r - 1] * (c - before);
                before = c;
            }
            const long long at = b * d + j;
            mu[at] = m;
            x[at] = m + s * e;
            velocity[at] = alive * v + ds * e;
            eps[at] = e;
        };
        const u64 counter = offset / 4 + (u64)b * blocks;
        u32 word[4];
        REAL even, odd;
        if (LANES == 1) {
#pragma unroll 1
            for (int j = 0; j < d; j += 4) {
                philox(counter + (u64)j / 4, seed, word);
                normals(word[0], word[1], even, odd);
                put(j, even);
                if (j + 1 < d) put(j + 1, odd);
                if (j + 2 < d) {
                    normals(word[2], word[3], even, odd);
                    put(j + 2, even);
                    if (j + 3 < d) put(j + 3, odd);
                }
            }
        } else {
            // Four lanes draw the same words, and each takes its own: dearer by a few operations, cheaper than to pass them.
            for (int j = lane; j < d; j += LANES) {
                philox(counter + (u64)j / 4, seed, word);
                normals(j & 2 ? word[2] : word[0], j & 2 ? word[3] : word[1], even, odd);
                put(j, j & 1 ? odd : even);
            }
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

// times, values, coef: [n][records]; counts: [records], K + 1 to n; upper: [n][K][records], scratch; knots:
// [n + K + 1][records]. Nothing beyond a record's count is read.
extern "C" __global__ void __launch_bounds__(128, 2)
banded_solve(const REAL* __restrict__ times, const int* __restrict__ counts, const REAL* __restrict__ values,
             REAL* __restrict__ upper, REAL* __restrict__ knots, REAL* __restrict__ coef, int n, int records) {
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
            REAL tau[2 * K], value[K + 1], rate[K], band[2 * K + 1];
#pragma unroll
            for (int r = 0; r < 2 * K; r++) tau[r] = knot(own, records, count, span - K + 1 + r);
            basis(tau, t, value, rate);
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
