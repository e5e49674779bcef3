"""Solvers for slates: greedy with swaps, branch and bound, an integer program, and the bound they are judged by."""

from __future__ import annotations

import heapq
import importlib.util
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .errors import SponsoredError

if TYPE_CHECKING:
    from .instance import Array
    from .slates import SlateInstance

_MAX_COMBINATIONS = 512


def upper_bound(instance: SlateInstance) -> float:
    """No slate has more welfare: the bound of branch and bound before anything is chosen."""
    if instance.model == "cascade":
        # At best every prompt that is reached tells the intent, and k of the likeliest are.
        best = np.sort(instance.prompts, axis=0)[::-1][: instance.k]
        blind = np.prod(1 - best, axis=0)
        pooled = float((blind * instance.weighted).sum(axis=1).max())
        return float(((1 - blind) * instance.weighted.max(axis=0)).sum()) + pooled
    return Search(instance).bound((), np.arange(instance.n_prompts), instance.k)


def greedy(instance: SlateInstance, *, swaps: bool = True) -> tuple[list[int], float, int]:
    """Add the best prompt while it helps, then swap while that helps."""
    slate: list[int] = []
    welfare = instance.welfare(slate)
    nodes = 1
    improved = True
    while improved:
        improved = False
        outside = [p for p in range(instance.n_prompts) if p not in slate]
        options = []
        if len(slate) < instance.k:
            options += [[*slate, p] for p in outside]
        if swaps and (not options or instance.model != "coverage"):
            options += [[*slate[:i], p, *slate[i + 1 :]] for i in range(len(slate)) for p in outside]
            options += [slate[:i] + slate[i + 1 :] for i in range(len(slate))]
        if not options:
            break
        values = np.empty(len(options))
        for size in {len(o) for o in options}:
            at = [i for i, o in enumerate(options) if len(o) == size]
            values[at] = instance.welfare_of(np.array([options[i] for i in at], np.intp).reshape(len(at), size))
        nodes += len(options)
        best = int(values.argmax())
        if values[best] > welfare + 1e-12 * max(1.0, welfare):
            slate, welfare, improved = options[best], float(values[best]), True
    ordered = slate if instance.model == "cascade" else sorted(slate)
    return ordered, welfare, nodes


class Search:
    """Bounds for sets of slates: those that hold `chosen` and up to `room` more of the `open` prompts.

    `coverage`: at best the open prompts cover all they could, `room` of them no more than their largest gains.

    `mnl`, the least of two. First: further prompts take from each intent's clicks at most the share that the `room`
    most attractive open ones would; what they take is worth at most the intent's full-information value and never less
    than where it was. Second: with t = 1 + the chosen weights, v the value of the chosen signals' ads per unit of it,
    and e the weights of the further prompts, welfare is sum(v) + sum over prompts p and intents of
    (w[ad of p] - v) e[p] / (t + sum of e). Bounding the denominators from the favourable side makes the gains of the
    further prompts independent of one another, so that the `room` largest add up; which ads the chosen signals have is
    gone through, as far as an ad can be the best one at all. For one more prompt this is exact.
    """

    def __init__(self, instance: SlateInstance) -> None:
        self.instance = instance
        self.worth = instance.weighted
        self.full = self.worth.max(axis=0)
        self.weights = np.exp(instance.prompts) if instance.model == "mnl" else instance.prompts

    def bound(self, chosen: Sequence[int], open_: npt.NDArray[np.intp], room: int) -> float:
        """Most welfare of a slate that holds `chosen` and up to `room` of `open_`; exact if `room` is 0."""
        own, others = self.weights[list(chosen)], self.weights[open_]
        most = min(room, len(others))
        if self.instance.model == "coverage":
            covered = own.max(axis=0, initial=0.0)
            base = float(covered @ self.full)
            if most <= 0:
                return base
            gains = np.sort(np.maximum(others - covered, 0) @ self.full)[::-1][:most].sum()
            reach = float(np.maximum(others.max(axis=0) - covered, 0) @ self.full)
            return base + min(float(gains), reach)
        signals = np.concatenate([np.ones((1, self.full.size)), own])
        total = signals.sum(axis=0)
        ranked = np.sort(others, axis=0)[::-1]
        added = ranked[:most].sum(axis=0)
        kept = total / (total + added)
        # value[s, t, i]: what ad i after signal s is worth of intent t.
        value = (signals / total)[:, :, None] * self.worth.T
        pooled = np.matmul((signals / total * kept), self.worth.T).max(axis=1).sum()
        taken = float(pooled + (1 - kept) @ self.full)
        if most <= 0:
            return taken
        ads = self._possible_ads(value, kept)
        if math.prod(len(a) for a in ads) > _MAX_COMBINATIONS:
            return taken
        combinations_ = np.stack(np.meshgrid(*ads, indexing="ij"), axis=-1).reshape(-1, len(ads))
        held = value[np.arange(len(ads))[None, :], :, combinations_].sum(axis=1)  # (combinations, m)
        near = others / (total + others)
        far = others / (total + others + ranked[: most - 1].sum(axis=0))
        difference = self.worth - held[:, None, :]  # (combinations, n, m)
        gain = np.einsum("cnt,pt->cpn", np.maximum(difference, 0), near)
        gain += np.einsum("cnt,pt->cpn", np.minimum(difference, 0), far)
        best = np.sort(np.maximum(gain.max(axis=2), 0), axis=1)[:, ::-1][:, :most].sum(axis=1)
        return min(taken, float((held.sum(axis=1) + best).max()))

    def _possible_ads(self, value: Array, kept: Array) -> list[npt.NDArray[np.intp]]:
        """For each chosen signal the ads that can be the best one, whatever further prompts take of it."""
        ads = []
        for own in value:  # (m, n)
            best = own.sum(axis=0).argmax()
            difference = own - own[:, best : best + 1]
            most = np.where(difference > 0, difference, kept[:, None] * difference).sum(axis=0)
            possible = np.flatnonzero(most > 1e-15)
            ads.append(np.union1d(possible, [best]))
        return ads


