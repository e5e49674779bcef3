// expect: nothing
// launch: grid=1 block=64
// arg: counter uint32 1 zeros
// arg: y uint32 64 zeros
extern "C" __global__ void ticket(unsigned* counter, unsigned* y) {
    atomicAdd(counter, 1u);
    unsigned seen = atomicAdd(counter, 0u);
    y[threadIdx.x] = seen > 0;
}
