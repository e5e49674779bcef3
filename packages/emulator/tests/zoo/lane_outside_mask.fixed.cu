// expect: nothing
// launch: grid=1 block=32
// arg: y uint32 32 zeros
extern "C" __global__ void vote(unsigned* y) {
    y[threadIdx.x] = __ballot_sync(0xffffffffu, threadIdx.x & 1);
}
