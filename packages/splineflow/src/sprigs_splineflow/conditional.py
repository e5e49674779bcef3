"""What all conditional paths share: evaluation, and noisy samples with their velocity targets (paper, M1 to M3)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .errors import SplineFlowError
from .piecewise import Breaks, PiecewisePolynomial, compiled
from .records import Records
from .schedules import ConstantSigma, Schedule

Array = npt.NDArray[np.float64]
TimeSampler = Literal["uniform", "stratified", "interval"] | Callable[[int, torch.Generator | None], Tensor]
DEFAULT_SIGMA = 0.08  # of a standard deviation: the released code's default
_CHUNK = 1 << 16  # pairs evaluated at a time: temporaries stay in a core's cache


@dataclass(frozen=True)
class PathSample:
    """Draws from a conditional path; each has a name so that none can be taken for another.

    Attributes:
        t: [B] times, float64.
        x: [B, d] noisy states x_t = mu + sigma * score_noise: the model's input.
        mu: [B, d] the path itself.
        velocity: [B, d] the regression target u_t(x_t | z) = mu' + sigma' * score_noise.
        score_noise: [B, d] the same standard normal draw that made x; grad log p_t(x | z) = -score_noise / sigma.
        sigma: [B, d] standard deviations.
        weight: [B, d] 1 where the path is supported by observations, 0 elsewhere.
        index: [B] trajectories.
    """

    t: Tensor
    x: Tensor
    mu: Tensor
    velocity: Tensor
    score_noise: Tensor
    sigma: Tensor
    weight: Tensor
    index: Tensor


class ConditionalPath:
    """A path through each trajectory's observations, and the Gaussian tube around it.

    Build one with a subclass's `fit`. `len(path)` is the number of trajectories.

    Attributes:
        records: the observations, sorted into grids.
        schedule: the width of the tube.
        extrapolation: "mask" gives no weight to a dimension before its first and after its last observation; "flat"
            takes the path as constant there, with zero velocity, as the paper's released code does.
    """

    interpolates = True

    def __init__(
        self,
        records: Records,
        polynomial: PiecewisePolynomial | None,
        schedule: Schedule | None,
        extrapolation: str,
        dtype: torch.dtype,
        time_map: PiecewisePolynomial | None = None,
    ) -> None:
        if extrapolation not in ("mask", "flat"):
            raise SplineFlowError(f"extrapolation must be 'mask' or 'flat'; got {extrapolation!r}")
        if dtype not in (torch.float32, torch.float64):
            raise SplineFlowError(f"dtype must be torch.float32 or torch.float64; got {dtype!r}")
        if records.n_trajectories and isinstance(schedule, ConstantSigma):
            _check_dims(schedule.sigma, records.dims)
        self.records = records
        self.extrapolation = extrapolation
        self.dtype = dtype
        self.schedule: Schedule = schedule or ConstantSigma(DEFAULT_SIGMA * spread(records))
        self._polynomial = polynomial
        self._map = time_map
        self._constant: tuple[Schedule, Tensor] | None = None
        padded = np.where(np.arange(records.sites.shape[1]) < records.counts[:, None], records.sites, math.inf)
        if padded.shape[1] == 1:
            padded = np.concatenate([padded, np.full_like(padded, math.inf)], axis=1)
        self._sites = Breaks(padded)
        begins, ends = records.first, records.last
        if records.layout == "dimension":
            begins = begins.reshape(-1, records.dims).min(axis=1)
            ends = ends.reshape(-1, records.dims).max(axis=1)
        self._begins, self._ends = (
            torch.from_numpy(np.broadcast_to(edge, records.n_trajectories).copy()) for edge in (begins, ends)
        )

    def __len__(self) -> int:
        """Return the number of trajectories."""
        return self.records.n_trajectories

    @property
    def device(self) -> torch.device:
        """Where the path is evaluated."""
        return self._begins.device

    @property
    def dims(self) -> int:
        """Return the number of dimensions d."""
        return self.records.dims

    @property
    def time_range(self) -> tuple[float, float]:
        """First and last observed time of any trajectory."""
        return float(self._begins.min()), float(self._ends.max())

    def to(self, device: torch.device | str) -> Self:
        """Move the path to a device, in place, and return it."""
        for part in (self._polynomial, self._map, self._sites):
            if part is not None:
                part.to(device)
        self._begins, self._ends = self._begins.to(device), self._ends.to(device)
        return self

    def evaluate(self, index: Any, t: Any, nu: int = 0) -> Tensor:
        """Return the path (nu = 0), its velocity (1) or a higher derivative.

        Args:
            index: [B] trajectories.
            t: [B] times; differentiable.
            nu: order of the derivative.

        Returns:
            [B, d]. Before a dimension's first and after its last observation the path is flat. At a kink the derivative
            is the right-hand one, except at the last time.

        Raises:
            SplineFlowError: Indices out of range, times not finite, shapes that do not fit.
        """
        if not isinstance(nu, int) or nu < 0:
            raise SplineFlowError(f"nu must be an order of differentiation, 0 or more; got {nu!r}")
        index, t = self._check_pairs(index, t)
        return torch.cat([self._derivatives(i, s, (nu,))[0] for i, s in _chunks(index, t)])

    def _check_pairs(self, index: Any, t: Any) -> tuple[Tensor, Tensor]:
        # Through NumPy: torch would read a list of numbers as float32.
        index, t = (
            torch.as_tensor(a if isinstance(a, Tensor) else np.asarray(a), device=self.device) for a in (index, t)
        )
        if index.ndim != 1 or t.shape != index.shape:
            raise SplineFlowError(f"index and t must be [B]; got {tuple(index.shape)} and {tuple(t.shape)}")
        if index.dtype.is_floating_point or index.dtype == torch.bool:
            raise SplineFlowError(f"index must hold whole numbers; got {index.dtype}")
        if len(index) and not (int(index.min()) >= 0 and int(index.max()) < len(self)):
            raise SplineFlowError(f"index must be within 0..{len(self) - 1}")
        if not bool(torch.isfinite(t).all()):
            raise SplineFlowError("times must be finite")
        return index.long(), t.to(torch.float64)

    def _derivatives(self, index: Tensor, t: Tensor, orders: tuple[int, ...]) -> tuple[Tensor, ...]:
        """Return derivatives [B, d] by the chain rule over the time map, if there is one."""
        assert self._polynomial is not None
        grid = self._polynomial.grid(index)
        if grid.ndim == 2:
            t = t[:, None].expand(grid.shape)
        if self._map is None:
            return self._polynomial.derivatives(index, t, orders)
        flat, times = grid.reshape(-1), t.reshape(-1)
        most = max(orders)
        maps = self._map.derivatives(flat, times, tuple(range(most + 1)))
        u = [m[:, 0].reshape(grid.shape) for m in maps]
        outer = self._polynomial.derivatives(index, u[0], tuple(range(most + 1)))
        steps = [m if m.ndim == 2 else m[:, None] for m in u]
        chained = [outer[0]]
        if most >= 1:
            chained.append((outer[1] * steps[1]).to(self.dtype))
        if most >= 2:
            chained.append((outer[2] * steps[1] ** 2 + outer[1] * steps[2]).to(self.dtype))
        if most >= 3:
            raise SplineFlowError("paths with a time map have derivatives up to the second")
        return tuple(chained[nu] for nu in orders)

    def sample(
        self,
        batch: int,
        generator: torch.Generator | None = None,
        t_sampler: TimeSampler = "uniform",
        index: Any = None,
        t: Any = None,
    ) -> PathSample:
        """Draw (trajectory, time) pairs and a noisy state, its velocity target and its noise for each.

        Args:
            batch: B, how many.
            generator: torch's, for reproducible draws, on the path's device.
            t_sampler: "uniform" over each trajectory's time, "stratified" (one draw in each of B equal parts),
                "interval" (gaps between observations are equally likely), or a function of B and the generator that
                returns B numbers in [0, 1].
            index: [B] trajectories instead of random ones.
            t: [B] times instead of random ones.

        Returns:
            States in the path's dtype, times in float64.

        Raises:
            SplineFlowError: Arguments that do not fit.
        """
        if isinstance(batch, bool) or not isinstance(batch, int) or batch < 1:
            raise SplineFlowError(f"batch must be a positive whole number; got {batch!r}")
        device, given = self.device, t is not None
        if index is None:
            index = torch.randint(len(self), (batch,), generator=generator, device=device)
        else:
            index = self._check_pairs(index, torch.zeros(batch, device=device))[0]
        if t is None:
            t = self._draw_times(index, batch, generator, t_sampler)
        else:
            index, t = self._check_pairs(index, t)
        if len(index) != batch:
            raise SplineFlowError(f"expected {batch} trajectories; got {len(index)}")
        with torch.no_grad():
            mu, slope, inside = self._value_and_velocity(index, t)
            weight, sigma, dsigma = self._tube(index, t, given, inside)
            noise = torch.randn(mu.shape, generator=generator, dtype=self.dtype, device=device)
            x = torch.addcmul(mu, sigma, noise)
            velocity = slope if dsigma is None else torch.addcmul(slope, dsigma, noise)
        return PathSample(t, x, mu, velocity, noise, sigma.expand_as(mu), weight, index)

    def sample_location_and_conditional_flow(
        self, batch: int, generator: torch.Generator | None = None, return_noise: bool = False, **options: Any
    ) -> tuple[Tensor, ...]:
        """Return t [B], x_t [B, d], u_t [B, d] and, if asked, the noise that made x_t, as torchcfm's matchers do.

        Args:
            batch, generator: as in `sample`.
            return_noise: whether to return the noise too.
            options: further arguments of `sample`.
        """
        drawn = self.sample(batch, generator, **options)
        found = (drawn.t.to(self.dtype), drawn.x, drawn.velocity)
        return (*found, drawn.score_noise) if return_noise else found

    def _value_and_velocity(self, index: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return both [B, d], and where times are within the records [B, 1 or d], if that is known."""
        if self.device.type == "cpu" and self._polynomial is not None and compiled() is not None:
            return self._compiled(self._polynomial, index, t)
        parts = [self._derivatives(i, s, (0, 1)) for i, s in _chunks(index, t)]
        mu, slope = (torch.cat(p) if len(parts) > 1 else p[0] for p in zip(*parts, strict=True))
        return mu, slope, None

    def _compiled(
        self, polynomial: PiecewisePolynomial, index: Tensor, t: Tensor
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        if self._map is None:
            if polynomial.layout == "dimension":
                t = t[:, None].expand(len(t), self.dims)
            return polynomial.pairs(index, t)
        grid = polynomial.grid(index)
        times = t if grid.ndim == 1 else t[:, None].expand(grid.shape)
        u, du, inside = self._map.pairs(grid.reshape(-1), times.reshape(-1))
        mu, slope, _ = polynomial.pairs(index, u.reshape(grid.shape))
        inside = inside.reshape(len(index), -1).to(self.dtype)
        return mu, (slope * du.reshape(len(index), -1)).to(self.dtype), inside

    def _draw_times(self, index: Tensor, batch: int, generator: torch.Generator | None, sampler: TimeSampler) -> Tensor:
        device = self.device
        # One grid for all: its ends are numbers, and need not be looked up.
        shared = self.records.layout == "shared"
        first: Any = self.records.first[0] if shared else self._begins[index]
        last: Any = self.records.last[0] if shared else self._ends[index]
        uniform = torch.rand(batch, generator=generator, dtype=torch.float64, device=device)
        if sampler == "interval":
            grid = self._grid_of(index)
            if grid.ndim == 2:
                chosen = torch.randint(self.dims, (batch, 1), generator=generator, device=device)
                grid = grid.gather(1, chosen)[:, 0]
            gaps = self._sites.pieces[grid]
            share = torch.rand(batch, generator=generator, dtype=torch.float64, device=device)
            gap = torch.minimum((share * gaps).long(), gaps - 1)
            left, right = self._sites.times[grid, gap], self._sites.times[grid, gap + 1]
            # A single observation has no gap.
            t = left + torch.where(torch.isfinite(right), right - left, 0.0) * uniform
        else:
            if sampler == "stratified":
                uniform = (torch.randperm(batch, generator=generator, device=device) + uniform) / batch
            elif callable(sampler):
                uniform = torch.as_tensor(sampler(batch, generator), device=device).double()
                if uniform.shape != (batch,) or not bool(((uniform >= 0) & (uniform <= 1)).all()):
                    raise SplineFlowError("a time sampler must return [B] numbers between 0 and 1")
            elif sampler != "uniform":
                raise SplineFlowError(f"t_sampler must be 'uniform', 'stratified', 'interval'; got {sampler!r}")
            t = first + (last - first) * uniform
        if self.schedule.margin > 0 and self.records.layout != "dimension":
            left, right = self._gap(self._grid_of(index), t)
            t = torch.where(
                right > left,
                left + self.schedule.margin * (right - left) + (1 - 2 * self.schedule.margin) * (t - left),
                t,
            )
        return t

    def _grid_of(self, index: Tensor) -> Tensor:
        if self.records.layout == "shared":
            return torch.zeros_like(index)
        if self.records.layout == "trajectory":
            return index
        return index[:, None] * self.dims + torch.arange(self.dims, device=index.device)

    def _gap(self, grid: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """Return the observation times before and after t; both the same where there is only one observation."""
        piece = self._sites.locate(grid, t)
        left, right = self._sites.times[grid, piece], self._sites.times[grid, piece + 1]
        return left, torch.where(torch.isfinite(right), right, left)

    def _tube(
        self, index: Tensor, t: Tensor, given: bool, inside: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return weight [B, d], sigma [B, 1 or d] and its derivative, None for zero.

        `inside` [B, 1 or d] is 1 where times are within records, None where that is still to be found.
        """
        everywhere = torch.ones(1, 1, dtype=self.dtype, device=self.device).expand(len(index), self.dims)
        cut = self.extrapolation == "mask" and (given or self.records.layout == "dimension")
        constant = isinstance(self.schedule, ConstantSigma)
        if cut and inside is not None:
            everywhere = inside.expand(-1, self.dims)
        if constant and (inside is not None or not cut):
            return everywhere, self._constant_width(), None
        grid = self._grid_of(index)
        times = t if grid.ndim == 1 else t[:, None].expand(grid.shape)
        if cut and inside is None:
            within = (times >= self._sites.first[grid]) & (times <= self._sites.last[grid])
            everywhere = (within if within.ndim == 2 else within[:, None].expand(-1, self.dims)).to(self.dtype)
        if constant:
            return everywhere, self._constant_width(), None
        if not self.schedule.bridges:
            column = t[:, None]
            sigma, dsigma = self.schedule.width(column, column, column)
            return everywhere, sigma.to(self.dtype), dsigma.to(self.dtype)
        left, right = self._gap(grid, times)
        gap = right - left
        margin = self.schedule.margin * gap
        held = torch.minimum(torch.maximum(times, left + margin), right - margin)
        if grid.ndim == 1:
            held, left, right = held[:, None], left[:, None], right[:, None]
            gap = gap[:, None]
        sigma, dsigma = self.schedule.width(held, left, right)
        # Where there is no gap, beside an only observation or outside of a dimension's record, there is no bridge.
        outside = times != torch.minimum(torch.maximum(times, self._sites.first[grid]), self._sites.last[grid])
        none = (gap <= 0) | (outside if outside.ndim == 2 else outside[:, None])
        sigma, dsigma = (torch.where(none, 0.0, s).to(self.dtype) for s in (sigma, dsigma))
        if grid.ndim == 2:
            # One time serves all dimensions, and may be too close to an observation of this one.
            near = (times - left < 0.999 * margin) | (right - times < 0.999 * margin)
            everywhere = everywhere.masked_fill(near & ~none, 0.0)
        return everywhere, sigma, dsigma

    def _constant_width(self) -> Tensor:
        """Return sigma [1, 1] or [1, d] of a schedule that is the same at all times."""
        kept = self._constant
        if kept is None or kept[0] is not self.schedule or kept[1].device != self.device:
            none = torch.zeros(1, 1, dtype=self.dtype, device=self.device)
            self._constant = kept = (self.schedule, self.schedule.width(none, none, none)[0])
        return kept[1]

    def marginal_error(self) -> float:
        """Return the largest distance between the path and an observation, in the observations' units.

        Rounding alone for paths that interpolate; the residual of the fit for smoothing splines.
        """
        records = self.records
        worst = 0.0
        counts = torch.from_numpy(records.counts)
        values = torch.from_numpy(records.per_trajectory(records.values[:, :, None, :])[:, :, 0])
        if records.layout == "dimension":
            values = values.reshape(len(self), self.dims, -1).swapaxes(1, 2)
        sites = torch.from_numpy(records.sites)
        everyone = torch.arange(len(self), device=self.device)
        for i in range(records.sites.shape[1]):
            if records.layout == "dimension":
                for j in range(self.dims):
                    grid = everyone.cpu() * self.dims + j
                    at = torch.minimum(torch.tensor(i), counts[grid] - 1)
                    found = self.evaluate(everyone, sites[grid, at].to(self.device))[:, j].cpu().double()
                    worst = max(worst, float((found - values[:, i, j]).abs().max()))
            else:
                t = sites[:, i].expand(len(self)) if records.layout == "shared" else sites[:, i]
                found = self.evaluate(everyone, t.to(self.device)).cpu().double()
                worst = max(worst, float((found - values[:, i]).abs().max()))
        return worst


def spread(records: Records) -> Array:
    """Return the standard deviation [d] of all observations of each dimension, 1 where they are all the same."""
    seen = np.arange(records.sites.shape[1]) < records.counts[:, None]
    weight = seen.astype(float)
    # Sums over times first: dimensions are the last axis of series, or the first axis by dimension.
    out = "r" if records.layout != "dimension" else "gr"
    centre = np.einsum(f"gn,gnr->{out}", weight, records.values)
    square = np.einsum(f"gn,gnr,gnr->{out}", weight, records.values, records.values)
    count = np.broadcast_to(seen.sum(axis=1)[:, None], (len(seen), 1))
    if records.layout == "dimension":
        centre, square, count = (a.reshape(-1, records.dims).sum(axis=0) for a in (centre, square, count))
    else:
        centre, square = (a.reshape(-1, records.dims).sum(axis=0) for a in (centre, square))
        count = count.sum() * (records.values.shape[2] // records.dims)
    mean = centre / count
    variance = np.maximum(square / count - mean**2, 0.0)
    # A dimension that never moves has no scale of its own; rounding is none either.
    still = variance <= 1e-12 * np.maximum(mean**2, np.finfo(float).tiny)
    return np.where(still, 1.0, np.sqrt(variance))


def _check_dims(sigma: Any, dims: int) -> None:
    size = np.asarray(sigma).size
    if size not in (1, dims):
        raise SplineFlowError(f"sigma must be a number or one for each of {dims} dimensions; got {size}")


def _chunks(index: Tensor, t: Tensor) -> list[tuple[Tensor, Tensor]]:
    if len(index) <= _CHUNK:
        return [(index, t)]
    return list(zip(index.split(_CHUNK), t.split(_CHUNK), strict=True))
