"""Prints, as JSON, what the host found, what it ran and what it was told."""

import json

import sprigs
from greenhouse import hooks


class Diary:
    """Writes down what the registries tell."""

    def __init__(self):
        self.loaded = []
        self.failed = {}

    @sprigs.hookimpl
    def sprigs_loaded(self, entry):
        """A plugin is there."""
        self.loaded.append(entry.name)

    @sprigs.hookimpl
    def sprigs_failed(self, entry, error):
        """A plugin is broken."""
        self.failed[entry.name] = error.fix.splitlines()[0]


def main():
    """Load everything, run an export of each method, water with each tool."""
    diary = Diary()
    methods = sprigs.Registry()
    tools = sprigs.Registry("greenhouse.tools", project="greenhouse", hookspecs=[hooks], require_card=False)
    for registry in (methods, tools):
        registry.pm.register(diary)
        registry.load_all()
    good = [name for name, entry in methods.methods().items() if entry.error is None]
    leaves = {name: methods.load(name, "count")("leaf and leaf") for name in good}
    water = tools.pm.hook.greenhouse_water(litres=10)
    report = {"leaves": leaves, "water": water, "loaded": diary.loaded, "failed": diary.failed}
    print(json.dumps(report))
