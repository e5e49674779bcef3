"""Distances between samples, and errors of fields and rollouts (paper's code, M8)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import SplineFlowError

Array = npt.NDArray[np.float64]


def _samples(**given: Any) -> list[Array]:
    found = []
    for name, value in given.items():
        array = np.asarray(value.detach().cpu().numpy() if hasattr(value, "detach") else value, dtype=np.float64)
        if array.ndim != 2 or 0 in array.shape or not np.isfinite(array).all():
            raise SplineFlowError(f"{name} must be finite samples [n, d], n and d above 0; got shape {array.shape}")
        found.append(array)
    if len({a.shape[1] for a in found}) > 1:
        raise SplineFlowError(f"samples must have the same dimensions; got {[a.shape[1] for a in found]}")
    return found


def wasserstein(x: Any, y: Any, p: int = 1) -> float:
    """Return the exact Wasserstein distance W1 (p = 1) or W2 (p = 2) of two samples [n, d] and [m, d], uniform weights.

    Raises:
        SplineFlowError: Samples or p that cannot be used.
    """
    import ot

    if p not in (1, 2):
        raise SplineFlowError(f"p must be 1 or 2; got {p!r}")
    a, b = _samples(x=x, y=y)
    cost = ot.dist(a, b, metric="euclidean" if p == 1 else "sqeuclidean")
    value = float(ot.emd2([], [], cost, numItermax=2_000_000))
    return value if p == 1 else float(np.sqrt(max(value, 0.0)))


def sliced_wasserstein(x: Any, y: Any, projections: int = 200, rng: Any = None) -> float:
    """Return the sliced W2 distance over random projections; `rng` is a seed or a NumPy generator (SPEC 7)."""
    import ot

    a, b = _samples(x=x, y=y)
    directions = np.random.default_rng(rng).normal(size=(a.shape[1], projections))
    directions /= np.linalg.norm(directions, axis=0)
    return float(ot.sliced_wasserstein_distance(a, b, projections=directions))


def mmd(x: Any, y: Any, gammas: Sequence[float] = (2, 1, 0.5, 0.1, 0.01, 0.005)) -> float:
    """Return the unbiased squared MMD, averaged over kernels exp(-gamma |x - y|^2). May be below zero by chance."""
    a, b = _samples(x=x, y=y)
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
    """Return 2 E|x - y| - E|x - x'| - E|y - y'| over all pairs."""
    from scipy.spatial.distance import cdist

    a, b = _samples(x=x, y=y)
    return float(2 * cdist(a, b).mean() - cdist(a, a).mean() - cdist(b, b).mean())


def field_error(predicted: Any, true: Any) -> float:
    """Return sum |v - v*|^2 / sum |v*|^2 of velocities of the same shape."""
    a, b = (np.asarray(v, dtype=np.float64) for v in (predicted, true))
    _alike(a, b)
    total = np.square(b).sum()
    if total == 0:
        raise SplineFlowError("the true field is zero everywhere: its relative error is not defined")
    return float(np.square(a - b).sum() / total)


def rollout_error(predicted: Any, true: Any) -> float:
    """Return the mean squared error of rollouts [..., d] in units of each dimension's variance in the true ones."""
    a, b = (np.asarray(v, dtype=np.float64) for v in (predicted, true))
    _alike(a, b)
    spread = b.reshape(-1, b.shape[-1]).std(axis=0)
    return float(np.square((a - b) / np.where(spread > 0, spread, 1.0)).mean())


def _alike(a: Array, b: Array) -> None:
    if a.shape != b.shape or a.size == 0 or not (np.isfinite(a).all() and np.isfinite(b).all()):
        raise SplineFlowError(f"expected finite arrays of the same shape; got {a.shape} and {b.shape}")
