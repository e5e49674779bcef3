"""Conditional paths through all observations of a trajectory: what the vector field is regressed on (paper, M1 and M2).

All of them have one interface: `fit`, and `evaluate` and `sample` of `ConditionalPath`.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from . import bsplines, slopes
from .conditional import ConditionalPath
from .errors import DegreeWarning, SplineFlowError
from .piecewise import PiecewisePolynomial, compiled
from .records import Records, read, same_grids
from .schedules import Schedule

Array = npt.NDArray[np.float64]
PARAMETRIZATIONS = ("time", "index", "centripetal")
BOUNDARIES = ("not-a-knot", "natural", "clamped")


class BSplinePath(ConditionalPath):
    """An interpolating (or smoothing) B-spline through all observations of each trajectory.

    Attributes:
        degree: the degree asked for; records with too few observations have a lower one.
        splines: for every degree in use, the grids that have it and their knots and control points.
    """

    degree: int
    splines: list[tuple[npt.NDArray[np.int64], bsplines.Spline]]

    @classmethod
    def fit(
        cls,
        times: npt.ArrayLike,
        values: npt.ArrayLike,
        mask: npt.ArrayLike | None = None,
        degree: int = 3,
        bc: str = "not-a-knot",
        parametrization: str = "time",
        shape: str | None = None,
        smoothing: float | Literal["gcv"] | None = None,
        knots: npt.ArrayLike | None = None,
        weights: npt.ArrayLike | None = None,
        schedule: Schedule | None = None,
        extrapolation: str = "mask",
        duplicates: str = "raise",
        dtype: torch.dtype = torch.float32,
    ) -> BSplinePath:
        """Fit splines; coefficients are solved for in float64.

        Args:
            times: [n] for all trajectories or [N, n] for each, strictly increasing.
            values: [N, n, d]; NaN only where masked.
            mask: [N, n, d] bool, True where observed: each dimension is splined on its own observed times.
            degree: 1 to 5. A record of n <= degree observations gets degree n - 1, with a `DegreeWarning`.
            bc: "not-a-knot", or for odd degrees "natural" and "clamped" (zero derivatives at the ends).
            parametrization: "time"; "index" (the spline runs over 0, 1, 2, ... and a monotone cubic maps time to it) or
                "centripetal" (over the root of the mean chord length): for gaps so uneven that a spline overshoots.
            shape: "monotone" for a C1 cubic that never leaves the range of neighbouring observations.
            smoothing: weight of the integral of |mu''|^2 against the squared residuals, or "gcv" to choose it by
                generalised cross-validation; degree 3, at least five observations. Marginals are then met only
                approximately: see `marginal_error()`.
            knots: [n + degree + 1] of your own, when all trajectories share their times.
            weights: [N, n, d] of observations, for smoothing.
            schedule: width of the tube around the path; 0.08 of each dimension's standard deviation without.
            extrapolation: "mask" or "flat"; see `ConditionalPath`.
            duplicates: "raise", or "mean" to average observations at equal times.
            dtype: of evaluated paths, torch.float32 or torch.float64.

        Raises:
            SplineFlowError: Anything that cannot be fitted; nothing is dropped silently.
        """
        if isinstance(degree, bool) or not isinstance(degree, int) or not 1 <= degree <= 5:
            raise SplineFlowError(f"degree must be 1 to 5; got {degree!r}")
        _choice("bc", bc, BOUNDARIES)
        _choice("parametrization", parametrization, PARAMETRIZATIONS)
        if shape not in (None, "monotone"):
            raise SplineFlowError(f"shape must be None or 'monotone'; got {shape!r}")
        special = [w for w, on in (("shape", shape), ("smoothing", smoothing is not None), ("knots", knots is not None))
                   if on]  # fmt: skip
        if len(special) > 1 or (special and (bc != "not-a-knot" or (degree != 3 and knots is None))):
            raise SplineFlowError(f"{' and '.join(special)} cannot be combined with each other, bc or another degree")
        if weights is not None and smoothing is None:
            raise SplineFlowError("weights are those of smoothing: pass smoothing too")
        if bc != "not-a-knot" and degree % 2 == 0:
            raise SplineFlowError(f"{bc} ends need an odd degree: an even one leaves no condition to set")
        records = read(times, values, mask, duplicates)
        sites, time_map = _parameters(records, parametrization)
        if knots is not None and (records.layout != "shared" or parametrization != "time"):
            raise SplineFlowError("knots of your own need times (and masks) that all trajectories share")
        if smoothing is not None:
            heavy = same_grids(records, weights, mask).values if weights is not None else None
            fitted = [(np.arange(len(sites)), _smoothing(records, sites, smoothing, heavy))]
        elif shape == "monotone":
            fitted = _monotone(records, sites)
        else:
            fitted = _interpolating(records, sites, degree, bc, knots)
        polynomial = _assembled(fitted, records, dtype)
        path = cls(records, polynomial, schedule, extrapolation, dtype, time_map)
        path.interpolates = smoothing is None
        path.degree, path.splines = degree, fitted
        return path

    def _only(self) -> bsplines.Spline:
        if len(self.splines) > 1:
            raise SplineFlowError("records have splines of several degrees: see `splines`")
        return self.splines[0][1]

    @property
    def control_points(self) -> Array:
        """Control points [N, m, d]; [N d, m, 1] where dimensions have their own times. Padded with the last."""
        return self.records.per_trajectory(self._only().control[:, :, None, :])[:, :, 0]

    @property
    def knots(self) -> Array:
        """Knots [G, m + degree + 1] of the spline's parameter, padded with the last: one row if times are shared."""
        return self._only().knots


