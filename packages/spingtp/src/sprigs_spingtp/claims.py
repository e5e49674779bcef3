"""The paper's claims, run: `sprigs claims spingtp`."""

from __future__ import annotations

import numpy as np

from sprigs import Claim, Outcome

from . import reference
from .means import running_mean


def _exact(fast: bool) -> Outcome:
    x = np.random.default_rng(0).normal(size=1_000 if fast else 100_000)
    error = float(np.abs(running_mean(x) - reference.running_mean(list(x))).max())
    return Outcome(measured=f"largest difference {error:.1e}", baseline="plain loop", holds=error < 1e-9)


CLAIMS = (
    Claim(
        id="exact",
        statement="The fast path equals the plain one",
        paper="(no figure)",
        here="normal random numbers",
        bar="within 1e-9",
        run=_exact,
    ),
)
