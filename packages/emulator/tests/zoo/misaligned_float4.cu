// expect: memcheck x
// launch: grid=1 block=8
// arg: x float32 40 arange
// arg: y float32 32 zeros
extern "C" __global__ void load(const float* x, float* y) {
    int i = threadIdx.x;
    float4 v = *reinterpret_cast<const float4*>(x + 4 * i + 1);  // <- here
    reinterpret_cast<float4*>(y)[i] = v;
}