class LinearPath(ConditionalPath):
    """Straight lines between observations: what flow matching usually takes."""

    @classmethod
    def fit(
        cls, times: npt.ArrayLike, values: npt.ArrayLike, mask: npt.ArrayLike | None = None, **options: Any
    ) -> Self:
        """Fit lines; options are `schedule`, `extrapolation`, `duplicates` and `dtype` of `BSplinePath.fit`."""
        path: Self = _hermite(cls, times, values, mask, options, None)
        return path


class PchipPath(ConditionalPath):
    """Monotone cubic pieces (Fritsch and Butland, 1984): no overshoot, once differentiable."""

    @classmethod
    def fit(
        cls, times: npt.ArrayLike, values: npt.ArrayLike, mask: npt.ArrayLike | None = None, **options: Any
    ) -> Self:
        """Fit pieces; options are `schedule`, `extrapolation`, `duplicates` and `dtype` of `BSplinePath.fit`."""
        path: Self = _hermite(cls, times, values, mask, options, slopes.pchip)
        return path


class AkimaPath(ConditionalPath):
    """Akima's cubic pieces (1970): local, once differentiable."""

    @classmethod
    def fit(
        cls, times: npt.ArrayLike, values: npt.ArrayLike, mask: npt.ArrayLike | None = None, **options: Any
    ) -> Self:
        """Fit pieces; options are `schedule`, `extrapolation`, `duplicates` and `dtype` of `BSplinePath.fit`."""
        path: Self = _hermite(cls, times, values, mask, options, slopes.akima)
        return path


class HermitePath(ConditionalPath):
    """Cubic pieces through observations with measured (or modelled) velocities."""

    @classmethod
    def fit(
        cls,
        times: npt.ArrayLike,
        values: npt.ArrayLike,
        derivatives: npt.ArrayLike,
        mask: npt.ArrayLike | None = None,
        **options: Any,
    ) -> Self:
        """Fit pieces.

        Args:
            times, values, mask: as in `BSplinePath.fit`.
            derivatives: [N, n, d] velocities at the observations.
            options: `schedule`, `extrapolation` and `dtype` of `BSplinePath.fit`.
        """
        if options.get("duplicates", "raise") != "raise":
            raise SplineFlowError("velocities at averaged observations are not known: average them yourself")
        path: Self = _hermite(cls, times, values, mask, options, derivatives)
        return path


