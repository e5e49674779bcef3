"""The public door: `compile`, the compiled file, its kernels."""

from __future__ import annotations

import ctypes
import re
import sys
import threading
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from . import _abi
from ._arguments import Bound, Parameter, bind, c_arguments, c_arrays
from ._compiler import Compiler, find_compiler
from ._library import Library, Source, host_options
from .errors import CompileError, DeterminismError, Fault, LaunchError
from .report import error_from

Checks = Literal["all", "fast"]
Dimensions = int | Sequence[int]

# Signal handlers belong to the process, so one launch at a time.
_LAUNCHING = threading.Lock()

_SAME_VALUE = re.compile(r"//\s*sprigs:\s*allow\(same-value\)(?P<reason>[^\n]*)")


def compile(
    source: str,
    options: Sequence[str] = (),
    *,
    name_expressions: Sequence[str] = (),
    filename: str = "kernel.cu",
) -> Emulated:
    """Compile CUDA C for the CPU.

    Args:
        source: the text, as given to `cupy.RawModule(code=...)`.
        options: `-DNAME=VALUE`, `-UNAME`, `-IDIR`; others of CuPy's that only tune device code are dropped.
        name_expressions: instantiations of template kernels, such as `"scale<float>"`.
        filename: what reports call the text.

    Returns:
        The kernels by name: `compile(text)["add"](grid, block, args)`.

    Raises:
        CompileError: the text is not CUDA C that can be emulated; the message names lines of the text.
        CompilerNotFound: there is no C++ compiler.
        ValueError: an option is not known.
    """
    return Emulated(Source(source, filename, host_options(options), tuple(name_expressions)), find_compiler())


class Emulated:
    """A compiled file. `emulated["name"]` is a kernel.

    Args:
        source: the text and how to compile it.
        compiler: the host's compiler.
    """

    def __init__(self, source: Source, compiler: Compiler) -> None:
        self._source = source
        self._compiler = compiler
        self._libraries: dict[bool, Library] = {}
        self._same_value = _declared_same_value(source)
        # `__device__` and `__constant__` variables live from launch to launch, in either kind of compiled file.
        self._globals = self._library(checked=True).initial_globals()

    def __repr__(self) -> str:
        return f"<Emulated {self._source.filename}: {', '.join(self.kernels)}>"

    @property
    def kernels(self) -> tuple[str, ...]:
        """The names of the kernels."""
        return tuple(self._library(checked=True).names)

    @property
    def compiler(self) -> str:
        """Which C++ compiler is used."""
        return str(self._compiler)

    def __getitem__(self, name: str) -> Kernel:
        """Return a kernel.

        Raises:
            KeyError: there is none of that name.
        """
        if name not in self._library(checked=True).names:
            raise KeyError(f"{self._source.filename} has no kernel {name!r}; it has {', '.join(self.kernels)}")
        return Kernel(self, name)

    def set_global(self, name: str, value: npt.ArrayLike) -> None:
        """Fill a `__device__` or `__constant__` variable, as `cudaMemcpyToSymbol` does.

        Args:
            name: the variable.
            value: as many bytes as it has.

        Raises:
            KeyError: there is no such variable.
            LaunchError: the size differs.
        """
        data = np.ascontiguousarray(value).tobytes()
        size = self._variable(name).bytes
        if len(data) != size:
            raise LaunchError(f"{name} has {size} bytes, given {len(data)}: mind the dtype of the value")
        self._globals[name] = data

    def get_global(self, name: str) -> npt.NDArray[Any]:
        """Return a copy of a `__device__` or `__constant__` variable as the last faultless launch left it.

        Raises:
            KeyError: there is no such variable.
        """
        variable = self._variable(name)
        kind = {"h": "f", "B": "u", "b": "?"}.get(variable.kind.decode(), variable.kind.decode())
        dtype = np.dtype(
            "?" if kind == "?" else f"{kind}{variable.element}" if kind in "iuf" else f"V{variable.element}"
        )
        return np.frombuffer(self._globals[name], dtype).copy()

    def _variable(self, name: str) -> _abi.GlobalVariable:
        known = self._library(checked=True).globals
        if name not in known:
            raise KeyError(f"no __device__ or __constant__ variable {name!r}; there are: {', '.join(known) or 'none'}")
        return known[name]

    def determinism(
        self,
        name: str,
        grid: Dimensions,
        block: Dimensions,
        args: Sequence[Any],
        *,
        seeds: int | Iterable[int] = 20,
        **launch: Any,
    ) -> None:
        """Run a kernel under many seeds and require the same result of each.

        Args:
            name: the kernel.
            grid: as in a launch.
            block: as in a launch.
            args: as in a launch; the arrays hold the last result afterwards.
            seeds: how many, or which.
            launch: further arguments of the launch, such as `shared=` or `atomic_order=`.

        Raises:
            DeterminismError: two seeds give different results.
            EmulatorError: a check fails under one of them.
        """
        self[name](grid, block, args, seed=range(seeds) if isinstance(seeds, int) else tuple(seeds), **launch)

    def _library(self, *, checked: bool) -> Library:
        if checked not in self._libraries:
            self._libraries[checked] = Library(self._source, self._compiler, checked=checked)
        return self._libraries[checked]


