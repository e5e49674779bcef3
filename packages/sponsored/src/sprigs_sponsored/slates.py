"""Which prompts to show together, at most k of them: exactly, with a certificate, or greedily.

A prompt that is clicked is the signal; so is that none was. `mnl`: a user of intent t clicks prompt l of the slate S
with probability e^a[l, t] / (1 + sum over S of e^a[., t]). `cascade`: the user goes down the slate and clicks each
prompt with probability c[l, t] if it got there. `coverage`: a user clicks if some prompt of the slate covers the
intent, which the click reveals; an ad is shown after a click only.

Only `coverage` is monotone and submodular, so that greedy is within 1 - 1/e of the best there. With the others an added
prompt may lower welfare, and what greedy has is the certificate: its welfare against an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Literal

import numpy as np
import numpy.typing as npt

from .errors import SponsoredError
from .instance import TOLERANCE, Array, Instance
from .slate_solvers import branch_and_bound, greedy, milp_by_highs, upper_bound

Model = Literal["mnl", "cascade", "coverage"]
Method = Literal["auto", "enumerate", "cuda", "bnb", "milp", "greedy"]
MAX_SLATES = 50_000_000
_BLOCK = 1 << 12


@dataclass(frozen=True, eq=False)
class SlateInstance:
    """Prompts to choose from.

    Attributes:
        prior: Probability of each intent, shape (m,).
        prompts: By prompt and intent, shape (L, m): attraction (`mnl`, any sign), click probability (`cascade`), or
            whether it covers the intent (`coverage`, 0 or 1).
        values: Value of an impression to each advertiser given the intent, shape (n, m).
        k: Most prompts to show.
        model: How users click.

    Raises:
        SponsoredError: Shapes or ranges that are wrong, or k beyond the number of prompts.
    """

    prior: Array
    prompts: Array
    values: Array
    k: int
    model: Model = "mnl"

    def __post_init__(self) -> None:
        for name in ("prior", "prompts", "values"):
            array = np.array(getattr(self, name), dtype=np.float64)
            if not np.isfinite(array).all():
                raise SponsoredError(f"{name} holds NaN or infinities")
            array.flags.writeable = False
            object.__setattr__(self, name, array)
        m = self.prior.size
        if self.prior.ndim != 1 or not m or (self.prior < 0).any() or abs(self.prior.sum() - 1) > TOLERANCE:
            raise SponsoredError("prior must be probabilities that sum to 1")
        if self.prompts.ndim != 2 or self.prompts.shape[1] != m:
            raise SponsoredError(f"prompts has shape (prompts, {m} intents); got {self.prompts.shape}")
        if self.values.ndim != 2 or self.values.shape[1] != m or not len(self.values) or (self.values < 0).any():
            raise SponsoredError(f"values has shape (advertisers, {m} intents), not negative; got {self.values.shape}")
        if not 0 <= self.k <= len(self.prompts):
            raise SponsoredError(f"k lies in 0..{len(self.prompts)}, the number of prompts; got {self.k}")
        if self.model not in ("mnl", "cascade", "coverage"):
            raise SponsoredError(f"models are 'mnl', 'cascade' and 'coverage'; got {self.model!r}")
        if self.model == "cascade" and ((self.prompts < 0) | (self.prompts > 1)).any():
            raise SponsoredError("cascade wants click probabilities, 0..1")
        if self.model == "coverage" and not np.isin(self.prompts, (0, 1)).all():
            raise SponsoredError("coverage wants 0 or 1 for each prompt and intent")

    @property
    def n_prompts(self) -> int:
        """Number of prompts to choose from, L."""
        return len(self.prompts)

    @property
    def weighted(self) -> Array:
        """What each intent is worth to each advertiser, prior * values, shape (n, m)."""
        return self.prior * self.values

    def without(self, advertiser: int) -> SlateInstance:
        """Return the instance as it is without an advertiser: its values zero."""
        values = self.values.copy()
        values[advertiser] = 0
        return SlateInstance(self.prior, self.prompts, values, self.k, self.model)

    def full_information(self) -> float:
        """Welfare if every intent were known, an upper bound."""
        return float(self.weighted.max(axis=0).sum())

    def kernel(self, slate: Sequence[int]) -> Array:
        """Probability of each signal given the intent: no click, then the prompts of the slate; shape (m, |S| + 1).

        `coverage`: no click, then the intents, shape (m, m + 1).
        """
        rows = self.prompts[list(slate)]
        if self.model == "mnl":
            weights = np.exp(np.concatenate([np.zeros((1, self.prior.size)), rows]))
            shares: Array = (weights / weights.sum(axis=0)).T
            return shares
        if self.model == "cascade":
            past = np.concatenate([np.ones((1, self.prior.size)), np.cumprod(1 - rows, axis=0)])
            return np.concatenate([past[-1:], past[:-1] * rows]).T
        covered = rows.max(axis=0, initial=0.0)
        return np.concatenate([(1 - covered)[:, None], np.diag(covered)], axis=1)

    def welfare(self, slate: Sequence[int]) -> float:
        """Welfare of a slate, with the best ad after every signal."""
        return float(self.welfare_of(np.array([list(slate)], np.intp).reshape(1, -1))[0])

    def welfare_of(self, slates: npt.NDArray[np.intp]) -> Array:
        """Welfare of many slates of the same length, shape (slates, length)."""
        found: Array = self._expected(slates).max(axis=-1).sum(axis=-1)
        return found

    def _expected(self, slates: npt.NDArray[np.intp]) -> Array:
        """E by slate, signal and advertiser, shape (slates, signals, n)."""
        rows = self.prompts[slates]  # (B, length, m)
        batch, length, m = rows.shape
        if self.model == "mnl":
            weights = np.exp(rows)
            total = 1 + weights.sum(axis=1)
            click = np.concatenate([np.ones((batch, 1, m)), weights], axis=1) / total[:, None]
        elif self.model == "cascade":
            past = np.concatenate([np.ones((batch, 1, m)), np.cumprod(1 - rows, axis=1)], axis=1)
            click = np.concatenate([past[:, -1:], past[:, :-1] * rows], axis=1)
        else:
            covered = rows.max(axis=1) if length else np.zeros((batch, m))
            known: Array = covered[:, :, None] * self.weighted.T
            return known
        expected: Array = np.matmul(click, self.weighted.T)
        return expected

    def as_instance(self, slates: Sequence[Sequence[int]]) -> Instance:
        """The same as an `Instance` with a question for each slate, after the empty one."""
        size = max((len(s) for s in slates), default=0) + 1 if self.model != "coverage" else self.prior.size + 1
        kernels = []
        for slate in [(), *slates]:
            kernel = self.kernel(slate)
            if self.model == "coverage":
                kernel = np.where(np.arange(kernel.shape[1]) > 0, kernel, 0)  # no ad without a click
            kernels.append(np.pad(kernel, ((0, 0), (0, size - kernel.shape[1]))))
        return Instance(self.prior, np.array(kernels), self.values)


@dataclass(frozen=True, eq=False)
class SlateSolution:
    """A slate and what is known of it.

    Attributes:
        slate: Prompts, in ascending order (`cascade`: in the order shown).
        welfare: Of the slate.
        bound: No slate has more.
        gap: (bound - welfare) / bound; 0 where it is optimal.
        nodes: Slates looked at: all of them, greedy's, or those in the tree of branch and bound (beyond the ones of the
            greedy slate that it starts from).
        total: Slates there are.
        method: How it was found.
        without: Welfare of the best slate without each advertiser, shape (n,); None where it is not known.
        payments: Of the joint VCG mechanism over slates, shape (n,); None where `without` is.
        winners: Best advertiser after no click and after each prompt, -1 for none.
    """

    slate: tuple[int, ...]
    welfare: float
    bound: float
    gap: float
    nodes: int
    total: int
    method: str
    without: Array | None
    payments: Array | None
    winners: tuple[int, ...]


def count_slates(n_prompts: int, k: int, *, ordered: bool = False) -> int:
    """Number of slates of at most k prompts."""
    return sum(math.perm(n_prompts, j) if ordered else math.comb(n_prompts, j) for j in range(k + 1))


def unrank(index: int, n: int, k: int) -> tuple[int, ...]:
    """The index-th k-subset of 0..n-1, in lexicographic order: the combinatorial number system.

    Raises:
        SponsoredError: There are not so many.
    """
    if not 0 <= index < math.comb(n, k):
        raise SponsoredError(f"there are {math.comb(n, k)} subsets of {k} out of {n}; got {index}")
    subset, x = [], 0
    for left in range(k, 0, -1):
        while index >= (count := math.comb(n - x - 1, left - 1)):
            index -= count
            x += 1
        subset.append(x)
        x += 1
    return tuple(subset)


def solve_slate(instance: SlateInstance, method: Method = "auto", *, payments: bool = True) -> SlateSolution:
    """Choose the prompts to show.

    Args:
        instance: The prompts.
        method: `"enumerate"`: every slate, and with it every advertiser's pivot. `"cuda"`: the same on a GPU,
            for `mnl`. `"bnb"`: branch and bound, the same
            result. `"milp"`: an integer program by HiGHS (not for `cascade`). `"greedy"`: greedy with swaps and a
            certificate. `"auto"`: enumerate up to 2 million slates (some 2 s), else branch and bound.
        payments: Solve also without each advertiser that matters, for VCG payments (not with `"greedy"`).

    Raises:
        SponsoredError: No such method, one that does not fit the model, or too many slates to enumerate.
        BackendUnavailable: `"cuda"` without CuPy or a device.
    """
    total = count_slates(instance.n_prompts, instance.k, ordered=instance.model == "cascade")
    if method == "auto":
        method = "enumerate" if total <= 2_000_000 or instance.model == "cascade" else "bnb"
    if method == "enumerate":
        return _enumerate(instance, total)
    if method == "cuda":
        return _enumerate_on_device(instance, total)
    if method == "greedy":
        slate, welfare, nodes = greedy(instance)
        bound = upper_bound(instance)
        return _solution(instance, slate, welfare, bound, nodes, total, "greedy", None)
    if method not in ("bnb", "milp"):
        raise SponsoredError(f"methods are 'auto', 'enumerate', 'cuda', 'bnb', 'milp' and 'greedy'; got {method!r}")
    if instance.model == "cascade":
        raise SponsoredError(f"{method!r} does not handle the order of a cascade; use 'enumerate' or 'greedy'")
    solve = branch_and_bound if method == "bnb" else milp_by_highs
    slate, welfare, nodes = solve(instance, ())
    without = None
    if payments:
        # Whoever wins nothing in the best slate is not missed: without it the same slate is best.
        without = np.full(len(instance.values), welfare)
        for i in set(_winners(instance, slate)) - {-1}:
            _, without[i], more = solve(instance.without(i), slate)
            nodes += more
    return _solution(instance, slate, welfare, welfare, nodes, total, method, without)


def _solution(
    instance: SlateInstance,
    slate: Sequence[int],
    welfare: float,
    bound: float,
    nodes: int,
    total: int,
    method: str,
    without: Array | None,
) -> SlateSolution:
    slate = tuple(int(p) for p in slate)
    bound = max(bound, welfare)
    paid = None
    if without is not None:
        # Clarke: what the others could have had without i, less what they have.
        expected = instance._expected(np.array([slate], np.intp).reshape(1, -1))[0]
        best = expected.argmax(axis=1)
        top = expected.max(axis=1)
        own = np.array([top[best == i].sum() for i in range(len(instance.values))])
        paid = np.maximum(without - (welfare - own), 0.0)
    gap = 0.0 if bound <= 0 else (bound - welfare) / bound
    return SlateSolution(
        slate, welfare, bound, gap, nodes, total, method, without, paid, tuple(_winners(instance, slate))
    )


def _winners(instance: SlateInstance, slate: Sequence[int]) -> list[int]:
    expected = instance._expected(np.array([list(slate)], np.intp).reshape(1, -1))[0]
    return [int(row.argmax()) if row.max() > 0 else -1 for row in expected]


def _enumerate(instance: SlateInstance, total: int) -> SlateSolution:
    if total > MAX_SLATES:
        raise SponsoredError(f"{total} slates are too many to enumerate; use 'bnb' or 'greedy'")
    n = len(instance.values)
    best = -1.0
    best_slate: tuple[int, ...] = ()
    without = np.full(n, -1.0)
    choose = permutations if instance.model == "cascade" else combinations
    for size in range(instance.k + 1):
        for block in _blocks(choose(range(instance.n_prompts), size)):
            expected = instance._expected(np.array(block, np.intp).reshape(len(block), size))
            order = expected.argmax(axis=-1)[..., None]
            first = np.take_along_axis(expected, order, axis=-1)[..., 0]
            rest = expected.copy()
            np.put_along_axis(rest, order, 0.0, axis=-1)
            margin = first - rest.max(axis=-1)
            welfare = first.sum(axis=-1)
            # One pass gives the best without each advertiser too.
            loss = np.zeros((len(block), n))
            rows = np.broadcast_to(np.arange(len(block))[:, None], order.shape[:2])
            np.add.at(loss, (rows, order[..., 0]), margin)
            without = np.maximum(without, (welfare[:, None] - loss).max(axis=0))
            top = float(welfare.max())
            if top > best + 1e-12 * max(1.0, abs(best)):
                best, best_slate = top, block[int(np.argmax(welfare >= top - 1e-12 * max(1.0, top)))]
    return _solution(instance, best_slate, best, best, total, total, "enumerate", without)


def _enumerate_on_device(instance: SlateInstance, total: int) -> SlateSolution:
    from . import kernels

    device = kernels.gpu()
    best_slate: tuple[int, ...] = ()
    best = instance.welfare(())
    without = np.array([instance.without(i).welfare(()) for i in range(len(instance.values))])
    for size in range(1, instance.k + 1):
        welfare, index, alone = kernels.enumerate_slates(device, instance, size)
        without = np.maximum(without, alone)
        if welfare > best + 1e-12 * max(1.0, best):
            best, best_slate = welfare, unrank(index, instance.n_prompts, size)
    return _solution(instance, best_slate, best, best, total, total, "cuda", without)


def _blocks(slates: Iterable[tuple[int, ...]]) -> Iterable[list[tuple[int, ...]]]:
    block: list[tuple[int, ...]] = []
    for slate in slates:
        block.append(slate)
        if len(block) == _BLOCK:
            yield block
            block = []
    if block:
        yield block


@dataclass(frozen=True, eq=False)
class ModularSlate:
    """Outcome of selling the suggestion slots in an auction of their own.

    Attributes:
        slate: Prompts shown, best bid first.
        sponsors: Who bought each.
        payments: For suggestion slots, shape (n,).
        utilities: Continuation in the ad stage less payments, shape (n,).
        welfare, revenue: Of both stages.
    """

    slate: tuple[int, ...]
    sponsors: tuple[int, ...]
    payments: Array
    utilities: Array
    welfare: float
    revenue: float


def continuation(instance: SlateInstance, slate: Sequence[int]) -> tuple[Array, float]:
    """What the ad stage after a slate leaves each advertiser at second prices, shape (n,), and its revenue."""
    expected = instance._expected(np.array([list(slate)], np.intp).reshape(1, -1))[0]
    who = expected.argmax(axis=1)
    top = expected.max(axis=1)
    rest = expected.copy()
    np.put_along_axis(rest, who[:, None], 0.0, axis=1)
    second = rest.max(axis=1)
    left = np.zeros(len(instance.values))
    np.add.at(left, who, top - second)
    return left, float(second.sum())


def modular_slate(
    instance: SlateInstance, bids: Array | None = None, *, prices: Literal["gsp", "vcg"] = "gsp"
) -> ModularSlate:
    """Sell k suggestion slots to the k best pairs of advertiser and prompt, no prompt twice, and the ads afterwards.

    Args:
        instance: The prompts; users choose among those shown as its model says.
        bids: By advertiser and prompt, shape (n, L); None: what a prompt shown alone would leave each advertiser.
        prices: `"gsp"`: each slot at the least bid that keeps its place: the larger of the next prompt's best bid and
            the best of others on the same prompt. `"vcg"`: Clarke's prices for the sum of the winning bids.

    Raises:
        SponsoredError: Bids of another shape, negative or not finite; no such prices.
    """
    shape = (len(instance.values), instance.n_prompts)
    if bids is None:
        alone = [continuation(instance, (p,))[0] for p in range(instance.n_prompts)]
        bids = np.array(alone).reshape(instance.n_prompts, -1).T
    bids = np.asarray(bids, dtype=np.float64)
    if bids.shape != shape or not np.isfinite(bids).all() or (bids < 0).any():
        raise SponsoredError(f"bids are by advertiser and prompt, {shape}, finite and not negative")
    if prices not in ("gsp", "vcg"):
        raise SponsoredError(f"prices are 'gsp' or 'vcg'; got {prices!r}")

    def best_prompts(of: Array) -> list[int]:
        best = of.max(axis=0, initial=0.0)
        return [int(p) for p in np.argsort(-best, kind="stable") if best[p] > 0]

    ranked = best_prompts(bids)
    slate = ranked[: instance.k]
    sponsors = [int(bids[:, p].argmax()) for p in slate]
    payments = np.zeros(shape[0])
    if prices == "gsp":
        for j, (prompt, sponsor) in enumerate(zip(slate, sponsors, strict=True)):
            rival = float(np.delete(bids[:, prompt], sponsor).max(initial=0.0))
            following = float(bids[:, ranked[j + 1]].max()) if j + 1 < len(ranked) else 0.0
            payments[sponsor] += max(rival, following)
    else:
        total = sum(float(bids[i, p]) for i, p in zip(sponsors, slate, strict=True))
        for i in set(sponsors):
            others = np.delete(bids, i, axis=0)
            without = sum(float(others[:, p].max(initial=0.0)) for p in best_prompts(others)[: instance.k])
            own = sum(float(bids[i, p]) for s, p in zip(sponsors, slate, strict=True) if s == i)
            payments[i] = max(0.0, without - (total - own))
    left, ads = continuation(instance, slate)
    welfare = instance.welfare(slate)
    return ModularSlate(tuple(slate), tuple(sponsors), payments, left - payments, welfare, ads + float(payments.sum()))


def slates_of_topic(answers: Array, values: Array, k: int, *, spread: float = 2.0) -> SlateInstance:
    """Make prompts of a query's clarifying questions: those with yes attract, those with no do not.

    Args:
        answers: Shares of yes, no, unsure, other, shape (questions, facets, 4); see `queries.Topic`.
        values: Shape (n, facets).
        k: Most prompts to show.
        spread: Attraction of a certain yes; of a certain no, its negative; of others half of that.
    """
    yes, no, _, other = np.moveaxis(answers, -1, 0)
    m = answers.shape[1]
    return SlateInstance(np.full(m, 1 / m), spread * (yes - no - 0.5 * other), values, k)
