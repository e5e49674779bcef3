// expect: synccheck
// launch: grid=1 block=32
// arg: x int32 32 arange
// arg: y int32 32 zeros
extern "C" __global__ void broadcast(const int* x, int* y) {
    int v = x[threadIdx.x];
    if (threadIdx.x % 2 == 0) {
        v = __shfl_sync(0xffffffffu, v, 0);  // <- here
    }
    __syncthreads();  // <- other
    y[threadIdx.x] = v;
}
