// expect: initcheck y[0]
// launch: grid=1 block=1
// arg: x float32 32 arange
// arg: y float32 32 zeros
// arg: n int 32
// written_fully: y
extern "C" __global__ void accumulate(const float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) {
        float before = y[i];  // <- here
        y[i] = before + x[i];
    }
}
