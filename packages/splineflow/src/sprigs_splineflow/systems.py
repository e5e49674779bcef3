"""Dynamical systems with known fields, deterministic and stochastic (the paper's code, and classics beside)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import SplineFlowError

Array = npt.NDArray[np.float64]
Field = Callable[[Any, Array], Array]


@dataclass(frozen=True)
class System:
    """An autonomous system dX = f(X) dt + g dW.

    Attributes:
        name: how `make_system` calls it.
        dims: d.
        parameters: its constants.
        drift: f of a time (which it ignores) and states [..., d].
        start: [n, d] initial states drawn by a generator.
        noise: [d] diffusion of the stochastic version.
        dt: step of the stochastic version's integrator.
        flow: exact states [n, T, d] from starts [n, d] after times [T] or [n, T], where there is a closed form.
        floor: states of the stochastic version are kept above it.
    """

    name: str
    dims: int
    parameters: Mapping[str, float]
    drift: Field
    start: Callable[[int, np.random.Generator], Array]
    noise: Array
    dt: float = 0.01
    flow: Callable[[Array, Array], Array] | None = field(default=None)
    floor: float | None = None


def _linear(matrix: Array) -> tuple[Field, Callable[[Array, Array], Array]]:
    def drift(t: Any, x: Array) -> Array:
        return x @ matrix.T

    def flow(x0: Array, times: Array) -> Array:
        from scipy.linalg import expm

        propagators = expm(matrix * times[..., None, None])
        states: Array = (propagators @ x0[:, None, :, None])[..., 0]
        return states

    return drift, flow


def _box(low: float, high: float, d: int) -> Callable[[int, np.random.Generator], Array]:
    return lambda n, rng: rng.uniform(low, high, (n, d))


def _exp(u: Callable[..., float]) -> System:
    rate = u(0.2, 1.5)
    drift, flow = _linear(np.array([[-rate]]))
    return System("exp", 1, {"lambda": rate}, drift, _box(0.5, 2, 1), np.array([0.08]), flow=flow)


def _ou(u: Callable[..., float]) -> System:
    drift, flow = _linear(np.array([[-0.8]]))
    return System("ou", 1, {"theta": 0.8}, drift, _box(-2, 2, 1), np.array([0.08]), flow=flow)


def _harmonic(u: Callable[..., float]) -> System:
    w = u(0.5, 2.5)
    drift, flow = _linear(np.array([[0.0, 1.0], [-w * w, 0.0]]))
    return System("harmonic", 2, {"omega": w}, drift, _box(-1, 1, 2), np.array([0.0, 0.08]), 0.005, flow)


def _damped(u: Callable[..., float]) -> System:
    w, gamma = u(0.8, 2), u(0.1, 0.7)
    drift, flow = _linear(np.array([[0.0, 1.0], [-w * w, -2 * gamma]]))
    constants = {"omega": w, "gamma": gamma}
    return System("damped", 2, constants, drift, _box(-1, 1, 2), np.array([0.0, 0.08]), 0.005, flow)


def _lotka_volterra(u: Callable[..., float]) -> System:
    a, b, delta, gamma = u(0.5, 1.5), u(0.02, 0.08), u(0.02, 0.08), u(0.5, 1.5)

    def drift(t: Any, x: Array) -> Array:
        prey, predators = x[..., 0], x[..., 1]
        return np.stack([a * prey - b * prey * predators, delta * prey * predators - gamma * predators], axis=-1)

    constants = {"alpha": a, "beta": b, "delta": delta, "gamma": gamma}
    return System("lotka-volterra", 2, constants, drift, _box(0.5, 2.5, 2), np.full(2, 0.08), 0.01, floor=1e-8)


def _lorenz(u: Callable[..., float]) -> System:
    sigma, rho, beta = u(8, 14), u(20, 35), u(2, 3.5)

    def drift(t: Any, x: Array) -> Array:
        a, b, c = x[..., 0], x[..., 1], x[..., 2]
        return np.stack([sigma * (b - a), a * (rho - c) - b, a * b - beta * c], axis=-1)

    constants = {"sigma": sigma, "rho": rho, "beta": beta}
    return System("lorenz", 3, constants, drift, _box(-15, 15, 3), np.full(3, 0.08), 0.001)


def _van_der_pol(u: Callable[..., float]) -> System:
    def drift(t: Any, x: Array) -> Array:
        return np.stack([x[..., 1], 2 * (1 - x[..., 0] ** 2) * x[..., 1] - x[..., 0]], axis=-1)

    return System("van-der-pol", 2, {"mu": 2.0}, drift, _box(-2, 2, 2), np.full(2, 0.08), 0.005)


def _fitzhugh_nagumo(u: Callable[..., float]) -> System:
    def drift(t: Any, x: Array) -> Array:
        v, w = x[..., 0], x[..., 1]
        return np.stack([v - v**3 / 3 - w + 0.5, (v + 0.7 - 0.8 * w) / 12.5], axis=-1)

    constants = {"a": 0.7, "b": 0.8, "tau": 12.5, "I": 0.5}
    return System("fitzhugh-nagumo", 2, constants, drift, _box(-2, 2, 2), np.full(2, 0.08), 0.01)


def _duffing(u: Callable[..., float]) -> System:
    """Two wells and friction."""
    delta, alpha, beta = u(0.1, 0.4), u(0.5, 1.5), u(0.5, 1.5)

    def drift(t: Any, x: Array) -> Array:
        return np.stack([x[..., 1], alpha * x[..., 0] - beta * x[..., 0] ** 3 - delta * x[..., 1]], axis=-1)

    constants = {"delta": delta, "alpha": alpha, "beta": beta}
    return System("duffing", 2, constants, drift, _box(-1.5, 1.5, 2), np.array([0.0, 0.08]), 0.005)


def _brusselator(u: Callable[..., float]) -> System:
    """Prigogine and Lefever's autocatalytic reaction, on its limit cycle for b > 1 + a^2."""
    a, b = u(0.8, 1.2), u(2.6, 3.4)

    def drift(t: Any, x: Array) -> Array:
        made = x[..., 0] ** 2 * x[..., 1]
        return np.stack([a + made - (b + 1) * x[..., 0], b * x[..., 0] - made], axis=-1)

    return System("brusselator", 2, {"a": a, "b": b}, drift, _box(0.5, 3, 2), np.full(2, 0.08), 0.005, floor=1e-8)


