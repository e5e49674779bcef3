"""The plainest correct version: the oracle of the tests."""

from __future__ import annotations

from collections.abc import Sequence


def running_mean(x: Sequence[float]) -> list[float]:
    """Return the mean of the first 1, 2, ..., n values, summed one by one."""
    means = []
    total = 0.0
    for count, value in enumerate(x, 1):
        total += float(value)
        means.append(total / count)
    return means
