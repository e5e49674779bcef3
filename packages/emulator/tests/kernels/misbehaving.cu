// Kernels that need or do something unusual, one a launch.
__device__ int depth(volatile int* x, int n) {
    volatile int pad[64];
    pad[n % 64] = n;
    if (n == 0) return 0;
    int rest = depth(x, n - 1);  // deep
    return rest + pad[n % 64];
}
extern "C" __global__ void deep(int* out, int n) { out[threadIdx.x] = depth(out, n); }

extern "C" __global__ void forever(int* x) {
    for (unsigned i = 1; i != 0; i = i * 3 | 1) *x = (int)i;  // forever
}
extern "C" __global__ void spin_on_plain(int* x) {
    while (*x == 0) x[1] += 1 & x[2];  // plain spin
}
extern "C" __global__ void poll(volatile int* x, int i) {
    while (x[i] == 0) {  // poll
    }
}
extern "C" __global__ void lock_twice(int* x) {
    while (atomicCAS(x, 0, 1) != 0) {
    }
    while (atomicCAS(x, 0, 1) != 0) {  // second lock
    }
}
extern "C" __global__ void long_wait(int* x, int rounds) {
    for (int i = 0; i < rounds; ++i) __syncthreads();
    x[threadIdx.x] = rounds;
}
extern "C" __global__ void divide(const int* x, int* y) {
    y[threadIdx.x] = 100 / x[threadIdx.x];  // division
}
extern "C" __global__ void shift(const int* x, int* y) {
    y[threadIdx.x] = 1 << x[threadIdx.x];  // shift
}
extern "C" __global__ void index(int* y, int i) {
    int local[8] = {1, 2, 3};
    y[threadIdx.x] = local[i + threadIdx.x];  // index
}
extern "C" __global__ void claims(const int* x) {
    assert(x[threadIdx.x] < 3);  // claim
    if (x[threadIdx.x] < 0) __trap();
}
extern "C" __global__ void talk(const int* x) {
    printf("x[%d] = %d, %5.2f %s\n", threadIdx.x, x[threadIdx.x], 0.5, "ok");
}
extern "C" __global__ void null(int* x) {
    if (threadIdx.x == 3) *x = 1;  // null
}
extern "C" __global__ void far(int* x, long long i) {
    x[i] = 1;  // far
}
extern "C" __global__ void ticks(long long* t) {
    long long a = clock64(), b = clock64();
    *t = b - a;
}
