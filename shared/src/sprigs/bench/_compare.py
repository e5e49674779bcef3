"""Callables side by side."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

from sprigs.bench import _facts, _output, _statistics
from sprigs.bench._agreement import Check, require_agreement
from sprigs.bench._timing import DEFAULT_CLOCK, Clock, in_turn

if TYPE_CHECKING:
    from rich.table import Table


class Ratio(NamedTuple):
    """A ratio of times with its 95 % interval; below 1 is faster than the baseline."""

    ratio: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What `compare` measured.

    Attributes:
        seconds: name -> seconds a call, a value for each round.
        baseline: the name all ratios are taken against.
        nbytes: bytes each call works through, where the caller said so.
        threads: threads the callables ran with, where the caller said so.
        facts: processor, cores, Python, versions.
        command: the command line, without paths.
        seed: of the bootstrap.
    """

    seconds: Mapping[str, tuple[float, ...]]
    baseline: str
    nbytes: int | None
    threads: int | None
    facts: Mapping[str, object]
    command: str
    seed: int = 0

    @cached_property
    def medians(self) -> dict[str, float]:
        """Median seconds a call."""
        return {name: median(values) for name, values in self.seconds.items()}

    @cached_property
    def spread(self) -> dict[str, float]:
        """Interquartile range over median."""
        return {n: _statistics.relative_spread(values) for n, values in self.seconds.items()}

    @cached_property
    def ratios(self) -> dict[str, Ratio]:
        """Median over the rounds of time / the baseline's time in that round, with its interval."""
        return {name: self._ratio(name) for name in self.seconds}

    @cached_property
    def rates(self) -> dict[str, float]:
        """Median bytes a second; empty where `nbytes` was not given."""
        if self.nbytes is None:
            return {}
        return {name: self.nbytes / seconds for name, seconds in self.medians.items()}

    def _ratio(self, name: str) -> Ratio:
        pairs = zip(self.seconds[name], self.seconds[self.baseline], strict=True)
        paired = [mine / base for mine, base in pairs]
        low, high = _statistics.bootstrap(len(paired), lambda drawn: median(paired[i] for i in drawn), self.seed)
        return Ratio(median(paired), low, high)

    def to_dict(self) -> dict[str, object]:
        """Everything measured as plain containers, ready for JSON."""
        return {
            "command": self.command,
            "machine": dict(self.facts),
            "baseline": self.baseline,
            "rounds": len(self.seconds[self.baseline]),
            "nbytes": self.nbytes,
            "threads": self.threads,
            "seed": self.seed,
            "results": {
                name: {
                    "median_seconds": self.medians[name],
                    "spread": self.spread[name],
                    "ratio": self.ratios[name].ratio,
                    "ratio_interval_95": [self.ratios[name].low, self.ratios[name].high],
                    "bytes_per_second": self.rates.get(name),
                    "seconds": list(values),
                }
                for name, values in self.seconds.items()
            },
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `to_dict` as JSON."""
        _output.write_json(path, self.to_dict())

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw the ratios with their intervals as a PNG.

        Raises:
            ModuleNotFoundError: matplotlib is not installed.
        """
        names = list(self.seconds)
        ratios = [self.ratios[name] for name in names]
        figure, axes = _output.new_figure(7.0, 1.2 + 0.4 * len(names))
        errors = [[r.ratio - r.low for r in ratios], [r.high - r.ratio for r in ratios]]
        axes.barh(names, [r.ratio for r in ratios], xerr=errors, capsize=3, color="#7a9e7e")
        axes.axvline(1.0, color="0.3", linewidth=1)
        axes.invert_yaxis()
        axes.set_xlabel(f"time / time of {self.baseline} (lower is faster, bars: 95 %)")
        _output.save_figure(figure, path)

    def table(self) -> Table:
        """The result as a table of rich."""
        from rich.table import Table
        from rich.text import Text

        table = Table(title=f"{len(self.seconds[self.baseline])} rounds in turn")
        table.add_column("", overflow="fold")
        for heading in ("median", "spread", f"time / {self.baseline}", "95 % interval"):
            table.add_column(Text(heading), justify="right", overflow="fold")
        if self.rates:
            table.add_column("rate", justify="right", overflow="fold")
        for name in self.seconds:
            ratio, low, high = self.ratios[name]
            cells = [
                name,
                _output.duration(self.medians[name]),
                f"{self.spread[name]:.1%}",
                f"{ratio:.3g}",
                f"{low:.3g} .. {high:.3g}",
                *([_output.rate(self.rates[name])] if self.rates else []),
            ]
            # As Text: a name such as `zlib[9]` is no markup.
            table.add_row(*map(Text, cells))
        return table


def compare(
    functions: Mapping[str, Callable[[], object]],
    *,
    check: Check | None = None,
    rounds: int = 15,
    warmup: int = 2,
    min_time: float = 0.0,
    baseline: str | None = None,
    nbytes: int | None = None,
    threads: int | None = None,
    packages: Iterable[str] = (),
    seed: int = 0,
    clock: Clock = DEFAULT_CLOCK,
) -> Comparison:
    """Time callables side by side: in turn, in an order that rotates from round to round.

    Args:
        functions: name -> callable without arguments.
        check: is called with name -> result before anything is timed; raises an AssertionError or
            returns False when they do not agree. By default all results must be equal.
        rounds: measurements of each callable.
        warmup: calls of each before the first measurement, besides the one for the check.
        min_time: seconds a measurement takes at least, by calling repeatedly.
        baseline: the name ratios are taken against, by default the first.
        nbytes: bytes a call works through, for rates.
        threads: recorded with the result; setting them is the caller's business.
        packages: distributions whose versions are recorded.
        seed: of the bootstrap.
        clock: gives seconds, for tests.

    Raises:
        BenchMismatch: the results do not agree.
        ValueError: an argument cannot be used, or the results cannot be compared.
        TypeError: `check` is not a function.
    """
    if not functions:
        raise ValueError("functions is empty: give at least one callable by name")
    baseline = next(iter(functions)) if baseline is None else baseline
    if baseline not in functions:
        raise ValueError(f"baseline {baseline!r} is none of {', '.join(map(repr, functions))}")
    if nbytes is not None and nbytes <= 0:
        raise ValueError(f"nbytes must be positive, given {nbytes}")
    require_agreement({name: f() for name, f in functions.items()}, baseline, check)
    seconds = in_turn(functions, rounds=rounds, warmup=warmup, min_time=min_time, clock=clock)
    return Comparison(
        seconds=seconds,
        baseline=baseline,
        nbytes=nbytes,
        threads=threads,
        facts=_facts.machine(packages),
        command=_facts.command_line(),
        seed=seed,
    )
