"""How cost grows with size."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING

from sprigs.bench import _facts, _output, _statistics
from sprigs.bench._timing import DEFAULT_CLOCK, Clock, in_turn

if TYPE_CHECKING:
    from rich.table import Table

MIN_SIZES = 3


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """What `scaling` measured.

    Attributes:
        seconds: size -> seconds a call, a value for each round.
        facts: processor, cores, Python, versions.
        command: the command line, without paths.
        seed: of the bootstrap.
    """

    seconds: Mapping[int, tuple[float, ...]]
    facts: Mapping[str, object]
    command: str
    seed: int = 0

    @cached_property
    def medians(self) -> dict[int, float]:
        """Median seconds a call."""
        return {size: median(values) for size, values in self.seconds.items()}

    @cached_property
    def exponent(self) -> float:
        """The k of time ~ size^k: the slope between the logarithms of size and median."""
        return _statistics.slope(list(self.medians), list(self.medians.values()))

    @cached_property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the exponent, from whole rounds drawn with replacement.

        It tells of the noise between rounds, not of sizes at which no power law holds.
        """
        sizes = list(self.seconds)
        columns = list(self.seconds.values())

        def exponent_of(drawn: Sequence[int]) -> float:
            return _statistics.slope(sizes, [median(c[i] for i in drawn) for c in columns])

        return _statistics.bootstrap(len(columns[0]), exponent_of, self.seed)

    def to_dict(self) -> dict[str, object]:
        """Everything measured as plain containers, ready for JSON."""
        return {
            "command": self.command,
            "machine": dict(self.facts),
            "exponent": self.exponent,
            "exponent_interval_95": list(self.interval),
            "seed": self.seed,
            "results": [
                {"size": size, "median_seconds": self.medians[size], "seconds": list(values)}
                for size, values in self.seconds.items()
            ],
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `to_dict` as JSON."""
        _output.write_json(path, self.to_dict())

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw time against size, both logarithmic, as a PNG.

        Raises:
            ModuleNotFoundError: matplotlib is not installed.
        """
        low, high = self.interval
        figure, axes = _output.new_figure(5.5, 4.0)
        label = f"size^{self.exponent:.2f} ({low:.2f} .. {high:.2f})"
        axes.loglog(list(self.medians), list(self.medians.values()), "o-", color="#7a9e7e", label=label)
        axes.set_xlabel("size")
        axes.set_ylabel("median seconds a call")
        axes.legend()
        _output.save_figure(figure, path)

    def table(self) -> Table:
        """The result as a table of rich."""
        from rich.table import Table

        low, high = self.interval
        table = Table(title=f"time ~ size^{self.exponent:.2f} ({low:.2f} .. {high:.2f})")
        table.add_column("size", justify="right")
        table.add_column("median", justify="right")
        for size, seconds in self.medians.items():
            table.add_row(str(size), _output.duration(seconds))
        return table


def scaling(
    make: Callable[[int], Callable[[], object]],
    sizes: Sequence[int],
    *,
    rounds: int = 7,
    warmup: int = 1,
    min_time: float = 0.0,
    packages: Iterable[str] = (),
    seed: int = 0,
    clock: Clock = DEFAULT_CLOCK,
) -> Scaling:
    """Time one callable at several sizes, in turn, and fit time ~ size^k.

    Args:
        make: size -> callable without arguments; called once for each size, outside the timing.
        sizes: at least three different positive sizes.
        rounds: measurements at each size.
        warmup: calls at each size before the first measurement.
        min_time: seconds a measurement takes at least, by calling repeatedly.
        packages: distributions whose versions are recorded.
        seed: of the bootstrap.
        clock: gives seconds, for tests.

    Raises:
        ValueError: there are fewer than three sizes, or an argument cannot be used.
    """
    if len(set(sizes)) != len(sizes) or len(sizes) < MIN_SIZES or min(sizes) < 1:
        raise ValueError(f"sizes must be at least {MIN_SIZES} different positive numbers, given {list(sizes)}")
    functions = {size: make(size) for size in sizes}
    seconds = in_turn(functions, rounds=rounds, warmup=warmup, min_time=min_time, clock=clock)
    return Scaling(
        seconds=seconds,
        facts=_facts.machine(packages),
        command=_facts.command_line(),
        seed=seed,
    )
