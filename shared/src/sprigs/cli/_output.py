"""Printing: tables that are never cut, and JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.table import Table

# Wider than any line: for output that goes into a file or a pipe.
_UNBOUNDED = 100_000


def new_table(*headings: str) -> Table:
    """A table whose cells wrap between and inside words, and lose nothing."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def print_table(table: Table) -> None:
    """Print a table: as wide as the terminal, as wide as its cells elsewhere."""
    from rich.console import Console

    # No markup, no emoji codes: cells hold other people's text.
    console = Console(markup=False, highlight=False, emoji=False)
    if not console.is_terminal:
        console = Console(markup=False, highlight=False, emoji=False, width=_UNBOUNDED)
    console.print(table)


def print_json(content: object) -> None:
    """Print JSON, indented."""
    click.echo(to_json(content))


def to_json(content: object) -> str:
    """JSON, indented; ASCII alone, so that no terminal stumbles over it."""
    return json.dumps(content, indent=2)
