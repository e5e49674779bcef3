"""The commands `sprigs splineflow ...`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np

import sprigs

from .errors import BackendUnavailable, SplineFlowError

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_NEW = click.Path(path_type=Path, dir_okay=False)


@contextmanager
def _clean_errors() -> Iterator[None]:
    try:
        yield
    except (SplineFlowError, BackendUnavailable, sprigs.DataUnavailable, OSError) as error:
        raise click.ClickException(str(error)) from error


@click.command()
@click.argument("data", type=_FILE)
@click.option("--out", "-o", default="model.safetensors", show_default=True, type=_NEW, help="The model.")
@click.option("--degree", default="auto", show_default=True, help="Of the spline, 1 to 5, or auto.")
@click.option(
    "--path", type=click.Choice(["bspline", "linear", "pchip", "akima"]), default="bspline", show_default=True
)
@click.option("--parametrization", type=click.Choice(["time", "index", "centripetal"]), help="[default: by the data]")
@click.option("--stochastic", is_flag=True, help="Learn a score too, for sampling.")
@click.option("--autonomous", is_flag=True, help="A law that does not change with time.")
@click.option("--coupling", default="exact", show_default=True,
              type=click.Choice(["exact", "sinkhorn", "unbalanced", "independent"]), help="Of snapshots.")  # fmt: skip
@click.option("--time-key", default="time", show_default=True, help="Column of obs in an .h5ad file.")
@click.option("--rep", default="X_pca", show_default=True, help="Key of obsm in an .h5ad file, or X.")
@click.option("--steps", default=3000, show_default=True, help="Training steps.")
@click.option("--hidden", default="256,256,256,256", show_default=True, help="Widths of the network's layers.")
@click.option("--seed", default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def fit(
    data: Path, out: Path, degree: str, path: str, parametrization: str | None, stochastic: bool, autonomous: bool,
    coupling: str, time_key: str, rep: str, steps: int, hidden: str, seed: int, as_json: bool,
) -> None:  # fmt: skip
    """Learn a vector field from DATA (.npz, .csv, .h5ad): trajectories, or snapshots of populations."""
    from .estimator import SplineFlow
    from .files import read_observations

    with _clean_errors():
        seen = read_observations(data, time_key, rep)
        try:
            widths = tuple(int(w) for w in hidden.split(","))
            order: int | str = degree if degree == "auto" else int(degree)
        except ValueError as error:
            raise SplineFlowError(f"--hidden takes widths like 64,64 and --degree a number or auto: {error}") from error
        model = SplineFlow(
            order, stochastic, path=path, parametrization=parametrization, autonomous=autonomous, hidden=widths,
            max_steps=steps, random_state=seed, progress=not as_json,
        )  # fmt: skip
        if seen.snapshots is not None:
            model.fit_snapshots(seen.snapshots, seen.times, coupling)
            what = f"{len(seen.snapshots)} snapshots of {sum(map(len, seen.snapshots))} members"
        else:
            assert seen.values is not None
            model.fit(seen.times, seen.values, seen.mask, seen.cond)
            share = 1.0 if seen.mask is None else float(seen.mask.mean())
            what = f"{len(seen.values)} trajectories, {share:.0%} observed"
        model.save(out)
    final = float(np.mean(model.loss_[-100:]))
    facts: dict[str, Any] = {
        "data": what, "dimensions": model.n_features_in_, "path": model.kind_, "degree": model.degree_,
        "steps": len(model.loss_), "loss": final, "model": str(out),
        "g": None if model.g_ is None else model.g_.tolist(),
    }  # fmt: skip
    if as_json:
        click.echo(json.dumps(facts, indent=2))
        return
    noise = "" if model.g_ is None else f"; diffusion {np.array2string(model.g_, precision=4)}"
    click.echo(
        f"{what}, {model.n_features_in_} dimensions: {model.kind_} of degree {model.degree_}, {len(model.loss_)} steps,"
        f" loss {final:.4g} of the target's variance{noise}; written to {out}"
    )


@click.command()
@click.argument("model", type=_FILE)
@click.argument("starts", type=_FILE)
@click.option("--times", "-t", required=True, help="START:STOP:COUNT or a comma-separated list.")
@click.option("--out", "-o", default="predicted.csv", show_default=True, type=_NEW, help="A .csv or .npz file.")
@click.option("--samples", "-n", default=0, show_default=True, help="Paths of the stochastic system from each start.")
@click.option("--seed", default=0, show_default=True)
def predict(model: Path, starts: Path, times: str, out: Path, samples: int, seed: int) -> None:
    """Roll MODEL out from STARTS (.csv with a column for each dimension, or .npz with x0 [N, d]) at the first time."""
    from .estimator import SplineFlow
    from .files import write_paths

    with _clean_errors():
        flow = SplineFlow.load(model)
        x0, names = _starts(starts, flow.n_features_in_)
        moments = _moments(times)
        states = flow.sample(x0, moments, samples, seed) if samples > 0 else flow.predict(x0, moments)
        write_paths(out, moments, states, names)
    click.echo(f"{len(x0)} starts, {max(samples, 1)} path(s) each, {len(moments)} times: written to {out}")


def _moments(text: str) -> Any:
    try:
        if ":" in text:
            start, stop, count = text.split(":")
            return np.linspace(float(start), float(stop), int(count))
        return np.array([float(part) for part in text.split(",")])
    except ValueError as error:
        raise SplineFlowError(f"--times takes START:STOP:COUNT or a list of numbers: {error}") from error


def _starts(file: Path, dims: int) -> tuple[Any, tuple[str, ...]]:
    from .files import read_npz

    names = tuple(f"x{j + 1}" for j in range(dims))
    if file.suffix == ".npz":
        content = read_npz(file)
        if "x0" not in content:
            raise SplineFlowError(f"{file} must hold x0 [N, {dims}]; it holds {', '.join(sorted(content))}")
        return content["x0"], names
    try:
        header, *rows = [line.split(",") for line in file.read_text(encoding="utf-8-sig").splitlines() if line.strip()]
        table = np.array([[float(cell) for cell in row] for row in rows])
    except (ValueError, UnicodeDecodeError) as error:
        raise SplineFlowError(f"{file} must be a CSV file of numbers below a header: {error}") from error
    if table.ndim != 2 or table.shape[1] != dims:
        raise SplineFlowError(f"{file} must have {dims} columns and at least one row")
    return table, tuple(name.strip() for name in header)


commands: list[click.Command] = [fit, predict]
