"""Real ambiguous queries, clarifying questions and crowd answers: Qulac (Aliannejadi and others, SIGIR 2019; MIT).

A query's facets are its intents. For each facet and question a worker answered; an answer is reduced to one of four
classes, the signals: yes, no, unsure, other. There are no prices or clicks in it: values are drawn.
"""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import sprigs
from sprigs.data import DataFile

from .errors import SponsoredError
from .families import ValueModel, advertiser_values
from .instance import Array, Instance

ANSWERS = ("yes", "no", "unsure", "other")

_ORIGINAL = (
    "https://raw.githubusercontent.com/aliannejadi/qulac/d43f9f6e934ef5c485dca9efa3458dc23c48974a/data/qulac/qulac.json"
)
QULAC = DataFile(
    "sponsored",
    "qulac.json",
    "da3c775efcb88e0cb48a530445812ee2a896d36b443459c7847cfdcef8024838",
    "MIT (Copyright 2019 Mohammad Aliannejadi)",
    url=_ORIGINAL,
)
RESPONSES = DataFile(
    "sponsored",
    "qulac_responses.tsv",
    "01e596544bf1874eca285bad999728083d3f4ce3d9a9469e1a30bb02998a737b",
    "MIT (Copyright 2019 Mohammad Aliannejadi)",
    how="It is qulac.json with the answers reduced to classes; `reduce_answers` makes nearly the same of the original.",
)

_YES = re.compile(r"(yes|yeah|yep|sure|absolutely|correct|i am (?!not\b|unsure\b))\b")
_NO = re.compile(r"(no|nope|not|i am not)\b")
_UNSURE = re.compile(r"(do ?n'?t|do not|not) (know|sure)|unsure")


@dataclass(frozen=True, eq=False)
class Topic:
    """One query.

    Attributes:
        topic_id: Qulac's number.
        query: What the user typed.
        facets: What may have been meant, the intents.
        questions: What could be asked.
        answers: Share of answers of each class, shape (questions, facets, 4); rows sum to 1, or to 0 where nobody
            answered.
    """

    topic_id: int
    query: str
    facets: tuple[str, ...]
    questions: tuple[str, ...]
    answers: Array

    def kernel(self, eps: float = 0.05) -> Array:
        """Response kernel with the null question first, shape (questions + 1, facets, 4).

        Args:
            eps: Share of answers that are given at random.
        """
        if not 0 <= eps <= 1:
            raise SponsoredError(f"eps is a share; got {eps!r}")
        answered = self.answers.sum(axis=2, keepdims=True) > 0
        known = np.where(answered, self.answers, 1 / len(ANSWERS))
        null = np.zeros((1, len(self.facets), len(ANSWERS)))
        null[..., -1] = 1
        return np.concatenate([null, (1 - eps) * known + eps / len(ANSWERS)])


def answer_class(answer: str) -> str:
    """Class of a free-text answer, by its first words."""
    text = re.sub(r"[^a-z ']", "", answer.lower()).strip()
    if _UNSURE.search(text):
        return "unsure"
    if _NO.match(text):
        return "no"
    return "yes" if _YES.match(text) else "other"


def reduce_answers(records: Mapping[str, Mapping[str, Any]]) -> list[dict[str, str]]:
    """Turn Qulac's own JSON (columns by row number) into rows of topic, facet, question and answer class."""
    try:
        numbers = sorted(records["topic_id"], key=int)
        rows = [{name: str(column[number]) for name, column in records.items()} for number in numbers]
    except (KeyError, TypeError, ValueError) as error:
        raise SponsoredError(f"this is no qulac.json: {error!r}") from error
    return [{**row, "answer_class": answer_class(row["answer"])} for row in rows if row["question"].strip()]


def topics_of(rows: Iterable[Mapping[str, str]]) -> dict[int, Topic]:
    """Assemble topics from rows with topic_id, topic, facet_id, facet_desc, question and answer_class.

    Raises:
        SponsoredError: A column is missing, or an answer is of no class.
    """
    facets: dict[int, dict[str, str]] = {}
    questions: dict[int, dict[str, int]] = {}
    names: dict[int, str] = {}
    cells: dict[int, list[tuple[str, str, int]]] = {}
    try:
        for row in rows:
            topic = int(row["topic_id"])
            names[topic] = row["topic"]
            facets.setdefault(topic, {})[row["facet_id"]] = row["facet_desc"]
            questions.setdefault(topic, {}).setdefault(row["question"], len(questions[topic]))
            cells.setdefault(topic, []).append((row["facet_id"], row["question"], ANSWERS.index(row["answer_class"])))
    except (KeyError, ValueError, TypeError) as error:
        raise SponsoredError(f"expected rows of Qulac answers with classes {', '.join(ANSWERS)}: {error!r}") from error
    topics = {}
    for topic, own in cells.items():
        order = {facet: i for i, facet in enumerate(facets[topic])}
        counts = np.zeros((len(questions[topic]), len(order), len(ANSWERS)))
        for facet, question, answer in own:
            counts[questions[topic][question], order[facet], answer] += 1
        total = counts.sum(axis=2, keepdims=True)
        answers = np.divide(counts, total, out=np.zeros_like(counts), where=total > 0)
        topics[topic] = Topic(topic, names[topic], tuple(facets[topic].values()), tuple(questions[topic]), answers)
    return topics


