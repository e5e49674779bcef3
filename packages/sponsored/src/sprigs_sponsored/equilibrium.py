"""Equilibria of the first stage of modular mechanisms, and what they cost: pure Nash, best responses, hedge, PoA.

An advertiser's action is to abstain or to bid an amount of the grid on one question; it is truthful in the ad stage.
Which equilibria there are depends on what bids are allowed, so every result names its refinement; and where no
equilibrium was found there is no price of anarchy, only the reason.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .errors import GridWarning, SponsoredError
from .instance import Array, Indices, Instance
from .mechanisms import FirstStage, JointVCG, Mechanism, Modular

Refinement = Literal["none", "no_overbidding", "undominated"]
MAX_PROFILES = 20_000_000
_TOLERANCE = 1e-9
_BLOCK = 1 << 18


@dataclass(frozen=True, eq=False)
class Game:
    """The first stage as a game in normal form.

    Attributes:
        first: The first stage.
        refinement: Which bids are allowed.
        questions: For each advertiser the question of each action, 0-based; the first action, (0, 0), abstains.
        bids: For each advertiser the bid of each action.
    """

    first: FirstStage
    refinement: Refinement
    questions: tuple[Indices, ...]
    bids: tuple[Array, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of actions of each advertiser."""
        return tuple(len(b) for b in self.bids)

    def play(self, profiles: Indices) -> tuple[Indices, Array]:
        """Play profiles of actions, shape (P, n); return questions (P,) and utilities (P, n)."""
        n = len(self.bids)
        own = np.stack([self.bids[i][profiles[:, i]] for i in range(n)], axis=1)
        on = np.stack([self.questions[i][profiles[:, i]] for i in range(n)], axis=1)
        if self.first.mechanism.stage1 == "single_winner":
            return self._single_winner(own, on)
        bids = np.zeros((*own.shape, self.first.instance.n_questions))
        np.put_along_axis(bids, on[..., None], own[..., None], axis=-1)
        question, sponsor, payments = self.first.choose(bids)
        return question, self.first.utilities(question, sponsor, payments)

    def _single_winner(self, own: Array, on: Indices) -> tuple[Indices, Array]:
        # As FirstStage.choose, without the bids on other questions, which are zero.
        rows = np.arange(len(own))
        winner = own.argmax(axis=1)
        price = own[rows, winner]
        none = price <= 0
        question = np.where(none, 0, on[rows, winner])
        kind = self.first.mechanism.price1
        payments = np.zeros(own.shape)
        if kind == "all_pay":
            payments = own.copy()
        elif kind == "first_price":
            payments[rows, winner] = price
        else:
            others = own.copy()
            others[rows, winner] = 0
            payments[rows, winner] = others.max(axis=1)
        sponsor = np.where(none, -1, winner)
        return question, self.first.utilities(question, sponsor, payments)

    def utilities(self) -> tuple[Indices, Array]:
        """Play all profiles; questions of shape `shape`, utilities of shape (*shape, n)."""
        total = math.prod(self.shape)
        if total > MAX_PROFILES:
            raise SponsoredError(f"{total} profiles are too many to list; use best_response_dynamics or hedge")
        question = np.empty(total, np.intp)
        utility = np.empty((total, len(self.shape)))
        for start in range(0, total, _BLOCK):
            stop = min(total, start + _BLOCK)
            profiles = np.stack(np.unravel_index(np.arange(start, stop), self.shape), axis=1)
            question[start:stop], utility[start:stop] = self.play(profiles)
        return question.reshape(self.shape), utility.reshape(*self.shape, -1)

    def replies(self, profile: Sequence[int], i: int) -> Array:
        """Utility of each action of advertiser i against the others' in a profile, shape (actions,)."""
        profiles = np.tile(np.asarray(profile), (self.shape[i], 1))
        profiles[:, i] = np.arange(self.shape[i])
        return self.play(profiles)[1][:, i]

    def action(self, i: int, index: int) -> str:
        """Name of an action."""
        bid, question = self.bids[i][index], self.questions[i][index]
        return "abstain" if bid == 0 else f"{bid:g} on {self.first.instance.name('question', int(question))}"


