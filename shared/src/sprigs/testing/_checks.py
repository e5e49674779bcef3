"""The checks. Each raises an AssertionError that says what is wrong and how to mend it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from functools import partial

from sprigs._claims import Claim
from sprigs._entries import Entry
from sprigs._errors import SprigsError
from sprigs._method import API_VERSION
from sprigs._names import normalise
from sprigs._registry import Registry
from sprigs._registry import registry as default_registry
from sprigs.testing._subject import Subject, python_json

# What a card may import besides the standard library and its own package. lazy_loader is what makes
# the package's names lazy; it stands on the standard library alone.
_LIGHT = frozenset({"sprigs", "pluggy", "lazy_loader"})

_IMPORTED = """
import importlib, json, os, sys
before = set(sys.modules)
shown, printed = os.dup(1), os.open(os.devnull, os.O_WRONLY)
os.dup2(printed, 1)
module = importlib.import_module(sys.argv[1])
names = dir(module)
sys.stdout.flush()
os.dup2(shown, 1)
print(json.dumps({"modules": sorted(set(sys.modules) - before), "dir": names}))
"""

# Imports modules one after the other, and tells what each wrote to stdout, C libraries included.
_WRITES = """
import importlib, json, os, sys, tempfile
shown, caught = os.dup(1), tempfile.TemporaryFile()
os.dup2(caught.fileno(), 1)
report = {}
for name in sys.argv[1:]:
    begin, failure, missing = os.fstat(caught.fileno()).st_size, None, None
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        failure, missing = repr(error), error.name
    except (Exception, SystemExit) as error:
        failure = repr(error)
    sys.stdout.flush()
    wrote = os.fstat(caught.fileno()).st_size - begin
    report[name] = {"wrote": wrote, "failure": failure, "missing": missing}
