extern "C" __global__ void histogram(const unsigned char* x, unsigned* counts, int n) {
    __shared__ unsigned local[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) atomicAdd(&local[x[i]], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) {
        if (local[i]) atomicAdd(&counts[i], local[i]);
    }
}

// Keeps the order within a warp; each warp takes its place by one atomic.
extern "C" __global__ void compact(const int* x, int* y, unsigned* count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool keep = i < n && x[i] > 0;
    unsigned mask = __ballot_sync(0xffffffffu, keep), lane = threadIdx.x & 31u, start = 0;
    if (lane == 0 && mask) start = atomicAdd(count, (unsigned)__popc(mask));
    start = __shfl_sync(0xffffffffu, start, 0);
    if (keep) y[start + __popc(mask & ((1u << lane) - 1))] = x[i];
}

// Warp-aggregated: the lanes that happen to be together elect a leader.
extern "C" __global__ void count_even(const int* x, unsigned* count, unsigned* order, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || x[i] % 2 != 0) return;
    unsigned together = __activemask(), lane = threadIdx.x & 31u;
    int leader = __ffs((int)together) - 1;
    unsigned start = 0;
    if (lane == leader) start = atomicAdd(count, (unsigned)__popc(together));
    start = __shfl_sync(together, start, leader);
    order[start + __popc(together & ((1u << lane) - 1))] = (unsigned)i;
}

extern "C" __global__ void copy_vectors(const uint4* x, uint4* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
