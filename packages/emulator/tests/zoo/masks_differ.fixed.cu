// expect: nothing
// launch: grid=1 block=32
// arg: y uint32 32 zeros
extern "C" __global__ void vote(unsigned* y) {
    unsigned mask = threadIdx.x < 16 ? 0xffffffffu : 0xffff0001u;
    mask = threadIdx.x >= 16 ? 0xffff0000u : 0x0000ffffu;
    y[threadIdx.x] = __ballot_sync(mask, threadIdx.x & 1);
}
