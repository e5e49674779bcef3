// The product of functions on the sphere and its adjoint, a thread a row; no field of the grid leaves the registers.
//
// A block stages its rows through shared memory, transposed so that lanes read neighbours. For each ring of the grid a
// thread sums its coefficients over degrees (cosine and sine coefficients of the ring), then goes along half the
// meridians: a and -a share their cosine and sine parts. Products are summed back into the ring's coefficients, those into
// the output. No atomics, no shuffles: the same bits every time.
//
// An "element" is a row with all degrees up to 3 in float32. It must move 4 (16 + 16 + 2 * 16) bytes; 5 rings of 10 points
// take 480 + 1260 + 300 + 420 + 160 multiply-adds: 20 operations a byte, above an H100's 18, so that arithmetic is the
// floor.
// product: moves 256 bytes and does 5240 operations per element
// adjoint: moves 256 bytes and does 5240 operations per element
//
// variant: lmax 2, float: -DREAL=float -DL1=2 -DL2=2 -DL3=2
// variant: lmax 3, float: -DREAL=float -DL1=3 -DL2=3 -DL3=3
// variant: lmax 4, float: -DREAL=float -DL1=4 -DL2=4 -DL3=4
// variant: lmax 6, float: -DREAL=float -DL1=6 -DL2=6 -DL3=6
// variant: lmax 2, double: -DREAL=double -DL1=2 -DL2=2 -DL3=2
// variant: lmax 3, double: -DREAL=double -DL1=3 -DL2=3 -DL3=3
// variant: lmax 4, double: -DREAL=double -DL1=4 -DL2=4 -DL3=4
// variant: scalar and edge, float: -DREAL=float -DL1=2 -DL2=3 -DL3=4 -DMASK1=5 -DMASK3=21
// variant: gaunt, float: -DREAL=float -DL1=3 -DL2=3 -DL3=3 -DKINDS=1
// variant: merged, float: -DREAL=float -DL1=1 -DL2=2 -DL3=3 -DMASK1=2 -DMASK2=4 -DMERGE=1
// at most, lmax 2, float: product 1105, adjoint 1068
// at most, lmax 3, float: product 1372, adjoint 1328
// at most, lmax 4, float: product 1693, adjoint 1627
// at most, lmax 6, float: product 2526, adjoint 2379
// at most, lmax 2, double: product 1106, adjoint 1079
// at most, lmax 3, double: product 1414, adjoint 1335
// at most, lmax 4, double: product 1693, adjoint 1632
// at most, scalar and edge, float: product 1313, adjoint 1230
// at most, gaunt, float: product 994, adjoint 1073
// at most, merged, float: product 965, adjoint 980

#ifndef REAL
#define REAL float
#endif
#ifndef L1
#define L1 2
#define L2 2
#define L3 2
#endif
// Bit l: whether degree l is there.
#ifndef MASK1
#define MASK1 ((1u << (L1 + 1)) - 1u)
#endif
#ifndef MASK2
#define MASK2 ((1u << (L2 + 1)) - 1u)
#endif
#ifndef MASK3
#define MASK3 ((1u << (L3 + 1)) - 1u)
#endif
// Bit 0: symmetric paths, through scalar fields. Bit 1: antisymmetric ones, through gradients.
#ifndef KINDS
#define KINDS 3
#endif
// Whether the kinds are summed into one output.
#ifndef MERGE
#define MERGE 0
#endif
#ifndef THREADS
#define THREADS 64
#endif

// The rows' coefficients do not change from ring to ring; without this some compilers carry them all in registers.
#ifndef SPRIGS_EMULATOR
#define KEEP_IN_SHARED asm volatile("" ::: "memory")
#else
#define KEEP_IN_SHARED
#endif

typedef unsigned int u32;
typedef unsigned long long u64;

constexpr bool EVEN = (KINDS & 1) != 0, ODD = (KINDS & 2) != 0;
constexpr int OUTPUTS = MERGE ? 1 : int(EVEN) + int(ODD);
constexpr int STRIDE = THREADS + 1;
constexpr int LMAX = (L1 > L2 ? L1 : L2) > L3 ? (L1 > L2 ? L1 : L2) : L3;
constexpr int TRIANGLE = (LMAX + 1) * (LMAX + 2) / 2;

