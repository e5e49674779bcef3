"""The commands `sprigs sponsored ...`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np

import sprigs

from .errors import SponsoredError

_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
_FAMILIES = ("engagement", "intents", "free-rider")


@contextmanager
def _clean_errors() -> Iterator[None]:
    try:
        yield
    except (SponsoredError, sprigs.DataUnavailable, OSError) as error:
        raise click.ClickException(str(error)) from error


@click.command()
@click.argument("config", type=_FILE)
@click.option("--auctions", "-n", default=100_000, show_default=True, help="How many.")
@click.option("--seed", default=0, show_default=True)
@click.option(
    "--backend", type=click.Choice(["auto", "numpy", "numba", "jax", "cupy"]), default="auto", show_default=True
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def simulate(config: Path, auctions: int, seed: int, backend: Any, as_json: bool) -> None:
    """Simulate auctions drawn as CONFIG (TOML) says, under every mechanism."""
    from .simulation import METRICS, SimulationConfig
    from .simulation import simulate as run

    with _clean_errors():
        result = run(SimulationConfig.from_toml(config), auctions, seed, backend=backend, keep=False)
    if as_json:
        click.echo(json.dumps({"auctions": result.n_auctions, "seed": seed, "summary": result.summary()}, indent=2))
        return
    rows = [
        [name, *(f"{mean:.5f} ± {error:.5f}" for mean, error in metrics.values())]
        for name, metrics in result.summary().items()
    ]
    _print(["mechanism", *METRICS], rows, f"{result.n_auctions} auctions, {result.backend}; ± standard error")


@click.command()
@click.option("--family", type=click.Choice(_FAMILIES), default="engagement", show_default=True)
@click.option("--step", default=0.05, show_default=True, help="Of the bid grid, up to the largest value.")
@click.option("--rho", default=0.0, show_default=True, help="Share of revenue handed to the sponsor.")
@click.option(
    "--refinement", type=click.Choice(["no_overbidding", "undominated", "none"]), default="no_overbidding",
    show_default=True, help="Which bids are allowed.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def poa(family: str, step: float, rho: float, refinement: Any, as_json: bool) -> None:
    """Price of anarchy of modular mechanisms on a family of instances, over its parameter."""
    from .equilibrium import poa as price
    from .families import engagement, free_rider, intents
    from .mechanisms import Modular, Redistribution

    rows = []
    with _clean_errors():
        for x in (2, 4, 8):
            if family == "engagement":
                instance, label, closed = engagement(1, 1 / x), f"V/eps = {x}", float(x)
            elif family == "intents":
                instance, label, closed = intents(x), f"m = {x}", 0.999 / (0.001 / x + 0.999 / x)
            else:
                instance, label, closed = free_rider(x), f"n = {x}", x / 1.1
            mechanism = Modular(redistribution=Redistribution(rho) if rho else None)
            truthful = price(instance, mechanism, (), concept="truthful").value
            found: Any = None
            if instance.n_advertisers <= 3:
                grid = np.arange(step, 1 + step / 2, step)
                found = price(instance, mechanism, grid, refinement=refinement)
            rows.append((label, closed, truthful, found))
    if as_json:
        content = [
            {"instance": a, "closed_form": b, "truthful": c, "pure": None if d is None else _plain(d.__dict__)}
            for a, b, c, d in rows
        ]
        click.echo(json.dumps(content, indent=2))
        return
    table = [
        [
            a,
            f"{b:.3f}",
            f"{c:.3f}",
            "(too many profiles)" if d is None else d.reason or f"{d.value:.3f} ({d.count} equilibria)",
        ]
        for a, b, c, d in rows
    ]
    _print(["instance", "closed form", "reference bids", f"pure equilibria, {refinement}"], table, f"rho = {rho:g}")


@click.command()
@click.argument("file", type=_FILE)
@click.option(
    "--method",
    type=click.Choice(["auto", "enumerate", "cuda", "bnb", "milp", "greedy"]),
    default="auto",
    show_default=True,
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def slate(file: Path, method: Any, as_json: bool) -> None:
    """Choose the prompts to show. FILE is JSON with prior, prompts, values, k and, if not mnl, model."""
    from .slates import SlateInstance, solve_slate

    with _clean_errors():
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            known = {"prior", "prompts", "values", "k", "model"}
            if not isinstance(content, dict) or not {"prior", "prompts", "values", "k"} <= set(content) <= known:
                raise SponsoredError(f"{file} must hold prior, prompts, values, k and, at most, model")
            found = solve_slate(SlateInstance(**content), method)
        except (json.JSONDecodeError, UnicodeDecodeError, TypeError) as error:
            raise SponsoredError(f"{file}: {error}") from error
    if as_json:
        plain = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in found.__dict__.items()}
        click.echo(json.dumps(plain, indent=2))
        return
    paid = "" if found.payments is None else ", ".join(f"{p:.4g}" for p in found.payments)
    _print(
        ["", ""],
        [
            ["prompts", ", ".join(map(str, found.slate)) or "(none)"],
            ["welfare", f"{found.welfare:.6g}"],
            ["no slate has more than", f"{found.bound:.6g} (gap {100 * found.gap:.2g} %)"],
            ["VCG payments", paid or "(not with greedy)"],
            ["looked at", f"{found.nodes} of {found.total} slates, {found.method}"],
        ],
        "",
    )


@click.command()
@click.argument("advertisers", type=_FILE)
@click.option("--prior", required=True, type=_FILE, help="CSV: intent, probability.")
@click.option("--answers", required=True, type=_FILE, help="CSV: question, intent, signal, probability.")
@click.option("--rho", default=1.0, show_default=True, help="Share of revenue that rebates hand back.")
@click.option("--reserve", default=0.0, show_default=True, help="What an ad must be worth to be shown.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def recommend(advertisers: Path, prior: Path, answers: Path, rho: float, reserve: float, as_json: bool) -> None:
    """Say what to ask, and whether to sell it with the ads. ADVERTISERS is CSV: advertiser, a column each intent."""
    from .tables import read_instance
    from .tables import recommend as advise

    with _clean_errors():
        advice = advise(read_instance(advertisers, prior, answers, reserve=reserve), rho=rho)
    if as_json:
        names = ("mechanism", "question", "welfare", "revenue", "surplus", "share")
        rows = [dict(zip(names, row, strict=True)) for row in advice.rows()]
        click.echo(json.dumps({"verdict": advice.verdict, "mechanisms": rows}, indent=2))
        return
    _print(
        ["mechanism", "question", "welfare", "revenue", "advertisers", "of full information"],
        [[m, q, f"{w:.4g}", f"{r:.4g}", f"{s:.4g}", f"{100 * x:.1f} %"] for m, q, w, r, s, x in advice.rows()],
        "",
    )
    joint = advice.best
    for i, (pivot, ad) in enumerate(zip(joint.detail["pivot"], joint.detail["ad_payment"], strict=True)):
        if pivot > 1e-12 or ad > 1e-12:
            name = advice.instance.name("advertiser", i)
            click.echo(f"joint VCG: {name} pays {pivot:.4g} for the question and {ad:.4g} for ads, expected")
    click.echo(advice.verdict)


def _plain(content: dict[str, Any]) -> dict[str, Any]:
    """Replace what JSON has no number for: no value is null, an infinite one a string."""
    infinite = {k: "inf" for k, v in content.items() if isinstance(v, float) and math.isinf(v)}
    absent = {k: None for k, v in content.items() if isinstance(v, float) and math.isnan(v)}
    return {**content, **infinite, **absent}


def _print(columns: list[str], rows: list[list[str]], caption: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(caption=caption or None, show_header=any(columns))
    for j, column in enumerate(columns):
        table.add_column(column, justify="left" if j == 0 else "right", overflow="fold")
    for row in rows:
        table.add_row(*row)
    Console(width=None if Console().is_terminal else 120, markup=False, highlight=False).print(table)


commands: list[click.Command] = [poa, recommend, simulate, slate]
