"""The CUDA kernels (`paths.cu`): samples of B-spline paths, and the interpolation of many records.

What launches them is a `Device`: the GPU through `sprigs.kernels` (torch's tensors, torch's stream), or the emulator in
the tests.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from sprigs.kernels import KernelsUnavailable, Module, import_cupy

from ..errors import SplineFlowError
from ..schedules import BrownianBridge, ConstantSigma, RescaledBridge

if TYPE_CHECKING:
    from ..paths import BSplinePath

_THREADS = {"path_sample": 256, "banded_solve": 128}
_MOST_BLOCKS = 1 << 16
_FEW = 8  # dimensions up to which a thread takes a sample; a warp beyond
_SCHEDULES = {ConstantSigma: 0, BrownianBridge: 1, RescaledBridge: 2}


class Device(Protocol):
    """Where kernels run."""

    def array(self, array: npt.NDArray[Any]) -> Any:
        """Bring an array to the device."""

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return an array of the device, not filled."""

    def launch(self, module: Module, name: str, grid: int, block: int, args: tuple[Any, ...]) -> None:
        """Run a kernel."""


class Drawn(NamedTuple):
    """What `PathSampler.sample` returns: arrays of the device [B, d], sigma [B]."""

    mu: Any
    x: Any
    velocity: Any
    score_noise: Any
    sigma: Any


@lru_cache(maxsize=64)
def module(degree: int, dtype: str, lanes: int) -> Module:
    """Return the kernels compiled for a degree, a dtype ("float32" or "float64") and threads a sample (1 or 32)."""
    real = {"float32": "float", "float64": "double"}[dtype]
    options = ("-std=c++17", f"-DREAL={real}", f"-DK={degree}", f"-DLANES={lanes}")
    return Module("sprigs_splineflow.kernels", "paths.cu", options)


def _width(schedule: Any) -> Any:
    return schedule.sigma if isinstance(schedule, ConstantSigma) else schedule.g


def supports(path: BSplinePath) -> bool:
    """Whether `path_sample` knows a path: one not-a-knot degree of 1 to 5 in raw time, a schedule of one width."""
    if len(path.splines) != 1 or path._map is not None or type(path.schedule) not in _SCHEDULES:
        return False
    spline = path.splines[0][1]
    plain = (
        np.array_equal(spline.counts, path.records.counts) and spline.control.shape[1] == path.records.sites.shape[1]
    )
    return 1 <= spline.degree <= 5 and plain and np.size(_width(path.schedule)) == 1


