"""Checking a launch's arguments against the kernel's signature, and grouping arrays that share memory."""

from __future__ import annotations

import ctypes
import numbers
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from . import _abi
from .errors import LaunchError

_KIND_NAMES = {"i": "int", "u": "unsigned int", "f": "float", "h": "__half", "b": "bool", "B": "__nv_bfloat16"}


@dataclass(frozen=True)
class Parameter:
    """A kernel's parameter, as the compiler sees it.

    Attributes:
        name: its name in the text.
        bytes: its size.
        pointee_bytes: the size of what it points at; 0 for a scalar.
        kind: of the value or pointee: i, u, f, h (half), b (bool), B (bfloat16), v (vector), s (struct), x (void).
        element_kind: the kind of a vector's elements.
        element_bytes: the size of a vector's elements.
        is_const: whether what it points at is const.
    """

    name: str
    bytes: int
    pointee_bytes: int
    kind: str
    element_kind: str
    element_bytes: int
    is_const: bool

    def __str__(self) -> str:
        """The type in words."""
        size = self.pointee_bytes or self.bytes
        if self.kind == "v":
            text = f"vector of {size // max(self.element_bytes, 1)} {_type_name(self.element_kind, self.element_bytes)}"
        else:
            text = _type_name(self.kind, size)
        return f"{'const ' if self.is_const else ''}{text}{'*' if self.pointee_bytes else ''}"


def _type_name(kind: str, size: int) -> str:
    if kind in ("i", "u", "f"):
        return f"{_KIND_NAMES[kind].split()[0]}{8 * size}"
    return {"x": "void", "s": f"struct of {size} bytes"}.get(kind, _KIND_NAMES.get(kind, kind))


@dataclass(frozen=True)
class View:
    """An array argument inside an allocation."""

    name: str
    offset: int
    bytes: int
    itemsize: int


@dataclass
class Allocation:
    """Memory placed as one piece: one array, or several that overlap."""

    address: int
    bytes: int
    residue: int
    read_only: bool
    poisoned: bool
    views: list[View] = field(default_factory=list)

    def locate(self, offset: int) -> tuple[str, int, int]:
        """Return the name, the index and the length of the array that an offset into the allocation belongs to."""
        view = min(self.views, key=lambda v: max(v.offset - offset, offset - (v.offset + v.bytes) + 1, 0))
        return view.name, (offset - view.offset) // view.itemsize, view.bytes // view.itemsize


@dataclass
class Bound:
    """Arguments ready to be launched.

    Attributes:
        allocations: the memory that arrays are in.
        arguments: of an array the number of its allocation and its offset there; of a scalar -1, size and bytes.
        arrays: the arrays by parameter name.
    """

    allocations: list[Allocation]
    arguments: list[tuple[int, int, ctypes.Array[ctypes.c_char] | None]]
    arrays: dict[str, npt.NDArray[Any]]


def bind(
    kernel: str, parameters: Sequence[Parameter], args: Sequence[Any], written_fully: Sequence[str | int]
) -> Bound:
    """Check the arguments and lay out their memory.

    Args:
        kernel: the kernel's name, for messages.
        parameters: its signature.
        args: NumPy arrays, NumPy or Python scalars; None is a null pointer.
        written_fully: names or positions of the arrays that the kernel must write in full.

    Raises:
        LaunchError: the number, a type, a dtype or the layout of an argument does not fit.
    """
    if len(args) != len(parameters):
        signature = ", ".join(f"{p} {p.name}" for p in parameters)
        raise LaunchError(f"{kernel}({signature}) takes {len(parameters)} arguments, given {len(args)}")
    poisoned = _named(kernel, parameters, written_fully)
    bound = Bound([], [(-1, 0, None)] * len(args), {})
    placed: list[tuple[int, Parameter, npt.NDArray[Any]]] = []
    for number, (parameter, value) in enumerate(zip(parameters, args, strict=True)):
        where = f"{kernel}: argument {number + 1}, `{parameter.name}`"
        if parameter.pointee_bytes and value is not None:
            placed.append((number, parameter, _checked_array(where, parameter, value)))
            bound.arrays[parameter.name] = value
        else:
            data = bytes(8) if value is None and parameter.pointee_bytes else _scalar(where, parameter, value)
            bound.arguments[number] = (-1, len(data), ctypes.create_string_buffer(data, len(data)))
    for name in poisoned - {parameter.name for _, parameter, _ in placed}:
        raise LaunchError(f"{kernel}: written_fully names `{name}`, which is no array in this launch")
    _allocate(bound, placed, poisoned)
    return bound


def _named(kernel: str, parameters: Sequence[Parameter], wanted: Sequence[str | int]) -> set[str]:
    if isinstance(wanted, str):
        raise TypeError(f"written_fully is a sequence of names, such as ({wanted!r},), given the string {wanted!r}")
    names = [parameter.name for parameter in parameters]
    found: set[str] = set()
    for item in wanted:
        if isinstance(item, int) and 0 <= item < len(names):
            found.add(names[item])
        elif item in names:
            found.add(str(item))
        else:
            raise LaunchError(f"{kernel}: written_fully names {item!r}; the parameters are {', '.join(names)}")
    return found


def _checked_array(where: str, parameter: Parameter, value: Any) -> npt.NDArray[Any]:
    if not isinstance(value, np.ndarray):
        raise LaunchError(f"{where}: expected a NumPy array for {parameter}, given {type(value).__name__}")
    if not value.flags.c_contiguous:
        raise LaunchError(
            f"{where}: the array is not C-contiguous (shape {value.shape}, strides {value.strides}), and a kernel sees"
            " only a pointer: pass np.ascontiguousarray(...)"
        )
    if not parameter.is_const and not value.flags.writeable:
        raise LaunchError(f"{where}: the kernel may write to it ({parameter}), but the array is read-only: pass a copy")
    if not _fits(parameter, value.dtype):
        raise LaunchError(f"{where}: the kernel takes {parameter}, given an array of {value.dtype}: convert it first")
    return value


