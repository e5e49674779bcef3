"""The commands `sprigs spingtp ...`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

import sprigs

from .errors import SpinTPError

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_PRODUCT = click.Choice(["spin", "cg", "gaunt"])


@contextmanager
def _clean_errors() -> Iterator[None]:
    try:
        yield
    except (SpinTPError, sprigs.DataUnavailable, OSError) as error:
        raise click.ClickException(str(error)) from error


@click.command()
@click.option("--lmax", default=3, show_default=True, help="Highest degree of inputs and output.")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw both kinds into this file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def paths(lmax: int, plot: Path | None, as_json: bool) -> None:
    """List every Clebsch-Gordan path and its strength in the complete and in the Gaunt product."""
    from .tables import check_degree
    from .three_j import kappa, kind_of
    from .three_j import paths as every

    with _clean_errors():
        check_degree(lmax, "lmax")
        rows: list[dict[str, Any]] = [
            {
                "l1": a,
                "l2": b,
                "l3": c,
                "kind": kind_of(a, b, c),
                "complete": kappa(a, b, c),
                "gaunt": kappa(a, b, c, "even"),
            }
            for a, b, c in every(lmax, lmax, lmax)
        ]
        if plot is not None:
            _plot_paths(min(lmax, 6), plot)
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    cells = [
        [f"{r['l1']} x {r['l2']} -> {r['l3']}", r["kind"], f"{r['complete']:.6f}", f"{r['gaunt']:.6f}"] for r in rows
    ]
    odd = sum(r["kind"] == "odd" for r in rows)
    _print(["path", "kind", "complete", "Gaunt"], cells, f"{len(rows)} paths, {odd} of them antisymmetric")


@click.command()
@click.option("--steps", default=150, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def tetris(steps: int, seed: int, as_json: bool) -> None:
    """Learn the eight Tetris shapes with each product."""
    from .shapes import learn_tetris

    found = {name: learn_tetris(name, steps, seed) for name in ("spin", "cg", "gaunt")}
    if as_json:
        content = {
            name: {"accuracy": float(r.accuracy), "confusion": r.confusion.tolist(), "odd_error": r.odd_error}
            for name, r in found.items()
        }
        click.echo(json.dumps(content, indent=2))
        return
    rows = [
        [name, f"{r.accuracy:.1%}", "all zero" if r.odd_error is None else f"{r.odd_error:.0e}"]
        for name, r in found.items()
    ]
    _print(["product", "right on unseen turns", "odd readouts of mirror images add up to"], rows, f"{steps} steps")


@click.command()
@click.option("--seed", default=0, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def cross(seed: int, as_json: bool) -> None:
    """Learn cross products from 512 samples with the complete and the Gaunt product."""
    from .shapes import learn_cross_product

    rows: list[dict[str, Any]] = []
    for vectors in (2, 3):
        for spins in ("complete", "gaunt"):
            error, score = learn_cross_product(spins, vectors, seed=seed)
            rows.append({"vectors": vectors, "product": spins, "mse": error, "r2": score})
    if as_json:
        click.echo(json.dumps(rows, indent=2))
        return
    cells = [[str(r["vectors"]), r["product"], f"{r['mse']:.2e}", f"{r['r2']:.4f}"] for r in rows]
    _print(["vectors", "product", "mean squared error", "R²"], cells, "512 samples to learn from, 512 others")


@click.command()
@click.option("--molecules", default=400, show_default=True, help="How many, a quarter of them for the test.")
@click.option("--epochs", default=30, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--product", type=_PRODUCT, default="spin", show_default=True)
def chirality(molecules: int, epochs: int, seed: int, product: str) -> None:
    """Learn R from S on molecules with one stereocentre (needs RDKit)."""
    from .shapes import handed_molecules, learn_molecules

    with _clean_errors():
        items = handed_molecules(molecules, seed)
        cut = len(items) * 3 // 4
        found = learn_molecules(items[:cut], items[cut:], product, epochs=epochs, seed=seed)
    rows = [[product, f"{found.train_accuracy:.1%}", f"{found.accuracy:.1%}", f"{found.flip:.0e}"]]
    _print(["product", "right, seen", "right, unseen", "logits of mirror images add up to"], rows, "")


@click.command()
@click.argument("frames", type=_FILE)
@click.option("--output", "-o", required=True, type=click.Path(path_type=Path), help="The .safetensors file.")
@click.option("--isolated", type=_FILE, help="Frames of single atoms with their energies.")
@click.option("--validation", default=0.1, show_default=True, help="Share of the frames held out.")
@click.option("--epochs", default=50, show_default=True)
@click.option("--channels", default=16, show_default=True)
@click.option("--lmax", default=2, show_default=True)
@click.option("--layers", default=2, show_default=True)
@click.option("--r-max", default=5.0, show_default=True, help="Cutoff, angstrom.")
@click.option("--product", type=_PRODUCT, default="spin", show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--checkpoint", type=click.Path(path_type=Path), help="Save to and go on from this file.")
def train(
    frames: Path, output: Path, isolated: Path | None, validation: float, epochs: int, channels: int, lmax: int,
    layers: int, r_max: float, product: str, seed: int, checkpoint: Path | None,
) -> None:  # fmt: skip
    """Train a force field on FRAMES: extended XYZ or an ASE database, with energies and forces."""
    import torch

    from .atoms import graph_of, isolated_energies, read_frames
    from .nn import SpinForceField
    from .training import TrainingConfig, fit, save, statistics

    with _clean_errors():
        graphs = [graph_of(frame, r_max) for frame in read_frames(frames)]
        known = isolated_energies(read_frames(isolated)) if isolated else {}
        order = torch.randperm(len(graphs), generator=torch.Generator().manual_seed(seed)).tolist()
        held = round(len(graphs) * validation)
        part, rest = [graphs[k] for k in order[:held]], [graphs[k] for k in order[held:]]
        species = sorted({int(z) for graph in graphs for z in graph.numbers})
        torch.manual_seed(seed)
        model = SpinForceField(
            species, r_max, lmax, channels, layers, product=product,
            atomic_energies=[known.get(z, 0.0) for z in species], **statistics(rest),
        )  # fmt: skip
        fit(model, rest, part, TrainingConfig(epochs=epochs, seed=seed), checkpoint=checkpoint)
        save(model, output)
    click.echo(f"{sum(p.numel() for p in model.parameters())} parameters -> {output}")


@click.command()
@click.argument("model", type=_FILE)
@click.argument("frames", type=_FILE)
@click.option("--plot", type=click.Path(path_type=Path), help="Draw predicted against true forces into this file.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def evaluate(model: Path, frames: Path, plot: Path | None, as_json: bool) -> None:
    """Compare a trained MODEL with the energies and forces of FRAMES."""
    from dataclasses import asdict

    from .atoms import collate, graph_of, read_frames
    from .training import evaluate as errors_of
    from .training import load

    with _clean_errors():
        network = load(model)
        graphs = [graph_of(frame, network.r_max) for frame in read_frames(frames)]
        errors = asdict(errors_of(network, graphs))
        if plot is not None:
            from . import plots

            batch = collate(graphs)
            ax = plots.force_parity(batch.forces, network(*batch.inputs())["forces"])
            ax.figure.savefig(plot, dpi=120)
    if as_json:
        click.echo(json.dumps(errors, indent=2))
        return
    units = {"force_mae": "eV/angstrom", "force_rmse": "eV/angstrom", "energy_mae": "eV an atom"}
    rows = [[name, "not labelled" if v is None else f"{v:.5f} {units[name]}"] for name, v in errors.items()]
    _print(["error", ""], rows, f"{len(graphs)} frames")


def _plot_paths(lmax: int, path: Path) -> None:
    from . import plots

    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise SpinTPError("pictures need matplotlib: pip install 'sprigs-spingtp[plot]'") from error
    figure = Figure(figsize=(12, 6), layout="constrained")
    for ax, kind in zip(figure.subplots(1, 2), ("even", "odd"), strict=True):
        plots.path_strengths(lmax, kind, ax)
    figure.savefig(path, dpi=120)


def _print(columns: list[str], rows: list[list[str]], title: str) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(width=None if Console().is_terminal else 110, markup=False, highlight=False)
    table = Table(title=title or None)
    for j, column in enumerate(columns):
        table.add_column(column, justify="left" if j == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table)


commands: list[Any] = [paths, cross, tetris, chirality, train, evaluate]
