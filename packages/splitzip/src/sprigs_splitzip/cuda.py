"""Arrays on a CUDA device: CuPy's, and torch's through DLPack, seen as CuPy arrays of bits without a copy.

CuPy is imported when such an array, or `like="cupy"`, first turns up.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from sprigs.kernels import KernelsUnavailable, Module, import_cupy

from . import kernels
from .arrays import BitView, format_of_bits, format_or_integer, import_library
from .codebook import Codebook
from .errors import DeviceUnavailable, LayoutMismatch, SplitZipError, UnsupportedDtype
from .floats import OPAQUE, FloatFormat, float_format
from .format import Sections


class current_stream:
    """Work on the device and stream of `x`: torch's current one for tensors, else CuPy's."""

    def __init__(self, x: Any) -> None:
        self._x = x
        self._stack = ExitStack()

    def __enter__(self) -> None:
        cupy = _cupy()
        x = self._x
        if _is_torch_cuda(x):
            stream = sys.modules["torch"].cuda.current_stream(x.device).cuda_stream
            self._stack.enter_context(cupy.cuda.Device(x.device.index))
            self._stack.enter_context(cupy.cuda.ExternalStream(stream))
        elif hasattr(x, "device"):
            self._stack.enter_context(cupy.cuda.Device(int(x.device.id)))

    def __exit__(self, *error: object) -> None:
        self._stack.close()


def as_bits(x: Any, dtype: object = None) -> BitView:
    """As `arrays.as_bits`, for an array on the device; `bits` is a CuPy array.

    Raises:
        UnsupportedDtype: Element type not handled, or `dtype` does not fit the array.
        DeviceUnavailable: CuPy is not installed.
    """
    own = _format_of(x, dtype)
    return BitView(_bytes_of(x, copy=True).view(own.bits_dtype), own, tuple(int(d) for d in x.shape))


def _format_of(x: Any, dtype: object) -> FloatFormat:
    declared = None if dtype is None else float_format(dtype)
    own = format_or_integer(x.dtype)
    if own is None:
        itemsize = np.dtype(str(x.dtype).removeprefix("torch.")).itemsize
        return format_of_bits(x.dtype, itemsize, declared)
    if declared is not None and declared != own:
        raise UnsupportedDtype(f"the array is {own.name} but dtype={declared.name!r} was given")
    return own


def buffer_of(x: Any) -> Any:
    """Return a contiguous uint8 device array as a flat CuPy array.

    Raises:
        SplitZipError: It holds something else than bytes.
    """
    if str(x.dtype).removeprefix("torch.") != "uint8":
        raise SplitZipError(f"a frame is an array of uint8; got {x.dtype}")
    return _bytes_of(x, copy=False)


def bits_of_output(out: Any, form: FloatFormat, shape: tuple[int, ...]) -> Any:
    """As `arrays.bits_of_output`, for an array on the device."""
    name = str(out.dtype).removeprefix("torch.")
    if name not in (form.dtype_name, str(form.bits_dtype)):
        raise LayoutMismatch(f"the data is {form.name} but out has dtype {out.dtype}")
    if tuple(out.shape) != shape:
        raise LayoutMismatch(f"the data has shape {shape} but out has shape {tuple(out.shape)}")
    return _bytes_of(out, copy=False).view(form.bits_dtype)


def allocate(form: FloatFormat, shape: tuple[int, ...], like: object = "cupy") -> tuple[Any, Any]:
    """Make an uninitialised CuPy array; return it and its flat bits.

    Formats that CuPy has no type for come as unsigned integers of their size.
    """
    cupy = _cupy()
    bits = cupy.empty(int(np.prod(shape)), form.bits_dtype)
    native = form.dtype_name in ("float16", "float32") or form is OPAQUE
    return (bits.view(form.dtype) if native else bits).reshape(shape), bits


def empty_bytes(n: int) -> Any:
    """Make an uninitialised uint8 CuPy array; CuPy aligns to 512 bytes."""
    return _cupy().empty(n, "uint8")


def upload(data: npt.NDArray[Any]) -> Any:
    """Copy a host array to the current device."""
    return _cupy().asarray(data)


def is_writable(buffer: Any) -> bool:
    """Arrays on the device always are."""
    return True


def put(target: Any, data: bytes) -> None:
    """Copy bytes from the host."""
    target.set(np.frombuffer(data, np.uint8))


def to_host(data: Any) -> npt.NDArray[np.uint8]:
    """Copy bytes to the host."""
    host: npt.NDArray[np.uint8] = data.get()
    return host


@dataclass(frozen=True, eq=False)
class DevicePieces:
    """Elements that lie in several runs of one array on the device; the `arrays.Pieces` of a GPU.

    Attributes:
        memory: The bytes that hold all runs, uint8, flat.
        runs: Where in them.
        dtype: Of the elements' bits.
    """

    memory: Any
    runs: kernels.Runs
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Elements of all runs."""
        return self.runs.offsets.size * self.runs.elems

    @property
    def nbytes(self) -> int:
        """Bytes of all runs."""
        return self.size * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> Any:
        """Of the memory: this marks where the elements are, not what they are."""
        return self.memory.__cuda_array_interface__

    def view(self, dtype: Any) -> Any:
        """Gather the elements into one array, a copy, and view that."""
        length = self.runs.elems * self.dtype.itemsize
        return _cupy().concatenate([self.memory[at : at + length] for at in self.runs.offsets.tolist()]).view(dtype)


