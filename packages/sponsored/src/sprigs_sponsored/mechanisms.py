"""Mechanisms that choose a question and the ads after it, and what everybody pays.

`JointVCG` optimises both stages at once. `Modular` sells the question first and the ad slots afterwards. `Null` asks
nothing, `FullInformation` is the bound that no mechanism reaches. All run on truthful reports or bids unless others are
given, and report expected payments and utilities.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np

from .errors import SponsoredError
from .instance import AdStage, Array, Indices, Instance, first_max

Stage1 = Literal["single_winner", "public_vcg", "public_first_price"]
Price = Literal["second_price", "first_price", "all_pay"]
Recipient = Literal["sponsor", "equal", "proportional", "credit"]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a mechanism does, in expectation over intents and signals.

    Attributes:
        mechanism: Its name.
        question: The question shown; 0 asks nothing, -1 says that the intent was known without one.
        winners: Advertiser in each slot after each signal, -1 where no ad is shown; shape (S, J).
        payments: Of each advertiser, shape (n,).
        utilities: Of each advertiser at its true values, shape (n,).
        welfare: Value of the ads shown, less what the platform forgoes for them, plus the question's utility.
        revenue: Payments, less rebates and what the platform forgoes.
        messages: Numbers that each advertiser has to report.
        detail: Parts of the payments and the like, by name.
    """

    mechanism: str
    question: int
    winners: Indices
    payments: Array
    utilities: Array
    welfare: float
    revenue: float
    messages: int
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def surplus(self) -> float:
        """Of all advertisers together."""
        return float(self.utilities.sum())


class Mechanism(Protocol):
    """Anything that `simulate`, `incentive_gap` and the equilibrium tools take."""

    @property
    def name(self) -> str:
        """Short name for tables."""

    def run(self, instance: Instance, reports: Array | None = None) -> Outcome:
        """Run on reports, or truthfully."""


def _checked_reports(instance: Instance, reports: Any) -> Array:
    if reports is None:
        return instance.values
    array = np.asarray(reports, dtype=np.float64)
    if array.shape != instance.values.shape:
        raise SponsoredError(f"reports are values by advertiser and intent, {instance.values.shape}; got {array.shape}")
    if not np.isfinite(array).all() or (array < 0).any():
        raise SponsoredError("reports are finite and not negative")
    return array


def _value_of(instance: Instance, expected: Array, question: int, winners: Indices) -> Array:
    """Return each advertiser's value of the ads shown, shape (n,)."""
    value = np.zeros(instance.n_advertisers)
    signals, slots = np.nonzero(winners >= 0)
    who = winners[signals, slots]
    np.add.at(value, who, np.asarray(instance.ctr)[slots] * expected[question, signals, who])
    return value


def _forgone(instance: Instance, question: int, winners: Indices) -> Array:
    """Return what the platform forgoes for each advertiser's ads, shape (n,)."""
    cost = np.zeros(instance.n_advertisers)
    signals, slots = np.nonzero(winners >= 0)
    share = np.asarray(instance.ctr)[slots] * instance.signal_probability[question, signals]
    np.add.at(cost, winners[signals, slots], instance.reserve * share)
    return cost


