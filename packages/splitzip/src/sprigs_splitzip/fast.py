# mypy: allow-untyped-decorators, allow-untyped-defs, allow-untyped-calls
"""The compiled encoder and decoder of DICT payloads (numba), byte for byte equal to `reference`.

Work per BF16 element: encoding moves 2 bytes in and 1.5 out, decoding the reverse, each in one pass; a memory copy
moves 2 in and 2 out. So the floor is the machine's memory bandwidth, and a copy of the same array is the yardstick.

Kernels are compiled on first use, once for each (format, code bits, window or not, streaming stores or not), and kept
on disk by numba. They release the GIL; threads take disjoint ranges of chunks, so the bytes never depend on how many
there are.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

from .arrays import Bits, Pieces
from .codebook import Codebook
from .errors import FormatError
from .floats import FloatFormat
from .format import Sections
from .reference import ESCAPE_FAULTS
from .simd import (
    CAN_COMPRESS,
    LANES,
    RUN_BYTES,
    SOURCE_STAMP,
    copy_group,
    decode_group,
    encode_group,
    load_uint,
    lowest_bit,
    store_escapes,
    store_uint,
)

Bytes = npt.NDArray[np.uint8]

TASK_ELEMENTS = 1 << 18
"""Fewest elements worth a thread."""

STREAMING_BYTES = 1 << 24
"""From this size on (raw bytes) the output will not stay in cache, and streaming stores are faster."""

_U64 = np.uint64
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_TWO = np.uint64(2)
_THREE = np.uint64(3)
_FOUR = np.uint64(4)
_SIX = np.uint64(6)
_NOWHERE = np.uint64(1 << 32)

# Positions and exponents of escapes go to scratch first; it starts at 2 % of the elements and grows when full.
_SCRATCH_SHARE = 50


@cache
def _encoder(e_bits: int, m_bits: int, b: int, window: bool, streaming: bool) -> Callable[..., int]:
    itemsize = (1 + e_bits + m_bits) // 8
    group_bytes = _U64(LANES * itemsize)
    item = _U64(itemsize)
    shift = _U64(m_bits)
    exponent_mask = _U64((1 << e_bits) - 1)
    compress = CAN_COMPRESS
    stamp = SOURCE_STAMP

    @numba.njit(
        "uint64(uint64[::1], uint64, uint64, uint64, uint64, uint64, uint64[::1], uint8[::1],"
        " uint32[::1], uint16[::1], uint8[::1], uint64)",
        nogil=True, cache=True, boundscheck=False,
    )  # fmt: skip
    def encode(
        pieces, piece_groups, n_groups, first_chunk, end_chunk, log2_groups, planes, runs,
        counts, positions, exponents, limit,
    ):  # fmt: skip
        """Encode chunks [first_chunk, end_chunk); stop early, returning more than `limit`, if escapes abound.

        The elements lie in `pieces` (addresses) of `piece_groups` groups each.
        """
        _ = stamp  # numba caches by this file and the closure; this puts the intrinsics into the latter
        plane_bases = planes.ctypes.data
        run_table = runs.ctypes.data
        position_base = positions.ctypes.data
        exponent_base = exponents.ctypes.data
        n_runs = _U64(runs.size // RUN_BYTES)
        k = _ZERO
        for chunk in range(first_chunk, end_chunk):
            before = k
            first_group = chunk << log2_groups
            piece = first_group // piece_groups
            left = _ZERO
            at = _ZERO
            if first_group < n_groups:
                left = (piece + _ONE) * piece_groups - first_group
                at = pieces[piece] + (piece_groups - left) * group_bytes
            for group in range(first_group, min(first_group + (_ONE << log2_groups), n_groups)):
                mask = encode_group(at, plane_bases, group, run_table, n_runs, e_bits, m_bits, b, window, streaming)
                if mask != _ZERO:
                    first = (group - first_group) << _SIX
                    if compress:
                        k += store_escapes(at, mask, first, position_base + k * _TWO, exponent_base + k, e_bits, m_bits)
                    else:
                        while mask != _ZERO:
                            lane = lowest_bit(mask)
                            mask &= mask - _ONE
                            positions[k] = first + lane
                            exponents[k] = (load_uint(at + lane * item, itemsize) >> shift) & exponent_mask
                            k += _ONE
                    if k > limit:
                        return k
                at += group_bytes
                left -= _ONE
                if left == _ZERO and group + _ONE < n_groups:
                    piece += _ONE
                    at = pieces[piece]
                    left = piece_groups
            counts[chunk] = k - before
        return k

    return cast("Callable[..., int]", encode)


@cache
def _decoder(e_bits: int, m_bits: int, b: int, window: bool, streaming: bool) -> Callable[..., None]:
    itemsize = (1 + e_bits + m_bits) // 8
    item = _U64(itemsize)
    group_bytes = _U64(LANES * itemsize)
    shift = _U64(m_bits)
    keep = _U64(~(((1 << e_bits) - 1) << m_bits) & (2**64 - 1))
    stamp = SOURCE_STAMP

    @numba.njit(
        "void(uint64[::1], uint64, uint64, uint64, uint64, uint64, uint8[::1], uint64, uint64, uint64, uint64)",
        nogil=True,
        cache=True,
        boundscheck=False,
    )
    def decode(planes, x, n_groups, first_chunk, end_chunk, log2_groups, runs, starts, positions, exponents, scratch):
        """Decode chunks [first_chunk, end_chunk) and put their escapes in place.

        With streaming stores, what has escapes goes through `scratch` (the address of a chunk) first: mending it
        where it belongs would fetch back from memory the very lines just sent there. Where escapes are few that is a
        group now and then; where they are many, a whole chunk, so that no load waits for the stores just before it.
        """
        _ = stamp  # numba caches by this file and the closure; this puts the intrinsics into the latter
        plane_bases = planes.ctypes.data
        run_table = runs.ctypes.data
        n_runs = _U64(runs.size // RUN_BYTES)
        for chunk in range(first_chunk, end_chunk):
            first_group = chunk << log2_groups
            end_group = min(first_group + (_ONE << log2_groups), n_groups)
            chunk_at = x + first_group * group_bytes
            k = load_uint(starts + chunk * _FOUR, 4)
            end_escape = load_uint(starts + chunk * _FOUR + _FOUR, 4)
            position = load_uint(positions + k * _TWO, 2) if k < end_escape else _NOWHERE
            if streaming and (end_escape - k) << _THREE < end_group - first_group:
                for group in range(first_group, end_group):
                    at = x + group * group_bytes
                    end_position = (group - first_group + _ONE) << _SIX
                    if position >= end_position:
                        decode_group(plane_bases, group, at, run_table, n_runs, e_bits, m_bits, b, window, True)
                        continue
                    decode_group(plane_bases, group, scratch, run_table, n_runs, e_bits, m_bits, b, window, False)
                    while position < end_position:
                        mended = scratch + (position & _U64(LANES - 1)) * item
                        value = (load_uint(mended, itemsize) & keep) | (load_uint(exponents + k, 1) << shift)
                        store_uint(mended, value, itemsize)
                        k += _ONE
                        position = load_uint(positions + k * _TWO, 2) if k < end_escape else _NOWHERE
                    copy_group(scratch, at, itemsize, True)
            else:
                target = scratch if streaming else chunk_at
                for group in range(first_group, end_group):
                    at = target + (group - first_group) * group_bytes
                    decode_group(plane_bases, group, at, run_table, n_runs, e_bits, m_bits, b, window, False)
                end_position = (end_group - first_group) << _SIX
                while k < end_escape and load_uint(positions + k * _TWO, 2) < end_position:
                    mended = target + load_uint(positions + k * _TWO, 2) * item
                    value = (load_uint(mended, itemsize) & keep) | (load_uint(exponents + k, 1) << shift)
                    store_uint(mended, value, itemsize)
                    k += _ONE
                if streaming:
                    for group in range(end_group - first_group):
                        copy_group(scratch + group * group_bytes, chunk_at + group * group_bytes, itemsize, True)
            # What is left lies in the tail of fewer than 64 elements, which is in its place already.
            for rest in range(k, end_escape):
                mended = chunk_at + load_uint(positions + rest * _TWO, 2) * item
                value = (load_uint(mended, itemsize) & keep) | (load_uint(exponents + rest, 1) << shift)
                store_uint(mended, value, itemsize)

    return cast("Callable[..., None]", decode)


@cache
def _piece_decoder(e_bits: int, m_bits: int, b: int, window: bool) -> Callable[..., None]:
    itemsize = (1 + e_bits + m_bits) // 8
    item = _U64(itemsize)
    group_bytes = _U64(LANES * itemsize)
    shift = _U64(m_bits)
    keep = _U64(~(((1 << e_bits) - 1) << m_bits) & (2**64 - 1))
    stamp = SOURCE_STAMP

    @numba.njit(
        "void(uint64[::1], uint64[::1], uint64, uint64, uint64, uint64, uint64, uint8[::1], uint64, uint64, uint64)",
        nogil=True, cache=True, boundscheck=False,
    )  # fmt: skip
    def decode(
        planes, pieces, piece_groups, n_groups, first_chunk, end_chunk, log2_groups, runs, starts, positions, exponents
    ):
        """Decode chunks [first_chunk, end_chunk) into `pieces` (addresses) of `piece_groups` groups each."""
        _ = stamp
        plane_bases = planes.ctypes.data
        run_table = runs.ctypes.data
        n_runs = _U64(runs.size // RUN_BYTES)
        for chunk in range(first_chunk, end_chunk):
            first_group = chunk << log2_groups
            k = load_uint(starts + chunk * _FOUR, 4)
            end_escape = load_uint(starts + chunk * _FOUR + _FOUR, 4)
            for group in range(first_group, min(first_group + (_ONE << log2_groups), n_groups)):
                piece = group // piece_groups
                at = pieces[piece] + (group - piece * piece_groups) * group_bytes
                decode_group(plane_bases, group, at, run_table, n_runs, e_bits, m_bits, b, window, False)
                end_position = (group - first_group + _ONE) << _SIX
                while k < end_escape and load_uint(positions + k * _TWO, 2) < end_position:
                    inside = load_uint(positions + k * _TWO, 2) & _U64(LANES - 1)
                    mended = at + inside * item
                    value = (load_uint(mended, itemsize) & keep) | (load_uint(exponents + k, 1) << shift)
                    store_uint(mended, value, itemsize)
                    k += _ONE

    return cast("Callable[..., None]", decode)


@numba.njit("int64(uint64, uint64, uint64, uint64, uint64, uint64, uint64, uint64)", nogil=True, cache=True)
def _find_fault(starts, positions, exponents, n_chunks, n, chunk_log2, n_escapes, n_exponents):
    """Return 0 if the escape sections are sound, else which of them is not (1 starts, 2 positions, 3 exponents)."""
    if load_uint(starts, 4) != _ZERO or load_uint(starts + _FOUR * n_chunks, 4) != n_escapes:
        return 1
    for chunk in range(n_chunks):
        first = load_uint(starts + _FOUR * chunk, 4)
        end = load_uint(starts + _FOUR * chunk + _FOUR, 4)
        if end < first or end > n_escapes:
            return 1
        bound = min(n - (chunk << chunk_log2), _ONE << chunk_log2)
        lowest = _ZERO
        for k in range(first, end):
            position = load_uint(positions + _TWO * k, 2)
            if position < lowest or position >= bound:
                return 2
            lowest = position + _ONE
    for k in range(n_escapes):
        if load_uint(exponents + k, 1) >= n_exponents:
            return 3
    return 0


def encode(
    bits: Bits, codebook: Codebook, layout: Sections, chunk_log2: int, payload: Bytes, limit: int, threads: int = 1
) -> int | None:
    """As `reference.encode`, on up to `threads` threads."""
    n_groups = bits.size // LANES
    pieces = np.array([bits.ctypes.data], np.uint64)
    tail = bits[n_groups * LANES :]
    return _encode(pieces, max(1, n_groups), n_groups, tail, codebook, layout, chunk_log2, payload, limit, threads)


def encode_pieces(
    pieces: Pieces, codebook: Codebook, layout: Sections, chunk_log2: int, payload: Bytes, limit: int, threads: int = 1
) -> int | None:
    """As `encode`, of elements that lie in several places; each place holds a multiple of 64."""
    n_groups, piece_groups = pieces.size // LANES, pieces.piece_elems // LANES
    none = np.empty(0, pieces.dtype)
    return _encode(
        pieces.addresses, piece_groups, n_groups, none, codebook, layout, chunk_log2, payload, limit, threads
    )


def _encode(
    pieces: npt.NDArray[np.uint64],
    piece_groups: int,
    n_groups: int,
    tail_bits: Bits,
    codebook: Codebook,
    layout: Sections,
    chunk_log2: int,
    payload: Bytes,
    limit: int,
    threads: int,
) -> int | None:
    form = codebook.format
    # FP32 writes three planes of up to 128 bytes a group, more than the write-combining buffers hold: 8x slower.
    nbytes = n_groups * LANES * form.itemsize
    streaming = nbytes >= STREAMING_BYTES and form.itemsize <= 2 and payload.ctypes.data % 16 == 0
    kernel = _encoder(form.exponent_bits, form.mantissa_bits, codebook.code_bits, codebook.is_window, streaming)
    runs = _run_table(codebook)
    planes = _plane_addresses(payload.ctypes.data, layout)
    scratch = _scratch.scratch
    counts = scratch.array("counts", layout.n_chunks + 1, np.uint32)
    counts[:] = 0

    def encode_range(task: int, first: int, end: int) -> tuple[int, npt.NDArray[np.uint16], Bytes]:
        capacity = min(limit, max(1024, ((end - first) << chunk_log2) // _SCRATCH_SHARE))
        while True:
            positions = scratch.array(f"positions {task}", capacity + LANES, np.uint16)
            exponents = scratch.array(f"exponents {task}", capacity + LANES, np.uint8)
            found = kernel(
                pieces, piece_groups, n_groups, first, end, chunk_log2 - 6, planes, runs,
                counts[1:], positions, exponents, capacity,
            )  # fmt: skip
            if found <= capacity or capacity == limit:
                return found, positions[:found], exponents[:found]
            capacity = min(limit, 8 * capacity)

    parts = _in_ranges(encode_range, layout.n_chunks, chunk_log2, threads)
    if tail_bits.size:
        tail = _encode_tail(kernel, tail_bits, codebook, runs, layout, payload, n_groups)
        counts[-1] += tail[0]
        tail[1][:] += (n_groups * LANES) & ((1 << chunk_log2) - 1)
        parts.append(tail)
    n_escapes = sum(found for found, _, _ in parts)
    if n_escapes > limit:
        return None
    np.cumsum(counts, out=counts)
    payload[layout.starts : layout.starts + counts.nbytes] = counts.view(np.uint8)
    positions_at, exponents_at = layout.positions, layout.exponents(n_escapes)
    for found, positions, exponents in parts:
        payload[positions_at : positions_at + 2 * found] = positions.view(np.uint8)
        payload[exponents_at : exponents_at + found] = exponents
        positions_at += 2 * found
        exponents_at += found
    return n_escapes


def decode_pieces(
    payload: Bytes, codebook: Codebook, layout: Sections, chunk_log2: int, n_escapes: int, out: Pieces, threads: int = 1
) -> None:
    """As `decode`, into several places, each of a multiple of 64 elements."""
    form = codebook.format
    kernel = _piece_decoder(form.exponent_bits, form.mantissa_bits, codebook.code_bits, codebook.is_window)
    runs = _run_table(codebook)
    base = payload.ctypes.data
    planes = _plane_addresses(base, layout)

    def decode_range(_task: int, first: int, end: int) -> None:
        kernel(
            planes, out.addresses, out.piece_elems // LANES, out.size // LANES, first, end, chunk_log2 - 6, runs,
            base + layout.starts, base + layout.positions, base + layout.exponents(n_escapes),
        )  # fmt: skip

    _in_ranges(decode_range, layout.n_chunks, chunk_log2, threads)


def decode(
    payload: Bytes, codebook: Codebook, layout: Sections, chunk_log2: int, n_escapes: int, out: Bits, threads: int = 1
) -> None:
    """As `reference.decode`, on up to `threads` threads."""
    form = codebook.format
    streaming = out.nbytes >= STREAMING_BYTES and out.ctypes.data % 16 == 0
    kernel = _decoder(form.exponent_bits, form.mantissa_bits, codebook.code_bits, codebook.is_window, streaming)
    runs = _run_table(codebook)
    base = payload.ctypes.data
    planes = _plane_addresses(base, layout)
    scratch = _scratch.scratch
    n_groups = out.size // LANES
    if out.size % LANES:
        # Before the full groups: the chunk's escapes are put in place after them, the tail's among them.
        _decode_tail(kernel, payload, codebook, runs, layout, out[n_groups * LANES :], n_groups)

    def decode_range(task: int, first: int, end: int) -> None:
        chunk = scratch.array(f"chunk {task}", 1 << chunk_log2, np.uint32)
        kernel(
            planes,
            out.ctypes.data,
            n_groups,
            first,
            end,
            chunk_log2 - 6,
            runs,
            base + layout.starts,
            base + layout.positions,
            base + layout.exponents(n_escapes),
            chunk.ctypes.data,
        )

    _in_ranges(decode_range, layout.n_chunks, chunk_log2, threads)


def check_escapes(payload: Bytes, form: FloatFormat, layout: Sections, chunk_log2: int, n: int, n_escapes: int) -> None:
    """As `reference.check_escapes`."""
    base = payload.ctypes.data
    fault = _find_fault(
        base + layout.starts, base + layout.positions, base + layout.exponents(n_escapes),
        layout.n_chunks, n, chunk_log2, n_escapes, form.n_exponents,
    )  # fmt: skip
    if fault:
        raise FormatError(ESCAPE_FAULTS[fault - 1])


def _run_table(codebook: Codebook) -> Bytes:
    return np.array([(run.first, run.length, run.code) for run in codebook.runs], np.uint8).reshape(-1)


def _plane_addresses(base: int, layout: Sections) -> npt.NDArray[np.uint64]:
    return np.array([base + offset for _, offset in layout.planes], np.uint64)


def _tail_planes(layout: Sections) -> tuple[Bytes, npt.NDArray[np.uint64], list[tuple[int, int]]]:
    """Return scratch for the planes of one group, its addresses, and each plane's (width, offset in the scratch)."""
    offsets = []
    size = 0
    for width, _ in layout.planes:
        offsets.append((width, size))
        size += LANES * max(width, 2) // 8
    scratch = np.zeros(size + 16, np.uint8)
    scratch = scratch[-scratch.ctypes.data % 16 :]
    return scratch, np.array([scratch.ctypes.data + at for _, at in offsets], np.uint64), offsets