class Kernel:
    """A kernel; calling it launches it.

    Args:
        emulated: the compiled file.
        name: the kernel's name.
    """

    def __init__(self, emulated: Emulated, name: str) -> None:
        self._emulated = emulated
        self.name = name

    def __repr__(self) -> str:
        return f"<Kernel {self.name}({', '.join(f'{p} {p.name}' for p in self.parameters)})>"

    @property
    def parameters(self) -> list[Parameter]:
        """The signature."""
        library = self._emulated._library(checked=True)
        return library.parameters(library.names[self.name])

    def __call__(
        self,
        grid: Dimensions,
        block: Dimensions,
        args: Sequence[Any],
        shared: int = 0,
        seed: int | Iterable[int] = 0,
        checks: Checks = "all",
        *,
        written_fully: Sequence[str | int] = (),
        interleave: int = 1,
        delay_block: int | None = None,
        atomic_order: Literal["float"] | None = None,
        rtol: float = 1e-5,
        stack: int = 16384,
        timeout: float = 60.0,
    ) -> None:
        """Launch the kernel; the arrays hold its results afterwards, and are untouched if it fails.

        Args:
            grid: blocks in x, y, z.
            block: threads of a block in x, y, z.
            args: NumPy arrays, scalars, None for a null pointer.
            shared: bytes of dynamic shared memory.
            seed: of the order in which threads and blocks run. Of several, each starts from the same arrays, and all
                must give the same result bit for bit.
            checks: "all", or "fast" to leave out what needs instrumentation (racecheck, initcheck, exact bounds).
            written_fully: names or positions of arrays that the kernel must write in full; they start out poisoned.
            interleave: how many blocks are alive at once.
            delay_block: the linear number of a block that is starved, once past its first atomic or barrier, for as
                long as any other can run.
            atomic_order: "float" if floating-point atomics make the last bits depend on the order; results of several
                seeds are then compared within `rtol`.
            rtol: relative tolerance, of the largest magnitude in the array.
            stack: bytes for each thread's local variables and calls.
            timeout: seconds that one thread may run without meeting a barrier, collective or atomic.

        Raises:
            LaunchError: the arguments or sizes do not fit.
            MemcheckError: an access out of bounds or misaligned, or an overflowing index.
            RacecheckError: unordered accesses to one address.
            InitcheckError: something read before written, or not written in full.
            SynccheckError: a barrier or collective that not all reach.
            KernelAssertionError: an assert of the kernel failed.
            DeterminismError: seeds disagree.
        """
        if checks not in ("all", "fast"):
            raise ValueError(f'checks is "all" or "fast", given {checks!r}')
        if atomic_order not in (None, "float"):
            raise ValueError(f'atomic_order is None or "float", given {atomic_order!r}')
        library = self._emulated._library(checked=checks == "all")
        number = library.names[self.name]
        launch = _abi.Launch()
        launch.module = ctypes.addressof(library.module)
        launch.kernel = number
        launch.grid[:] = _dimensions(self.name, "grid", grid, (2**31 - 1, 65535, 65535))
        launch.block[:] = _dimensions(self.name, "block", block, (1024, 1024, 64))
        self._check_sizes(launch, library.module.kernels[number].most_threads, shared)
        launch.dynamic_bytes = shared
        launch.checking = checks == "all"
        launch.interleave = _whole("interleave", interleave, 1, 65535)
        launch.delay_block = -1 if delay_block is None else _whole("delay_block", delay_block, 0, 2**31)
        launch.stack_bytes = _whole("stack", stack, 4096, 1 << 28)
        launch.timeout = timeout
        bound = bind(self.name, library.parameters(number), args, written_fully)
        seeds = [seed] if isinstance(seed, int) else list(seed)
        if not seeds:
            raise ValueError("seed is an integer or several, given none")
        before = {name: array.copy() for name, array in bound.arrays.items()} if len(seeds) > 1 else {}
        reference: dict[str, npt.NDArray[Any]] = {}
        for one in seeds:
            if reference:
                for name, array in bound.arrays.items():
                    if array.flags.writeable:
                        array[...] = before[name]
            launch.seed = _whole("seed", one, 0, 2**64 - 1)
            self._run(library, launch, bound)
            if len(seeds) > 1:
                if not reference:
                    reference = {name: array.copy() for name, array in bound.arrays.items()}
                self._compare(reference, bound.arrays, seeds[0], one, rtol if atomic_order else None)

    def _check_sizes(self, launch: _abi.Launch, most_threads: int, shared: int) -> None:
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        if threads > 1024:
            raise LaunchError(f"{self.name}: a block has at most 1024 threads, given {threads}")
        if most_threads and threads > most_threads:
            raise LaunchError(f"{self.name}: __launch_bounds__ allows {most_threads} threads a block, given {threads}")
        if launch.grid[0] * launch.grid[1] * launch.grid[2] * threads >= 2**32 - 1:
            raise LaunchError(f"{self.name}: the emulator numbers threads in 32 bits; launch a smaller grid")
        if not 0 <= shared <= 227 * 1024:
            raise LaunchError(f"{self.name}: shared is 0 to 232448 bytes (the largest of any device), given {shared}")

    def _run(self, library: Library, launch: _abi.Launch, bound: Bound) -> None:
        arrays, arguments = c_arrays(bound), c_arguments(bound)
        launch.arrays, launch.array_count = arrays, len(bound.allocations)
        launch.arguments, launch.argument_count = arguments, len(bound.arguments)
        allowed = self._emulated._same_value
        ranges = library.lines.ranges(allowed, library.source.filename) if allowed and launch.checking else []
        made = (_abi.Range * max(len(ranges), 1))(*(_abi.Range(low, high) for low, high in ranges))
        launch.same_value, launch.same_value_count = made, len(ranges)
        report = _abi.Report()
        with _LAUNCHING:
            library.write_globals(self._emulated._globals)
            try:
                outcome = library.launch_begin(ctypes.byref(launch), ctypes.byref(report))
                if outcome == _abi.Outcome.FINE:
                    # Between two steps Python handles signals, so that Ctrl-C ends a long launch.
                    while (outcome := library.launch_step()) == _abi.Outcome.UNFINISHED:
                        pass
                printed = library.printed()
                if outcome == _abi.Outcome.FINE:
                    self._emulated._globals = library.read_globals()
            finally:
                library.launch_end()
        if printed:
            sys.stdout.write(printed)
        if outcome != _abi.Outcome.FINE:
            x, y, z = launch.block
            raise error_from(report, library, bound.allocations, self.name, launch.seed, (x, y, z))

    def _compare(
        self,
        reference: dict[str, npt.NDArray[Any]],
        arrays: dict[str, npt.NDArray[Any]],
        first: int,
        seed: int,
        rtol: float | None,
    ) -> None:
        for name, array in arrays.items():
            expected = reference[name]
            if expected.tobytes() == array.tobytes():
                continue
            differs = _differing(expected, array, rtol)
            if not differs.any():
                continue
            index = int(np.flatnonzero(differs.reshape(-1))[0])
            values = [a.reshape(-1)[index] for a in (expected, array)]
            remedy = (
                'Let the order not matter: barriers, integer atomics, a fixed tree; or declare atomic_order="float".'
                if rtol is None
                else "The results differ by more than rounding: look for an operation whose order matters."
            )
            raise DeterminismError(
                f"determinism: {name}[{index}] is {values[0]} under seed {first} and {values[1]} under seed {seed}"
                f" ({int(differs.sum())} of {array.size} elements differ)\n  in kernel `{self.name}`\n  {remedy}",
                Fault(kernel=self.name, array=name, index=index, seed=seed),
            )


