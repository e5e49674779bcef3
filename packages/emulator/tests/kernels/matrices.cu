#define TILE 16

extern "C" __global__ void matmul(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float left[TILE][TILE], right[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int start = 0; start < k; start += TILE) {
        left[threadIdx.y][threadIdx.x] = row < m && start + threadIdx.x < k ? a[row * k + start + threadIdx.x] : 0.0f;
        right[threadIdx.y][threadIdx.x] =
            column < n && start + threadIdx.y < k ? b[(start + threadIdx.y) * n + column] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE; ++i) sum += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }
    if (row < m && column < n) c[row * n + column] = sum;
}

template <typename T>
__global__ void transpose(const T* __restrict__ x, T* __restrict__ y, int rows, int columns) {
    __shared__ T tile[TILE][TILE + 1];
    int i = blockIdx.y * TILE + threadIdx.y, j = blockIdx.x * TILE + threadIdx.x;
    if (i < rows && j < columns) tile[threadIdx.y][threadIdx.x] = x[i * columns + j];
    __syncthreads();
    i = blockIdx.y * TILE + threadIdx.x, j = blockIdx.x * TILE + threadIdx.y;
    if (i < rows && j < columns) y[j * rows + i] = tile[threadIdx.x][threadIdx.y];
}

// A 7-point stencil over a 3-D grid of 3-D blocks.
extern "C" __global__ void laplacian(const double* x, double* y, int nx, int ny, int nz) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y,
        k = blockIdx.z * blockDim.z + threadIdx.z;
    if (i >= nx || j >= ny || k >= nz) return;
    auto at = [&](int a, int b, int c) { return x[((c + nz) % nz * ny + (b + ny) % ny) * nx + (a + nx) % nx]; };
    y[(k * ny + j) * nx + i] = at(i - 1, j, k) + at(i + 1, j, k) + at(i, j - 1, k) + at(i, j + 1, k) +
                               at(i, j, k - 1) + at(i, j, k + 1) - 6.0 * at(i, j, k);
}
