// expect: nothing
// launch: grid=1 block=32
// arg: x uint8 64 arange
// arg: y uint8 32 zeros
// arg: stride int 100000000
extern "C" __global__ void gather(const unsigned char* x, unsigned char* y, int stride) {
    int row = threadIdx.x;
    long long start = (long long)row * stride;
    y[row] = x[start % 64 & 63];
}
