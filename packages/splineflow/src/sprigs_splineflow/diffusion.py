"""Estimates of a diffusion from data, and what degree of path its noise allows (paper, M4; claim C5)."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import torch

from .errors import SplineFlowError
from .paths import spline_of
from .piecewise import PiecewisePolynomial
from .records import Records, read

Array = npt.NDArray[np.float64]
MOST_INCREMENTS = 200_000  # in the drift's fit
MOST_WINDOWS = 50_000  # whose divided differences are taken
FEWEST_WINDOWS = 200  # from which a median is believed
MEDIAN = 0.45493642311957  # of a squared standard normal variable
NOISY = 0.1  # share of an increment's square that noise may have for a smooth path


def estimate_diffusion(
    times: npt.ArrayLike, values: npt.ArrayLike, mask: npt.ArrayLike | None = None, method: str = "residual"
) -> Array:
    """Estimate g [d] of dX = f dt + g dW from trajectories.

    "realized" sums squared increments over time: too large by the drift's share, about |f|^2 dt. "residual" takes the
    drift off in two ways. One fits a quadratic function of the states in the middle of each gap (on a cubic spline) to
    all increments by least squares, and counts its parameters. The other takes divided differences of p + 1
    neighbouring increments, p up to 5, to which a drift that is a polynomial of degree p - 1 in time over these gaps
    adds nothing, and the median of their squares, which a minority of fast passages leaves alone; of all windows, or of
    the shorter ones. What is left of the drift only adds: an estimate replaces a more precise one where it is less by
    more than chance. The interpolating spline alone cannot serve: its increments between observations are the data's.

    Args:
        times, values, mask: as in `BSplinePath.fit`.
        method: "residual" or "realized".

    Raises:
        SplineFlowError: No pair of neighbouring observations, an unknown method.
    """
    if method not in ("residual", "realized"):
        raise SplineFlowError(f"method must be 'residual' or 'realized'; got {method!r}")
    records = read(times, values, mask)
    return diffusion_of(records, method)


def increments(records: Records) -> list[tuple[Array, Array, Array, npt.NDArray[np.int64]]]:
    """Return, for each dimension, gaps [q], increments [q], the gaps' middles [q] and their trajectories [q]."""
    there = np.arange(1, records.sites.shape[1]) < records.counts[:, None]
    gap, step = np.diff(records.sites, axis=1), np.diff(records.values, axis=1)
    middle = records.sites[:, :-1] + gap / 2
    found = []
    d = records.dims
    for j in range(d):
        if records.layout == "dimension":
            own, series = there[j::d], step[j::d]
            gaps, middles = gap[j::d], middle[j::d]
        else:
            own, series, gaps, middles = there, step[:, :, j::d], gap, middle
        trajectory, place = np.nonzero(own)
        if records.layout == "shared":
            trajectory = np.tile(np.arange(series.shape[2]), len(place))
            place = np.repeat(place, series.shape[2])
            steps = series[0, place, trajectory]
            found.append((gaps[0, place], steps, middles[0, place], trajectory))
        else:
            found.append((gaps[own], series[:, :, 0][own], middles[own], trajectory))
    return found


def diffusion_of(records: Records, method: str = "residual") -> Array:
    """Return g [d] of records; see `estimate_diffusion`."""
    g = []
    path = None
    for gap, step, middle, trajectory in increments(records):
        if len(step) == 0:
            raise SplineFlowError("a diffusion needs neighbouring observations: every trajectory has only one")
        # dX / sqrt(dt) = f sqrt(dt) + g N(0, 1): the same noise for every gap.
        scaled = step / np.sqrt(gap)
        lost = 0
        if method == "residual":
            path = path or spline_of(records, 3)
            keep = np.linspace(0, len(step) - 1, min(len(step), MOST_INCREMENTS)).astype(int)
            states = _states(path, trajectory[keep], middle[keep])
            features = _quadratic(states)
            if len(keep) > 2 * features.shape[1]:
                design = features * np.sqrt(gap[keep])[:, None]
                scaled = scaled[keep]
                solution, _, rank, _ = np.linalg.lstsq(design, scaled, rcond=None)
                scaled, lost = scaled - design @ solution, int(rank)
        g.append(np.sqrt((scaled**2).sum() / (len(scaled) - lost)))
    if method == "residual":
        g = [_less(value, records, j) for j, value in enumerate(g)]
    return np.array(g)


