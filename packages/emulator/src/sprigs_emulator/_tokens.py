"""Preprocessed C++ as tokens that know the file and line they come from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""
    (?P<directive> ^\# [^\n]* )
  | (?P<string> (?:u8|[uUL])? R"(?P<delimiter>[^(\s]*)\( .*? \)(?P=delimiter)" | (?:u8|[uUL])? "(?:\\.|[^"\\\n])*" )
  | (?P<char> (?:u8|[uUL])? '(?:\\.|[^'\\\n])+' )
  | (?P<word> [A-Za-z_]\w* )
  | (?P<number> \.?\d (?: '?[\w.] | (?<=[eEpP])[+-] )* )
  | (?P<space> \s+ )
  | (?P<mark> <<< | :: | -> | . )
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
_LINE_MARKER = re.compile(r'#(?:line)?\s+(\d+)\s+"((?:\\.|[^"\\])*)"(.*)')


@dataclass(frozen=True, slots=True)
class Token:
    """A word, literal or mark.

    Attributes:
        text: its characters.
        start: where it begins in the preprocessed text.
        file: the file it was written in, as the line markers name it.
        line: the line in that file.
        is_word: whether it is an identifier or keyword.
    """

    text: str
    start: int
    file: str
    line: int
    is_word: bool

    @property
    def end(self) -> int:
        """The position behind the last character."""
        return self.start + len(self.text)


def tokens(preprocessed: str) -> Iterator[Token]:
    """Yield what is neither space nor directive; strings and characters are one token each.

    Args:
        preprocessed: the output of the compiler's `-E`, line markers included.
    """
    file, line = "", 1
    for match in _TOKEN.finditer(preprocessed):
        text, kind = match.group(), match.lastgroup
        if match["directive"] is not None:
            if marker := _LINE_MARKER.match(text):
                # The newline after the marker moves on to the line it names.
                file, line = marker[2], int(marker[1]) - 1
            continue
        if match["space"] is None:
            yield Token(text, match.start(), file, line, kind == "word")
        line += text.count("\n")


_PAIRS = {"(": ")", "[": "]", "{": "}"}


def closing(found: list[Token], start: int) -> int:
    """Return the index of the bracket that closes the one at `start`, or the last index where there is none."""
    depth = 0
    opens, closes = found[start].text, _PAIRS[found[start].text]
    for index in range(start, len(found)):
        if found[index].text == opens:
            depth += 1
        elif found[index].text == closes:
            depth -= 1
            if depth == 0:
                return index
    return len(found) - 1


def split(found: list[Token], separator: str = ",") -> list[list[Token]]:
    """Split at the separators that stand in no bracket, angle brackets included."""
    parts: list[list[Token]] = [[]]
    depth = angles = 0
    for token in found:
        if token.text in ("(", "[", "{"):
            depth += 1
        elif token.text in (")", "]", "}"):
            depth -= 1
        elif depth == 0 and token.text in ("<", ">"):
            # Inside other brackets these compare and shift: `int a[1 << 4], b[8]`.
            angles += 1 if token.text == "<" else -1
        if token.text == separator and depth == 0 and angles == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]
