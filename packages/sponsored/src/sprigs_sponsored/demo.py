"""The first thing a user runs: mechanisms compared on families and on ambiguous queries."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click
import numpy as np

from .equilibrium import poa, sponsor_bid, sponsor_loss
from .experiments import query_experiment, topics_at_hand
from .families import engagement, intents
from .instance import Instance
from .mechanisms import JointVCG, Modular, Redistribution
from .simulation import MECHANISMS, SimulationConfig, simulate
from .tables import recommend


@click.command()
@click.option(
    "--output", "-o", default="sponsored-demo.png", show_default=True, type=click.Path(path_type=Path),
    help="The picture.",
)  # fmt: skip
@click.option("--draws", default=5, show_default=True, help="Draws of values for each query.")
def demo(output: Path, draws: int) -> None:
    """Sell clarifying prompts apart from the ads, or together? Families, real queries, a hundred thousand auctions."""
    from rich.console import Console

    began = time.perf_counter()
    console = Console(width=None if Console().is_terminal else 110, markup=False, highlight=False)

    console.rule("Two families")
    console.print(
        "engagement (V = 1, eps = 0.1): the contested question leaves its rivals nothing, so nobody buys it.\n"
        "intents (m = 8): nobody leaves, and still only the idle question earns anybody anything."
    )
    for name, instance in (("engagement", engagement(1, 0.1)), ("intents", intents(8))):
        console.print(_mechanism_table(name, instance))

    console.rule("Every pure equilibrium, not only the reference bids")
    console.print(_anarchy_table())

    source, topics = topics_at_hand()
    console.rule(f"{len(topics)} ambiguous queries ({source}), 8 advertisers")
    experiments = [query_experiment(v, topics=topics, source=source, draws=draws) for v in ("random", "rivals")]
    console.print(_query_table(experiments))
    if source != "Qulac":
        console.print("The queries are generated: Qulac's are fetched with pooch (pip install 'sprigs[data]').")

    console.rule("A hundred thousand random auctions")
    result = simulate(SimulationConfig(), 100_000, progress=False)
    console.print(_simulation_table(result))

    try:
        _plot(output, experiments, result)
        console.print(f"Picture: {output}")
    except ModuleNotFoundError:
        console.print("For the picture: pip install 'sprigs-sponsored[plot]'")
    console.print(f"{time.perf_counter() - began:.1f} s")


def _table(columns: list[str]) -> Any:
    from rich.table import Table

    table = Table()
    for j, column in enumerate(columns):
        table.add_column(column, justify="left" if j == 0 else "right", overflow="fold")
    return table


def _mechanism_table(name: str, instance: Instance) -> Any:
    table = _table([name, "question", "welfare", "revenue", "advertisers", "W* / W"])
    advice = recommend(instance)
    best = advice.best.welfare
    for mechanism, question, welfare, revenue, surplus, _ in advice.rows():
        ratio = "inf" if welfare <= 0 else f"{best / welfare:.3f}"
        table.add_row(mechanism, question, f"{welfare:.4f}", f"{revenue:.4f}", f"{surplus:.4f}", ratio)
    return table


def _anarchy_table() -> Any:
    table = _table(
        ["first stage", "price of anarchy", "equilibria", "messages each", "sponsor of value 0.4 bids", "loss"]
    )
    instance, grid = engagement(1, 0.1), np.arange(1, 41) / 40
    rules: list[Modular] = [
        Modular(),
        Modular(price1="first_price"),
        Modular(price1="all_pay"),
        Modular("public_vcg"),
        Modular("public_first_price"),
        *(Modular(redistribution=Redistribution(rho)) for rho in (0.1, 0.25, 1.0)),
    ]
    for rule in rules:
        found = poa(instance, rule, grid)
        rho = rule.redistribution.rho if rule.redistribution else 0.0
        messages = rule.run(instance).messages
        table.add_row(
            rule.name, f"{found.value:.2f}", str(found.count), str(messages), f"{sponsor_bid(0.4, rho):.2f}",
            f"{sponsor_loss(rho):.4f}",
        )  # fmt: skip
    joint = JointVCG().run(instance)
    table.add_row("joint VCG", "1.00", "truthful", str(joint.messages), "0.40", "0.0000")
    return table


def _query_table(experiments: list[Any]) -> Any:
    table = _table(["welfare, share of full information", *experiments[0].names])
    for e in experiments:
        cells = [f"{m:.3f} ± {s:.3f}" for m, s in zip(e.mean, e.standard_error, strict=True)]
        table.add_row(f"values: {e.values}", *cells)
        table.add_row("   worst query", *(f"{x:.3f}" for x in e.shares.min(axis=(0, 1))))
    return table


def _simulation_table(result: Any) -> Any:
    table = _table(["mechanism", "welfare", "revenue", "advertisers", "of full information"])
    for name, metrics in result.summary().items():
        cells = [f"{m:.4f} ± {s:.4f}" for m, s in metrics.values()]
        table.add_row(name, *cells)
    return table


def _plot(path: Path, experiments: list[Any], result: Any) -> None:
    from matplotlib.figure import Figure

    from . import plots

    figure = Figure(figsize=(13, 9), layout="constrained")
    (a, b), (c, d) = figure.subplots(2, 2)
    plots.poa_curve(a)
    plots.rebate_tradeoff(b)
    rivals = experiments[1]
    plots.welfare_cdf(rivals.shares.reshape(-1, len(rivals.names)), rivals.names, c)
    c.set(title=f"{rivals.source} queries, two rivals an intent")
    y = np.arange(len(MECHANISMS))
    d.barh(y, result.mean[:, 1], label="revenue")
    d.barh(y, result.mean[:, 2], left=result.mean[:, 1], label="advertisers")
    d.set(yticks=y, yticklabels=MECHANISMS, xlabel="welfare", title=f"{result.n_auctions} random auctions")
    d.invert_yaxis()
    d.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
