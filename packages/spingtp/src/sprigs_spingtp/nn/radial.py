"""Functions of distances: a basis with a smooth cutoff, and the network that makes weights of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from ..errors import SpinTPError


class RadialBasis(nn.Module):
    """Sines under a polynomial envelope: the Bessel basis of Gasteiger et al. (2020, equations 7 and 8) times r.

    Without the 1/r, whose pole no pair of atoms comes near, the functions are of order one at any cutoff.

    Args:
        r_max: cutoff, in the unit of the positions.
        size: number of functions.
        power: p of the envelope, whose first two derivatives vanish at the cutoff.
    """

    frequencies: Tensor

    def __init__(self, r_max: float, size: int = 8, power: int = 6) -> None:
        super().__init__()
        if r_max <= 0 or size < 1 or power < 2:
            raise SpinTPError(f"need r_max > 0, size >= 1 and power >= 2; got {r_max}, {size}, {power}")
        self.r_max, self.size, self.power = float(r_max), size, power
        self.register_buffer("frequencies", math.pi * torch.arange(1, size + 1, dtype=torch.get_default_dtype()), False)

    def forward(self, distance: Tensor) -> Tensor:
        """Return [..., size] of distances [...]."""
        u = (distance / self.r_max).unsqueeze(-1)
        p = self.power
        inside = 1 - (p + 1) * (p + 2) / 2 * u**p + p * (p + 2) * u ** (p + 1) - p * (p + 1) / 2 * u ** (p + 2)
        envelope = torch.where(u < 1, inside, torch.zeros_like(inside))
        frequencies = self.frequencies.to(distance.dtype)
        found: Tensor = math.sqrt(2) * torch.sin(frequencies * u) * envelope
        return found


class RadialNetwork(nn.Module):
    """A perceptron without biases, so that what it makes vanishes smoothly at the cutoff.

    Args:
        sizes: of the layers, input first.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.ParameterList(nn.Parameter(torch.randn(a, b)) for a, b in pairwise(sizes))

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., sizes[0]] to [..., sizes[-1]]."""
        for k, weight in enumerate(self.layers):
            x = x @ weight / weight.shape[0] ** 0.5
            if k < len(self.layers) - 1:
                x = nn.functional.silu(x) * 1.6765  # keeps the second moment of a normal variable
        return x
