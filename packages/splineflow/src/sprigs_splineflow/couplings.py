"""Couplings of consecutive snapshots, and chains of members through all of them (paper, M5).

Exact and entropic plans are POT's (Flamary et al., 2021). Unbalanced ones are not: of POT 0.9.7's methods for them
"sinkhorn_stabilized" does not meet the optimality conditions, and the others underflow where a member lies far away.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from .errors import SplineFlowError

Array = npt.NDArray[np.float64]
MOST_EXACT = 5000
MOST_CHAINS = 20_000
MOST_ITERATIONS = 5000


class Coupling(Protocol):
    """A joint distribution of two snapshots. It sums to 1, but for `Unbalanced`, where mass is made and lost."""

    def plan(self, x: Array, y: Array) -> Array:
        """Return the joint [n, m], not negative, of snapshots [n, d] and [m, d]."""


@dataclass(frozen=True)
class ExactOT:
    """The optimal transport plan for the squared distance, uniform weights."""

    def plan(self, x: Array, y: Array) -> Array:
        """Return the plan; beyond 5000 members it is slow, and warns."""
        import ot

        if max(len(x), len(y)) > MOST_EXACT:
            warnings.warn(
                f"an exact plan of {len(x)} and {len(y)} members is slow: take Sinkhorn() or batch=512", stacklevel=3
            )
        plan: Array = ot.emd([], [], _cost(x, y), numItermax=10_000_000)
        return plan


@dataclass(frozen=True)
class Sinkhorn:
    """The entropic plan (Cuturi, 2013), iterated on logarithms: nothing underflows.

    Attributes:
        reg: regularisation, relative to the mean squared distance.
    """

    reg: float = 0.05

    def plan(self, x: Array, y: Array) -> Array:
        """Return the plan; warns where it has not converged."""
        import ot

        _positive(reg=self.reg)
        cost = _cost(x, y)
        # Not "sinkhorn_stabilized", which is faster: its plans of thousands of members were far from the marginals.
        plan: Array = ot.sinkhorn([], [], cost / _scale(cost), self.reg, method="sinkhorn_log", numItermax=5000)
        return plan


@dataclass(frozen=True)
class Unbalanced:
    """The entropic plan with soft marginals, for populations that grow and die (Chizat et al., 2018).

    The plan P minimises <C, P> + reg KL(P | a b^T) + reg_m (KL(P 1 | a) + KL(P^T 1 | b)) with uniform a, b and the
    squared distances C divided by their mean: POT's problem, on logarithms, and with the translation of the potentials
    that makes it converge fast (Sejourne, Vialard and Peyre, 2022).

    Attributes:
        reg: regularisation, relative to the mean squared distance.
        reg_m: weight of the marginals, relative to the same.
    """

    reg: float = 0.05
    reg_m: float = 1.0

    def plan(self, x: Array, y: Array) -> Array:
        """Return the plan; its first marginal says how much each member is taken to grow. Warns if not converged."""
        from scipy.special import logsumexp

        _positive(reg=self.reg, reg_m=self.reg_m)
        cost = _cost(x, y)
        cost /= _scale(cost)
        log_a, log_b = -np.log(len(x)), -np.log(len(y))
        f, g = np.zeros(len(x)), np.zeros(len(y))
        damping = self.reg_m / (self.reg_m + self.reg)
        for _ in range(MOST_ITERATIONS):
            before = f
            f = -damping * self.reg * (log_b + logsumexp((g - cost) / self.reg, axis=1))
            g = -damping * self.reg * (log_a + logsumexp((f[:, None] - cost) / self.reg, axis=0))
            excess = log_a + logsumexp(-f / self.reg_m) - log_b - logsumexp(-g / self.reg_m)
            f, g = f + self.reg_m / 2 * excess, g - self.reg_m / 2 * excess
            if np.abs(f - before).max() < 1e-8 * self.reg:
                break
        else:
            warnings.warn(f"the unbalanced plan has not converged: take a reg above {self.reg:g}", stacklevel=3)
        plan: Array = np.exp(log_a + log_b + (f[:, None] + g - cost) / self.reg)
        return plan


@dataclass(frozen=True)
class Independent:
    """Every pair is as likely as any other."""

    def plan(self, x: Array, y: Array) -> Array:
        """Return the constant plan."""
        return np.full((len(x), len(y)), 1 / (len(x) * len(y)))


@dataclass(frozen=True)
class _Function:
    function: Callable[[Array, Array], Any]

    def plan(self, x: Array, y: Array) -> Array:
        return np.asarray(self.function(x, y), dtype=np.float64)


NAMED: dict[str, Coupling] = {
    "exact": ExactOT(),
    "sinkhorn": Sinkhorn(),
    "unbalanced": Unbalanced(),
    "independent": Independent(),
}


def resolve(coupling: Any) -> Coupling:
    """Return a coupling by name, a coupling itself, or one from a function of two snapshots.

    Raises:
        SplineFlowError: It is none of these.
    """
    if isinstance(coupling, str) and coupling in NAMED:
        return NAMED[coupling]
    if hasattr(coupling, "plan"):
        found: Coupling = coupling
        return found
    if callable(coupling):
        return _Function(coupling)
    raise SplineFlowError(
        f"coupling must be one of {', '.join(NAMED)}, an object with plan, or a function; got {coupling!r}"
    )


def chain(
    snapshots: Sequence[npt.ArrayLike],
    coupling: Any = "exact",
    n: int | None = None,
    rng: Any = None,
    batch: int | None = None,
) -> npt.NDArray[np.int64]:
    """Chain members of snapshots by couplings of consecutive ones.

    i_0 goes evenly over the first snapshot's members (with an unbalanced plan, in proportion to their growth);
    i_{k+1} is drawn from row i_k of the plan of snapshots k and k + 1, scaled to sum to 1; a row that rounding (or
    death, in unbalanced plans) has emptied stands for the nearest member. With exact plans of uniform weights every
    snapshot's members are met evenly in expectation.

    Args:
        snapshots: arrays [n_k, d], two at least.
        coupling: see `resolve`.
        n: chains; four for each member of the largest snapshot without, at most 20 000.
        rng: a seed or a NumPy generator.
        batch: couple random minibatches of this size by optimal assignment instead of whole snapshots; "exact" only.

    Returns:
        [n, m + 1] indices of members.

    Raises:
        SplineFlowError: Snapshots, plans or numbers that cannot be used.
    """
    arrays = _checked(snapshots)
    count = min(4 * max(map(len, arrays)), MOST_CHAINS) if n is None else n
    if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 1:
        raise SplineFlowError(f"n must be a positive number of chains; got {n!r}")
    generator = np.random.default_rng(rng)
    if batch is not None:
        if resolve(coupling) != ExactOT():
            raise SplineFlowError("minibatches are coupled by optimal assignment: coupling='exact'")
        return _minibatches(arrays, int(count), batch, generator)
    found = np.empty((count, len(arrays)), dtype=np.int64)
    kind = resolve(coupling)
    for k, (x, y) in enumerate(itertools.pairwise(arrays)):
        plan = np.asarray(kind.plan(x, y), dtype=np.float64)
        if plan.shape != (len(x), len(y)) or not np.isfinite(plan).all() or plan.min() < -1e-12 or plan.sum() <= 0:
            raise SplineFlowError(
                f"the plan of snapshots {k} and {k + 1} must be [{len(x)}, {len(y)}], finite, not negative and not all"
                f" zero; got shape {plan.shape}, sum {plan.sum():g}"
            )
        rows = np.maximum(plan, 0.0)
        mass = rows.sum(axis=1)
        if k == 0:
            found[:, 0] = _evenly(mass, int(count), generator)
        # Rows that rounding has emptied go to the nearest member.
        for i in np.flatnonzero(mass < 1e-12 * mass.max()):
            rows[i] = 0.0
            rows[i, np.square(y - x[i]).sum(axis=1).argmin()] = 1.0
        cumulative = np.cumsum(rows, axis=1)
        draw = generator.uniform(size=count) * cumulative[found[:, k], -1]
        for i in np.unique(found[:, k]):
            here = found[:, k] == i
            found[here, k + 1] = np.searchsorted(cumulative[i], draw[here], side="right")
        found[:, k + 1] = np.minimum(found[:, k + 1], len(y) - 1)
    return found


def _evenly(mass: Array, n: int, generator: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return n members, each within one of its share, in random order (systematic sampling)."""
    edges = np.cumsum(mass) / mass.sum()
    at = (np.arange(n) + generator.uniform()) / n
    order: npt.NDArray[np.int64] = generator.permutation(np.minimum(np.searchsorted(edges, at), len(mass) - 1))
    return order