@lru_cache(maxsize=4)
def load_topics(path: str | os.PathLike[str] | None = None) -> dict[int, Topic]:
    """Load all 198 topics.

    Args:
        path: A file of one's own: tab-separated rows, or Qulac's JSON. None: the mirror's, else the public original.

    Raises:
        sprigs.DataUnavailable: The data is not to be had.
        SponsoredError: The file is something else.
    """
    if path is None:
        try:
            path = RESPONSES.path()
        except sprigs.DataUnavailable:
            path = QULAC.path()
    file = Path(path)
    if file.suffix == ".json":
        try:
            return topics_of(reduce_answers(json.loads(file.read_text(encoding="utf-8"))))
        except json.JSONDecodeError as error:
            raise SponsoredError(f"{file} is not JSON: {error}") from error
    with file.open(encoding="utf-8", newline="") as stream:
        return topics_of(csv.DictReader(stream, delimiter="\t"))


def qulac(
    topic: Topic | int,
    values: ValueModel = "random",
    seed: int | np.random.Generator = 0,
    *,
    n: int = 8,
    eps: float = 0.05,
) -> Instance:
    """Make an instance of a real query, with drawn values.

    Args:
        topic: A topic, or Qulac's number of one.
        values: Value model, see `families.advertiser_values`.
        seed: Seed or generator.
        n: Advertisers.
        eps: Share of answers given at random.

    Raises:
        SponsoredError: No such topic.
        sprigs.DataUnavailable: The data is not to be had.
    """
    if not isinstance(topic, Topic):
        topics = load_topics()
        if topic not in topics:
            raise SponsoredError(f"Qulac has no topic {topic}")
        topic = topics[topic]
    m = len(topic.facets)
    names = {"intents": topic.facets, "questions": ("ask nothing", *topic.questions), "signals": ANSWERS}
    drawn = advertiser_values(values, n, m, np.random.default_rng(seed))
    return Instance(np.full(m, 1 / m), topic.kernel(eps), drawn, names=names)


def generated_topics(count: int = 198, seed: int = 0) -> dict[int, Topic]:
    """Make queries with the sizes and the shares of answers that Qulac has, for where it is not to be had.

    Each question is about one facet: the others mostly answer no, as Qulac's do.
    """
    rng = np.random.default_rng(seed)
    topics = {}
    for number in range(1, count + 1):
        m = int(rng.integers(2, 7))
        questions = int(rng.integers(8, 19))
        about = rng.integers(0, m, questions)
        # In Qulac 23 % of answers are yes, 54 % no, 4 % unsure, 19 % other.
        draws = np.where(
            np.arange(m) == about[:, None], 0, rng.choice([0, 1, 2, 3], (questions, m), p=[0.02, 0.72, 0.04, 0.22])
        )
        answers = np.eye(len(ANSWERS))[draws]
        topics[number] = Topic(
            number,
            f"query {number}",
            tuple(f"facet {i + 1}" for i in range(m)),
            tuple(f"about facet {about[i] + 1}?" for i in range(questions)),
            answers,
        )
    return topics


def entropy(probabilities: Array) -> Any:
    """Shannon entropy in bits over the last axis."""
    p = np.asarray(probabilities, dtype=np.float64)
    return -np.sum(np.where(p > 0, p * np.log2(np.where(p > 0, p, 1)), 0), axis=-1)


def best_posterior_entropy(instance: Instance) -> float:
    """Expected entropy of the intent after the most informative question, in bits."""
    joint = instance.prior[None, :, None] * instance.kernel
    mass = joint.sum(axis=1)
    left = entropy(np.moveaxis(joint, 1, 2) / np.where(mass > 0, mass, 1)[..., None])
    return float((mass * left).sum(axis=1).min())