def strided_bits(x: Any, dtype: object = None) -> tuple[Any, FloatFormat]:
    """As `arrays.strided_bits`: a CuPy array of unsigned integers with the strides `x` has, and its format."""
    cupy = _cupy()
    own = _format_of(x, dtype)
    if _is_torch_cuda(x):
        torch = import_library("torch")
        x = cupy.from_dlpack(x.detach().view(getattr(torch, f"int{8 * own.itemsize}" if own.itemsize > 1 else "uint8")))
    elif not isinstance(x, cupy.ndarray):
        x = cupy.asarray(x)
    return x.view(own.bits_dtype), own


def pieces(array: Any, offsets: npt.NDArray[np.uint64], run: int) -> DevicePieces | None:
    """See runs of `run` elements at `offsets` (bytes) of a strided array; None if the kernels do not take such."""
    size = array.dtype.itemsize
    if run % 8 or run * size % 16 or min(array.strides, default=0) < 0:
        return None
    span = 1 + sum((d - 1) * (stride // size) for d, stride in zip(array.shape, array.strides, strict=True))
    memory = _cupy().lib.stride_tricks.as_strided(array, (span,), (size,)).view("uint8")
    return DevicePieces(memory, kernels.Runs(offsets, run), np.dtype(array.dtype))


def encode(
    bits: Any, codebook: Codebook, layout: Sections, chunk_log2: int, payload: Any, limit: int, threads: int = 1
) -> int | None:
    """As `reference.encode`, padding included; on the device, so that `threads` means nothing."""
    source, runs = (bits.memory, bits.runs) if isinstance(bits, DevicePieces) else (bits.view("uint8"), None)
    return kernels.encode(gpu(), source, codebook, layout, bits.size, chunk_log2, payload, limit, runs)


def decode(
    payload: Any, codebook: Codebook, layout: Sections, chunk_log2: int, n_escapes: int, out: Any, threads: int = 1
) -> None:
    """As `reference.decode`; checks the escape sections too."""
    target, runs = (out.memory, out.runs) if isinstance(out, DevicePieces) else (out.view("uint8"), None)
    kernels.decode(gpu(), payload, codebook, layout, out.size, chunk_log2, n_escapes, target, runs)


def gpu() -> kernels.Device:
    """Return the current GPU, through CuPy, as the kernels' launcher sees it."""
    return _CuPy()


class _CuPy:
    """CuPy's current device and stream."""

    def __init__(self) -> None:
        self.cupy = _cupy()

    def empty(self, n: int, dtype: str) -> Any:
        return self.cupy.empty(n, dtype)

    def zeros(self, n: int, dtype: str) -> Any:
        return self.cupy.zeros(n, dtype)

    def upload(self, x: npt.NDArray[Any]) -> Any:
        return _constant_on(int(self.cupy.cuda.Device().id), x.dtype.str, x.tobytes())

    def address(self, x: Any) -> int:
        return int(x.data.ptr)

    def launch(self, module: Module, name: str, grid: int, block: int, args: tuple[Any, ...]) -> None:
        module[name](grid, block, args)


@lru_cache(maxsize=1024)
def _constant_on(device: int, dtype: str, values: bytes) -> Any:
    """Keep codebooks and the like on the device: an upload for each call would cost more than the kernels."""
    return _cupy().asarray(np.frombuffer(values, dtype))


def _cupy() -> Any:
    try:
        return import_cupy()
    except KernelsUnavailable as error:
        raise DeviceUnavailable(str(error)) from error


def _is_torch_cuda(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor) and x.device.type == "cuda"


def _bytes_of(x: Any, *, copy: bool) -> Any:
    """Return a flat CuPy uint8 view; of an array with strides a copy, or an error."""
    cupy = _cupy()
    if _is_torch_cuda(x):
        torch = import_library("torch")
        if not x.is_contiguous() and not copy:
            raise SplitZipError("arrays on the device must be contiguous here; pass x.contiguous()")
        return cupy.from_dlpack(x.detach().contiguous().reshape(-1).view(torch.uint8))
    if not isinstance(x, cupy.ndarray):
        x = cupy.asarray(x)  # numba's and others', through __cuda_array_interface__, without a copy
    if not x.flags.c_contiguous and not copy:
        raise SplitZipError("arrays on the device must be contiguous here; pass cupy.ascontiguousarray(x)")
    return cupy.ascontiguousarray(x).reshape(-1).view("uint8")