@dataclass(frozen=True)
class JointVCG:
    """End-to-end VCG: efficient, truthful, individually rational and without deficit (the paper's joint mechanism).

    The question of the highest welfare is shown. Each advertiser pays its Clarke pivot for the question, also if it
    never wins an ad, and the VCG price of each ad it wins (the second price with one slot).

    Attributes:
        pay: `"expected"` charges all of it up front. `"realised"` charges the pivot up front and each ad when it is
            shown: `detail["price_when_shown"]`, shape (S, J). Both cost the same in expectation.
    """

    pay: Literal["expected", "realised"] = "expected"

    def __post_init__(self) -> None:
        if self.pay not in ("expected", "realised"):
            raise SponsoredError(f"pay is 'expected' or 'realised'; got {self.pay!r}")

    @property
    def name(self) -> str:
        """Short name for tables."""
        return "joint VCG"

    def run(self, instance: Instance, reports: Array | None = None) -> Outcome:
        """Run on reported values, shape (n, m).

        Raises:
            SponsoredError: Reports of another shape, negative or not finite.
        """
        reported = _checked_reports(instance, reports)
        stage = instance.ad_stage("vcg", reported)
        welfare = stage.welfare
        question = int(first_max(welfare))
        # Without an advertiser welfare is W - U after every question, so one pass gives all n+1 optima.
        without = welfare[:, None] - stage.continuation
        pivot = without.max(axis=0) - without[question]
        pivot = np.where(pivot > 0, pivot, 0.0)
        winners, prices = stage.winners[question], stage.prices[question]
        value = _value_of(instance, instance.expected, question, winners)
        forgone = _forgone(instance, question, winners)
        ad_payment = stage.payments[question] + forgone
        payments = pivot + ad_payment
        detail: dict[str, Any] = {
            "pivot": pivot,
            "ad_payment": ad_payment,
            "welfare_by_question": welfare,
            "best_without": without.max(axis=0),
        }
        if self.pay == "realised":
            probability = np.broadcast_to(instance.signal_probability[question][:, None], prices.shape)
            net = np.divide(prices, probability, out=np.zeros_like(prices), where=winners >= 0)
            detail["price_when_shown"] = np.where(winners >= 0, net + instance.reserve * np.asarray(instance.ctr), 0.0)
        return Outcome(
            self.name,
            question,
            winners,
            payments,
            value - payments,
            float((value - forgone).sum() + np.asarray(instance.question_utility)[question]),
            float((payments - forgone).sum()),
            instance.n_intents,
            detail,
        )


@dataclass(frozen=True)
class Redistribution:
    """Hands a share of the ad stage's revenue back to advertisers.

    Attributes:
        rho: The share, 0..1.
        to: Who gets it: `"sponsor"` the winner of the question, `"equal"` all alike, `"proportional"` in proportion to
            what the ad stage leaves them. `"credit"` gives it to nobody: the platform bids it itself in `public_vcg`,
            which at rho=1 asks what the joint mechanism would, by knowing what only that one knows.
    """

    rho: float
    to: Recipient = "sponsor"

    def __post_init__(self) -> None:
        if not 0 <= self.rho <= 1:
            raise SponsoredError(f"rho is a share, 0..1; got {self.rho!r}")
        if self.to not in ("sponsor", "equal", "proportional", "credit"):
            raise SponsoredError(f"rebates go to 'sponsor', 'equal', 'proportional' or 'credit'; got {self.to!r}")

    def rebate(self, stage: AdStage) -> Array:
        """What each advertiser gets after each question, shape (L+1, n); to sponsors: if it is the sponsor."""
        n = stage.continuation.shape[1]
        pot = self.rho * stage.revenue[:, None]
        if self.to == "credit" or not n:
            return np.zeros_like(stage.continuation)
        if self.to == "sponsor":
            return np.broadcast_to(pot, stage.continuation.shape)
        if self.to == "equal":
            return np.broadcast_to(pot / n, stage.continuation.shape)
        total = stage.continuation.sum(axis=1, keepdims=True)
        share = np.divide(stage.continuation, total, out=np.zeros_like(stage.continuation), where=total > 0)
        shared: Array = pot * share
        return shared


