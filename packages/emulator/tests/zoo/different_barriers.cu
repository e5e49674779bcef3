// expect: synccheck
// launch: grid=1 block=64
// arg: y int32 64 zeros
extern "C" __global__ void split(int* y) {
    if (threadIdx.x < 32) {
        y[threadIdx.x] = 1;
        __syncthreads();  // <- here or other
    } else {
        y[threadIdx.x] = 2;
        __syncthreads();  // <- here or other
    }
}
