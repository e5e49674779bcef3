// expect: nothing
// launch: grid=1 block=64
// arg: x float32 64 arange
// arg: y float32 64 zeros
extern "C" __global__ void neighbour(const float* x, float* y) {
    __shared__ float tile[64], other[64];
    tile[threadIdx.x] = other[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    const float* right = tile + (threadIdx.x + 1) % 64;
    y[threadIdx.x] = *right + other[threadIdx.x];
}