def _minibatches(arrays: list[Array], n: int, batch: int, generator: np.random.Generator) -> npt.NDArray[np.int64]:
    from scipy.optimize import linear_sum_assignment

    if isinstance(batch, bool) or not isinstance(batch, (int, np.integer)) or batch < 1:
        raise SplineFlowError(f"batch must be a positive number of members; got {batch!r}")
    parts = []
    for _ in range(-(-n // batch)):
        drawn = [generator.choice(len(a), batch, replace=batch > len(a)) for a in arrays]
        chains = [drawn[0]]
        for k in range(1, len(arrays)):
            cost = _cost(arrays[k - 1][chains[-1]], arrays[k][drawn[k]])
            chains.append(drawn[k][linear_sum_assignment(cost)[1]])
        parts.append(np.stack(chains, axis=1))
    return np.concatenate(parts)[:n]


def _cost(x: Array, y: Array) -> Array:
    """Squared distances. Not ot.dist: its |x|^2 + |y|^2 - 2xy cancels where snapshots lie far from the origin."""
    from scipy.spatial.distance import cdist

    cost: Array = cdist(x, y, "sqeuclidean")
    return cost


def _positive(**given: float) -> None:
    for name, value in given.items():
        if not 0 < value < np.inf:
            raise SplineFlowError(f"{name} must be a positive number; got {value!r}")


def _scale(cost: Array) -> float:
    mean = float(cost.mean())
    return mean if mean > 0 else 1.0


def _checked(snapshots: Sequence[npt.ArrayLike]) -> list[Array]:
    arrays = [np.asarray(s, dtype=np.float64) for s in snapshots]
    if len(arrays) < 2:
        raise SplineFlowError(f"at least two snapshots are needed; got {len(arrays)}")
    for k, a in enumerate(arrays):
        if a.ndim != 2 or 0 in a.shape or not np.isfinite(a).all():
            raise SplineFlowError(f"snapshot {k} must be finite [members, dimensions]; got shape {a.shape}")
    if len({a.shape[1] for a in arrays}) > 1:
        raise SplineFlowError(f"snapshots must have the same dimensions; got {[a.shape[1] for a in arrays]}")
    return arrays
