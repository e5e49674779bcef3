extern "C" __global__ void bits(const unsigned* a, const unsigned* b, const unsigned* c, unsigned* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    unsigned x = a[i], y = b[i], z = c[i];
    unsigned* o = out + 16 * i;
    o[0] = __byte_perm(x, y, z);
    o[1] = __popc(x);
    o[2] = __ffs((int)x);
    o[3] = __clz((int)x);
    o[4] = __brev(x);
    o[5] = __funnelshift_l(x, y, z);
    o[6] = __funnelshift_r(x, y, z);
    o[7] = __funnelshift_lc(x, y, z);
    o[8] = __funnelshift_rc(x, y, z);
    o[9] = __umulhi(x, y);
    o[10] = (unsigned)__mulhi((int)x, (int)y);
    o[11] = __umul24(x, y);
    o[12] = __dp4a(x, y, z);
    o[13] = __vadd4(x, y);
    o[14] = __vcmpgtu4(x, y);
    o[15] = __float_as_uint(__uint_as_float(x));
}

extern "C" __global__ void conversions(const float* x, int* i32, unsigned* u32, long long* i64, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    i32[4 * i] = __float2int_rn(x[i]);
    i32[4 * i + 1] = __float2int_rz(x[i]);
    i32[4 * i + 2] = __float2int_rd(x[i]);
    i32[4 * i + 3] = __float2int_ru(x[i]);
    u32[i] = __float2uint_rn(x[i]);
    i64[i] = __float2ll_rn(x[i]);
}

extern "C" __global__ void shuffles(const int* x, int* out, int parameter, int width) {
    int lane = threadIdx.x, v = x[lane];
    out[lane] = __shfl_sync(0xffffffffu, v, parameter, width);
    out[32 + lane] = __shfl_up_sync(0xffffffffu, v, parameter, width);
    out[64 + lane] = __shfl_down_sync(0xffffffffu, v, parameter, width);
    out[96 + lane] = __shfl_xor_sync(0xffffffffu, v, parameter, width);
    out[128 + lane] = (int)(__shfl_sync(0xffffffffu, (long long)v << 32 | lane, parameter, width) >> 32);
}

extern "C" __global__ void votes(const int* x, unsigned* out) {
    int lane = threadIdx.x, v = x[lane], all;
    unsigned mask = lane % 3 ? 0xb6db6db6u : 0x49249249u;
    out[lane] = __ballot_sync(mask, v > 0);
    out[32 + lane] = __any_sync(mask, v > 2);
    out[64 + lane] = __all_sync(mask, v > -2);
    out[96 + lane] = __match_any_sync(mask, v);
    out[128 + lane] = __match_all_sync(mask, v / 100, &all);
    out[160 + lane] = (unsigned)all;
    out[192 + lane] = (unsigned)__reduce_add_sync(mask, v);
    out[224 + lane] = (unsigned)__reduce_min_sync(mask, v);
    out[256 + lane] = (unsigned)__reduce_max_sync(mask, v);
    out[288 + lane] = __reduce_and_sync(mask, (unsigned)v);
    out[320 + lane] = __reduce_or_sync(mask, (unsigned)v);
    out[352 + lane] = __reduce_xor_sync(mask, (unsigned)v);
    out[384 + lane] = __reduce_max_sync(mask, (unsigned)v);
}

extern "C" __global__ void barriers(const int* x, int* out) {
    int i = threadIdx.x;
    out[i] = __syncthreads_count(x[i] > 0);
    out[blockDim.x + i] = __syncthreads_and(x[i] > 0);
    out[2 * blockDim.x + i] = __syncthreads_or(x[i] > 0);
}

extern "C" __global__ void atomics(int* i32, unsigned* u32, unsigned long long* u64, float* f32, double* f64) {
    int i = threadIdx.x;
    atomicAdd(&i32[0], i);
    atomicSub(&i32[1], i);
    atomicMin(&i32[2], -i);
    atomicMax_block(&i32[3], i);
    atomicAnd(&u32[0], ~(1u << (i % 32)));
    atomicOr_system(&u32[1], 1u << (i % 32));
    atomicXor(&u32[2], 1u << (i % 32));
    atomicInc(&u32[3], 9u);
    atomicDec(&u32[4], 9u);
    atomicAdd(&u64[0], 1ull << 33);
    atomicMax(&u64[1], (unsigned long long)i);
    atomicAdd(&f32[0], 0.5f);
    atomicAdd_block(&f64[0], 0.25);
    unsigned old = u64[2] ? 0 : atomicExch(&u32[5], (unsigned)i + 1);
    atomicAdd(&u64[3], (unsigned long long)old);
    unsigned long long assumed, seen = atomicAdd(&u64[4], 0ull);
    do {
        assumed = seen;
        seen = atomicCAS(&u64[4], assumed, assumed * 3 + 1);
    } while (seen != assumed);
}