// Coefficients before degree l, among the degrees of a mask.
__device__ constexpr int before(u32 mask, int l) {
    int n = 0;
    for (int k = 0; k < l; k++)
        if (mask >> k & 1u) n += 2 * k + 1;
    return n;
}

constexpr int N1 = before(MASK1, L1 + 1), N2 = before(MASK2, L2 + 1), N3 = before(MASK3, L3 + 1);

// Cosine and sine coefficients of a field on a ring.
template <int L>
struct Ring {
    REAL c[L + 1], s[L + 1];
    __device__ void clear() {
#pragma unroll
        for (int m = 0; m <= L; m++) c[m] = s[m] = REAL(0);
    }
    // The parts that a and -a share: the field is even + odd at a, even - odd at -a.
    __device__ void at(const REAL* line, REAL& even, REAL& odd) const {
        even = c[0];
        odd = REAL(0);
#pragma unroll
        for (int m = 1; m <= L; m++) {
            even += c[m] * line[m];
            odd += s[m] * line[LMAX + m];
        }
    }
    // Adds a field's sum and difference over a and -a.
    __device__ void add(const REAL* line, REAL sum, REAL difference) {
        c[0] += sum;
#pragma unroll
        for (int m = 1; m <= L; m++) {
            c[m] += line[m] * sum;
            s[m] += line[LMAX + m] * difference;
        }
    }
};

// Copies rows [count][n] into [n][STRIDE] of shared memory, and back.
template <int N>
__device__ void fetch(REAL* tile, const REAL* from, u32 count) {
    for (u32 k = threadIdx.x; k < count * N; k += THREADS) tile[k % N * STRIDE + k / N] = from[k];
}

template <int N>
__device__ void flush(const REAL* tile, REAL* to, u32 count) {
    for (u32 k = threadIdx.x; k < count * N; k += THREADS) to[k] = tile[k % N * STRIDE + k / N];
}

// Fields of features on a ring: their values, and their unit-normalised derivatives along the ring's frame.
template <int L, u32 MASK, bool VALUES, bool SLOPES>
__device__ void analyse(const REAL* x, const REAL* legendre, Ring<L>& f0, Ring<L>& fb, Ring<L>& fa) {
    f0.clear();
    fb.clear();
    fa.clear();
#pragma unroll
    for (int l = 0; l <= L; l++) {
        if (!(MASK >> l & 1u)) continue;
#pragma unroll
        for (int m = 0; m <= l; m++) {
            const REAL* p = legendre + 3 * (l * (l + 1) / 2 + m);
            const REAL plus = x[(before(MASK, l) + l + m) * STRIDE], minus = x[(before(MASK, l) + l - m) * STRIDE];
            if (VALUES) {
                f0.c[m] += p[0] * plus;
                if (m > 0) f0.s[m] += p[0] * minus;
            }
            if (SLOPES && l > 0) {
                fb.c[m] += p[1] * plus;
                if (m > 0) {
                    fb.s[m] += p[1] * minus;
                    fa.c[m] += p[2] * minus;
                    fa.s[m] -= p[2] * plus;
                }
            }
        }
    }
}

// Its transpose.
template <int L, u32 MASK, bool VALUES, bool SLOPES>
__device__ void synthesise(REAL* x, const REAL* legendre, REAL w, const Ring<L>& f0, const Ring<L>& fb, const Ring<L>& fa) {
#pragma unroll
    for (int l = 0; l <= L; l++) {
        if (!(MASK >> l & 1u)) continue;
#pragma unroll
        for (int m = 0; m <= l; m++) {
            const REAL* p = legendre + 3 * (l * (l + 1) / 2 + m);
            REAL plus = REAL(0), minus = REAL(0);
            if (VALUES) {
                plus += p[0] * f0.c[m];
                if (m > 0) minus += p[0] * f0.s[m];
            }
            if (SLOPES && l > 0) {
                plus += p[1] * fb.c[m];
                if (m > 0) {
                    minus += p[1] * fb.s[m] + p[2] * fa.c[m];
                    plus -= p[2] * fa.s[m];
                }
            }
            x[(before(MASK, l) + l + m) * STRIDE] += w * plus;
            if (m > 0) x[(before(MASK, l) + l - m) * STRIDE] += w * minus;
        }
    }
}