class PathSampler:
    """A B-spline path on a device.

    Attributes:
        path: what it was made of.
        device: where it is.
        origin: [G] the first time of each grid, which is taken off before times become `dtype`.
    """

    def __init__(self, path: BSplinePath, device: Device, dtype: str = "float32") -> None:
        """Bring control points, knots and observation times to a device.

        Raises:
            SplineFlowError: The kernel does not know the path; `supports` says so beforehand.
        """
        if not supports(path):
            raise SplineFlowError(
                "the kernel samples not-a-knot splines of one degree in raw time, with one sigma or g for all"
                " dimensions"
            )
        spline, records = path.splines[0][1], path.records
        self.path, self.device, self.dtype, self.degree = path, device, dtype, spline.degree
        self.origin = records.first
        # Where dimensions have their own times, each is a trajectory of one dimension.
        self.dims = 1 if records.layout == "dimension" else records.dims
        control = records.per_trajectory(spline.control[:, :, None, :])[:, :, 0]
        knots, sites = spline.knots - self.origin[:, None], records.sites - self.origin[:, None]
        self._coef, self._knots, self._sites = (
            device.array(np.ascontiguousarray(a, dtype=dtype)) for a in (control, knots, sites)
        )
        self._counts = device.array(np.ascontiguousarray(records.counts, dtype=np.int32))
        kind: Any = type(path.schedule)
        self._width, self._schedule = float(np.asarray(_width(path.schedule)).reshape(())), _SCHEDULES[kind]
        self._rows, self._n = control.shape[:2]

    def sample(
        self, index: npt.NDArray[np.integer[Any]], t: npt.NDArray[np.float64], seed: int, offset: int = 0
    ) -> Drawn:
        """Draw at pairs of trajectories (or of trajectory times d plus dimension, by dimension) and times.

        Args:
            index: [B] rows of the path.
            t: [B] times.
            seed: of the noise, 0 to 2^64 - 1.
            offset: how many normal numbers of this seed are spent already; a call spends B d.

        Raises:
            SplineFlowError: Rows out of range, times not finite, shapes that do not fit.
        """
        rows, moments = np.asarray(index), np.asarray(t, dtype=np.float64)
        if rows.ndim != 1 or moments.shape != rows.shape or rows.dtype.kind not in "iu":
            raise SplineFlowError(
                f"index must be whole numbers [B] and t [B]; got {rows.dtype} {rows.shape}, {moments.shape}"
            )
        if len(rows) and not (rows.min() >= 0 and rows.max() < self._rows):
            raise SplineFlowError(f"index must be within 0..{self._rows - 1}")
        if not np.isfinite(moments).all():
            raise SplineFlowError("times must be finite")
        if not (0 <= seed < 1 << 64 and 0 <= offset < 1 << 64):
            raise SplineFlowError("seed and offset are 64-bit numbers, 0 or more")
        batch, shared = len(rows), len(self.origin) == 1
        local = moments - (self.origin[0] if shared else self.origin[rows])
        shape = (batch, self.dims)
        mu, x, velocity, eps = (self.device.empty(shape, self.dtype) for _ in range(4))
        sigma = self.device.empty((batch,), self.dtype)
        if batch == 0:
            return Drawn(mu, x, velocity, eps, sigma)
        lanes = 1 if self.dims <= _FEW else 32
        block = _THREADS["path_sample"]
        arrays = (self._coef, self._knots, self._sites, self._counts, self.device.array(rows.astype(np.int32)),
                  self.device.array(local.astype(self.dtype)), mu, x, velocity, eps, sigma)  # fmt: skip
        numbers = (self._n, self.dims, batch, int(shared), self._schedule, self._width, seed, offset)
        grid = min(-(-batch * lanes // block), _MOST_BLOCKS)
        self.device.launch(module(self.degree, self.dtype, lanes), "path_sample", grid, block, (*arrays, *numbers))
        return Drawn(mu, x, velocity, eps, sigma)


def solve(
    device: Device,
    times: npt.NDArray[np.float64],
    counts: npt.NDArray[np.integer[Any]],
    values: npt.NDArray[np.float64],
    degree: int,
    dtype: str = "float64",
) -> tuple[Any, Any]:
    """Interpolate many records by not-a-knot splines on a device.

    Args:
        device: where.
        times: [S, n], each record's strictly increasing, whatever stands beyond its count.
        counts: [S], degree + 1 to n.
        values: [S, n].
        degree: 1 to 5.
        dtype: "float64" or "float32" of the arithmetic.

    Returns:
        Arrays of the device, time-major: knots [n + degree + 1, S] and control points [n, S]; padded with the last.

    Raises:
        SplineFlowError: Shapes, counts or degree out of range, times that do not increase, numbers not finite.
    """
    t, x, c = (np.asarray(a) for a in (times, values, counts))
    if degree not in range(1, 6):
        raise SplineFlowError(f"degree must be 1 to 5; got {degree!r}")
    if t.ndim != 2 or x.shape != t.shape or c.shape != t.shape[:1]:
        raise SplineFlowError(f"times and values must be [S, n] and counts [S]; got {t.shape}, {x.shape}, {c.shape}")
    records, n = t.shape
    if records and not (degree + 1 <= c.min() and c.max() <= n):
        raise SplineFlowError(f"every record needs {degree + 1} to {n} observations")
    inside = np.arange(n) < c[:, None]
    if not (np.isfinite(t[inside]).all() and np.isfinite(x[inside]).all()):
        raise SplineFlowError("times and values must be finite")
    if (np.diff(t, axis=1)[inside[:, 1:]] <= 0).any():
        raise SplineFlowError("times must increase strictly")
    knots, coef = device.empty((n + degree + 1, records), dtype), device.empty((n, records), dtype)
    if records == 0:
        return knots, coef
    block = _THREADS["banded_solve"]
    flat = [device.array(np.ascontiguousarray(np.where(inside, a, 0.0).T, dtype=dtype)) for a in (t, x)]
    arguments = (
        flat[0],
        device.array(c.astype(np.int32)),
        flat[1],
        device.empty((n, degree, records), dtype),
        knots,
        coef,
    )
    grid = min(-(-records // block), _MOST_BLOCKS)
    device.launch(module(degree, dtype, 1), "banded_solve", grid, block, (*arguments, n, records))
    return knots, coef


class Gpu:
    """A GPU, with torch's tensors."""

    def __init__(self, index: int = 0) -> None:
        self.index = index

    def array(self, array: npt.NDArray[Any]) -> Any:
        """Bring an array to the device."""
        import torch

        return torch.from_numpy(array).to(f"cuda:{self.index}")

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return a tensor of the device, not filled."""
        import torch

        return torch.empty(shape, dtype=getattr(torch, dtype), device=f"cuda:{self.index}")

    def launch(self, module: Module, name: str, grid: int, block: int, args: tuple[Any, ...]) -> None:
        """Run a kernel on torch's current stream."""
        module[name](grid, block, args)


def available() -> bool:
    """Whether CuPy and a device are there."""
    try:
        import_cupy()
    except KernelsUnavailable:
        return False
    return True
