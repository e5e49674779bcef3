// expect: racecheck sum[0]
// launch: grid=4 block=32
// arg: x int32 128 ones
// arg: sum int32 1 zeros
extern "C" __global__ void total(const int* x, int* sum) {
    int v = __reduce_add_sync(0xffffffffu, x[blockIdx.x * 32 + threadIdx.x]);
    if (threadIdx.x == 0) *sum += v;  // <- here
}
