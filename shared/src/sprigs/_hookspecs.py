"""The hooks of the hub: two that a plugin implements, two that a host may."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    import click

    from sprigs._entries import Entry
    from sprigs._errors import PluginError
    from sprigs._method import Method

PROJECT = "sprigs"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def sprigs_method() -> Method:  # type: ignore[empty-body]
    """Plugin: return the card of the package."""


@hookspec
def sprigs_commands() -> list[click.Command]:  # type: ignore[empty-body]
    """Plugin: return the commands that appear as `sprigs NAME ...`; called when NAME is named."""


@hookspec
def sprigs_loaded(method: Method | None, entry: Entry) -> None:
    """Host: a plugin was loaded; `method` is None where the group asks for no card."""


@hookspec
def sprigs_failed(entry: Entry, error: PluginError) -> None:
    """Host: a plugin failed; it is told once, and the error is kept at the entry."""
