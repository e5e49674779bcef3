"""The registry: which plugins there are, which are loaded, which failed and why."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, NoReturn

from sprigs import _hookspecs, _loading
from sprigs._entries import Entry, discover
from sprigs._errors import BadCard, Blocked, DuplicateName, ImportFailed, PluginError, UnknownMethod
from sprigs._manager import HookManager
from sprigs._method import Method
from sprigs._names import BUILTIN_COMMANDS, normalise

if TYPE_CHECKING:
    import click

GROUP = "sprigs"


@dataclass(frozen=True)
class _Loaded:
    plugin: object
    method: Method | None


class Registry:
    """The plugins of one entry-point group, loaded one at a time.

    Finding out what is installed imports no plugin. A plugin that fails to load is kept as a
    `PluginError` beside its entry, and stands in nobody's way; asking again raises the same error
    without trying again, until `refresh()`. One lock guards loading, so the first load is safe
    from any number of threads; a plugin's module must not wait, while it is imported, for another
    thread that uses the same registry.

    Attributes:
        group: the entry-point group.
        pm: the `pluggy.PluginManager` the plugins are registered with, under their entries' names.
    """

    def __init__(
        self,
        group: str = GROUP,
        *,
        project: str = _hookspecs.PROJECT,
        hookspecs: Iterable[ModuleType | type] = (),
        block: Iterable[str] = (),
        strict: bool | None = None,
        require_card: bool = True,
    ) -> None:
        """Set the registry up; nothing is looked for yet.

        Args:
            group: the entry-point group to read.
            project: pluggy's project name of the host; plugins may use its markers or the hub's.
            hookspecs: modules or classes that hold the host's hook specifications.
            block: names never to load, besides those in SPRIGS_BLOCK.
            strict: raise a plugin's own exception in place of a `PluginError`; None follows
                SPRIGS_STRICT.
            require_card: whether a plugin must implement `sprigs_method`.

        Raises:
            TypeError: `block` is a string.
            ValueError: one of `hookspecs` holds no specification of `project`.
        """
        if isinstance(block, str):
            raise TypeError(f"block must be a list of names, given the string {block!r}")
        self.group = group
        self.pm = HookManager(project, hookspecs)
        self._block = frozenset(map(normalise, block))
        self._strict = strict
        self._require_card = require_card
        self._lock = threading.RLock()
        self._entries: dict[str, Entry] | None = None
        self._loaded: dict[str, _Loaded] = {}
        self._loading: set[str] = set()
        self._told: set[str] = set()

    def methods(self) -> Mapping[str, Entry]:
        """Every entry by name, from metadata alone. SPRIGS_BLOCK is read at the first call."""
        with self._lock:
            if self._entries is None:
                self._entries = self._discover()
            return MappingProxyType(self._entries)

    def entry(self, name: str) -> Entry:
        """The entry of a method, from metadata alone.

        Raises:
            UnknownMethod: nothing installed has this name.
        """
        entries = self.methods()
        try:
            return entries[normalise(name)]
        except KeyError:
            raise UnknownMethod(name, entries) from None

    def get(self, name: str) -> Method:
        """The card of a method; imports the plugin at the first call.

        Raises:
            UnknownMethod: nothing installed has this name.
            PluginError: the plugin is blocked, or cannot be loaded, or carries no card.
        """
        loaded, entry = self._load(name)
        if loaded.method is None:
            raise BadCard(entry, "carries no card", f"use Registry.plugin({entry.name!r}) for this group")
        return loaded.method

    def plugin(self, name: str) -> object:
        """The plugin itself (most often a module), imported and registered with `pm`.

        Raises:
            UnknownMethod: nothing installed has this name.
            PluginError: the plugin is blocked, or cannot be loaded.
        """
        return self._load(name)[0].plugin

    def load(self, name: str, export: str) -> object:
        """What a method exports under a public name; imports the module behind it.

        Raises:
            UnknownMethod: nothing installed has this name.
            MissingExport: the card lists no such name, or points to something missing.
            MissingExtra: the export needs an extra that is not installed.
            PluginError: the plugin or the module behind the export cannot be loaded.
        """
        method = self.get(name)
        if export not in method.exports:
            raise _loading.missing_export(self.entry(name), method, export)
        return self.resolve(name, method.exports[export])

    def resolve(self, name: str, reference: str) -> object:
        """What a `module:attribute` of a method's card stands for.

        A failure here is not kept: the card is good, and an extra may be installed meanwhile.

        Raises:
            UnknownMethod: nothing installed has this name.
            MissingExport, MissingExtra, ImportFailed: as `load` does.
        """
        loaded, entry = self._load(name)
        try:
            return _loading.resolve(entry, reference, _extras(loaded))
        except PluginError as error:
            failure = error
        self._raise(failure)

    def commands(self, name: str) -> list[click.Command]:
        """The click commands of a method, from its `sprigs_commands` hook; imports click.

        Raises:
            UnknownMethod: nothing installed has this name.
            PluginError: the plugin, or its commands, cannot be loaded.
        """
        loaded, entry = self._load(name)
        try:
            return _loading.read_commands(self.pm, entry, loaded.plugin, _extras(loaded))
        except PluginError as error:
            failure = error
        self._raise(failure)

    def load_all(self, *, strict: bool | None = None) -> Mapping[str, PluginError]:
        """Load every plugin that is not blocked; give back those that failed, by name.

        Raises:
            Exception: the first failure, where `strict` (by default the registry's) is true.
        """
        strict = self.strict if strict is None else strict
        for name in self.methods():
            outcome = self._attempt(name)[0]
            if strict and isinstance(outcome, PluginError) and not isinstance(outcome, Blocked):
                self._raise(outcome)
        return self.failures()

    def failures(self) -> Mapping[str, PluginError]:
        """The failures so far, by name. Loads nothing; a blocked plugin is no failure."""
        return {
            name: entry.error
            for name, entry in self.methods().items()
            if entry.error is not None and not isinstance(entry.error, Blocked)
        }

    def refresh(self) -> None:
        """Forget all that was found, loaded or failed, and look anew at the next call.

        A module that was imported stays imported, as Python has it.
        """
        with self._lock:
            for name, loaded in self._loaded.items():
                self.pm.drop(name, loaded.plugin)
            for name, entry in (self._entries or {}).items():
                if isinstance(entry.error, Blocked):
                    self.pm.unblock(name)
            self._loaded.clear()
            self._told.clear()
            self._entries = None
            importlib.invalidate_caches()

    def _discover(self) -> dict[str, Entry]:
        entries = discover(self.group)
        from_environment = os.environ.get("SPRIGS_BLOCK", "").split(",")
        blocked_by_environment = {normalise(name) for name in from_environment if name.strip()}
        for name, entry in entries.items():
            if name in self._block:
                entry.error = Blocked(entry, "is blocked by this application", "ask its maintainers")
            elif name in blocked_by_environment:
                entry.error = Blocked(entry, "is blocked by SPRIGS_BLOCK", f"take {name} out of SPRIGS_BLOCK")
            elif self.group == GROUP and name in BUILTIN_COMMANDS:
                entry.error = DuplicateName(
                    entry,
                    f"the name is taken by the command `sprigs {name}`",
                    f"rename the entry point of {entry.distribution}\npip uninstall {entry.distribution}",
                )
            if isinstance(entry.error, Blocked):
                self.pm.set_blocked(name)
        return entries

    def _load(self, name: str) -> tuple[_Loaded, Entry]:
        outcome, entry = self._attempt(name)
        if isinstance(outcome, PluginError):
            self._raise(outcome)
        return outcome, entry

    def _attempt(self, name: str) -> tuple[_Loaded | PluginError, Entry]:
        """Load a plugin unless that was tried before; tell the host of a new outcome."""
        with self._lock:
            entry = self.entry(name)
            if entry.name in self._loaded:
                return self._loaded[entry.name], entry
            if entry.name in self._loading:
                # Not kept: the import that is under way decides.
                problem = "asks the registry for itself while it is being imported"
                return ImportFailed(entry, problem, "import the module it wants directly"), entry
            if entry.error is None:
                try:
                    loaded = self._load_new(entry)
                except PluginError as error:
                    entry.error = error
                else:
                    self._loaded[entry.name] = loaded
                    self._tell("sprigs_loaded", method=loaded.method, entry=entry)
                    return loaded, entry
            if entry.name not in self._told and not isinstance(entry.error, Blocked):
                self._told.add(entry.name)
                self._tell("sprigs_failed", entry=entry, error=entry.error)
            return entry.error, entry

    def _load_new(self, entry: Entry) -> _Loaded:
        self._loading.add(entry.name)
        plugin: object = None
        done = False
        try:
            plugin = _loading.import_plugin(entry)
            _loading.register(self.pm, entry, plugin)
            method = _loading.read_card(self.pm, entry, plugin, required=self._require_card)
            done = True
            return _Loaded(plugin, method)
        finally:
            self._loading.discard(entry.name)
            if not done:
                self.pm.drop(entry.name, plugin)

    def _tell(self, hook: str, **arguments: object) -> None:
        # The host alone is told: an error in one plugin's own handler would fall on the others.
        plugins = [loaded.plugin for loaded in self._loaded.values()]
        deaf = [plugin for plugin in plugins if self.pm.implementation(plugin, hook)]
        self.pm.subset_hook_caller(hook, remove_plugins=deaf)(**arguments)

    @property
    def strict(self) -> bool:
        """Whether a plugin's own exceptions are raised in place of a `PluginError`."""
        if self._strict is not None:
            return self._strict
        return os.environ.get("SPRIGS_STRICT", "").lower() not in ("", "0", "false", "no")

    def _raise(self, error: PluginError) -> NoReturn:
        if self.strict and error.__cause__ is not None:
            raise error.__cause__
        # A kept error would otherwise gather the frames of everybody who met it.
        raise error.with_traceback(None)


def _extras(loaded: _Loaded) -> Mapping[str, tuple[str, ...]]:
    return {} if loaded.method is None else loaded.method.extras


_DEFAULT = Registry()


def registry() -> Registry:
    """The registry of the group `sprigs` that the functions of this package and its CLI use."""
    return _DEFAULT


def methods() -> Mapping[str, Entry]:
    """`Registry.methods` of the default registry."""
    return _DEFAULT.methods()


def get(name: str) -> Method:
    """`Registry.get` of the default registry."""
    return _DEFAULT.get(name)


def load(name: str, export: str) -> object:
    """`Registry.load` of the default registry."""
    return _DEFAULT.load(name, export)
