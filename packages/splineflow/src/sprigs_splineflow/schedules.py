"""Widths of the Gaussian conditional path around its mean: p_t(x | z) = N(mu(t), s(t)^2 I)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from .errors import SplineFlowError


class Schedule(Protocol):
    """The width s(t) and its derivative."""

    @property
    def margin(self) -> float:
        """The share of a gap between observations, at either end, in which no time is drawn."""

    @property
    def bridges(self) -> bool:
        """Whether the width depends on the neighbouring observations."""

    def width(self, t: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        """Return s and s' [B, 1] or [B, d] at times t between observations at `left` and `right`, of the same shape."""


@dataclass(frozen=True)
class ConstantSigma:
    """s = sigma everywhere, so the velocity target has no noise of its own (Lipman et al., 2023).

    Attributes:
        sigma: a number or one for each dimension, in the units of the states.
    """

    sigma: Any = 0.08
    margin = 0.0
    bridges = False

    def __post_init__(self) -> None:
        """Check sigma.

        Raises:
            SplineFlowError: It is negative or not finite.
        """
        _check("sigma", self.sigma, positive=False)

    def width(self, t: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        """Return sigma and zero, [1, 1] or [1, d]."""
        s = _per_dimension(self.sigma, t)
        return s, torch.zeros_like(s)


@dataclass(frozen=True)
class BrownianBridge:
    """s^2 = g^2 (t - l)(r - t) / (r - l) between observations: the bridge of dX = g dW (Tong et al., 2024, extended).

    Attributes:
        g: the diffusion, a number or one for each dimension, in states over the root of time.
        margin: times closer to an observation than this share of the gap are not drawn, since s' grows without bound.
    """

    g: Any
    margin: float = 0.02
    bridges = True

    def __post_init__(self) -> None:
        """Check g and the margin.

        Raises:
            SplineFlowError: They are out of range.
        """
        _check("g", self.g, positive=True)
        _check_margin(self.margin)

    def width(self, t: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        """Return the bridge's standard deviation and its derivative."""
        return _bridge(_per_dimension(self.g, t), t, left, right, root=True)


@dataclass(frozen=True)
class RescaledBridge:
    """s = g sqrt((t - l)(r - t)) / (r - l): as wide in a long gap as in a short one ("quadratic" in the paper's code).

    Attributes:
        g: twice the width in the middle of a gap, a number or one for each dimension, in the units of the states.
        margin: as in `BrownianBridge`.
    """

    g: Any
    margin: float = 0.02
    bridges = True

    def __post_init__(self) -> None:
        """Check g and the margin.

        Raises:
            SplineFlowError: They are out of range.
        """
        _check("g", self.g, positive=True)
        _check_margin(self.margin)

    def width(self, t: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        """Return the width and its derivative."""
        return _bridge(_per_dimension(self.g, t), t, left, right, root=False)


def _bridge(g: Tensor, t: Tensor, left: Tensor, right: Tensor, root: bool) -> tuple[Tensor, Tensor]:
    gap = right - left
    below, above = t - left, right - t
    norm = gap.sqrt() if root else gap
    spread = (below * above).clamp(min=0).sqrt()
    s = g * spread / norm
    ds = g * (above - below) / (2 * spread * norm)
    return s, ds


def _per_dimension(value: Any, like: Tensor) -> Tensor:
    return torch.as_tensor(np.asarray(value, dtype=np.float64), device=like.device).reshape(1, -1).to(like.dtype)


def _check(name: str, value: Any, positive: bool) -> None:
    number = np.asarray(value, dtype=np.float64)
    low = number.min() if number.size else math.nan
    if number.ndim > 1 or not np.isfinite(number).all() or not (low > 0 if positive else low >= 0):
        wanted = "above 0" if positive else "at least 0"
        raise SplineFlowError(f"{name} must be {wanted} and finite, a number or one for each dimension; got {value!r}")


def _check_margin(margin: float) -> None:
    if not 0 < margin < 0.5:
        raise SplineFlowError(f"margin is a share of a gap, between 0 and 0.5; got {margin!r}")
