"""Frames while the data is still on its way: encode what has been computed, decode what has arrived."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from . import arrays
from .arrays import Bits, Like
from .backends import thread_count
from .bank import Key
from .codec import FRAME_ELEMENTS, MAX_BYTES, Codec, Encoded, Part, decode_payload
from .errors import FormatError, SplitZipError, TruncatedError
from .floats import float_format
from .format import (
    MAX_HEADER,
    MIN_HEADER,
    FrameInfo,
    StreamInfo,
    StreamOrder,
    check_expected,
    check_shape,
    frame_ranges,
    parse_header,
)


class StreamEncoder:
    """Encodes one tensor whose elements come in pieces, in order; yields each frame as soon as it is full.

    Args:
        codec: How to encode. Frames are those of `codec.encode_frames` on the whole tensor, byte for byte.
        shape: Shape of the tensor.
        dtype: Its element format.
        key: Which codebook of the codec's bank.
        frame_elems: Elements a frame.
        tag: Unsigned 64-bit number stored in each frame.

    Raises:
        SplitZipError: The tensor cannot be described by frames.
    """

    def __init__(
        self,
        codec: Codec,
        shape: tuple[int, ...],
        dtype: object,
        key: Key | None = None,
        *,
        frame_elems: int = FRAME_ELEMENTS,
        tag: int = 0,
    ) -> None:
        self.codec = codec
        self.shape = tuple(int(d) for d in shape)
        self.format = float_format(dtype)
        self.key = key
        self.tag = tag
        check_shape(self.shape, tag)
        self.n_elems = math.prod(self.shape)
        self._frames = enumerate(frame_ranges(self.n_elems, frame_elems))
        self._next: tuple[int, tuple[int, int]] | None = next(self._frames)
        self._pending: list[Bits] = []
        self._received = 0

    @property
    def finished(self) -> bool:
        """Whether the last frame has been yielded."""
        return self._next is None

    def feed(self, piece: object) -> Iterator[Encoded]:
        """Take the next elements, of any shape, in C order; yield the frames they complete.

        The elements are taken before the first frame is yielded; those of unfinished frames are copied.

        Raises:
            SplitZipError: Another element type, or more elements than the tensor has.
        """
        view = arrays.as_bits(piece, None if _is_float(piece) else self.format)
        if view.format != self.format:
            raise SplitZipError(f"the tensor is {self.format.name}, this piece is {view.format.name}")
        if self._received + view.bits.size > self.n_elems:
            raise SplitZipError(f"{self._received + view.bits.size} elements for a tensor of {self.n_elems}")
        start = self._received
        self._received += view.bits.size
        parts = []
        used = 0
        while self._next is not None and sum(self._next[1]) <= self._received:
            index, (first, n) = self._next
            own = view.bits[used : first + n - start]
            used = first + n - start
            bits = np.concatenate([*self._pending, own]) if self._pending else own
            self._pending.clear()
            parts.append(Part(bits, self.format, self.shape, first, index))
            self._next = next(self._frames, None)
        if used < view.bits.size:
            self._pending.append(view.bits[used:].copy())
        return (self.codec.encode_part(part, self.key, tag=self.tag) for part in parts)


class StreamDecoder:
    """Decodes a stream that arrives in pieces, cut anywhere; each frame goes into the output once it is complete.

    Args:
        out: Array to decode into; None: a new one, made when the first header has arrived.
        like: What to make, as for `decompress`.
        expected_dtype, expected_shape, expected_tag: Refuse anything else.
        verify: Compare payload checksums.
        max_bytes: Refuse data that would decode to more.
        threads: Most threads to use.
    """

    def __init__(
        self,
        *,
        out: Any = None,
        like: Like = "numpy",
        expected_dtype: object = None,
        expected_shape: tuple[int, ...] | None = None,
        expected_tag: int | None = None,
        verify: bool = True,
        max_bytes: int = MAX_BYTES,
        threads: int | None = None,
    ) -> None:
        self._out = out
        self._like = like
        self._expected = (expected_dtype, expected_shape, expected_tag)
        self._verify = verify
        self._threads = thread_count(threads)
        self._max_bytes = max_bytes
        self._order = StreamOrder(max_bytes)
        self._buffer = bytearray()
        self._header: FrameInfo | None = None
        self._bits: Any = None
        self._failure: SplitZipError | None = None

    @property
    def frames(self) -> list[FrameInfo]:
        """The frames decoded so far, and the one under way."""
        return list(self._order.frames)

    @property
    def finished(self) -> bool:
        """Whether the last frame has been decoded."""
        return self._order.finished and self._header is None

    @property
    def decoded_elems(self) -> int:
        """Elements in place in the output, from the first one on."""
        return self._order.next_element if self._header is None else self._header.elem_offset

    def feed(self, data: Any) -> int:
        """Take the next bytes; return how many frames they completed.

        Raises:
            SplitZipError: The bytes are damaged, out of order, or not what was expected, or follow the last frame.
                Every later call raises the same error: a stream that failed stays failed.
        """
        if self._failure is not None:
            raise self._failure
        try:
            return self._take(arrays.buffer_of(data))
        except SplitZipError as error:
            self._failure = error
            raise

    def result(self) -> Any:
        """Return the output.

        Raises:
            TruncatedError: The stream has not ended.
            SplitZipError: It failed.
        """
        if self._failure is not None:
            raise self._failure
        if not self.finished:
            raise TruncatedError(f"the stream is not over: {self.decoded_elems} elements have arrived")
        return arrays.finish(self._out, self._like)

    def _take(self, data: Bits) -> int:
        completed = 0
        while data.size or self._header is not None:
            if self.finished:
                raise FormatError(f"{data.size} bytes follow the last frame")
            if self._header is None:
                data = self._take_header(data)
                continue
            size = self._header.payload_size
            payload: Any
            if not self._buffer and data.size >= size:
                payload, data = data[:size], data[size:]  # all in this piece: no copy
            else:
                data = self._fill(data, size)
                if len(self._buffer) < size:
                    break
                payload = np.frombuffer(bytes(self._buffer), np.uint8)
                self._buffer.clear()
            decode_payload(self._header, payload, self._bits, self._verify, self._threads)
            self._header = None
            completed += 1
        return completed

    def _take_header(self, data: Bits) -> Bits:
        data = self._fill(data, MIN_HEADER)
        if len(self._buffer) >= MIN_HEADER and self._buffer[6] == MAX_HEADER // 64:
            data = self._fill(data, MAX_HEADER)
            if len(self._buffer) < MAX_HEADER:
                return data
        if len(self._buffer) >= MIN_HEADER:
            info = parse_header(memoryview(bytes(self._buffer)), self._max_bytes)
            self._buffer.clear()
            self._order.take(info)
            if self._bits is None:
                self._open(info)
            self._header = info
        return data

    def _fill(self, data: Bits, size: int) -> Bits:
        """Move bytes into the buffer until it holds `size`; return the rest."""
        taken = max(0, min(size - len(self._buffer), data.size))
        self._buffer += data[:taken].data
        return data[taken:]

    def _open(self, info: FrameInfo) -> None:
        check_expected(StreamInfo((info,), 0), *self._expected)
        if self._out is None:
            self._out, self._bits = arrays.allocate(info.format, info.shape, self._like)
        else:
            self._bits = arrays.bits_of_output(self._out, info.format, info.shape)


def _is_float(piece: object) -> bool:
    dtype = getattr(piece, "dtype", None)
    return dtype is not None and arrays.format_or_integer(dtype) is not None