// legendre: [rings][TRIANGLE][3]; weights: [rings]; meridians: [lines][1 + 2 LMAX], the first half for a line that is its own
// mirror image, then cosines and sines.
__device__ void tables(REAL* to, const REAL* legendre, const REAL* weights, const REAL* meridians, u32 rings, u32 lines) {
    for (u32 k = threadIdx.x; k < rings * TRIANGLE * 3; k += THREADS) to[k] = legendre[k];
    to += rings * TRIANGLE * 3;
    for (u32 k = threadIdx.x; k < rings; k += THREADS) to[k] = weights[k];
    to += rings;
    for (u32 k = threadIdx.x; k < lines * (1 + 2 * LMAX); k += THREADS) to[k] = meridians[k];
}

extern "C" __global__ __launch_bounds__(THREADS, 4) void product(
    const REAL* __restrict__ x, const REAL* __restrict__ y, REAL* __restrict__ out, const REAL* __restrict__ legendre,
    const REAL* __restrict__ weights, const REAL* __restrict__ meridians, u32 rings, u32 lines, u64 rows) {
    extern __shared__ double memory[];
    REAL* legendre_of = reinterpret_cast<REAL*>(memory);
    REAL* weight_of = legendre_of + rings * TRIANGLE * 3;
    REAL* line_of = weight_of + rings;
    REAL* left = line_of + lines * (1 + 2 * LMAX);
    REAL* right = left + N1 * STRIDE;
    REAL* result = right + N2 * STRIDE;
    tables(legendre_of, legendre, weights, meridians, rings, lines);
    for (u64 start = (u64)blockIdx.x * THREADS; start < rows; start += (u64)gridDim.x * THREADS) {
        const u32 count = rows - start < THREADS ? (u32)(rows - start) : THREADS;
        __syncthreads();
        fetch<N1>(left, x + start * N1, count);
        fetch<N2>(right, y + start * N2, count);
        __syncthreads();
        if (threadIdx.x < count) {
            REAL* mine = result + threadIdx.x;
#pragma unroll
            for (int k = 0; k < OUTPUTS * N3; k++) mine[k * STRIDE] = REAL(0);
#pragma unroll 1
            for (u32 i = 0; i < rings; i++) {
                KEEP_IN_SHARED;
                Ring<L1> x0, xb, xa;
                Ring<L2> y0, yb, ya;
                const REAL* p = legendre_of + i * TRIANGLE * 3;
                analyse<L1, MASK1, EVEN, ODD>(left + threadIdx.x, p, x0, xb, xa);
                analyse<L2, MASK2, EVEN, ODD>(right + threadIdx.x, p, y0, yb, ya);
                Ring<L3> even, odd;
                even.clear();
                odd.clear();
#pragma unroll 1
                for (u32 j = 0; j < lines; j++) {
                    const REAL* line = line_of + j * (1 + 2 * LMAX);
                    REAL s_plus = REAL(0), s_minus = REAL(0), o_plus = REAL(0), o_minus = REAL(0);
                    if (EVEN) {
                        REAL xe, xo, ye, yo;
                        x0.at(line, xe, xo);
                        y0.at(line, ye, yo);
                        s_plus = (xe + xo) * (ye + yo);
                        s_minus = (xe - xo) * (ye - yo);
                    }
                    if (ODD) {
                        REAL xbe, xbo, xae, xao, ybe, ybo, yae, yao;
                        xb.at(line, xbe, xbo);
                        xa.at(line, xae, xao);
                        yb.at(line, ybe, ybo);
                        ya.at(line, yae, yao);
                        o_plus = (xbe + xbo) * (yae + yao) - (xae + xao) * (ybe + ybo);
                        o_minus = (xbe - xbo) * (yae - yao) - (xae - xao) * (ybe - ybo);
                    }
                    if (MERGE) {
                        s_plus += o_plus;
                        s_minus += o_minus;
                    }
                    if (EVEN || MERGE) even.add(line, line[0] * (s_plus + s_minus), s_plus - s_minus);
                    if (ODD && !MERGE) odd.add(line, line[0] * (o_plus + o_minus), o_plus - o_minus);
                }
                REAL* at = mine;
                if (EVEN || MERGE) {
                    synthesise<L3, MASK3, true, false>(at, p, weight_of[i], even, even, even);
                    at += N3 * STRIDE;
                }
                if (ODD && !MERGE) synthesise<L3, MASK3, true, false>(at, p, weight_of[i], odd, odd, odd);
            }
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < OUTPUTS; k++) flush<N3>(result + k * N3 * STRIDE, out + k * rows * N3 + start * N3, count);
    }
}

