"""Training beside torchcfm's OT-CFM and MIOFlow on snapshots, on one CPU thread.

python benchmarks/bench_peers.py [-o benchmarks/results/peers.json] [--seeds 3]

Needs torchcfm, mioflow, torchdiffeq, and the cells of SPRIGS_DATA. About 25 minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from torchcfm import ExactOptimalTransportConditionalFlowMatcher
from torchdiffeq import odeint

from sprigs_splineflow import ResidualMLP, SplineFlow, datasets, integrate, metrics
from sprigs_splineflow.datasets import Snapshots
from sprigs_splineflow.experiments import population
from sprigs_splineflow.training import moments

COLUMNS = ["what", "ours", "beside", "time, ours over theirs", "goal", "error, ours", "theirs", "goal"]
STEPS, BATCH = 2000, 512
Flow = Callable[[Any, float, float], Any]


def torchcfm_snapshots(data: Snapshots, seed: int) -> Flow:
    """Train OT-CFM between consecutive snapshots as torchcfm's single-cell example does; return its flow.

    The network, its steps, its samples a step and the scaling of states, time and targets are those of ours.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    times = data.times
    gaps = np.diff(times)
    x_mean, x_std = moments(np.concatenate(data.arrays))
    t_mean, t_std = times.mean(), times.std()
    network = ResidualMLP(data.dims, (64,) * 3)
    optimizer = torch.optim.AdamW(network.parameters(), 2e-3, weight_decay=0.0, fused=True)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    matcher = ExactOptimalTransportConditionalFlowMatcher(sigma=0.08)
    arrays = [torch.tensor((a - x_mean) / x_std, dtype=torch.float32) for a in data.arrays]

    def draw() -> tuple[Any, Any, Any]:
        parts = []
        for k, width in enumerate(gaps):
            size = BATCH // len(gaps)
            x0, x1 = (a[rng.integers(0, len(a), size)] for a in arrays[k : k + 2])
            t, xt, ut = matcher.sample_location_and_conditional_flow(x0, x1)
            parts.append(((times[k] + t * width - t_mean) / t_std, xt, ut / width))
        return tuple(torch.cat(p).float() for p in zip(*parts, strict=True))  # type: ignore[return-value]

    _, _, probe = draw()
    v_mean, v_std = probe.mean(dim=0), probe.std(dim=0)
    for _ in range(STEPS):
        t, x, u = draw()
        optimizer.zero_grad()
        loss = (network(t, x) - (u - v_mean) / v_std).square().mean()
        loss.backward()
        optimizer.step()
        rate.step()

    def flow(start: Any, a: float, b: float) -> Any:
        with torch.no_grad():
            x = torch.tensor((start - x_mean) / x_std, dtype=torch.float32)

            def field(t: Any, s: Any) -> Any:
                scaled = ((t - t_mean) / t_std).float().expand(len(s))
                return network(scaled, s) * v_std + v_mean

            return integrate(field, x, torch.tensor([a, b], dtype=torch.float64), "rk4")[-1].numpy() * x_std + x_mean

    return flow


def mioflow_snapshots(data: Snapshots, seed: int) -> Flow:
    """Train MIOFlow on scaled states with its class's defaults, and 128 members a step; time is the snapshot's place.

    Places count a left-out snapshot too, so that a rollout can stop there.
    """
    from mioflow import TimeSeriesDataset
    from mioflow.core.models.ode_model import ODEFunc
    from mioflow.mioflow import train_mioflow

    torch.manual_seed(seed)
    x_mean, x_std = moments(np.concatenate(data.arrays))
    scaled = [((a - x_mean) / x_std).astype(np.float32) for a in data.arrays]
    model = ODEFunc(data.dims, 64)
    series = TimeSeriesDataset(list(zip(scaled, [float(t) for t in data.times], strict=True)))
    with contextlib.redirect_stderr(io.StringIO()):  # its progress bar
        train_mioflow(model, series, 100, batch_size=128, device="cpu", lambda_density=0.0, lambda_energy=0.01)

    def flow(start: Any, a: float, b: float) -> Any:
        with torch.no_grad():
            x = torch.tensor((start - x_mean) / x_std, dtype=torch.float32)
            return odeint(model, x, torch.tensor([a, b], dtype=torch.float32))[-1].numpy() * x_std + x_mean

    return flow


def ours_snapshots(data: Snapshots, seed: int) -> Flow:
    """Train ours with the same network, samples a step and steps."""
    model = SplineFlow(hidden=(64,) * 3, max_steps=STEPS, batch_size=BATCH, random_state=seed, progress=False)
    model.fit_snapshots(data.arrays, data.times)
    return lambda start, a, b: model.predict(start, [a, b], method="rk4")[:, 1]


def without(data: Snapshots, k: int | None) -> Snapshots:
    """Return the data without one of its snapshots."""
    seen = [i for i in range(len(data.arrays)) if i != k]
    return Snapshots(data.name, tuple(data.arrays[i] for i in seen), data.times[seen], data.unit)


def beside(name: str, train: Callable[[Snapshots, int], Flow], seeds: int, by_place: bool, goal: str) -> list[Any]:
    """Leave each interior time out, then none: W1 of rollouts, and the time of training, ours and a peer's in turn."""
    sets = [datasets.load_emt(), datasets.load_mesc()]
    if not by_place:
        sets.append(population("fitzhugh-nagumo", [0, 1, 2, 5, 6, 12], seed=300))
    rows = []
    for data in sets:
        place = Snapshots(data.name, data.arrays, np.arange(len(data.arrays)) * 1.0, "")
        what: dict[str, dict[str, list[float]]] = {"left-out": {}, "observed": {}}
        ratios = []
        for seed in range(seeds):
            for k in (*range(1, len(data.arrays) - 1), None):
                spent = {}
                for who, fit, given in (("ours", ours_snapshots, data), (name, train, place if by_place else data)):
                    begun = time.perf_counter()
                    flow = fit(without(given, k), seed)
                    spent[who] = time.perf_counter() - begun
                    t = given.times
                    if k is not None:
                        rolled = [(k, flow(data.arrays[k - 1], t[k - 1], t[k]))]
                    else:
                        rolled = [(i, flow(data.arrays[0], t[0], t[i])) for i in range(1, len(t))]
                    found = mean(metrics.wasserstein(x, data.arrays[i]) for i, x in rolled)
                    what["observed" if k is None else "left-out"].setdefault(who, []).append(found)
                ratios.append(spent["ours"] / spent[name])
        timing = f"{np.median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})"
        for case, w1 in what.items():
            rows.append([f"{data.name}, W1 to {case} snapshots", "SplineFlow", name,
                         *((timing, goal) if case == "left-out" else ("", "")),
                         *(f"{mean(w1[who]):.3f}" for who in ("ours", name)),
                         "less" if case == "left-out" else "no more"])  # fmt: skip
            print(" | ".join(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warm = SplineFlow(max_steps=1, progress=False)  # numba compiles once
    warm.fit_snapshots([np.random.default_rng(k).normal(size=(9, 3)) for k in range(4)], range(4))
    rows = [
        *beside("torchcfm OT-CFM", torchcfm_snapshots, arguments.seeds, False, "<= 1.15"),
        *beside("MIOFlow", mioflow_snapshots, arguments.seeds, True, ""),
    ]
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps({"table": {"columns": COLUMNS, "rows": rows}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
