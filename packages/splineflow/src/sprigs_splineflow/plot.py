"""Pictures: phase portraits, paths beside observations, marginals. Needs the extra "plot"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .conditional import ConditionalPath
from .errors import BackendUnavailable, SplineFlowError

Array = npt.NDArray[np.float64]


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as missing:
        raise BackendUnavailable("plots need matplotlib: pip install 'sprigs-splineflow[plot]'") from missing
    return Figure(figsize=(6, 5), layout="constrained").add_subplot()


def phase_portrait(
    field: Callable[[float, Array], Array],
    limits: Sequence[Sequence[float]],
    ax: Any = None,
    trajectories: Any = None,
    dims: tuple[int, int] = (0, 1),
    rest: Any = None,
    time: float = 0.0,
    density: int = 24,
    **style: Any,
) -> Any:
    """Draw streamlines of a field over a window of two of its dimensions, and trajectories on top.

    Args:
        field: of a time and states [q, d], such as `model.vector_field`.
        limits: ((low, high), (low, high)) of the two dimensions.
        ax: matplotlib's axes; new ones without.
        trajectories: [N, T, d].
        dims: which two dimensions.
        rest: [d] values of the others; zeros without.
        time: at which the field is drawn.
        density: points of the grid along each side.
        style: options of `streamplot`.

    Returns:
        The axes.
    """
    ax = _axes(ax)
    (a0, a1), (b0, b1) = limits
    if not (a0 < a1 and b0 < b1):
        raise SplineFlowError(f"limits must be ((low, high), (low, high)); got {limits!r}")
    a, b = np.linspace(a0, a1, density), np.linspace(b0, b1, density)
    d = max(*dims, 1) + 1 if rest is None else len(rest)
    if rest is None and trajectories is not None:
        d = np.asarray(trajectories).shape[2]
    states = np.tile(np.zeros(d) if rest is None else np.asarray(rest, dtype=float), (density * density, 1))
    grid_a, grid_b = np.meshgrid(a, b)
    states[:, dims[0]], states[:, dims[1]] = grid_a.ravel(), grid_b.ravel()
    flow = np.asarray(field(time, states)).reshape(density, density, d)
    u, v = flow[..., dims[0]], flow[..., dims[1]]
    ax.streamplot(a, b, u, v, **{"color": np.hypot(u, v), "linewidth": 0.8, "cmap": "viridis", **style})
    if trajectories is not None:
        for row in np.asarray(trajectories):
            ax.plot(row[:, dims[0]], row[:, dims[1]], color="black", lw=0.8, alpha=0.7)
    ax.set(xlim=(a0, a1), ylim=(b0, b1), xlabel=f"x{dims[0] + 1}", ylabel=f"x{dims[1] + 1}")
    return ax


def paths(path: ConditionalPath, index: int = 0, ax: Any = None, velocity: bool = False, points: int = 400) -> Any:
    """Draw one trajectory's path (or its velocity) over time with its observations.

    Args:
        path: any conditional path.
        index: which trajectory.
        ax: matplotlib's axes; new ones without.
        velocity: whether to draw the derivative.
        points: of each curve.

    Returns:
        The axes.
    """
    ax = _axes(ax)
    records = path.records
    columns = []
    for j in range(path.dims):
        grid = {"shared": 0, "trajectory": index, "dimension": index * path.dims + j}[records.layout]
        series = {"shared": index * path.dims + j, "trajectory": j, "dimension": 0}[records.layout]
        c = records.counts[grid]
        columns.append((records.sites[grid, :c], records.values[grid, :c, series]))
    low, high = min(s[0] for s, _ in columns), max(s[-1] for s, _ in columns)
    t = np.linspace(low, high, points)
    curve = path.evaluate(np.full(points, index), t, int(velocity)).numpy()
    for j, (sites, values) in enumerate(columns):
        (line,) = ax.plot(t, curve[:, j], lw=1.2, label=f"x{j + 1}")
        if not velocity:
            ax.plot(sites, values, "o", ms=4, color=line.get_color())
    ax.set(xlabel="t", ylabel="dx/dt" if velocity else "x")
    ax.legend()
    return ax


def marginals(
    snapshots: Sequence[npt.ArrayLike],
    times: npt.ArrayLike,
    trajectories: Any = None,
    ax: Any = None,
    dims: tuple[int, int] = (0, 1),
) -> Any:
    """Draw snapshots coloured by time, and trajectories through them.

    Args:
        snapshots: arrays [n_k, d].
        times: [m + 1].
        trajectories: [N, T, d], such as `model.predict(...)`.
        ax: matplotlib's axes; new ones without.
        dims: which two dimensions.

    Returns:
        The axes.
    """
    ax = _axes(ax)
    arrays = [np.asarray(s, dtype=float) for s in snapshots]
    moments = np.asarray(times, dtype=float)
    if len(arrays) != len(moments):
        raise SplineFlowError(f"there are {len(arrays)} snapshots and {len(moments)} times")
    together = np.concatenate(arrays)
    shade = np.repeat(np.arange(len(arrays)), [len(a) for a in arrays])
    dots = ax.scatter(together[:, dims[0]], together[:, dims[1]], c=shade, s=5, cmap="viridis", alpha=0.6)
    bar = ax.figure.colorbar(dots, ax=ax, ticks=range(len(moments)), label="time")
    bar.ax.set_yticklabels([f"{m:g}" for m in moments])
    if trajectories is not None:
        for row in np.asarray(trajectories):
            ax.plot(row[:, dims[0]], row[:, dims[1]], color="black", lw=0.6, alpha=0.5)
    ax.set(xlabel=f"x{dims[0] + 1}", ylabel=f"x{dims[1] + 1}")
    return ax
