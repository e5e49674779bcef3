"""The timing loop that `compare` and `scaling` share."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

Clock = Callable[[], float]
Key = TypeVar("Key", bound=Hashable)

DEFAULT_CLOCK: Clock = time.perf_counter
MIN_ROUNDS = 3


def in_turn(
    functions: Mapping[Key, Callable[[], object]],
    *,
    rounds: int,
    warmup: int,
    min_time: float,
    clock: Clock,
) -> dict[Key, tuple[float, ...]]:
    """Seconds a call, a value for each round: A B C, B C A, C A B, ...

    Every callable is called `warmup` times first; then each measurement repeats the call until it
    takes `min_time` seconds.

    Raises:
        ValueError: a count is too small, or the clock is too coarse for one of the callables.
    """
    if rounds < MIN_ROUNDS:
        raise ValueError(f"rounds must be at least {MIN_ROUNDS}, given {rounds}")
    if warmup < 0 or min_time < 0:
        raise ValueError(f"warmup and min_time must not be negative, given {warmup}, {min_time}")
    for function in functions.values():
        for _ in range(warmup):
            function()
    loops = {key: _loops(function, min_time, clock) for key, function in functions.items()}
    order = list(functions)
    seconds: dict[Key, list[float]] = {key: [] for key in order}
    for turn in range(rounds):
        # Each callable is first, second, ... equally often: nobody always runs on another's cache.
        start = turn % len(order)
        for key in order[start:] + order[:start]:
            spent = _measure(functions[key], loops[key], clock)
            if spent <= 0:
                raise ValueError(f"{key!r} takes no time the clock can see; pass min_time=0.01")
            seconds[key].append(spent / loops[key])
    return {key: tuple(values) for key, values in seconds.items()}


def _measure(function: Callable[[], object], loops: int, clock: Clock) -> float:
    began = clock()
    for _ in range(loops):
        function()
    return clock() - began


def _loops(function: Callable[[], object], min_time: float, clock: Clock) -> int:
    loops = 1
    while min_time > 0 and _measure(function, loops, clock) < min_time:
        loops *= 2
    return loops
