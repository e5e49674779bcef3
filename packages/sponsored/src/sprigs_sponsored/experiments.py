"""The experiments behind the claims and the demo: real or generated queries, mechanisms on the families."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import sprigs

from .families import ValueModel
from .instance import Array
from .mechanisms import JointVCG, Modular, Null, Redistribution
from .queries import Topic, generated_topics, load_topics, qulac

QUERY_MECHANISMS = (Null(), Modular(), Modular("public_vcg"), Modular(redistribution=Redistribution(1.0)), JointVCG())


@dataclass(frozen=True, eq=False)
class QueryExperiment:
    """Welfare as a share of full information on ambiguous queries.

    Attributes:
        source: "Qulac" or "generated".
        values: Value model.
        names: Mechanisms.
        shares: By topic, draw and mechanism, shape (topics, draws, 5); 1 where nobody values anything.
    """

    source: str
    values: ValueModel
    names: tuple[str, ...]
    shares: Array

    @property
    def mean(self) -> Array:
        """Mean by mechanism."""
        found: Array = self.shares.mean(axis=(0, 1))
        return found

    @property
    def standard_error(self) -> Array:
        """Of the mean, topics being independent."""
        per_topic = self.shares.mean(axis=1)
        found: Array = per_topic.std(axis=0, ddof=1) / np.sqrt(len(per_topic))
        return found


def topics_at_hand() -> tuple[str, dict[int, Topic]]:
    """Qulac's topics, or generated ones where it is not to be had."""
    try:
        return "Qulac", load_topics()
    except sprigs.DataUnavailable:
        return "generated", generated_topics()


def query_experiment(
    values: ValueModel = "random",
    *,
    topics: dict[int, Topic] | None = None,
    source: str = "",
    draws: int = 20,
    n: int = 8,
    eps: float = 0.05,
) -> QueryExperiment:
    """Run five mechanisms on every topic with several draws of values."""
    if topics is None:
        source, topics = topics_at_hand()
    shares = np.ones((len(topics), draws, len(QUERY_MECHANISMS)))
    for i, topic in enumerate(topics.values()):
        for d in range(draws):
            instance = qulac(topic, values, np.random.default_rng([topic.topic_id, d]), n=n, eps=eps)
            bound = instance.full_information()
            if bound > 0:
                shares[i, d] = [mechanism.run(instance).welfare / bound for mechanism in QUERY_MECHANISMS]
    return QueryExperiment(source, values, tuple(m.name for m in QUERY_MECHANISMS), shares)
