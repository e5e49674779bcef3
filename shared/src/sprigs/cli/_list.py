"""`sprigs list`."""

from __future__ import annotations

import click

from sprigs.cli._app import registry_of
from sprigs.cli._arguments import json_option
from sprigs.cli._output import new_table, print_json, print_table


@click.command("list")
@json_option
@click.pass_context
def command(context: click.Context, as_json: bool) -> None:
    """List the installed methods, without importing any."""
    entries = registry_of(context).methods()
    if as_json:
        print_json([entry.to_dict() for entry in entries.values()])
        return
    if not entries:
        click.echo("no method is installed in this environment")
        return
    table = new_table("name", "version", "distribution", "summary", "")
    for entry in entries.values():
        state = "" if entry.error is None else type(entry.error).__name__
        table.add_row(entry.name, entry.version, entry.distribution, entry.summary, state)
    print_table(table)
    for entry in entries.values():
        if entry.error is not None:
            click.echo(str(entry.error), err=True)
