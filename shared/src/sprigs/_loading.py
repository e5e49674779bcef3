"""The steps of loading one plugin, each of which turns what goes wrong into a `PluginError`.

`SystemExit` counts as a failure of the plugin: a module that calls `sys.exit()` while it is
imported must not end its host. `KeyboardInterrupt` and the rest of `BaseException` pass through.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import pluggy

from sprigs._errors import (
    ApiTooNew,
    BadCard,
    BadHook,
    ImportFailed,
    MissingExport,
    MissingExtra,
    PluginError,
)
from sprigs._hookspecs import PROJECT
from sprigs._method import API_VERSION, Method
from sprigs._names import suggestion

if TYPE_CHECKING:
    import click

    from sprigs._entries import Entry
    from sprigs._manager import HookManager

Extras = Mapping[str, tuple[str, ...]]


def import_plugin(entry: Entry) -> object:
    """Import what the entry point names.

    Raises:
        ImportFailed: the import raised, or the module lacks the attribute.
    """
    try:
        return entry.point.load()
    except (Exception, SystemExit) as cause:
        raise ImportFailed(entry, f"cannot be imported: {describe(cause)}", remedies(entry)) from cause


def register(manager: HookManager, entry: Entry, plugin: object) -> None:
    """Register a plugin with pluggy under the name of its entry.

    Raises:
        BadHook: a hook has the wrong arguments or no specification, or the same plugin object
            is registered already. The manager is then as it was before.
    """
    try:
        manager.register(plugin, name=entry.name)
    except (pluggy.PluginValidationError, ValueError) as cause:
        manager.drop(entry.name, plugin)
        raise BadHook(entry, f"does not fit the hooks: {' '.join(str(cause).split())}", remedies(entry)) from cause
    if unknown := manager.unspecified_hooks(plugin):
        manager.drop(entry.name, plugin)
        hint = suggestion(unknown[0], manager.specified_hooks())
        raise BadHook(entry, f"implements the unknown hook {unknown[0]!r}{hint}", remedies(entry))


def read_card(manager: HookManager, entry: Entry, plugin: object, *, required: bool) -> Method | None:
    """Ask a registered plugin for its card, and check that the card fits the entry.

    Raises:
        BadHook: the plugin implements no `sprigs_method`, and a card is required.
        BadCard: what `sprigs_method` returns is no card, or the card of another name.
        ApiTooNew: the card was written for a later hub.
    """
    implementation = manager.implementation(plugin, "sprigs_method")
    if implementation is None:
        if not required:
            return None
        raise BadHook(
            entry,
            f"{entry.value} implements no `sprigs_method` hook (is it marked @sprigs.hookimpl?)",
            remedies(entry),
        )
    try:
        card = implementation.function()
    except (Exception, SystemExit) as cause:
        fix = f"pip install --upgrade {PROJECT} {entry.distribution}\n{remedies(entry)}"
        raise BadCard(entry, f"sprigs_method() raised {describe(cause)}", fix) from cause
    if not isinstance(card, Method):
        raise BadCard(
            entry,
            f"sprigs_method() must return a sprigs.Method, it returned a {type(card).__name__}",
            remedies(entry),
        )
    if card.api > API_VERSION:
        raise ApiTooNew(
            entry,
            f"needs API {card.api} of {PROJECT}, this one has API {API_VERSION}",
            f"pip install --upgrade {PROJECT}\n{_leave_out(entry)}",
        )
    if card.name != entry.name:
        raise BadCard(
            entry,
            f"the card is named {card.name!r}, its entry point {entry.name!r}",
            remedies(entry),
        )
    return card


def resolve(entry: Entry, reference: str, extras: Extras) -> object:
    """Import `module:attribute`.

    Raises:
        MissingExport: there is no such module, or no such attribute in it.
        MissingExtra: the module needs an extra that is not installed.
        ImportFailed: the module raised while it was imported.
    """
    module_name, _, path = reference.partition(":")
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as cause:
        if cause.name is not None and f"{module_name}.".startswith(f"{cause.name}."):
            raise MissingExport(
                entry,
                f"the card points to {reference!r}, and there is no module {cause.name!r}",
                remedies(entry),
            ) from cause
        raise called_failure(entry, f"importing {module_name}", cause, extras) from cause
    except (Exception, SystemExit) as cause:
        raise called_failure(entry, f"importing {module_name}", cause, extras) from cause
    for attribute in path.split("."):
        try:
            found = getattr(found, attribute)
        except AttributeError as cause:
            raise MissingExport(
                entry,
                f"the card points to {reference!r}, and {module_name} has no {attribute!r}",
                remedies(entry),
            ) from cause
        except (Exception, SystemExit) as cause:
            # A lazy attribute imports its module only here.
            raise called_failure(entry, f"importing {reference}", cause, extras) from cause
    return found


def read_commands(manager: HookManager, entry: Entry, plugin: object, extras: Extras) -> list[click.Command]:
    """Ask a registered plugin for its commands; a plugin without the hook has none.

    Raises:
        BadHook: the result is not a list of `click.Command` with names of their own.
        MissingExtra: the commands need an extra that is not installed.
        ImportFailed: the hook raised.
    """
    import click

    implementation = manager.implementation(plugin, "sprigs_commands")
    if implementation is None:
        return []
    try:
        commands = implementation.function()
    except (Exception, SystemExit) as cause:
        raise called_failure(entry, "sprigs_commands()", cause, extras) from cause
    if not isinstance(commands, (list, tuple)) or not all(isinstance(command, click.Command) for command in commands):
        raise BadHook(
            entry,
            f"sprigs_commands() must return a list of click.Command, it returned {commands!r}",
            remedies(entry),
        )
    names = [command.name for command in commands]
    if None in names or len(set(names)) < len(names):
        raise BadHook(
            entry,
            f"sprigs_commands() must give every command a name of its own, it gave {names}",
            remedies(entry),
        )
    return list(commands)


def called_failure(entry: Entry, what: str, cause: BaseException, extras: Extras) -> MissingExtra | ImportFailed:
    """The error for an exception that came out of a plugin's code after its card was read."""
    for error in _chain(cause):
        if not isinstance(error, ModuleNotFoundError) or not error.name:
            continue
        missing = error.name.partition(".")[0]
        for extra, imports in extras.items():
            if missing in {name.partition(".")[0] for name in imports}:
                return MissingExtra(
                    entry,
                    f"{what} needs {missing!r}, which comes with the extra {extra!r}",
                    f"pip install '{entry.distribution}[{extra}]'",
                )
    return ImportFailed(entry, f"{what} failed: {describe(cause)}", remedies(entry))


def missing_export(entry: Entry, method: Method, export: str) -> PluginError:
    """The error for a name that a card does not list."""
    listed = ", ".join(sorted(method.exports)) or "nothing"
    return MissingExport(
        entry,
        f"exports no {export!r}{suggestion(export, method.exports)}; it exports {listed}",
        f"pip install --upgrade {entry.distribution}, should a later version have it",
    )


def describe(error: BaseException) -> str:
    """An exception on one line."""
    if isinstance(error, SystemExit):
        return f"it called sys.exit({error.code!r})"
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}" if lines[0] else type(error).__name__


def remedies(entry: Entry) -> str:
    """What to do about a plugin that is broken through no fault of the user."""
    lines = [f"pip install --upgrade {entry.distribution}", _leave_out(entry)]
    if entry.group == PROJECT:
        lines.append(f"SPRIGS_STRICT=1 sprigs info {entry.name}   (shows the traceback)")
    else:
        lines.append("SPRIGS_STRICT=1 raises the original error, with its traceback")
    return "\n".join(lines)


def _leave_out(entry: Entry) -> str:
    return f"pip uninstall {entry.distribution}, or SPRIGS_BLOCK={entry.name} to leave it out"


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__