os.dup2(shown, 1)
print(json.dumps(report))
"""


def check_method(name_or_entry: str | Entry, registry: Registry | None = None) -> None:
    """Run every check on a plugin.

    Raises:
        AssertionError: with the messages of the checks that failed.
    """
    name = name_or_entry.name if isinstance(name_or_entry, Entry) else name_or_entry
    # By message: a plugin that cannot be imported fails most checks with the same one.
    failed: dict[str, list[str]] = {}
    for title, run in checks(name, registry):
        try:
            run()
        except AssertionError as failure:
            failed.setdefault(str(failure), []).append(title)
    if failed:
        count = sum(map(len, failed.values()))
        told = [f"{', '.join(titles)}: {message}" for message, titles in failed.items()]
        raise AssertionError(f"{name} fails {count} of {len(_CHECKS)} checks:\n" + "\n".join(told))


def checks(name: str, registry: Registry | None = None) -> list[tuple[str, Callable[[], None]]]:
    """The checks of a plugin as (title, function), for `pytest.mark.parametrize`.

    Nothing is looked for until one is run.
    """
    subject = Subject(name, registry or default_registry())
    return [(check.__name__.replace("_", "-"), partial(check, subject)) for check in _CHECKS]


def found_without_import(subject: Subject) -> None:
    """The registry finds the entry from metadata, in an interpreter that imports no plugin."""
    entry = subject.entry
    code = (
        "import json, sys, sprigs\n"
        "names = list(sprigs.Registry(sys.argv[1]).methods())\n"
        "print(json.dumps([names, sys.argv[2] in sys.modules]))"
    )
    names, imported = python_json(code, entry.group, subject.package)
    _require(
        entry.name in names,
        f"a fresh interpreter finds no {entry.name!r} in the group {entry.group!r}:"
        " install the package (pip install -e .)",
    )
    _require(
        not imported,
        f"finding the entry imports {subject.package}: look for a .pth file or a sitecustomize that does",
    )


def card(subject: Subject) -> None:
    """The plugin loads and its card fits its entry."""
    found = subject.card
    _require(
        found.name == subject.entry.name,
        f"the card is named {found.name!r}, its entry point {subject.entry.name!r}",
    )


def api(subject: Subject) -> None:
    """The card states the current version of the contract."""
    stated = subject.card.api
    _require(
        stated == API_VERSION,
        f"the card states api={stated}, the hub has {API_VERSION}: follow the changelog of sprigs"
        " and write api=sprigs.API_VERSION",
    )


def exports(subject: Subject) -> None:
    """Every export resolves and has a docstring."""
    for name, reference in subject.card.exports.items():
        found = subject.resolved(reference)
        if callable(found):
            _require(
                (getattr(found, "__doc__", None) or "").strip(),
                f"{name} ({reference}) has no docstring: say what it does and what it raises",
            )


def card_is_light(subject: Subject) -> None:
    """Importing the card imports nothing heavy."""
    report = python_json(_IMPORTED, subject.module)
    _assert_light(subject, f"importing {subject.module}", report["modules"])


def package_is_lazy(subject: Subject) -> None:
    """Importing the package and listing it imports nothing heavy, and shows every export."""
    report = python_json(_IMPORTED, subject.package)
    _assert_light(subject, f"importing {subject.package}", report["modules"])
    missing = sorted(set(subject.card.exports).difference(report["dir"]))
    _require(
        not missing,
        f"dir({subject.package}) does not list {', '.join(missing)}: attach the exports lazily"
        " (lazy_loader.attach_stub) and define __dir__",
    )


def typed(subject: Subject) -> None:
    """The package ships py.typed."""
    _require(
        (subject.folder / "py.typed").is_file(),
        f"{subject.package} has no py.typed: add the empty file to the package",
    )


def stub(subject: Subject) -> None:
    """A type checker can see every export."""
    source, names = subject.stub_names()
    missing = sorted(set(subject.card.exports).difference(names))
    _require(
        not missing,
        f"{source} does not bind {', '.join(missing)}: write them into"
        f" {subject.package}/__init__.pyi (from .module import name as name)",
    )


def distribution_metadata(subject: Subject) -> None:
    """The distribution says what it is, under which licence, and what it needs."""
    entry = subject.entry
    licence = entry.first("License-Expression") or entry.first("License")
    wanted = {
        "a summary (description = ...)": entry.summary,
        "a licence (license = ...)": licence or _licence_classifiers(entry),
        "requires-python": entry.first("Requires-Python"),
        "a README as its description (readme = ...)": _description(entry),
        "a dependency on sprigs": _depends_on_sprigs(entry),
    }
    missing = [what for what, found in wanted.items() if not found]
    _require(not missing, f"the pyproject.toml of {entry.distribution} lacks {'; '.join(missing)}")


def extras_are_declared(subject: Subject) -> None:
    """Every extra of the card is an extra of the distribution."""
    provided = {normalise(extra) for extra in subject.entry.all("Provides-Extra")}
    missing = sorted(extra for extra in subject.card.extras if normalise(extra) not in provided)
    _require(
        not missing,
        f"the card names the extra {', '.join(missing)}, which {subject.entry.distribution}"
        " does not have: add it to [project.optional-dependencies]",
    )


def claims(subject: Subject) -> None:
    """The claims have ids of their own and say everything."""
    reference = subject.card.claims
    if reference is None:
        return
    found = subject.resolved(reference)
    if not isinstance(found, Sequence) or not all(isinstance(claim, Claim) for claim in found):
        raise AssertionError(f"{reference} must be a sequence of sprigs.Claim")
    _require(found, f"{reference} is empty: state a claim, or leave `claims` out of the card")
    ids = [claim.id for claim in found]
    twice = sorted({name for name in ids if ids.count(name) > 1})
    _require(not twice, f"{reference} uses the id {', '.join(twice)} more than once")


def demo_and_bench(subject: Subject) -> None:
    """The demo and the benchmark are click commands with a help text."""
    import click

    for field in ("demo", "bench"):
        reference = getattr(subject.card, field)
        if reference is None:
            continue
        found = subject.resolved(reference)
        if not isinstance(found, click.Command):
            raise AssertionError(
                f"{field} ({reference}) must be a click.Command, it is a {type(found).__name__}:"
                " decorate it with @click.command()"
            )
        _require(found.help, f"{field} ({reference}) has no help: write a docstring")


def commands(subject: Subject) -> None:
    """The commands of the method have names of their own and a help text."""
    subject.card  # noqa: B018  # a broken card is told of as such
    try:
        found = subject.registry.commands(subject.name)
    except SprigsError as error:
        raise AssertionError(str(error)) from error
    silent = [str(command.name) for command in found if not command.help]
    _require(not silent, f"the command {', '.join(silent)} has no help: write a docstring")


def imports_are_silent(subject: Subject) -> None:
    """Every module imports, up to missing extras, and none writes to stdout."""
    optional = {name.partition(".")[0] for imports in subject.card.extras.values() for name in imports}
    for module, report in python_json(_WRITES, *subject.modules()).items():
        _require(
            not report["wrote"],
            f"importing {module} writes {report['wrote']} bytes to stdout: move the print into a function",
        )
        missing = (report["missing"] or "").partition(".")[0]
        _require(
            report["failure"] is None or missing in optional,
            f"{module} cannot be imported: {report['failure']}. If it needs an extra, name it in `extras` of the card",
        )


def _require(held: object, message: str) -> None:
    # Not the statement: `python -O` would pass everything.
    if not held:
        raise AssertionError(message)


def _assert_light(subject: Subject, doing: str, modules: list[str]) -> None:
    allowed = _LIGHT | {subject.package}
    tops = {name.partition(".")[0] for name in modules}
    heavy = sorted(
        top
        for top in tops - allowed - sys.stdlib_module_names
        # Generated by the build of Python, and so in no list of the standard library.
        if not top.startswith("_sysconfigdata")
    )
    _require(
        not heavy,
        f"{doing} imports {', '.join(heavy)}: a card may use the standard library, sprigs and its"
        " own light modules; import the rest inside functions, or attach it lazily",
    )


def _licence_classifiers(entry: Entry) -> str:
    return next((c for c in entry.all("Classifier") if c.startswith("License ::")), "")


def _description(entry: Entry) -> str:
    """The long description, which stands in the body of the metadata or in a field of its own."""
    payload = getattr(entry.metadata, "get_payload", lambda: "")()
    return (entry.first("Description") or str(payload)).strip()


def _depends_on_sprigs(entry: Entry) -> bool:
    for requirement in entry.all("Requires-Dist"):
        name = re.match(r"[A-Za-z0-9._-]+", requirement)
        if name and normalise(name[0]) == "sprigs" and "extra ==" not in requirement:
            return True
    return False


_CHECKS = (
    found_without_import,
    card,
    api,
    exports,
    card_is_light,
    package_is_lazy,
    typed,
    stub,
    distribution_metadata,
    extras_are_declared,
    claims,
    demo_and_bench,
    commands,
    imports_are_silent,
)
