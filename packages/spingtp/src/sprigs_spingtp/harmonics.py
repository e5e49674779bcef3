"""Real spherical harmonics of vectors in torch: polynomials in the coordinates, smooth at the poles."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .errors import SpinTPError
from .tables import check_degree


def spherical_harmonics(lmax: int, vectors: Tensor, normalization: str = "component") -> Tensor:
    """Return Y_lm of the directions of vectors, equal to e3nn's `o3.spherical_harmonics(..., normalize=True)`.

    Args:
        lmax: highest degree, at most 20.
        vectors: [..., 3], in the order x, y, z; a zero vector has the direction zero.
        normalization: "component" (|Y_l|^2 = 2l + 1), "norm" (1) or "integral" (orthonormal).

    Returns:
        [..., (lmax + 1)^2], degrees ascending, m = -l..l; differentiable any number of times.

    Raises:
        SpinTPError: A degree out of range, vectors of another shape, or an unknown normalization.
    """
    check_degree(lmax, "lmax")
    if vectors.ndim == 0 or vectors.shape[-1] != 3 or not vectors.is_floating_point():
        raise SpinTPError(f"vectors must be floating point [..., 3]; got {vectors.dtype} {tuple(vectors.shape)}")
    if normalization not in ("component", "norm", "integral"):
        raise SpinTPError(f"normalization must be 'component', 'norm' or 'integral'; got {normalization!r}")
    x, y, z = (vectors / vectors.norm(dim=-1, keepdim=True).clamp_min(1e-12)).unbind(-1)
    one = torch.ones_like(y)
    # (z + i x)^m = sin^m(beta) (cos(m alpha) + i sin(m alpha))
    cos, sin = [one], [torch.zeros_like(y)]
    for _ in range(lmax):
        cos, sin = [*cos, z * cos[-1] - x * sin[-1]], [*sin, x * cos[-1] + z * sin[-1]]
    # P_lm / sin^m(beta), a polynomial in y = cos(beta)
    column: dict[tuple[int, int], Tensor] = {}
    start = math.sqrt(1 / (4 * math.pi))
    for m in range(lmax + 1):
        if m:
            start *= math.sqrt((2 * m + 1) / (2 * m))
        column[m, m] = start * one
        for l in range(m + 1, lmax + 1):
            a = math.sqrt((4 * l * l - 1) / (l * l - m * m))
            column[l, m] = a * y * column[l - 1, m]
            if l > m + 1:
                b = a * math.sqrt(((l - 1) ** 2 - m * m) / (4 * (l - 1) ** 2 - 1))
                column[l, m] = column[l, m] - b * column[l - 2, m]
    out = []
    for l in range(lmax + 1):
        scale = {"integral": 1.0, "component": math.sqrt(4 * math.pi), "norm": math.sqrt(4 * math.pi / (2 * l + 1))}
        for m in range(-l, l + 1):
            root = scale[normalization] * (1.0 if m == 0 else math.sqrt(2))
            out.append(root * column[l, abs(m)] * (cos[m] if m >= 0 else sin[-m]))
    return torch.stack(out, dim=-1)
