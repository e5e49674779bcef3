"""B-splines of many series at once, in float64: knots, basis, banded systems, and their pieces as polynomials.

Arrays over grids have the shape [G, ...]; series of one grid are columns. See de Boor, "A Practical Guide to Splines".
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_banded

from .errors import SplineFlowError

Array = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


class Spline(NamedTuple):
    """Splines of one degree on G grids.

    Attributes:
        knots: [G, m + degree + 1], padded with the last knot.
        control: [G, m, R] control points, padded with anything.
        counts: [G] how many control points each grid has.
        degree: k.
    """

    knots: Array
    control: Array
    counts: Counts
    degree: int


def not_a_knot(sites: Array, counts: Counts, degree: int) -> Array:
    """Return the knots [G, n + k + 1] for interpolation at sites [G, n]: sites inside for odd k, midpoints for even."""
    n, k = sites.shape[1], degree
    j = np.arange(n + k + 1)
    inner = (sites[:, 1:] + sites[:, :-1]) / 2 if k % 2 == 0 else sites
    skipped = k // 2 if k % 2 == 0 else (k + 1) // 2
    pick = np.clip(j - k - 1 + skipped, 0, max(inner.shape[1] - 1, 0))
    middle = inner[:, pick] if inner.shape[1] else np.repeat(sites[:, :1], n + k + 1, axis=1)
    knots = np.where(j <= k, sites[:, :1], middle)
    return np.where(j >= counts[:, None], sites[:, -1:], knots)


def every_site(sites: Array, counts: Counts, degree: int) -> Array:
    """Return knots [G, n + 2k] at every site: what natural and clamped splines have."""
    j = np.arange(sites.shape[1] + 2 * degree)
    pick = np.clip(j - degree, 0, counts[:, None] - 1)
    return np.take_along_axis(sites, pick, axis=1)


def basis(knots: Array, span: npt.NDArray[np.int64], t: Array, degree: int) -> list[Array]:
    """Return the degree + 1 basis functions [G, q] that are not zero in spans [G, q] of the knots, at times [G, q]."""
    values = [np.ones_like(t)]
    for p in range(1, degree + 1):
        raised = [np.zeros_like(t) for _ in range(p + 1)]
        for r in range(p):
            right = np.take_along_axis(knots, span + r + 1, axis=1)
            left = np.take_along_axis(knots, span + r + 1 - p, axis=1)
            share = values[r] / (right - left)
            raised[r] += (right - t) * share
            raised[r + 1] = (t - left) * share
        values = raised
    return values


def _spans(knots: Array, t: Array, degree: int, counts: Counts) -> npt.NDArray[np.int64]:
    """Return l [G, q] with knots_l <= t < knots_{l+1}, the last span closed."""
    found = np.empty(t.shape, dtype=np.int64)
    for g in range(len(t)):
        found[g] = np.searchsorted(knots[g], t[g], side="right") - 1
    return np.clip(found, degree, counts[:, None] - 1)


def interpolate(sites: Array, counts: Counts, values: Array, degree: int, knots: Array | None = None) -> Spline:
    """Fit splines through values [G, n, R]; every grid has more than `degree` observations.

    Args:
        knots: [n + degree + 1] of the user's for a single grid; not-a-knot without.

    Raises:
        SplineFlowError: The knots do not fit the sites (Schoenberg-Whitney).
    """
    k, n = degree, sites.shape[1]
    i = np.arange(n)
    if knots is None:
        tau = not_a_knot(sites, counts, k)
        passed = i - k // 2 if k % 2 == 0 else i - (k + 1) // 2 + 1
        span = k + np.clip(passed, 0, counts[:, None] - k - 1)
    else:
        tau = check_knots(knots, sites[0], k)[None]
        span = _spans(tau, sites, k, counts)
    padding = i >= counts[:, None]
    band = np.zeros((len(sites), n, 2 * k + 1))
    grid, row = np.nonzero(~padding)
    offset = span[grid, row] - row
    for r, column in enumerate(basis(tau, span, sites, k)):
        band[grid, row, offset + r] = column[grid, row]
    band[padding, k] = 1.0
    return Spline(tau, _solve(band, values, k), counts, k)


def check_knots(knots: npt.ArrayLike, sites: Array, degree: int) -> Array:
    """Check knots for interpolation at sites [n].

    Raises:
        SplineFlowError: Their number, order, ends or the condition of Schoenberg and Whitney.
    """
    tau = np.asarray(knots, dtype=np.float64)
    n, k = len(sites), degree
    if tau.shape != (n + k + 1,):
        raise SplineFlowError(f"knots must be [{n + k + 1}] for {n} observations and degree {k}; got {tau.shape}")
    if not np.isfinite(tau).all() or (np.diff(tau) < 0).any():
        raise SplineFlowError("knots must be finite and must not decrease")
    if not (tau[k] <= sites[0] and sites[-1] <= tau[n]):
        raise SplineFlowError(f"the first observation must not be before knot {k}, nor the last after knot {n}")
    ends = np.arange(n)
    inside = (tau[ends] < sites) & (sites < tau[ends + k + 1])
    inside[0] |= sites[0] == tau[0]
    inside[-1] |= sites[-1] == tau[-1]
    if not inside.all():
        i = int(np.argmin(inside))
        raise SplineFlowError(
            f"observation {i} (time {sites[i]:g}) must lie inside the support ({tau[i]:g}, {tau[i + k + 1]:g}) of basis"
            f" function {i} (Schoenberg-Whitney): move the knots"
        )
    if (tau[k + 1 : n] == sites[0]).any() or (tau[k + 1 : n] == sites[-1]).any():
        raise SplineFlowError("inner knots must lie strictly between the first and the last observation")
    return tau


def with_ends(sites: Array, counts: Counts, values: Array, degree: int, bc: str) -> Spline:
    """Fit splines with a knot at every site: natural or clamped ends, odd degree k.

    With e = (k - 1) / 2, natural sets derivatives e + 1 .. k - 1 at both ends to zero, clamped the derivatives 1 .. e.
    """
    k, n = degree, sites.shape[1]
    e = (k - 1) // 2
    m = n + k - 1
    total = counts + k - 1
    tau = every_site(sites, counts, k)
    band = np.zeros((len(sites), m, 2 * k + 1))
    right = np.zeros((len(sites), m, values.shape[2]))
    # Rows: the first site, e derivatives there, the sites inside, e derivatives at the last, the last site.
    site = np.arange(n)
    padding = site >= counts[:, None]
    last = site == counts[:, None] - 1
    span = np.where(last, counts[:, None] + k - 2, np.minimum(site, counts[:, None] - 2) + k)
    row = site + np.where(site > 0, e, 0) + np.where(last, e, 0)
    grid, i = np.nonzero(~padding)
    rows = row[grid, i]
    right[grid, rows] = values[grid, i]
    offset = span[grid, i] - rows
    for r, column in enumerate(basis(tau, span, sites, k)):
        # At a site the last basis function of its span is zero, and may lie outside of the band.
        inside = offset + r <= 2 * k
        band[grid[inside], rows[inside], (offset + r)[inside]] = column[grid, i][inside]
    orders = range(e + 1, k) if bc == "natural" else range(1, e + 1)
    everyone = np.arange(len(sites))
    for q, nu in enumerate(orders):
        for at_end in (False, True):
            # Mirrored at the end, so that elimination never meets a zero pivot.
            at: Any = total - 2 - q if at_end else np.full(len(sites), 1 + q)
            where: Any = total - 1 if at_end else np.full(len(sites), k)
            time = sites[:, -1:] if at_end else sites[:, :1]
            entries = end_derivative(tau, where[:, None], time, k, nu)
            scale = np.abs(entries).max(axis=0)
            for r in range(k + 1):
                column = where - k + r - at + k
                inside = (column >= 0) & (column <= 2 * k)
                band[everyone[inside], at[inside], column[inside]] = (entries[r] / scale)[inside]
    band[np.arange(m) >= total[:, None], k] = 1.0
    return Spline(tau, _solve(band, right, k), total, k)


def end_derivative(knots: Array, span: npt.NDArray[np.int64], t: Array, degree: int, nu: int) -> Array:
    """Return the nu-th derivative [k + 1, G] of the basis functions of spans [G, 1] at times [G, 1]."""
    k = degree
    lower = basis(knots, span, t, k - nu)
    # Derivatives are differences of control points: apply their transpose, from the lowest degree upwards.
    rows = [value[:, 0] for value in lower]
    for p in range(k - nu + 1, k + 1):
        raised = [np.zeros(len(t)) for _ in range(p + 1)]
        for r in range(p):
            high = np.take_along_axis(knots, span + r + 1, axis=1)[:, 0]
            low = np.take_along_axis(knots, span + r + 1 - p, axis=1)[:, 0]
            share = p * rows[r] / (high - low)
            raised[r] -= share
            raised[r + 1] += share
        rows = raised
    return np.stack(rows)


def _solve(band: Array, right: Array, k: int) -> Array:
    """Solve banded systems [G, m, 2k + 1] (diagonals k below to k above) for right sides [G, m, R]."""
    grids, m, _ = band.shape
    if grids == 1:
        diagonals = np.zeros((2 * k + 1, m))
        for d in range(2 * k + 1):
            shift = d - k  # column - row
            rows = np.arange(max(0, -shift), min(m, m - shift))
            diagonals[2 * k - d, rows + shift] = band[0, rows, d]
        solved: Array = solve_banded((k, k), diagonals, right[0], check_finite=False)[None]
        return solved
    # Collocation matrices are totally positive: elimination needs no pivots. Grids are the fast axis.
    a = np.ascontiguousarray(np.moveaxis(band, 0, 2))
    x = np.ascontiguousarray(np.moveaxis(right, 0, 2))
    for i in range(m):
        for r in range(1, min(k, m - 1 - i) + 1):
            factor = a[i + r, k - r] / a[i, k]
            a[i + r, k - r + 1 : 2 * k - r + 1] -= factor * a[i, k + 1 :]
            x[i + r] -= factor * x[i]
    for i in range(m - 1, -1, -1):
        for r in range(1, min(k, m - 1 - i) + 1):
            x[i] -= a[i, k + r] * x[i + r]
        x[i] /= a[i, k]
    return np.ascontiguousarray(np.moveaxis(x, 2, 0))


def taylor_weights(knots: Array, degree: int) -> Array:
    """Return what each control point of a span adds to each Taylor coefficient at its left end.

    Args:
        knots: [G, m + k + 1].
        degree: k.

    Returns:
        [G, m - k, k + 1, k + 1] over (span, order, control point); not finite in spans of no width.
    """
    k = degree
    spans = knots.shape[1] - 2 * k - 1

    def knot(shift: int) -> Array:
        return knots[:, k + shift : k + shift + spans]

    left = knot(0)
    weights = np.zeros((len(knots), spans, k + 1, k + 1))
    # Row r: a control point of the nu-th derivative in terms of those of the spline.
    points = np.zeros((k + 1, k + 1, *left.shape))
    points[np.arange(k + 1), np.arange(k + 1)] = 1.0
    with np.errstate(divide="ignore", invalid="ignore"):
        for nu in range(k + 1):
            p = k - nu
            values = [np.ones_like(left)]
            for q in range(1, p + 1):
                raised = [np.zeros_like(left) for _ in range(q + 1)]
                for r in range(q):
                    share = values[r] / (knot(r + 1) - knot(r + 1 - q))
                    raised[r] += (knot(r + 1) - left) * share
                    raised[r + 1] = (left - knot(r + 1 - q)) * share
                values = raised
            # At a span's left end the last basis function vanishes, unless the degree is 0.
            for r, value in enumerate(values[: max(p, 1)]):
                weights[:, :, nu] += np.moveaxis(points[r] * (value / math.factorial(nu)), 0, -1)
            for r in range(p):
                points[r] = (points[r + 1] - points[r]) * (p / (knot(r + 1) - knot(r + 1 - p)))
    return weights


def pieces(spline: Spline) -> tuple[Array, Array]:
    """Return breaks [G, M + 1] and Taylor coefficients [G, M, k + 1, R] about each span's left end.

    M is the largest number of spans; shorter grids are padded: breaks with infinity, coefficients with zero.
    """
    knots, control, counts, k = spline
    spans = control.shape[1] - k
    breaks = knots[:, k : k + spans + 1].copy()
    beyond = np.arange(spans + 1) > (counts - k)[:, None]
    weights = taylor_weights(knots, k)
    # A constant through an only observation has a span of no width, and is right there.
    weights[beyond[:, 1:] | ((breaks[:, 1:] <= breaks[:, :-1]) & (k > 0))] = 0.0
    breaks[beyond] = np.inf
    windows = np.lib.stride_tricks.sliding_window_view(control, k + 1, axis=1)
    return breaks, np.einsum("gsnr,gsjr->gsnj", weights, windows, optimize=True)
