"""A package's kernels: found, compiled when first launched on a device, launched on the right stream."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from importlib.resources import files
from typing import Any

from sprigs._errors import UnknownMethod
from sprigs._registry import load
from sprigs.kernels._arguments import prepare
from sprigs.kernels._errors import KernelsUnavailable, LaunchError, SignatureError
from sprigs.kernels._signature import Signature, signatures

_GRID_LIMITS = (2**31 - 1, 65_535, 65_535)
_BLOCK_LIMITS = (1024, 1024, 64)
_THREADS_LIMIT = 1024
_SHARED_LIMIT = 227 * 1024
_SHARED_WITHOUT_ASKING = 48 * 1024

_MISSING = "GPU kernels need CuPy, which is not installed: pip install cupy-cuda12x (CUDA 12) or cupy-cuda13x (CUDA 13)"


class Module:
    """The kernels of one `.cu` file of a package.

    >>> codec = Module("sprigs_splitzip.kernels", "codec.cu", options=("-DCODE_BITS=4",))
    >>> codec["encode"](grid, block, (x, out, n), shared=0)  # CuPy arrays or torch CUDA tensors

    Nothing is imported or compiled before the first launch; then once for each device.

    Attributes:
        package, filename: where the source is.
        options: given to NVRTC.
    """

    def __init__(self, package: str, filename: str, options: Sequence[str] = ()) -> None:
        self.package = package
        self.filename = filename
        self.options = tuple(options)
        self._compiled: dict[int, Any] = {}
        self._lock = threading.Lock()

    @cached_property
    def source(self) -> str:
        """The CUDA C text.

        Raises:
            FileNotFoundError: The package has no such file.
        """
        return (files(self.package) / self.filename).read_text(encoding="utf-8")

    @cached_property
    def signatures(self) -> dict[str, Signature]:
        """Kernel name -> signature.

        Raises:
            SignatureError: A parameter has a type that the door does not know.
        """
        return signatures(self.source, self.options)

    def __getitem__(self, name: str) -> Kernel:
        """The kernel called `name`.

        Raises:
            SignatureError: There is none.
        """
        if name not in self.signatures:
            known = ", ".join(self.signatures) or "none"
            raise SignatureError(f"{self.filename} defines no kernel {name!r}; it defines {known}")
        return Kernel(self, self.signatures[name])

    def __repr__(self) -> str:
        return f"Module({self.package!r}, {self.filename!r}, options={self.options!r})"

    def emulate(self) -> Any:
        """The same kernels on the CPU: `module.emulate()[name](grid, block, args, seed=...)` with NumPy arrays.

        Raises:
            KernelsUnavailable: `sprigs-emulator` is not installed.
        """
        # Through the registry, as any method: the hub imports none.
        try:
            compile_for_cpu: Any = load("emulator", "compile")
        except UnknownMethod as error:
            raise KernelsUnavailable(
                "running kernels on the CPU needs the emulator: pip install sprigs-emulator"
            ) from error
        return compile_for_cpu(self.source, options=self.options)

    def function(self, name: str, device: int) -> Any:
        """The compiled CuPy function for a device, which must be the current one."""
        with self._lock:
            if device not in self._compiled:
                cupy = import_cupy()
                self._compiled[device] = cupy.RawModule(code=self.source, options=self.options, backend="nvrtc")
            return self._compiled[device].get_function(name)


class Kernel:
    """One kernel, ready to launch."""

    def __init__(self, module: Module, signature: Signature) -> None:
        self.module = module
        self.signature = signature

    def __call__(
        self,
        grid: int | Sequence[int],
        block: int | Sequence[int],
        args: Sequence[Any],
        shared: int = 0,
    ) -> None:
        """Check everything, then launch: on torch's current stream if a tensor is among `args`, else on CuPy's.

        Args:
            grid: blocks, up to three numbers.
            block: threads a block, up to three numbers, at most 1024 together.
            args: CuPy arrays, torch CUDA tensors and scalars, one for each parameter; arrays C-contiguous, all on one
                device.
            shared: bytes of dynamic shared memory.

        Raises:
            LaunchError: A grid of zero, or beyond the limits.
            ArgumentError: An argument does not fit.
            KernelsUnavailable: CuPy is not installed, or sees no device.
        """
        name = self.signature.name
        blocks = _dimensions(f"kernel {name!r}: grid", grid, _GRID_LIMITS)
        threads = _dimensions(f"kernel {name!r}: block", block, _BLOCK_LIMITS)
        if threads[0] * threads[1] * threads[2] > _THREADS_LIMIT:
            raise LaunchError(f"kernel {name!r}: a block of {threads} has more than {_THREADS_LIMIT} threads")
        if not 0 <= shared <= _SHARED_LIMIT:
            raise LaunchError(f"kernel {name!r}: {shared} bytes of shared memory; the limit is {_SHARED_LIMIT}")
        cupy = import_cupy()
        prepared = prepare(self.signature, args, cupy)
        device = cupy.cuda.Device(prepared.device) if prepared.device is not None else cupy.cuda.Device()
        with device, _stream(cupy, prepared.torch_device):
            function = self.module.function(name, int(device.id))
            if shared > _SHARED_WITHOUT_ASKING:
                function.max_dynamic_shared_size_bytes = shared
            function(blocks, threads, prepared.values, shared_mem=shared)


def import_cupy() -> Any:
    """CuPy, with a device.

    Raises:
        KernelsUnavailable: It is not installed, or sees no device.
    """
    try:
        import cupy  # type: ignore[import-not-found, unused-ignore]
    except ModuleNotFoundError as error:
        raise KernelsUnavailable(_MISSING) from error
    runtime = cupy.cuda.runtime
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        raise KernelsUnavailable(f"CuPy is installed but finds no CUDA device: {error}") from error
    if count == 0:
        raise KernelsUnavailable("CuPy is installed but finds no CUDA device")
    return cupy


def _stream(cupy: Any, torch_device: Any) -> Any:
    if torch_device is None:
        return cupy.cuda.get_current_stream()
    import torch

    return cupy.cuda.ExternalStream(torch.cuda.current_stream(torch_device).cuda_stream)


def _dimensions(where: str, given: int | Sequence[int], limits: tuple[int, int, int]) -> tuple[int, int, int]:
    sizes = tuple(given) if isinstance(given, Sequence) else (given,)
    if not 1 <= len(sizes) <= 3 or not all(isinstance(size, int) and not isinstance(size, bool) for size in sizes):
        raise LaunchError(f"{where} must be one to three integers, given {given!r}")
    x, y, z = (*sizes, 1, 1)[:3]
    if min(x, y, z) < 1:
        raise LaunchError(f"{where} of {given} is empty; do not launch for no work")
    if any(size > limit for size, limit in zip((x, y, z), limits, strict=True)):
        raise LaunchError(f"{where} of {given} is beyond the limits {limits}")
    return x, y, z
