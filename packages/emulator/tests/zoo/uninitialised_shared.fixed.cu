// expect: nothing
// launch: grid=2 block=64
// arg: x uint8 128 arange
// arg: counts uint32 16 zeros
extern "C" __global__ void count(const unsigned char* x, unsigned* counts) {
    __shared__ unsigned histogram[16];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x < 16) histogram[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&histogram[x[i] & 15], 1u);
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&counts[threadIdx.x], histogram[threadIdx.x]);
}
