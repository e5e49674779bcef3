// Inclusive scan. `scan_block` within one block (Hillis and Steele, two buffers in dynamic shared memory);
// `scan_look_back` over the whole array with decoupled look-back (Merrill and Garland 2016): flag and value travel in
// one 64-bit word, the predecessor window is read by a whole warp.
extern __shared__ __align__(16) unsigned char memory[];

extern "C" __global__ void scan_block(const int* x, int* y, int n) {
    int* from = reinterpret_cast<int*>(memory);
    int* to = from + blockDim.x;
    int i = threadIdx.x;
    from[i] = i < n ? x[i] : 0;
    __syncthreads();
    for (int step = 1; step < blockDim.x; step *= 2) {
        to[i] = from[i] + (i >= step ? from[i - step] : 0);
        __syncthreads();
        int* swap = from;
        from = to;
        to = swap;
    }
    if (i < n) y[i] = from[i];
}

typedef unsigned long long u64;
enum { EMPTY = 0, AGGREGATE = 1, PREFIX = 2 };

__device__ __forceinline__ u64 pack(unsigned status, unsigned value) { return (u64)status << 32 | value; }

extern "C" __global__ void scan_look_back(const unsigned* x, unsigned* y, int n, unsigned* ticket, u64* state) {
    __shared__ unsigned chunk, before, warps[32];
    if (threadIdx.x == 0) chunk = atomicAdd(ticket, 1u);
    __syncthreads();
    unsigned lane = threadIdx.x & 31u, warp = threadIdx.x >> 5;
    int i = (int)(chunk * blockDim.x + threadIdx.x);
    unsigned v = i < n ? x[i] : 0;
    for (unsigned step = 1; step < 32; step *= 2) {
        unsigned other = __shfl_up_sync(0xffffffffu, v, step);
        if (lane >= step) v += other;
    }
    if (lane == 31) warps[warp] = v;
    __syncthreads();
    if (warp == 0) {
        unsigned total = lane < blockDim.x / 32 ? warps[lane] : 0;
        for (unsigned step = 1; step < 32; step *= 2) {
            unsigned other = __shfl_up_sync(0xffffffffu, total, step);
            if (lane >= step) total += other;
        }
        if (lane < blockDim.x / 32) warps[lane] = total;
        unsigned aggregate = __shfl_sync(0xffffffffu, total, 31);
        volatile u64* shown = state;
        unsigned sum = 0;
        if (chunk == 0) {
            if (lane == 0) shown[0] = pack(PREFIX, aggregate);
        } else {
            if (lane == 0) shown[chunk] = pack(AGGREGATE, aggregate);
            int window = (int)chunk - 1;
            while (true) {
                int at = window - (int)lane;
                u64 word;
                do {
                    word = at >= 0 ? shown[at] : pack(PREFIX, 0);
                } while (__any_sync(0xffffffffu, (unsigned)(word >> 32) == EMPTY));
                unsigned prefixes = __ballot_sync(0xffffffffu, (unsigned)(word >> 32) == PREFIX);
                unsigned first = prefixes ? (unsigned)__ffs((int)prefixes) - 1 : 31u;
                sum += __reduce_add_sync(0xffffffffu, lane <= first ? (unsigned)word : 0u);
                if (prefixes) break;
                window -= 32;
            }
            if (lane == 0) shown[chunk] = pack(PREFIX, sum + aggregate);
        }
        if (lane == 0) before = sum;
    }
    __syncthreads();
    if (i < n) y[i] = v + before + (warp > 0 ? warps[warp - 1] : 0);
}
