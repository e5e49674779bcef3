// expect: nothing
// launch: grid=2 block=64
// arg: x float32 100 arange
// arg: y float32 100 zeros
// arg: n int 100
extern "C" __global__ void shift(const float* x, float* y, int n) {
    __shared__ float tile[64];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) tile[threadIdx.x] = x[i];
    __syncthreads();
    if (i < n) {
        y[i] = tile[threadIdx.x ^ 1];
    }
}