def make_game(
    instance: Instance, mechanism: Modular, grid: Sequence[float] | Array, refinement: Refinement = "no_overbidding"
) -> Game:
    """List the actions of the first stage.

    Args:
        instance, mechanism: What is played.
        grid: Positive bids that can be made; 0, to abstain, is always there.
        refinement: `"no_overbidding"`: no more than a question is worth (U + rebate). `"undominated"`: no action that
            another one weakly dominates. `"none"`: any.

    Raises:
        SponsoredError: A bid that is negative or not finite, or no such refinement.
    """
    if refinement not in ("none", "no_overbidding", "undominated"):
        raise SponsoredError(f"refinements are 'none', 'no_overbidding' and 'undominated'; got {refinement!r}")
    amounts = np.unique(np.asarray(grid, dtype=np.float64))
    if not np.isfinite(amounts).all() or (amounts < 0).any():
        raise SponsoredError("bids are finite and not negative")
    amounts = amounts[amounts > 0]
    first = mechanism.first_stage(instance)
    worth = first.worth
    gaps = np.diff(np.unique(np.append(worth[worth > _TOLERANCE], 0)))
    if amounts.size and gaps.size and amounts[0] >= gaps.min() - _TOLERANCE and mechanism.price1 != "second_price":
        warnings.warn(
            f"the least bid, {amounts[0]:g}, is not below the least difference in worth, {gaps.min():g}: where one pays"
            " one's bid, such a grid shows equilibria that a finer one does not have",
            GridWarning,
            stacklevel=3,
        )
    questions, bids = [], []
    for i in range(instance.n_advertisers):
        on: Indices = np.repeat(np.arange(instance.n_questions), amounts.size)
        amount: Array = np.tile(amounts, instance.n_questions)
        if refinement == "no_overbidding":
            allowed = amount <= worth[on, i] + _TOLERANCE
            on, amount = on[allowed], amount[allowed]
        questions.append(np.concatenate([[0], on]).astype(np.intp))
        bids.append(np.concatenate([[0.0], amount]))
    game = Game(first, refinement, tuple(questions), tuple(bids))
    return _undominated(game) if refinement == "undominated" else game


def _undominated(game: Game) -> Game:
    """Drop weakly dominated actions, once, all advertisers at the same time."""
    _, utility = game.utilities()
    keep = []
    for i in range(len(game.shape)):
        own = np.moveaxis(utility[..., i], i, 0).reshape(game.shape[i], -1)
        alive = []
        for a in range(len(own)):
            better = own - own[a]
            alive.append(not ((better >= -_TOLERANCE).all(axis=1) & (better > _TOLERANCE).any(axis=1)).any())
        keep.append(np.array(alive))
    return Game(
        game.first,
        game.refinement,
        tuple(q[k] for q, k in zip(game.questions, keep, strict=True)),
        tuple(b[k] for b, k in zip(game.bids, keep, strict=True)),
    )


@dataclass(frozen=True, eq=False)
class Equilibria:
    """Pure Nash equilibria.

    Attributes:
        game: The game.
        profiles: Actions, shape (equilibria, n).
        questions: Question shown in each, shape (equilibria,).
        utilities: Shape (equilibria, n).
        welfare: Shape (equilibria,).
    """

    game: Game
    profiles: Indices
    questions: Indices
    utilities: Array
    welfare: Array

    def __len__(self) -> int:
        return len(self.profiles)

    def describe(self, index: int) -> list[str]:
        """Name the actions of an equilibrium."""
        return [self.game.action(i, int(a)) for i, a in enumerate(self.profiles[index])]


