"""Training beside torchcfm's OT-CFM on snapshots and a neural ODE on trajectories, on one thread of the CPU.

python benchmarks/bench_peers.py [-o benchmarks/results/peers.json] [--seeds 3]

Needs torchcfm and torchdiffeq, and the cells of SPRIGS_DATA for the first.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from torchcfm import ExactOptimalTransportConditionalFlowMatcher
from torchdiffeq import odeint

from sprigs_splineflow import ResidualMLP, SplineFlow, datasets, integrate, metrics
from sprigs_splineflow.datasets import Snapshots, make_ode
from sprigs_splineflow.experiments import population

COLUMNS = ["what", "ours", "beside", "time, ours over theirs", "goal", "error, ours", "theirs", "goal"]
STEPS, BATCH = 2000, 256


def torchcfm_snapshots(data: Snapshots, seed: int) -> Any:
    """Train OT-CFM between consecutive snapshots as torchcfm's single-cell example does; return its flow."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    d, times = data.dims, data.times
    scale = float(times[-1] - times[0])
    network = ResidualMLP(d, (64,) * 3)
    optimizer = torch.optim.AdamW(network.parameters(), 2e-3, weight_decay=0.0)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    matcher = ExactOptimalTransportConditionalFlowMatcher(sigma=0.08)
    arrays = [torch.tensor(a, dtype=torch.float32) for a in data.arrays]
    gaps = len(arrays) - 1
    for _ in range(STEPS):
        ts, xs, us = [], [], []
        for k in range(gaps):
            # The same number of samples a step as ours, over all gaps.
            size = BATCH * 2 // gaps
            x0, x1 = (a[rng.integers(0, len(a), size)] for a in arrays[k : k + 2])
            t, xt, ut = matcher.sample_location_and_conditional_flow(x0, x1)
            width = float(times[k + 1] - times[k])
            ts.append((times[k] - times[0] + t * width) / scale)
            xs.append(xt)
            us.append(ut / width * scale)
        optimizer.zero_grad()
        loss = (network(torch.cat(ts).float(), torch.cat(xs)) - torch.cat(us)).square().mean()
        loss.backward()
        optimizer.step()
        rate.step()

    def flow(start: Any, a: float, b: float) -> Any:
        ends = torch.tensor([(a - times[0]) / scale, (b - times[0]) / scale], dtype=torch.float64)
        with torch.no_grad():
            x = torch.tensor(start, dtype=torch.float32)
            return integrate(lambda t, s: network(t.expand(len(s)), s), x, ends, "rk4")[-1].numpy()

    return flow


def ours_snapshots(data: Snapshots, seed: int) -> Any:
    """Train ours with the same network, samples a step and steps."""
    model = SplineFlow(hidden=(64,) * 3, max_steps=STEPS, batch_size=BATCH * 2, random_state=seed, progress=False)
    model.fit_snapshots(data.arrays, data.times)
    return lambda start, a, b: model.predict(start, [a, b], method="rk4")[:, 1]


def beside_torchcfm(seeds: int) -> list[list[str]]:
    """Leave each interior time out; W1 of rollouts from the time before, and the time of training."""
    sets = [datasets.load_emt(), datasets.load_mesc(), population("fitzhugh-nagumo", [0, 1, 2, 5, 6, 12], seed=300)]
    rows = []
    for data in sets:
        seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
        errors: dict[str, list[float]] = {"ours": [], "theirs": []}
        for seed in range(seeds):
            for k in range(1, len(data.arrays) - 1):
                seen = [i for i in range(len(data.arrays)) if i != k]
                part = Snapshots(data.name, tuple(data.arrays[i] for i in seen), data.times[seen], data.unit)
                # In turn, so that the machine's moods fall on both.
                for name, train in (("ours", ours_snapshots), ("theirs", torchcfm_snapshots)):
                    start = time.perf_counter()
                    flow = train(part, seed)
                    seconds[name].append(time.perf_counter() - start)
                    rolled = flow(data.arrays[k - 1], data.times[k - 1], data.times[k])
                    errors[name].append(metrics.wasserstein(rolled, data.arrays[k]))
        ratios = [a / b for a, b in zip(seconds["ours"], seconds["theirs"], strict=True)]
        rows.append([f"{data.name}, {STEPS} steps, left-out W1", "SplineFlow", "torchcfm OT-CFM",
                     f"{np.median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})", "<= 1.15",
                     f"{mean(errors['ours']):.3f}", f"{mean(errors['theirs']):.3f}", "less"])  # fmt: skip
        print(" | ".join(rows[-1]), flush=True)
    return rows


