// expect: nothing
// launch: grid=6 block=32 interleave=2
// arg: flags uint32 6 zeros
// arg: y uint32 6 zeros
// arg: ticket uint32 1 zeros
extern "C" __global__ void chain(volatile unsigned* flags, unsigned* y, unsigned* ticket) {
    __shared__ unsigned number;
    if (threadIdx.x == 0) number = atomicAdd(ticket, 1u);
    __syncthreads();
    if (threadIdx.x == 0) {
        if (number > 0) {
            while (flags[number - 1] == 0) {
            }
        }
        y[number] = number;
        __threadfence();
        flags[number] = 1;
    }
}
