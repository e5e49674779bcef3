// expect: nothing
// launch: grid=1 block=32
// arg: x int32 32 arange
// arg: y int32 32 zeros
extern "C" __global__ void broadcast(const int* x, int* y) {
    int v = x[threadIdx.x];
    if (threadIdx.x % 2 == 0) {
        v = __shfl_sync(0x55555555u, v, 0);
    }
    __syncthreads();
    y[threadIdx.x] = v;
}
