"""Names: how they are written, compared and suggested."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SEPARATORS = re.compile(r"[-_.]+")
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)

BUILTIN_COMMANDS = ("list", "info", "demo", "claims", "bench", "doctor")
"""Commands of the command line itself, which no method may be called."""


def normalise(name: str) -> str:
    """The one spelling of a name: lower case, single hyphens, as PEP 503 has it."""
    return _SEPARATORS.sub("-", name.strip()).lower()


def is_normal(name: str) -> bool:
    """Whether a name is already written the way `normalise` writes it."""
    return _NAME.fullmatch(name) is not None


def is_reference(text: str) -> bool:
    """Whether a text reads `module:attribute`."""
    return _REFERENCE.fullmatch(text) is not None


def suggestion(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the nearest known name, nothing where none is near."""
    from difflib import get_close_matches

    near = get_close_matches(name, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
