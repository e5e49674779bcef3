// Runs a straight-line program: in each phase a thread reads or writes one cell, or does nothing; then all meet, or the
// warps do, or nobody does.
extern "C" __global__ void run(const int* operations, const int* meetings, int phases, int* sink) {
    __shared__ int cells[4];
    if (threadIdx.x < 4) cells[threadIdx.x] = 0;
    __syncthreads();
    int seen = 0;
    for (int p = 0; p < phases; ++p) {
        int operation = operations[p * blockDim.x + threadIdx.x];
        if (operation >= 0) {
            if (operation & 1) {
                cells[operation >> 1] = 1;
            } else {
                seen += cells[operation >> 1];
            }
        }
        if (meetings[p] == 1) __syncthreads();
        if (meetings[p] == 2) __syncwarp();
    }
    sink[threadIdx.x] = seen;
}
