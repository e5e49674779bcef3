"""The CUDA kernels of the product and its adjoint (`spin.cu`): the back end "cuda".

What launches them is a `Device`: the GPU through `sprigs.kernels` (torch's tensors, torch's stream), or the emulator in
the tests.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from sprigs.kernels import KernelsUnavailable, Module, import_cupy

from ..errors import SpinTPError
from ..programs import EVEN, ODD, G, Program, X, Y
from ..tables import legendre

THREADS = 64
MAX_BAND = 8
_SHARED_LIMIT = 227 * 1024


class Device(Protocol):
    """Where kernels run."""

    def table(self, array: npt.NDArray[Any]) -> Any:
        """Bring a constant table to the device."""

    def launch(self, module: Module, name: str, grid: int, block: int, args: tuple[Any, ...], shared: int) -> None:
        """Run a kernel."""


class Tables(NamedTuple):
    """What a kernel reads besides its rows."""

    legendre: npt.NDArray[Any]
    weights: npt.NDArray[Any]
    meridians: npt.NDArray[Any]


def supports(form: Program) -> bool:
    """Whether the kernels know a program: the complete or the Gaunt product, degrees up to 8."""
    return set(form.kinds) <= {EVEN, ODD} and list(form.kinds) == sorted(form.kinds) and max(form.bands) <= MAX_BAND


@lru_cache(maxsize=256)
def module(form: Program, exchanged: bool, dtype: str) -> Module:
    """Return the kernels compiled for a program's degrees; the inputs exchanged for the gradient of the second."""
    real = {"float32": "float", "float64": "double"}[dtype]
    slots = (Y, X, G) if exchanged else (X, Y, G)
    options = ["-std=c++17", f"-DREAL={real}"]
    for k, slot in enumerate(slots, 1):
        options += [f"-DL{k}={form.bands[slot]}", f"-DMASK{k}={sum(1 << degree for degree in form.degrees[slot])}u"]
    kinds = sum({EVEN: 1, ODD: 2}[kind] for kind in form.kinds)
    options += [f"-DKINDS={kinds}", f"-DMERGE={int(form.merge)}", f"-DTHREADS={THREADS}"]
    return Module("sprigs_spingtp.kernels", "spin.cu", tuple(options))


@lru_cache(maxsize=256)
def kernel_tables(form: Program, dtype: str) -> Tables:
    """Return the tables of a program; sqrt(2), the gradients' normalisation and the order are folded in."""
    beta, alpha, weights = form.grid
    lmax = max(form.bands)
    P, dP, Q = legendre(lmax, beta)
    rows = []
    for l in range(lmax + 1):
        norm = 1 / math.sqrt(l * (l + 1)) if l else 0.0
        for m in range(l + 1):
            root = math.sqrt(2) if m else 1.0
            rows.append(root * np.stack([P[l, m], norm * dP[l, m], norm * m * Q[l, m]], axis=-1))
    n_a = len(alpha)
    half = alpha[: n_a // 2 + 1, None]
    order = np.arange(1, lmax + 1)
    paired = np.ones_like(half)
    paired[0] = 0.5
    if n_a % 2 == 0:
        paired[-1] = 0.5
    meridians = np.concatenate([paired, np.cos(order * half), np.sin(order * half)], axis=1)
    return Tables(*(np.ascontiguousarray(t, dtype) for t in (np.stack(rows, axis=1), weights, meridians)))


def shared_bytes(form: Program, dtype: str) -> int:
    """Return the dynamic shared memory of a block."""
    tables = kernel_tables(form, dtype)
    rows = (form.sizes[X] + form.sizes[Y] + form.outputs * form.sizes[G]) * (THREADS + 1)
    return int((sum(t.size for t in tables) + rows) * np.dtype(dtype).itemsize)


def run(device: Device, form: Program, slot: int, a: Any, b: Any, out: Any, rows: int, dtype: str) -> None:
    """Solve the form for a slot on a device: a and b are the other two in the order x, y, g; out is filled.

    Raises:
        SpinTPError: The kernels do not know the program, or a block does not fit.
    """
    if not supports(form):
        raise SpinTPError(
            f"the kernels know the complete and the Gaunt product up to degree {MAX_BAND}: use backend='dense'"
        )
    shared = shared_bytes(form, dtype)
    if shared > _SHARED_LIMIT:
        raise SpinTPError(f"a block needs {shared} bytes of shared memory, more than {_SHARED_LIMIT}")
    if rows == 0:
        return
    tables = kernel_tables(form, dtype)
    constants = tuple(device.table(t) for t in tables)
    sizes = (len(tables.weights), len(tables.meridians), rows)
    grid = min(-(-rows // THREADS), 1 << 16)
    if slot == G:
        device.launch(module(form, False, dtype), "product", grid, THREADS, (a, b, out, *constants, *sizes), shared)
    else:
        sign = 1.0 if slot == X else -1.0
        device.launch(
            module(form, slot == Y, dtype), "adjoint", grid, THREADS, (a, b, out, *constants, *sizes, sign), shared
        )


class Gpu:
    """A GPU, with torch's tensors."""

    def __init__(self, index: int) -> None:
        self.index = index
        self._tables: dict[int, Any] = {}

    def table(self, array: npt.NDArray[Any]) -> Any:
        """Bring a table to the device once; tables are cached for the process and never change."""
        import torch

        if id(array) not in self._tables:
            self._tables[id(array)] = (torch.from_numpy(array).to(f"cuda:{self.index}"), array)
        return self._tables[id(array)][0]

    def launch(self, module: Module, name: str, grid: int, block: int, args: tuple[Any, ...], shared: int) -> None:
        """Run a kernel on torch's current stream."""
        module[name](grid, block, args, shared=shared)


@lru_cache(maxsize=16)
def gpu(index: int) -> Gpu:
    """Return the device of an index."""
    return Gpu(index)


def available() -> bool:
    """Whether CuPy and a device are there."""
    try:
        import_cupy()
    except KernelsUnavailable:
        return False
    return True