def _toggle(u: Callable[..., float]) -> System:
    """Two genes that repress each other, with Hill's exponent 2 (Gardner, Cantor and Collins 2000)."""
    a, b = u(3, 6), u(3, 6)

    def drift(t: Any, x: Array) -> Array:
        return np.stack([a / (1 + x[..., 1] ** 2) - x[..., 0], b / (1 + x[..., 0] ** 2) - x[..., 1]], axis=-1)

    return System("toggle-switch", 2, {"a": a, "b": b}, drift, _box(0, 3, 2), np.full(2, 0.08), floor=1e-8)


def _repressilator(u: Callable[..., float]) -> System:
    """Three genes in a ring of repression, messengers then proteins (Elowitz and Leibler 2000)."""
    alpha, beta = u(20, 60), u(0.5, 2)

    def drift(t: Any, x: Array) -> Array:
        m, p = x[..., :3], x[..., 3:]
        return np.concatenate([alpha / (1 + np.roll(p, 1, axis=-1) ** 2) - m + 0.2, beta * (m - p)], axis=-1)

    constants = {"alpha": alpha, "beta": beta}
    return System("repressilator", 6, constants, drift, _box(0, 10, 6), np.full(6, 0.08), floor=1e-8)


def _sir(u: Callable[..., float]) -> System:
    """Kermack and McKendrick's epidemic: shares of susceptible and infected."""
    beta, gamma = u(0.8, 2), u(0.1, 0.4)

    def drift(t: Any, x: Array) -> Array:
        caught = beta * x[..., 0] * x[..., 1]
        return np.stack([-caught, caught - gamma * x[..., 1]], axis=-1)

    def start(n: int, rng: np.random.Generator) -> Array:
        return np.stack([rng.uniform(0.8, 0.95, n), rng.uniform(0.005, 0.05, n)], axis=1)

    return System("sir", 2, {"beta": beta, "gamma": gamma}, drift, start, np.full(2, 0.01), floor=0.0)


