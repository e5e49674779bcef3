"""What a product costs: time against the degree."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch

from .functional import spin_tensor_product


def times(
    backend: str, degrees: Sequence[int], *, kinds: Sequence[str] = ("even", "odd"), rows: int = 1024, repeats: int = 9
) -> dict[int, float]:
    """Return degree -> median seconds of a product of `rows` rows in float32, one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    found = {}
    try:
        for degree in degrees:
            generator = torch.Generator().manual_seed(degree)
            x, y = torch.randn(2, rows, (degree + 1) ** 2, generator=generator)
            took = []
            for _ in range(repeats + 2):
                began = time.perf_counter()
                spin_tensor_product(x, y, degree, degree, degree, kinds=kinds, backend=backend)
                took.append(time.perf_counter() - began)
            found[degree] = float(np.median(took[2:]))
    finally:
        torch.set_num_threads(threads)
    return found


def slope(of_degree: dict[int, float]) -> float:
    """Return the fitted exponent of time against the degree."""
    degrees = np.array(sorted(of_degree))
    return float(np.polyfit(np.log(degrees), np.log([of_degree[int(d)] for d in degrees]), 1)[0])
