"""Which implementation encodes and decodes a payload: plain NumPy, or numba where it is installed."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from . import reference
from .arrays import Bits
from .codebook import Codebook
from .errors import DeviceUnavailable, SplitZipError
from .floats import FloatFormat
from .format import Sections

BackendName = Literal["auto", "numpy", "numba", "cuda"]
Bytes = npt.NDArray[np.uint8]

SMALL_BYTES = 1 << 16
"""`"auto"` does not load numba (half a second) for arrays below this size."""

MAX_AUTO_THREADS = 8
"""Memory bandwidth is spent by then; more threads only get in each other's way."""


@dataclass(frozen=True)
class Backend:
    """The three operations on a payload; see `reference` for their contracts."""

    name: str
    encode: Callable[[Bits, Codebook, Sections, int, Bytes, int, int], int | None]
    decode: Callable[[Bytes, Codebook, Sections, int, int, Bits, int], None]
    check_escapes: Callable[[Bytes, FloatFormat, Sections, int, int, int], None]


NUMPY = Backend(
    "numpy",
    lambda bits, codebook, layout, chunk_log2, payload, limit, _threads: reference.encode(
        bits, codebook, layout, chunk_log2, payload, limit
    ),
    lambda payload, codebook, layout, chunk_log2, n_escapes, out, _threads: reference.decode(
        payload, codebook, layout, chunk_log2, n_escapes, out
    ),
    reference.check_escapes,
)


@lru_cache(maxsize=1)
def _numba() -> Backend:
    from . import fast

    return Backend("numba", fast.encode, fast.decode, fast.check_escapes)


def has_numba() -> bool:
    """Whether numba is installed."""
    return "numba" in sys.modules or importlib.util.find_spec("numba") is not None


def select(name: BackendName, nbytes: int) -> Backend:
    """Return the backend called `name`, or for `"auto"` the fastest one sensible for `nbytes` of raw data.

    Raises:
        DeviceUnavailable: If what it needs is not installed.
    """
    if name == "auto":
        if not has_numba() or (nbytes < SMALL_BYTES and _numba.cache_info().currsize == 0):
            return NUMPY
        return _numba()
    if name == "numpy":
        return NUMPY
    if name == "numba":
        if not has_numba():
            raise DeviceUnavailable("backend='numba' needs numba: pip install 'sprigs-splitzip[fast]'")
        return _numba()
    if name == "cuda":
        raise DeviceUnavailable("this version of splitzip has no CUDA kernels; use backend='auto' on host arrays")
    raise SplitZipError(f'backend is "auto", "numpy" or "numba"; got {name!r}')


def thread_count(threads: Any) -> int:
    """Check a `threads=` argument; None means the CPUs this process may use, at most 8."""
    if threads is None:
        usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return min(usable, MAX_AUTO_THREADS)
    if type(threads) is not int or threads < 1:
        raise SplitZipError(f"threads is a positive integer or None; got {threads!r}")
    return threads