SYSTEMS: dict[str, Callable[[Callable[..., float]], System]] = {
    "exp": _exp,
    "harmonic": _harmonic,
    "damped": _damped,
    "lotka-volterra": _lotka_volterra,
    "lorenz": _lorenz,
    "van-der-pol": _van_der_pol,
    "fitzhugh-nagumo": _fitzhugh_nagumo,
    "duffing": _duffing,
    "brusselator": _brusselator,
    "toggle-switch": _toggle,
    "repressilator": _repressilator,
    "sir": _sir,
    "ou": _ou,
}


def make_system(name: str, rng: Any = None) -> System:
    """Draw a system's constants: from the ranges of the paper's code where it has the system.

    Args:
        name: a key of `SYSTEMS`.
        rng: a seed or a NumPy generator.

    Raises:
        SplineFlowError: There is no such system.
    """
    if name not in SYSTEMS:
        raise SplineFlowError(f"there is no system {name!r}; there are {', '.join(SYSTEMS)}")
    return SYSTEMS[name](np.random.default_rng(rng).uniform)


def simulate(system: System, x0: Array, times: Array) -> Array:
    """Return states [n, T, d] of the deterministic system, x0 [n, d] being at time 0.

    Exact where there is a closed form; else the method of Dormand and Prince of order 8 at a relative tolerance of
    1e-10, all trajectories as one system.

    Args:
        system: what is solved.
        x0: [n, d] starts.
        times: sorted, [T], or [n, T] where each trajectory has its own.

    Raises:
        SplineFlowError: The solver gave up.
    """
    if system.flow is not None:
        return system.flow(x0, times)
    if times.ndim == 1:
        return _integrated(system, x0, np.ones((len(x0), 1)), times)
    # Between two observations each trajectory gets a clock of its own that runs from 0 to 1: the field is autonomous.
    x, now = x0, np.zeros(len(x0))
    out = np.empty((*times.shape, system.dims))
    for i, t in enumerate(times.T):
        if (t > now).any():
            x = _integrated(system, x, (t - now)[:, None], np.ones(1))[:, 0]
        out[:, i], now = x, t
    return out


def _integrated(system: System, x0: Array, speed: Array, times: Array) -> Array:
    """Solve dx/dt = speed f(x), speed [n, 1], for states [n, T, d] at times [T]."""
    from scipy.integrate import solve_ivp

    n, d = x0.shape
    solved = solve_ivp(
        lambda t, y: (speed * system.drift(t, y.reshape(n, d))).ravel(), (0.0, float(times[-1])), x0.ravel(), "DOP853",
        times, rtol=1e-10, atol=1e-10,
    )  # fmt: skip
    if not solved.success:
        raise SplineFlowError(f"{system.name} could not be integrated: {solved.message}")
    return np.asarray(solved.y.reshape(n, d, len(times)).transpose(0, 2, 1))


def simulate_noisy(system: System, x0: Array, times: Array, rng: np.random.Generator, noise: Array) -> Array:
    """Return Euler-Maruyama paths [n, T, d] of dX = f dt + noise dW, x0 [n, d] being at time 0.

    Args:
        system: what is solved, with steps of at most its `dt`, and kept above its `floor`.
        x0: [n, d] starts.
        times: sorted, [T], or [n, T] where each trajectory has its own.
        rng: of the increments.
        noise: [d] diffusion g.
    """
    x, now = x0.copy(), np.zeros((1, 1))
    out = np.empty((len(x0), times.shape[-1], x0.shape[1]))
    for i in range(times.shape[-1]):
        t = times[..., i].reshape(-1, 1)
        # As many steps for all trajectories as the longest gap takes, each of its own length.
        steps = int(np.ceil((t - now).max() / system.dt - 1e-9))
        for _ in range(steps):
            h = (t - now) / steps
            x = x + system.drift(0.0, x) * h + noise * np.sqrt(h) * rng.normal(size=x.shape)
            if system.floor is not None:
                x = np.maximum(x, system.floor)
        out[:, i], now = x, t
    return out
