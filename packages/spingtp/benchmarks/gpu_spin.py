"""Timings of the kernels on a GPU, beside torch's unfused product. Run by `tools/gpu_check.py`, or alone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import torch

from sprigs_spingtp.functional import _RUN
from sprigs_spingtp.programs import G, X, program


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


def check() -> Iterator[dict[str, Any]]:
    """Yield a row for each measurement; results are compared with the dense product's first."""
    for lmax, dtype, rows in (
        (2, torch.float32, 1 << 20),
        (3, torch.float32, 1 << 20),
        (4, torch.float32, 1 << 19),
        (6, torch.float32, 1 << 18),
        (3, torch.float64, 1 << 18),
        (4, torch.float64, 1 << 18),
    ):
        degrees = tuple(range(lmax + 1))
        form = program(degrees, degrees, degrees)
        x, y = (torch.randn(rows, form.sizes[X], device="cuda", dtype=dtype) for _ in range(2))
        g = torch.randn(2, rows, form.sizes[G], device="cuda", dtype=dtype)
        for name, slot, pair in (("product", G, (x, y)), ("adjoint", X, (y, g))):
            few = [t[..., :4096, :].contiguous() for t in pair]
            found, expected = (_RUN[backend](form, slot, *few) for backend in ("cuda", "dense"))
            right = bool(torch.allclose(found, expected, atol=1e-3 if dtype == torch.float32 else 1e-10))
            ours = _seconds(lambda pair=pair, slot=slot, form=form: _RUN["cuda"](form, slot, *pair))
            dense = _seconds(lambda pair=pair, slot=slot, form=form: _RUN["dense"](form, slot, *pair))
            moved = rows * (4 * form.sizes[X]) * x.element_size()
            work = 2 * rows * form.cost()["separable"]
            figures = (
                f"{rows / ours / 1e6:.0f} M rows/s",
                f"{moved / ours / 1e9:.0f} GB/s",
                f"{work / ours / 1e12:.1f} TFLOP/s",
                f"{dense / ours:.1f}x torch unfused",
            )
            label = f"{name}, L = {lmax}, {str(dtype).removeprefix('torch.')}"
            yield {"name": label, "ok": right, "figure": ", ".join(figures)}


if __name__ == "__main__":
    for row in check():
        print(json.dumps(row))
