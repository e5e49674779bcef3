extern "C" __global__ void __launch_bounds__(1024) block_reduce(const float* x, float* y, int n) {
    __shared__ float partial[32];
    float v = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) v += x[i];
    for (int step = 16; step > 0; step /= 2) v += __shfl_down_sync(0xffffffffu, v, step);
    int lane = threadIdx.x % warpSize, warp = threadIdx.x / warpSize;
    if (lane == 0) partial[warp] = v;
    __syncthreads();
    if (warp == 0) {
        v = lane < blockDim.x / warpSize ? partial[lane] : 0.0f;
        for (int step = 16; step > 0; step /= 2) v += __shfl_down_sync(0xffffffffu, v, step);
        if (lane == 0) y[blockIdx.x] = v;
    }
}

extern "C" __global__ void tree_reduce(const int* x, int* y, int n) {
    extern __shared__ int tree[];
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    tree[threadIdx.x] = i < n ? x[i] : 0;
    __syncthreads();
    for (unsigned step = blockDim.x / 2; step > 0; step >>= 1) {
        if (threadIdx.x < step) tree[threadIdx.x] += tree[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(y, tree[0]);
}
