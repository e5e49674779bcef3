"""Arrays of NumPy, torch and JAX in and out, always as unsigned integer views of their bits.

torch and JAX are only touched when the caller hands over, or asks for, one of their arrays.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .errors import DeviceUnavailable, LayoutMismatch, SplitZipError, UnsupportedDtype
from .floats import OPAQUE, FloatFormat, float_format

Like = Literal["numpy", "torch", "jax", "cupy"]
Bits = npt.NDArray[np.unsignedinteger[Any]]

if sys.byteorder != "little":  # pragma: no cover
    raise ImportError("splitzip frames are little-endian and this machine is not; big-endian hosts are not supported")


@dataclass(frozen=True)
class BitView:
    """A flat, C-contiguous view of an array's bits, with what is needed to describe the array."""

    bits: Bits
    format: FloatFormat
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return int(self.bits.nbytes)


@dataclass(frozen=True, eq=False)
class Pieces:
    """Elements that lie in several contiguous pieces of equal length, in this order; views, not copies.

    Attributes:
        parts: The pieces, flat unsigned integers.
    """

    parts: tuple[Bits, ...]

    @property
    def piece_elems(self) -> int:
        """Elements a piece."""
        return int(self.parts[0].size)

    @property
    def size(self) -> int:
        """Elements of all pieces."""
        return len(self.parts) * self.piece_elems

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the elements."""
        return self.parts[0].dtype

    @property
    def nbytes(self) -> int:
        """Bytes of all pieces."""
        return self.size * int(self.dtype.itemsize)

    @property
    def addresses(self) -> npt.NDArray[np.uint64]:
        """Where each piece begins."""
        return np.array([part.ctypes.data for part in self.parts], np.uint64)

    def view(self, dtype: Any) -> npt.NDArray[Any]:
        """Gather the elements into one array, a copy, and view that."""
        return np.concatenate(self.parts).view(dtype)


def as_bits(x: object, dtype: object = None) -> BitView:
    """View `x` as a flat array of unsigned integers, copying only if it is not C-contiguous.

    Args:
        x: NumPy array (also ml_dtypes), torch CPU tensor, JAX CPU array, object with `__dlpack__` or `__array__`; with
            `dtype="opaque"`, any bytes-like object. The input is never modified.
        dtype: What the bits are, for integer arrays of raw bit patterns (`"bf16"` with uint16, for instance) and for
            `"opaque"` bytes. If given for a float array it must agree with the array's own.

    Raises:
        UnsupportedDtype: Element type not handled, or `dtype` does not fit the array.
        DeviceUnavailable: The array lives on an accelerator.
    """
    array, own = strided_bits(x, dtype)
    contiguous = np.ascontiguousarray(array).reshape(-1)
    return BitView(contiguous.view(own.bits_dtype), own, tuple(int(d) for d in array.shape))


def strided_bits(x: object, dtype: object = None) -> tuple[npt.NDArray[Any], FloatFormat]:
    """View `x` as a NumPy array with the strides it has, and tell its format; see `as_bits`."""
    declared = None if dtype is None else float_format(dtype)
    if declared is OPAQUE and isinstance(x, (bytes, bytearray, memoryview)):
        x = np.frombuffer(x, np.uint8)
    array, own = _numpy_view(x)
    if own is None:
        own = format_of_bits(array.dtype, array.dtype.itemsize, declared)
    elif declared is not None and declared != own:
        raise UnsupportedDtype(f"the array is {own.name} but dtype={declared.name!r} was given")
    return array, own


def allocate(form: FloatFormat, shape: Sequence[int], like: Like) -> tuple[Any, Bits]:
    """Make an uninitialised array of `like`'s kind; return it (JAX: its NumPy source) and its flat bits."""
    if like == "torch":
        torch = import_library("torch")
        if form is OPAQUE:
            tensor = torch.empty(tuple(shape), dtype=torch.uint8)
        else:
            tensor = torch.empty(tuple(shape), dtype=getattr(torch, form.dtype_name))
        return tensor, _torch_bits(tensor).reshape(-1).view(form.bits_dtype)
    if like not in ("numpy", "jax"):
        raise SplitZipError(f'like is "numpy", "torch", "jax" or "cupy"; got {like!r}')
    if like == "jax":
        import_library("jax")
    bits = np.empty(math.prod(shape), form.bits_dtype)
    return bits.view(form.dtype).reshape(tuple(shape)), bits


def finish(array: Any, like: Like) -> Any:
    """Turn what `allocate` made into what the caller asked for."""
    return import_library("jax").numpy.asarray(array) if like == "jax" else array


def is_on_device(x: object) -> bool:
    """Whether `x` lives on a CUDA device, and so is the business of `cuda`, not of this module."""
    if _is_torch(x):
        return bool(x.device.type == "cuda")  # type: ignore[attr-defined]
    return hasattr(x, "__cuda_array_interface__")


def current_stream(x: object) -> AbstractContextManager[None]:
    """As `cuda.current_stream`; the host has none."""
    return nullcontext()


def empty_bytes(n: int) -> npt.NDArray[np.uint8]:
    """Make an uninitialised buffer that begins on a cache line."""
    buffer = np.empty(n + 63, np.uint8)
    start = -buffer.ctypes.data % 64
    return buffer[start : start + n]


