// expect: nothing
// launch: grid=2 block=32
// arg: x int32 64 arange
// arg: found int32 1 zeros
extern "C" __global__ void any_negative(const int* x, int* found) {
    if (x[blockIdx.x * blockDim.x + threadIdx.x] >= 0) {
        *found = 1;  // sprigs: allow(same-value): every writer stores 1
    }
}
