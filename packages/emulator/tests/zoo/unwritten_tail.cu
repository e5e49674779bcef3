// expect: initcheck y[96]
// launch: grid=4 block=32
// arg: x float32 100 arange
// arg: y float32 100 zeros
// arg: n int 100
// written_fully: y
extern "C" __global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (blockIdx.x < n / blockDim.x) {
        y[i] = 2.0f * x[i];
    }
}