class LagrangePath(ConditionalPath):
    """The one polynomial through all observations, to show why nobody should: it oscillates (Runge, 1901)."""

    MOST = 64

    @classmethod
    def fit(
        cls, times: npt.ArrayLike, values: npt.ArrayLike, mask: npt.ArrayLike | None = None, **options: Any
    ) -> Self:
        """Fit polynomials of at most 64 observations, in barycentric form.

        Raises:
            SplineFlowError: More observations than that.
        """
        records, dtype = (
            read(times, values, mask, options.pop("duplicates", "raise")),
            options.pop("dtype", torch.float32),
        )
        if records.sites.shape[1] > cls.MOST:
            raise SplineFlowError(f"a polynomial through more than {cls.MOST} observations is noise")
        path = cls(records, None, options.pop("schedule", None), options.pop("extrapolation", "mask"), dtype)
        _none_left(options)
        n = records.sites.shape[1]
        weights = np.zeros((len(records.sites), n))
        differentiate = np.zeros((len(records.sites), n, n))
        for g, c in enumerate(records.counts):
            t = records.sites[g, :c]
            # Scaled to an interval of length 4, products of distances stay near 1.
            scale = 4 / (t[-1] - t[0]) if c > 1 else 1.0
            gaps = (t[:, None] - t) * scale
            np.fill_diagonal(gaps, 1.0)
            w = 1 / gaps.prod(axis=1)
            matrix = w[None, :] / w[:, None] / gaps * scale
            np.fill_diagonal(matrix, 0.0)
            np.fill_diagonal(matrix, -matrix.sum(axis=1))
            weights[g, :c], differentiate[g, :c, :c] = w, matrix
        path._weights, path._matrix = torch.from_numpy(weights), torch.from_numpy(differentiate)
        path._values = torch.from_numpy(records.per_trajectory(records.values[:, :, None, :])[:, :, 0].copy())
        return path

    _weights: Tensor
    _matrix: Tensor
    _values: Tensor

    def to(self, device: torch.device | str) -> Self:
        """Move the path to a device, in place, and return it."""
        self._weights, self._matrix, self._values = (
            part.to(device) for part in (self._weights, self._matrix, self._values)
        )
        return super().to(device)

    def _derivatives(self, index: Tensor, t: Tensor, orders: tuple[int, ...]) -> tuple[Tensor, ...]:
        grid = self._grid_of(index)
        times = t if grid.ndim == 1 else t[:, None].expand(grid.shape)
        first, last = self._sites.first[grid], self._sites.last[grid]
        held = times.clamp(first, last)
        flat, at = grid.reshape(-1), held.reshape(-1)
        series = flat if self.records.layout == "dimension" else index
        sites, weights = self._sites.times[flat][:, : self._weights.shape[1]], self._weights[flat]
        gap = at[:, None] - sites
        exact = (gap == 0) & (weights != 0)
        share = torch.where(weights != 0, weights / torch.where(gap == 0, 1.0, gap), 0.0)
        share = torch.where(exact.any(dim=1, keepdim=True), exact.double(), share)
        share = share / share.sum(dim=1, keepdim=True)
        found = []
        for nu in orders:
            values = self._values[series]
            for _ in range(nu):
                values = self._matrix[flat] @ values
            value = (share[:, None] @ values)[:, 0]
            value = value.reshape(len(index), self.dims)
            outside = (times != held).reshape(len(index), -1)
            found.append((value.masked_fill(outside, 0.0) if nu else value).to(self.dtype))
        return tuple(found)


def spline_of(records: Records, degree: int) -> PiecewisePolynomial:
    """Return the splines of records in raw time, in float64; of lower degree, without a warning, where short."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegreeWarning)
        fitted = _interpolating(records, records.sites, degree, "not-a-knot", None)
    return _assembled(fitted, records, torch.float64)


def _parameters(records: Records, parametrization: str) -> tuple[Array, PiecewisePolynomial | None]:
    """Return the spline's parameter at each site [G, n] and the monotone map from time to it."""
    if parametrization == "time" or records.sites.shape[1] == 1:
        return records.sites, None
    n = records.sites.shape[1]
    step = np.ones((len(records.sites), n - 1))
    if parametrization == "centripetal":
        series = records.n_trajectories if records.layout == "shared" else 1
        moves = np.diff(records.values, axis=1).reshape(len(records.sites), n - 1, series, -1)
        chord = np.sqrt((moves**2).sum(axis=3)).mean(axis=2)
        inside = np.arange(1, n) < records.counts[:, None]
        mean = np.where(inside, chord, 0).sum(axis=1, keepdims=True) / np.maximum(inside.sum(axis=1, keepdims=True), 1)
        # Where nothing moves the parameter still must.
        step = np.sqrt(np.where(mean > 0, np.maximum(chord, 1e-6 * mean), 1.0))
    u = np.concatenate([np.zeros((len(step), 1)), np.cumsum(step, axis=1)], axis=1)
    u = np.take_along_axis(u, np.minimum(np.arange(n), records.counts[:, None] - 1), axis=1)
    as_series = Records(records.sites, records.counts, u[:, :, None], len(u), 1, "trajectory")
    breaks, rows = _cubic(as_series, slopes.pchip)
    return u, PiecewisePolynomial(breaks, rows, as_series, torch.float64)


