"""The CUDA kernels (`paths.cu`): samples of B-spline paths, and the interpolation of many records.

What launches them is a `Device`: the GPU through `sprigs.kernels` (torch's tensors, torch's stream), or the emulator in
the tests.
"""

from __future__ import annotations

import math
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
SCHEDULES = ("constant", "bridge", "bridge-rescaled")
_SCHEDULES = dict(zip((ConstantSigma, BrownianBridge, RescaledBridge), SCHEDULES, strict=True))


class Device(Protocol):
    """Where kernels run."""

    def array(self, array: npt.NDArray[Any]) -> Any:
        """Bring an array to the device."""

    def empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        """Return an array of the device, not filled."""

    def launch(self, module: Module, name: str, grid: int, block: int, args: tuple[Any, ...]) -> None:
        """Run a kernel."""


class Drawn(NamedTuple):
    """What `sample` and `PathSampler.sample` return: arrays of the device [B, d], sigma [B]."""

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


def spent(batch: int, dims: int) -> int:
    """Return how many normal numbers of a seed a call of `sample` takes: four to a counter, so d is rounded up."""
    return batch * 4 * -(-dims // 4)


def sample(
    device: Device,
    coef: Any,
    knots: Any,
    sites: Any,
    counts: Any,
    index: Any,
    t: Any,
    schedule: str,
    width: float,
    seed: int,
    offset: int = 0,
    *,
    out: Drawn | None = None,
    trusted: bool = False,
) -> Drawn:
    """Draw from Gaussian paths around splines: x = mu(t) + s(t) eps, velocity = mu'(t) + s'(t) eps.

    Beyond the first and last time of a record the path stands still: the value there, and a velocity of mu of zero.

    Args:
        device: where the arrays are; all of one dtype, float32 or float64, and C-contiguous.
        coef: [N, n, d] control points.
        knots: [G, n + K + 1], clamped, of degree K 1 to 5; G is N, or 1 if all rows share them. Long clocks lose digits
            in float32: take the first time off knots, sites and t beforehand, as `PathSampler` does.
        sites: [G, n] observation times, between which the bridges run.
        counts: [G] int32, K + 1 to n: control points and sites in use; n + K + 1 - count knots are padding.
        index: [B] int32, rows of coef.
        t: [B] times.
        schedule: one of `SCHEDULES`.
        width: sigma of the constant schedule, g of the bridges.
        seed: of the noise, 0 to 2^64 - 1.
        offset: how many normal numbers of this seed are spent already, a multiple of 4; a call takes `spent(B, d)`.
        out: arrays to fill; made by `device.empty` without.
        trusted: leave out the checks that read `index`, `counts` and `t`, which wait for a GPU. A row or count out of
            range then gives NaN, and so does a time that is NaN.

    Raises:
        SplineFlowError: Shapes, dtypes, rows, counts or numbers that do not fit.
    """
    shapes = tuple(tuple(a.shape) for a in (coef, knots, sites, counts, index, t))
    if [len(shape) for shape in shapes] != [3, 2, 2, 1, 1, 1]:
        raise SplineFlowError(
            "expected coef [N, n, d], knots [G, n + K + 1], sites [G, n], counts [G], index [B] and t [B];"
            f" got {shapes}"
        )
    (rows, n, dims), (grids, length), (batch,) = shapes[0], shapes[1], shapes[4]
    degree = length - n - 1
    if not 1 <= degree <= 5:
        raise SplineFlowError(f"{length} knots of {n} control points make degree {degree}; the kernel knows 1 to 5")
    if grids not in (1, rows) or shapes[2:4] != ((grids, n), (grids,)) or shapes[5] != (batch,):
        raise SplineFlowError(f"coef, knots, sites, counts, index and t do not go together: {shapes}")
    if dims == 0:
        raise SplineFlowError("coef has no dimensions")
    dtype = _dtype(coef)
    if dtype not in ("float32", "float64") or any(_dtype(a) != dtype for a in (knots, sites, t)):
        found = ", ".join(_dtype(a) for a in (coef, knots, sites, t))
        raise SplineFlowError(f"coef, knots, sites and t must all be float32 or all float64; got {found}")
    if _dtype(counts) != "int32" or _dtype(index) != "int32":
        raise SplineFlowError(f"counts and index must be int32; got {_dtype(counts)} and {_dtype(index)}")
    if schedule not in SCHEDULES:
        raise SplineFlowError(f"schedule must be one of {', '.join(SCHEDULES)}; got {schedule!r}")
    if not 0 <= width < math.inf:
        raise SplineFlowError(f"the width must be a number, 0 or more; got {width!r}")
    if not (0 <= seed < 1 << 64 and 0 <= offset <= (1 << 64) - spent(batch, dims)):
        raise SplineFlowError("seed and offset are 64-bit numbers, 0 or more")
    if offset % 4:
        raise SplineFlowError(f"offset must be a multiple of 4, as `spent` gives it; got {offset}")
    if not trusted and batch:
        if int(index.min()) < 0 or int(index.max()) >= rows:
            raise SplineFlowError(f"index must be within 0..{rows - 1}")
        if int(counts.min()) <= degree or int(counts.max()) > n:
            raise SplineFlowError(f"counts must be within {degree + 1}..{n}")
        if not bool((abs(t) < math.inf).all()):
            raise SplineFlowError("times must be finite")
    if out is None:
        mu, x, velocity, noise = (device.empty((batch, dims), dtype) for _ in range(4))
        out = Drawn(mu, x, velocity, noise, device.empty((batch,), dtype))
    for name, array in out._asdict().items():
        shape = (batch,) if name == "sigma" else (batch, dims)
        if tuple(array.shape) != shape or _dtype(array) != dtype:
            raise SplineFlowError(f"{name} must be {dtype} {shape}; got {_dtype(array)} {tuple(array.shape)}")
    if batch == 0:
        return out
    lanes = 1 if dims <= _FEW else 32
    block = _THREADS["path_sample"]
    grid = min(-(-batch * lanes // block), _MOST_BLOCKS)
    arrays = (coef, knots, sites, counts, index, t, *out)
    numbers = (rows, n, dims, batch, int(grids == 1), SCHEDULES.index(schedule), float(width), seed, offset)
    device.launch(module(degree, dtype, lanes), "path_sample", grid, block, (*arrays, *numbers))
    return out


def _dtype(array: Any) -> str:
    return str(array.dtype).removeprefix("torch.")


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
            SplineFlowError: The kernel does not know the path; `supports` says so beforehand. Or observation times so
                close that they are equal in `dtype`.
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
        inside = np.arange(1, sites.shape[1]) < records.counts[:, None]
        if (np.diff(sites.astype(dtype), axis=1)[inside] <= 0).any():
            raise SplineFlowError(f"some observation times are equal in {dtype}: take float64, or merge them")
        self._coef, self._knots, self._sites = (
            device.array(np.ascontiguousarray(a, dtype=dtype)) for a in (control, knots, sites)
        )
        self._counts = device.array(np.ascontiguousarray(records.counts, dtype=np.int32))
        kind: Any = type(path.schedule)
        self._width, self._schedule = float(np.asarray(_width(path.schedule)).reshape(())), _SCHEDULES[kind]
        self._rows = len(control)

    def sample(
        self, index: npt.NDArray[np.integer[Any]], t: npt.NDArray[np.float64], seed: int, offset: int = 0
    ) -> Drawn:
        """Draw at pairs of trajectories (or of trajectory times d plus dimension, by dimension) and times.

        Args:
            index: [B] rows of the path.
            t: [B] times.
            seed: of the noise, 0 to 2^64 - 1.
            offset: how many normal numbers of this seed are spent already, a multiple of 4; a call takes
                `spent(B, d)`.

        Raises:
            SplineFlowError: Rows out of range, times not finite, shapes that do not fit.
        """
        rows, moments = np.asarray(index), np.asarray(t, dtype=np.float64)
        if rows.ndim != 1 or moments.shape != rows.shape or rows.dtype.kind not in "iu":
            raise SplineFlowError(
                f"index must be whole numbers [B] and t [B]; got {rows.dtype} {rows.shape}, {moments.shape}"
            )
        # On the host, where looking at them keeps no GPU waiting.
        if len(rows) and not (rows.min() >= 0 and rows.max() < self._rows):
            raise SplineFlowError(f"index must be within 0..{self._rows - 1}")
        if not np.isfinite(moments).all():
            raise SplineFlowError("times must be finite")
        local = moments - (self.origin[0] if len(self.origin) == 1 else self.origin[rows])
        return sample(
            self.device, self._coef, self._knots, self._sites, self._counts,
            self.device.array(rows.astype(np.int32)), self.device.array(local.astype(self.dtype)),
            self._schedule, self._width, seed, offset, trusted=True,
        )  # fmt: skip


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
        dtype: "float64" or "float32" of the arithmetic; long clocks lose digits in float32.

    Returns:
        Arrays of the device, time-major: knots [n + degree + 1, S] and control points [n, S]; padded with the last.

    Raises:
        SplineFlowError: Shapes, counts or degree out of range, numbers not finite, times that do not increase (in
            `dtype`).
    """
    t, x, c = (np.asarray(a) for a in (times, values, counts))
    if dtype not in ("float32", "float64"):
        raise SplineFlowError(f"dtype must be 'float32' or 'float64'; got {dtype!r}")
    if degree not in range(1, 6):
        raise SplineFlowError(f"degree must be 1 to 5; got {degree!r}")
    if t.ndim != 2 or x.shape != t.shape or c.shape != t.shape[:1]:
        raise SplineFlowError(f"times and values must be [S, n] and counts [S]; got {t.shape}, {x.shape}, {c.shape}")
    if c.dtype.kind not in "iu":
        raise SplineFlowError(f"counts must be whole numbers; got {c.dtype}")
    records, n = t.shape
    if records and not (degree + 1 <= c.min() and c.max() <= n):
        raise SplineFlowError(f"every record needs {degree + 1} to {n} observations")
    inside = np.arange(n) < c[:, None]
    if not (np.isfinite(t[inside]).all() and np.isfinite(x[inside]).all()):
        raise SplineFlowError("times and values must be finite")
    own = np.where(inside, t, 0.0).astype(dtype)
    if (np.diff(own, axis=1)[inside[:, 1:]] <= 0).any():
        raise SplineFlowError(f"times must increase strictly, in {dtype}")
    knots, coef = device.empty((n + degree + 1, records), dtype), device.empty((n, records), dtype)
    if records == 0:
        return knots, coef
    block = _THREADS["banded_solve"]
    flat = [device.array(np.ascontiguousarray(a.T, dtype=dtype)) for a in (own, np.where(inside, x, 0.0))]
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
