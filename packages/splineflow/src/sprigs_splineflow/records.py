"""Observations of many trajectories, sorted into grids of times that series share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .errors import SplineFlowError

Array = npt.NDArray[np.float64]
Layout = Literal["shared", "trajectory", "dimension"]


@dataclass(frozen=True)
class Records:
    """Observations as G grids of at most n times with R series each.

    Attributes:
        sites: [G, n] times of each grid, strictly increasing, padded with its last time.
        counts: [G] how many of them there are.
        values: [G, n, R] observations, padded with the last one.
        n_trajectories: N.
        dims: d.
        layout: "shared" (G = 1, R = N d), "trajectory" (G = N, R = d) or "dimension" (G = N d, R = 1).
    """

    sites: Array
    counts: npt.NDArray[np.int64]
    values: Array
    n_trajectories: int
    dims: int
    layout: Layout

    @property
    def first(self) -> Array:
        """First time of each grid [G]."""
        return self.sites[:, 0]

    @property
    def last(self) -> Array:
        """Last time of each grid [G]."""
        return self.sites[:, -1]

    def by_count(self) -> Iterator[tuple[npt.NDArray[np.int64], Array, Array]]:
        """Yield grids of equal length: their numbers [g], sites [g, c] and values [g, c, R]."""
        for c in np.unique(self.counts):
            grids = np.flatnonzero(self.counts == c)
            yield grids, self.sites[grids, :c], self.values[grids, :c]

    def per_trajectory(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Bring an array over (grid, ..., series) [G, ..., R] into the order [N, ..., d] or [N d, ..., 1]."""
        if self.layout != "shared":
            return array
        split = array.reshape(*array.shape[1:-1], self.n_trajectories, self.dims)
        return np.ascontiguousarray(np.moveaxis(split, -2, 0))


def read(
    times: npt.ArrayLike, values: npt.ArrayLike, mask: npt.ArrayLike | None = None, duplicates: str = "raise"
) -> Records:
    """Check observations and sort them into grids; series with the same times share one.

    Args:
        times: [n] for all trajectories, or [N, n] for each; strictly increasing.
        values: [N, n, d]; [n, d] is taken as one trajectory. May be NaN only where masked.
        mask: [N, n, d], True where observed.
        duplicates: "raise", or "mean" to average observations at equal times.

    Raises:
        SplineFlowError: Shapes that do not fit, times that do not increase, numbers that are not finite, a dimension of
            a trajectory without any observation.
    """
    x = _numbers("values", values)
    if x.ndim == 2:
        x = x[None]
    if x.ndim != 3 or 0 in x.shape:
        raise SplineFlowError(f"values must be [trajectories, times, dimensions], none of them 0; got shape {x.shape}")
    n_trajectories, n, _dims = x.shape
    t = _numbers("times", times)
    if t.shape not in ((n,), (n_trajectories, n)):
        raise SplineFlowError(f"times must be [{n}] or [{n_trajectories}, {n}] to go with values; got shape {t.shape}")
    seen = _mask(mask, x.shape)
    if mask is not None:
        x = np.where(seen, x, 0.0)
    if not np.isfinite(x).all():
        raise SplineFlowError("values must be finite where observed: pass mask=~numpy.isnan(values) for missing ones")
    if mask is not None and not seen.any(axis=1).all():
        i, j = np.argwhere(~seen.any(axis=1))[0]
        raise SplineFlowError(f"trajectory {i} has no observation of dimension {j}: leave one or the other out")
    used = slice(None) if mask is None else seen.any(axis=2) if t.ndim == 2 else seen.any(axis=(0, 2))
    if not np.isfinite(t[used]).all():
        raise SplineFlowError("times must be finite")
    if duplicates not in ("raise", "mean"):
        raise SplineFlowError(f"duplicates must be 'raise' or 'mean'; got {duplicates!r}")
    if duplicates == "mean":
        t, x, seen = _merge(t, x, seen)
    records = _sorted_out(t, x, seen)
    steps = np.diff(records.sites, axis=1)
    inside = np.arange(1, records.sites.shape[1]) < records.counts[:, None]
    if ((steps <= 0) & inside).any():
        what = "repeats: pass duplicates='mean' to average" if (steps[inside] == 0).any() else "decreases: sort them"
        raise SplineFlowError(f"times must increase strictly, and one {what}")
    return records


