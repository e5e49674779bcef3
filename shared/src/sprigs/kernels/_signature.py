"""Reading `extern "C" __global__` signatures out of CUDA C source."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from sprigs.kernels._errors import SignatureError

# C type -> (NumPy dtype, elements of it in one).
_SCALARS = {
    "bool": "bool",
    "char": "int8",
    "signed char": "int8",
    "unsigned char": "uint8",
    "short": "int16",
    "unsigned short": "uint16",
    "int": "int32",
    "unsigned": "uint32",
    "unsigned int": "uint32",
    "long long": "int64",
    "unsigned long long": "uint64",
    "int8_t": "int8",
    "uint8_t": "uint8",
    "int16_t": "int16",
    "uint16_t": "uint16",
    "int32_t": "int32",
    "uint32_t": "uint32",
    "int64_t": "int64",
    "uint64_t": "uint64",
    "size_t": "uint64",
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "__half": "float16",
    "__nv_bfloat16": "bfloat16",
}
_VECTORS = {
    f"{stem}{lanes}": (dtype, lanes)
    for stem, dtype in {
        "char": "int8",
        "uchar": "uint8",
        "short": "int16",
        "ushort": "uint16",
        "int": "int32",
        "uint": "uint32",
        "longlong": "int64",
        "ulonglong": "uint64",
        "float": "float32",
        "double": "float64",
    }.items()
    for lanes in (1, 2, 3, 4)
}
TYPES = {name: (dtype, 1) for name, dtype in _SCALARS.items()} | _VECTORS

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_KERNEL = re.compile(
    r'extern\s+"C"\s+(?:__global__\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?void|void\s+__global__)'
    r"\s+(?:__launch_bounds__\s*\([^)]*\)\s*)?(\w+)\s*\(([^)]*)\)\s*\{"
)
_DEFINE = re.compile(r"^-D\s*(\w+)(?:=(.*))?$")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel.

    Attributes:
        name: as in the source.
        c_type: the type without qualifiers, a pointer's target for pointers.
        is_pointer: whether it takes an array.
        is_const: whether the kernel promises not to write to it.
        dtype: NumPy's name of the type; None for `void*`, which takes any.
        lanes: elements in one of a vector type, 1 otherwise.
    """

    name: str
    c_type: str
    is_pointer: bool
    is_const: bool
    dtype: str | None
    lanes: int


@dataclass(frozen=True)
class Signature:
    """A kernel's name and parameters, in order."""

    name: str
    parameters: tuple[Parameter, ...]


def signatures(source: str, options: Iterable[str] = ()) -> dict[str, Signature]:
    """Find the kernels that `source` defines.

    Args:
        source: CUDA C; kernels are `extern "C" __global__ void NAME(...) {`.
        options: compiler options; those of the form `-DNAME=TYPE` may name types of parameters.

    Raises:
        SignatureError: A parameter has a type that the door does not know.
    """
    defined = {match[1]: match[2] for option in options if (match := _DEFINE.match(option))}
    text = _COMMENT.sub(" ", source)
    aliases = dict(re.findall(r"typedef\s+([\w\s]+?)\s+(\w+)\s*;", text))
    known = {alias: c_type for c_type, alias in aliases.items()} | {k: v or "" for k, v in defined.items()}
    found = {}
    for name, inside in _KERNEL.findall(text):
        parts = [part.strip() for part in inside.split(",") if part.strip() not in ("", "void")]
        found[name] = Signature(name, tuple(_parameter(name, part, known) for part in parts))
    return found


def _parameter(kernel: str, text: str, known: dict[str, str]) -> Parameter:
    words = re.findall(r"\w+|\*", re.sub(r"\b__restrict__\b|\b__restrict\b|\bvolatile\b", " ", text))
    if len(words) < 2 or words.count("*") > 1:
        raise SignatureError(f"kernel {kernel!r}: cannot read the parameter {text!r}")
    *before, name = words
    is_pointer = "*" in before
    is_const = "const" in before
    c_type = " ".join(word for word in before if word not in ("*", "const"))
    c_type = _canonical(known.get(c_type, c_type))
    if c_type == "void" and is_pointer:
        return Parameter(name, c_type, is_pointer, is_const, None, 1)
    if c_type not in TYPES:
        raise SignatureError(
            f"kernel {kernel!r}: parameter {name!r} has the type {c_type!r}, which the door does not know; use a"
            f" fundamental or vector type, or name it by a typedef or -D option"
        )
    dtype, lanes = TYPES[c_type]
    return Parameter(name, c_type, is_pointer, is_const, dtype, lanes)


def _canonical(c_type: str) -> str:
    words = c_type.split()
    if words.count("long") == 2 or words in (["long"], ["unsigned", "long"]):
        # `long` has another size on Windows; kernels say `long long`.
        if words.count("long") == 1:
            return c_type
        return "unsigned long long" if "unsigned" in words else "long long"
    if len(words) == 3 and words[-1] == "int":  # unsigned short int
        words = words[:-1]
    if words == ["short", "int"]:
        words = ["short"]
    return " ".join(words)