def pure_nash(
    instance: Instance,
    mechanism: Modular,
    grid: Sequence[float] | Array,
    refinement: Refinement = "no_overbidding",
) -> Equilibria:
    """Find all pure Nash equilibria of the first stage, by looking at every profile at once.

    Raises:
        SponsoredError: See `make_game`; or more than 2e7 profiles.
    """
    game = make_game(instance, mechanism, grid, refinement)
    question, utility = game.utilities()
    stable = np.ones(game.shape, bool)
    for i in range(len(game.shape)):
        own = utility[..., i]
        stable &= own >= own.max(axis=i, keepdims=True) - _TOLERANCE
    at = np.nonzero(stable)
    profiles = np.stack(at, axis=1) if at else np.zeros((1, 0), np.intp)
    welfare = game.first.stage.welfare[question[stable]]
    return Equilibria(game, profiles, question[stable], utility[stable], welfare)


@dataclass(frozen=True, eq=False)
class Dynamics:
    """Where best responses led.

    Attributes:
        profile: The last profile, indices of actions.
        converged: Whether it is an equilibrium.
        cycle: The profiles that repeat, if it is not and they do.
        rounds: Rounds played.
        question, welfare: Of the last profile.
        reason: Why there is no equilibrium, if there is none.
    """

    profile: tuple[int, ...]
    converged: bool
    cycle: tuple[tuple[int, ...], ...]
    rounds: int
    question: int
    welfare: float
    reason: str


def best_response_dynamics(game: Game, start: Sequence[int] | None = None, *, rounds: int = 1000) -> Dynamics:
    """Let advertisers in turn switch to a best response (the first of several), until nobody does or it repeats.

    Args:
        game: The game, see `make_game`.
        start: Actions to begin with; None: all abstain.
        rounds: Most rounds.
    """
    profile = [0] * len(game.shape) if start is None else [int(a) for a in start]
    if len(profile) != len(game.shape) or any(not 0 <= a < size for a, size in zip(profile, game.shape, strict=True)):
        raise SponsoredError(f"start names an action of each advertiser, {game.shape} of them; got {start!r}")
    seen = {tuple(profile): 0}
    path = [tuple(profile)]
    cycle: tuple[tuple[int, ...], ...] = ()
    converged, played, reason = False, 0, f"no equilibrium within {rounds} rounds"
    for _ in range(rounds):
        played += 1
        for i in range(len(profile)):
            replies = game.replies(profile, i)
            if replies[profile[i]] < replies.max() - _TOLERANCE:
                profile[i] = int(replies.argmax())
        now = tuple(profile)
        if now == path[-1]:
            converged, reason = True, ""
            break
        if now in seen:
            cycle = tuple(path[seen[now] :])
            reason = f"best responses go round in a cycle of {len(cycle)} profiles"
            break
        seen[now] = len(path)
        path.append(now)
    question, _ = game.play(np.array([profile]))
    welfare = float(game.first.stage.welfare[question[0]])
    return Dynamics(tuple(profile), converged, cycle, played, int(question[0]), welfare, reason)


@dataclass(frozen=True, eq=False)
class Learning:
    """What no-regret learning led to: the empirical distribution is a coarse correlated equilibrium up to `regret`.

    Attributes:
        regret: Average regret of each advertiser against its best single action, shape (n,).
        welfare: Mean welfare over the rounds.
        shares: Share of rounds in which each question was shown, shape (L+1,).
        distribution: Share of rounds of each profile that was played.
        strategies: Final mixed strategies.
    """

    regret: Array
    welfare: float
    shares: Array
    distribution: dict[tuple[int, ...], float]
    strategies: tuple[Array, ...]


