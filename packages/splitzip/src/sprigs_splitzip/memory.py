"""Which module handles an array: `arrays` on the host, `cuda` on a device. Both have the same functions."""

from __future__ import annotations

from typing import Any

from . import arrays


def memory_of(x: object) -> Any:
    """Return the module that handles arrays where `x` is."""
    return memory_named("cupy") if arrays.is_on_device(x) else arrays


def memory_named(like: str) -> Any:
    """Return the module that makes arrays of a kind, see `arrays.Like`."""
    if like != "cupy":
        return arrays
    from . import cuda

    return cuda
