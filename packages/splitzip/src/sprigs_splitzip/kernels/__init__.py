"""The CUDA kernels of `codec.cu`, and the order in which they are launched.

What launches them is a `Device`: the GPU through `sprigs.kernels`, or the emulator. The bytes are those of
`sprigs_splitzip.reference`; so is the contract, but that arrays are on the device.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from sprigs.kernels import Module

from ..codebook import Codebook
from ..errors import FormatError
from ..floats import FloatFormat
from ..format import Sections
from ..reference import ESCAPE_FAULTS

THREADS = 256
SINGLE_PASS_CHUNK_LOG2 = 13
_SLOTS = 64
_SCAN_THREADS = 1024
_GROUP = 8


class Device(Protocol):
    """Where kernels run."""

    def empty(self, n: int, dtype: str) -> Any:
        """Make an uninitialised array."""

    def zeros(self, n: int, dtype: str) -> Any:
        """Make an array of zeros."""

    def upload(self, x: np.ndarray[Any, Any]) -> Any:
        """Copy a host array to the device."""

    def address(self, x: Any) -> int:
        """Address of an array's first byte."""

    def launch(self, module: Module, name: str, grid: int, block: int, args: tuple[Any, ...]) -> None:
        """Run a kernel."""


@dataclass
class Workspace:
    """Scratch of the single-pass encoder, kept from call to call so that it need not be cleared."""

    states: Any = None
    epoch: int = field(default=0)


