"""Estimates of a diffusion from data, and what degree of path its noise allows (paper, M4; claim C5)."""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from .errors import SplineFlowError
from .records import Records, read

Array = npt.NDArray[np.float64]
NOISY = 0.1  # share of an increment's square that noise may have for a smooth path


def estimate_diffusion(
    times: npt.ArrayLike, values: npt.ArrayLike, mask: npt.ArrayLike | None = None, method: str = "residual"
) -> Array:
    """Estimate g [d] of dX = f dt + g dW from trajectories.

    "realized" sums squared increments over time: too large by the drift's share, about |f|^2 dt. "residual" first takes
    off a drift that is a quadratic function of the states, fitted to all increments by least squares, and counts its
    parameters. (An interpolating spline cannot serve for that: its increments between observations are the data's own.)

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


def increments(records: Records) -> list[tuple[Array, Array, Array | None]]:
    """Return, for each dimension, gaps [q], increments [q] and the states before them [q, d] (None by dimension)."""
    there = np.arange(1, records.sites.shape[1]) < records.counts[:, None]
    gap, step = np.diff(records.sites, axis=1), np.diff(records.values, axis=1)
    found: list[tuple[Array, Array, Array | None]] = []
    d = records.dims
    if records.layout == "dimension":
        for j in range(d):
            own = there[j::d]
            found.append((gap[j::d][own], step[j::d, :, 0][own], records.values[j::d, :-1, 0][own][:, None]))
        return found
    series = records.values.shape[2] // d
    steps = step[there].reshape(-1, series, d)
    states = records.values[:, :-1][there].reshape(-1, d)
    gaps = np.repeat(gap[there], series)
    return [(gaps, steps[:, :, j].reshape(-1), states) for j in range(d)]


def diffusion_of(records: Records, method: str = "residual") -> Array:
    """Return g [d] of records; see `estimate_diffusion`."""
    g = []
    for gap, step, states in increments(records):
        if len(step) == 0:
            raise SplineFlowError("a diffusion needs neighbouring observations: every trajectory has only one")
        lost = 0
        # dX / sqrt(dt) = f sqrt(dt) + g N(0, 1): the same noise for every gap.
        scaled = step / np.sqrt(gap)
        features = _quadratic(states) if states is not None else None
        if method == "residual" and features is not None and len(step) > 2 * features.shape[1]:
            design = features * np.sqrt(gap)[:, None]
            solution, _, rank, _ = np.linalg.lstsq(design, scaled, rcond=None)
            scaled, lost = scaled - design @ solution, int(rank)
        g.append(np.sqrt((scaled**2).sum() / (len(step) - lost)))
    return np.array(g)


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
    if not all(len(step) for _, step, _ in parts):
        return 1
    noise = sum(g[j] ** 2 * float(np.median(gap)) for j, (gap, _, _) in enumerate(parts))
    if records.layout == "dimension":
        moved = sum(float(np.median(step**2)) for _, step, _ in parts)
    else:
        moved = float(np.median(sum(step**2 for _, step, _ in parts)))
    return 3 if noise < NOISY * moved else 1