def fast_search(instance: SlateInstance) -> Any:
    """Return the same bounds in numba, where it is installed; for `mnl`."""
    if instance.model != "mnl" or importlib.util.find_spec("numba") is None:
        return None
    from .fast_bounds import FastSearch

    return FastSearch(instance.weighted, np.exp(instance.prompts))


def branch_and_bound(instance: SlateInstance, start: Sequence[int]) -> tuple[list[int], float, int]:
    """Best first. A node is a slate, and stands for those that add prompts that come after it in the order."""
    nodes = 0
    if start:
        slate, best = list(start), instance.welfare(start)
    else:
        slate, best, _ = greedy(instance)
    search = fast_search(instance) or Search(instance)
    # Prompts in the order of what they bring alone, so that what is cut off comes last; equal ones side by side.
    alone = instance.welfare_of(np.arange(instance.n_prompts)[:, None]) if instance.n_prompts else np.zeros(0)
    order = np.lexsort((*instance.prompts.T[::-1], -alone.round(12)))
    like_the_last = np.zeros(len(order), bool)
    like_the_last[1:] = (instance.prompts[order[1:]] == instance.prompts[order[:-1]]).all(axis=1)
    heap: list[tuple[float, int, tuple[int, ...], int]] = [(-search.bound((), order, instance.k), 0, (), 0)]
    nothing = order[:0]
    ticket = 0
    slack = 1e-12 * max(1.0, best)
    while heap:
        above, _, chosen, first = heapq.heappop(heap)
        if -above <= best + slack:
            break
        for j in range(first, len(order)):
            if j > first and like_the_last[j]:
                continue  # the same slates as with the one before it
            if j > first and search.bound(chosen, order[j:], instance.k - len(chosen)) <= best + slack:
                break  # nor do those after it lead anywhere
            child = (*chosen, int(order[j]))
            nodes += 1
            room = instance.k - len(child)
            bound = search.bound(child, order[j + 1 :], room)
            if bound <= best + slack:
                continue
            welfare = bound if room == 0 else search.bound(child, nothing, 0)
            if welfare > best + slack:
                slate, best = sorted(child), welfare
            if room and j + 1 < len(order) and bound > best + slack:
                ticket += 1
                heapq.heappush(heap, (-bound, ticket, child, j + 1))
    return slate, best, nodes


def milp_by_highs(instance: SlateInstance, start: Sequence[int]) -> tuple[list[int], float, int]:
    """Integer program (Charnes and Cooper's variables for the fractions of the MNL), solved by HiGHS."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_matrix

    w = instance.weighted
    n, m = w.shape
    prompts, k = instance.n_prompts, instance.k
    rows: list[int] = []
    columns: list[int] = []
    data: list[float] = []
    low: list[float] = []
    high: list[float] = []

    def constrain(terms: Iterable[tuple[int, float]], least: float, most: float) -> None:
        for column, factor in terms:
            rows.append(len(low))
            columns.append(column)
            data.append(factor)
        low.append(least)
        high.append(most)

    if instance.model == "coverage":
        size = prompts + m
        cost = np.concatenate([np.zeros(prompts), -w.max(axis=0)])
        for t in range(m):
            covering = [(p, -1.0) for p in range(prompts) if instance.prompts[p, t]]
            constrain([(prompts + t, 1.0), *covering], -np.inf, 0)
        integrality = np.concatenate([np.ones(prompts), np.zeros(m)])
        constrain([(p, 1.0) for p in range(prompts)], 0, k)
    else:
        weights = np.exp(instance.prompts)
        signals = prompts + 1
        y = prompts  # y[s, t]: probability of signal s given intent t
        z = y + signals * m  # z[s, i]: the ad of i is shown after s
        x = z + signals * n  # t[s, t, i] = y[s, t] z[s, i]
        size = x + signals * m * n
        cost = np.zeros(size)
        integrality = np.zeros(size)
        integrality[:prompts] = 1
        integrality[z:x] = 1
        constrain([(p, 1.0) for p in range(prompts)], 0, k)
        for t in range(m):
            constrain([(y + s * m + t, 1.0) for s in range(signals)], 1, 1)
            for p in range(prompts):
                e, at, none = weights[p, t], y + (p + 1) * m + t, y + t
                constrain([(at, 1.0), (p, -e / (1 + e))], -np.inf, 0)
                constrain([(at, 1.0), (none, -e)], -np.inf, 0)
                constrain([(at, 1.0), (none, -e), (p, -e)], -e, np.inf)
        for s in range(signals):
            constrain([(z + s * n + i, 1.0) for i in range(n)], 0, 1)
            for t in range(m):
                own = [x + (s * m + t) * n + i for i in range(n)]
                constrain([(y + s * m + t, -1.0), *((c, 1.0) for c in own)], -np.inf, 0)
                for i, column in enumerate(own):
                    cost[column] = -w[i, t]
                    constrain([(column, 1.0), (z + s * n + i, -1.0)], -np.inf, 0)
    matrix = csr_matrix((data, (rows, columns)), shape=(len(low), size))
    found = milp(
        cost,
        constraints=LinearConstraint(matrix, np.array(low), np.array(high)),
        integrality=integrality,
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 1e-9},
    )
    if found.x is None:
        raise SponsoredError(f"HiGHS found no slate: {found.message}")
    slate = [p for p in range(prompts) if found.x[p] > 0.5]
    return slate, instance.welfare(slate), int(getattr(found, "mip_node_count", 0) or 1)
