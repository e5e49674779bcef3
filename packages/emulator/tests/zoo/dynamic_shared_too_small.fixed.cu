// expect: nothing
// launch: grid=1 block=64 shared=256
// arg: x float32 64 arange
// arg: y float32 64 zeros
extern "C" __global__ void reverse(const float* x, float* y) {
    extern __shared__ float tile[];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = tile[blockDim.x - 1 - threadIdx.x];
}
