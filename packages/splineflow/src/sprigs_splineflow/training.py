"""The training loop of `SplineFlow`, and the scaling that keeps what networks see near unit variance."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .conditional import ConditionalPath, PathSample, TimeSampler
from .errors import InterruptedWarning, SplineFlowError
from .losses import weighted_mean
from .networks import ResidualMLP

POOL = 8192  # samples drawn at once
Array = npt.NDArray[np.float64]


@dataclass
class Scaling:
    """How the network's numbers and the data's are related; everything the network sees is near unit variance.

    Attributes:
        x_mean, x_std: [d] of the observations (not of interpolated points).
        t_mean, t_std: of the observed times.
        v_mean, v_std: [d] of velocity targets of standardised states per unit of raw time.
        c_mean, c_std: [c] of conditions.
        g: [d] diffusion of standardised states, zeros without.
        s_scale: [d] g^2 / (2 sigma) at a typical sigma: what the score network's output is multiplied by.
    """

    x_mean: Array
    x_std: Array
    t_mean: Array
    t_std: Array
    v_mean: Array
    v_std: Array
    c_mean: Array
    c_std: Array
    g: Array
    s_scale: Array


@dataclass(frozen=True)
class Plan:
    """How to train: AdamW, the rate falling to zero along a cosine.

    Attributes:
        steps, batch, lr, weight_decay: of the optimiser.
        t_sampler: as in `ConditionalPath.sample`.
        progress: whether to show a bar.
    """

    steps: int
    batch: int
    lr: float
    weight_decay: float
    t_sampler: TimeSampler
    progress: bool


def moments(rows: Array) -> tuple[Array, Array]:
    """Return mean and standard deviation of rows [n, d], NaN left out; 1 for a column that never changes."""
    mean, std = np.nanmean(rows, axis=0), np.nanstd(rows, axis=0)
    still = std <= 1e-12 * np.abs(mean)
    return np.atleast_1d(mean), np.atleast_1d(np.where(still, 1.0, std))


def train(
    path: ConditionalPath,
    networks: tuple[ResidualMLP, ResidualMLP | None],
    scaling: Scaling,
    constants: dict[str, Tensor],
    plan: Plan,
    generator: torch.Generator,
    cond: Tensor | None,
) -> npt.NDArray[np.float32]:
    """Train the flow's network, and the score's where there is one, in place.

    Args:
        path: of standardised states.
        networks: the flow's and the score's.
        scaling, constants: the same numbers as arrays and as tensors on the path's device.
        plan: how.
        generator: of draws.
        cond: [N, c] standardised conditions of each trajectory.

    Returns:
        The flow's loss at each step, in units of the targets' variance. Interrupted from the keyboard, what was done.

    Raises:
        SplineFlowError: The loss is not finite.
    """
    from tqdm import tqdm

    network, score = networks
    parameters = [p for n in networks if n is not None for p in n.parameters()]
    optimiser = _optimiser(parameters, plan)
    batches = _batches(path, scaling, constants, plan, generator)
    losses = torch.full((plan.steps,), float("nan"))
    done = 0
    bar = tqdm(total=plan.steps, disable=not plan.progress, unit="step", leave=False)
    try:
        for step in range(plan.steps):
            drawn, t, target = next(batches)
            c = None if cond is None else cond[drawn.index]
            loss = weighted_mean((network(t, drawn.x, c) - target).square(), drawn.weight)
            total = loss
            if score is not None:
                # s = output s_scale, so lambda s = 2 sigma / g^2 s_scale output: near one at a typical sigma.
                factor = 2 * drawn.sigma * constants["s_scale"] / constants["g"] ** 2
                residual = factor * score(t, drawn.x, c) + drawn.score_noise
                total = loss + weighted_mean(residual.square(), drawn.weight)
            optimiser.zero_grad(set_to_none=True)
            total.backward()
            for group in optimiser.param_groups:
                group["lr"] = plan.lr * 0.5 * (1 + math.cos(math.pi * step / plan.steps))
            optimiser.step()
            losses[step] = loss.detach()
            done = step + 1
            if done % 50 == 0 or done == plan.steps:
                bar.set_postfix(loss=f"{losses[max(0, done - 50) : done].mean():.4g}", refresh=False)
            bar.update()
    except KeyboardInterrupt:
        warnings.warn(
            f"training was interrupted after {done} of {plan.steps} steps; the model is as it was then",
            InterruptedWarning,
            stacklevel=5,
        )
    finally:
        bar.close()
    found: npt.NDArray[np.float32] = losses[:done].numpy()
    if done and not np.isfinite(found[-1]):
        raise SplineFlowError("training diverged: lower lr, or look for outliers in the observations")
    return found


def _optimiser(parameters: list[Tensor], plan: Plan) -> torch.optim.Optimizer:
    try:
        # One kernel for all parameters: for small networks a third less time a step.
        return torch.optim.AdamW(parameters, lr=plan.lr, weight_decay=plan.weight_decay, fused=True)
    except RuntimeError:  # torch before 2.4 on the CPU, or a device without it
        return torch.optim.AdamW(parameters, lr=plan.lr, weight_decay=plan.weight_decay)


def _batches(
    path: ConditionalPath, scaling: Scaling, constants: dict[str, Tensor], plan: Plan, generator: torch.Generator
) -> Iterator[tuple[PathSample, Tensor, Tensor]]:
    """Yield batches, their times and velocities as the network sees them.

    Several batches are drawn at once where draws are independent: a call costs as much as drawing some hundred.
    """
    many = max(1, POOL // plan.batch) if plan.t_sampler in ("uniform", "interval") else 1
    while True:
        drawn = path.sample(plan.batch * many, generator, plan.t_sampler)
        t = ((drawn.t - scaling.t_mean[0]) / scaling.t_std[0]).float()
        target = (drawn.velocity - constants["v_mean"]) / constants["v_std"]
        for start in range(0, plan.batch * many, plan.batch):
            part = slice(start, start + plan.batch)
            yield PathSample(*(value[part] for value in vars(drawn).values())), t[part], target[part]
