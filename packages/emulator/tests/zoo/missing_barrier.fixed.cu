// expect: nothing
// launch: grid=1 block=8
// arg: x float32 8 arange
// arg: y float32 8 zeros
extern "C" __global__ void reverse(const float* x, float* y) {
    __shared__ float tile[8];
    int i = threadIdx.x;
    tile[i] = x[i];
    __syncthreads();
    y[i] = tile[7 - i];
}
