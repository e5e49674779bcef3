"""Mixing the channels of each irrep."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..errors import SpinTPError
from ..irreps import Irrep, Irreps


class IrrepsLinear(nn.Module):
    """A linear map of channels, irrep by irrep: what e3nn calls `o3.Linear`.

    Args:
        irreps_in, irreps_out: any irreps. Blocks of one irrep are mixed together; an output without an input is zero.
        bias: add a bias to the scalars 0e.

    Raises:
        SpinTPError: No irrep is common to both.
    """

    def __init__(self, irreps_in: Any, irreps_out: Any, bias: bool = False) -> None:
        super().__init__()
        self.irreps_in, self.irreps_out = Irreps(irreps_in), Irreps(irreps_out)
        self._in = _by_irrep(self.irreps_in)
        self._out = _by_irrep(self.irreps_out)
        self._shared = [ir for ir in self._in if ir in self._out]
        if not self._shared:
            raise SpinTPError(f"'{self.irreps_in}' and '{self.irreps_out}' have no irrep in common")
        self.weights = nn.ParameterDict()
        for ir in self._shared:
            mul_in = sum(mul for _, mul in self._in[ir])
            mul_out = sum(mul for _, mul in self._out[ir])
            self.weights[str(ir)] = nn.Parameter(torch.empty(mul_in, mul_out))
        scalar = self._out.get(Irrep(0, 1))
        self.bias = nn.Parameter(torch.zeros(sum(mul for _, mul in scalar))) if bias and scalar else None
        self.reset_parameters()

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the weights, uniform of unit variance: outputs keep the variance of the inputs."""
        with torch.no_grad():
            for weight in self.weights.values():
                weight.uniform_(-(3**0.5), 3**0.5, generator=generator)

    def forward(self, x: Tensor) -> Tensor:
        """Map features [..., irreps_in.dim] to [..., irreps_out.dim] (layout "mul_ir").

        Raises:
            SpinTPError: A wrong last dimension.
        """
        if x.shape[-1] != self.irreps_in.dim:
            raise SpinTPError(f"expected a last dimension of {self.irreps_in.dim}; got {tuple(x.shape)}")
        lead = x.shape[:-1]
        slices_in = self.irreps_in.slices()
        pieces: list[Tensor | None] = [None] * len(self.irreps_out)
        for ir in self._shared:
            blocks = [x[..., slices_in[k]].reshape(*lead, mul, ir.dim) for k, mul in self._in[ir]]
            block = torch.cat(blocks, dim=-2) if len(blocks) > 1 else blocks[0]
            weight = self.weights[str(ir)]
            mixed = weight.T @ block / weight.shape[0] ** 0.5
            if self.bias is not None and ir == Irrep(0, 1):
                mixed = mixed + self.bias[:, None]
            start = 0
            for k, mul in self._out[ir]:
                pieces[k] = mixed[..., start : start + mul, :].reshape(*lead, mul * ir.dim)
                start += mul
        for k, block_out in enumerate(self.irreps_out):
            if pieces[k] is None:
                pieces[k] = x.new_zeros(*lead, block_out.dim)
        return torch.cat([piece for piece in pieces if piece is not None], dim=-1)

    def extra_repr(self) -> str:
        """Show the irreps."""
        return f"{self.irreps_in} -> {self.irreps_out}"


def _by_irrep(irreps: Irreps) -> dict[Irrep, list[tuple[int, int]]]:
    found: dict[Irrep, list[tuple[int, int]]] = {}
    for k, block in enumerate(irreps):
        found.setdefault(block.ir, []).append((k, block.mul))
    return found
