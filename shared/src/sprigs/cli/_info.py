"""`sprigs info NAME`."""

from __future__ import annotations

import traceback
from importlib.util import find_spec

import click

from sprigs import Entry, Method, PluginError
from sprigs._entries import error_dict
from sprigs.cli._app import EXIT_PLUGIN, registry_of
from sprigs.cli._arguments import json_option, method_argument
from sprigs.cli._output import new_table, print_json, print_table


@click.command("info")
@method_argument
@json_option
@click.pass_context
def command(context: click.Context, name: str, as_json: bool) -> None:
    """Show what a method offers: its metadata and its card."""
    registry = registry_of(context)
    entry = registry.entry(name)
    method: Method | None = None
    failure: PluginError | None = None
    try:
        method = registry.get(name)
    except PluginError as error:
        failure = error
    except SystemExit as exit_of_plugin:
        # Strict: the plugin's own exception comes through, and this one would end us in silence.
        traceback.print_exception(exit_of_plugin)
        context.exit(EXIT_PLUGIN)
    if as_json:
        card = None if method is None else method.to_dict()
        print_json(
            {
                **entry.to_dict(),
                "error": error_dict(failure),
                "card": card,
                "missing_imports": {} if method is None else missing_imports(method),
            }
        )
    else:
        table = new_table("", "")
        table.show_header = False
        for label, text in _rows(entry, method):
            table.add_row(label, text)
        print_table(table)
    if failure is not None:
        click.echo(f"Error: {failure}", err=True)
        context.exit(EXIT_PLUGIN)


def missing_imports(method: Method) -> dict[str, list[str]]:
    """Extra -> the import names it provides that are not installed; empty extras are left out."""
    missing = {
        extra: [name for name in imports if find_spec(name.partition(".")[0]) is None]
        for extra, imports in method.extras.items()
    }
    return {extra: names for extra, names in missing.items() if names}


def _rows(entry: Entry, method: Method | None) -> list[tuple[str, str]]:
    rows = [
        ("name", entry.name),
        ("distribution", f"{entry.distribution} {entry.version}" + " (editable)" * entry.editable),
        ("summary", entry.summary),
        *((label.lower(), address) for label, address in entry.links.items()),
    ]
    if method is None:
        return rows
    rows.append(("title", method.title))
    if method.paper is not None:
        rows.append(("paper", f"{method.paper.title} ({method.paper.venue}), {method.paper.url}"))
    rows.append(("exports", ", ".join(sorted(method.exports))))
    if method.capabilities:
        rows.append(("can", ", ".join(method.capabilities)))
    missing = missing_imports(method)
    for extra, imports in method.extras.items():
        state = f": pip install '{entry.distribution}[{extra}]'" if extra in missing else ": there"
        rows.append((f"extra {extra}", f"{', '.join(imports)}{state}"))
    offers = [word for word in ("demo", "claims", "bench") if getattr(method, word) is not None]
    if offers:
        rows.append(("try", ", ".join(f"sprigs {word} {entry.name}" for word in offers)))
    return rows
