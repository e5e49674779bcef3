// expect: nothing
// launch: grid=1 block=32
// arg: x float32 32 arange
// arg: y float32 1 zeros
extern "C" __global__ void sum_half(const float* x, float* y) {
    float v = x[threadIdx.x];
    if (threadIdx.x < 16) {
        for (int step = 8; step > 0; step /= 2) {
            v += __shfl_down_sync(0x0000ffffu, v, step, 16);
        }
        if (threadIdx.x == 0) *y = v;
    }
}