@dataclass(frozen=True)
class Runs:
    """Where elements lie that are not one after the other: in runs of equal length, as the pages of a cache are.

    Attributes:
        offsets: Distance in bytes of each run from the array's start, uint64, shape (runs,).
        elems: Elements a run, a multiple of 8.
    """

    offsets: np.ndarray[Any, np.dtype[np.uint64]]
    elems: int

    def __post_init__(self) -> None:
        if self.elems <= 0 or self.elems % _GROUP:
            raise ValueError(f"a run is a multiple of {_GROUP} elements; got {self.elems}")

    @property
    def divisor(self) -> tuple[int, int]:
        """(magic, shift): for i < 2^31 a multiple of 8, i // elems is (i * magic >> 32) >> shift."""
        groups = self.elems // _GROUP
        shift = (groups - 1).bit_length()
        return 2 * -(-(1 << 28 + shift) // groups), shift


@lru_cache(maxsize=64)
def module(form: FloatFormat, code_bits: int, window: bool, scalar: bool, paged: bool = False) -> Module:
    """Return the kernels for one format, code width, kind of codebook, alignment, and arrangement of elements."""
    values = {
        "WORD_BYTES": form.itemsize,
        "EXPONENT_BITS": form.exponent_bits,
        "MANTISSA_BITS": form.mantissa_bits,
        "CODE_BITS": code_bits,
        "WINDOW": int(window),
        "SCALAR": int(scalar),
        "PAGED": int(paged),
    }
    options = ("-std=c++17", *(f"-D{name}={value}" for name, value in values.items()))
    return Module("sprigs_splitzip.kernels", "codec.cu", options)


def encode(
    device: Device, x: Any, codebook: Codebook, layout: Sections, n: int, chunk_log2: int, payload: Any, limit: int,
    runs: Runs | None = None,
) -> int | None:  # fmt: skip
    """Encode with three kernels: planes and counts, scan, escapes.

    Args:
        device: Where `x` and `payload` are.
        x: Elements as bytes, uint8.
        codebook, layout, chunk_log2: How to encode them.
        n: Number of elements, at least 1.
        payload: Where to, uint8, of at least `layout.payload_size(limit)` bytes.
        limit: Escapes beyond which the frame is not worth coding.
        runs: Where in `x` the elements lie, if not one after the other.

    Returns:
        The number of escapes, or None if there are more than `limit`.
    """
    kernels = _kernels(device, codebook, (x, payload), runs)
    source = (x, *_runs_arguments(device, runs))
    values = _codebook_array(device, codebook)
    planes = _plane_offsets(layout)
    chunks = layout.n_chunks
    counts = device.empty(chunks, "uint32")
    total = device.empty(1, "uint32")
    slot_positions = device.empty(2 * _SLOTS * chunks, "uint8")
    slot_exponents = device.empty(_SLOTS * chunks, "uint8")
    device.launch(
        kernels, "encode_planes", chunks, THREADS,
        (*source, payload, values, n, chunk_log2, *planes, counts, slot_positions, slot_exponents),
    )  # fmt: skip
    device.launch(kernels, "scan_counts", 1, _SCAN_THREADS, (counts, chunks, payload, layout.starts, total))
    device.launch(
        kernels, "place_escapes", chunks, THREADS,
        (*source, payload, values, n, chunk_log2, *planes, layout.starts, layout.positions,
         slot_positions, slot_exponents, total, limit),
    )  # fmt: skip
    found = int(total[0])
    return None if found > limit else found


def encode_single_pass(
    device: Device, x: Any, codebook: Codebook, layout: Sections, n: int, chunk_log2: int, payload: Any, limit: int,
    workspace: Workspace, runs: Runs | None = None,
) -> int | None:  # fmt: skip
    """As `encode`, reading the input once (decoupled look-back), with a small kernel to end.

    Chunks of more than 8192 elements are left to `encode`.
    """
    if chunk_log2 > SINGLE_PASS_CHUNK_LOG2:
        return encode(device, x, codebook, layout, n, chunk_log2, payload, limit, runs)
    kernels = _kernels(device, codebook, (x, payload), runs)
    values = _codebook_array(device, codebook)
    planes = _plane_offsets(layout)
    chunks = layout.n_chunks
    # A state names the epoch it was written in, so those of earlier calls read as not yet there.
    workspace.epoch = workspace.epoch % (2**30 - 1) + 1
    if workspace.states is None or workspace.states.size < chunks or workspace.epoch == 1:
        workspace.states = device.zeros(chunks, "uint64")
    exponents = device.empty(limit + 1, "uint8")
    total = device.empty(1, "uint32")
    ticket = device.zeros(1, "uint32")
    device.launch(
        kernels, "encode_single_pass", chunks, THREADS,
        (x, *_runs_arguments(device, runs), payload, values, n, chunk_log2, *planes, layout.starts, layout.positions,
         workspace.states, ticket, workspace.epoch, exponents, total, limit),
    )  # fmt: skip
    device.launch(
        kernels, "place_exponents", max(1, min(64, limit // THREADS)), THREADS,
        (payload, exponents, n, chunks, *planes, layout.starts, layout.positions, total, limit),
    )  # fmt: skip
    found = int(total[0])
    return None if found > limit else found


def decode(
    device: Device,
    payload: Any,
    codebook: Codebook,
    layout: Sections,
    n: int,
    chunk_log2: int,
    n_escapes: int,
    out: Any,
    runs: Runs | None = None,
) -> None:
    """Check the escape sections and decode.

    Args:
        device: Where `payload` and `out` are.
        payload: The DICT payload, uint8.
        codebook, layout, chunk_log2: How it was encoded.
        n: Number of elements, at least 1.
        n_escapes: Number of escapes.
        out: Where to, uint8, n elements.
        runs: Where in `out` the elements belong, if not one after the other.

    Raises:
        FormatError: An escape section is not sound; some chunks of `out` are then not written.
    """
    kernels = _kernels(device, codebook, (payload, out), runs)
    faults = device.zeros(1, "uint32")
    device.launch(
        kernels, "decode", layout.n_chunks, THREADS,
        (payload, out, *_runs_arguments(device, runs), _codebook_array(device, codebook), n, chunk_log2,
         *_plane_offsets(layout), layout.starts, layout.positions, layout.exponents(n_escapes), n_escapes, faults),
    )  # fmt: skip
    found = int(faults[0])
    if found:
        raise FormatError("; ".join(text for bit, text in enumerate(ESCAPE_FAULTS) if found >> bit & 1))


def _kernels(device: Device, codebook: Codebook, arrays: tuple[Any, ...], runs: Runs | None) -> Module:
    aligned = all(device.address(array) % 16 == 0 for array in arrays)
    if runs is not None and (runs.offsets % np.uint64(16)).any():
        aligned = False
    return module(codebook.format, codebook.code_bits, codebook.is_window, not aligned, runs is not None)


def _runs_arguments(device: Device, runs: Runs | None) -> tuple[Any, int, int, int]:
    if runs is None:
        return device.upload(np.zeros(1, np.uint64)), 0, 0, 0
    return device.upload(runs.offsets), runs.elems // _GROUP, *runs.divisor


def _codebook_array(device: Device, codebook: Codebook) -> Any:
    return device.upload(np.array(codebook.values, np.uint8))


def _plane_offsets(layout: Sections) -> tuple[int, ...]:
    """Two code planes and three of sign and mantissa, 0 where the format has fewer."""
    offsets = [offset for _, offset in layout.planes]
    codes, rest = offsets[: layout.n_code_planes], offsets[layout.n_code_planes :]
    return (*codes, *[0] * (2 - len(codes)), *rest, *[0] * (3 - len(rest)))