def _encode_tail(
    kernel: Callable[..., int], tail: Bits, codebook: Codebook, runs: Bytes, layout: Sections, payload: Bytes,
    group: int,
) -> tuple[int, npt.NDArray[np.uint16], Bytes]:  # fmt: skip
    """Encode fewer than 64 elements through a full group of scratch; positions count from the group's start."""
    planes, addresses, offsets = _tail_planes(layout)
    # The fill has the first exponent of the codebook, sign and mantissa 0: it encodes to zero bits and no escape.
    padded = np.full(LANES, codebook.values[0] << codebook.format.mantissa_bits, tail.dtype)
    padded[: tail.size] = tail
    counts = np.zeros(1, np.uint32)
    positions, exponents = np.empty(LANES, np.uint16), np.empty(LANES, np.uint8)
    piece = np.array([padded.ctypes.data], np.uint64)
    found = kernel(piece, 1, 1, 0, 1, 0, addresses, runs, counts, positions, exponents, LANES)
    for (width, plane), (_, source) in zip(layout.planes, offsets, strict=True):
        at = plane + group * LANES * width // 8
        size = -(-tail.size * width // 8)
        payload[at : at + size] = planes[source : source + size]
    return found, positions[:found], exponents[:found]


def _decode_tail(
    kernel: Callable[..., None], payload: Bytes, codebook: Codebook, runs: Bytes, layout: Sections, out: Bits,
    group: int,
) -> None:  # fmt: skip
    """Decode fewer than 64 elements, without their escapes, through a full group of scratch."""
    planes, addresses, offsets = _tail_planes(layout)
    for (width, plane), (_, target) in zip(layout.planes, offsets, strict=True):
        at = plane + group * LANES * width // 8
        size = -(-out.size * width // 8)
        planes[target : target + size] = payload[at : at + size]
    padded = np.empty(LANES + 16, out.dtype)
    padded = padded[-padded.ctypes.data % 16 // out.itemsize :][:LANES]
    no_escapes = np.zeros(2, np.uint32).ctypes
    kernel(addresses, padded.ctypes.data, 1, 0, 1, 0, runs, no_escapes.data, 0, 0, 0)
    out[:] = padded[: out.size]


class _Scratch:
    """Arrays kept from call to call, so that steady work allocates nothing."""

    KEEP_BYTES = 1 << 22

    def __init__(self) -> None:
        self.arrays: dict[str, npt.NDArray[Any]] = {}

    def array(self, name: str, size: int, dtype: type[np.generic]) -> npt.NDArray[Any]:
        """Return an uninitialised array of `size`; one asked for under the same name before may share its memory."""
        kept = self.arrays.get(name)
        if kept is not None and kept.size >= size:
            return kept[:size]
        fresh = np.empty(size, dtype)
        if fresh.nbytes <= self.KEEP_BYTES:
            self.arrays[name] = fresh
        return fresh


class _ThreadScratch(threading.local):
    """One `_Scratch` for each calling thread; the threads that help it write to different names of it."""

    def __init__(self) -> None:
        self.scratch = _Scratch()


_scratch = _ThreadScratch()
_pools: dict[int, ThreadPoolExecutor] = {}
_pools_lock = threading.Lock()


def _forget_pools() -> None:
    """Threads do not survive a fork; the child makes its own."""
    global _pools_lock  # noqa: PLW0603
    _pools_lock = threading.Lock()
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pools)


def _pool(threads: int) -> ThreadPoolExecutor:
    with _pools_lock:
        if threads not in _pools:
            _pools[threads] = ThreadPoolExecutor(threads, thread_name_prefix="splitzip")
        return _pools[threads]


_Result = TypeVar("_Result")


def _in_ranges(work: Callable[[int, int, int], _Result], n_chunks: int, chunk_log2: int, threads: int) -> list[_Result]:
    """Call `work(task, first chunk, end chunk)` over disjoint ranges, the first in this thread; keep their order."""
    tasks = max(1, min(threads, (n_chunks << chunk_log2) // TASK_ELEMENTS))
    bounds = [n_chunks * task // tasks for task in range(tasks + 1)]
    if tasks == 1:
        return [work(0, 0, n_chunks)]
    pool = _pool(tasks - 1)
    others = [pool.submit(work, task, bounds[task], bounds[task + 1]) for task in range(1, tasks)]
    return [work(0, 0, bounds[1]), *(other.result() for other in others)]
