"""The paper's experiments at a scale that a laptop runs, behind the claims, the benchmarks and the demo."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from . import metrics, reference
from .conditional import ConditionalPath
from .couplings import chain
from .datasets import Panel, Snapshots, make_ode, make_sde
from .errors import DegreeWarning
from .estimator import SplineFlow
from .paths import AkimaPath, BSplinePath, LagrangePath, LinearPath, PchipPath
from .schedules import BrownianBridge
from .systems import System

Array = npt.NDArray[np.float64]
PATHS = ("linear", "bspline 2", "bspline 3", "bspline 5", "pchip", "akima")
SNAPSHOT_PATHS = (
    "linear", "bspline 3 time", "bspline 2 time", "pchip", "akima", "bspline 2 index", "bspline 3 index",
    "bspline 2 centripetal", "bspline 3 centripetal",
)  # fmt: skip
DEFAULT = "bspline 2 centripetal"  # for snapshots


def make_path(name: str, times: Any, values: Any, mask: Any = None, **options: Any) -> ConditionalPath:
    """Return a path by a name such as "linear", "pchip", "bspline 3" or "bspline 2 index"."""
    kind, *rest = name.split()
    if kind != "bspline":
        kinds: dict[str, Any] = {"linear": LinearPath, "pchip": PchipPath, "akima": AkimaPath}
        path: ConditionalPath = kinds[kind].fit(times, values, mask, **options)
        return path
    parametrization = rest[1] if len(rest) > 1 else "time"
    with warnings.catch_warnings():
        # Leaving a snapshot out may leave fewer than the degree needs.
        warnings.simplefilter("ignore", DegreeWarning)
        return BSplinePath.fit(times, values, mask, int(rest[0]), parametrization=parametrization, **options)


# C1: how good a target is a path's velocity?


def target_error(panel: Panel, path: str, draws: int = 20_000, seed: int = 0) -> float:
    """Return the relative RMSE of a path's velocity against the true field at the true state of the same time.

    Over uniform times within each trajectory's record; entries outside of a dimension's own record have no weight.
    """
    fitted = make_path(path, panel.times, panel.values, panel.mask, dtype=torch.float64)
    drawn = fitted.sample(draws, torch.Generator().manual_seed(seed))
    # The true state, from a quintic through the complete record: its error is far below any path's.
    truth = BSplinePath.fit(panel.times, panel.values, degree=5, dtype=torch.float64)
    x = truth.evaluate(drawn.index, drawn.t).numpy()
    true = panel.system.drift(0.0, x)
    weight = drawn.weight.numpy()
    slope = fitted.evaluate(drawn.index, drawn.t, 1).numpy()
    return float(np.sqrt((weight * np.square(slope - true)).sum() / (weight * np.square(true)).sum()))


def target_errors(system: str, missing: float, seeds: Sequence[int] = (0, 1, 2), n: int = 6) -> dict[str, list[float]]:
    """Return `target_error` of every path over draws of constants, starts and masks."""
    panels = [make_ode(system, n, missing=missing, seed=s) for s in seeds]
    return {path: [target_error(p, path, seed=s) for p, s in zip(panels, seeds, strict=True)] for path in PATHS}


# C2: what do networks learn from them?


@dataclass(frozen=True)
class Learnt:
    """A trained field, judged on trajectories that it has not seen.

    Attributes:
        field: sum |v - v*|^2 / sum |v*|^2 on true states.
        rollout: mean squared error of rollouts from the first state, in units of variance.
        model: the estimator.
    """

    field: float
    rollout: float
    model: SplineFlow


def learn(
    system: str | System,
    missing: float,
    path: str,
    seed: int = 0,
    n: int = 64,
    dt: float = 0.1,
    steps: int = 3000,
    end: float = 10.0,
    sigma: float = 0.01,
    progress: bool = False,
) -> Learnt:
    """Train a network (3 layers of 64) on n trajectories of a system and judge it on 16 more."""
    times = np.arange(0, end, dt)
    train, test = make_ode(system, n + 16, times, missing, seed=seed).split(n / (n + 16))
    kind, *degree = path.split()
    model = SplineFlow(
        int(degree[0]) if degree else "auto", path=kind, hidden=(64,) * 3, autonomous=True, max_steps=steps,
        batch_size=512, sigma=sigma, random_state=seed, progress=progress,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegreeWarning)
        model.fit(train.times, train.values, train.mask)
    true = test.system.drift(0.0, test.values)
    rolled = model.predict(test.values[:, 0], times, method="rk4")
    return Learnt(
        metrics.field_error(model.vector_field(0.0, test.values), true),
        metrics.rollout_error(rolled, test.values),
        model,
    )


# C3: polynomials


def runge(n: int = 21) -> dict[str, tuple[float, float]]:
    """Return largest error and condition number of one polynomial and of a cubic B-spline through 1 / (1 + 25 x^2)."""
    x = np.linspace(-1, 1, n)
    values, q = (1 / (1 + 25 * x**2))[None, :, None], np.linspace(-1, 1, 4001)
    exact, index = 1 / (1 + 25 * q**2), np.zeros(4001, dtype=int)
    knots = reference.knot_vector(x, 3)
    collocation = np.array([[reference.basis(knots, 3, j, t) for j in range(n)] for t in x])
    found = {}
    for name, kind, matrix in (
        ("polynomial", LagrangePath, np.vander(x)),
        ("cubic B-spline", BSplinePath, collocation),
    ):
        path: ConditionalPath = kind.fit(x, values, dtype=torch.float64)
        error = float(np.abs(path.evaluate(index, q).numpy()[:, 0] - exact).max())
        found[name] = (error, float(np.linalg.cond(matrix)))
    return found


# C4: snapshots of cells


def left_out(
    data: Snapshots,
    paths: Sequence[str] = SNAPSHOT_PATHS,
    chains: int = 600,
    seed: int = 0,
    bootstrap: bool = False,
) -> dict[str, Array]:
    """Return each path's W1 distance [interior times] to a snapshot that it did not see, without a network.

    All paths go through the same chains of exact plans. With `bootstrap` the cells of every snapshot are drawn anew
    with replacement first.
    """
    rng = np.random.default_rng(seed)
    arrays = list(data.arrays)
    if bootstrap:
        arrays = [a[rng.integers(0, len(a), len(a))] for a in arrays]
    interior = range(1, len(arrays) - 1)
    found: dict[str, list[float]] = {path: [] for path in paths}
    for k in interior:
        seen = [i for i in range(len(arrays)) if i != k]
        index = chain([arrays[i] for i in seen], n=chains, rng=rng)
        values = np.stack([arrays[i][index[:, q]] for q, i in enumerate(seen)], axis=1)
        for path in paths:
            fitted = make_path(path, data.times[seen], values, dtype=torch.float64)
            at = fitted.evaluate(np.arange(chains), np.full(chains, data.times[k])).numpy()
            found[path].append(metrics.wasserstein(at, arrays[k]))
    return {path: np.array(w) for path, w in found.items()}


@dataclass(frozen=True)
class Comparison:
    """Two paths on one data set.

    Attributes:
        linear, ours: mean W1 over interior times, on the data as they are.
        low, high: 95 % interval of ours / linear - 1 over bootstrapped cells.
        replicates: how many.
    """

    linear: float
    ours: float
    low: float
    high: float
    replicates: int


def bootstrap_left_out(data: Snapshots, ours: str = DEFAULT, replicates: int = 40, chains: int = 600) -> Comparison:
    """Compare a path with straight lines on left-out snapshots, with a bootstrap over cells."""
    plain = [left_out(data, ("linear", ours), chains, seed) for seed in range(3)]
    changes = []
    for seed in range(replicates):
        found = left_out(data, ("linear", ours), chains, 1000 + seed, bootstrap=True)
        changes.append(found[ours].mean() / found["linear"].mean() - 1)
    low, high = np.quantile(changes, [0.025, 0.975]) if changes else (np.nan, np.nan)
    means = [float(np.mean([p[name].mean() for p in plain])) for name in ("linear", ours)]
    return Comparison(means[0], means[1], float(low), float(high), replicates)


def population(system: str, times: Sequence[float], n: int = 200, seed: int = 0, spread: float = 0.15) -> Snapshots:
    """Return snapshots of a system's population, each time from other members, in standard deviations.

    Starts are normal around one point, `spread` of the system's own range wide.
    """
    rng = np.random.default_rng(seed)
    t = np.asarray(times, dtype=np.float64)
    from .systems import make_system, simulate

    made = make_system(system, rng)
    centre = made.start(1, rng)
    width = made.start(1000, rng).std(axis=0)
    x0 = np.abs(centre + spread * width * rng.normal(size=(n * len(t), made.dims))) if made.floor else (
        centre + spread * width * rng.normal(size=(n * len(t), made.dims))
    )  # fmt: skip
    rows = simulate(made, x0, np.concatenate([[0.0], t[1:]]) if t[0] == 0 else t)
    scale = rows.reshape(-1, made.dims).std(axis=0)
    arrays = tuple(rows[k * n : (k + 1) * n, k] / scale for k in range(len(t)))
    return Snapshots(f"{system} population", arrays, t, "")


# How long each system is followed: long enough to bend, not so long that the population mixes.
STUDY = {"exp": 3.0, "harmonic": 4.0, "damped": 4.0, "van-der-pol": 4.0, "fitzhugh-nagumo": 12.0, "lotka-volterra": 8.0,
         "lorenz": 0.6}  # fmt: skip
# Written down, with its horizons, before any path had been run on these systems.
UNTOUCHED = {"duffing": 5.0, "brusselator": 6.0, "toggle-switch": 5.0, "repressilator": 12.0, "sir": 15.0}


def population_study(
    paths: Sequence[str] = SNAPSHOT_PATHS,
    draws: int = 6,
    first: int = 100,
    systems: Mapping[str, float] = STUDY,
) -> dict[str, Array]:
    """Return, for every system, log(W1 / linear's W1) [draws, paths] of left-out times of generated populations.

    Five to seven snapshots at uneven random times. The default path for snapshots was chosen on the draws from 100 on
    of the systems of `STUDY`.
    """
    found = {}
    for name, end in systems.items():
        rows = []
        for seed in range(first, first + draws):
            rng = np.random.default_rng(seed)
            gaps = rng.uniform(0.3, 1.7, rng.integers(5, 8) - 1) ** 2
            times = np.concatenate([[0.0], np.cumsum(gaps)]) / gaps.sum() * end
            w1 = left_out(population(name, times.tolist(), 150, seed), ["linear", *paths], 300, seed)
            rows.append([np.log(w1[p].mean() / w1["linear"].mean()) for p in paths])
        found[name] = np.array(rows)
    return found


def learn_left_out(
    data: Snapshots, path: str, seed: int = 0, steps: int = 2000, width: int = 64, progress: bool = False
) -> Array:
    """Return W1 [interior times] of rollouts of networks, each trained without that time, from the snapshot before."""
    found = []
    for k in range(1, len(data.arrays) - 1):
        seen = [i for i in range(len(data.arrays)) if i != k]
        model = _snapshot_model(path, seed, steps, width, progress)
        model.fit_snapshots([data.arrays[i] for i in seen], data.times[seen])
        rolled = model.predict(data.arrays[k - 1], data.times[[k - 1, k]], method="rk4")
        found.append(metrics.wasserstein(rolled[:, 1], data.arrays[k]))
    return np.array(found)


def observed_marginals(data: Snapshots, path: str, seed: int = 0, steps: int = 2000) -> Array:
    """Return W1 [m] to each later snapshot of a network's rollout from the first, trained on all of them (C6)."""
    model = _snapshot_model(path, seed, steps).fit_snapshots(data.arrays, data.times)
    rolled = model.predict(data.arrays[0], data.times, method="rk4")
    return np.array([metrics.wasserstein(rolled[:, k], a) for k, a in enumerate(data.arrays) if k])


def _snapshot_model(path: str, seed: int, steps: int, width: int = 64, progress: bool = False) -> SplineFlow:
    kind, *rest = path.split()
    return SplineFlow(
        int(rest[0]) if rest else "auto", path=kind, parametrization=rest[1] if len(rest) > 1 else None,
        hidden=(width,) * 3, max_steps=steps, batch_size=512, random_state=seed, progress=progress,
    )  # fmt: skip


# C5: noise


def linear_drift(
    path: str, missing: float, g: float, seed: int = 0, n: int = 4000, dt: float = 0.1, fresh_noise: bool = False
) -> tuple[float, float]:
    """Return the drift's slope of an Ornstein-Uhlenbeck process by least squares, over the record and after t = 3.

    Velocity and scaled score are linear functions a x and b x, fitted to a path's samples; a + b estimates -0.8.
    `fresh_noise` draws the score's noise anew, as the paper's released code does.
    """
    times = np.arange(0, 10, dt)
    panel = make_sde("ou", n, times, missing, seed=seed, noise=g)
    fitted = make_path(path, times, panel.values, panel.mask, schedule=BrownianBridge(g), dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    drawn = fitted.sample(400_000, generator)
    x, u, eps, sigma, w = (
        getattr(drawn, name).numpy()[:, 0] for name in ("x", "velocity", "score_noise", "sigma", "weight")
    )
    if fresh_noise:
        eps = np.random.default_rng(seed).normal(size=eps.shape)
    late = drawn.t.numpy() > 3
    slopes = []
    for part in (np.ones_like(late), late):
        use = part & (w > 0)
        a = (x[use] * u[use]).sum() / np.square(x[use]).sum()
        weighted = 2 * sigma[use] / g**2 * x[use]
        b = -(weighted * eps[use]).sum() / np.square(weighted).sum()
        slopes.append(float(a + b))
    return slopes[0], slopes[1]


@dataclass(frozen=True)
class Ensemble:
    """A trained stochastic model beside the system's own ensemble.

    Attributes:
        drift: relative error of the drift on the central 90 % of states.
        w1, mmd: of the rollout ensemble, averaged over five times.
        degree: of the path it was trained on.
    """

    drift: float
    w1: float
    mmd: float
    degree: int


def learn_noisy(
    system: str,
    missing: float,
    degree: int | str,
    seed: int = 0,
    n: int = 400,
    steps: int = 2000,
    dt: float = 0.1,
    progress: bool = False,
) -> Ensemble:
    """Train field and score on n noisy trajectories of a system and judge drift and ensemble on 400 more."""
    times = np.arange(0, 6, dt)
    train, test = make_sde(system, n + 400, times, missing, seed=seed).split(n / (n + 400))
    model = SplineFlow(
        degree,
        stochastic=True,
        autonomous=True,
        hidden=(64,) * 3,
        max_steps=steps,
        random_state=seed,
        progress=progress,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegreeWarning)
        model.fit(train.times, train.values, train.mask)
    states = test.values.reshape(-1, test.values.shape[2])
    low, high = np.quantile(states, [0.05, 0.95], axis=0)
    central = states[((states >= low) & (states <= high)).all(axis=1)]
    drift = metrics.field_error(model.drift(0.0, central), test.system.drift(0.0, central))
    drawn = model.sample(test.values[:, 0], times, seed=seed)[0]
    at = np.linspace(len(times) // 6, len(times) - 1, 5).astype(int)
    w1 = [metrics.wasserstein(drawn[:, i], test.values[:, i]) for i in at]
    mmd = [metrics.mmd(drawn[:, i], test.values[:, i]) for i in at]
    return Ensemble(float(np.sqrt(drift)), float(np.mean(w1)), float(np.mean(mmd)), model.degree_)