def hedge(
    game: Game,
    *,
    rounds: int = 5000,
    eta: float | None = None,
    seed: int | np.random.Generator = 0,
    progress: Callable[[int], None] | None = None,
) -> Learning:
    """Let every advertiser learn by multiplicative weights, seeing what each of its actions would have brought.

    Args:
        game: The game.
        rounds: Rounds to play.
        eta: Learning rate for utilities scaled to [0, 1]; None: sqrt(8 ln A / rounds), which bounds the expected
            regret by sqrt(ln A / (2 rounds)) of the scale (Cesa-Bianchi and Lugosi 2006, theorem 2.2).
        seed: Seed or generator.
        progress: Called with the number of rounds played since the last call.
    """
    if rounds < 1:
        raise SponsoredError(f"rounds is positive; got {rounds}")
    rng = np.random.default_rng(seed)
    n = len(game.shape)
    worth = game.first.worth
    highest = max((float(b.max()) for b in game.bids), default=0.0)
    scale = max(float(worth.max(initial=0.0)) + highest, 1e-300)
    rates = [math.sqrt(8 * math.log(max(2, size)) / rounds) if eta is None else eta for size in game.shape]
    scores = [np.zeros(size) for size in game.shape]
    totals = [np.zeros(size) for size in game.shape]
    earned = np.zeros(n)
    shares = np.zeros(game.first.instance.n_questions)
    counts: dict[tuple[int, ...], int] = {}
    for t in range(rounds):
        profile = []
        for i in range(n):
            weights = np.exp(scores[i] - scores[i].max())
            profile.append(int(rng.choice(game.shape[i], p=weights / weights.sum())))
        key = tuple(profile)
        counts[key] = counts.get(key, 0) + 1
        for i in range(n):
            replies = game.replies(profile, i)
            totals[i] += replies
            earned[i] += replies[profile[i]]
            scores[i] += rates[i] * replies / scale
        question, _ = game.play(np.array([profile]))
        shares[question[0]] += 1
        if progress is not None and (t + 1) % 100 == 0:
            progress(100)
    regret = np.array([totals[i].max() - earned[i] for i in range(n)]) / rounds
    strategies = tuple(np.exp(s - s.max()) / np.exp(s - s.max()).sum() for s in scores)
    welfare = float(shares @ game.first.stage.welfare / rounds)
    return Learning(regret, welfare, shares / rounds, {k: v / rounds for k, v in counts.items()}, strategies)


@dataclass(frozen=True)
class PriceOfAnarchy:
    """How much welfare equilibria lose against the best.

    Attributes:
        value: W* / W of the worst equilibrium; infinite if that is 0 and W* is not; NaN if none was found.
        best: W* / W of the best equilibrium, the price of stability.
        optimum: W*.
        worst_welfare, best_welfare: Of the equilibria.
        count: Equilibria found.
        concept, refinement: Which.
        reason: Why there is no value, if there is none.
    """

    value: float
    best: float
    optimum: float
    worst_welfare: float
    best_welfare: float
    count: int
    concept: str
    refinement: str
    reason: str = ""


def poa(
    instance: Instance,
    mechanism: Modular,
    grid: Sequence[float] | Array,
    *,
    concept: Literal["pure", "hedge", "truthful"] = "pure",
    refinement: Refinement = "no_overbidding",
    seed: int = 0,
    rounds: int = 5000,
) -> PriceOfAnarchy:
    """Price of anarchy (and, as `best`, of stability) of a modular mechanism on an instance.

    Args:
        instance, mechanism, grid, refinement: See `make_game`.
        concept: `"pure"` Nash equilibria, all of them; `"hedge"`, the play that no-regret learning leads to;
            `"truthful"`, the reference bids.
        seed, rounds: Of `hedge`.
    """
    optimum = JointVCG().run(instance).welfare
    reason = ""
    if concept == "pure":
        welfare = pure_nash(instance, mechanism, grid, refinement).welfare
        reason = "the game has no pure equilibrium on this grid"
    elif concept == "hedge":
        game = make_game(instance, mechanism, grid, refinement)
        welfare = np.array([hedge(game, rounds=rounds, seed=seed).welfare])
    elif concept == "truthful":
        welfare = np.array([mechanism.run(instance).welfare])
    else:
        raise SponsoredError(f"concepts are 'pure', 'hedge' and 'truthful'; got {concept!r}")
    if not welfare.size:
        nan = float("nan")
        return PriceOfAnarchy(nan, nan, optimum, nan, nan, 0, concept, refinement, reason)
    worst, best = float(welfare.min()), float(welfare.max())
    return PriceOfAnarchy(
        _ratio(optimum, worst), _ratio(optimum, best), optimum, worst, best, int(welfare.size), concept, refinement
    )


