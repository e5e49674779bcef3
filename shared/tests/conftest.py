"""Generated plugin distributions: folders with a module and a dist-info, no pip needed."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

CARD = """
import sprigs

@sprigs.hookimpl
def sprigs_method():
    return sprigs.Method(name={name!r}, title="Does {name}", paper=None, exports={exports!r})
"""


class Shelf:
    """A folder of generated distributions, to be put on the path."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    def add(
        self,
        name: str,
        plugin: str | None = None,
        *,
        distribution: str | None = None,
        package: str | None = None,
        group: str = "sprigs",
        files: Mapping[str, str] | None = None,
        exports: Mapping[str, str] | None = None,
        metadata: Sequence[str] = (),
        value: str | None = None,
    ) -> str:
        """Write a distribution; `plugin` is the text of its module, by default a good one."""
        distribution = distribution or f"dist-{name}"
        package = package or f"plug_{name}".replace("-", "_")
        if plugin is None:
            plugin = CARD.format(name=name, exports=dict(exports or {}))
        written = {"__init__.py": "", "plugin.py": plugin, **(files or {})}
        for file, text in written.items():
            target = self.root / package / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(textwrap.dedent(text), encoding="utf-8")
        info = self.root / f"{distribution.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        fields = ["Metadata-Version: 2.1", f"Name: {distribution}", "Version: 1.0"]
        if not any(line.startswith("Summary:") for line in metadata):
            fields.append(f"Summary: summary of {name}")
        text = "\n".join([*fields, *metadata])
        info.joinpath("METADATA").write_text(text + "\n", encoding="utf-8")
        point = f"[{group}]\n{name} = {value or f'{package}.plugin'}\n"
        info.joinpath("entry_points.txt").write_text(point, encoding="utf-8")
        info.joinpath("RECORD").write_text("", encoding="utf-8")
        return package

    def environment(self, **variables: str) -> dict[str, str]:
        """The environment of a subprocess that finds the shelf, without any setting of ours."""
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("SPRIGS_", "_SPRIGS"))}
        return {**clean, "PYTHONPATH": str(self.root), **variables}

    def run(self, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run Python code in a fresh interpreter."""
        return self._run([sys.executable, "-c", textwrap.dedent(code)], variables)

    def cli(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run `sprigs` in a fresh interpreter."""
        return self._run([sys.executable, "-m", "sprigs.cli", *arguments], variables)

    def _run(self, command: list[str], variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env=self.environment(**variables),
            cwd=self.root,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    """An empty shelf, for subprocesses."""
    return Shelf(tmp_path / "shelf")


@pytest.fixture
def here(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shelf]:
    """The shelf on the path of this very interpreter; what it imports is forgotten afterwards."""
    for variable in ("SPRIGS_STRICT", "SPRIGS_BLOCK", "SPRIGS_DATA"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.syspath_prepend(str(shelf.root))
    before = set(sys.modules)
    yield shelf
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(shelf.root.parent)):
            del sys.modules[name]
    importlib.invalidate_caches()


GOOD_PLUGIN = """
import sprigs

@sprigs.hookimpl
def sprigs_method():
    return sprigs.Method(
        name="herb",
        title="Counts leaves",
        paper=sprigs.Paper(title="Leaves", url="https://example.org/leaves"),
        exports={"count": "plug_herb.leaves:count"},
        demo="plug_herb.cli:demo",
        bench="plug_herb.cli:bench",
        claims="plug_herb.claims:CLAIMS",
        extras={"fast": ("a_module_nobody_has",)},
        capabilities=("leaves.count",),
    )

@sprigs.hookimpl
def sprigs_commands():
    from plug_herb import cli
    return [cli.show, cli.fail]
"""

GOOD_FILES = {
    "__init__.py": """
        __all__ = ["count"]

        def __getattr__(name):
            if name == "count":
                from plug_herb.leaves import count
                return count
            raise AttributeError(name)

        def __dir__():
            return __all__
    """,
    "__init__.pyi": "from .leaves import count as count\n",
    "py.typed": "",
    "leaves.py": 'def count(text):\n    """Count the leaves."""\n    return text.count("leaf")\n',
    "fast.py": "import a_module_nobody_has\n",
    "cli.py": '''
        import click

        @click.command()
        @click.option("--times", default=1)
        def demo(times):
            """Show a leaf."""
            click.echo("leaf " * times)

        @click.command()
        @click.argument("file", required=False)
        def bench(file):
            """Time it."""
            click.echo(f"timed {file}")

        @click.command()
        def show():
            """Show it."""
            click.echo("shown")

        @click.command()
        def fail():
            """Fail in one way or other."""
            raise KeyboardInterrupt
    ''',
    "claims.py": """
        import sprigs

        def holds(fast):
            return sprigs.Outcome(measured=f"3 (fast: {fast})", baseline="1", holds=True)

        def fails(fast):
            return sprigs.Outcome(measured="0", holds=False, note="smaller here")

        def raises(fast):
            raise RuntimeError("broken")

        def no_data(fast):
            raise sprigs.DataUnavailable("no such file")

        def no_extra(fast):
            import a_module_nobody_has

        def claim(run):
            return sprigs.Claim(
                id=run.__name__.replace("_", "-"),
                statement="s", paper="p", here="h", bar="b", run=run,
            )

        CLAIMS = [claim(run) for run in (holds, fails, raises, no_data, no_extra)]
    """,
}

GOOD_METADATA = (
    "License-Expression: Apache-2.0",
    "Requires-Python: >=3.11",
    "Requires-Dist: sprigs>=0.1",
    "Requires-Dist: a-distribution; extra == 'fast'",
    "Provides-Extra: fast",
    "",
    "# The README",
)


@pytest.fixture
def add_good():
    """Puts a plugin with everything a plugin can have on a shelf; keywords change parts of it."""

    def add(
        shelf: Shelf,
        *,
        plugin: str = GOOD_PLUGIN,
        files: Mapping[str, str | None] | None = None,
        metadata: Sequence[str] = GOOD_METADATA,
    ) -> None:
        merged = {**GOOD_FILES, **(files or {})}
        kept = {name: text for name, text in merged.items() if text is not None}
        shelf.add("herb", plugin, files=kept, metadata=metadata)

    return add


@pytest.fixture
def good_plugin() -> str:
    """The text of the plugin module that `add_good` writes."""
    return GOOD_PLUGIN


@pytest.fixture
def good_files() -> Mapping[str, str]:
    """The files that `add_good` writes."""
    return GOOD_FILES


@pytest.fixture
def good_metadata() -> Sequence[str]:
    """The lines of metadata that `add_good` writes."""
    return GOOD_METADATA
