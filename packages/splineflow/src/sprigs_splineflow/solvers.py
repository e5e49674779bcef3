"""Integrators for fields and stochastic differential equations, in plain torch."""

from __future__ import annotations

import importlib.util
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .errors import BackendUnavailable, SplineFlowError

Field = Callable[[Tensor, Tensor], Tensor]


def integrate(field: Field, x0: Tensor, times: Tensor, method: str = "auto", max_step: float | None = None) -> Tensor:
    """Integrate dx/dt = field(t, x) and return states [T, B, d] at times [T], x0 [B, d] being at the first.

    Args:
        field: of a time [] and states [B, d].
        x0: [B, d].
        times: [T] float64, strictly monotone, in either direction.
        method: "dopri5" (torchdiffeq, tolerances 1e-6), "rk4", or "auto": the first where torchdiffeq is there.
        max_step: longest step of "rk4"; a hundredth of the range without.

    Raises:
        SplineFlowError: Times that are not monotone, an unknown method.
        BackendUnavailable: "dopri5" without torchdiffeq.
    """
    _check_times(times)
    installed = importlib.util.find_spec("torchdiffeq") is not None
    if method == "auto":
        method = "dopri5" if installed else "rk4"
    if len(times) == 1:
        return x0[None]
    if method == "dopri5":
        if not installed:
            raise BackendUnavailable("dopri5 needs torchdiffeq: pip install 'sprigs-splineflow[ode]'")
        from torchdiffeq import odeint

        solved: Tensor = odeint(field, x0, times.to(x0), rtol=1e-6, atol=1e-6, method="dopri5")
        return solved
    if method != "rk4":
        raise SplineFlowError(f"method must be 'auto', 'dopri5' or 'rk4'; got {method!r}")
    states, x = [x0], x0
    for t, h, steps in _steps(times, max_step, 100):
        for i in range(steps):
            at = torch.tensor(t + i * h, dtype=x.dtype, device=x.device)
            k1 = field(at, x)
            k2 = field(at + h / 2, x + h / 2 * k1)
            k3 = field(at + h / 2, x + h / 2 * k2)
            k4 = field(at + h, x + h * k3)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        states.append(x)
    return torch.stack(states)


def integrate_sde(
    drift: Field,
    diffusion: Field | Any,
    x0: Tensor,
    times: Tensor,
    generator: torch.Generator | None = None,
    method: str = "euler-maruyama",
    max_step: float | None = None,
) -> Tensor:
    """Integrate dX = drift dt + diffusion dW with diagonal noise and return states [T, B, d] at times [T].

    Args:
        drift: of a time [] and states [B, d].
        diffusion: a number, one for each dimension, or such a function.
        x0: [B, d].
        times: [T] float64, strictly increasing.
        generator: torch's.
        method: "euler-maruyama" (Ito; strong order 1/2, 1 with additive noise) or "heun" (Stratonovich: the same as Ito
            where diffusion does not depend on the state).
        max_step: longest step; a five-hundredth of the range without.

    Raises:
        SplineFlowError: Times that do not increase, an unknown method.
    """
    _check_times(times, increasing=True)
    if method not in ("euler-maruyama", "heun"):
        raise SplineFlowError(f"method must be 'euler-maruyama' or 'heun'; got {method!r}")
    if callable(diffusion):
        spread = diffusion
    else:
        constant = torch.as_tensor(np.asarray(diffusion), dtype=x0.dtype, device=x0.device)

        def spread(t: Tensor, x: Tensor) -> Tensor:
            return constant

    states, x = [x0], x0
    for t, h, steps in _steps(times, max_step, 500):
        for i in range(steps):
            at = torch.tensor(t + i * h, dtype=x.dtype, device=x.device)
            noise = torch.randn(x.shape, generator=generator, dtype=x.dtype, device=x.device) * math.sqrt(h)
            f, s = drift(at, x), spread(at, x)
            ahead = x + f * h + s * noise
            if method == "heun":
                later = at + h
                ahead = x + (f + drift(later, ahead)) * (h / 2) + (s + spread(later, ahead)) / 2 * noise
            x = ahead
        states.append(x)
    return torch.stack(states)


def _check_times(times: Tensor, increasing: bool = False) -> None:
    steps = times.diff()
    fits = times.ndim == 1 and len(times) > 0 and bool(torch.isfinite(times).all())
    if not fits or not (bool((steps > 0).all()) or (not increasing and bool((steps < 0).all()))):
        raise SplineFlowError("times must be [T], finite and strictly " + ("increasing" if increasing else "monotone"))


def _steps(times: Tensor, max_step: float | None, parts: int) -> list[tuple[float, float, int]]:
    """Return start, signed step and number of steps of each interval."""
    t = times.tolist()
    longest = abs(t[-1] - t[0]) / parts if max_step is None else max_step
    if not 0 < longest < math.inf and len(t) > 1:
        raise SplineFlowError(f"max_step must be above 0; got {max_step!r}")
    found = []
    for a, b in itertools.pairwise(t):
        n = max(1, math.ceil(abs(b - a) / longest - 1e-9))
        found.append((a, (b - a) / n, n))
    return found
