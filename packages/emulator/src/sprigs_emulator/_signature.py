"""The `__global__` signatures of a kernel file: names and parameters; their types are read off by the compiler."""

from __future__ import annotations

from dataclasses import dataclass

from ._tokens import Token, closing, split


@dataclass(frozen=True)
class Signature:
    """One kernel.

    Attributes:
        name: its name; of a template, without arguments.
        parameters: the names of its parameters, `#0`, `#1`... where the text gives none.
        is_template: whether it is instantiated by name expressions only.
        bounds: the text of the first argument of `__launch_bounds__`, or "".
        line: where it is defined.
    """

    name: str
    parameters: tuple[str, ...]
    is_template: bool
    bounds: str
    line: int


def find_signatures(found: list[Token]) -> list[Signature]:
    """Return the kernels that are defined, not those only declared.

    Args:
        found: the tokens of the user's own text, in order.
    """
    signatures: list[Signature] = []
    for index, token in enumerate(found):
        if token.text == "__global__" and (signature := _signature(found, index)) is not None:
            signatures.append(signature)
    return signatures


def _signature(found: list[Token], start: int) -> Signature | None:
    bounds = ""
    index = start + 1
    while index < len(found) - 1:
        text = found[index].text
        if found[index].is_word and found[index + 1].text == "(":
            if text not in ("__launch_bounds__", "__attribute__", "alignas", "__align__"):
                break
            end = closing(found, index + 1)
            if text == "__launch_bounds__":
                bounds = _bounds(found[index + 2 : end])
            index = end + 1
        elif text in ";{}":
            return None
        else:
            index += 1
    else:
        return None
    end = closing(found, index + 1)
    if end + 1 >= len(found) or found[end + 1].text != "{":
        return None
    before = _before(found, start)
    for place, token in enumerate(before):
        if token.text == "__launch_bounds__" and place + 1 < len(before) and before[place + 1].text == "(":
            bounds = _bounds(before[place + 2 : closing(before, place + 1)])
    names = [_parameter_name(part, number) for number, part in enumerate(split(found[index + 2 : end]))]
    if names == ["#0"] and found[index + 2].text == "void" and end == index + 3:
        names = []
    return Signature(
        found[index].text, tuple(names), any(token.text == "template" for token in before), bounds, found[index].line
    )


def _before(found: list[Token], start: int) -> list[Token]:
    """The tokens of the same declaration that stand before `__global__`."""
    first = start
    while first > 0 and found[first - 1].text not in (";", "{", "}"):
        first -= 1
    return found[first:start]


def _bounds(inside: list[Token]) -> str:
    return " ".join(token.text for token in split(inside)[0]) if inside else ""


def _parameter_name(part: list[Token], number: int) -> str:
    words: list[str] = []
    for token in part:
        if token.text in ("=", "["):
            break
        if token.is_word:
            words.append(token.text)
    # A lone word, or one that is part of the type, is no name: `int`, `const float*`.
    last_is_word = bool(part) and len(words) > 1 and words[-1] not in _TYPE_WORDS
    return words[-1] if last_is_word else f"#{number}"


_TYPE_WORDS = frozenset(
    ("const", "volatile", "unsigned", "signed", "int", "char", "short", "long", "float", "double", "bool", "void",
     "struct", "__restrict__", "__restrict")
)  # fmt: skip
