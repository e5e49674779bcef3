"""How many threads a second: shuffles and barriers, atomics, memory, look-back; fast and with every check.

Three sizes of each give the exponent with which cost grows. Prints a table; `-o FILE` writes JSON.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import sprigs_emulator as emulator

TEXT = r"""
extern "C" __global__ void shuffles(const float* x, float* y) {
    __shared__ float partial[8];
    float v = x[blockIdx.x * blockDim.x + threadIdx.x];
    for (int step = 16; step > 0; step /= 2) v += __shfl_down_sync(0xffffffffu, v, step);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 8) y[blockIdx.x * 8 + threadIdx.x] = partial[threadIdx.x];
}

extern "C" __global__ void histogram(const unsigned char* x, unsigned* counts) {
    __shared__ unsigned local[256];
    local[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&local[x[blockIdx.x * blockDim.x + threadIdx.x]], 1u);
    __syncthreads();
    if (local[threadIdx.x]) atomicAdd(&counts[threadIdx.x], local[threadIdx.x]);
}

extern "C" __global__ void axpy(const float* x, float* y) {
    unsigned first = (blockIdx.x * blockDim.x + threadIdx.x) * 16;
    for (unsigned i = first; i < first + 16; ++i) y[i] += 2.0f * x[i];
}

extern "C" __global__ void look_back(const unsigned* x, unsigned* y, unsigned* ticket, unsigned long long* state) {
    __shared__ unsigned chunk, before;
    if (threadIdx.x == 0) chunk = atomicAdd(ticket, 1u);
    __syncthreads();
    unsigned i = chunk * blockDim.x + threadIdx.x, total = __syncthreads_count(x[i] & 1u);
    if (threadIdx.x == 0) {
        volatile unsigned long long* shown = state;
        unsigned sum = 0;
        shown[chunk] = 1ull << 32 | total;
        for (int k = (int)chunk - 1; k >= 0; --k) {
            unsigned long long word;
            do word = shown[k];
            while (word >> 32 == 0);
            sum += (unsigned)word;
            if (word >> 32 == 2) break;
        }
        shown[chunk] = 2ull << 32 | (sum + total);
        before = sum;
    }
    __syncthreads();
    y[i] = before;
}
"""

BLOCK = 256


def cases(threads: int) -> dict[str, tuple[tuple[Any, ...], dict[str, Any], Callable[[tuple[Any, ...]], bool]]]:
    """Each kernel's arguments, further launch arguments, and whether the result is right."""
    blocks = threads // BLOCK
    rng = np.random.default_rng(0)
    ones, odd = np.ones(threads, np.float32), rng.integers(0, 100, threads).astype(np.uint32)
    sums = np.cumsum((odd & 1).reshape(blocks, BLOCK).sum(axis=1))
    return {
        "shuffles": ((ones, np.zeros(blocks * 8, np.float32)), {}, lambda a: bool((a[1] == 32).all())),
        "histogram": (
            (rng.integers(0, 256, threads).astype(np.uint8), np.zeros(256, np.uint32)),
            {},
            lambda a: bool((a[1] == np.bincount(a[0], minlength=256)).all()),
        ),
        "axpy": (
            (np.ones(16 * threads, np.float32), np.ones(16 * threads, np.float32)),
            {},
            lambda a: bool((a[1] == 3).all()),
        ),
        "look_back": (
            (odd, np.zeros(threads, np.uint32), np.zeros(1, np.uint32), np.zeros(blocks, np.uint64)),
            {"interleave": 4},
            lambda a: bool((a[1][BLOCK::BLOCK] == sums[:-1]).all()),
        ),
    }


def measure(kernels: emulator.Emulated, name: str, threads: int, checks: Any, rounds: int) -> float:
    """Return the median time of a launch, the result verified each time."""
    times: list[float] = []
    for _ in range(rounds):
        args, launch, is_right = cases(threads)[name]
        began = time.perf_counter()
        kernels[name](threads // BLOCK, BLOCK, args, checks=checks, **launch)
        times.append(time.perf_counter() - began)
        assert is_right(args), name
    return sorted(times)[len(times) // 2]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, help="write JSON here")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1 << 20, help="of the largest size; the others are 1/4 and 1/16")
    options = parser.parse_args()
    kernels = emulator.compile(TEXT)
    sizes = [options.threads // 16, options.threads // 4, options.threads]
    rows: list[list[str]] = []
    for name in kernels.kernels:
        measure(kernels, name, BLOCK, "fast", 1)
        for checks in ("fast", "all"):
            times = [measure(kernels, name, size, checks, options.rounds) for size in sizes]
            exponent = np.polyfit(np.log(sizes), np.log(times), 1)[0]
            rate = sizes[-1] / times[-1] / 1e6
            rows.append([name, checks, *(f"{t:.3f}" for t in times), f"{rate:.2f}", f"{exponent:.2f}"])
            print(f"{name:10s} {checks:5s} " + " ".join(f"{t:8.3f} s" for t in times) + f"  {rate:6.2f} M threads/s")
        fast, full = (float(row[4]) for row in rows[-2:])
        print(f"{name:10s} checked / fast: {full / fast:.1f}")
    columns = ["kernel", "checks", *(f"{size} threads, s" for size in sizes), "M threads/s", "exponent"]
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        result = {
            "question": "How long does an emulated launch take?",
            "compiler": kernels.compiler,
            "machine": platform.machine(),
            "table": {"columns": columns, "rows": rows},
        }
        options.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
