"""The few lexical changes that turn CUDA C into C++ behind the emulator's header.

They are made on preprocessed text, so that macros and the user's own headers are covered, and keep every line where it
is. `__shared__` variables move into the live block's memory, and CUDA's declaration words go; all else is the header's
business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ._signature import Signature, find_signatures
from ._tokens import Token, closing, split, tokens
from .errors import CompileError

_DROPPED = frozenset({"__global__", "__device__", "__constant__", "__managed__"})
_GLOBALS = frozenset({"__device__", "__constant__", "__managed__"})


@dataclass
class Rewritten:
    """C++ text and what was found in it.

    Attributes:
        text: the text to compile, without the generated end.
        signatures: the kernels.
        globals: the names of `__device__` and `__constant__` variables at file scope.
        dynamic_pointers: the names of `extern __shared__` arrays at file scope.
        has_volatile: whether a volatile access may occur.
    """

    text: str
    signatures: list[Signature]
    globals: list[str] = field(default_factory=list)
    dynamic_pointers: list[str] = field(default_factory=list)
    has_volatile: bool = False


def rewrite(preprocessed: str, is_own: Callable[[str], bool]) -> Rewritten:
    """Rewrite the user's part of a preprocessed file.

    Args:
        preprocessed: the compiler's `-E` output.
        is_own: whether a file named by a line marker is the user's.

    Returns:
        The text to compile and what it declares.

    Raises:
        CompileError: inline PTX, a launch from the device, or a `__shared__` variable that cannot be emulated.
    """
    found = [token for token in tokens(preprocessed) if is_own(token.file)]
    result = Rewritten("", find_signatures(found))
    edits: list[tuple[int, int, str]] = []
    scopes: list[str] = []
    index = 0
    while index < len(found):
        token = found[index]
        text = token.text
        if text == "{":
            scopes.append(_scope(found, index, scopes))
        elif text == "}" and scopes:
            scopes.pop()
        elif text in ("asm", "__asm__", "__asm"):
            raise CompileError(
                f"{_at(token)}: inline PTX cannot run on the host: use an intrinsic, or keep the asm statement out of"
                " the emulated text with #ifndef SPRIGS_EMULATOR"
            )
        elif text == "<<<":
            raise CompileError(f"{_at(token)}: kernels cannot launch kernels here: launch each one from Python")
        elif text == "volatile":
            result.has_volatile = True
        elif text == "__launch_bounds__":
            end = closing(found, index + 1)
            edits.append((token.start, found[end].end, _newlines(preprocessed, token.start, found[end].end)))
            index = end
        elif text == "__shared__":
            end = _end_of_declaration(found, index)
            start = _start_of_declaration(found, index)
            words = found[start:end]
            edits.append((words[0].start, found[end].end, _shared(words, "function" in scopes, result, preprocessed)))
            index = end
        elif text in _DROPPED:
            edits.append((token.start, token.end, ""))
            outside = all(scope == "linkage" for scope in scopes)
            if text in _GLOBALS and outside and (name := _variable(found, index)) and name not in result.globals:
                result.globals.append(name)
        index += 1
    result.text = _apply(preprocessed, edits)
    return result


def _at(token: Token) -> str:
    return f"{token.file}:{token.line}"


def _newlines(text: str, start: int, end: int) -> str:
    return "\n" * text.count("\n", start, end)


def _apply(text: str, edits: list[tuple[int, int, str]]) -> str:
    pieces: list[str] = []
    position = 0
    for start, end, replacement in edits:
        pieces += [text[position:start], replacement]
        position = end
    return "".join([*pieces, text[position:]])


def _scope(found: list[Token], index: int, scopes: list[str]) -> str:
    """What an opening brace opens: a function (or what is inside one), a type, a namespace, a linkage block."""
    if "function" in scopes:
        return "function"
    words: list[str] = []
    place = index - 1
    while place >= 0 and found[place].text not in (";", "{", "}"):
        words.append(found[place].text)
        place -= 1
    if ")" in words:
        return "function"
    if "extern" in words:
        return "linkage"
    return "namespace" if "namespace" in words else "type"


def _start_of_declaration(found: list[Token], index: int) -> int:
    while index > 0 and found[index - 1].text in ("extern", "static", "volatile", "const", "__device__"):
        index -= 1
    return index


def _end_of_declaration(found: list[Token], index: int) -> int:
    while index < len(found) - 1 and found[index].text != ";":
        index = closing(found, index) + 1 if found[index].text in ("(", "[", "{") else index + 1
    return index


def _variable(found: list[Token], index: int) -> str | None:
    """The name of the variable that a declaration word introduces, or None for a function."""
    name = None
    index += 1
    while index < len(found):
        text = found[index].text
        if text in ("__attribute__", "alignas", "__align__"):
            index = closing(found, index + 1)
        elif text in (";", "=", "["):
            return name
        elif text in ("(", "{", "}", "template"):
            return None
        elif found[index].is_word:
            name = text
        index += 1
    return None


def _join(words: list[Token]) -> str:
    """The tokens as text; what stood side by side still does, or `<<` would fall apart."""
    pieces = [
        token.text if i == 0 or token.start == words[i - 1].end else f" {token.text}" for i, token in enumerate(words)
    ]
    return "".join(pieces)


def _shared(words: list[Token], in_function: bool, result: Rewritten, text: str) -> str:
    line = words[0].line
    newlines = _newlines(text, words[0].start, words[-1].end)
    is_extern = any(token.text == "extern" for token in words)
    kept = [token for token in words if token.text not in ("__shared__", "extern", "static", "__device__")]
    if is_extern:
        return _dynamic(kept, in_function, result) + newlines
    if not in_function:
        raise CompileError(
            f"{_at(words[0])}: a __shared__ variable at file scope cannot be emulated: declare it inside the kernel"
        )
    parts = split(kept)
    first_name = _declared(parts[0], words[0])
    specifier = parts[0][:first_name]
    while specifier and specifier[-1].text in ("*", "&"):
        specifier.pop()
    made: list[str] = []
    for number, part in enumerate(parts):
        declarator = part[len(specifier) :] if number == 0 else part
        name = part[_declared(part, words[0])].text
        struct = f"sprigs_shared_{words[0].start}_{number}"
        member = f"{struct}::{name}"
        # A reference to a variable of the live block: the offset is fixed when the first thread comes by.
        made.append(
            f"struct {struct} {{ {_join(specifier)} {_join(declarator)}; }};"
            f' static const unsigned {struct}_offset = sprigs_shared_declare(&sprigs_module, "{name}",'
            f" sizeof({struct}), alignof({struct}), sprigs::ElementOf<decltype({member})>::bytes, {line});"
            f" auto& {name} = reinterpret_cast<{struct}*>(sprigs::static_shared() + {struct}_offset)->{name};"
        )
    return " ".join(made) + newlines


def _declared(part: list[Token], where: Token) -> int:
    """The index of the name that a declarator declares."""
    name = -1
    index = 0
    while index < len(part):
        text = part[index].text
        if text in ("[", "="):
            break
        if text in ("(", "{"):
            index = closing(part, index)
        elif part[index].is_word:
            name = index
        index += 1
    if name < 0:
        raise CompileError(f"{_at(where)}: this __shared__ declaration cannot be read")
    return name


def _dynamic(kept: list[Token], in_function: bool, result: Rewritten) -> str:
    """`extern __shared__ T name[];` as a pointer into the block's dynamic buffer."""
    without_alignment: list[Token] = []
    index = 0
    while index < len(kept):
        if kept[index].text in ("__attribute__", "alignas", "__align__"):
            index = closing(kept, index + 1) + 1
            continue
        without_alignment.append(kept[index])
        index += 1
    place = _declared(without_alignment, kept[0])
    kind, name = _join(without_alignment[:place]), without_alignment[place].text
    if in_function:
        return f"{kind}* const {name} = reinterpret_cast<{kind}*>(sprigs::dynamic_shared());"
    if name in result.dynamic_pointers:
        return ""
    result.dynamic_pointers.append(name)
    return f"static {kind}* {name};"
