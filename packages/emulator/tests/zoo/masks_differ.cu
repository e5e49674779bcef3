// expect: synccheck
// launch: grid=1 block=32
// arg: y uint32 32 zeros
extern "C" __global__ void vote(unsigned* y) {
    unsigned mask = threadIdx.x < 16 ? 0xffffffffu : 0xffff0001u;
    if (threadIdx.x >= 16) mask = 0xffff0001u;
    y[threadIdx.x] = __ballot_sync(mask, threadIdx.x & 1);  // <- here
}