@dataclass(frozen=True, eq=False)
class FirstStage:
    """The first stage of a modular mechanism on one instance: what questions are worth to the advertisers.

    Attributes:
        mechanism: The mechanism.
        instance: The instance.
        stage: The ad stage that follows.
        rebate: By question and advertiser, shape (L+1, n).
        worth: U + rebate, shape (L+1, n): the most an advertiser would pay to have a question shown, asking nothing
            being worth 0, with the sponsor's rebate if there is one.
        credit: What the platform bids itself, shape (L+1,).
    """

    mechanism: Modular
    instance: Instance
    stage: AdStage
    rebate: Array
    worth: Array
    credit: Array

    def choose(self, bids: Array) -> tuple[Indices, Indices, Array]:
        """Run the first stage on many sets of bids at once.

        Args:
            bids: Shape (..., n, L+1).

        Returns:
            Question, sponsor (-1 if there is none) and payments, shapes (...), (...), (..., n).
        """
        n, questions = bids.shape[-2:]
        flat = bids.reshape(*bids.shape[:-2], n * questions)
        if self.mechanism.stage1 == "single_winner":
            best = first_max(flat)
            own = np.take_along_axis(flat, best[..., None], axis=-1)[..., 0]
            sponsor, question = np.divmod(best, questions)
            sponsor = np.where(own > 0, sponsor, -1)
            question = np.where(own > 0, question, 0)
            highest = bids.max(axis=-1)
            payments = np.zeros(highest.shape)
            if self.mechanism.price1 == "all_pay":
                payments = highest.copy()
            else:
                if self.mechanism.price1 == "second_price":
                    others = np.where(np.arange(n) == sponsor[..., None], 0.0, highest)
                    price = others.max(axis=-1)
                else:
                    price = own
                wins = (np.arange(n) == sponsor[..., None]) & (own[..., None] > 0)
                payments = np.where(wins, price[..., None], 0.0)
            return question, sponsor, payments
        total = bids.sum(axis=-2) + self.credit
        question = first_max(total)
        chosen = np.take_along_axis(bids, question[..., None, None], axis=-1)[..., 0]
        if self.mechanism.stage1 == "public_first_price":
            return question, np.full(question.shape, -1), chosen
        others = total[..., None, :] - bids
        kept = np.take_along_axis(others, question[..., None, None], axis=-1)[..., 0]
        return question, np.full(question.shape, -1), np.maximum(others.max(axis=-1) - kept, 0.0)

    def utilities(self, question: Indices, sponsor: Indices, payments: Array) -> Array:
        """Utility of each advertiser over both stages, shape (..., n)."""
        utility: Array = self.stage.continuation[question] - payments
        if self.mechanism.rebates_sponsor:
            is_sponsor = np.arange(payments.shape[-1]) == np.asarray(sponsor)[..., None]
            return np.where(is_sponsor, utility + self.rebate[question], utility)
        return utility + self.rebate[question]


@dataclass(frozen=True)
class Modular:
    """Two separate auctions: one for the question, one for the ad slots after it.

    Attributes:
        stage1: `"single_winner"`: the highest bid of one advertiser on one question wins, and its question is shown.
            `"public_vcg"`, `"public_first_price"`: bids on a question add up; Clarke pivots, or each pays its bid on
            the question shown. In all of them question 0 is shown if nobody bids.
        price1: Of `"single_winner"`: `"second_price"` (the best bid of the other advertisers), `"first_price"`,
            `"all_pay"` (everybody pays its best bid).
        stage2: Rule of the ad stage, see `Instance.ad_stage`.
        redistribution: What happens to the ad stage's revenue.

    Raises:
        SponsoredError: Rules that there are not, or that do not go together.
    """

    stage1: Stage1 = "single_winner"
    price1: Price = "second_price"
    stage2: str = "second_price"
    redistribution: Redistribution | None = None

    def __post_init__(self) -> None:
        if self.stage1 not in ("single_winner", "public_vcg", "public_first_price"):
            raise SponsoredError(
                f"stage1 is 'single_winner', 'public_vcg' or 'public_first_price'; got {self.stage1!r}"
            )
        if self.price1 not in ("second_price", "first_price", "all_pay"):
            raise SponsoredError(f"price1 is 'second_price', 'first_price' or 'all_pay'; got {self.price1!r}")
        if self.redistribution is not None:
            to = self.redistribution.to
            if to == "sponsor" and self.stage1 != "single_winner":
                raise SponsoredError("only 'single_winner' has a sponsor to give the rebate to")
            if to == "credit" and self.stage1 != "public_vcg":
                raise SponsoredError("credit is the platform's bid in 'public_vcg'")

    @property
    def name(self) -> str:
        """Short name for tables."""
        short = {"second_price": "SP", "first_price": "FP", "all_pay": "AP"}[self.price1]
        first = {
            "single_winner": f"modular {short}",
            "public_vcg": "modular VCG",
            "public_first_price": "modular pub. FP",
        }
        text = first[self.stage1]
        if self.stage2 != "second_price":
            text += f" / {self.stage2}"
        if self.redistribution is not None:
            text += f" + {self.redistribution.to} {self.redistribution.rho:g}"
        return text

    @property
    def rebates_sponsor(self) -> bool:
        """Whether the rebate goes to whoever wins the question."""
        return self.redistribution is not None and self.redistribution.to == "sponsor"

    def first_stage(self, instance: Instance) -> FirstStage:
        """Prepare the first stage on an instance; advertisers are truthful in the second."""
        stage = instance.ad_stage(self.stage2)
        rebate = np.zeros_like(stage.continuation)
        credit = np.zeros(instance.n_questions)
        if self.redistribution is not None:
            rebate = self.redistribution.rebate(stage)
            if self.redistribution.to == "credit":
                credit = self.redistribution.rho * stage.revenue + np.asarray(instance.question_utility)
        return FirstStage(self, instance, stage, rebate, stage.continuation + rebate, credit)

    def truthful_bids(self, instance: Instance) -> Array:
        """The reference bids: what each question is worth to each advertiser, shape (n, L+1)."""
        return self.first_stage(instance).worth.T.copy()

    def run(self, instance: Instance, reports: Array | None = None) -> Outcome:
        """Run on first-stage bids, shape (n, L+1); None: the truthful reference.

        Raises:
            SponsoredError: Bids of another shape, negative or not finite.
        """
        first = self.first_stage(instance)
        shape = (instance.n_advertisers, instance.n_questions)
        bids = first.worth.T if reports is None else np.asarray(reports, dtype=np.float64)
        if bids.shape != shape:
            raise SponsoredError(f"bids are by advertiser and question, {shape}; got {bids.shape}")
        if not np.isfinite(bids).all() or (bids < 0).any():
            raise SponsoredError("bids are finite and not negative")
        if not instance.n_advertisers:
            return Null().run(instance)
        chosen, sponsor_, stage1 = first.choose(bids)
        question, sponsor = int(chosen), int(sponsor_)
        stage = first.stage
        utilities = first.utilities(chosen, sponsor_, stage1)
        winners = stage.winners[question]
        rebate = np.zeros(instance.n_advertisers)
        if self.rebates_sponsor:
            if sponsor >= 0:
                rebate[sponsor] = first.rebate[question, sponsor]
        else:
            rebate = np.array(first.rebate[question])
        forgone = _forgone(instance, question, winners)
        ads = stage.payments[question] + forgone
        payments = stage1 + ads - rebate
        revenue = float(stage1.sum() + stage.revenue[question] - rebate.sum())
        return Outcome(
            self.name,
            question,
            winners,
            payments,
            utilities,
            float(stage.welfare[question]),
            revenue,
            instance.n_questions + 1,
            {
                "sponsor": sponsor,
                "stage1_payment": stage1,
                "ad_payment": ads,
                "rebate": rebate,
                "bids": bids,
            },
        )


