"""The contract suite: a good plugin passes, and each fault fails the check that is meant for it."""

import subprocess
import sys

import pytest

import sprigs
from sprigs.testing import check_method, checks


def failing(name="herb"):
    """title -> message of the checks that fail."""
    found = {}
    for title, run in checks(name, sprigs.Registry()):
        try:
            run()
        except AssertionError as failure:
            found[title] = str(failure)
    return found


def test_a_good_plugin_passes(here, add_good):
    add_good(here)
    registry = sprigs.Registry()
    check_method("herb", registry)
    check_method(registry.entry("herb"), registry)


def test_all_faults_are_told_together(here, add_good):
    add_good(here, files={"py.typed": None, "__init__.pyi": ""})
    with pytest.raises(AssertionError, match=r"herb fails 2 of 14 checks") as caught:
        check_method("herb", sprigs.Registry())
    assert "typed: plug_herb has no py.typed" in str(caught.value)
    assert "stub: __init__.pyi does not bind count" in str(caught.value)


def test_nothing_is_looked_for_before_a_check_is_run():
    titles = [title for title, _ in checks("a-method-nobody-has")]
    assert len(titles) == len(set(titles)) == 14
    with pytest.raises(AssertionError, match=r"\[project.entry-points.sprigs\]"):
        check_method("a-method-nobody-has")


LAZY = "def __getattr__(name):\n    raise AttributeError(name)\n"

FAULTS = {
    # fault: (changed parts, failing checks, what the message says)
    "another-name": (
        {"plugin": ('name="herb"', 'name="weed"')},
        "card",
        "the card is named 'weed'",
    ),
    "not-a-card": (
        {"plugin": ("return sprigs.Method(", "return dict(")},
        "card",
        "must return a sprigs.Method",
    ),
    "old-api": (
        {"plugin": ('title="Counts', 'api=0, title="Counts')},
        "card",
        "counts from 1",
    ),
    "export-missing": (
        {"plugin": ("leaves:count", "leaves:counts")},
        "exports",
        "has no 'counts'",
    ),
    "export-without-docstring": (
        {"files": {"leaves.py": "def count(text):\n    return 0\n"}},
        "exports",
        "has no docstring",
    ),
    "heavy-card": (
        {"plugin": ("import sprigs\n", "import sprigs, click\n")},
        "card-is-light",
        "importing plug_herb.plugin imports click",
    ),
    "heavy-package": (
        {"files": {"__init__.py": "import pygments\nfrom plug_herb.leaves import count\n"}},
        "package-is-lazy",
        "importing plug_herb imports pygments",
    ),
    "exports-not-listed": (
        {"files": {"__init__.py": LAZY}},
        "package-is-lazy",
        "dir(plug_herb) does not list count",
    ),
    "untyped": ({"files": {"py.typed": None}}, "typed", "has no py.typed"),
    "no-stub": ({"files": {"__init__.pyi": None}}, "stub", "__init__.py does not bind count"),
    "no-licence": (
        {"metadata": "License-Expression"},
        "distribution-metadata",
        "lacks a licence",
    ),
    "no-python": (
        {"metadata": "Requires-Python"},
        "distribution-metadata",
        "lacks requires-python",
    ),
    "no-sprigs": (
        {"metadata": "Requires-Dist: sprigs"},
        "distribution-metadata",
        "lacks a dependency on sprigs",
    ),
    "no-readme": ({"metadata": "# The README"}, "distribution-metadata", "lacks a README"),
    "no-extra": ({"metadata": "Provides-Extra"}, "extras-are-declared", "the extra fast"),
    "claims-twice": (
        {"files": {"claims.py": ("(holds, fails,", "(holds, holds,")}},
        "claims",
        "uses the id holds more than once",
    ),
    "claims-empty": ({"files": {"claims.py": "CLAIMS = ()\n"}}, "claims", "is empty"),
    "claims-of-text": (
        {"files": {"claims.py": "CLAIMS = ['a']\n"}},
        "claims",
        "sequence of sprigs.Claim",
    ),
    "demo-no-command": (
        {"plugin": ("cli:demo", "leaves:count")},
        "demo-and-bench",
        "must be a click.Command, it is a function",
    ),
    "demo-without-help": (
        {"files": {"cli.py": ('"""Show a leaf."""', "")}},
        "demo-and-bench",
        "demo (plug_herb.cli:demo) has no help",
    ),
    "commands-without-help": (
        {"files": {"cli.py": ('"""Show it."""', "")}},
        "commands",
        "the command show has no help",
    ),
    "commands-twice": (
        {"plugin": ("[cli.show, cli.fail]", "[cli.show, cli.show]")},
        "commands",
        "a name of its own",
    ),
    "prints": (
        {"files": {"noisy.py": "print('hello')\n"}},
        "imports-are-silent",
        "importing plug_herb.noisy writes 6 bytes to stdout",
    ),
    "prints-below-python": (
        {"files": {"noisy.py": "import os\nos.write(1, b'hello')\n"}},
        "imports-are-silent",
        "writes 5 bytes",
    ),
    "undeclared-need": (
        {"files": {"odd.py": "import another_module_nobody_has\n"}},
        "imports-are-silent",
        "plug_herb.odd cannot be imported",
    ),
    "broken-module": (
        {"files": {"odd.py": "1 / 0\n"}},
        "imports-are-silent",
        "ZeroDivisionError",
    ),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_fails_its_check(here, add_good, good_plugin, good_files, good_metadata, fault):
    changes, title, message = FAULTS[fault]
    arguments = {}
    if "plugin" in changes:
        before, after = changes["plugin"]
        assert before in good_plugin
        arguments["plugin"] = good_plugin.replace(before, after)
    if "files" in changes:
        arguments["files"] = {
            name: good_files[name].replace(*change) if isinstance(change, tuple) else change
            for name, change in changes["files"].items()
        }
    if "metadata" in changes:
        arguments["metadata"] = [line for line in good_metadata if not line.startswith(changes["metadata"])]
    add_good(here, **arguments)
    failures = failing()
    assert message in failures[title]
    if title != "card":
        # The other checks do not mind; a card that cannot be read fails all that need one.
        also = {"card-is-light"} if fault == "heavy-package" else set()
        assert set(failures) == {title} | also


def test_an_older_api_is_told(here, add_good, monkeypatch):
    add_good(here)
    monkeypatch.setattr("sprigs.testing._checks.API_VERSION", 2)
    assert "write api=sprigs.API_VERSION" in failing()["api"]


def test_a_plugin_found_by_this_interpreter_alone(here, add_good, monkeypatch):
    """What is on the path of the tests alone, such as a `pythonpath` setting, is found as well."""
    add_good(here)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert failing() == {}


def test_checks_hold_under_optimisation(shelf, add_good):
    """`python -O` strips assert statements; the checks are none."""
    add_good(shelf, files={"py.typed": None})
    done = subprocess.run(
        [sys.executable, "-O", "-c", "import sprigs.testing as t; t.check_method('herb')"],
        env=shelf.environment(),
        cwd=shelf.root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "has no py.typed" in done.stderr


def test_a_single_module_is_told_to_become_a_package(here):
    here.add("flat", value="plug_flat_module", metadata=["Provides-Extra: x"])
    here.root.joinpath("plug_flat_module.py").write_text(
        "import sprigs\n@sprigs.hookimpl\ndef sprigs_method():\n"
        "    return sprigs.Method(name='flat', title='t', paper=None, exports={})\n"
    )
    assert "is not a package" in failing("flat")["typed"]