def same_grids(records: Records, values: npt.ArrayLike, mask: npt.ArrayLike | None) -> Records:
    """Sort a second quantity [N, n, d], observed where the first was, into the same grids."""
    x = np.asarray(values, dtype=np.float64)
    x = x[None] if x.ndim == 2 else x
    seen = _mask(mask, x.shape)
    if not np.isfinite(x[seen]).all():
        raise SplineFlowError("derivatives and weights must be finite where observed")
    n = x.shape[1]
    second = _sorted_out(np.arange(n, dtype=float), np.where(seen, x, 0.0), seen, records.layout)
    if second.values.shape != records.values.shape:
        raise SplineFlowError(f"expected the shape of the observations; got {x.shape}")
    return replace(records, values=second.values)


def _numbers(name: str, given: npt.ArrayLike) -> Array:
    given = getattr(given, "detach", lambda: given)()
    try:
        array = np.asarray(given)
        if np.iscomplexobj(array):
            raise TypeError("complex")
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise SplineFlowError(f"{name} must be an array of real numbers: {error}") from error


def _mask(mask: npt.ArrayLike | None, shape: tuple[int, ...]) -> npt.NDArray[np.bool_]:
    if mask is None:
        return np.ones(shape, dtype=bool)
    seen = np.asarray(mask)
    if seen.ndim == 2 and len(shape) == 3 and shape[0] == 1:
        seen = seen[None]
    if seen.shape != shape or seen.dtype != np.bool_:
        raise SplineFlowError(
            f"mask must be boolean [trajectories, times, dimensions] = {shape}; got {seen.dtype} {seen.shape}"
        )
    return seen


def _sorted_out(t: Array, x: Array, seen: npt.NDArray[np.bool_], layout: Layout | None = None) -> Records:
    n_trajectories, n, dims = x.shape
    if layout is None:
        if t.ndim == 1 and (seen.all() or (seen == seen[:1, :, :1]).all()):
            layout = "shared"
        elif (seen == seen[:, :, :1]).all():
            layout = "trajectory"
        else:
            layout = "dimension"
    if layout == "shared":
        rows = seen[0, :, 0][None]
        sites, values = t[None], np.moveaxis(x, 0, 1).reshape(1, n, n_trajectories * dims)
    else:
        sites = np.broadcast_to(t, (n_trajectories, n))
        rows, values = seen[:, :, 0], x
        if layout == "dimension":
            rows = np.moveaxis(seen, 1, 2).reshape(-1, n)
            values = np.moveaxis(x, 1, 2).reshape(-1, n, 1)
            sites = np.repeat(sites, dims, axis=0)
    counts = rows.sum(axis=1)
    if rows.all():
        return Records(np.ascontiguousarray(sites), counts, values, n_trajectories, dims, layout)
    # Observed ones first, in order; what follows repeats the last of them.
    order = np.argsort(~rows, axis=1, kind="stable")[:, : counts.max()]
    order = np.take_along_axis(order, np.minimum(np.arange(order.shape[1]), counts[:, None] - 1), axis=1)
    sites = np.take_along_axis(sites, order, axis=1)
    values = np.take_along_axis(values, order[:, :, None], axis=1)
    return Records(sites, counts, values, n_trajectories, dims, layout)


def _merge(t: Array, x: Array, seen: npt.NDArray[np.bool_]) -> tuple[Array, Array, npt.NDArray[np.bool_]]:
    """Average observations at equal times; trajectories that become shorter are masked at the end."""
    rows = []
    n_trajectories, n, dims = x.shape
    for i in range(n_trajectories):
        own = t if t.ndim == 1 else t[i]
        unique, inverse = np.unique(own, return_inverse=True)
        count = np.zeros((len(unique), dims))
        total = np.zeros((len(unique), dims))
        np.add.at(count, inverse, seen[i].astype(float))
        np.add.at(total, inverse, np.where(seen[i], x[i], 0.0))
        rows.append((unique, total / np.maximum(count, 1), count > 0))
    times = np.full((n_trajectories, n), np.nan)
    values, mask = np.zeros_like(x), np.zeros_like(seen)
    for i, (unique, mean, there) in enumerate(rows):
        times[i, : len(unique)], values[i, : len(unique)], mask[i, : len(unique)] = unique, mean, there
    if t.ndim == 1:
        m = len(rows[0][0])
        return times[0, :m], values[:, :m], mask[:, :m]
    return times, values, mask
