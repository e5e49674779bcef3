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


@lru_cache(maxsize=64)
def module(form: FloatFormat, code_bits: int, window: bool, scalar: bool) -> Module:
    """Return the kernels for one format, code width, kind of codebook, and alignment."""
    values = {
        "WORD_BYTES": form.itemsize,
        "EXPONENT_BITS": form.exponent_bits,
        "MANTISSA_BITS": form.mantissa_bits,
        "CODE_BITS": code_bits,
        "WINDOW": int(window),
        "SCALAR": int(scalar),
    }
    options = ("-std=c++17", *(f"-D{name}={value}" for name, value in values.items()))
    return Module("sprigs_splitzip.kernels", "codec.cu", options)


def encode(
    device: Device, x: Any, codebook: Codebook, layout: Sections, n: int, chunk_log2: int, payload: Any, limit: int
) -> int | None:
    """Encode with three kernels: planes and counts, scan, escapes.

    Args:
        device: Where `x` and `payload` are.
        x: Elements as bytes, uint8.
        codebook, layout, chunk_log2: How to encode them.
        n: Number of elements, at least 1.
        payload: Where to, uint8, of at least `layout.payload_size(limit)` bytes.
        limit: Escapes beyond which the frame is not worth coding.

    Returns:
        The number of escapes, or None if there are more than `limit`.
    """
    kernels = _kernels(device, codebook, (x, payload))
    values = _codebook_array(device, codebook)
    planes = _plane_offsets(layout)
    chunks = layout.n_chunks
    counts = device.empty(chunks, "uint32")
    total = device.empty(1, "uint32")
    slot_positions = device.empty(2 * _SLOTS * chunks, "uint8")
    slot_exponents = device.empty(_SLOTS * chunks, "uint8")
    device.launch(
        kernels, "encode_planes", chunks, THREADS,
        (x, payload, values, n, chunk_log2, *planes, counts, slot_positions, slot_exponents),
    )  # fmt: skip
    device.launch(kernels, "scan_counts", 1, _SCAN_THREADS, (counts, chunks, payload, layout.starts, total))
    device.launch(
        kernels, "place_escapes", chunks, THREADS,
        (x, payload, values, n, chunk_log2, *planes, layout.starts, layout.positions,
         slot_positions, slot_exponents, total, limit),
    )  # fmt: skip
    found = int(total[0])
    return None if found > limit else found


def encode_single_pass(
    device: Device, x: Any, codebook: Codebook, layout: Sections, n: int, chunk_log2: int, payload: Any, limit: int,
    workspace: Workspace,
) -> int | None:  # fmt: skip
    """As `encode`, reading the input once (decoupled look-back), with a small kernel to end.

    Chunks of more than 8192 elements are left to `encode`.
    """
    if chunk_log2 > SINGLE_PASS_CHUNK_LOG2:
        return encode(device, x, codebook, layout, n, chunk_log2, payload, limit)
    kernels = _kernels(device, codebook, (x, payload))
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
        (x, payload, values, n, chunk_log2, *planes, layout.starts, layout.positions,
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
) -> None:
    """Check the escape sections and decode.

    Args:
        device: Where `payload` and `out` are.
        payload: The DICT payload, uint8.
        codebook, layout, chunk_log2: How it was encoded.
        n: Number of elements, at least 1.
        n_escapes: Number of escapes.
        out: Where to, uint8, n elements.

    Raises:
        FormatError: An escape section is not sound; some chunks of `out` are then not written.
    """
    kernels = _kernels(device, codebook, (payload, out))
    faults = device.zeros(1, "uint32")
    device.launch(
        kernels, "decode", layout.n_chunks, THREADS,
        (payload, out, _codebook_array(device, codebook), n, chunk_log2, *_plane_offsets(layout),
         layout.starts, layout.positions, layout.exponents(n_escapes), n_escapes, faults),
    )  # fmt: skip
    found = int(faults[0])
    if found:
        raise FormatError("; ".join(text for bit, text in enumerate(ESCAPE_FAULTS) if found >> bit & 1))


def _kernels(device: Device, codebook: Codebook, arrays: tuple[Any, ...]) -> Module:
    aligned = all(device.address(array) % 16 == 0 for array in arrays)
    return module(codebook.format, codebook.code_bits, codebook.is_window, not aligned)


def _codebook_array(device: Device, codebook: Codebook) -> Any:
    return device.upload(np.array(codebook.values, np.uint8))


def _plane_offsets(layout: Sections) -> tuple[int, ...]:
    """Two code planes and three of sign and mantissa, 0 where the format has fewer."""
    offsets = [offset for _, offset in layout.planes]
    codes, rest = offsets[: layout.n_code_planes], offsets[layout.n_code_planes :]
    return (*codes, *[0] * (2 - len(codes)), *rest, *[0] * (3 - len(rest)))
