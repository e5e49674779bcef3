// expect: nothing
// launch: grid=8 block=32 interleave=4
// arg: x uint32 256 ones
// arg: y uint32 256 zeros
// arg: ticket uint32 1 zeros
// arg: aggregate uint32 8 zeros
// arg: status uint32 8 zeros
// Decoupled look-back over one value a block; the block's number is a ticket, so that its predecessors have started.
extern "C" __global__ void scan(const unsigned* x, unsigned* y, unsigned* ticket, unsigned* aggregate,
                                volatile unsigned* status) {
    __shared__ unsigned chunk, before;
    if (threadIdx.x == 0) chunk = atomicAdd(ticket, 1u);
    __syncthreads();
    unsigned i = chunk * blockDim.x + threadIdx.x, v = x[i], inclusive = v;
    for (int step = 1; step < 32; step *= 2) {
        unsigned other = __shfl_up_sync(0xffffffffu, inclusive, step);
        if (threadIdx.x >= step) inclusive += other;
    }
    if (threadIdx.x == 31) {
        aggregate[chunk] = inclusive;
        __threadfence();
        status[chunk] = 1;
        unsigned sum = 0;
        for (int k = (int)chunk - 1; k >= 0; --k) {
            while (status[k] == 0) {
            }
            sum += aggregate[k];
        }
        before = sum;
    }
    __syncthreads();
    y[i] = before + inclusive;
}
