"""Piecewise polynomials of many series, evaluated at random (series, time) pairs: what a training step asks for."""

from __future__ import annotations

import functools
import importlib.util
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .errors import BackendUnavailable
from .records import Records

Array = npt.NDArray[np.float64]


class Breaks:
    """Increasing times of G grids, and which piece of its grid a time lies in.

    Attributes:
        times: [G, M + 1] float64, padded with infinity.
        pieces: [G] how many pieces each grid has, at least one.
        first, last: [G] the ends.
    """

    def __init__(self, times: Array) -> None:
        self.times = torch.from_numpy(np.ascontiguousarray(times))
        finite = torch.isfinite(self.times)
        self.pieces = (finite.sum(dim=1) - 1).clamp(min=1)
        self.first = self.times[:, 0].clone()
        self.last = torch.where(finite, self.times, -math.inf).amax(dim=1)
        self._keys: Tensor | None = None

    @property
    def most(self) -> int:
        """Pieces of the longest grid, M."""
        return int(self.times.shape[1]) - 1

    def to(self, device: torch.device | str) -> Breaks:
        """Move to a device, in place."""
        for name in ("times", "pieces", "first", "last"):
            setattr(self, name, getattr(self, name).to(device))
        self._keys = None
        return self

    def _scaled(self, t: Tensor, grid: Tensor) -> Tensor:
        """Bring times of all grids into one increasing sequence, so that one search serves every grid."""
        first, last = self.first[grid], self.last[grid]
        return 2.0 * grid + ((t - first) / torch.where(last > first, last - first, 1.0)).clamp(max=1.5)

    def locate(self, grid: Tensor, t: Tensor) -> Tensor:
        """Return the piece of each time t within its grid: times[piece] <= t, the last piece closed."""
        if len(self.times) == 1:
            found = torch.searchsorted(self.times[0], t.contiguous(), right=True) - 1
            return found.clamp(0, int(self.pieces[0]) - 1)
        if self._keys is None:
            self._keys = self._scaled(self.times, torch.arange(len(self.times), device=t.device)[:, None]).flatten()
        found = torch.searchsorted(self._keys, self._scaled(t, grid), right=True) - 1 - grid * self.times.shape[1]
        pieces = self.pieces[grid]
        # The key is rounded: look at the times themselves.
        for _ in range(2):
            found = torch.minimum(found.clamp(min=0), pieces - 1)
            found = found + (t >= self.times[grid, found + 1]).long() - (t < self.times[grid, found]).long()
        return torch.minimum(found.clamp(min=0), pieces - 1)


class PiecewisePolynomial:
    """Taylor coefficients about the left end of each piece.

    Attributes:
        breaks: the pieces.
        rows: [rows, k + 1, w] coefficients in the dtype of results; a row is a piece of a trajectory (w = d) or of one
            dimension (w = 1).
    """

    def __init__(self, breaks: Array, rows: npt.NDArray[Any], records: Records, dtype: torch.dtype) -> None:
        """Take breaks [G, M + 1], padded with infinity, and rows [N, M, k + 1, d] or [N d, M, k + 1, 1]."""
        self.layout = records.layout
        self.dims = records.dims
        self.breaks = Breaks(breaks)
        self.rows = torch.from_numpy(np.ascontiguousarray(rows.reshape(-1, *rows.shape[-2:]))).to(dtype)
        self._views: tuple[Any, ...] | None = None  # NumPy's, of the same memory

    def to(self, device: torch.device | str) -> PiecewisePolynomial:
        """Move to a device, in place."""
        self.breaks.to(device)
        self.rows = self.rows.to(device)
        self._views = None
        return self

    def grid(self, index: Tensor) -> Tensor:
        """Return the grid of each trajectory [B], or of each of its dimensions [B, d]."""
        if self.layout == "shared":
            return torch.zeros_like(index)
        if self.layout == "trajectory":
            return index
        return index[:, None] * self.dims + torch.arange(self.dims, device=index.device)

    def derivatives(self, index: Tensor, t: Tensor, orders: tuple[int, ...] = (0,)) -> tuple[Tensor, ...]:
        """Return derivatives of the given orders, each [B, d]; outside the record flat, with zero derivatives.

        Args:
            index: [B] int64 trajectories.
            t: float64 times in the shape of `grid(index)`.
            orders: which derivatives.
        """
        grid = self.grid(index)
        first, last = self.breaks.first[grid], self.breaks.last[grid]
        held = t.clamp(first, last)
        piece = self.breaks.locate(grid, held.detach())
        rows = self.rows[(grid if self.layout == "dimension" else index) * self.breaks.most + piece]
        local = (held - self.breaks.times[grid, piece]).to(self.rows.dtype)
        outside = (t < first) | (t > last)
        if self.layout == "dimension":
            rows = rows[..., 0]
            taken = [rows[..., j] for j in range(rows.shape[-1])]
        else:
            taken = [rows[:, j] for j in range(rows.shape[1])]
            local, outside = local[:, None], outside[:, None]
        return tuple(
            _horner(taken, local, nu) if nu == 0 else _horner(taken, local, nu).masked_fill(outside, 0.0)
            for nu in orders
        )

    def pairs(self, index: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return values and velocities like `derivatives(index, t, (0, 1))`, compiled, on the CPU, without gradients.

        The third is [B, 1], or [B, d] by dimension: 1 where a time is within its record, else 0.

        Raises:
            BackendUnavailable: numba is missing.
        """
        fast = compiled()
        if fast is None:
            raise BackendUnavailable("the compiled evaluation needs numba: pip install 'sprigs-splineflow[fast]'")
        mu = torch.empty(
            len(index), self.rows.shape[2] if self.layout != "dimension" else self.dims, dtype=self.rows.dtype
        )
        slope = torch.empty_like(mu)
        inside = torch.empty(mu.shape if self.layout == "dimension" else (len(index), 1), dtype=mu.dtype)
        if self._views is None:
            b = self.breaks
            layout = ("shared", "trajectory", "dimension").index(self.layout)
            self._views = (*(part.numpy() for part in (b.times, b.pieces, b.last, self.rows)), layout, self.dims)
        times = t.contiguous() if t.ndim == 2 else t.contiguous()[:, None]
        arrays = (index.contiguous(), times, mu, slope, inside)
        fast.pairs(*self._views, *(a.numpy() for a in arrays))
        return mu, slope, inside


@functools.cache
def compiled() -> Any:
    """Return the module compiled by numba, or None where numba is missing."""
    if importlib.util.find_spec("numba") is None:
        return None
    from . import fast

    return fast


def _horner(coefficients: list[Tensor], local: Tensor, nu: int) -> Tensor:
    k = len(coefficients) - 1
    if nu >= k:
        # A constant still takes its shape, and its place in the graph, from the times.
        top = coefficients[k] * math.factorial(k) if nu == k else torch.zeros_like(coefficients[0])
        return top + 0.0 * local
    value = coefficients[k] * math.perm(k, nu)
    for j in range(k - 1, nu - 1, -1):
        value = value * local + coefficients[j] * math.perm(j, nu)
    return value
