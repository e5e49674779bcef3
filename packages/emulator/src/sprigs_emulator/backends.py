"""One interface to kernels on the emulator and on a device, so that one test serves both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from .emulated import compile as compile_emulated
from .errors import CompilerNotFound


class BackendUnavailable(RuntimeError):
    """There is no compiler, or no device; the message says what is missing."""


class CompiledKernels(Protocol):
    """Kernels by name; each is called as `kernel(grid, block, args, shared=0, **emulator_only)`."""

    def __getitem__(self, name: str) -> Any:
        """Return a kernel."""


class Backend(Protocol):
    """Where kernels run.

    Attributes:
        name: "emulated" or "device".
    """

    name: str

    def compile(self, source: str, options: Sequence[str] = (), **more: Any) -> CompiledKernels:
        """Compile CUDA C."""


def emulated() -> Backend:
    """Return the emulator.

    Raises:
        BackendUnavailable: there is no C++ compiler.
    """
    from ._compiler import find_compiler

    try:
        find_compiler()
    except CompilerNotFound as reason:
        raise BackendUnavailable(str(reason)) from None
    return _Emulated()


def device() -> Backend:
    """Return CuPy on the current CUDA device.

    Raises:
        BackendUnavailable: CuPy is not installed, or sees no device.
    """
    try:
        import cupy
    except ImportError:
        raise BackendUnavailable("CuPy is not installed: pip install cupy-cuda12x") from None
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as reason:
        raise BackendUnavailable(f"CuPy sees no CUDA device: {reason}") from None
    return _Device(cupy)


class _Emulated:
    name = "emulated"

    def compile(self, source: str, options: Sequence[str] = (), **more: Any) -> CompiledKernels:
        return compile_emulated(source, options, **more)


class _Device:
    name = "device"

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy

    def compile(self, source: str, options: Sequence[str] = (), **more: Any) -> CompiledKernels:
        expressions = tuple(more.get("name_expressions", ())) or None
        return _DeviceKernels(self._cupy, source, tuple(options), expressions)


class _DeviceKernels:
    def __init__(self, cupy: Any, source: str, options: tuple[str, ...], expressions: tuple[str, ...] | None) -> None:
        self._cupy = cupy
        self._module = cupy.RawModule(code=source, options=options, name_expressions=expressions)
        # The signature is read by the emulator, so that Python numbers become what the kernel takes.
        self._signatures = compile_emulated(source, options, name_expressions=expressions or ())

    def __getitem__(self, name: str) -> Any:
        function, parameters = self._module.get_function(name), self._signatures[name].parameters

        def launch(grid: Any, block: Any, args: Sequence[Any], shared: int = 0, **_emulator_only: Any) -> None:
            from ._arguments import bind

            bound = bind(name, parameters, args, ())
            arrays = {id(array): self._cupy.asarray(array) for array in bound.arrays.values()}
            passed: list[Any] = []
            for argument, parameter, (_, _, data) in zip(args, parameters, bound.arguments, strict=True):
                if id(argument) in arrays:
                    passed.append(arrays[id(argument)])
                elif parameter.pointee_bytes:
                    passed.append(np.uint64(0))
                else:
                    assert data is not None
                    # Of a scalar CuPy passes on the bytes, whatever its dtype; larger structs it takes as they are.
                    carrier = _CARRIERS.get(parameter.bytes)
                    passed.append(argument if carrier is None else np.frombuffer(data.raw, carrier)[0])
            function(_triple(grid), _triple(block), tuple(passed), shared_mem=shared)
            for array in bound.arrays.values():
                if array.flags.writeable:
                    array[...] = self._cupy.asnumpy(arrays[id(array)])

        return launch


_CARRIERS = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64, 16: np.complex128}


def _triple(dimensions: Any) -> tuple[int, ...]:
    return (int(dimensions),) if isinstance(dimensions, (int, np.integer)) else tuple(int(d) for d in dimensions)
