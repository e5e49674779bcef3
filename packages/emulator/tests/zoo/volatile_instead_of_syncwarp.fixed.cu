// expect: nothing
// launch: grid=1 block=32
// arg: x int32 32 arange
// arg: y int32 1 zeros
extern "C" __global__ void tree(const int* x, int* y) {
    __shared__ volatile int partial[64];
    int lane = threadIdx.x;
    partial[lane] = x[lane];
    partial[lane + 32] = 0;
    __syncwarp();
    for (int step = 16; step > 0; step /= 2) {
        int sum = partial[lane] + partial[lane + step];
        __syncwarp();
        partial[lane] = sum;
        __syncwarp();
    }
    if (lane == 0) *y = partial[0];
}
