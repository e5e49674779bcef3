// expect: nothing
// launch: grid=1 block=32
// arg: x int32 32 arange
// arg: y int32 32 zeros
extern "C" __global__ void exchange(const int* x, int* y) {
    __shared__ int slot[32];
    int lane = threadIdx.x;
    if (lane < 16) {
        slot[lane] = 2 * x[lane];
    } else {
        slot[lane] = 3 * x[lane];
    }
    __syncwarp();
    y[lane] = slot[31 - lane];
}
