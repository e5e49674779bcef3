// expect: memcheck y[100] write
// launch: grid=4 block=32
// arg: x float32 100 arange
// arg: y float32 100 zeros
// arg: n int 100
extern "C" __global__ void copy(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) {
        float v = i < n ? x[i] : 0.0f;
        y[i] = 2.0f * v;  // <- here
    }
}
