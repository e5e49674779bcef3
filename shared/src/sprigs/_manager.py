"""pluggy's manager, for a host's own hooks and the hub's side by side."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

import pluggy

from sprigs import _hookspecs


class HookManager(pluggy.PluginManager):
    """A `pluggy.PluginManager` of any project that also knows the markers of `sprigs`.

    So a host keeps its own project name and markers, and its plugins may still carry a card.
    """

    def __init__(self, project: str, hookspecs: Iterable[ModuleType | type] = ()) -> None:
        """Add the hub's specifications, then each of `hookspecs` (modules or classes).

        Raises:
            ValueError: one of `hookspecs` holds no specification of `project`.
        """
        super().__init__(project)
        # Used as a reader of marks alone; nothing is ever registered with it.
        self._sprigs_marks = pluggy.PluginManager(_hookspecs.PROJECT)
        self.add_hookspecs(_hookspecs)
        for specification in hookspecs:
            self.add_hookspecs(specification)

    def parse_hookimpl_opts(self, plugin: object, name: str) -> pluggy.HookimplOpts | None:
        """Read the mark of either project; never wake a lazy attribute of a module."""
        if isinstance(plugin, ModuleType) and name not in vars(plugin):
            return None
        own = super().parse_hookimpl_opts(plugin, name)
        return own if own is not None else self._sprigs_marks.parse_hookimpl_opts(plugin, name)

    def parse_hookspec_opts(self, module_or_class: ModuleType | type, name: str) -> pluggy.HookspecOpts | None:
        """Read the mark of either project."""
        own = super().parse_hookspec_opts(module_or_class, name)
        if own is not None:
            return own
        return self._sprigs_marks.parse_hookspec_opts(module_or_class, name)

    def drop(self, name: str, plugin: object) -> None:
        """Take a plugin out if it is there, whole or half registered."""
        if plugin is not None and self.get_plugin(name) is plugin:
            self.unregister(name=name)

    def implementation(self, plugin: object, hook: str) -> pluggy.HookImpl | None:
        """The plugin's own implementation of a hook, if it has one."""
        for found in getattr(self.hook, hook).get_hookimpls():
            if found.plugin is plugin:
                return found  # type: ignore[no-any-return]
        return None

    def unspecified_hooks(self, plugin: object) -> list[str]:
        """Hooks a plugin implements that nobody specified: most often a misspelt name."""
        return [
            caller.name
            for caller in self.get_hookcallers(plugin) or ()
            if not caller.has_spec() and any(i.plugin is plugin and not i.optionalhook for i in caller.get_hookimpls())
        ]

    def specified_hooks(self) -> list[str]:
        """All hooks that have a specification."""
        return [name for name, caller in vars(self.hook).items() if caller.has_spec()]
