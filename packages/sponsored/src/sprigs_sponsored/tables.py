"""An instance from tables that people have: advertisers, the prior, and answers to questions, as CSV."""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .errors import SponsoredError
from .instance import Instance
from .mechanisms import FullInformation, JointVCG, Modular, Null, Outcome, Redistribution

Path_ = str | os.PathLike[str]


def read_instance(
    advertisers: Path_, prior: Path_, answers: Path_, *, reserve: float = 0.0, ctr: Sequence[float] = (1.0,)
) -> Instance:
    """Read an instance from three CSV files with headers.

    Args:
        advertisers: Columns `advertiser` and one for each intent: value of an impression.
        prior: Columns `intent` and `probability`; fixes the order of intents.
        answers: Columns `question`, `intent`, `signal`, `probability`: how users of an intent answer. What a question
            and an intent lack to 1 is abandonment. Asking nothing need not be listed; listed as `ask nothing` it is
            question 0.
        reserve, ctr: See `Instance`.

    Raises:
        SponsoredError: A column, intent or number is missing or wrong; says file and line.
    """
    intents: list[str] = []
    weights = []
    for line, row in _rows(prior, ("intent", "probability")):
        if row["intent"] in intents:
            raise SponsoredError(f"{prior}, line {line}: intent {row['intent']!r} is named twice")
        intents.append(row["intent"])
        weights.append(_number(prior, line, row["probability"]))
    names, values = [], []
    for line, row in _rows(advertisers, ("advertiser", *intents)):
        names.append(row["advertiser"])
        values.append([_number(advertisers, line, row[intent]) for intent in intents])
    questions, signals = ["ask nothing"], ["(no answer)"]
    cells = []
    for line, row in _rows(answers, ("question", "intent", "signal", "probability")):
        if row["intent"] not in intents:
            raise SponsoredError(f"{answers}, line {line}: {row['intent']!r} is none of the intents in {prior}")
        for known, name in ((questions, row["question"]), (signals, row["signal"])):
            if name not in known:
                known.append(name)
        cells.append((line, row, _number(answers, line, row["probability"])))
    kernel = np.zeros((len(questions), len(intents), len(signals)))
    for line, row, probability in cells:
        at = questions.index(row["question"]), intents.index(row["intent"]), signals.index(row["signal"])
        if kernel[at]:
            raise SponsoredError(f"{answers}, line {line}: the same question, intent and signal twice")
        kernel[at] = probability
    if not kernel[0].any():
        kernel[0, :, 0] = 1
    labels = {"intents": intents, "questions": questions, "signals": signals, "advertisers": names}
    return Instance(np.array(weights), kernel, np.array(values).reshape(len(names), -1), None, ctr, reserve, labels)


def _rows(path: Path_, columns: Sequence[str]) -> list[tuple[int, dict[str, str]]]:
    try:
        with Path(path).open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.DictReader(stream)
            header = [name.strip() for name in reader.fieldnames or ()]
            if missing := [name for name in columns if name not in header]:
                raise SponsoredError(f"{path} lacks the column {missing[0]!r}; it has {', '.join(header) or 'none'}")
            reader.fieldnames = header
            rows = [(reader.line_num, {k: (v or "").strip() for k, v in row.items() if k}) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SponsoredError(f"{path} cannot be read: {error}") from error
    if not rows:
        raise SponsoredError(f"{path} has no rows")
    return rows


def _number(path: Path_, line: int, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SponsoredError(f"{path}, line {line}: {text!r} is not a number") from None


@dataclass(frozen=True, eq=False)
class Recommendation:
    """What to do with an ambiguous query.

    Attributes:
        outcomes: Of every mechanism, the bound last.
        best: The joint mechanism's.
        modular: The modular one of the highest welfare.
        verdict: In words.
    """

    instance: Instance
    outcomes: tuple[Outcome, ...]
    best: Outcome
    modular: Outcome
    verdict: str

    def rows(self) -> list[tuple[str, str, float, float, float, float]]:
        """Mechanism, question, welfare, revenue, advertisers' surplus, share of full information."""
        bound = self.outcomes[-1].welfare
        return [
            (
                o.mechanism,
                "(intent known)" if o.question < 0 else self.instance.name("question", o.question),
                o.welfare,
                o.revenue,
                o.surplus,
                o.welfare / bound if bound > 0 else 1.0,
            )
            for o in self.outcomes
        ]


def standard_mechanisms(rho: float = 1.0) -> tuple[Any, ...]:
    """The mechanisms of the reports, simplest first and the bound last."""
    return (
        Null(),
        Modular(),
        Modular(redistribution=Redistribution(rho)),
        Modular("public_vcg"),
        Modular("public_vcg", redistribution=Redistribution(rho, "credit")),
        JointVCG("realised"),
        FullInformation(),
    )


def recommend(instance: Instance, *, rho: float = 1.0, worthwhile: float = 0.02) -> Recommendation:
    """Compare the mechanisms on an instance of one ad slot, and say whether selling prompts and ads jointly pays.

    Args:
        instance: The query.
        rho: Share of revenue that the redistributing mechanisms hand back.
        worthwhile: Share of welfare below which a difference is not worth a more complex mechanism.
    """
    outcomes = tuple(mechanism.run(instance) for mechanism in standard_mechanisms(rho))
    null, joint = outcomes[0], outcomes[5]
    plain = max((outcomes[1], outcomes[3]), key=lambda o: o.welfare)
    question = instance.name("question", joint.question)
    gain = joint.welfare - null.welfare
    if joint.question == 0 or gain <= worthwhile * max(null.welfare, 1e-300):
        verdict = f"Ask nothing: the best question, {question!r}, adds {gain:.4g} to a welfare of {null.welfare:.4g}."
    else:
        verdict = f"Ask {question!r}: it adds {gain:.4g} to a welfare of {null.welfare:.4g}."
        lost = joint.welfare - plain.welfare
        if lost > worthwhile * joint.welfare:
            verdict += (
                f" Sell it jointly with the ads: apart, {plain.mechanism} shows"
                f" {instance.name('question', plain.question)!r} and loses {lost:.4g},"
                f" {100 * lost / joint.welfare:.0f} %."
            )
        else:
            verdict += f" Selling it apart ({plain.mechanism}) does as well, within {100 * worthwhile:g} %."
    return Recommendation(instance, outcomes, joint, plain, verdict)
