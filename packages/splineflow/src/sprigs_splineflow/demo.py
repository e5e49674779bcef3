"""The first thing a user runs: one system, straight lines beside splines."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
import numpy as np

SHOWN = ("lotka-volterra", "harmonic", "damped", "van-der-pol", "fitzhugh-nagumo")


@click.command()
@click.argument("system", type=click.Choice(SHOWN), default="lotka-volterra")
@click.option(
    "--output", "-o", default="splineflow-demo.png", show_default=True, type=click.Path(path_type=Path),
    help="The picture.",
)  # fmt: skip
@click.option("--missing", default=0.5, show_default=True, help="Share of observations that are missing.")
@click.option("--steps", default=2000, show_default=True, help="Training steps of each network.")
@click.option("--seed", default=0, show_default=True)
def demo(system: str, output: Path, missing: float, steps: int, seed: int) -> None:
    """Learn a field from 64 incomplete trajectories of SYSTEM, along straight lines and along cubic B-splines."""
    import torch
    from rich.console import Console
    from rich.table import Table

    from .errors import SplineFlowError
    from .experiments import learn, target_error
    from .systems import make_system

    if not 0 <= missing < 1:
        raise click.BadParameter("a share of observations lies between 0 and 1", param_hint="--missing")
    began = time.perf_counter()
    torch.set_num_threads(1)
    console = Console(width=None if Console().is_terminal else 110, markup=False, highlight=False)
    made = make_system(system, seed)
    constants = ", ".join(f"{name} {value:.3g}" for name, value in made.parameters.items())
    console.print(
        f"{system} ({constants}): 64 trajectories, 100 times 0.1 apart, {missing:.0%} of all entries missing; a network"
        f" of 3 x 64, {steps} steps along each kind of path."
    )
    from .datasets import make_ode

    panel = make_ode(made, 64, np.arange(0, 10, 0.1), missing, seed=seed)
    results: dict[str, Any] = {}
    table = Table()
    for column in ("path", "velocity target, relative RMSE", "learnt field, relative MSE", "rollout MSE", "seconds"):
        table.add_column(column, justify="left" if column == "path" else "right")
    for path in ("linear", "bspline 3"):
        start = time.perf_counter()
        try:
            results[path] = learn(made, missing, path, seed, steps=steps, progress=console.is_terminal)
        except SplineFlowError as error:
            raise click.ClickException(str(error)) from error
        found = results[path]
        table.add_row(
            {"linear": "straight lines", "bspline 3": "cubic B-splines"}[path], f"{target_error(panel, path):.4f}",
            f"{found.field:.2e}", f"{found.rollout:.2e}", f"{time.perf_counter() - start:.1f}",
        )  # fmt: skip
    console.print(table)
    ratio = results["linear"].field / results["bspline 3"].field
    console.print(f"The spline's field is off by {ratio:.1f} times less (squared error).")
    try:
        _picture(output, panel, results)
    except ModuleNotFoundError:
        console.print("For the phase portrait: pip install 'sprigs-splineflow[plot]'")
    else:
        console.print(f"Phase portraits, a path and its velocity: {output}")
    console.print(f"{time.perf_counter() - began:.0f} s in all.")


def _picture(output: Path, panel: Any, results: dict[str, Any]) -> None:
    from matplotlib.figure import Figure

    from . import plot
    from .experiments import make_path

    figure = Figure(figsize=(12, 9), layout="constrained")
    axes = figure.subplots(2, 2)
    low, high = panel.values.reshape(-1, 2).min(axis=0), panel.values.reshape(-1, 2).max(axis=0)
    margin = 0.05 * (high - low)
    limits = tuple(zip(low - margin, high + margin, strict=True))
    starts = panel.values[:4, 0]
    for ax, (path, found) in zip(axes[0], results.items(), strict=True):
        rolled = found.model.predict(starts, panel.times, method="rk4")
        plot.phase_portrait(found.model.vector_field, limits, ax, density=20)
        for i in range(len(starts)):
            ax.plot(*panel.values[i].T, color="black", lw=1, label="true" if i == 0 else None)
            ax.plot(*rolled[i].T, color="tab:red", lw=1, ls="--", label="rolled out" if i == 0 else None)
        ax.set_title(f"{path}: field error {found.field:.1e}")
        ax.legend(loc="upper right")
    index = 0
    t = np.linspace(panel.times[0], panel.times[-1], 600)
    truth = make_path("bspline 5", panel.times, panel.values)
    for ax, nu, title in ((axes[1, 0], 0, "one trajectory, first dimension"), (axes[1, 1], 1, "the velocity target")):
        exact = truth.evaluate(np.full(600, index), t, nu).numpy()[:, 0]
        ax.plot(t, exact, color="black", lw=2, alpha=0.4, label="true")
        for path, colour in (("linear", "tab:blue"), ("bspline 3", "tab:red")):
            curve = make_path(path, panel.times, panel.values, panel.mask).evaluate(np.full(600, index), t, nu).numpy()
            ax.plot(t, curve[:, 0], lw=1, color=colour, label=path)
        if nu == 0 and panel.mask is not None:
            seen = panel.mask[index, :, 0]
            ax.plot(panel.times[seen], panel.values[index, seen, 0], "k.", ms=5, label="observed")
        ax.set(title=title, xlabel="t", ylabel="x1" if nu == 0 else "dx1/dt")
        ax.legend()
    output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(output, dpi=110)
