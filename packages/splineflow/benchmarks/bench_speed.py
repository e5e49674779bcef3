"""Paths and training beside what people use today, on one thread of the CPU; results are checked equal first.

python benchmarks/bench_speed.py [-o benchmarks/results/speed.json]
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.interpolate import make_interp_spline

from sprigs.bench import compare, scaling
from sprigs_splineflow import BSplinePath, ConstantSigma, DegreeWarning, ResidualMLP, flow_matching_loss
from sprigs_splineflow.datasets import make_ode

COLUMNS = ["what", "ours", "each", "beside", "each", "takes times as long", "goal"]
Timed = tuple[str, Callable[[], Any]]


def row(what: str, goal: str, ours: Timed, peer: Timed, rounds: int, check: Any, unit: float = 1e3) -> list[str]:
    """Time two callables in turn; the ratio is the peer's time over ours."""
    found = compare(
        {"ours": ours[1], "peer": peer[1]}, check=check, rounds=rounds, warmup=1, baseline="ours", threads=1
    )
    ratio, low, high = found.ratios["peer"]
    name = {1e3: "ms", 1e6: "µs"}[unit]
    each = [f"{unit * found.medians[n]:.3g} {name}" for n in ("ours", "peer")]
    return [what, ours[0], each[0], peer[0], each[1], f"{ratio:.3g} ({low:.3g}..{high:.3g})", goal]


def per_series(times: Any, values: Any, mask: Any, at: Any) -> tuple[Any, Any]:
    """Fit each trajectory and dimension with SciPy and tabulate value and velocity: the released code's way."""
    mu, slope = np.empty((2, len(values), len(at), values.shape[2]))
    for i in range(len(values)):
        for j in range(values.shape[2]):
            seen = slice(None) if mask is None else mask[i, :, j]
            t = times[seen]
            spline = make_interp_spline(t, values[i, seen, j], k=min(3, len(t) - 1))
            held = np.clip(at, t[0], t[-1])
            mu[i, :, j] = spline(held)
            slope[i, :, j] = np.where(held == at, spline.derivative()(held), 0.0)
    return mu, slope


def preparation() -> list[list[str]]:
    """Fit 1000 trajectories of 3 dimensions at 200 times; the loop tabulates too, as there it must."""
    rows = []
    for n, goals in ((100, ("", "")), (1000, (">= 10", ">= 5"))):
        panel = make_ode("lorenz", n, missing=0.5)
        for mask, what, goal in ((None, "shared times", goals[0]), (panel.mask, "half missing", goals[1])):
            trial = np.linspace(0, 9.9, 41)

            def check(results: Any, panel: Any = panel, mask: Any = mask, trial: Any = trial) -> None:
                exact = BSplinePath.fit(panel.times, panel.values[:20], None if mask is None else mask[:20],
                                        dtype=torch.float64)  # fmt: skip
                mu, slope = per_series(panel.times, panel.values[:20], None if mask is None else mask[:20], trial)
                index, t = np.repeat(np.arange(20), len(trial)), np.tile(trial, 20)
                for nu, want in enumerate((mu, slope)):
                    found = exact.evaluate(index, t, nu).numpy().reshape(want.shape)
                    np.testing.assert_allclose(found, want, atol=1e-8 * np.abs(want).max())

            ours = ("fit", lambda panel=panel, mask=mask: BSplinePath.fit(panel.times, panel.values, mask))
            loop = ("SciPy, one by one", lambda p=panel, m=mask: per_series(p.times, p.values, m, p.times))
            rows.append(row(f"prepare {n} x 3 records, {what}", goal, ours, loop, 5, check))
    return rows


def sampling() -> list[list[str]]:
    """Draw samples: index, time, value, velocity, noise and weights."""
    rows = []
    panel = make_ode("lorenz", 1000, missing=0.5)
    for mask, what in ((None, "shared times"), (panel.mask, "half missing")):
        path = BSplinePath.fit(panel.times, panel.values, mask)
        for batch in (512, 8192, 100_000):
            generator = torch.Generator().manual_seed(0)
            path.sample(batch, generator)
            repeat = max(1, 100_000 // batch)
            best = []
            for _ in range(9):
                start = time.perf_counter()
                for _ in range(repeat):
                    path.sample(batch, generator)
                best.append((time.perf_counter() - start) / repeat / batch)
            each = f"{1e9 * np.median(best):.0f} ns ({1e9 * min(best):.0f}..{1e9 * max(best):.0f})"
            goal = "<= 150 ns" if mask is None else ""
            rows.append([f"a sample of {batch}, d = 3, {what}", "sample", each, "", "", "", goal])
    return rows


def share_of_a_step() -> list[list[str]]:
    """What part of a training step of 512 samples and four layers of 256 is sampling?"""
    panel = make_ode("lorenz", 1000, missing=0.5)
    rows = []
    for mask, what in ((None, "shared times"), (panel.mask, "half missing")):
        path = BSplinePath.fit(panel.times, panel.values, mask, schedule=ConstantSigma(0.1))
        network = ResidualMLP(3, (256,) * 4)
        optimiser = torch.optim.AdamW(network.parameters(), 1e-4)
        drawn = path.sample(512)

        def step(
            fresh: bool, path: Any = path, network: Any = network, optimiser: Any = optimiser, d: Any = drawn
        ) -> None:
            optimiser.zero_grad()
            flow_matching_loss(network, path.sample(512) if fresh else d).backward()
            optimiser.step()

        found = compare(
            {"with": lambda: step(True), "without": lambda: step(False)}, check=lambda results: None, rounds=31,
            warmup=3, baseline="without", threads=1,
        )  # fmt: skip
        ratio, low, high = found.ratios["with"]
        times = [f"{1e3 * found.medians[n]:.3g} ms" for n in ("with", "without")]
        added = f"sampling adds {100 * (ratio - 1):.1f} % ({100 * (low - 1):.1f}..{100 * (high - 1):.1f})"
        rows.append([f"training step, {what}", "with sampling", times[0], "without", times[1], added, "<= 20 %"])
    return rows


def growth() -> list[list[str]]:
    """How the cost of fitting grows with the number of observations."""

    def make(n: int) -> Callable[[], object]:
        t = np.linspace(0, 10, n)
        x = np.sin(t[:, None] * np.arange(1, 601)).T[:, :, None]
        mask = np.random.default_rng(0).uniform(size=x.shape) < 0.7
        mask[:, :2] = True
        return lambda: BSplinePath.fit(t, x, mask)

    found = scaling(make, (100, 400, 1600))
    return [["fit, growth with observations", "100..1600", "", "", "", f"exponent {found.exponent:.2f}", "1"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", DegreeWarning)
    rows = []
    for part in (preparation, sampling, share_of_a_step, growth):
        for found in part():
            print(" | ".join(found), flush=True)
            rows.append(found)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps({"table": {"columns": COLUMNS, "rows": rows}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