def _interpolating(
    records: Records, sites: Array, degree: int, bc: str, knots: npt.ArrayLike | None
) -> list[tuple[npt.NDArray[np.int64], bsplines.Spline]]:
    need = degree + 1 if bc == "not-a-knot" else 2
    effective = np.where(records.counts >= need, degree, np.minimum(records.counts - 1, degree))
    if (effective < degree).any():
        few = int((effective < degree).sum())
        warnings.warn(
            f"{few} of {len(effective)} records have fewer than {need} observations: their splines have a lower degree"
            f" than {degree} (one less than the number of observations)",
            DegreeWarning,
            stacklevel=4,
        )
    fitted = []
    for k in np.unique(effective):
        grids = np.flatnonzero(effective == k)
        longest = int(records.counts[grids].max())
        part, counts = sites[grids, :longest], records.counts[grids]
        values = records.values[grids, :longest]
        if k == 0:
            spline = bsplines.Spline(np.repeat(part, 2, axis=1), values, counts, 0)
        elif bc == "not-a-knot" and knots is None and records.layout != "shared" and compiled() is not None:
            spline = bsplines.Spline(np.empty((len(part), longest + k + 1)), np.empty_like(values), counts, int(k))
            compiled().interpolate(part, counts, values, k, spline.knots, spline.control)
        elif bc == "not-a-knot":
            if knots is not None and k < degree:
                raise SplineFlowError(f"knots of your own for degree {degree} need more than {degree} observations")
            given = None if knots is None else np.asarray(knots, dtype=float)
            spline = bsplines.interpolate(part, counts, values, int(k), given)
        else:
            spline = bsplines.with_ends(part, counts, values, int(k), bc)
        fitted.append((grids, spline))
    return fitted


def _smoothing(
    records: Records, sites: Array, smoothing: float | Literal["gcv"], weights: Array | None
) -> bsplines.Spline:
    from scipy.interpolate import make_smoothing_spline

    if smoothing != "gcv" and not (isinstance(smoothing, (int, float)) and 0 <= smoothing < math.inf):
        raise SplineFlowError(f"smoothing must be 'gcv' or a number, 0 or more; got {smoothing!r}")
    if records.counts.min() < 5:
        raise SplineFlowError(f"smoothing needs at least 5 observations of each record; one has {records.counts.min()}")
    lam = None if smoothing == "gcv" else float(smoothing)
    grids, n, series = records.values.shape
    control = np.zeros((grids, n + 2, series))
    for g, c in enumerate(records.counts):
        for r in range(series):
            heavy = None if weights is None else weights[g, :c, r]
            if heavy is not None and (heavy <= 0).any():
                raise SplineFlowError("weights must be above 0")
            fit = make_smoothing_spline(sites[g, :c], records.values[g, :c, r], w=heavy, lam=lam)
            control[g, : c + 2, r] = fit.c
    return bsplines.Spline(bsplines.every_site(sites, records.counts, 3), control, records.counts + 2, 3)


def _monotone(records: Records, sites: Array) -> list[tuple[npt.NDArray[np.int64], bsplines.Spline]]:
    """Write PCHIP's pieces as a cubic B-spline with double knots: control points are those of Bézier."""
    fitted = []
    for grids, _, x in records.by_count():
        t = sites[grids, : x.shape[1]]
        c = t.shape[1]
        if c == 1:
            fitted.append((grids, bsplines.Spline(np.repeat(t, 2, axis=1), x, np.ones(len(t), dtype=np.int64), 0)))
            continue
        slope, h = slopes.pchip(t, x), np.diff(t, axis=1)[:, :, None] / 3
        control = np.empty((len(t), 2 * c, x.shape[2]))
        control[:, 0], control[:, -1] = x[:, 0], x[:, -1]
        control[:, 1:-1:2] = x[:, :-1] + h * slope[:, :-1]
        control[:, 2::2][:, : c - 1] = x[:, 1:] - h * slope[:, 1:]
        knots = np.concatenate([t[:, :1]] * 2 + [np.repeat(t, 2, axis=1)] + [t[:, -1:]] * 2, axis=1)
        fitted.append((grids, bsplines.Spline(knots, control, np.full(len(t), 2 * c, dtype=np.int64), 3)))
    return fitted