def beside_neural_ode(seeds: int) -> list[list[str]]:
    """How long does each need until its field is off by no more than the neural ODE's at the end of its budget?"""
    rows = []
    for system in ("damped", "lotka-volterra"):
        ratios, errors = [], []
        for seed in range(seeds):
            train, test = make_ode(system, 80, np.arange(0, 10, 0.1), 0.5, seed=seed).split()
            states = test.values
            true = test.system.drift(0.0, states)
            reached, spent = neural_ode(train, states, true, seed)
            for steps in (125, 250, 500, 1000, 2000, 4000):
                begun = time.perf_counter()
                model = SplineFlow(
                    autonomous=True, hidden=(64,) * 3, max_steps=steps, random_state=seed, progress=False
                )
                model.fit(train.times, train.values, train.mask)
                needed = time.perf_counter() - begun
                error = metrics.field_error(model.vector_field(0.0, states), true)
                if error <= reached:
                    break
            print(f"{system} {seed}: {error:.1e}, {needed:.2f} s; neural ODE {reached:.1e}, {spent:.1f} s", flush=True)
            ratios.append(needed / spent if error <= reached else float("inf"))
            errors.append((error, reached))
        fast, middle, slow = (1 / q for q in (min(ratios), float(np.median(ratios)), max(ratios)))
        rows.append([f"{system}, half missing, to the same field error", "SplineFlow", "neural ODE, torchdiffeq",
                     f"1 / {middle:.0f} (1 / {slow:.0f} .. 1 / {fast:.0f})", "<= 1 / 10",
                     *(f"{mean(e[i] for e in errors):.1e}" for i in (0, 1)), "no more"])  # fmt: skip
        print(" | ".join(rows[-1]), flush=True)
    return rows


def neural_ode(train: Any, states: Any, true: Any, seed: int, budget: float = 60.0) -> tuple[float, float]:
    """Train by simulation on windows of ten times; return the budget's best field error and when it was reached."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    seen = np.where(train.mask, train.values, np.nan)
    centre, spread = np.nanmean(seen, axis=(0, 1)), np.nanstd(seen, axis=(0, 1))
    # Windows start where the whole state was observed.
    starts = np.argwhere(train.mask.all(axis=2)[:, :-10])
    x = torch.tensor((train.values - centre) / spread, dtype=torch.float32)
    mask = torch.tensor(train.mask)
    network = ResidualMLP(x.shape[2], (64,) * 3, autonomous=True)
    optimizer = torch.optim.AdamW(network.parameters(), 2e-3, weight_decay=0.0)
    window = torch.arange(10) * 0.1
    begun, best = time.perf_counter(), (np.inf, budget)
    judged = torch.tensor((states.reshape(-1, states.shape[2]) - centre) / spread, dtype=torch.float32)
    judging, step = 0.0, 0
    while (spent := time.perf_counter() - begun - judging) < budget:
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * 0.5 * (1 + np.cos(np.pi * min(spent / budget, 1.0)))
        pick = starts[rng.integers(0, len(starts), 64)]
        rows = torch.tensor(pick[:, 0])[:, None].expand(64, 10)
        columns = torch.tensor(pick[:, 1])[:, None] + torch.arange(10)
        target, there = x[rows, columns], mask[rows, columns]
        optimizer.zero_grad()
        rolled = odeint(network, target[:, 0], window, rtol=1e-4, atol=1e-5, method="dopri5")
        (((rolled.swapaxes(0, 1) - target) ** 2) * there).sum().div(there.sum()).backward()
        optimizer.step()
        step += 1
        if step % 50 == 0:
            pause = time.perf_counter()
            with torch.no_grad():
                v = network(torch.zeros(len(judged)), judged).numpy() * spread
            error = metrics.field_error(v, true.reshape(v.shape))
            best = min(best, (error, spent))
            judging += time.perf_counter() - pause
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = beside_torchcfm(arguments.seeds) + beside_neural_ode(arguments.seeds)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps({"table": {"columns": COLUMNS, "rows": rows}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
