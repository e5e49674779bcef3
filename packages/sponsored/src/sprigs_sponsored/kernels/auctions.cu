// Simulated auctions, a warp each: draw, expect, rank, and run every mechanism; the numbers are sprigs_sponsored.simulation's.
//
// What has to move: nothing is read but what is fixed, and 28 numbers of 8 bytes an auction are written. An "element" is
// an auction of the default size: 6 intents, 8 questions, 4 signals, 16 advertisers. It takes 98 blocks of Philox (10
// rounds of 2 multiplications), 3456 multiply-adds for the expectations and 576 comparisons, so that arithmetic in FP64,
// about 15,000 operations, is the floor, not memory.
// simulate_auctions: moves 224 bytes and does 15000 operations per element
//
// All shared memory is dynamic: doubles of one warp after another, see `doubles_per_warp` in __init__.py.

typedef unsigned int u32;
typedef unsigned long long u64;

#define ALL_LANES 0xFFFFFFFFu
#define MECHANISMS 7
#define METRICS 4

struct Words {
    u32 word[4];
};

// Philox4x32-10 (Salmon and others 2011); see counters.py.
static __device__ __forceinline__ Words philox(u64 auction, u32 block, u32 stream, u64 seed) {
    u32 a = (u32)auction, b = (u32)(auction >> 32), c = block, d = stream;
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const u64 p = (u64)a * 0xD2511F53u, q = (u64)c * 0xCD9E8D57u;
        const u32 x = (u32)(q >> 32) ^ b ^ k0, z = (u32)(p >> 32) ^ d ^ k1;
        a = x, b = (u32)q, c = z, d = (u32)p;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    return Words{{a, b, c, d}};
}

static __device__ __forceinline__ double uniform(u32 word) { return ((double)word + 0.5) * 2.3283064365386963e-10; }

// `count` uniforms of a stream into `to`, by the whole warp.
static __device__ __forceinline__ void draw(double* to, u32 count, u64 auction, u32 stream, u64 seed) {
    for (u32 block = threadIdx.x & 31u; 4u * block < count; block += 32u) {
        const Words words = philox(auction, block, stream, seed);
#pragma unroll
        for (u32 k = 0; k < 4; k++)
            if (4u * block + k < count) to[4u * block + k] = uniform(words.word[k]);
    }
    __syncwarp();
}

static __device__ __forceinline__ double warp_max(double x) {
    for (u32 step = 16; step; step >>= 1) x = fmax(x, __shfl_xor_sync(ALL_LANES, x, step));
    return x;
}

static __device__ __forceinline__ double warp_sum(double x) {
    for (u32 step = 16; step; step >>= 1) x += __shfl_xor_sync(ALL_LANES, x, step);
    return x;
}

static __device__ __forceinline__ u32 warp_min(u32 x) {
    for (u32 step = 16; step; step >>= 1) x = min(x, __shfl_xor_sync(ALL_LANES, x, step));
    return x;
}

// Lowest index within rounding of the largest, as instance.first_max.
static __device__ __forceinline__ u32 first_max(const double* x, u32 count) {
    const u32 lane = threadIdx.x & 31u;
    double top = -1e300;
    for (u32 k = lane; k < count; k += 32u) top = fmax(top, x[k]);
    top = warp_max(top);
    const double least = top - 1e-12 * fmax(1.0, top);
    u32 at = count;
    for (u32 k = lane; k < count; k += 32u)
        if (x[k] >= least) at = min(at, k);
    return warp_min(at);
}

// Clarke pivots, summed over advertisers.
static __device__ __forceinline__ double pivots(const double* objective, const double* continuation, u32 total, u32 n,
                                                u32 question) {
    double sum = 0.0;
    for (u32 i = threadIdx.x & 31u; i < n; i += 32u) {
        double most = -1e300;
        for (u32 l = 0; l < total; l++) most = fmax(most, objective[l] - continuation[l * n + i]);
        sum += fmax(most - (objective[question] - continuation[question * n + i]), 0.0);
    }
    return warp_sum(sum);
}