def _assembled(
    fitted: list[tuple[npt.NDArray[np.int64], bsplines.Spline]], records: Records, dtype: torch.dtype
) -> PiecewisePolynomial:
    """Return the splines' pieces, padded to the longest grid and to the highest degree."""
    parts = [(numbers, *_pieces(spline, records, dtype)) for numbers, spline in fitted]
    if len(parts) == 1:
        return PiecewisePolynomial(parts[0][1], parts[0][2], records, dtype)
    most = max(b.shape[1] for _, b, _ in parts)
    order = max(c.shape[2] for _, _, c in parts)
    breaks = np.full((len(records.sites), most), math.inf)
    rows = np.zeros((len(records.sites), most - 1, order, parts[0][2].shape[3]), parts[0][2].dtype)
    for numbers, b, c in parts:
        breaks[numbers, : b.shape[1]] = b
        rows[numbers, : c.shape[1], : c.shape[2]] = c
    return PiecewisePolynomial(breaks, rows, records, dtype)


def _pieces(spline: bsplines.Spline, records: Records, dtype: torch.dtype) -> tuple[Array, npt.NDArray[Any]]:
    """Return breaks [G, M + 1] and rows [.., M, k + 1, w] in the order of trajectories."""
    fast = compiled()
    if fast is None:
        breaks, coefficients = bsplines.pieces(spline)
        return breaks, records.per_trajectory(coefficients)
    knots, control, counts, k = spline
    spans = control.shape[1] - k
    real = np.float32 if dtype == torch.float32 else np.float64
    if records.layout == "shared":
        breaks = np.ascontiguousarray(knots[:, k : k + spans + 1])
        weights = bsplines.taylor_weights(knots, k)[0]
        weights[(breaks[0, 1:] <= breaks[0, :-1]) & (k > 0)] = 0.0
        rows = np.empty((records.n_trajectories, spans, k + 1, records.dims), real)
        fast.rows_of_shared(weights, control[0], records.dims, rows)
        return breaks, rows
    breaks = np.empty((len(control), spans + 1))
    rows = np.empty((len(control), spans, k + 1, control.shape[2]), real)
    fast.rows_of_grids(knots, control, counts, k, breaks, rows)
    return breaks, rows


def _cubic(records: Records, slope: Any) -> tuple[Array, Array]:
    """Return breaks and Taylor coefficients of cubic pieces with given slopes, or of lines (None)."""
    grids, n, series = records.values.shape
    breaks = np.where(np.arange(max(n, 2)) < records.counts[:, None], np.resize(records.sites, (grids, n)) if n > 1
                      else np.repeat(records.sites, 2, axis=1), math.inf)  # fmt: skip
    out = np.zeros((grids, max(n - 1, 1), 2 if slope is None else 4, series))
    for numbers, t, x in records.by_count():
        c = t.shape[1]
        if c == 1:
            out[numbers, 0, 0] = x[:, 0]
            continue
        h = np.diff(t, axis=1)[:, :, None]
        chord = np.diff(x, axis=1) / h
        out[numbers, : c - 1, 0] = x[:, :-1]
        if slope is None:
            out[numbers, : c - 1, 1] = chord
            continue
        m = slope(t, x) if callable(slope) else slope[numbers, :c]
        out[numbers, : c - 1, 1] = m[:, :-1]
        out[numbers, : c - 1, 2] = (3 * chord - 2 * m[:, :-1] - m[:, 1:]) / h
        out[numbers, : c - 1, 3] = (m[:, :-1] + m[:, 1:] - 2 * chord) / h**2
    return breaks, out


def _hermite(
    cls: Any,
    times: npt.ArrayLike,
    values: npt.ArrayLike,
    mask: npt.ArrayLike | None,
    options: dict[str, Any],
    slope: Any,
) -> Any:
    records = read(times, values, mask, options.pop("duplicates", "raise"))
    dtype = options.pop("dtype", torch.float32)
    if slope is not None and not callable(slope):
        slope = same_grids(records, slope, mask).values
    breaks, coefficients = _cubic(records, slope)
    polynomial = PiecewisePolynomial(breaks, records.per_trajectory(coefficients), records, dtype)
    path = cls(records, polynomial, options.pop("schedule", None), options.pop("extrapolation", "mask"), dtype)
    _none_left(options)
    return path


def _none_left(options: dict[str, Any]) -> None:
    if options:
        raise TypeError(f"unknown options: {', '.join(sorted(options))}")


def _choice(name: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise SplineFlowError(f"{name} must be one of {', '.join(known)}; got {given!r}")
