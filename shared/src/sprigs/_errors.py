"""Every error the hub raises on its own account.

A `PluginError` belongs to one entry, and says what to do about it: it is written for whoever reads
it in a log, without the source at hand.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sprigs._names import suggestion

if TYPE_CHECKING:
    from sprigs._entries import Entry


class SprigsError(Exception):
    """Base of all errors raised by the hub."""


class UnknownMethod(SprigsError, LookupError):
    """No installed distribution offers a method of this name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        self.known = tuple(sorted(known))
        # All arguments stay in `args`, so that the error survives a trip between processes.
        super().__init__(name, self.known)

    def __str__(self) -> str:
        if not self.known:
            return f"unknown method {self.name!r}: no method is installed in this environment"
        return (
            f"unknown method {self.name!r}{suggestion(self.name, self.known)}\n  `sprigs list` shows what is installed"
        )


class PluginError(SprigsError):
    """One plugin cannot be used.

    `entry` is the entry point it came from, `problem` what went wrong, `fix` what to do, a line for
    each way. The exception that lies underneath, if there is one, is `__cause__`.
    """

    def __init__(self, entry: Entry, problem: str, fix: str) -> None:
        super().__init__(entry, problem, fix)
        self.entry = entry
        self.problem = problem
        self.fix = fix

    def __str__(self) -> str:
        remedies = "\n".join(f"  fix: {line}" for line in self.fix.splitlines())
        return f"{self.entry.label}: {self.problem}\n{remedies}"


class ImportFailed(PluginError):
    """The plugin, or something its card points to, raised while it was imported or called."""


class BadCard(PluginError):
    """The plugin's `sprigs_method` gives no card, or one that does not fit its entry point."""


class BadHook(PluginError):
    """A hook implementation does not fit its specification, or is missing."""


class MissingExport(PluginError):
    """The card does not list this name, or points to something that does not exist."""


class ApiTooNew(PluginError):
    """The plugin was written for a later version of the hub."""


class DuplicateName(PluginError):
    """The name is taken: by a second distribution, or by a command of the command line."""


class MissingExtra(PluginError):
    """An optional dependency of the plugin is not installed."""


class Blocked(PluginError):
    """The plugin is blocked by the host or by SPRIGS_BLOCK."""


class DataUnavailable(SprigsError):
    """A data file is neither in the local mirror nor to be had from its public address."""


class DataMismatch(SprigsError):
    """A data file is there, but its SHA-256 is not the declared one."""


class BenchMismatch(SprigsError):
    """Callables that should be compared do not agree in their results."""
