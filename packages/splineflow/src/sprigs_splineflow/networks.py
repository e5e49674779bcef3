"""The default network: residual blocks of one width."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from .errors import SplineFlowError

ACTIVATIONS = {"silu": nn.SiLU, "tanh": nn.Tanh, "gelu": nn.GELU, "relu": nn.ReLU}


class ResidualMLP(nn.Module):
    """Maps (t, x, conditions) to a vector: a layer in, blocks h + act(W h), a layer out (paper's code, M7).

    Attributes:
        dims: d.
        conditions: c.
        autonomous: whether time is left out of the input.
    """

    def __init__(
        self,
        dims: int,
        hidden: Sequence[int] = (256, 256, 256, 256),
        conditions: int = 0,
        activation: str = "silu",
        autonomous: bool = False,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise SplineFlowError(f"activation must be one of {', '.join(ACTIVATIONS)}; got {activation!r}")
        if not hidden or any(not isinstance(w, int) or isinstance(w, bool) or w < 1 for w in hidden):
            raise SplineFlowError(f"hidden must be the widths of at least one layer; got {hidden!r}")
        self.dims, self.conditions, self.autonomous = dims, conditions, autonomous
        widths = [dims + conditions + (0 if autonomous else 1), *hidden]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(widths))
        self.out = nn.Linear(widths[-1], dims)
        self.activation = ACTIVATIONS[activation]()

    def forward(self, t: Tensor, x: Tensor, cond: Tensor | None = None) -> Tensor:
        """Return [B, d] for times [B], states [B, d] and conditions [B, c]."""
        parts = [x] if self.autonomous else [t.reshape(-1, 1).expand(len(x), 1).to(x.dtype), x]
        if cond is not None:
            parts.append(cond)
        h = torch.cat(parts, dim=1)
        for layer in self.layers:
            step = self.activation(layer(h))
            h = h + step if h.shape == step.shape else step
        out: Tensor = self.out(h)
        return out