def _differing(expected: npt.NDArray[Any], array: npt.NDArray[Any], rtol: float | None) -> npt.NDArray[np.bool_]:
    if rtol is not None and (expected.dtype.kind in "fc" or expected.dtype.name == "bfloat16"):
        wide = "complex128" if expected.dtype.kind == "c" else "float64"
        a, b = expected.astype(wide), array.astype(wide)
        finite = np.abs(a[np.isfinite(a)])
        scale = float(finite.max()) if finite.size else 0.0
        close: npt.NDArray[np.bool_] = np.isclose(a, b, rtol=0.0, atol=rtol * scale, equal_nan=True)
        return ~close
    bits = [np.frombuffer(x.tobytes(), np.uint8).reshape(x.size, x.dtype.itemsize) for x in (expected, array)]
    different: npt.NDArray[np.bool_] = (bits[0] != bits[1]).any(axis=1)
    return different


def _dimensions(kernel: str, what: str, given: Dimensions, most: tuple[int, int, int]) -> list[int]:
    values = [given] if isinstance(given, (int, np.integer)) else list(given)
    values = [int(value) for value in values] + [1] * (3 - len(values))
    if len(values) != 3 or any(not 1 <= value <= limit for value, limit in zip(values, most, strict=True)):
        raise LaunchError(f"{kernel}: {what} is one to three numbers from 1 to {most}, given {given!r}")
    return values


def _whole(name: str, value: Any, low: int, high: int) -> int:
    if not isinstance(value, (int, np.integer)) or not low <= int(value) <= high:
        raise ValueError(f"{name} is a whole number from {low} to {high}, given {value!r}")
    return int(value)


def _declared_same_value(source: Source) -> set[int]:
    """The lines whose same-value writes the text declares harmless: that of the comment, or the one below it."""
    lines: set[int] = set()
    for number, line in enumerate(source.text.splitlines(), 1):
        if match := _SAME_VALUE.search(line):
            if not match["reason"].lstrip().startswith(":") or not match["reason"].lstrip(" :").strip():
                raise CompileError(
                    f"{source.filename}:{number}: write why the writers agree: // sprigs: allow(same-value): REASON"
                )
            lines.add(number + 1 if line.lstrip().startswith("//") else number)
    return lines
