"""The first thing a user runs: Tetris, learnt by the complete product and by Gaunt's."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click


@click.command()
@click.option(
    "--output", "-o", default="spingtp-demo.png", show_default=True, type=click.Path(path_type=Path),
    help="The picture.",
)  # fmt: skip
@click.option("--steps", default=150, show_default=True, help="Training steps of each network.")
@click.option("--seed", default=0, show_default=True)
def demo(output: Path, steps: int, seed: int) -> None:
    """Eight Tetris shapes, two of them mirror images: which product of features can tell those apart?"""
    import torch
    from rich.console import Console

    from .shapes import SHAPES, learn_cross_product, learn_tetris
    from .three_j import kappa, paths

    began = time.perf_counter()
    torch.set_num_threads(min(2, torch.get_num_threads()))
    console = Console(width=None if Console().is_terminal else 110, markup=False, highlight=False)

    console.rule("Paths")
    found = paths(6, 6, 6)
    lost = [p for p in found if sum(p) % 2]
    weakest = min(kappa(*p) for p in found)
    console.print(
        f"Up to degree 6 there are {len(found)} Clebsch-Gordan paths. The Gaunt product loses the {len(lost)}"
        f" antisymmetric ones; here none is weaker than {weakest:.3f}."
    )

    console.rule("A cross product, from 512 samples")
    table = _table(["sum of r_i x r_j over", "complete: mean squared error", "Gaunt: mean squared error", "Gaunt: R²"])
    for vectors in (2, 3):
        mine, _ = learn_cross_product("complete", vectors, seed=seed)
        theirs, score = learn_cross_product("gaunt", vectors, seed=seed)
        table.add_row(f"{vectors} vectors", f"{mine:.1e}", f"{theirs:.3f}", f"{score:.3f}")
    console.print(table)

    console.rule("Tetris, turned at random; 3 layers, 8 channels, degrees up to 2")
    results = {name: learn_tetris(name, steps, seed) for name in ("gaunt", "spin")}
    table = _table(["product", "right on unseen turns", "chiral pair", "odd readout of mirror images adds up to"])
    for name, result in results.items():
        pair = result.confusion[:2, :2].trace() / result.confusion[:2].sum()
        flip = "(all zero)" if result.odd_error is None else f"{result.odd_error:.0e}"
        table.add_row({"gaunt": "Gaunt", "spin": "complete"}[name], f"{result.accuracy:.1%}", f"{pair:.0%}", flip)
    console.print(table)
    for name, result in results.items():
        console.print(f"{ {'gaunt': 'Gaunt', 'spin': 'complete'}[name] }: shape down, taken for across")
        console.print(_confusion(result.confusion, list(SHAPES)))

    try:
        _plot(output, results)
        console.print(f"Picture: {output}")
    except ModuleNotFoundError:
        console.print("For the picture: pip install 'sprigs-spingtp[plot]'")
    console.print(f"{time.perf_counter() - began:.1f} s")


def _table(columns: list[str]) -> Any:
    from rich.table import Table

    table = Table()
    for j, column in enumerate(columns):
        table.add_column(column, justify="left" if j == 0 else "right", overflow="fold")
    return table


def _confusion(counts: Any, names: list[str]) -> Any:
    table = _table(["", *names])
    for name, row in zip(names, counts, strict=True):
        table.add_row(name, *(str(n) if n else "." for n in row))
    return table


def _plot(path: Path, results: dict[str, Any]) -> None:
    from matplotlib.figure import Figure

    from . import plots
    from .shapes import SHAPES

    figure = Figure(figsize=(13, 9.5), layout="constrained")
    names = list(SHAPES)
    plots.confusion(results["gaunt"].confusion, names, figure.add_subplot(2, 2, 1), title="Gaunt product")
    plots.confusion(results["spin"].confusion, names, figure.add_subplot(2, 2, 2), title="Complete product")
    plots.path_strengths(4, "odd", figure.add_subplot(2, 2, 3))
    plots.spin_quiver(3, 2, figure.add_subplot(2, 2, 4, projection="3d"))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
