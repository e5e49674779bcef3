"""Wire format v1: the SPLZ frame. Headers, payload sections, and the checks made before anything is decoded.

A frame is a header and a payload, one contiguous range of one tensor, decodable alone. A stream is the frames of one
tensor in order; the last bears the LAST flag. All integers are little-endian.

Header, 96 bytes + 8 per dimension, zero-padded to a multiple of 64::

     0 magic "SPLZ"      4 major u8 = 1    5 minor u8 = 0    6 header length / 64 u8    7 flags u8 (1 LAST, 2 WINDOW)
     8 dtype u8          9 mode u8 (0 RAW, 1 DICT)          10 code bits u8 (3, 4; RAW 0)
    11 log2 chunk u8 (10..16; RAW 0)      12 ndim u8        13 checksum kind u8 (0 none, 1 XXH3-64 of the payload)
    14 zero u16         16 elements u64 (this frame)        24 first element u64 (in the flattened tensor)
    32 escapes u64      40 payload bytes u64                48 payload checksum u64    56 tag u64 (the caller's)
    64 codebook u8[16]  80 frame index u32                  84 CRC-32 of the header (this field zero)    88 zero u64
    96 dims u64[ndim] of the whole tensor

DICT payload, each section zero-padded to a multiple of 16 bytes: code planes; sign-and-mantissa planes; chunk starts
u32[chunks + 1] (prefix counts of escapes); escape positions u16 (in their chunk, ascending); escape exponents u8.
A field of w bits is stored as power-of-two planes, widest first, low bits first. RAW payload: the bytes themselves.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from .codebook import Codebook
from .errors import (
    BufferTooSmall,
    ChecksumError,
    FormatError,
    LayoutMismatch,
    LimitError,
    SplitZipError,
    TruncatedError,
)
from .floats import BY_WIRE_ID, OPAQUE, FloatFormat, float_format, plane_widths

MAGIC = b"SPLZ"
MAJOR, MINOR = 1, 0
RAW, DICT = 0, 1
FLAG_LAST, FLAG_WINDOW = 1, 2
CHECKSUM_NONE, CHECKSUM_XXH3 = 0, 1
MAX_NDIM = 8
MAX_FRAME_ELEMENTS = 2**31 - 1
DEFAULT_CHUNK_LOG2 = 13
MIN_HEADER, MAX_HEADER = 128, 192

_HEADER = struct.Struct("<4s10BH6Q16sIIQ")
assert _HEADER.size == 96
_CRC_OFFSET = 84


def pad16(n: int) -> int:
    """Round up to a multiple of 16."""
    return -(-n // 16) * 16


def header_size(ndim: int) -> int:
    """Bytes of the header of a tensor with `ndim` dimensions: 128, or 192 from five dimensions on."""
    return -(-(96 + 8 * ndim) // 64) * 64


@dataclass(frozen=True)
class Sections:
    """Where each section of a DICT payload starts, in bytes from the payload's start."""

    planes: tuple[tuple[int, int], ...]
    """(width in bits, offset) of every plane, code planes first."""
    n_code_planes: int
    starts: int
    n_chunks: int
    positions: int
    """End of the part whose size depends on (n, dtype, code bits) alone."""

    def exponents(self, n_escapes: int) -> int:
        """Offset of the escape exponents."""
        return self.positions + pad16(2 * n_escapes)

    def payload_size(self, n_escapes: int) -> int:
        """Bytes of the whole payload."""
        return self.exponents(n_escapes) + pad16(n_escapes)

    def max_escapes(self, nbytes: int) -> int:
        """Most escapes with which the payload fits `nbytes`; negative if not even the dense part does."""
        # Sixteen escapes fill 32 bytes of positions and 16 of exponents; eight take 16 and 16.
        groups, rest = divmod(nbytes - self.positions, 48)
        return 16 * groups + (8 if rest >= 32 else 0)

    def zero_padding(self, payload: npt.NDArray[np.uint8], n: int, n_escapes: int) -> None:
        """Clear the bytes between the sections, at most 15 each."""
        exponents = self.exponents(n_escapes)
        ends = [offset + -(-n * width // 8) for width, offset in self.planes]
        ends += [self.starts + 4 * (self.n_chunks + 1), self.positions + 2 * n_escapes, exponents + n_escapes]
        for end in ends:
            payload[end : pad16(end)] = 0


@lru_cache(maxsize=256)
def sections(form: FloatFormat, code_bits: int, n: int, chunk_log2: int) -> Sections:
    """Lay out the DICT payload of `n` elements."""
    offset = 0
    planes = []
    for width in (*plane_widths(code_bits), *plane_widths(form.sm_bits)):
        planes.append((width, offset))
        offset += pad16(-(-n * width // 8))
    n_chunks = -(-n // (1 << chunk_log2))
    positions = offset + pad16(4 * (n_chunks + 1))
    return Sections(tuple(planes), len(plane_widths(code_bits)), offset, n_chunks, positions)


def dense_size(n: int, dtype: object, code_bits: int = 4, chunk_log2: int = DEFAULT_CHUNK_LOG2) -> int:
    """Bytes of a DICT payload before its first escape: known before a single element is read."""
    return sections(float_format(dtype), code_bits, n, chunk_log2).positions


def max_encoded_size(shape: int | tuple[int, ...], dtype: object, *, frame_elems: int | None = None) -> int:
    """Upper bound on the encoded bytes of a tensor, for any contents: its own bytes and one header a frame.

    Args:
        shape: Shape of the tensor, or its length.
        dtype: Element format or dtype.
        frame_elems: Elements a frame, if it is to be split; None for a single frame up to 2^28 elements.
    """
    dims = (shape,) if isinstance(shape, int) else tuple(shape)
    n = math.prod(dims)
    frames = sum(1 for _ in frame_ranges(n, frame_elems))
    return frames * header_size(len(dims)) + n * float_format(dtype).itemsize


DEFAULT_FRAME_ELEMENTS = 2**28


def frame_ranges(n: int, frame_elems: int | None) -> Iterator[tuple[int, int]]:
    """Yield (first element, number of elements) of each frame of an `n`-element tensor; one frame if n is 0."""
    size = DEFAULT_FRAME_ELEMENTS if frame_elems is None else frame_elems
    if not 0 < size <= MAX_FRAME_ELEMENTS:
        raise LimitError(f"a frame holds 1..{MAX_FRAME_ELEMENTS} elements; got frame_elems={frame_elems!r}")
    for first in range(0, max(n, 1), size):
        yield first, min(size, n - first)


@dataclass(frozen=True, kw_only=True)
class FrameInfo:
    """A frame's header, decoded and checked."""

    format: FloatFormat
    mode: int
    code_bits: int
    chunk_log2: int
    n_elems: int
    elem_offset: int
    n_escapes: int
    payload_size: int
    checksum: int | None
    tag: int
    codebook: Codebook | None
    frame_index: int
    last: bool
    shape: tuple[int, ...]

    @property
    def header_size(self) -> int:
        """Bytes of the header."""
        return header_size(len(self.shape))

    @property
    def nbytes(self) -> int:
        """Bytes of the whole frame."""
        return self.header_size + self.payload_size

    @property
    def raw_nbytes(self) -> int:
        """Bytes of the elements it holds."""
        return self.n_elems * self.format.itemsize

    @property
    def ratio(self) -> float:
        """Raw bytes / encoded bytes."""
        return self.raw_nbytes / self.nbytes

    @property
    def mode_name(self) -> str:
        """`"raw"` or `"dict"`."""
        return "dict" if self.mode == DICT else "raw"

    @property
    def sections(self) -> Sections:
        """Layout of the DICT payload."""
        return sections(self.format, self.code_bits, self.n_elems, self.chunk_log2)

    def pack(self) -> bytes:
        """Return the header's bytes."""
        values = b"" if self.codebook is None else bytes(self.codebook.values)
        window = self.codebook is not None and self.codebook.is_window
        fixed = [
            MAGIC,
            MAJOR,
            MINOR,
            self.header_size // 64,
            FLAG_LAST * self.last | FLAG_WINDOW * window,
            self.format.wire_id,
            self.mode,
            self.code_bits,
            self.chunk_log2,
            len(self.shape),
            CHECKSUM_NONE if self.checksum is None else CHECKSUM_XXH3,
            0,
            self.n_elems,
            self.elem_offset,
            self.n_escapes,
            self.payload_size,
            self.checksum or 0,
            self.tag,
            values,
            self.frame_index,
            0,
            0,
        ]
        header = bytearray(_HEADER.pack(*fixed) + struct.pack(f"<{len(self.shape)}Q", *self.shape))
        header += bytes(self.header_size - len(header))
        struct.pack_into("<I", header, _CRC_OFFSET, zlib.crc32(header))
        return bytes(header)


@dataclass(frozen=True)
class StreamInfo:
    """What `inspect` tells of a stream, from its headers alone."""

    frames: tuple[FrameInfo, ...]
    trailing: int
    """Bytes after the LAST frame."""

    @property
    def format(self) -> FloatFormat:
        """Element format."""
        return self.frames[0].format

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return self.frames[0].shape

    @property
    def tag(self) -> int:
        """The caller's tag."""
        return self.frames[0].tag

    @property
    def nbytes(self) -> int:
        """Bytes of all frames."""
        return sum(f.nbytes for f in self.frames)

    @property
    def raw_nbytes(self) -> int:
        """Bytes of the tensor."""
        return sum(f.raw_nbytes for f in self.frames)

    @property
    def ratio(self) -> float:
        """Raw bytes / encoded bytes."""
        return self.raw_nbytes / self.nbytes

    @property
    def n_escapes(self) -> int:
        """Escapes of all frames."""
        return sum(f.n_escapes for f in self.frames)


def parse_header(data: memoryview, max_bytes: int) -> FrameInfo:
    """Read and check the header at the start of `data`; nothing of the payload is looked at.

    Raises:
        SplitZipError: At the first field that is wrong, in the order of the fields.
    """
    if len(data) < MIN_HEADER:
        raise TruncatedError(f"a frame has at least {MIN_HEADER} bytes; got {len(data)}")
    (
        magic, major, minor, units, flags, wire_id, mode, code_bits, chunk_log2, ndim, checksum_kind, zero,
        n, offset, n_escapes, payload_size, checksum, tag, values, index, crc, zero2,
    ) = _HEADER.unpack_from(data)  # fmt: skip
    if magic != MAGIC:
        raise FormatError(f"not a SPLZ frame: it begins with {bytes(magic)!r}")
    if major != MAJOR:
        raise FormatError(f"SPLZ version {major}.{minor} is not supported (this library reads {MAJOR}.x)")
    if units not in (2, 3):
        raise FormatError(f"header length {units} * 64 is not one of 128, 192")
    if len(data) < 64 * units:
        raise TruncatedError(f"the header has {64 * units} bytes; got {len(data)}")
    header = bytearray(data[: 64 * units])
    header[_CRC_OFFSET : _CRC_OFFSET + 4] = bytes(4)
    if zlib.crc32(header) != crc:
        raise ChecksumError("the frame header's CRC does not match: the header is damaged")
    if ndim > MAX_NDIM or header_size(ndim) != 64 * units:
        raise FormatError(f"{ndim} dimensions do not fit a header of {64 * units} bytes")
    if zero or zero2 or any(header[96 + 8 * ndim :]):
        raise FormatError("reserved header bytes are not zero: written by a newer version?")
    if flags & ~(FLAG_LAST | FLAG_WINDOW):
        raise FormatError(f"unknown flag bits {flags:#x}")
    if wire_id not in BY_WIRE_ID:
        raise FormatError(f"unknown dtype {wire_id}")
    form = BY_WIRE_ID[wire_id]
    if mode not in (RAW, DICT) or (mode == DICT and form is OPAQUE):
        raise FormatError(f"unknown mode {mode} for {form.name}")
    if checksum_kind not in (CHECKSUM_NONE, CHECKSUM_XXH3) or (checksum_kind == CHECKSUM_NONE and checksum):
        raise FormatError(f"unknown checksum kind {checksum_kind}")
    shape = struct.unpack_from(f"<{ndim}Q", data, 96)
    if offset + n > math.prod(shape):
        raise FormatError(f"elements {offset}..{offset + n} lie outside a tensor of shape {shape}")
    if n > MAX_FRAME_ELEMENTS or n_escapes > MAX_FRAME_ELEMENTS:
        raise LimitError(f"{n} elements, {n_escapes} escapes: a frame holds at most {MAX_FRAME_ELEMENTS}")
    if n * form.itemsize > max_bytes:
        raise LimitError(f"the frame decodes to {n * form.itemsize} bytes, more than max_bytes={max_bytes}")
    codebook = None
    if mode == RAW:
        if n_escapes or code_bits or chunk_log2 or any(values) or flags & FLAG_WINDOW:
            raise FormatError("a RAW frame has no escapes, code bits, chunks or codebook")
        expected_size = n * form.itemsize
    else:
        codebook = _parse_codebook(form, code_bits, values, bool(flags & FLAG_WINDOW))
        if not 10 <= chunk_log2 <= 16:
            raise FormatError(f"log2 of the chunk length lies in 10..16; got {chunk_log2}")
        if n_escapes > n:
            raise FormatError(f"{n_escapes} escapes among {n} elements")
        expected_size = sections(form, code_bits, n, chunk_log2).payload_size(n_escapes)
    if payload_size != expected_size:
        raise FormatError(f"the payload should have {expected_size} bytes; the header says {payload_size}")
    return FrameInfo(
        format=form, mode=mode, code_bits=code_bits, chunk_log2=chunk_log2, n_elems=n, elem_offset=offset,
        n_escapes=n_escapes, payload_size=payload_size, checksum=checksum if checksum_kind else None, tag=tag,
        codebook=codebook, frame_index=index, last=bool(flags & FLAG_LAST), shape=shape,
    )  # fmt: skip


@lru_cache(maxsize=256)
def _parse_codebook(form: FloatFormat, code_bits: int, values: bytes, window: bool) -> Codebook:
    if code_bits not in (3, 4):
        raise FormatError(f"code bits are 3 or 4; got {code_bits}")
    used, unused = values[: 1 << code_bits], values[1 << code_bits :]
    if any(unused) or any(a >= b for a, b in pairwise(used)) or used[-1] >= form.n_exponents:
        raise FormatError(f"the codebook is not strictly ascending {form.name} exponents: {list(values)}")
    codebook = Codebook(form, used, code_bits)
    if codebook.is_window != window:
        raise FormatError("the WINDOW flag contradicts the codebook")
    return codebook


def parse_stream(
    header_at: Callable[[int], memoryview], size: int, *, max_bytes: int, allow_trailing: bool
) -> StreamInfo:
    """Read and check every header of a stream; nothing of the payloads is looked at.

    Args:
        header_at: Gives at least 192 bytes from a position on, fewer only at the end.
        size: Bytes of the whole stream.
        max_bytes: Refuse what decodes to more.
        allow_trailing: Accept bytes after the last frame.

    Raises:
        SplitZipError: As `parse_header`; also if frames are missing, out of order, of differing tensors, or followed
            by other bytes.
    """
    order = StreamOrder(max_bytes)
    position = 0
    while not order.finished:
        if order.frames and position == size:
            raise TruncatedError(f"the stream ends after frame {len(order.frames) - 1}, which is not the last")
        info = parse_header(header_at(position), max_bytes)
        if position + info.nbytes > size:
            raise TruncatedError(
                f"frame {len(order.frames)} has {info.nbytes} bytes, but only {size - position} follow"
            )
        order.take(info)
        position += info.nbytes
    trailing = size - position
    if trailing and not allow_trailing:
        raise FormatError(f"{trailing} bytes follow the last frame (pass allow_trailing=True if that is expected)")
    return StreamInfo(tuple(order.frames), trailing)


class StreamOrder:
    """Checks frame by frame that a stream is whole, in order, and of one tensor."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.frames: list[FrameInfo] = []
        self.next_element = 0

    @property
    def finished(self) -> bool:
        """Whether the last frame was taken."""
        return bool(self.frames) and self.frames[-1].last

    def take(self, info: FrameInfo) -> None:
        """Check that a frame comes next, and take it.

        Raises:
            SplitZipError: It does not.
        """
        number = len(self.frames)
        total = math.prod(info.shape)
        if not self.frames:
            total_bytes = total * info.format.itemsize
            if total_bytes > self.max_bytes:
                raise LimitError(f"the tensor decodes to {total_bytes} bytes, more than max_bytes={self.max_bytes}")
        elif (info.format, info.shape, info.tag) != (
            self.frames[0].format,
            self.frames[0].shape,
            self.frames[0].tag,
        ):
            raise LayoutMismatch(f"frame {number} belongs to another tensor than frame 0")
        if info.frame_index != number:
            raise FormatError(f"expected frame {number}, found frame {info.frame_index}")
        if info.elem_offset != self.next_element:
            raise FormatError(f"frame {number} begins at element {info.elem_offset}, expected {self.next_element}")
        if info.n_elems == 0 and not (info.last and not self.frames):
            raise FormatError(f"frame {number} of several is empty")
        reached = self.next_element + info.n_elems
        if info.last and reached != total:
            raise FormatError(f"the frames hold {reached} elements of a tensor of shape {info.shape}")
        self.frames.append(info)
        self.next_element = reached


def check_expected(
    info: StreamInfo,
    dtype: object = None,
    shape: tuple[int, ...] | None = None,
    tag: int | None = None,
) -> None:
    """Compare a stream with what the caller expects.

    Raises:
        LayoutMismatch: On the first difference.
    """
    if dtype is not None and float_format(dtype) != info.format:
        raise LayoutMismatch(f"expected dtype {float_format(dtype).name}, the stream holds {info.format.name}")
    if shape is not None and tuple(shape) != info.shape:
        raise LayoutMismatch(f"expected shape {tuple(shape)}, the stream holds {info.shape}")
    if tag is not None and tag != info.tag:
        raise LayoutMismatch(f"expected tag {tag:#x}, the stream bears {info.tag:#x}")


def check_shape(shape: tuple[int, ...], tag: int) -> None:
    """Refuse at the door what a header cannot hold."""
    if len(shape) > MAX_NDIM:
        raise LimitError(f"a frame describes at most {MAX_NDIM} dimensions; got shape {shape}: reshape it first")
    if not 0 <= tag < 2**64:
        raise SplitZipError(f"a tag is an unsigned 64-bit integer; got {tag}")


def check_capacity(needed: int, out: npt.NDArray[np.uint8]) -> None:
    """Raise `BufferTooSmall` unless `out` holds `needed` bytes."""
    if out.nbytes < needed:
        raise BufferTooSmall(f"{needed} bytes are needed, the output buffer has {out.nbytes}")
