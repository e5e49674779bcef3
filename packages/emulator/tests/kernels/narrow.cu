#include <cuda_bf16.h>
#include <cuda_fp16.h>

extern "C" __global__ void half_to_float(const __half* x, float* y) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = __half2float(x[i]);
}
extern "C" __global__ void bfloat16_to_float(const __nv_bfloat16* x, float* y) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = __bfloat162float(x[i]);
}
extern "C" __global__ void float_to_half(const float* x, __half* y) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = __float2half_rn(x[i]);
}
extern "C" __global__ void float_to_bfloat16(const float* x, __nv_bfloat16* y) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = __float2bfloat16(x[i]);
}

template <typename T>
__global__ void arithmetic(const T* a, const T* b, const T* c, T* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    out[i] = a[i] + b[i];
    out[n + i] = a[i] - b[i];
    out[2 * n + i] = a[i] * b[i];
    out[3 * n + i] = a[i] / b[i];
    out[4 * n + i] = __hfma(a[i], b[i], c[i]);
}

extern "C" __global__ void pairs(const __half2* a, const __half2* b, __half2* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = __hfma2(a[i], b[i], __hadd2(a[i], b[i]));
}
