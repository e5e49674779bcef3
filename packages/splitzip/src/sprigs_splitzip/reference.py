"""The plain NumPy encoder and decoder of DICT payloads: the oracle of the tests, and the path without numba.

They work in blocks of whole chunks so that memory stays bounded; nothing else is done for speed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .arrays import Bits
from .codebook import Codebook
from .errors import FormatError
from .floats import FloatFormat
from .format import Sections

Bytes = npt.NDArray[np.uint8]
Integers = npt.NDArray[np.integer[Any]]

_BLOCK = 1 << 18
"""Elements worked on at a time; a multiple of every chunk length, so that positions in a chunk need no carry."""

ESCAPE_FAULTS = (
    "the chunk starts do not ascend from 0 to the number of escapes",
    "escape positions do not ascend inside their chunk",
    "an escape exponent is out of the format's range",
)


def encode(bits: Bits, codebook: Codebook, layout: Sections, chunk_log2: int, payload: Bytes, limit: int) -> int | None:
    """Write the sections of a DICT payload, without the padding between them.

    Args:
        bits: Elements, unsigned integers, shape (n,).
        codebook, layout, chunk_log2: How to encode them.
        payload: Where to, uint8, of at least `layout.payload_size(limit)` bytes.
        limit: Escapes beyond which the frame is not worth coding.

    Returns:
        The number of escapes, or None if there are more than `limit`; `payload` then holds nothing of use.
    """
    form = codebook.format
    code_of = np.full(form.n_exponents, 0xFF, np.uint8)
    code_of[list(codebook.values)] = np.arange(len(codebook.values), dtype=np.uint8)
    starts = np.zeros(layout.n_chunks + 1, np.uint32)
    positions, exponents = [np.empty(0, np.uint16)], [np.empty(0, np.uint8)]
    n_escapes = 0
    for first in range(0, bits.size, _BLOCK):
        v = bits[first : first + _BLOCK]
        e = ((v >> form.mantissa_bits) & (form.n_exponents - 1)).astype(np.uint8)
        code = code_of[e]
        escaped = np.flatnonzero(code == 0xFF)
        code[escaped] = 0
        n_escapes += escaped.size
        if n_escapes > limit:
            return None
        starts[1:] += np.bincount((first + escaped) >> chunk_log2, minlength=layout.n_chunks).astype(np.uint32)
        positions.append((escaped & ((1 << chunk_log2) - 1)).astype(np.uint16))
        exponents.append(e[escaped])
        sign = v >> (form.exponent_bits + form.mantissa_bits) << form.mantissa_bits
        sm = sign | (v & ((1 << form.mantissa_bits) - 1))
        _write_planes(code, layout.planes[: layout.n_code_planes], first, payload)
        _write_planes(sm, layout.planes[layout.n_code_planes :], first, payload)
    np.cumsum(starts, out=starts)
    for at, section in (
        (layout.starts, starts),
        (layout.positions, np.concatenate(positions)),
        (layout.exponents(n_escapes), np.concatenate(exponents)),
    ):
        payload[at : at + section.nbytes] = section.view(np.uint8)
    return n_escapes


def decode(payload: Bytes, codebook: Codebook, layout: Sections, chunk_log2: int, n_escapes: int, out: Bits) -> None:
    """Write the elements of a DICT payload, already found valid, into `out` (unsigned integers, shape (n,))."""
    form = codebook.format
    values = np.array(codebook.values, out.dtype)
    for first in range(0, out.size, _BLOCK):
        n = min(_BLOCK, out.size - first)
        code = _read_planes(payload, layout.planes[: layout.n_code_planes], first, n, np.dtype(np.uint8))
        sm = _read_planes(payload, layout.planes[layout.n_code_planes :], first, n, out.dtype)
        out[first : first + n] = _join(values[code], sm, form)
    starts, positions, exponents = escapes(payload, layout, n_escapes)
    chunk = np.repeat(np.arange(layout.n_chunks), _counts(starts))
    index = (chunk << chunk_log2) + positions
    exponent_mask = out.dtype.type((form.n_exponents - 1) << form.mantissa_bits)
    out[index] = (out[index] & ~exponent_mask) | (exponents.astype(out.dtype) << form.mantissa_bits)


def escapes(
    payload: Bytes, layout: Sections, n_escapes: int
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint16], Bytes]:
    """Return copies of chunk starts, escape positions and escape exponents."""
    starts = payload[layout.starts : layout.starts + 4 * (layout.n_chunks + 1)].tobytes()
    positions = payload[layout.positions : layout.positions + 2 * n_escapes].tobytes()
    at = layout.exponents(n_escapes)
    return np.frombuffer(starts, "<u4"), np.frombuffer(positions, "<u2"), payload[at : at + n_escapes].copy()


def check_escapes(payload: Bytes, form: FloatFormat, layout: Sections, chunk_log2: int, n: int, n_escapes: int) -> None:
    """Check the escape sections, so that decoding can trust every index in them.

    Raises:
        FormatError: Starts do not ascend from 0 to `n_escapes`, positions do not ascend inside their chunk, or an
            exponent is not of the format.
    """
    starts, positions, exponents = escapes(payload, layout, n_escapes)
    counts = _counts(starts)
    if starts[0] != 0 or starts[-1] != n_escapes or (counts < 0).any():
        raise FormatError(ESCAPE_FAULTS[0])
    chunk = np.repeat(np.arange(layout.n_chunks), counts)
    index = (chunk << chunk_log2) + positions
    inside = positions < np.minimum(n - (chunk << chunk_log2), 1 << chunk_log2)
    if not inside.all() or (index[1:] <= index[:-1]).any():
        raise FormatError(ESCAPE_FAULTS[1])
    if (exponents >= form.n_exponents).any():
        raise FormatError(ESCAPE_FAULTS[2])


def _counts(starts: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    wide = starts.astype(np.int64)
    return wide[1:] - wide[:-1]


def _join(exponents: Bits, sm: Bits, form: FloatFormat) -> Integers:
    sign = sm >> form.mantissa_bits << (form.exponent_bits + form.mantissa_bits)
    joined: Integers = sign | exponents << form.mantissa_bits | (sm & ((1 << form.mantissa_bits) - 1))
    return joined


def _write_planes(field: Integers, planes: tuple[tuple[int, int], ...], first: int, payload: Bytes) -> None:
    shift = 0
    for width, offset in planes:
        part = (field >> shift) & ((1 << width) - 1)
        at = offset + first * width // 8
        if width >= 8:
            raw = part.astype(f"<u{width // 8}").view(np.uint8)
        else:
            per_byte = 8 // width
            padded = np.zeros(-(-part.size // per_byte) * per_byte, np.uint8)
            padded[: part.size] = part
            shifts = np.arange(per_byte, dtype=np.uint8) * np.uint8(width)
            raw = np.bitwise_or.reduce(padded.reshape(-1, per_byte) << shifts, axis=1)
        payload[at : at + raw.size] = raw
        shift += width


def _read_planes(
    payload: Bytes, planes: tuple[tuple[int, int], ...], first: int, n: int, dtype: np.dtype[np.unsignedinteger]
) -> Bits:
    field: Bits = np.zeros(n, dtype)
    shift = 0
    for width, offset in planes:
        at = offset + first * width // 8
        raw = payload[at : at + -(-n * width // 8)]
        if width >= 8:
            part = np.frombuffer(raw.tobytes(), f"<u{width // 8}")
        else:
            shifts = np.arange(8 // width, dtype=np.uint8) * np.uint8(width)
            part = ((raw[:, None] >> shifts) & np.uint8((1 << width) - 1)).reshape(-1)[:n]
        field |= part.astype(dtype) << dtype.type(shift)
        shift += width
    return field
