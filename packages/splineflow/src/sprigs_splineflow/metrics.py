"""Distances between samples, and errors of fields and rollouts (paper's code, M8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import SplineFlowError

Array = npt.NDArray[np.float64]


def _array(value: Any) -> Array:
    return np.asarray(value.detach().cpu().numpy() if hasattr(value, "detach") else value, dtype=np.float64)


def _samples(**given: Any) -> list[Array]:
    found = []
    for name, value in given.items():
        array = _array(value)
        if array.ndim != 2 or 0 in array.shape or not np.isfinite(array).all():
            raise SplineFlowError(f"{name} must be finite samples [n, d], n and d above 0; got shape {array.shape}")
        found.append(array)
    if len({a.shape[1] for a in found}) > 1:
        raise SplineFlowError(f"samples must have the same dimensions; got {[a.shape[1] for a in found]}")
    return found


def _weights(given: Any, n: int, name: str) -> Array:
    if given is None:
        return np.full(n, 1 / n)
    weights = _array(given)
    if weights.shape != (n,) or not np.isfinite(weights).all() or weights.min() < 0 or weights.sum() <= 0:
        raise SplineFlowError(f"{name} must be {n} finite weights, not negative and not all zero")
    scaled: Array = weights / weights.sum()
    return scaled


def wasserstein(x: Any, y: Any, p: int = 1, a: Any = None, b: Any = None) -> float:
    """Return the exact Wasserstein distance W1 (p = 1) or W2 (p = 2) of two samples, by POT's network simplex.

    Args:
        x: [n, d] sample; array or tensor, as everywhere here.
        y: [m, d] sample.
        p: 1 or 2.
        a: [n] weights of x, scaled to sum to 1; uniform without.
        b: [m] weights of y.

    Raises:
        SplineFlowError: Samples, weights or p that cannot be used.
    """
    import ot
    from scipy.spatial.distance import cdist

    if p not in (1, 2):
        raise SplineFlowError(f"p must be 1 or 2; got {p!r}")
    first, second = _samples(x=x, y=y)
    # Not ot.dist: its |x|^2 + |y|^2 - 2xy cancels where samples lie far from the origin.
    cost = cdist(first, second, "euclidean" if p == 1 else "sqeuclidean")
    weights = _weights(a, len(first), "a"), _weights(b, len(second), "b")
    value = float(ot.emd2(*weights, cost, numItermax=10_000_000))
    return value if p == 1 else float(np.sqrt(max(value, 0.0)))


def sliced_wasserstein(x: Any, y: Any, projections: int = 200, rng: Any = None) -> float:
    """Return the sliced W2 distance over random projections; `rng` is a seed or a NumPy generator (SPEC 7).

    Raises:
        SplineFlowError: Samples or a number of projections that cannot be used.
    """
    import ot

    if isinstance(projections, bool) or not isinstance(projections, (int, np.integer)) or projections < 1:
        raise SplineFlowError(f"projections must be a positive number of directions; got {projections!r}")
    a, b = _samples(x=x, y=y)
    directions = np.random.default_rng(rng).normal(size=(a.shape[1], projections))
    directions /= np.linalg.norm(directions, axis=0)
    return float(ot.sliced_wasserstein_distance(a, b, projections=directions))


def mmd(x: Any, y: Any, gammas: Sequence[float] = (2, 1, 0.5, 0.1, 0.01, 0.005)) -> float:
    """Return the unbiased squared MMD, averaged over kernels exp(-gamma |x - y|^2). May be below zero by chance.

    Raises:
        SplineFlowError: Samples of fewer than two points, or gammas that are not positive.
    """
    a, b = _samples(x=x, y=y)
    if not len(gammas) or not all(0 < gamma < np.inf for gamma in gammas):
        raise SplineFlowError(f"gammas must be one or more positive numbers; got {gammas!r}")
    if min(len(a), len(b)) < 2:
        raise SplineFlowError("an unbiased MMD needs at least two points of each sample")
    from scipy.spatial.distance import cdist

    values = []
    squares = [cdist(p, q, "sqeuclidean") for p, q in ((a, a), (b, b), (a, b))]
    for gamma in gammas:
        within_a, within_b, across = (np.exp(-gamma * s) for s in squares)
        n, m = len(a), len(b)
        values.append((within_a.sum() - n) / (n * (n - 1)) + (within_b.sum() - m) / (m * (m - 1)) - 2 * across.mean())
    return float(np.mean(values))


def energy_distance(x: Any, y: Any) -> float:
    """Return 2 E|x - y| - E|x - x'| - E|y - y'| over all pairs, a point with itself included (V-statistic)."""
    from scipy.spatial.distance import cdist

    a, b = _samples(x=x, y=y)
    return float(2 * cdist(a, b).mean() - cdist(a, a).mean() - cdist(b, b).mean())


def field_error(predicted: Any, true: Any) -> float:
    """Return sum |v - v*|^2 / sum |v*|^2 of velocities of the same shape.

    Raises:
        SplineFlowError: Shapes differ, values are not finite, or the true field is zero everywhere.
    """
    a, b = _array(predicted), _array(true)
    _alike(a, b)
    total = np.square(b).sum()
    if total == 0:
        raise SplineFlowError("the true field is zero everywhere: its relative error is not defined")
    return float(np.square(a - b).sum() / total)


def rollout_error(predicted: Any, true: Any) -> float:
    """Return the mean squared error of rollouts [..., d] in units of each dimension's variance in the true ones.

    A dimension that is constant in the true ones (to rounding) has no such unit: its error counts as it is.

    Raises:
        SplineFlowError: Shapes differ, or values are not finite.
    """
    a, b = _array(predicted), _array(true)
    _alike(a, b)
    rows = b.reshape(-1, b.shape[-1])
    spread = rows.std(axis=0)
    varies = spread > 1e-12 * np.abs(rows).max(axis=0)
    return float(np.square((a - b) / np.where(varies, spread, 1.0)).mean())


def _alike(a: Array, b: Array) -> None:
    if a.shape != b.shape or a.ndim == 0 or a.size == 0 or not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise SplineFlowError(f"expected finite arrays of the same shape; got {a.shape} and {b.shape}")