extern "C" __global__ __launch_bounds__(128, 4) void simulate_auctions(
    double* __restrict__ out, u32 size, u64 start, u64 seed, u32 m, u32 questions, u32 signals, u32 n,
    const double* __restrict__ fixed_prior, u32 has_prior, const double* __restrict__ fixed_kernel, u32 has_kernel,
    const double* __restrict__ base, u32 has_base, double sigma, double active, const double* __restrict__ utility,
    double rho) {
    extern __shared__ double shared[];
    const u32 lane = threadIdx.x & 31u, warp = threadIdx.x >> 5;
    const u32 b = blockIdx.x * (blockDim.x >> 5) + warp;
    if (b >= size) return;
    const u64 auction = start + b;
    const u32 total = questions + 1u, rows = total * signals, pairs = (n * m + 1u) / 2u;
    double* prior = shared + warp * (m + m * rows + 4u * pairs + 3u * rows + total * n + 4u * total + n);
    double* kernel = prior + m;  // by intent, then question and signal
    double* value = kernel + m * rows;  // n x m, then the other draws
    double* best = value + 4u * pairs;
    double* second = best + rows;
    double* who = second + rows;
    double* continuation = who + rows;  // total x n
    double* welfare = continuation + total * n;
    double* revenue = welfare + total;
    double* surplus = revenue + total;
    double* objective = surplus + total;
    double* highest = objective + total;

    if (has_prior) {
        for (u32 t = lane; t < m; t += 32u) prior[t] = fixed_prior[t];
        __syncwarp();
    } else {
        draw(prior, m, auction, 0u, seed);
        double mass = 0.0;
        for (u32 t = 0; t < m; t++) mass -= log(prior[t]);
        mass = -1.0 / mass;
        __syncwarp();
        for (u32 t = lane; t < m; t += 32u) prior[t] = log(prior[t]) * mass;
        __syncwarp();
    }
    if (has_kernel) {
        for (u32 k = lane; k < m * rows; k += 32u) {
            const u32 t = k / rows, row = k % rows;
            kernel[k] = fixed_kernel[(row / signals * m + t) * signals + row % signals];
        }
        __syncwarp();
    } else {
        const u32 asked = questions * signals;
        for (u32 block = lane; 4u * block < m * asked; block += 32u) {
            const Words words = philox(auction, block, 1u, seed);
#pragma unroll
            for (u32 k = 0; k < 4; k++) {
                const u32 at = 4u * block + k;
                const double u = uniform(words.word[k]);
                if (at < m * asked) kernel[at / asked * rows + signals + at % asked] = u * u;
            }
        }
        __syncwarp();
        for (u32 k = lane; k < m * total; k += 32u) {
            const u32 t = k / total, l = k % total;
            double* row = kernel + t * rows + l * signals;
            double mass = 0.0;
            if (l)
                for (u32 s = 0; s < signals; s++) mass += row[s];
            const double scale = 1.0 / mass;
            for (u32 s = 0; s < signals; s++) row[s] = l ? row[s] * scale : s == 0u ? 1.0 : 0.0;
        }
        __syncwarp();
    }
    // Lognormal values by Box and Muller, some of them zero.
    draw(value, 2u * pairs, auction, 2u, seed);
    draw(value + 2u * pairs, n * m, auction, 3u, seed);
    for (u32 pair = lane; pair < pairs; pair += 32u) {
        const double radius = sqrt(-2.0 * log(value[2u * pair]));
        const double turn = 2.0 * value[2u * pair + 1u], cosine = cospi(turn), sine = sinpi(turn);
#pragma unroll
        for (u32 k = 0; k < 2; k++) {
            const u32 at = 2u * pair + k;
            if (at >= n * m) break;
            const double normal = radius * (k ? sine : cosine);
            const double x = value[2u * pairs + at] < active ? exp(sigma * normal) : 0.0;
            value[at] = has_base ? x * base[at] : x;
        }
    }
    __syncwarp();
    double full = 0.0, runner = 0.0;
    for (u32 t = lane; t < m; t += 32u) {
        double top = 0.0, next = 0.0;
        for (u32 i = 0; i < n; i++) {
            const double x = prior[t] * value[i * m + t];
            next = fmax(next, fmin(top, x));
            top = fmax(top, x);
        }
        full += top, runner += next;
    }
    full = warp_sum(full), runner = warp_sum(runner);
    // A lane owns rows of question and signal, and keeps the two best advertisers in registers.
    for (u32 row = lane; row < rows; row += 32u) {
        double top = 0.0, next = 0.0;
        u32 winner = 0;
        for (u32 i = 0; i < n; i++) {
            double x = 0.0;
            for (u32 t = 0; t < m; t++) x += prior[t] * value[i * m + t] * kernel[t * rows + row];
            next = fmax(next, fmin(top, x));
            winner = x > top ? i : winner;
            top = fmax(top, x);
        }
        best[row] = top, second[row] = next, who[row] = winner;
    }
    __syncwarp();
    double bonus = -1e300;
    for (u32 l = lane; l < total; l += 32u) {
        for (u32 i = 0; i < n; i++) continuation[l * n + i] = 0.0;
        double gain = 0.0, paid = 0.0;
        for (u32 row = l * signals; row < (l + 1u) * signals; row++) {
            gain += best[row], paid += second[row];
            continuation[l * n + (u32)who[row]] += best[row] - second[row];
        }
        welfare[l] = gain + utility[l], revenue[l] = paid, surplus[l] = gain - paid;
        bonus = fmax(bonus, utility[l]);
    }
    __syncwarp();
    double* row = out + (u64)b * (MECHANISMS * METRICS);
    bonus = warp_max(bonus);
    full += bonus;
    const double scale = full > 0.0 ? 1.0 / full : 0.0;
#pragma unroll 1
    for (u32 mechanism = 0; mechanism < MECHANISMS; mechanism++) {
        u32 question = 0;
        double paid = 0.0, handed = 0.0;
        if (mechanism == 1u || mechanism == 2u) {
            const double share = mechanism == 2u ? rho : 0.0;
            double top = 0.0;
            for (u32 i = lane; i < n; i += 32u) {
                double most = 0.0;
                for (u32 l = 0; l < total; l++) most = fmax(most, continuation[l * n + i] + share * revenue[l]);
                highest[i] = most;
                top = fmax(top, most);
            }
            top = warp_max(top);
            __syncwarp();
            if (top > 0.0) {
                const double least = top - 1e-12 * fmax(1.0, top);
                u32 sponsor = n;
                for (u32 i = lane; i < n; i += 32u)
                    if (highest[i] >= least) sponsor = min(sponsor, i);
                sponsor = warp_min(sponsor);
                question = total;
                for (u32 l = lane; l < total; l += 32u)
                    if (continuation[l * n + sponsor] + share * revenue[l] >= least) question = min(question, l);
                question = warp_min(question);
                for (u32 i = lane; i < n; i += 32u)
                    if (i != sponsor) paid = fmax(paid, highest[i]);
                paid = warp_max(paid);
                handed = share * revenue[question];
            }
            __syncwarp();
        } else if (mechanism >= 3u && mechanism < 6u) {
            for (u32 l = lane; l < total; l += 32u)
                objective[l] = mechanism == 3u ? surplus[l]
                               : mechanism == 4u ? surplus[l] + (rho * revenue[l] + utility[l])
                                                 : welfare[l];
            __syncwarp();
            question = first_max(objective, total);
            paid = pivots(objective, continuation, total, n, question);
            __syncwarp();
        }
        const bool known = mechanism == 6u;
        const double w = known ? full : welfare[question];
        const double r = known ? runner : revenue[question] + paid - handed;
        const double s = known ? full - bonus - runner : surplus[question] - paid + handed;
        const double share = full > 0.0 ? w * scale : 1.0;
        if (lane < METRICS) row[mechanism * METRICS + lane] = lane == 0 ? w : lane == 1 ? r : lane == 2 ? s : share;
    }
}
