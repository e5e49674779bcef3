// expect: nothing
// launch: grid=8 block=32
// arg: x int32 256 ones
// arg: partial int32 8 zeros
// arg: finished uint32 1 zeros
// arg: sum int32 1 zeros
extern "C" __global__ void total(const int* x, int* partial, unsigned* finished, int* sum) {
    __shared__ bool last;
    int v = __reduce_add_sync(0xffffffffu, x[blockIdx.x * 32 + threadIdx.x]);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = v;
        __threadfence();
        last = atomicAdd(finished, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (last) {
        int mine = threadIdx.x < gridDim.x ? partial[threadIdx.x] : 0;
        mine = __reduce_add_sync(0xffffffffu, mine);
        if (threadIdx.x == 0) *sum = mine;
    }
}
