"""Training beside a neural ODE (torchdiffeq) on trajectories: time to the same error of the field, one CPU thread.

python benchmarks/bench_neural_ode.py [-o benchmarks/results/neural_ode.json] [--seeds 3]

Needs torchdiffeq. About 20 minutes. Each method has the better of two learning rates for each error.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import torch
from torchdiffeq import odeint

from sprigs_splineflow import ResidualMLP, SplineFlow, metrics
from sprigs_splineflow.datasets import make_ode

COLUMNS = ["data", "field error", "ours", "neural ODE", "time, ours over theirs", "goal"]
STEPS_TRIED = (15, 30, 45, 60, 90, 125, 180, 250, 350, 500, 700, 1000, 1400, 2000, 2800, 4000)
ERRORS = (1e-1, 1e-2, 3e-3, 1e-3, 1e-4, 1e-5)
BUDGETS = (1.0, 2.0, 5.0, 10.0, 20.0, 40.0)  # seconds of a neural ODE's training
RATES = (2e-3, 1e-2)  # of both, each taken where it is the better one


def beside_neural_ode(seeds: int) -> list[list[str]]:
    """How long does each need until its field is off by no more than a given error?

    Ours is timed from the data to the end of training with each number of steps. The neural ODE is trained anew for
    each budget, its rate falling to zero in it, and is credited with the first time that it was ever as good.
    """
    rows = []
    for system in ("damped", "lotka-volterra"):
        ours: list[list[tuple[float, float]]] = []
        theirs: list[list[tuple[float, float]]] = []
        for seed in range(seeds):
            train, test = make_ode(system, 80, np.arange(0, 10, 0.1), 0.5, seed=seed).split()
            true = test.system.drift(0.0, test.values)
            ours.append([])
            for steps, rate in itertools.product(STEPS_TRIED, RATES):
                begun = time.perf_counter()
                model = SplineFlow(
                    autonomous=True, hidden=(64,) * 3, max_steps=steps, lr=rate, random_state=seed, progress=False
                ).fit(train.times, train.values, train.mask)
                spent = time.perf_counter() - begun
                ours[-1].append((spent, metrics.field_error(model.vector_field(0.0, test.values), true)))
            theirs.append([])
            for budget, rate in itertools.product(BUDGETS, RATES):
                theirs[-1] += neural_ode(train, test.values, true, seed, budget, rate)
            met = {t: min((e for u, e in theirs[-1] if u <= t), default=np.inf) for t in BUDGETS}
            print(system, seed, [f"{t:.2f} s {e:.1e}" for t, e in ours[-1]],
                  [f"{t:.0f} s {e:.1e}" for t, e in met.items()], flush=True)  # fmt: skip
        for error in ERRORS:
            a, b = ([min((t for t, e in run if e <= error), default=np.inf) for run in runs] for runs in (ours, theirs))
            if not (np.isfinite(a).any() or np.isfinite(b).any()):
                continue
            # Where a neural ODE never got there, it took more than its budget: the ratio is at most this one.
            ratio = [p / min(q, BUDGETS[-1]) for p, q in zip(a, b, strict=True) if np.isfinite(p)]
            share = f"{np.median(ratio):.3f} ({min(ratio):.3f}..{max(ratio):.3f})" if ratio else "never"
            rows.append([f"{system}, half missing", f"{error:.0e}", reached(a), reached(b), share, "<= 0.1"])
            print(" | ".join(rows[-1]), flush=True)
        best = [[min(e for _, e in run) for run in runs] for runs in (ours, theirs)]
        cells = (f"{mean(q):.1e} ({min(q):.1e}..{max(q):.1e})" for q in best)
        rows.append(
            [f"{system}, half missing", f"least, {STEPS_TRIED[-1]} steps and {BUDGETS[-1]:.0f} s", *cells, "", ""]
        )
        print(" | ".join(rows[-1]), flush=True)
    return rows


def reached(times: list[float]) -> str:
    """Return the median time of the runs that got there, and how many did."""
    there = [t for t in times if np.isfinite(t)]
    return f"{np.median(there):.2g} s, {len(there)} of {len(times)}" if there else f"0 of {len(times)}"


def neural_ode(train: Any, states: Any, true: Any, seed: int, budget: float, rate: float) -> list[tuple[float, float]]:
    """Train by simulation on windows of ten times; return (seconds, field error) on the way."""
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    seen = np.where(train.mask, train.values, np.nan)
    centre, spread = np.nanmean(seen, axis=(0, 1)), np.nanstd(seen, axis=(0, 1))
    # Windows start where the whole state was observed.
    starts = np.argwhere(train.mask.all(axis=2)[:, :-10])
    x = torch.tensor((train.values - centre) / spread, dtype=torch.float32)
    mask = torch.tensor(train.mask)
    network = ResidualMLP(x.shape[2], (64,) * 3, autonomous=True)
    optimizer = torch.optim.AdamW(network.parameters(), rate, weight_decay=0.0, fused=True)
    window = torch.arange(10) * 0.1
    begun = time.perf_counter()
    found = []
    judged = torch.tensor((states.reshape(-1, states.shape[2]) - centre) / spread, dtype=torch.float32)
    judging, step = 0.0, 0
    while (spent := time.perf_counter() - begun - judging) < budget:
        for group in optimizer.param_groups:
            group["lr"] = rate * 0.5 * (1 + np.cos(np.pi * min(spent / budget, 1.0)))
        pick = starts[rng.integers(0, len(starts), 64)]
        rows = torch.tensor(pick[:, 0])[:, None].expand(64, 10)
        columns = torch.tensor(pick[:, 1])[:, None] + torch.arange(10)
        target, there = x[rows, columns], mask[rows, columns]
        optimizer.zero_grad()
        rolled = odeint(network, target[:, 0], window, rtol=1e-4, atol=1e-5, method="dopri5")
        (((rolled.swapaxes(0, 1) - target) ** 2) * there).sum().div(there.sum()).backward()
        optimizer.step()
        step += 1
        if step % 5 == 0:
            pause = time.perf_counter()
            with torch.no_grad():
                v = network(torch.zeros(len(judged)), judged).numpy() * spread
            found.append((pause - begun - judging, metrics.field_error(v, true.reshape(v.shape))))
            judging += time.perf_counter() - pause
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warm = SplineFlow(max_steps=1, progress=False)  # numba compiles once
    warm.fit(np.arange(9.0), np.ones((2, 9, 2)), np.arange(36).reshape(2, 9, 2) % 5 > 0)
    rows = beside_neural_ode(arguments.seeds)
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps({"table": {"columns": COLUMNS, "rows": rows}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