def _less(g: float, records: Records, j: int) -> float:
    """Return g, or what differences of increments of dimension j say where that is less by more than chance."""
    for order in range(1, 6):
        square, span = differences(records, j, order)
        for share in (1.0, 0.5, 0.1):
            part = square[span <= np.quantile(span, share) * (1 + 1e-9)] if len(span) else square
            if len(part) < FEWEST_WINDOWS:
                break
            by_median, by_mean = np.sqrt(np.median(part) / MEDIAN), np.sqrt(part.mean())
            # Standard error of the root of a median of squares, windows being correlated over order + 1 gaps.
            error = 0.8 * np.sqrt((order + 1) / len(part))
            found = by_mean if by_mean < by_median * (1 + 2 * error) else by_median
            if found < g * (1 - 2 * error):
                g = float(found)
    return g


def differences(records: Records, j: int, order: int) -> tuple[Array, Array]:
    """Return squared divided differences [q] of order + 1 neighbouring increments of dimension j, and their spans.

    A square has the expectation g^2 where the drift is a polynomial in time of a degree below `order`.
    """
    d = records.dims
    if records.layout == "dimension":
        sites, x, counts = records.sites[j::d], records.values[j::d, :, 0], records.counts[j::d]
    elif records.layout == "trajectory":
        sites, x, counts = records.sites, records.values[:, :, j], records.counts
    else:
        x = records.values[0, :, j::d].T
        sites, counts = np.broadcast_to(records.sites, x.shape), np.broadcast_to(records.counts, len(x))
    points = order + 2
    valid = np.arange(max(x.shape[1] - points + 1, 0)) + points <= counts[:, None]
    series, start = np.nonzero(valid)
    if len(series) > MOST_WINDOWS:
        keep = np.linspace(0, len(series) - 1, MOST_WINDOWS).astype(int)
        series, start = series[keep], start[keep]
    at = start[:, None] + np.arange(points)
    t, values = sites[series[:, None], at], x[series[:, None], at]
    span = t[:, -1:] - t[:, :1]
    t = (t - t[:, :1]) / span
    apart = t[:, :, None] - t[:, None, :]
    apart[:, range(points), range(points)] = 1.0
    weights = 1 / apart.prod(axis=2)
    # In terms of increments, whose variances are g^2 times their gaps.
    steps = np.cumsum(weights[:, ::-1], axis=1)[:, -2::-1]
    variance = (steps**2 * np.diff(t, axis=1)).sum(axis=1) * span[:, 0]
    square: Array = (steps * np.diff(values, axis=1)).sum(axis=1) ** 2 / variance
    return square, span[:, 0]


def _states(path: PiecewisePolynomial, trajectory: npt.NDArray[np.int64], t: Array) -> Array:
    """Return all dimensions [q, d] of trajectories at times [q]."""
    index, times = torch.from_numpy(trajectory), torch.from_numpy(t)
    grid = path.grid(index)
    if grid.ndim == 2:
        times = times[:, None].expand(grid.shape)
    found: Array = path.derivatives(index, times)[0].numpy()
    return found


def _quadratic(states: Array) -> Array:
    centred = (states - states.mean(axis=0)) / np.maximum(states.std(axis=0), np.finfo(float).tiny)
    d = centred.shape[1]
    columns = [np.ones(len(centred)), *centred.T]
    # All pairs up to ten dimensions, squares alone beyond: the fit stays small.
    pairs = itertools.combinations_with_replacement(range(d), 2) if d <= 10 else ((j, j) for j in range(d))
    columns += [centred[:, i] * centred[:, j] for i, j in pairs]
    return np.stack(columns, axis=1)


def allowed_degree(records: Records, g: Array) -> int:
    """Return 3 if noise is small beside the increments, median(g^2 gap) < 0.1 median(increment^2) over all d, else 1.

    A cubic through a rough path with uneven gaps is biased; a line, the mean of a Brownian bridge, is not.
    """
    parts = increments(records)
    if not all(len(step) for _, step, _, _ in parts):
        return 1
    noise = sum(g[j] ** 2 * float(np.median(gap)) for j, (gap, _, _, _) in enumerate(parts))
    if records.layout == "dimension":
        moved = sum(float(np.median(step**2)) for _, step, _, _ in parts)
    else:
        moved = float(np.median(sum(step**2 for _, step, _, _ in parts)))
    return 3 if noise < NOISY * moved else 1
