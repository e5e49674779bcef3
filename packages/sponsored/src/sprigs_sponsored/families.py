"""Families of instances: with prices of anarchy in closed form, at random, and from real answers to real questions."""

from __future__ import annotations

from typing import Literal

import numpy as np

from .errors import SponsoredError
from .instance import Instance

ValueModel = Literal["random", "rivals", "niche"]


def engagement(V: float = 1.0, eps: float = 0.1) -> Instance:
    """Two questions that each keep one kind of user; modular rules show the wrong one, for a price of anarchy of V/eps.

    Question 1 keeps users whom two equal rivals would pay V for: competition leaves the rivals nothing, so neither
    bids for the question. Question 2 keeps users worth eps to a niche advertiser without competition, which does.
    Without a question everybody leaves.
    """
    if not 0 < eps <= V:
        raise SponsoredError(f"engagement wants 0 < eps <= V; got V={V}, eps={eps}")
    kernel = np.zeros((3, 2, 1))
    kernel[1, 0], kernel[2, 1] = 1, 1
    values = [[2 * V, 0], [2 * V, 0], [0, 2 * eps]]
    names = {
        "questions": ("ask nothing", "keep the contested", "keep the niche"),
        "advertisers": ("rival A", "rival B", "niche"),
        "intents": ("contested", "niche"),
        "signals": ("stays",),
    }
    return Instance(np.array([0.5, 0.5]), kernel, np.array(values), names=names)


def intents(m: int = 4, eps: float | None = None, eta: float = 1e-3) -> Instance:
    """Equally likely intents; nobody leaves, and yet the price of anarchy is (1 - eta) / (eps + (1 - eta) / m).

    Question 1 reveals the intent, to the profit of two equal rivals for each, whom competition leaves nothing. A
    generalist worth eps more than the rivals' mean wins as long as nothing is revealed, with or without the idle
    question 2.
    """
    eps = 1e-3 / m if eps is None else eps
    if m < 2 or not 0 <= eta < 1 or eps <= 0 or eps + (1 - eta) / m > 1 - eta:
        raise SponsoredError(
            f"intents wants m >= 2, 0 <= eta < 1, 0 < eps <= (1 - eta)(1 - 1/m); got {m}, {eta}, {eps}"
        )
    kernel = np.zeros((3, m, m))
    kernel[0, :, 0] = kernel[2, :, 0] = 1
    kernel[1] = np.eye(m)
    values = np.concatenate([np.repeat(np.eye(m) * (1 - eta), 2, axis=0), np.full((1, m), eps + (1 - eta) / m)])
    return Instance(np.full(m, 1 / m), kernel, values)


def free_rider(n: int = 4, u: float = 1.0, delta: float = 0.1) -> Instance:
    """One question good for all n advertisers, one a little better for the first alone, which outbids each of them.

    Single-winner rules at truthful bids show the second: a price of anarchy of n u / (u + delta).
    """
    if n < 1 or u <= 0 or delta <= 0:
        raise SponsoredError(f"free_rider wants n >= 1, u > 0, delta > 0; got {n}, {u}, {delta}")
    m = n + 1
    kernel = np.zeros((3, m, n))
    kernel[1, :n] = np.eye(n)
    kernel[2, n, 0] = 1
    values = np.zeros((n, m))
    values[np.arange(n), np.arange(n)] = m * u
    values[0, n] = m * (u + delta)
    return Instance(np.full(m, 1 / m), kernel, values)


def random_instance(
    seed: int | np.random.Generator,
    m: int = 4,
    questions: int = 5,
    signals: int = 3,
    n: int = 4,
    *,
    abandonment: float = 0.0,
    slots: int = 1,
    question_utility: float = 0.0,
) -> Instance:
    """Draw priors and kernels from flat Dirichlet distributions, values lognormal(0, 1) with probability 1/2.

    Args:
        seed: Seed or generator.
        m, questions, signals, n: Numbers of intents, questions besides the null one, signals, advertisers.
        abandonment: Each row of questions but the null one loses a uniform share up to this.
        slots: Ad slots, with geometric click-through rates.
        question_utility: Standard deviation of the questions' own utilities.
    """
    rng = np.random.default_rng(seed)
    kernel = rng.dirichlet(np.ones(signals), size=(questions + 1, m))
    kernel[0] = np.eye(signals)[0]
    kernel[1:] *= 1 - abandonment * rng.random((questions, m, 1))
    values = rng.lognormal(size=(n, m)) * (rng.random((n, m)) < 0.5)
    utility = question_utility * rng.normal(size=questions + 1)
    utility[0] = 0
    return Instance(rng.dirichlet(np.ones(m)), kernel, values, utility, np.power(0.6, np.arange(slots)).tolist())


def advertiser_values(model: ValueModel, n: int, m: int, rng: np.random.Generator) -> np.ndarray:
    """Draw values by advertiser and intent, shape (n, m).

    Args:
        model: `"random"`: lognormal(0, 1) with probability 1/2. `"rivals"`: two nearly equal advertisers for each
            intent in turn, at 1 + U/20. `"niche"`: each wants one intent, lognormal.
        n, m: Advertisers and intents.
        rng: Generator.
    """
    if model == "random":
        return rng.lognormal(size=(n, m)) * (rng.random((n, m)) < 0.5)
    values = np.zeros((n, m))
    if model == "rivals":
        values[np.arange(n), np.arange(n) // 2 % m] = 1 + 0.05 * rng.random(n)
    elif model == "niche":
        values[np.arange(n), rng.integers(0, m, n)] = rng.lognormal(size=n)
    else:
        raise SponsoredError(f"value models are 'random', 'rivals' and 'niche'; got {model!r}")
    return values
