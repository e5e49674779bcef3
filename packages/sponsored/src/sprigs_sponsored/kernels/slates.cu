// Every slate of K prompts under the MNL model, a thread each: the best one, and the best without each advertiser.
//
// Slates are numbered in lexicographic order and unranked by the combinatorial number system. What has to move: tables
// of L x M and N x M numbers once a block; an "element" is a slate of K = 4 out of L = 200 prompts for M = 6 intents and N =
// 16 advertisers: (K + 1) M N multiply-adds and as many comparisons, so that arithmetic is the floor.
// enumerate_slates: moves 0.01 bytes and does 1500 operations per element
// variant: 4 of any, 6 intents, 16 advertisers: -DSLATE=4 -DINTENTS=6 -DADVERTISERS=16
// variant: 3 of any, 4 intents, 8 advertisers: -DSLATE=3 -DINTENTS=4 -DADVERTISERS=8

#ifndef SLATE
#define SLATE 3
#define INTENTS 4
#define ADVERTISERS 8
#endif

typedef unsigned int u32;
typedef unsigned long long u64;

#define THREADS 128

// binomial[x * (SLATE + 1) + j] = C(x, j). Blocks write their best welfare, the lowest slate that has it within rounding of
// the block's own best, and the best welfare without each advertiser; the host takes the best over blocks.
extern "C" __global__ __launch_bounds__(THREADS, 4) void enumerate_slates(
    const double* __restrict__ weights, const double* __restrict__ worth, const u64* __restrict__ binomial, u32 prompts,
    u64 count, double* __restrict__ best_of, u64* __restrict__ slate_of, double* __restrict__ without_of) {
    extern __shared__ double tables[];  // weights by prompt and intent, worth by advertiser and intent
    __shared__ double value[THREADS];
    __shared__ u64 slate[THREADS];
    for (u32 k = threadIdx.x; k < prompts * INTENTS; k += THREADS) tables[k] = weights[k];
    double* own = tables + prompts * INTENTS;
    for (u32 k = threadIdx.x; k < ADVERTISERS * INTENTS; k += THREADS) own[k] = worth[k];
    __syncthreads();
    double best = -1.0;
    u64 best_slate = ~0ull;
    double without[ADVERTISERS];
#pragma unroll
    for (int i = 0; i < ADVERTISERS; i++) without[i] = -1.0;
    for (u64 index = (u64)blockIdx.x * THREADS + threadIdx.x; index < count; index += (u64)gridDim.x * THREADS) {
        u64 chosen = 0;  // 12 bits a prompt: an array indexed by a loop would take local memory
        u64 left = index;
        u32 x = 0;
#pragma unroll 1
        for (int j = 0; j < SLATE; j++) {
            u64 here;
            while (left >= (here = binomial[(prompts - x - 1u) * (SLATE + 1) + (SLATE - j - 1)])) {
                left -= here;
                x++;
            }
            chosen |= (u64)x++ << (12 * j);
        }
        double inverse[INTENTS];
#pragma unroll
        for (int t = 0; t < INTENTS; t++) {
            double total = 1.0;
            for (int j = 0; j < SLATE; j++) total += tables[(u32)(chosen >> (12 * j) & 0xFFFu) * INTENTS + t];
            inverse[t] = 1.0 / total;
        }
        double welfare = 0.0;
        double loss[ADVERTISERS];
#pragma unroll
        for (int i = 0; i < ADVERTISERS; i++) loss[i] = 0.0;
#pragma unroll 1
        for (int j = -1; j < SLATE; j++) {
            const u32 prompt = j < 0 ? 0u : (u32)(chosen >> (12 * j) & 0xFFFu);
            double click[INTENTS];
#pragma unroll
            for (int t = 0; t < INTENTS; t++) click[t] = (j < 0 ? 1.0 : tables[prompt * INTENTS + t]) * inverse[t];
            double top = 0.0, next = 0.0;
            int who = 0;
#pragma unroll 2
            for (int i = 0; i < ADVERTISERS; i++) {
                double e = 0.0;
#pragma unroll
                for (int t = 0; t < INTENTS; t++) e += click[t] * own[i * INTENTS + t];
                next = fmax(next, fmin(top, e));
                who = e > top ? i : who;
                top = fmax(top, e);
            }
            welfare += top;
#pragma unroll
            for (int i = 0; i < ADVERTISERS; i++) loss[i] += who == i ? top - next : 0.0;
        }
        if (welfare > best + 1e-12 * fmax(1.0, best)) best_slate = index;
        best = fmax(best, welfare);
#pragma unroll
        for (int i = 0; i < ADVERTISERS; i++) without[i] = fmax(without[i], welfare - loss[i]);
    }
    value[threadIdx.x] = best;
    slate[threadIdx.x] = best_slate;
    __syncthreads();
    if (threadIdx.x == 0) {
#pragma unroll 1
        for (u32 k = 1; k < THREADS; k++) best = fmax(best, value[k]);
        const double least = best - 1e-12 * fmax(1.0, best);
        u64 lowest = ~0ull;
#pragma unroll 1
        for (u32 k = 0; k < THREADS; k++)
            if (value[k] >= least && slate[k] < lowest) lowest = slate[k];
        best_of[blockIdx.x] = best;
        slate_of[blockIdx.x] = lowest;
    }
#pragma unroll 1
    for (int i = 0; i < ADVERTISERS; i++) {
        __syncthreads();
        double x = -1.0;
#pragma unroll
        for (int j = 0; j < ADVERTISERS; j++) x = i == j ? without[j] : x;
        value[threadIdx.x] = x;
        __syncthreads();
        for (u32 step = THREADS / 2; step; step >>= 1) {
            if (threadIdx.x < step) value[threadIdx.x] = fmax(value[threadIdx.x], value[threadIdx.x + step]);
            __syncthreads();
        }
        if (threadIdx.x == 0) without_of[blockIdx.x * ADVERTISERS + i] = value[0];
    }
}
