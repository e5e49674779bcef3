"""Timings of the kernels on a GPU, beside torch's evaluation. Run by `tools/gpu_check.py`, or alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from sprigs_splineflow import BrownianBridge, BSplinePath, kernels


def _seconds(run: Any, rounds: int = 7) -> float:
    run()
    times = []
    for _ in range(rounds):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) / 1e3)
    return sorted(times)[len(times) // 2]


class _Kept(kernels.Gpu):
    """Keeps what was brought to the device, so that timings are of kernels and not of transfers."""

    def __init__(self) -> None:
        super().__init__()
        self.launched: list[Any] = []

    def launch(self, module: Any, name: str, grid: int, block: int, args: tuple[Any, ...]) -> None:
        self.launched.append((module, name, grid, block, args))
        super().launch(module, name, grid, block, args)

    def again(self) -> None:
        super().launch(*self.launched[-1])


def check() -> Iterator[dict[str, Any]]:
    """Yield a row for each measurement; results are compared with torch's evaluation or the CPU's fit first."""
    rng = np.random.default_rng(0)
    for dims, batch in ((3, 10_000_000), (16, 2_000_000), (64, 500_000)):
        times = np.sort(rng.uniform(0, 10, 200))
        path = BSplinePath.fit(times, rng.normal(size=(1000, 200, dims)), schedule=BrownianBridge(0.3))
        device = _Kept()
        index, t = rng.integers(0, 1000, batch), rng.uniform(times[0], times[-1], batch)
        drawn = kernels.PathSampler(path, device).sample(index, t, seed=1)
        want = path.evaluate(index[:10_000], t[:10_000])
        right = bool(torch.allclose(drawn.mu[:10_000].cpu(), want, atol=1e-2))
        ours = _seconds(device.again)
        # The path moves to the device last: its evaluation there is the peer.
        path.to("cuda")
        few = min(batch, 1_000_000)
        peer = _seconds(lambda path=path, few=few: path.sample(few)) / few * batch
        moved = batch * (4 * 4 * dims + 8 + 4 * 4 * dims + 4)
        figure = f"{batch / ours / 1e6:.0f} M samples/s, {moved / ours / 1e9:.0f} GB/s, {peer / ours:.1f}x torch"
        yield {"name": f"path_sample, {dims} dimensions", "ok": right, "figure": figure}
    records, n = 200_000, 200
    times = np.sort(rng.uniform(0, 10, (records, n)), axis=1)
    values, counts = rng.normal(size=(records, n)), rng.integers(50, n + 1, records)
    device = _Kept()
    _, coef = kernels.solve(device, times, counts, values, 3)
    mask = (np.arange(n) < counts[:16, None])[:, :, None]
    want = BSplinePath.fit(times[:16], values[:16, :, None], mask).control_points
    right = all(
        np.allclose(coef[:c, s].cpu(), want[s, :c, 0], atol=1e-5 * np.abs(want[s]).max())
        for s, c in enumerate(counts[:16])
    )
    ours = _seconds(device.again)
    yield {"name": "banded_solve, 200 observations", "ok": right, "figure": f"{records / ours / 1e6:.1f} M records/s"}


if __name__ == "__main__":
    for row in check():
        print(json.dumps(row))
