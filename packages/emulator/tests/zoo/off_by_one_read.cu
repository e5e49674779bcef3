// expect: memcheck x[100] read
// launch: grid=4 block=32
// arg: x float32 100 arange
// arg: y float32 100 zeros
// arg: n int 100
extern "C" __global__ void difference(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = x[i + 1] - x[i];  // <- here
    }
}
