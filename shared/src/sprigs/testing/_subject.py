"""The plugin under check, and ways to look at it without importing it here."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sprigs._entries import Entry
from sprigs._errors import SprigsError
from sprigs._method import Method
from sprigs._registry import Registry

_TIMEOUT = 600


class Subject:
    """One plugin under check."""

    def __init__(self, name: str, registry: Registry) -> None:
        self.name = name
        self.registry = registry

    @property
    def entry(self) -> Entry:
        """The entry.

        Raises:
            AssertionError: no entry point has this name.
        """
        try:
            return self.registry.entry(self.name)
        except SprigsError as error:
            raise AssertionError(
                f"{error}. Declare it: [project.entry-points.{self.registry.group}]"
                f' {self.name} = "PACKAGE.plugin", and install the package'
            ) from error

    @property
    def card(self) -> Method:
        """The card.

        Raises:
            AssertionError: the plugin cannot be loaded.
        """
        entry = self.entry
        try:
            return self.registry.get(entry.name)
        except SprigsError as error:
            raise AssertionError(str(error)) from error

    def resolved(self, reference: str) -> object:
        """What a reference of the card stands for.

        Raises:
            AssertionError: it stands for nothing, or cannot be imported.
        """
        try:
            return self.registry.resolve(self.name, reference)
        except SprigsError as error:
            raise AssertionError(str(error)) from error

    @property
    def module(self) -> str:
        """The module the entry point names."""
        return self.entry.value.partition(":")[0].strip()

    @property
    def package(self) -> str:
        """The import package that holds it."""
        return self.module.partition(".")[0]

    @cached_property
    def folder(self) -> Path:
        """The folder of the package.

        Raises:
            AssertionError: the plugin is not a package with an `__init__.py`.
        """
        spec = find_spec(self.package)
        if spec is None or spec.origin is None or not spec.submodule_search_locations:
            raise AssertionError(
                f"{self.package} is not a package with an __init__.py;"
                " a plugin is a package, so that it can ship py.typed"
            )
        return Path(spec.origin).parent

    def modules(self) -> list[str]:
        """Every module the package ships in Python, but for what `python -m` runs."""
        parts = (path.relative_to(self.folder) for path in self.folder.rglob("*.py"))
        names = {
            ".".join([self.package, *path.parent.parts, *[path.stem] * (path.stem != "__init__")])
            for path in parts
            if path.stem != "__main__"
        }
        return sorted(names)

    def stub_names(self) -> tuple[str, set[str]]:
        """The file a type checker reads for the package, and the public names bound in it."""
        stub = self.folder / "__init__.pyi"
        source = stub if stub.is_file() else self.folder / "__init__.py"
        tree = ast.parse(source.read_text(encoding="utf-8"))
        return source.name, {name for node in tree.body for name in _bound(node)}


def _bound(node: ast.stmt) -> list[str]:
    """The names a statement binds in the module; what stands in a function is no name of it."""
    match node:
        case ast.If() | ast.Try():
            handlers = [s for h in getattr(node, "handlers", ()) for s in h.body]
            return [name for s in [*node.body, *node.orelse, *handlers] for name in _bound(s)]
        case ast.ImportFrom() | ast.Import():
            return [alias.asname or alias.name for alias in node.names]
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [node.name]
        case ast.Assign():
            return [target.id for target in node.targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


def python_json(code: str, *arguments: str) -> Any:
    """Run code in a fresh interpreter that finds the same modules; give back the JSON it prints.

    Raises:
        AssertionError: it fails, with what it wrote to stderr.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    # -P: what happens to lie in the working directory is not part of the plugin.
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        env=environment,
        check=False,
    )
    if done.returncode != 0:
        raise AssertionError(f"a fresh interpreter failed:\n{done.stderr.strip()}")
    return json.loads(done.stdout)
