"""The few statistics a benchmark needs, on plain lists."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from statistics import fmean, median, quantiles

RESAMPLES = 2000


def relative_spread(values: Sequence[float]) -> float:
    """Interquartile range over median."""
    low, _, high = quantiles(values, n=4, method="inclusive")
    return (high - low) / median(values)


def bootstrap(rounds: int, statistic: Callable[[Sequence[int]], float], seed: int) -> tuple[float, float]:
    """The 95 % percentile interval of a statistic over whole rounds drawn with replacement.

    `statistic` is given the indices of the rounds drawn: what was measured in one round stays
    together, so a drift of the machine that all callables felt cancels.
    """
    generator = random.Random(seed)
    indices = range(rounds)
    drawn = sorted(statistic(generator.choices(indices, k=rounds)) for _ in range(RESAMPLES))
    return drawn[int(0.025 * RESAMPLES)], drawn[int(0.975 * RESAMPLES) - 1]


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
    """The slope of the least-squares line through the logarithms: the exponent of a power law."""
    log_x = [math.log(x) for x in xs]
    log_y = [math.log(y) for y in ys]
    mean_x, mean_y = fmean(log_x), fmean(log_y)
    covariance = math.fsum((x - mean_x) * (y - mean_y) for x, y in zip(log_x, log_y, strict=True))
    return covariance / math.fsum((x - mean_x) ** 2 for x in log_x)
