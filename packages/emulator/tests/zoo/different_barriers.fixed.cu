// expect: nothing
// launch: grid=1 block=64
// arg: y int32 64 zeros
extern "C" __global__ void split(int* y) {
    if (threadIdx.x < 32) {
        y[threadIdx.x] = 1;
    } else {
        y[threadIdx.x] = 2;
    }
    __syncthreads();
}
