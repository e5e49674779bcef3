"""The first thing a user runs."""

from __future__ import annotations

import click
import numpy as np

from .means import running_mean


@click.command()
@click.option("--n", default=8, show_default=True, help="How many numbers.")
def demo(n: int) -> None:
    """Show running means of random numbers settling."""
    x = np.random.default_rng(0).normal(loc=5, size=n)
    for value, mean in zip(x, running_mean(x), strict=True):
        click.echo(f"{value:8.3f}  mean so far {mean:8.3f}")
