// Protocols between threads, each correct with ORDERED and a race without.
#ifndef FENCE
#define FENCE
#endif

__device__ unsigned arrivals;
__constant__ int weights[4] = {1, 2, 3, 4};

struct Pair {
    float a, b, c, d, e;
};

// Every thread fences its own write, a barrier, then one of them raises the flag.
extern "C" __global__ void fence_then_barrier(int* data, volatile int* flag, int* out) {
    if (blockIdx.x == 0) {
        data[threadIdx.x] = threadIdx.x;
        FENCE;
        __syncthreads();
        if (threadIdx.x == 0) *flag = 1;
    } else {
        if (threadIdx.x == 0) {
            while (*flag == 0) {
            }
        }
        __syncthreads();
        out[threadIdx.x] = data[63 - threadIdx.x];
    }
}

// A barrier, then one thread fences for all and raises the flag by an atomic; a third block hears of it by the second.
extern "C" __global__ void chain(int* data, unsigned* flags, int* out) {
    if (blockIdx.x == 0) {
        data[threadIdx.x] = threadIdx.x;
        __syncthreads();
        if (threadIdx.x == 0) {
            FENCE;
            atomicExch(&flags[0], 1u);
        }
    } else if (blockIdx.x == 1) {
        if (threadIdx.x == 0) {
            while (atomicAdd(&flags[0], 0u) == 0) {
            }
            __threadfence();
            atomicExch(&flags[1], 1u);
        }
    } else {
        if (threadIdx.x == 0) {
            while (atomicCAS(&flags[1], 2u, 2u) == 0) {
            }
        }
        __syncthreads();
        out[threadIdx.x] = data[63 - threadIdx.x];
    }
}

// Two warps of a block, a flag in shared memory.
extern "C" __global__ void between_warps(int* out) {
    __shared__ int value;
    __shared__ volatile int flag;
    if (threadIdx.x == 0) flag = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
        value = 42;
        FENCE;
        flag = 1;
    }
    if (threadIdx.x == 32) {
        while (flag == 0) {
        }
        *out = value;
    }
}

extern "C" __global__ void builtin_atomics(int* data, unsigned* flag, int* out) {
    if (blockIdx.x == 0) {
        *data = 7;
        __atomic_store_n(flag, 1u, STORE);
    } else {
        while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) == 0) {
        }
        *out = *data;
    }
}

extern "C" __global__ void bytes(unsigned char* x) { x[threadIdx.x] = threadIdx.x; }

extern "C" __global__ void write_after_reads(const int* start, int* x, int* out) {
    __shared__ int value;
    if (threadIdx.x == 0) value = start[0];
    __syncthreads();
    out[threadIdx.x] = value;
    SYNC;
    if (threadIdx.x == 40) value = 2;
    __syncthreads();
    if (threadIdx.x == 0) x[0] = value;
}

extern "C" __global__ void global_counter(unsigned* out) {
    atomicAdd(&arrivals, 1u);
    __syncthreads();
    out[blockIdx.x * blockDim.x + threadIdx.x] = arrivals * weights[threadIdx.x % 4];
}

extern "C" __global__ void structs(const Pair* x, Pair* y) {
    Pair copy = x[threadIdx.x];
    SYNC;
    y[threadIdx.x + SHIFT] = copy;
}

extern "C" __global__ void copies(const unsigned char* x, unsigned char* y) {
    memset(y + 64 * threadIdx.x, 255, 64);
    memcpy(y + 64 * threadIdx.x, x + 64 * threadIdx.x, 64 + SHIFT);
}

extern "C" __global__ void same_value(int* flag) {
    *flag = VALUE;  // sprigs: allow(same-value): all write one value
}
