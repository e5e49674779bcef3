"""A query to clarify: intents, questions, signals, advertisers; and what each question is worth.

Everything rests on the unnormalised posterior expected value E[l, s, i] = sum_t prior[t] kernel[l, t, s] values[i, t]:
what showing ad i after signal s to question l is worth before the signal is known. It needs no division by the
probability of a signal, so signals that never occur cost nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import AbandonmentWarning, SponsoredError

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]

TOLERANCE = 1e-9
"""How far probabilities may be from summing to 1."""


def first_max(x: Array, axis: int = -1) -> Any:
    """Index of the largest entry; of several within rounding of one another, the lowest.

    Plain argmax depends on the order of summation, and so differs between machines where welfare ties.
    """
    top = x.max(axis=axis, keepdims=True)
    return np.argmax(x >= top - 1e-12 * np.maximum(1.0, np.abs(top)), axis=axis)


@dataclass(frozen=True, eq=False)
class AdStage:
    """The ad auction after every question and signal, by one price rule.

    Attributes:
        winners: Advertiser in each slot, -1 where nothing is shown; shape (L+1, S, J).
        prices: Expected revenue of each slot, net of the reserve; shape (L+1, S, J).
        payments: Expected payments of each advertiser, net of the reserve; shape (L+1, n).
        continuation: U[l, i], what the ad stage leaves advertiser i after question l; shape (L+1, n).
        revenue: Expected payments after each question, net of the reserve; shape (L+1,).
        welfare: What the stage realises: utility of the question, continuation and revenue; shape (L+1,). All rules
            but `"all_pay"`, whose lower bidder wins at times, realise `Instance.welfare`.
    """

    winners: Indices
    prices: Array
    payments: Array
    continuation: Array
    revenue: Array
    welfare: Array


@dataclass(frozen=True, eq=False)
class Instance:
    """One ambiguous query.

    Attributes:
        prior: Probability of each intent, shape (m,), float64; sums to 1.
        kernel: Probability of each signal given question and intent, shape (L+1, m, S). Question 0 asks nothing. A row
            that sums to less than 1 loses the rest: the session ends without an ad.
        values: Value of an impression to each advertiser given the intent, shape (n, m), at least 0; click rates that
            depend on the ad are folded in.
        question_utility: What showing each question is worth to the platform or the user besides ads, shape (L+1,), of
            any sign; None: nothing.
        ctr: Click-through rate of each ad slot relative to the first, shape (J,), not increasing.
        reserve: What the platform forgoes for each ad it shows; ads worth less are not shown.
        names: Names for reports: `intents`, `questions`, `signals`, `advertisers`, each a sequence.

    Raises:
        SponsoredError: Shapes that do not agree, probabilities that are none, negative values, NaN.
    """

    prior: Array
    kernel: Array
    values: Array
    question_utility: Array | None = None
    ctr: Array | Sequence[float] = (1.0,)
    reserve: float = 0.0
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("prior", "kernel", "values", "ctr"):
            object.__setattr__(self, name, _frozen(getattr(self, name), name))
        questions = self.kernel.shape[0] if self.kernel.ndim == 3 else 0
        utility = np.zeros(questions) if self.question_utility is None else self.question_utility
        object.__setattr__(self, "question_utility", _frozen(utility, "question_utility"))
        object.__setattr__(self, "reserve", float(self.reserve))
        self.validate()

    @property
    def n_advertisers(self) -> int:
        """Number of advertisers, n."""
        return int(self.values.shape[0])

    @property
    def n_intents(self) -> int:
        """Number of intents, m."""
        return int(self.prior.size)

    @property
    def n_questions(self) -> int:
        """Number of questions, the null question among them, L+1."""
        return int(self.kernel.shape[0])

    @property
    def n_slots(self) -> int:
        """Number of ad slots, J."""
        return len(self.ctr)

    def validate(self) -> None:
        """Check shapes and ranges.

        Raises:
            SponsoredError: At the first thing that is wrong.
        """
        if self.prior.ndim != 1 or not self.prior.size:
            raise SponsoredError(f"prior has shape (intents,); got {self.prior.shape}")
        m = self.prior.size
        if self.kernel.ndim != 3 or self.kernel.shape[1] != m or 0 in self.kernel.shape:
            raise SponsoredError(f"kernel has shape (questions, {m} intents, signals); got {self.kernel.shape}")
        if self.values.ndim != 2 or self.values.shape[1] != m:
            raise SponsoredError(f"values has shape (advertisers, {m} intents); got {self.values.shape}")
        utility = np.asarray(self.question_utility)
        if utility.shape != (self.n_questions,):
            raise SponsoredError(f"question_utility has shape ({self.n_questions},); got {utility.shape}")
        ctr = np.asarray(self.ctr)
        if ctr.ndim != 1 or not ctr.size or (ctr < 0).any() or (np.diff(ctr) > 0).any():
            raise SponsoredError(f"ctr lists the slots' click-through rates, not negative, best first; got {ctr}")
        if (self.prior < 0).any() or abs(self.prior.sum() - 1) > TOLERANCE:
            raise SponsoredError(f"prior must be probabilities that sum to 1; it sums to {self.prior.sum()!r}")
        if (self.kernel < 0).any():
            raise SponsoredError(f"kernel holds probabilities; its least entry is {self.kernel.min()!r}")
        mass = self.kernel.sum(axis=2)
        if (mass > 1 + TOLERANCE).any():
            question, intent = np.unravel_index(mass.argmax(), mass.shape)
            raise SponsoredError(
                f"kernel[{question}, {intent}] sums to {mass.max()!r}: the signals of a question and an intent have at"
                " most probability 1"
            )
        if (self.values < 0).any():
            raise SponsoredError(f"values are not negative; the least is {self.values.min()!r}")
        if not np.isfinite(self.reserve) or self.reserve < 0:
            raise SponsoredError(f"reserve is not negative; got {self.reserve!r}")

    @property
    def has_abandonment(self) -> bool:
        """Whether some question loses sessions."""
        return bool((self.kernel.sum(axis=2) < 1 - TOLERANCE).any())

    @cached_property
    def expected(self) -> Array:
        """E[l, s, i], unnormalised posterior expected value, shape (L+1, S, n)."""
        return self.expected_of(self.values)

    def expected_of(self, values: Array) -> Array:
        """E for other values, such as reports, shape (n, m)."""
        found: Array = np.matmul(self.kernel.transpose(0, 2, 1), (self.prior * values).T)
        return found

    @cached_property
    def signal_probability(self) -> Array:
        """Probability of each signal to each question, shape (L+1, S)."""
        found: Array = np.einsum("t,lts->ls", self.prior, self.kernel)
        return found

    def net_of_reserve(self, expected: Array) -> Array:
        """What ads are worth beyond the reserve; below 0 they are not shown."""
        return expected - self.reserve * self.signal_probability[:, :, None] if self.reserve else expected

    def welfare(self, values: Array | None = None) -> Array:
        """W[l], utility of the question and of the best ads after it, net of the reserve; shape (L+1,)."""
        expected = self.expected if values is None else self.expected_of(values)
        ranked, _ = self._ranked(self.net_of_reserve(expected))
        ads: Array = np.einsum("lsj,j->l", ranked[..., : self.n_slots], np.asarray(self.ctr))
        return np.asarray(self.question_utility) + ads

    def ad_stage(self, rule: str = "vcg", values: Array | None = None) -> AdStage:
        """The ad auction after every question and signal.

        Args:
            rule: `"vcg"`, `"second_price"` or `"first_price"` (one slot; the latter at its complete-information
                equilibrium, where the best pays the second value), `"all_pay"` (one slot; expected payments at the
                two-bidder mixed equilibrium), `"gsp"` (truthful bids), `"gsp_equilibrium"` (the lowest envy-free one).
            values: Other values than the instance's, shape (n, m).

        Raises:
            SponsoredError: No such rule, or one for a single slot with several.
        """
        if rule not in AD_RULES:
            raise SponsoredError(f"the ad stage is one of {', '.join(AD_RULES)}; got {rule!r}")
        if rule == "all_pay" and self.reserve:
            raise SponsoredError("the equilibrium of 'all_pay' is known without a reserve only")
        if rule in ("second_price", "first_price", "all_pay") and self.n_slots > 1:
            raise SponsoredError(f"{rule!r} sells one slot, there are {self.n_slots}: use 'vcg' or 'gsp'")
        expected = self.net_of_reserve(self.expected if values is None else self.expected_of(values))
        ranked, order = self._ranked(expected)
        ctr = np.asarray(self.ctr)
        slots = self.n_slots
        below = ranked[..., 1 : slots + 1]  # the value just below each slot's
        if rule == "gsp":
            prices = ctr * below
        else:
            # Externality: everybody below would move up by one slot (Vickrey-Clarke-Groves).
            drop = ctr - np.append(ctr[1:], 0.0)
            prices = np.cumsum((drop * below)[..., ::-1], axis=-1)[..., ::-1]
        gain = ctr * ranked[..., :slots] - prices
        if rule == "all_pay":
            # Two bidders, values a >= b: both bid uniformly on [0, b], the lower one with probability b / a.
            top = np.maximum(ranked[..., :1], 1e-300)
            prices = ctr * (below / 2 + below**2 / (2 * top))
        shown = ranked[..., :slots] > 0
        winners = np.where(shown, order[..., :slots], -1)
        continuation = np.zeros((self.n_questions, self.n_advertisers))
        question = np.broadcast_to(np.arange(self.n_questions)[:, None, None], winners.shape)
        np.add.at(continuation, (question[shown], winners[shown]), gain[shown])
        prices = np.where(shown, prices, 0.0)
        payments = np.zeros_like(continuation)
        own = prices
        if rule == "all_pay":
            own = np.where(shown, ctr * below / 2, 0.0)
            loses = (ranked[..., 1:2] > 0) & shown
            np.add.at(payments, (question[loses], order[..., 1:2][loses]), (prices - own)[loses])
        np.add.at(payments, (question[shown], winners[shown]), own[shown])
        revenue = prices.sum(axis=(1, 2))
        welfare = np.asarray(self.question_utility) + continuation.sum(axis=1) + revenue
        return AdStage(winners, prices, payments, continuation, revenue, welfare)

    def continuation(self, rule: str = "vcg") -> Array:
        """U[l, i], shape (L+1, n). With `"vcg"` it is also what welfare loses without the advertiser."""
        return self.ad_stage(rule).continuation

    def revenue(self, rule: str = "vcg") -> Array:
        """Expected payments of the ad stage after each question, net of the reserve, shape (L+1,)."""
        return self.ad_stage(rule).revenue

    def full_information(self) -> float:
        """Welfare if every intent were known, with the best question utility: an upper bound."""
        best = np.sort(np.maximum(self.values - self.reserve, 0), axis=0)[::-1][: self.n_slots]
        value = float(self.prior @ (np.asarray(self.ctr)[: len(best)] @ best))
        return value + float(np.asarray(self.question_utility).max())

    def warn_of_abandonment(self) -> None:
        """Warn if the bound W* <= min(n, m) W does not hold here."""
        if self.has_abandonment:
            warnings.warn(
                "some questions lose sessions: no bound by the numbers of advertisers and intents holds",
                AbandonmentWarning,
                stacklevel=3,
            )

    def name(self, kind: str, index: int) -> str:
        """Name of an intent, question, signal or advertiser: the given one, else its number."""
        names = self.names.get(f"{kind}s", ())
        if index < 0:
            return "(no ad)"
        if kind == "question" and index == 0 and not names:
            return "ask nothing"
        return str(names[index]) if index < len(names) else f"{kind} {index}"

    def replace(self, **changes: Any) -> Instance:
        """Return a copy with other attributes."""
        own = {name: getattr(self, name) for name in _FIELDS}
        return Instance(**{**own, **changes})

    def _ranked(self, expected: Array) -> tuple[Array, Indices]:
        """Values from the best down, J+1 of them, zeros where there are none; and whose they are (ties: lowest)."""
        wanted = self.n_slots + 1
        positive = np.maximum(expected, 0.0)
        if wanted == 2 and self.n_advertisers > 2:
            first = positive.argmax(axis=-1)[..., None]
            rest = positive.copy()
            np.put_along_axis(rest, first, -1.0, axis=-1)
            order = np.concatenate([first, rest.argmax(axis=-1)[..., None]], axis=-1)
        else:
            order = np.argsort(-positive, axis=-1, kind="stable")[..., :wanted]
        ranked = np.take_along_axis(positive, order, axis=-1)
        missing = wanted - order.shape[-1]
        if missing > 0:
            pad = [(0, 0)] * (ranked.ndim - 1) + [(0, missing)]
            ranked, order = np.pad(ranked, pad), np.pad(order, pad, constant_values=-1)
        return ranked, order


AD_RULES = ("vcg", "second_price", "first_price", "all_pay", "gsp", "gsp_equilibrium")
_FIELDS = ("prior", "kernel", "values", "question_utility", "ctr", "reserve", "names")


def _frozen(x: Any, name: str) -> Array:
    try:
        array = np.array(x, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise SponsoredError(f"{name} must be numbers: {error}") from error
    if not np.isfinite(array).all():
        raise SponsoredError(f"{name} holds NaN or infinities")
    array.flags.writeable = False
    return array
