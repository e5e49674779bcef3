"""A matcher in the shape of torchcfm's: the same call, more than two marginals. Does not import torchcfm."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from ..errors import SplineFlowError
from ..paths import BSplinePath
from ..schedules import ConstantSigma, Schedule


class SplineConditionalFlowMatcher:
    """Draws (t, x_t, u_t) along B-splines through the minibatch's points at all times.

    With two marginals it is torchcfm's `ConditionalFlowMatcher` (coupling "none") or
    `ExactOptimalTransportConditionalFlowMatcher` ("exact").

    Attributes:
        sigma: the width of the tube, as in torchcfm.
        degree: of the splines; fewer marginals than that lower it.
        parametrization: "centripetal" (default, for unpaired snapshots), "index" or "time".
        coupling: "none" takes row i of every marginal as one trajectory; "exact" chains optimal assignments within the
            minibatch.
    """

    def __init__(
        self,
        sigma: float = 0.0,
        degree: int = 2,
        parametrization: str = "centripetal",
        coupling: Literal["none", "exact"] = "exact",
        schedule: Schedule | None = None,
    ) -> None:
        """Set up a matcher; `schedule` replaces the constant sigma.

        Raises:
            SplineFlowError: Parameters out of range.
        """
        if coupling not in ("none", "exact"):
            raise SplineFlowError(f"coupling must be 'none' or 'exact'; got {coupling!r}")
        if isinstance(degree, bool) or degree not in range(1, 6):
            raise SplineFlowError(f"degree must be 1 to 5; got {degree!r}")
        self.sigma, self.degree, self.parametrization, self.coupling = sigma, degree, parametrization, coupling
        self.schedule: Schedule = schedule or ConstantSigma(sigma)

    def sample_location_and_conditional_flow(
        self,
        x0: Tensor,
        x1: Tensor | None = None,
        t: Tensor | None = None,
        return_noise: bool = False,
        times: Any = None,
        generator: torch.Generator | None = None,
    ) -> tuple[Tensor, ...]:
        """Return t [B], x_t [B, *dim], u_t [B, *dim] and, if asked, the noise that made x_t.

        Args:
            x0: the first of two marginals [B, *dim] with x1, or all marginals [B, m, *dim] without.
            x1: the second marginal [B, *dim].
            t: [B] times, drawn uniformly over the range without.
            return_noise: as in torchcfm.
            times: [m] of the marginals; 0 and 1 for two, 0 .. m - 1 without.
            generator: torch's.

        Raises:
            SplineFlowError: Shapes that do not fit.
        """
        fits = x0.ndim >= 3 if x1 is None else x0.ndim >= 2 and x0.shape == x1.shape
        if not fits:
            raise SplineFlowError("pass two marginals [B, *dim], or all of them as one tensor [B, m, *dim]")
        marginals = x0 if x1 is None else torch.stack([x0, x1], dim=1)
        rows, m, *shape = marginals.shape
        flat = marginals.detach().reshape(rows, m, -1)
        if self.coupling == "exact":
            flat = chained(flat)
        moments = np.arange(m, dtype=float) if times is None else np.asarray(times, dtype=float)
        dtype = torch.float64 if marginals.dtype == torch.float64 else torch.float32
        path = BSplinePath.fit(
            moments, flat.cpu().numpy(), degree=max(1, min(self.degree, m - 1)), parametrization=self.parametrization,
            schedule=self.schedule, dtype=dtype,
        ).to(marginals.device)  # fmt: skip
        drawn = path.sample(rows, generator, index=torch.arange(rows, device=marginals.device), t=t)
        parts = (drawn.t, drawn.x, drawn.velocity, drawn.score_noise)
        found = tuple(part.to(marginals.dtype) for part in parts)
        found = (found[0], *(part.reshape(rows, *shape) for part in found[1:]))
        return found if return_noise else found[:3]

    def compute_lambda(self, t: Tensor, times: Any = (0.0, 1.0)) -> Tensor:
        """Return lambda(t) = 2 sigma(t) / sigma^2, as torchcfm's Schrödinger bridge matcher does, for score losses."""
        sites = torch.as_tensor(np.asarray(times, dtype=float), device=t.device)
        gap = torch.searchsorted(sites, t.double(), right=True).clamp(1, len(sites) - 1)
        width = self.schedule.width(t.double()[:, None], sites[gap - 1][:, None], sites[gap][:, None])[0]
        g = torch.as_tensor(np.asarray(getattr(self.schedule, "g", self.sigma), dtype=float), device=t.device)
        return (2 * width / g**2).to(t.dtype).squeeze(1)


def chained(marginals: Tensor) -> Tensor:
    """Reorder each marginal of a minibatch [B, m, d] by the optimal assignment from the one before."""
    found = [marginals[:, 0]]
    for k in range(1, marginals.shape[1]):
        cost = torch.cdist(found[-1].double(), marginals[:, k].double()).square()
        found.append(marginals[linear_sum_assignment(cost.cpu().numpy())[1], k])
    return torch.stack(found, dim=1)
