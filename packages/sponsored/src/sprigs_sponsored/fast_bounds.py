"""The bounds of `slate_solvers.Search` for the MNL model, in numba."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from .instance import Array

_MAX_COMBINATIONS = 512


class FastSearch:
    """As `slate_solvers.Search`; see there for what the bound is.

    Args:
        worth: prior * values, shape (n, m).
        weights: e^attraction, shape (L, m).
    """

    def __init__(self, worth: Array, weights: Array) -> None:
        self.worth = np.ascontiguousarray(worth)
        self.weights = np.ascontiguousarray(weights)

    def bound(self, chosen: Sequence[int], open_: npt.NDArray[np.intp], room: int) -> float:
        """Most welfare of a slate that holds `chosen` and up to `room` of `open_`."""
        own = np.array(chosen, np.int64)
        return float(_bound(self.worth, self.weights, own, open_, min(room, len(open_))))


@numba.njit(nogil=True, cache=True, error_model="numpy")  # type: ignore[untyped-decorator, unused-ignore]
def _bound(worth: Any, weights: Any, chosen: Any, open_: Any, most: int) -> float:
    n, m = worth.shape
    signals = len(chosen) + 1
    total = np.ones(m)
    for p in chosen:
        for t in range(m):
            total[t] += weights[p, t]
    # The `most` largest weights of each intent among the open prompts.
    added, added_but_one = np.zeros(m), np.zeros(m)
    largest = np.zeros(max(most, 1))
    for t in range(m):
        largest[:] = 0.0
        for p in open_:
            x = weights[p, t]
            for k in range(most):
                if x > largest[k]:
                    x, largest[k] = largest[k], x
        for k in range(most):
            added[t] += largest[k]
            if k < most - 1:
                added_but_one[t] += largest[k]
    value = np.empty((signals, n, m))  # what an ad after a signal is worth of an intent
    taken = 0.0
    ads = np.empty((signals, n), np.int64)
    count = np.zeros(signals, np.int64)
    combinations = 1
    for s in range(signals):
        pooled, best, best_sum = -1.0, 0, -1.0
        for i in range(n):
            now, then = 0.0, 0.0
            for t in range(m):
                share = (1.0 if s == 0 else weights[chosen[s - 1], t]) / total[t]
                x = share * worth[i, t]
                value[s, i, t] = x
                now += x
                then += x * (total[t] / (total[t] + added[t]))
            pooled = max(pooled, then)
            if now > best_sum:
                best_sum, best = now, i
        taken += pooled
        # Ads that can be the best one, whatever further prompts take of the signal.
        for i in range(n):
            gain = 0.0
            for t in range(m):
                d = value[s, i, t] - value[s, best, t]
                gain += d if d > 0 else d * (total[t] / (total[t] + added[t]))
            if i == best or gain > 1e-15:
                ads[s, count[s]] = i
                count[s] += 1
        combinations *= count[s]
    for t in range(m):
        full = 0.0
        for i in range(n):
            full = max(full, worth[i, t])
        taken += (1 - total[t] / (total[t] + added[t])) * full
    if most <= 0 or combinations > _MAX_COMBINATIONS:
        return taken
    gains = np.zeros(most)
    held = np.empty(m)
    top = -1.0
    for index in range(combinations):
        held[:] = 0.0
        rest = index
        for s in range(signals):
            ad = ads[s, rest % count[s]]
            rest //= count[s]
            for t in range(m):
                held[t] += value[s, ad, t]
        gains[:] = 0.0
        for p in open_:
            best_gain = 0.0
            for i in range(n):
                gain = 0.0
                for t in range(m):
                    d = worth[i, t] - held[t]
                    e = weights[p, t]
                    gain += d * e / (total[t] + e + (0.0 if d > 0 else added_but_one[t]))
                best_gain = max(best_gain, gain)
            for k in range(most):
                if best_gain > gains[k]:
                    best_gain, gains[k] = gains[k], best_gain
        top = max(top, held.sum() + gains.sum())
    return min(taken, top)