// The gradient of the first input (sign 1); of the second, if the bands of the two are exchanged (sign -1).
extern "C" __global__ __launch_bounds__(THREADS, 4) void adjoint(
    const REAL* __restrict__ y, const REAL* __restrict__ g, REAL* __restrict__ out, const REAL* __restrict__ legendre,
    const REAL* __restrict__ weights, const REAL* __restrict__ meridians, u32 rings, u32 lines, u64 rows, REAL sign) {
    extern __shared__ double memory[];
    REAL* legendre_of = reinterpret_cast<REAL*>(memory);
    REAL* weight_of = legendre_of + rings * TRIANGLE * 3;
    REAL* line_of = weight_of + rings;
    REAL* result = line_of + lines * (1 + 2 * LMAX);
    REAL* other = result + N1 * STRIDE;
    REAL* upstream = other + N2 * STRIDE;
    tables(legendre_of, legendre, weights, meridians, rings, lines);
    for (u64 start = (u64)blockIdx.x * THREADS; start < rows; start += (u64)gridDim.x * THREADS) {
        const u32 count = rows - start < THREADS ? (u32)(rows - start) : THREADS;
        __syncthreads();
        fetch<N2>(other, y + start * N2, count);
#pragma unroll
        for (int k = 0; k < OUTPUTS; k++) fetch<N3>(upstream + k * N3 * STRIDE, g + k * rows * N3 + start * N3, count);
        __syncthreads();
        if (threadIdx.x < count) {
            REAL* mine = result + threadIdx.x;
#pragma unroll
            for (int k = 0; k < N1; k++) mine[k * STRIDE] = REAL(0);
#pragma unroll 1
            for (u32 i = 0; i < rings; i++) {
                KEEP_IN_SHARED;
                Ring<L2> y0, yb, ya;
                Ring<L3> even, odd;
                const REAL* p = legendre_of + i * TRIANGLE * 3;
                const REAL* dual = upstream + threadIdx.x;
                analyse<L2, MASK2, EVEN, ODD>(other + threadIdx.x, p, y0, yb, ya);
                if (EVEN || MERGE) {
                    analyse<L3, MASK3, true, false>(dual, p, even, odd, odd);
                    dual += N3 * STRIDE;
                }
                if (ODD && !MERGE) {
                    Ring<L3> unused;
                    analyse<L3, MASK3, true, false>(dual, p, odd, unused, unused);
                }
                Ring<L1> x0, xb, xa;
                x0.clear();
                xb.clear();
                xa.clear();
#pragma unroll 1
                for (u32 j = 0; j < lines; j++) {
                    const REAL* line = line_of + j * (1 + 2 * LMAX);
                    REAL ge = REAL(0), go = REAL(0);
                    if (EVEN || MERGE) even.at(line, ge, go);
                    if (EVEN) {
                        REAL ye, yo;
                        y0.at(line, ye, yo);
                        const REAL plus = (ge + go) * (ye + yo), minus = (ge - go) * (ye - yo);
                        x0.add(line, line[0] * (plus + minus), plus - minus);
                    }
                    if (ODD) {
                        if (!MERGE) odd.at(line, ge, go);
                        REAL ybe, ybo, yae, yao;
                        yb.at(line, ybe, ybo);
                        ya.at(line, yae, yao);
                        const REAL up = sign * (ge + go), down = sign * (ge - go);
                        const REAL b_plus = up * (yae + yao), b_minus = down * (yae - yao);
                        const REAL a_plus = -up * (ybe + ybo), a_minus = -down * (ybe - ybo);
                        xb.add(line, line[0] * (b_plus + b_minus), b_plus - b_minus);
                        xa.add(line, line[0] * (a_plus + a_minus), a_plus - a_minus);
                    }
                }
                synthesise<L1, MASK1, EVEN, ODD>(mine, p, weight_of[i], x0, xb, xa);
            }
        }
        __syncthreads();
        flush<N1>(result, out + start * N1, count);
    }
}
