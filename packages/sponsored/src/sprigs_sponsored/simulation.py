"""Millions of auctions: what each mechanism earns, loses and leaves, with standard errors.

Every auction draws its instance by counter-based random numbers, so that results depend on the configuration and the
seed alone: summaries are bit-equal for any number of workers, and backends agree to rounding.
"""

from __future__ import annotations

import math
import os
import sys
import tomllib
import warnings
from collections.abc import Mapping
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np

from .counters import ACTIVE, KERNEL, PRIOR, VALUES, uniforms
from .errors import BackendUnavailable, SponsoredError
from .instance import Array, Instance

Backend = Literal["auto", "numpy", "numba", "jax", "cupy"]

MECHANISMS = (
    "ask nothing",
    "modular SP",
    "modular SP + sponsor",
    "modular VCG",
    "modular VCG + credit",
    "joint VCG",
    "full information",
)
METRICS = ("welfare", "revenue", "surplus", "share")
"""Per auction; share is welfare over that of full information, 1 where the latter is 0."""

BLOCK = 4096
"""Auctions that are summed together; sums of blocks are added exactly, in any order."""

_KEEP = 1_000_000


@dataclass(frozen=True, eq=False)
class SimulationConfig:
    """What is drawn for each auction.

    Attributes:
        intents, questions, signals, advertisers: Sizes; `questions` counts those besides asking nothing.
        prior: Shape (intents,); None: a flat Dirichlet draw.
        kernel: Shape (questions + 1, intents, signals); None: rows of squared uniforms, normalised, and a null question
            that tells nothing.
        values: What impressions are worth at the median, shape (advertisers, intents); None: 1.
        sigma: Of the lognormal factor on each value.
        active: Probability that a value is not 0 in an auction.
        question_utility: Shape (questions + 1,); None: nothing.
        rho: Share of revenue that the redistributing mechanisms hand back.
    """

    intents: int = 6
    questions: int = 8
    signals: int = 4
    advertisers: int = 16
    prior: Array | None = None
    kernel: Array | None = None
    values: Array | None = None
    sigma: float = 1.0
    active: float = 0.5
    question_utility: Array | None = None
    rho: float = 1.0

    def __post_init__(self) -> None:
        for name in ("intents", "questions", "signals", "advertisers"):
            size = getattr(self, name)
            if not isinstance(size, int | np.integer) or size < (0 if name == "questions" else 1):
                raise SponsoredError(f"{name} is a positive number; got {size!r}")
        for name in ("prior", "kernel", "values", "question_utility"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, np.array(getattr(self, name), dtype=np.float64))
        if not 0 <= self.active <= 1 or not 0 <= self.rho <= 1 or not 0 <= self.sigma <= 10:
            raise SponsoredError("active and rho are shares, sigma lies in 0..10")
        self.instance(np.ones((self.advertisers, self.intents)))  # checks shapes and ranges

    def instance(self, values: Array, prior: Array | None = None, kernel: Array | None = None) -> Instance:
        """Make an instance of drawn parts; for those not drawn, uniform ones."""
        m, s = self.intents, self.signals
        if prior is None:
            prior = np.full(m, 1 / m) if self.prior is None else self.prior
        if kernel is None:
            flat = np.full((self.questions + 1, m, s), 1 / s)
            kernel = flat if self.kernel is None else self.kernel
        made = Instance(prior, kernel, values, self.question_utility)
        expected = (self.questions + 1, m, s)
        if made.kernel.shape != expected or made.values.shape != (self.advertisers, m):
            raise SponsoredError(
                f"kernel has shape {expected} and values ({self.advertisers}, {m}) in this configuration"
            )
        if self.values is not None and (self.values.shape != made.values.shape or not (self.values >= 0).all()):
            raise SponsoredError(f"values has shape {made.values.shape}, not negative; got {self.values.shape}")
        return made

    @classmethod
    def from_instance(cls, instance: Instance, **options: Any) -> SimulationConfig:
        """Simulate around an instance: its prior and kernel as they are, its values at the median.

        Raises:
            SponsoredError: It has several slots or a reserve, which the simulator does not.
        """
        if instance.n_slots > 1 or instance.reserve:
            raise SponsoredError("the simulator has one ad slot and no reserve")
        return cls(
            instance.n_intents,
            instance.n_questions - 1,
            instance.kernel.shape[2],
            instance.n_advertisers,
            instance.prior,
            instance.kernel,
            instance.values,
            question_utility=instance.question_utility,
            **options,
        )

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> SimulationConfig:
        """Read a configuration; its keys are the attributes.

        Raises:
            SponsoredError: It is not TOML, or has other keys.
        """
        try:
            content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise SponsoredError(f"{path} is not TOML: {error}") from error
        known = {f.name for f in fields(cls)}
        if unknown := sorted(set(content) - known):
            raise SponsoredError(f"{path}: unknown keys {', '.join(unknown)}; there are {', '.join(sorted(known))}")
        try:
            return cls(**content)
        except (TypeError, ValueError) as error:
            raise SponsoredError(f"{path}: {error}") from error

    def draw(self, xp: Any, auctions: Any, seed: int) -> tuple[Any, Any, Any]:
        """Draw priors (B, m), kernels (B, L+1, m, S) and values (B, n, m) of auctions."""
        size, m, s, n = len(auctions), self.intents, self.signals, self.advertisers
        if self.prior is None:
            e = -xp.log(uniforms(xp, auctions, PRIOR, m, seed))
            prior = e / e.sum(axis=1, keepdims=True)
        else:
            prior = xp.broadcast_to(xp.asarray(self.prior), (size, m))
        if self.kernel is None:
            u = uniforms(xp, auctions, KERNEL, self.questions * m * s, seed).reshape(size, m, self.questions, s)
            weights = xp.swapaxes(u * u, 1, 2)
            asked = weights / weights.sum(axis=3, keepdims=True)
            null = xp.broadcast_to(xp.asarray(np.eye(s)[0]), (size, 1, m, s))
            kernel = xp.concatenate([null, asked], axis=1)
        else:
            kernel = xp.broadcast_to(xp.asarray(self.kernel), (size, *self.kernel.shape))
        u = uniforms(xp, auctions, VALUES, 4 * ((n * m + 3) // 4), seed).reshape(size, -1, 2)
        radius, angle = xp.sqrt(-2 * xp.log(u[..., 0])), 2 * math.pi * u[..., 1]
        normal = xp.stack([radius * xp.cos(angle), radius * xp.sin(angle)], axis=-1).reshape(size, -1)[:, : n * m]
        active = uniforms(xp, auctions, ACTIVE, n * m, seed) < self.active
        values = (xp.exp(self.sigma * normal) * active).reshape(size, n, m)
        return prior, kernel, values if self.values is None else values * xp.asarray(self.values)


@dataclass(frozen=True, eq=False)
class Simulation:
    """What came out.

    Attributes:
        n_auctions: How many were run.
        mean, standard_error: By mechanism and metric, see `MECHANISMS` and `METRICS`; shape (7, 4).
        arrays: Per auction, by metric, shape (auctions, 7), where they were kept.
        backend: Which computed.
        seed: Of the random numbers.
        interrupted: Whether it was stopped before the end; the rest is what had been done.
    """

    n_auctions: int
    mean: Array
    standard_error: Array
    arrays: Mapping[str, Array] = field(repr=False)
    backend: str
    seed: int
    interrupted: bool = False

    def summary(self) -> dict[str, dict[str, tuple[float, float]]]:
        """Mechanism -> metric -> (mean, standard error)."""
        return {
            name: {
                metric: (float(self.mean[i, j]), float(self.standard_error[i, j])) for j, metric in enumerate(METRICS)
            }
            for i, name in enumerate(MECHANISMS)
        }


def simulate(
    config: SimulationConfig | None = None,
    n_auctions: int = 100_000,
    seed: int = 0,
    *,
    backend: Backend = "auto",
    executor: Executor | None = None,
    keep: bool | None = None,
    progress: bool | None = None,
    threads: int | None = None,
    first: int = 0,
) -> Simulation:
    """Run auctions, each under every mechanism, with truthful reports and reference bids.

    Args:
        config: What is drawn; None: the default.
        n_auctions: How many.
        seed: Below 2^64.
        backend: `"numba"`, `"numpy"`, `"jax"`, `"cupy"`; `"auto"`: numba where it is installed, else NumPy.
        executor: Where blocks are computed: any `concurrent.futures.Executor`, such as a Dask client's. None: threads
            of this process.
        keep: Keep what every auction gave; None: up to a million.
        progress: Show a bar; None: on a terminal.
        threads: Without an executor; None: the CPUs that this process may use.
        first: Number of the first auction, to go on from an earlier run.

    Returns:
        Means and standard errors; the same bits for any executor and number of workers. Interrupted from the keyboard
        it returns what was done, if anything was.

    Raises:
        SponsoredError: A number that is none, or no such backend.
        BackendUnavailable: The backend is not installed.
    """
    config = SimulationConfig() if config is None else config
    if type(n_auctions) is not int or n_auctions < 1:
        raise SponsoredError(f"n_auctions is a positive integer; got {n_auctions!r}")
    if type(seed) is not int or not 0 <= seed < 2**64:
        raise SponsoredError(f"seed is an integer in 0..2^64-1; got {seed!r}")
    if type(first) is not int or first < 0:
        raise SponsoredError(f"first is a number of an auction; got {first!r}")
    if threads is not None and (type(threads) is not int or threads < 1):
        raise SponsoredError(f"threads is a positive integer; got {threads!r}")
    chosen = _backend(backend)
    keep = n_auctions <= _KEEP if keep is None else keep
    starts = range(first, first + n_auctions, BLOCK)
    group = max(1, min(64, len(starts) // (8 * (threads or _cpus())) or 1))
    tasks = [
        (config, seed, chosen, [(s, min(BLOCK, first + n_auctions - s)) for s in starts[i : i + group]], keep)
        for i in range(0, len(starts), group)
    ]
    results: dict[int, list[_Block]] = {}
    interrupted = False
    own = ThreadPoolExecutor(1 if chosen in ("jax", "cupy") else threads or _cpus()) if executor is None else None
    pool = executor or own
    assert pool is not None
    show = sys.stderr.isatty() if progress is None else progress
    with own or nullcontext(), _bar(n_auctions, show) as bar:
        pending: dict[Future[list[_Block]], int] = {pool.submit(_run, *task): i for i, task in enumerate(tasks)}
        try:
            for future in as_completed(pending):
                i = pending[future]
                try:
                    results[i] = future.result()
                except BrokenExecutor:
                    # A worker died and took the pool with it: what is missing is computed here.
                    results[i] = _run(*tasks[i])
                bar.update(sum(block.size for block in results[i]))
        except KeyboardInterrupt:
            for future in pending:
                future.cancel()
            interrupted = True
    if interrupted:
        if not results:
            raise KeyboardInterrupt
        done = sum(block.size for blocks in results.values() for block in blocks)
        warnings.warn(f"interrupted after {done} of {n_auctions} auctions", RuntimeWarning, stacklevel=2)
    return _collect([b for i in sorted(results) for b in results[i]], chosen, seed, interrupted)


@dataclass(frozen=True, eq=False)
class _Block:
    size: int
    sums: Array
    squares: Array
    outcomes: Array | None


def _run(config: SimulationConfig, seed: int, backend: str, blocks: list[tuple[int, int]], keep: bool) -> list[_Block]:
    """Compute blocks of auctions; this is what travels to workers."""
    done = []
    for start, size in blocks:
        outcomes = _outcomes(config, start, size, seed, backend)
        flat = outcomes.reshape(size, -1)
        shape = (len(MECHANISMS), len(METRICS))
        sums, squares = flat.sum(axis=0).reshape(shape), (flat * flat).sum(axis=0).reshape(shape)
        done.append(_Block(size, sums, squares, outcomes if keep else None))
    return done


def _outcomes(config: SimulationConfig, start: int, size: int, seed: int, backend: str) -> Array:
    """Metrics of auctions start .. start + size - 1, shape (size, mechanisms, metrics)."""
    if backend == "numpy":
        return np.asarray(batch(np, config, np.arange(start, start + size, dtype=np.uint64), seed))
    if backend == "numba":
        from . import fast

        return fast.outcomes(config, start, size, seed)
    if backend == "jax":
        return _jax(config, start, size, seed)
    from . import kernels

    return kernels.outcomes(kernels.gpu(), config, start, size, seed)


def batch(xp: Any, config: SimulationConfig, auctions: Any, seed: int) -> Any:
    """Compute auctions with array operations, in NumPy or `jax.numpy`: draw, expect, rank, and run every mechanism."""
    prior, kernel, values = config.draw(xp, auctions, seed)
    weighted = xp.swapaxes(prior[:, None, :] * values, 1, 2)  # (B, m, n)
    expected = xp.matmul(xp.swapaxes(kernel, 2, 3), weighted[:, None])  # (B, L+1, S, n)
    n = config.advertisers
    best = expected.argmax(axis=-1)
    first = expected.max(axis=-1)
    if n > 1:
        rest = xp.where(xp.arange(n) == best[..., None], -1.0, expected)
        second = xp.maximum(rest.max(axis=-1), 0.0)
    else:
        second = xp.zeros_like(first)
    utility = xp.zeros(config.questions + 1) if config.question_utility is None else xp.asarray(config.question_utility)
    revenue = second.sum(axis=2)
    welfare = first.sum(axis=2) + utility
    margin = (first - second)[..., None] * (xp.arange(n) == best[..., None])
    continuation = margin.sum(axis=2)  # (B, L+1, n)
    ranked = xp.sort(xp.swapaxes(weighted, 1, 2), axis=1)
    top = ranked[:, -1].sum(axis=1)
    runner = ranked[:, -2].sum(axis=1) if n > 1 else xp.zeros_like(top)
    bonus = utility.max()
    rows = []

    def first_of(x: Any) -> Any:
        # As instance.first_max: questions that tell an advertiser nothing new tie exactly but for rounding.
        best_ = x.max(axis=1, keepdims=True)
        return (x >= best_ - 1e-12 * xp.maximum(1.0, best_)).argmax(axis=1)

    def pick(x: Any, question: Any) -> Any:
        return xp.take_along_axis(x, question[:, None], axis=1)[:, 0]

    surplus = continuation.sum(axis=2)

    def add(question: Any, paid: Any, handed: Any) -> None:
        w = pick(welfare, question)
        rows.append((w, pick(revenue, question) + paid - handed, pick(surplus, question) - paid + handed))

    none = xp.zeros(len(prior), dtype=best.dtype)
    add(none, 0.0, 0.0)
    for rho in (0.0, config.rho):
        bids = continuation + rho * revenue[:, :, None]
        by_advertiser = xp.swapaxes(bids, 1, 2).reshape(len(prior), -1)
        at = first_of(by_advertiser)
        sponsor, question = at // (config.questions + 1), at % (config.questions + 1)
        highest = bids.max(axis=1)
        others = xp.where(xp.arange(n) == sponsor[:, None], 0.0, highest)
        sold = highest.max(axis=1) > 0
        question = xp.where(sold, question, 0)
        price = xp.where(sold, others.max(axis=1), 0.0)
        add(question, price, xp.where(sold, rho * pick(revenue, question), 0.0))
    for credit in (xp.zeros_like(revenue), config.rho * revenue + utility):
        total = surplus + credit
        question = first_of(total)
        add(question, _pivots(xp, total, continuation, question), 0.0)
    question = first_of(welfare)
    add(question, _pivots(xp, welfare, continuation, question), 0.0)
    rows.append((top + bonus, runner, top - runner))
    stacked = xp.stack([xp.stack(row, axis=-1) for row in rows], axis=1)
    bound = (top + bonus)[:, None]
    share = xp.where(bound > 0, stacked[..., 0] / xp.where(bound > 0, bound, 1.0), 1.0)
    return xp.concatenate([stacked, share[..., None]], axis=2)


def _pivots(xp: Any, objective: Any, continuation: Any, question: Any) -> Any:
    """Clarke pivots, summed over advertisers."""
    without = objective[:, :, None] - continuation
    kept = xp.take_along_axis(without, question[:, None, None], axis=1)[:, 0]
    return xp.maximum(without.max(axis=1) - kept, 0.0).sum(axis=1)


def _jax(config: SimulationConfig, start: int, size: int, seed: int) -> Array:
    import jax

    # Called jax.experimental.enable_x64 before 0.8.
    x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
    with x64(True):
        run = _jax_compiled(config, seed)
        auctions = np.arange(start, start + size, dtype=np.uint64)
        return np.asarray(run(auctions))


@lru_cache(maxsize=16)
def _jax_compiled(config: SimulationConfig, seed: int) -> Any:
    import jax
    import jax.numpy as jnp

    return jax.jit(lambda auctions: batch(jnp, config, auctions, seed))


def _collect(blocks: list[_Block], backend: str, seed: int, interrupted: bool) -> Simulation:
    n = sum(block.size for block in blocks)
    shape = (len(MECHANISMS), len(METRICS))
    sums, squares = np.empty(shape), np.empty(shape)
    for at in np.ndindex(*shape):
        # math.fsum is exact, so that it does not matter how blocks were shared out.
        sums[at] = math.fsum(float(block.sums[at]) for block in blocks)
        squares[at] = math.fsum(float(block.squares[at]) for block in blocks)
    mean = sums / n
    variance = np.maximum(squares / n - mean**2, 0) * (n / max(1, n - 1))
    kept = [block.outcomes for block in blocks if block.outcomes is not None]
    arrays = {}
    if kept:
        joined = np.concatenate(kept)
        arrays = {metric: np.ascontiguousarray(joined[:, :, j]) for j, metric in enumerate(METRICS)}
    return Simulation(n, mean, np.sqrt(variance / n), arrays, backend, seed, interrupted)


def _backend(name: str) -> str:
    if name not in ("auto", "numpy", "numba", "jax", "cupy"):
        raise SponsoredError(f"backends are 'auto', 'numpy', 'numba', 'jax' and 'cupy'; got {name!r}")
    import importlib.util

    if name == "auto":
        return "numba" if importlib.util.find_spec("numba") else "numpy"
    if name != "numpy" and importlib.util.find_spec(name) is None:
        extra = "cuda12' or 'sprigs-sponsored[cuda13" if name == "cupy" else {"numba": "fast", "jax": "jax"}[name]
        raise BackendUnavailable(f"backend {name!r} is not installed: pip install 'sprigs-sponsored[{extra}]'")
    return name


def _cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _bar(total: int, show: bool) -> Any:
    from tqdm import tqdm

    return tqdm(total=total, disable=not show, unit="auction", unit_scale=True)


def as_instances(config: SimulationConfig, start: int, size: int, seed: int) -> list[Instance]:
    """The instances of auctions start .. start + size - 1, for a closer look."""
    auctions = np.arange(start, start + size, dtype=np.uint64)
    prior, kernel, values = config.draw(np, auctions, seed)
    return [config.instance(values[i], prior[i], kernel[i]) for i in range(size)]