@dataclass(frozen=True)
class Null:
    """Asks nothing and runs the ad auction, by VCG."""

    @property
    def name(self) -> str:
        """Short name for tables."""
        return "ask nothing"

    def run(self, instance: Instance, reports: Array | None = None) -> Outcome:
        """Run on reported values, shape (n, m)."""
        reported = _checked_reports(instance, reports)
        stage = instance.ad_stage("vcg", reported)
        winners = stage.winners[0]
        value = _value_of(instance, instance.expected, 0, winners)
        forgone = _forgone(instance, 0, winners)
        payments = stage.payments[0] + forgone
        welfare = float((value - forgone).sum() + np.asarray(instance.question_utility)[0])
        revenue = float((payments - forgone).sum())
        return Outcome(self.name, 0, winners, payments, value - payments, welfare, revenue, 1)


@dataclass(frozen=True)
class FullInformation:
    """The bound: every intent is known and the best question utility comes on top. Not a mechanism one can run."""

    @property
    def name(self) -> str:
        """Short name for tables."""
        return "full information"

    def run(self, instance: Instance, reports: Array | None = None) -> Outcome:
        """Report the bound, with VCG prices intent by intent."""
        reported = _checked_reports(instance, reports)
        known = instance.replace(
            kernel=np.eye(instance.n_intents)[None], question_utility=None, values=reported, names={}
        )
        stage = known.ad_stage("vcg")
        bonus = float(np.asarray(instance.question_utility).max())
        return Outcome(
            self.name,
            -1,
            stage.winners[0],
            stage.payments[0] + _forgone(known, 0, stage.winners[0]),
            stage.continuation[0],
            float(stage.welfare[0]) + bonus,
            float(stage.revenue[0]),
            instance.n_intents,
        )
