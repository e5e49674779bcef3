"""Timings of the kernels on a GPU: auctions and slates a second. Run by `tools/gpu_check.py`, or alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from sprigs_sponsored import SimulationConfig, SlateInstance, kernels, simulate, solve_slate


def _seconds(run: Any, rounds: int = 5) -> float:
    import cupy

    run()
    times = []
    for _ in range(rounds):
        start, stop = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        run()
        stop.record()
        stop.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, stop) / 1e3)
    return float(np.median(times))


def check() -> Iterator[dict[str, Any]]:
    """Yield a row for each measurement; results are compared with the CPU's first."""
    device, config, n = kernels.gpu(), SimulationConfig(), 1 << 20
    found = simulate(config, 1 << 16, 1, backend="cupy", keep=False).mean
    expected = simulate(config, 1 << 16, 1, backend="numpy", keep=False).mean
    right = bool(np.allclose(found, expected, atol=1e-9))
    rate = n / _seconds(lambda: kernels.outcomes(device, config, 0, n, 1))
    yield {"name": "auctions, results copied back", "ok": right, "figure": f"{rate / 1e6:.1f} M/s"}
    rng = np.random.default_rng(0)
    small = SlateInstance(np.full(6, 1 / 6), rng.normal(size=(30, 6)), rng.lognormal(size=(16, 6)), 4)
    right = abs(solve_slate(small, "cuda").welfare - solve_slate(small, "enumerate").welfare) < 1e-9
    large = SlateInstance(np.full(6, 1 / 6), rng.normal(size=(200, 6)), rng.lognormal(size=(16, 6)), 4)
    seconds = _seconds(lambda: kernels.enumerate_slates(device, large, 4))
    yield {"name": "4 of 200 prompts, 6.5e7 slates", "ok": right, "figure": f"{1e3 * seconds:.0f} ms"}


if __name__ == "__main__":
    for row in check():
        print(json.dumps(row))
