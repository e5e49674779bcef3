"""Arguments that several commands take."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from sprigs.cli._app import registry_of

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

F = TypeVar("F", bound=Callable[..., object])


def complete_method(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of installed methods, with their summaries, from metadata alone."""
    from click.shell_completion import CompletionItem

    entries = registry_of(context).methods()
    return [CompletionItem(name, help=entry.summary) for name, entry in entries.items() if name.startswith(incomplete)]


def method_argument(function: F) -> F:
    """The argument NAME, completed by the shell."""
    return click.argument("name", shell_complete=complete_method)(function)


def json_option(function: F) -> F:
    """The option --json."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(function)