def _fits(parameter: Parameter, dtype: np.dtype[Any]) -> bool:
    kind, size = parameter.kind, parameter.pointee_bytes
    if kind in ("x", "s"):
        return kind == "x" or dtype.itemsize == size or dtype == np.uint8
    if kind == "v":
        # Vectors of unsigned integers also carry raw bytes: loading any dtype as uint4 is the usual idiom.
        if parameter.element_kind == "u":
            return size % dtype.itemsize == 0
        is_complex = (
            dtype.kind == "c" and parameter.element_kind == "f" and dtype.itemsize == 2 * parameter.element_bytes
        )
        return is_complex or dtype.itemsize == size or _is_kind(parameter.element_kind, parameter.element_bytes, dtype)
    return _is_kind(kind, size, dtype)


def _is_kind(kind: str, size: int, dtype: np.dtype[Any]) -> bool:
    if dtype.itemsize != size:
        return False
    if kind == "h":
        return dtype.name in ("float16", "uint16")
    if kind == "B":
        return dtype.name in ("bfloat16", "uint16")
    if kind == "b":
        return dtype.kind == "b" or dtype == np.uint8
    if size == 1:
        return True  # int8, uint8, bool, and the 8-bit floats that travel as bytes
    return dtype.kind == kind


def _scalar(where: str, parameter: Parameter, value: Any) -> bytes:
    if parameter.pointee_bytes:
        raise LaunchError(f"{where}: expected a NumPy array or None for {parameter}, given {type(value).__name__}")
    kind, size = parameter.kind, parameter.bytes
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    if kind in ("v", "s"):
        data = value.tobytes() if isinstance(value, np.generic) else value
        if not isinstance(data, bytes) or len(data) != size:
            raise LaunchError(f"{where}: {parameter} passes as a structured NumPy scalar or bytes of {size} bytes")
        return data
    wanted = {"i": f"i{size}", "u": f"u{size}", "f": f"f{size}", "h": "f2", "b": "?"}.get(kind)
    if isinstance(value, np.generic):
        if not _is_kind(kind, size, value.dtype) or (size == 1 and kind in "iu" and value.dtype.kind != kind):
            raise LaunchError(
                f"{where}: the kernel takes {parameter}, given {value.dtype}: on a device the bytes would be misread"
            )
        return value.tobytes()
    if wanted is None:
        raise LaunchError(f"{where}: {parameter} passes as a NumPy scalar of that type, given {type(value).__name__}")
    if kind in ("i", "u") and isinstance(value, numbers.Integral):
        low, high = (-(1 << (8 * size - 1)), 1 << (8 * size - 1)) if kind == "i" else (0, 1 << (8 * size))
        if not low <= int(value) < high:
            raise LaunchError(f"{where}: {value} does not fit into {parameter}")
        return int(value).to_bytes(size, "little", signed=kind == "i")
    if (kind in ("f", "h") and isinstance(value, numbers.Real)) or (kind == "b" and isinstance(value, bool)):
        return np.array(value, dtype=wanted).tobytes()
    raise LaunchError(f"{where}: the kernel takes {parameter}, given {type(value).__name__} {value!r}")


def _allocate(bound: Bound, placed: list[tuple[int, Parameter, npt.NDArray[Any]]], poisoned: set[str]) -> None:
    """Put arrays that overlap into one allocation, in the order of their addresses; every other has one of its own."""
    in_order = sorted(placed, key=lambda item: (item[2].ctypes.data, item[2].nbytes))
    current: Allocation | None = None
    for number, parameter, array in in_order:
        address, size = array.ctypes.data, array.nbytes
        overlaps = current is not None and size > 0 and address < current.address + current.bytes
        if current is None or not overlaps:
            current = Allocation(address, size, _residue(array), True, False)
            bound.allocations.append(current)
        offset = address - current.address
        current.bytes = max(current.bytes, offset + size)
        current.read_only = current.read_only and parameter.is_const
        current.poisoned = current.poisoned or parameter.name in poisoned
        current.views.append(View(parameter.name, offset, size, max(array.dtype.itemsize, 1)))
        bound.arguments[number] = (len(bound.allocations) - 1, offset, None)


def _residue(array: npt.NDArray[Any]) -> int:
    """The address modulo 16 that the array would have on a device, where allocations start on a multiple of 256."""
    root = array
    while isinstance(root.base, np.ndarray):
        root = root.base
    return (array.ctypes.data - root.ctypes.data) % 16


def c_arrays(bound: Bound) -> Any:
    """Return the allocations as the runtime takes them."""
    made = (_abi.Array * max(len(bound.allocations), 1))()
    for slot, allocation in zip(made, bound.allocations, strict=False):
        slot.host, slot.bytes, slot.residue = allocation.address, allocation.bytes, allocation.residue
        slot.read_only, slot.poisoned = allocation.read_only, allocation.poisoned
    return made


def c_arguments(bound: Bound) -> Any:
    """Return the arguments as the runtime takes them; they point into `bound`, which must outlive them."""
    made = (_abi.Argument * max(len(bound.arguments), 1))()
    for slot, (array, offset, value) in zip(made, bound.arguments, strict=False):
        slot.array, slot.offset = array, offset
        slot.value = None if value is None else ctypes.addressof(value)
    return made
