"""The first thing a user runs: a broken kernel, the report it gives, and the mended kernel."""

from __future__ import annotations

import time

import click
import numpy as np

from .emulated import compile as compile_emulated
from .errors import CompilerNotFound, EmulatorError

BROKEN = r"""
extern "C" __global__ void reverse_blocks(const float* x, float* y, int n) {
    __shared__ float tile[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) tile[threadIdx.x] = x[i];
    int j = blockDim.x - 1 - threadIdx.x;
    y[i] = tile[j];
}
""".lstrip()

MENDED_ONCE = BROKEN.replace("x[i];\n", "x[i];\n    __syncthreads();\n")

MENDED = MENDED_ONCE.replace(
    "    int j = blockDim.x - 1 - threadIdx.x;\n    y[i] = tile[j];\n",
    "    int left = min((int)blockDim.x, n - (int)(blockIdx.x * blockDim.x));\n"
    "    if (i < n) y[i] = tile[left - 1 - threadIdx.x];\n",
)

SPEED = r"""
extern "C" __global__ void warp_sums(const float* x, float* y) {
    __shared__ float partial[8];
    float v = x[blockIdx.x * blockDim.x + threadIdx.x];
    for (int step = 16; step > 0; step /= 2) v += __shfl_down_sync(0xffffffffu, v, step);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 8) y[blockIdx.x * 8 + threadIdx.x] = partial[threadIdx.x];
}
""".lstrip()

N, BLOCK, SEEDS = 1000, 256, 50


@click.command()
@click.option(
    "--threads", default=1 << 20, show_default=True, help="Emulated threads in the timing, a multiple of 256."
)
def demo(threads: int) -> None:
    """Run a broken kernel, read the report, mend it, run it under 50 seeds; then the speed."""
    try:
        _show("A kernel that often works on a device", BROKEN)
    except CompilerNotFound as reason:
        raise click.ClickException(str(reason)) from None
    _show("With the barrier", MENDED_ONCE)
    _show("With the last block's length", MENDED)
    _speed(threads)


def _show(title: str, text: str) -> None:
    module = compile_emulated(text, filename="reverse.cu")
    click.secho(f"--- {title}", bold=True)
    for number, line in enumerate(text.splitlines(), 1):
        click.echo(f"{number:3d}  {line}")
    x, y = np.arange(N, dtype=np.float32), np.zeros(N, np.float32)
    grid = -(-N // BLOCK)
    try:
        module["reverse_blocks"](grid, BLOCK, (x, y, N), seed=range(SEEDS), written_fully=["y"])
    except EmulatorError as report:
        click.secho(f"\n{type(report).__name__}: {report}\n", fg="red")
        return
    expected = np.concatenate([x[start : start + BLOCK][::-1] for start in range(0, N, BLOCK)])
    assert np.array_equal(y, expected)
    click.secho(f"\nsilent under {SEEDS} seeds, and y is what NumPy says\n", fg="green")


def _speed(threads: int) -> None:
    click.secho(
        f"--- {threads} threads, five shuffles and one barrier each ({compile_emulated(SPEED).compiler})", bold=True
    )
    kernel = compile_emulated(SPEED)["warp_sums"]
    blocks = threads // 256
    x, y = np.ones(blocks * 256, np.float32), np.zeros(blocks * 8, np.float32)
    for checks in ("fast", "all"):
        kernel(1, 256, (x[:256], y[:8]), checks=checks)
        began = time.perf_counter()
        kernel(blocks, 256, (x, y), checks=checks)
        click.echo(f'checks="{checks}": {time.perf_counter() - began:.2f} s')
        assert (y == 32).all()