def buffer_of(x: Any) -> npt.NDArray[np.uint8]:
    """View a contiguous bytes-like object as a flat array.

    Raises:
        SplitZipError: It is none.
    """
    try:
        return np.frombuffer(memoryview(x).cast("B"), np.uint8)
    except (TypeError, ValueError) as error:
        raise SplitZipError(f"expected a contiguous bytes-like object; got {type(x).__name__}: {error}") from error


def is_writable(buffer: npt.NDArray[np.uint8]) -> bool:
    """Whether `buffer_of`'s result may be written to."""
    return bool(buffer.flags.writeable)


def put(target: npt.NDArray[np.uint8], data: bytes) -> None:
    """Copy bytes from the host."""
    target[:] = np.frombuffer(data, np.uint8)


def to_host(data: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """As `cuda.to_host`; it is there already."""
    return data


def bits_of_output(out: object, form: FloatFormat, shape: tuple[int, ...]) -> Bits:
    """Check that `out` can receive a decoded array and return its flat bits.

    Raises:
        LayoutMismatch: Wrong dtype or shape.
        SplitZipError: Not C-contiguous, not writable, or of a kind that cannot be written to.
    """
    if _is_jax(out):
        raise SplitZipError("JAX arrays are immutable; decode with like='jax' instead of out=")
    try:
        array, own = _numpy_view(out)
    except UnsupportedDtype as error:
        raise LayoutMismatch(f"the data is {form.name}, which out cannot hold: {error}") from error
    if own is None and array.dtype == form.bits_dtype:
        own = form
    if own != form:
        raise LayoutMismatch(f"the data is {form.name} but out has dtype {getattr(out, 'dtype', array.dtype)}")
    if tuple(array.shape) != shape:
        raise LayoutMismatch(f"the data has shape {shape} but out has shape {tuple(array.shape)}")
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise SplitZipError("out must be C-contiguous and writable")
    return array.reshape(-1).view(form.bits_dtype)


def _numpy_view(x: Any) -> tuple[npt.NDArray[Any], FloatFormat | None]:
    """Return a NumPy view of `x` and its format, None where the array holds integers."""
    if _is_torch(x):
        return _torch_bits(x), format_or_integer(x.dtype)
    if _is_jax(x) and any(d.platform != "cpu" for d in x.devices()):
        raise DeviceUnavailable("this JAX array lives on an accelerator; move it to the host with jax.device_get first")
    if hasattr(x, "__cuda_array_interface__"):
        raise DeviceUnavailable("this array lives on a CUDA device; only Codec.encode, decompress and decode take such")
    if isinstance(x, np.ndarray):
        array = x
    elif hasattr(x, "__array__"):
        array = np.asarray(x)
    elif hasattr(x, "__dlpack__"):
        array = np.from_dlpack(x)
    else:
        raise UnsupportedDtype(
            f"expected a NumPy, torch or JAX array; got {type(x).__name__} (for bytes pass dtype='opaque')"
        )
    return array, format_or_integer(array.dtype)


@lru_cache(maxsize=64)
def format_or_integer(dtype: Any) -> FloatFormat | None:
    """Return the format of a dtype, None for integers, which may be the bits of anything."""
    name = str(dtype).removeprefix("torch.")
    if name in ("uint8", "int8", "uint16", "int16", "uint32", "int32"):
        return None
    return float_format(dtype)


def format_of_bits(dtype: object, itemsize: int, declared: FloatFormat | None) -> FloatFormat:
    """Return the format that integers of this dtype are declared to be the bits of.

    Raises:
        UnsupportedDtype: Nothing was declared, or a format of another size.
    """
    if declared is None:
        raise UnsupportedDtype(
            f"{dtype} holds integers; if these are the bits of floats, say which: "
            'dtype="bf16", "fp16", "fp32", "e5m2" or "e4m3fn"; for arbitrary bytes pass dtype="opaque"'
        )
    if itemsize != declared.itemsize:
        raise UnsupportedDtype(f"{declared.name} elements have {declared.itemsize} bytes, but the array is {dtype}")
    return declared


def _is_torch(x: object) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def _is_jax(x: object) -> bool:
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(x, jax.Array)


def _torch_bits(tensor: Any) -> npt.NDArray[Any]:
    torch = sys.modules["torch"]
    if tensor.layout != torch.strided:
        raise UnsupportedDtype(f"expected a dense torch tensor; got layout {tensor.layout}")
    if tensor.device.type != "cpu":
        raise DeviceUnavailable(f"this tensor lives on {tensor.device}; copy it to the host with .cpu() first")
    size = tensor.element_size()
    if size not in (1, 2, 4) or tensor.dtype.is_complex:
        float_format(tensor.dtype)  # raises, naming the dtype
    # NumPy has no bfloat16 or float8 of its own, so the border is crossed on signed integers of the same size.
    integer = {1: torch.int8, 2: torch.int16, 4: torch.int32}[size]
    array: npt.NDArray[Any] = tensor.detach().view(integer).numpy()
    return array.view(f"u{size}")


def import_library(name: str) -> Any:
    """Import torch or JAX, or say how to install it."""
    try:
        return __import__(name)
    except ModuleNotFoundError as error:
        raise DeviceUnavailable(
            f"like={name!r} needs {name}, which is not installed: pip install 'sprigs-splitzip[{name}]'"
        ) from error