def pos(instance: Instance, mechanism: Modular, grid: Sequence[float] | Array, **options: Any) -> float:
    """Price of stability: W* / W of the best equilibrium; see `poa`."""
    return poa(instance, mechanism, grid, **options).best


def _ratio(optimum: float, welfare: float) -> float:
    if welfare <= 0:
        return 1.0 if optimum <= 0 else float("inf")
    return optimum / welfare


def incentive_gap(
    mechanism: Mechanism,
    instance: Instance,
    advertiser: int,
    *,
    deviations: int = 80,
    scales: Sequence[float] = (0.0, 0.25, 0.5, 0.75, 0.9, 1.1, 1.5, 2.0, 4.0),
    seed: int | np.random.Generator = 0,
    ascent: int = 2,
) -> float:
    """Most that an advertiser gains by not being truthful, over many deviations; 0 says that none was found.

    Tried are the truthful report scaled as a whole and entry by entry, random reports, and from the best of them a
    coordinate ascent. For a `Modular` mechanism reports are first-stage bids, and truthful are the reference bids.

    Args:
        mechanism, instance, advertiser: Whose gain.
        deviations: Random reports.
        scales: Factors to try.
        seed: Seed or generator.
        ascent: Rounds of coordinate ascent.
    """
    rng = np.random.default_rng(seed)
    truthful = mechanism.truthful_bids(instance) if isinstance(mechanism, Modular) else np.array(instance.values)
    base = float(mechanism.run(instance, truthful).utilities[advertiser])
    top = max(float(truthful.max(initial=0.0)), 1.0)

    def gain(row: npt.NDArray[Any]) -> float:
        reports = truthful.copy()
        reports[advertiser] = row
        return float(mechanism.run(instance, reports).utilities[advertiser]) - base

    own = truthful[advertiser]
    rows = [own * s for s in scales]
    for k, s in product(range(own.size), scales):
        row = own.copy()
        row[k] = own[k] * s if own[k] else top * s / 4
        rows.append(row)
    for _ in range(deviations):
        kind = rng.integers(3)
        noise = rng.lognormal(size=own.size)
        rows.append(own * noise if kind == 0 else top * rng.random(own.size) if kind == 1 else top * noise)
    gains = [gain(row) for row in rows]
    best = max(gains, default=0.0)
    row = rows[int(np.argmax(gains))].copy()
    for _ in range(ascent):
        for k in range(own.size):
            for s in (0.0, 0.5, 0.9, 1.1, 2.0):
                tried = row.copy()
                tried[k] = tried[k] * s if tried[k] else top * s
                got = gain(tried)
                if got > best:
                    best, row = got, tried
    return max(0.0, best)


def sponsor_bid(x: float, rho: float) -> float:
    """Best ad-stage bid of a sponsor of value x against one rival uniform on [0, 1], with a share rho of revenue back.

    Winning at price p earns x - p + rho p, losing at its own bid b earns rho b: the first-order condition gives
    (x + rho) / (1 + rho), above x for every rho > 0, so that the ad stage is truthful no longer.
    """
    return (x + rho) / (1 + rho)


def sponsor_loss(rho: float) -> float:
    """Efficiency that the sponsor's overbidding loses on average, its value uniform on [0, 1] too."""
    return rho**2 / (6 * (1 + rho) ** 2)
