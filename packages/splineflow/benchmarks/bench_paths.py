"""Every path on the same data: velocity targets, learnt fields, left-out snapshots; tubes and diffusions.

python benchmarks/bench_paths.py [-o benchmarks/results/paths.json] [--draws 10] [--seeds 3]

Snapshots come from SPRIGS_DATA, HSMMSingleCell and destiny; those that are not there are left out, and named.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import mean

import numpy as np
import torch

import sprigs
from sprigs_splineflow import BackendUnavailable, datasets, estimate_diffusion
from sprigs_splineflow.datasets import make_sde
from sprigs_splineflow.experiments import PATHS, SNAPSHOT_PATHS, learn, left_out, target_errors

COLUMNS = ["what", *PATHS]
SNAPSHOT_COLUMNS = ["W1 to left-out snapshots", *SNAPSHOT_PATHS]
WIDTHS = (0.0, 0.01, 0.03, 0.08)
TUBE_COLUMNS = ["field learnt, tube of width", *map(str, WIDTHS)]
DIFFUSION_COLUMNS = ["g = 0.08 estimated", "times apart", "missing", "residual", "realized"]
SETS = ("emt", "bifurcation", "simulation", "mesc", "hsmm", "guo")


def emphasised(values: list[float], digits: str) -> list[str]:
    """Return the numbers as text, the smallest in bold."""
    return [f"**{v:{digits}}**" if v == min(values) else f"{v:{digits}}" for v in values]


def targets(draws: int) -> list[list[str]]:
    """Relative RMSE of velocities, no network."""
    rows = []
    for system in ("exp", "damped", "lotka-volterra", "van-der-pol", "lorenz"):
        for missing in (0.0, 0.5, 0.75):
            found = target_errors(system, missing, (42, *range(draws - 1)))
            rows.append(
                [f"target, {system}, {missing:.0%} missing", *emphasised([mean(v) for v in found.values()], ".2g")]
            )
            print(" | ".join(rows[-1]), flush=True)
    return rows


def fields(seeds: int) -> list[list[str]]:
    """Relative MSE of learnt fields."""
    rows = []
    for system in ("damped", "lotka-volterra", "van-der-pol", "lorenz"):
        errors = [mean(learn(system, 0.5, path, s, steps=2000).field for s in range(seeds)) for path in PATHS]
        rows.append([f"field learnt, {system}, 50% missing", *emphasised(errors, ".1e")])
        print(" | ".join(rows[-1]), flush=True)
    return rows


def tubes(seeds: int) -> list[list[str]]:
    """Relative MSE of fields learnt along cubic splines, by the width of the tube."""
    rows = []
    for system in ("damped", "lotka-volterra", "van-der-pol", "lorenz"):
        for missing in (0.0, 0.5):
            errors = [
                mean(learn(system, missing, "bspline 3", s, steps=2000, sigma=sigma).field for s in range(seeds))
                for sigma in WIDTHS
            ]
            rows.append([f"{system}, {missing:.0%} missing", *emphasised(errors, ".1e")])
            print(" | ".join(rows[-1]), flush=True)
    return rows


def diffusions() -> list[list[str]]:
    """Estimates of g = 0.08 from 200 trajectories."""
    rows = []
    for system in ("ou", "damped", "van-der-pol", "fitzhugh-nagumo", "brusselator", "lotka-volterra", "lorenz"):
        for dt, missing in ((0.05, 0.0), (0.05, 0.5), (0.1, 0.5)):
            panel = make_sde(system, 200, np.arange(0, 6, dt), missing, seed=1)
            noisy = panel.system.noise > 0
            found = [
                " ".join(f"{g:.3f}" for g in estimate_diffusion(panel.times, panel.values, panel.mask, method)[noisy])
                for method in ("residual", "realized")
            ]
            rows.append([system, f"{dt}", f"{missing:.0%}", *found])
            print(" | ".join(rows[-1]), flush=True)
    return rows


def snapshots(seeds: int) -> list[list[str]]:
    """Mean W1 over interior times, along paths alone."""
    rows = []
    for name in SETS:
        try:
            data = getattr(datasets, f"load_{name}")()
        except (sprigs.DataUnavailable, BackendUnavailable) as missing:
            print(f"{name} not run: {missing}")
            continue
        found = [left_out(data, seed=s) for s in range(seeds)]
        rows.append([name, *emphasised([float(np.mean([f[p].mean() for f in found])) for p in SNAPSHOT_PATHS], ".3f")])
        print(" | ".join(rows[-1]), flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tables = {
        "paths": {"columns": COLUMNS, "rows": targets(arguments.draws) + fields(arguments.seeds)},
        "tubes": {"columns": TUBE_COLUMNS, "rows": tubes(arguments.seeds)},
        "diffusion": {"columns": DIFFUSION_COLUMNS, "rows": diffusions()},
        "snapshots": {"columns": SNAPSHOT_COLUMNS, "rows": snapshots(arguments.seeds)},
    }
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        for name, table in tables.items():
            path = arguments.output.with_name(f"{name}.json")
            path.write_text(json.dumps({"table": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
