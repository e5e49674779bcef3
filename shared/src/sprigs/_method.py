"""The card by which a package introduces itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from sprigs._names import is_normal, is_reference

API_VERSION = 1
"""The version of the contract between hub and plugins; a card states the one it was written for."""

_CAPABILITY = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")


@dataclass(frozen=True, kw_only=True)
class Paper:
    """The publication that a method implements."""

    title: str
    url: str
    authors: str = ""
    venue: str = "NeurIPS 2026"

    def __post_init__(self) -> None:
        """Check the fields.

        Raises:
            TypeError: a field is not a string.
            ValueError: the title is empty, or the address is not http(s).
        """
        for name in ("title", "url", "authors", "venue"):
            _check_text(f"Paper.{name}", getattr(self, name), filled=name == "title")
        if not self.url.startswith(("https://", "http://")):
            raise ValueError(f"Paper.url must be an http(s) address, given {self.url!r}")


@dataclass(frozen=True, kw_only=True)
class Method:
    """What a package offers, told without importing any of it.

    Every `module:attribute` text is resolved only when somebody asks for the thing behind it.

    Attributes:
        name: the name of the entry point: lower case, digits and single hyphens.
        title: one line, the job it does.
        paper: what it implements; None for a support package.
        exports: public name -> `module:attribute`.
        demo: `module:attribute` of a `click.Command`, run by `sprigs demo NAME`.
        bench: `module:attribute` of a `click.Command`, run by `sprigs bench NAME`.
        claims: `module:attribute` of a sequence of `sprigs.Claim`.
        extras: extra of the distribution -> the import names it provides.
        capabilities: what it can do, in dotted words such as `codec.lossless.kv`.
        api: the `sprigs.API_VERSION` the card was written for.
    """

    name: str
    title: str
    paper: Paper | None
    exports: Mapping[str, str]
    demo: str | None = None
    bench: str | None = None
    claims: str | None = None
    extras: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    capabilities: tuple[str, ...] = ()
    api: int = API_VERSION

    def __post_init__(self) -> None:
        """Check the fields; copy the mappings, so that the caller's may change.

        Raises:
            TypeError: a field has the wrong type.
            ValueError: a field has the right type and a value that cannot be used.
        """
        _check_text("Method.name", self.name)
        if not is_normal(self.name):
            raise ValueError(f"Method.name must be lower-case letters, digits and single hyphens, given {self.name!r}")
        _check_text("Method.title", self.title)
        if "\n" in self.title:
            raise ValueError("Method.title must be one line; put the rest into the README")
        if self.paper is not None and not isinstance(self.paper, Paper):
            raise TypeError(f"Method.paper must be a sprigs.Paper or None, given {self.paper!r}")
        for name in ("demo", "bench", "claims"):
            if (reference := getattr(self, name)) is not None:
                _check_reference(f"Method.{name}", reference)
        object.__setattr__(self, "exports", _checked_exports(self.exports))
        object.__setattr__(self, "extras", _checked_extras(self.extras))
        object.__setattr__(self, "capabilities", _checked_words("Method.capabilities", self.capabilities))
        for word in self.capabilities:
            if not _CAPABILITY.fullmatch(word):
                raise ValueError(
                    f"Method.capabilities are dotted lower-case words such as 'codec.lossless.kv', given {word!r}"
                )
        if not isinstance(self.api, int) or isinstance(self.api, bool):
            raise TypeError(f"Method.api must be an int, given {self.api!r}")
        if self.api < 1:
            raise ValueError(f"Method.api counts from 1, given {self.api}")

    def to_dict(self) -> dict[str, object]:
        """The card as plain containers, ready for JSON."""
        return asdict(self)


def _check_text(where: str, value: object, *, filled: bool = True) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{where} must be a str, given {value!r}")
    if filled and not value.strip():
        raise ValueError(f"{where} must not be empty")


def _check_reference(where: str, value: object) -> None:
    _check_text(where, value)
    if not is_reference(str(value)):
        raise ValueError(f"{where} must read 'module:attribute', given {value!r}")


def _checked_exports(exports: object) -> dict[str, str]:
    if not isinstance(exports, Mapping):
        raise TypeError(f"Method.exports must map names to 'module:attribute', given {exports!r}")
    for name, reference in exports.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"Method.exports: a public name must be an identifier, given {name!r}")
        _check_reference(f"Method.exports[{name!r}]", reference)
    return dict(exports)


def _checked_extras(extras: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(extras, Mapping):
        raise TypeError(f"Method.extras must map extras to import names, given {extras!r}")
    for extra in extras:
        _check_text("Method.extras: the name of an extra", extra)
    return {extra: _checked_words(f"Method.extras[{extra!r}]", imports) for extra, imports in extras.items()}


def _checked_words(where: str, words: object) -> tuple[str, ...]:
    # A bare string is a sequence of strings too, and the commonest slip: ("numba") for ("numba",).
    if isinstance(words, str) or not isinstance(words, (tuple, list)):
        raise TypeError(f"{where} must be a tuple of str, given {words!r}")
    for word in words:
        _check_text(f"every item of {where}", word)
    return tuple(words)
