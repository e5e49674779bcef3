"""Means of everything seen so far."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def running_mean(x: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return the mean of the first 1, 2, ..., n values.

    Args:
        x: Finite numbers, shape (n,).

    Returns:
        float64 array of shape (n,).

    Raises:
        ValueError: `x` is not one-dimensional, or holds a value that is not finite.
    """
    values = np.asarray(x, np.float64)
    if values.ndim != 1:
        raise ValueError(f"expected a one-dimensional array; got shape {values.shape}")
    if not np.isfinite(values).all():
        raise ValueError("expected finite values; drop or fill NaN and infinity first")
    means: npt.NDArray[np.float64] = values.cumsum() / np.arange(1, values.size + 1)
    return means
