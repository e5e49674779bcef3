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
from .arrays import Bits, Pieces
from .codebook import Codebook
from .errors import DeviceUnavailable, SplitZipError
from .format import Sections

BackendName = Literal["auto", "numpy", "numba", "cuda"]
Bytes = npt.NDArray[np.uint8]

SMALL_BYTES = 1 << 16
"""`"auto"` does not load numba (half a second) for arrays below this size."""

MAX_AUTO_THREADS = 8
"""Memory bandwidth is spent by then; more threads only get in each other's way."""


Encode = Callable[[Any, Codebook, Sections, int, Bytes, int, int], int | None]
Decode = Callable[[Bytes, Codebook, Sections, int, int, Any, int], None]


@dataclass(frozen=True)
class Backend:
    """Encode a payload, padding included; check its escape sections and decode it. See `reference`."""

    name: str
    encode: Encode
    decode: Decode


def _numpy_encode(
    bits: Bits | Pieces,
    codebook: Codebook,
    layout: Sections,
    chunk_log2: int,
    payload: Bytes,
    limit: int,
    _threads: int,
) -> int | None:
    flat = bits.view(bits.dtype) if isinstance(bits, Pieces) else bits
    return reference.encode(flat, codebook, layout, chunk_log2, payload, limit)


def _numpy_decode(
    payload: Bytes, codebook: Codebook, layout: Sections, chunk_log2: int, n_escapes: int, out: Bits, _threads: int
) -> None:
    n = int(out.size)
    reference.check_escapes(payload, codebook.format, layout, chunk_log2, n, n_escapes)
    reference.decode(payload, codebook, layout, chunk_log2, n_escapes, out)


def _padded(encode: Encode) -> Encode:
    """Make an encoder clear the bytes between the sections too."""

    def encode_and_pad(
        bits: Bits | Pieces,
        codebook: Codebook,
        layout: Sections,
        chunk_log2: int,
        payload: Bytes,
        limit: int,
        threads: int,
    ) -> int | None:
        n_escapes = encode(bits, codebook, layout, chunk_log2, payload, limit, threads)
        if n_escapes is not None:
            layout.zero_padding(payload, int(bits.size), n_escapes)
        return n_escapes

    return encode_and_pad


NUMPY = Backend("numpy", _padded(_numpy_encode), _numpy_decode)


@lru_cache(maxsize=1)
def _numba() -> Backend:
    from . import fast

    def decode(
        payload: Bytes,
        codebook: Codebook,
        layout: Sections,
        chunk_log2: int,
        n_escapes: int,
        out: Bits | Pieces,
        threads: int,
    ) -> None:
        n = int(out.size)
        fast.check_escapes(payload, codebook.format, layout, chunk_log2, n, n_escapes)
        if isinstance(out, Pieces):
            fast.decode_pieces(payload, codebook, layout, chunk_log2, n_escapes, out, threads)
        else:
            fast.decode(payload, codebook, layout, chunk_log2, n_escapes, out, threads)

    def encode(
        bits: Bits | Pieces,
        codebook: Codebook,
        layout: Sections,
        chunk_log2: int,
        payload: Bytes,
        limit: int,
        threads: int,
    ) -> int | None:
        if isinstance(bits, Pieces):
            return fast.encode_pieces(bits, codebook, layout, chunk_log2, payload, limit, threads)
        return fast.encode(bits, codebook, layout, chunk_log2, payload, limit, threads)

    return Backend("numba", _padded(encode), decode)


@lru_cache(maxsize=1)
def _cuda() -> Backend:
    from . import cuda

    return Backend("cuda", cuda.encode, cuda.decode)


def has_numba() -> bool:
    """Whether numba is installed."""
    return "numba" in sys.modules or importlib.util.find_spec("numba") is not None


def check_name(name: object) -> None:
    """Refuse a `backend=` that there is not.

    Raises:
        SplitZipError: Another name.
        DeviceUnavailable: numba is named and not installed.
    """
    if name not in ("auto", "numpy", "numba", "cuda"):
        raise SplitZipError(f'backend is "auto", "numpy", "numba" or "cuda"; got {name!r}')
    if name == "numba" and not has_numba():
        raise DeviceUnavailable("backend='numba' needs numba: pip install 'sprigs-splitzip[fast]'")


def select(name: BackendName, nbytes: int, *, on_device: bool = False) -> Backend:
    """Return the backend called `name`, or for `"auto"` the fastest one sensible.

    Args:
        nbytes: Bytes of raw data to work on.
        on_device: Whether the arrays live on a CUDA device.

    Raises:
        DeviceUnavailable: The arrays are not where the backend works.
    """
    check_name(name)
    if on_device:
        if name not in ("auto", "cuda"):
            raise DeviceUnavailable(f"backend={name!r} works on host arrays; this one is on a CUDA device")
        return _cuda()
    if name == "cuda":
        raise DeviceUnavailable("backend='cuda' works on CuPy arrays and torch CUDA tensors; this one is on the host")
    if name == "auto":
        small = nbytes < SMALL_BYTES and _numba.cache_info().currsize == 0
        return NUMPY if small or not has_numba() else _numba()
    return NUMPY if name == "numpy" else _numba()


def thread_count(threads: Any) -> int:
    """Check a `threads=` argument; None means the CPUs this process may use, at most 8."""
    if threads is None:
        usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return min(usable, MAX_AUTO_THREADS)
    if type(threads) is not int or threads < 1:
        raise SplitZipError(f"threads is a positive integer or None; got {threads!r}")
    return threads
