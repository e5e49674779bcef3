"""Entries: what the metadata of installed distributions says, with nothing imported."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from importlib import metadata
from typing import TYPE_CHECKING

from sprigs._errors import DuplicateName
from sprigs._names import normalise

if TYPE_CHECKING:
    from sprigs._errors import PluginError


class Entry:
    """One entry point, and the distribution it comes from.

    Everything but `name` and `value` is read from the distribution's metadata when first asked for.
    `error` is the failure kept by the registry, None as long as there is none.
    """

    def __init__(self, point: metadata.EntryPoint) -> None:
        self.point = point
        self.name = normalise(point.name)
        self.value = point.value
        self.group = point.group
        self.error: PluginError | None = None

    def __reduce__(self) -> tuple[type[Entry], tuple[metadata.EntryPoint]]:
        # Without `error`, which points back here.
        return (Entry, (self.point,))

    def __repr__(self) -> str:
        return f"<Entry {self.name}: {self.value!r} from {self.distribution} {self.version}>"

    @property
    def label(self) -> str:
        """Name, distribution and version, as messages give them."""
        return f"{self.name} ({self.distribution} {self.version})"

    @cached_property
    def metadata(self) -> Mapping[str, str]:
        """The core metadata of the distribution; empty for an entry point made by hand."""
        found = self.point.dist.metadata if self.point.dist is not None else None
        # `PackageMetadata` has the methods of a mapping and the type of a message.
        return {} if found is None else found  # type: ignore[return-value]

    def all(self, field: str) -> list[str]:
        """Every value of a field that may stand several times, such as `Requires-Dist`."""
        if not hasattr(self.metadata, "get_all"):
            return []
        return [str(value) for value in self.metadata.get_all(field) or ()]

    def first(self, field: str) -> str:
        """The first value of a field, empty where there is none."""
        return next(iter(self.all(field)), "")

    @property
    def distribution(self) -> str:
        """The name of the distribution, as it is written in its metadata."""
        return self.first("Name") or "unknown distribution"

    @property
    def version(self) -> str:
        """The version of the distribution."""
        return self.first("Version") or "of unknown version"

    @property
    def summary(self) -> str:
        """The one-line description of the distribution."""
        return self.first("Summary")

    @property
    def links(self) -> dict[str, str]:
        """Label -> address, from `Project-URL` and `Home-page`."""
        pairs = (value.partition(",") for value in self.all("Project-URL"))
        links = {label.strip(): address.strip() for label, _, address in pairs}
        if home := self.first("Home-page"):
            links.setdefault("Homepage", home)
        return links

    @property
    def homepage(self) -> str | None:
        """The address to show first: the home page, else the repository, else any."""
        by_label = {label.lower(): address for label, address in self.links.items()}
        for label in ("homepage", "home", "repository", "source"):
            if label in by_label:
                return by_label[label]
        return next(iter(by_label.values()), None)

    @cached_property
    def editable(self) -> bool:
        """Whether the distribution is an editable install (PEP 610)."""
        text = self.point.dist.read_text("direct_url.json") if self.point.dist else None
        try:
            origin = json.loads(text) if text else {}
        except ValueError:
            # A damaged record of where one distribution came from must not stop the listing of all.
            return False
        return isinstance(origin, dict) and bool(origin.get("dir_info", {}).get("editable"))

    def to_dict(self) -> dict[str, object]:
        """What `sprigs list --json` prints of this entry."""
        return {
            "name": self.name,
            "distribution": self.distribution,
            "version": self.version,
            "summary": self.summary,
            "links": self.links,
            "editable": self.editable,
            "error": error_dict(self.error),
        }


def error_dict(error: PluginError | None) -> dict[str, str] | None:
    """A failure as plain containers, ready for JSON."""
    if error is None:
        return None
    return {"kind": type(error).__name__, "problem": error.problem, "fix": error.fix}


def discover(group: str) -> dict[str, Entry]:
    """All entries of a group by name, in alphabetical order, with nothing imported.

    Where two distributions claim one name, its entry carries a `DuplicateName` that tells of both.
    A distribution that stands twice on `sys.path` counts once: the first one, as for imports.
    """
    by_name: dict[str, list[Entry]] = {}
    for point in metadata.entry_points(group=group):
        entry = Entry(point)
        by_name.setdefault(entry.name, []).append(entry)
    entries: dict[str, Entry] = {}
    for name, claimants in sorted(by_name.items()):
        first = claimants[0]
        distinct: dict[tuple[str, str], Entry] = {}
        for entry in claimants:
            distinct.setdefault((normalise(entry.distribution), entry.value), entry)
        if len(distinct) > 1:
            first.error = _duplicate(first, list(distinct.values()))
        entries[name] = first
    return entries


def _duplicate(first: Entry, claimants: list[Entry]) -> DuplicateName:
    owners = [f"{e.distribution} {e.version} ({e.value})" for e in claimants]
    distributions = sorted({e.distribution for e in claimants})
    if len(distributions) == 1:
        fix = f"pip install --upgrade {distributions[0]}, or tell its maintainers"
    else:
        fix = "\n".join(f"pip uninstall {name}" for name in distributions)
    return DuplicateName(first, f"the name is claimed by {' and by '.join(owners)}", fix)
