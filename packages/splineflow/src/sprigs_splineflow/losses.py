"""Losses of flow and score matching, for use in a training loop of your own (paper, M4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .conditional import PathSample
from .errors import SplineFlowError

Field = Callable[[Tensor, Tensor], Tensor]


def weighted_mean(squares: Tensor, weight: Tensor) -> Tensor:
    """Return the mean of squares [B, d] over what has weight, so that a mask does not change the loss's scale."""
    total = weight.sum()
    if not bool(total > 0):
        raise SplineFlowError("no draw of this batch is supported by observations: enlarge the batch")
    return (squares * weight).sum() / total


def flow_matching_loss(model: Field, sample: PathSample) -> Tensor:
    """Return the mean squared error of a vector field against the conditional velocity, E |v(t, x_t) - u_t|^2.

    Args:
        model: v(t [B], x [B, d]) -> [B, d].
        sample: draws of a path.

    Returns:
        A scalar, per dimension.
    """
    found = model(sample.t.to(sample.x.dtype), sample.x)
    return weighted_mean((found - sample.velocity).square(), sample.weight)


def score_flow_matching_loss(model: Field, score_model: Field, sample: PathSample, g: Any) -> tuple[Tensor, Tensor]:
    """Return the losses of the flow and of the scaled score s = (g^2 / 2) grad log p (SF2M; Tong et al., 2024).

    The score's loss is E |lambda(t) s(t, x_t) + eps|^2 with lambda = 2 sigma / g^2 and the eps that made x_t: drawn
    anew, as in the paper's released code, its optimum would be s = 0.

    Args:
        model: v(t [B], x [B, d]) -> [B, d].
        score_model: s(t [B], x [B, d]) -> [B, d]; drift = v + s.
        sample: draws of a path.
        g: the diffusion, a number or one for each dimension, above 0.
    """
    diffusion = torch.as_tensor(np.asarray(g, dtype=np.float64), dtype=sample.x.dtype, device=sample.x.device)
    if not bool((diffusion > 0).all()):
        raise SplineFlowError(f"g must be above 0; got {g!r}")
    scaled = score_model(sample.t.to(sample.x.dtype), sample.x)
    residual = 2 * sample.sigma / diffusion**2 * scaled + sample.score_noise
    return flow_matching_loss(model, sample), weighted_mean(residual.square(), sample.weight)
