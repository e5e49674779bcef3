"""Compressing and decompressing arrays: `Codec` for repeated work, `compress` and `decompress` for one call."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import xxhash

from . import arrays
from .arrays import BitView, Like, is_on_device
from .backends import BackendName, check_name, select, thread_count
from .bank import CodebookBank, EscapeMonitor, Key
from .codebook import CodeBits, Codebook
from .errors import BufferTooSmall, ChecksumError, DeviceUnavailable, FormatError, LimitError, SplitZipError
from .floats import FloatFormat
from .format import (
    DEFAULT_CHUNK_LOG2,
    DICT,
    MAX_FRAME_ELEMENTS,
    MAX_HEADER,
    RAW,
    FrameInfo,
    StreamInfo,
    check_capacity,
    check_expected,
    check_shape,
    frame_ranges,
    header_size,
    parse_header,
    parse_stream,
    sections,
)
from .memory import memory_named, memory_of
from .statistics import sample_histogram

Bytes = npt.NDArray[np.uint8]

FRAME_ELEMENTS = 2**21
"""Elements a frame when streaming: 4 MiB of BF16, long enough for full speed, short enough to overlap."""

MAX_BYTES = 2**36


@dataclass(frozen=True, eq=False)
class Encoded:
    """One encoded frame and what is known of it."""

    info: FrameInfo
    buffer: Any
    """uint8, of NumPy or, if the array was on a CUDA device, of CuPy."""
    escape_rate: float | None
    """Escapes an element; a lower bound if the frame went RAW because of them, None if it was never tried."""

    @property
    def nbytes(self) -> int:
        """Bytes of the frame."""
        return self.info.nbytes

    @property
    def ratio(self) -> float:
        """Raw bytes / encoded bytes."""
        return self.info.ratio

    @property
    def n_escapes(self) -> int:
        """Escapes in the frame."""
        return self.info.n_escapes

    @property
    def mode(self) -> str:
        """`"dict"` or `"raw"`."""
        return self.info.mode_name

    @property
    def memoryview(self) -> memoryview:
        """The frame's bytes, without a copy.

        Raises:
            DeviceUnavailable: They are on a CUDA device.
        """
        if is_on_device(self.buffer):
            raise DeviceUnavailable("the frame is on a CUDA device; tobytes() copies it to the host")
        return memoryview(self.buffer.data)

    def tobytes(self) -> bytes:
        """Return the frame's bytes, copied to the host if they are on a device."""
        host: Bytes = memory_of(self.buffer).to_host(self.buffer)
        return host.tobytes()

    __bytes__ = tobytes

    def sealed(self) -> Encoded:
        """Return the same frame on the host, with a payload checksum; for frames made on a device without one."""
        host: Bytes = memory_of(self.buffer).to_host(self.buffer)
        if self.info.checksum is None:
            host = host.copy()
            payload = host[self.info.header_size :]
            info = replace(self.info, checksum=xxhash.xxh3_64_intdigest(payload.data))
            host[: info.header_size] = np.frombuffer(info.pack(), np.uint8)
        else:
            info = self.info
        return Encoded(info, host, self.escape_rate)


@dataclass(frozen=True, eq=False)
class Part:
    """Consecutive elements of a tensor that make up a frame."""

    bits: Any
    """Their bits, flat."""
    format: FloatFormat
    shape: tuple[int, ...]
    """Of the whole tensor."""
    first: int
    """Which element of the tensor they begin with."""
    index: int
    """Which frame they are."""


def _whole(view: BitView) -> Part:
    return Part(view.bits, view.format, view.shape, 0, 0)


def _parts(view: BitView, frame_elems: int | None) -> Iterator[Part]:
    for index, (first, n) in enumerate(frame_ranges(view.bits.size, frame_elems)):
        yield Part(view.bits[first : first + n], view.format, view.shape, first, index)


class Codec:
    """Encodes arrays with codebooks calibrated beforehand, and decodes any frame.

    A codec may be used from several threads at once. The bytes it writes depend on the array, the codebook and
    `chunk_log2` alone, never on threads or backend.

    Args:
        codebook: A `Codebook`, or a `CodebookBank` from which `key` picks one for each array.
        checksum: Store an XXH3-64 of each payload. Without it a changed mantissa bit cannot be noticed.
        threads: Most threads to use; None: the CPUs this process may use, at most 8. Small arrays use one.
        min_gain: Code a frame only if that saves more than this fraction of it, else store it RAW; `-math.inf` always
            codes.
        chunk_log2: Log2 of the elements a chunk, 10..16.
        backend: `"auto"`, `"numpy"` or `"numba"`.
        monitor: An `EscapeMonitor` told of every encoded frame.
    """

    def __init__(
        self,
        codebook: Codebook | CodebookBank | None,
        *,
        checksum: bool = True,
        threads: int | None = None,
        min_gain: float = 0.0,
        chunk_log2: int = DEFAULT_CHUNK_LOG2,
        backend: BackendName = "auto",
        monitor: EscapeMonitor | None = None,
    ) -> None:
        if not isinstance(codebook, Codebook | CodebookBank | None):
            raise SplitZipError(f"codebook is a Codebook, a CodebookBank or None; got {type(codebook).__name__}")
        if not 10 <= chunk_log2 <= 16:
            raise SplitZipError(f"chunk_log2 lies in 10..16; got {chunk_log2}")
        if not min_gain < 1:
            raise SplitZipError(f"min_gain is a fraction below 1; got {min_gain}")
        check_name(backend)
        self.codebook = codebook
        self.checksum = checksum
        self.threads = thread_count(threads)
        self.min_gain = min_gain
        self.chunk_log2 = chunk_log2
        self.backend: BackendName = backend
        self.monitor = monitor

    def without_checksum(self) -> Codec:
        """Return the same codec, writing no checksums: the one for arrays on a device."""
        other = copy.copy(self)
        other.checksum = False
        return other

    def max_encoded_size(self, x: object, dtype: object = None) -> int:
        """Upper bound on the bytes of `x` as one frame; `encode_into` asks for this many."""
        view = memory_of(x).as_bits(x, dtype)
        return header_size(len(view.shape)) + self._payload_bound(view.nbytes, view.bits.size, view.format, None)

    def encode(self, x: object, key: Key | None = None, *, dtype: object = None, tag: int = 0) -> Encoded:
        """Encode an array as a single frame.

        Args:
            x: NumPy, torch (CPU) or JAX (CPU) array of bf16, fp16, fp32 or fp8; any shape of at most 8 dimensions.
            key: Which codebook of the bank; also names the array to the monitor.
            dtype: Element format, for raw bit patterns in an integer array.
            tag: Unsigned 64-bit number stored in the frame; `decompress(expected_tag=)` refuses any other.

        Raises:
            SplitZipError: Unsupported element type or device, more than 8 dimensions, more than 2^31 - 1 elements.
        """
        memory = memory_of(x)
        with memory.current_stream(x):
            view = self._checked(x, dtype, tag)
            bound = self._payload_bound(view.nbytes, view.bits.size, view.format, key)
            out = memory.empty_bytes(header_size(len(view.shape)) + bound)
            return self._encode_part(_whole(view), key, tag, out)

    def encode_into(
        self,
        x: object,
        out: Any,
        key: Key | None = None,
        *,
        dtype: object = None,
        tag: int = 0,
        budget: bool = False,
    ) -> int:
        """Encode an array as a single frame at the start of `out`; return the number of bytes written.

        Args:
            out: Writable contiguous buffer of at least `max_encoded_size(x)` bytes; 16-byte alignment is fastest.
            budget: Accept a smaller `out`, and fail only if this array's frame does not fit; `out` is then undefined.

        Raises:
            BufferTooSmall: Before anything is written, unless `budget`.
        """
        memory = memory_of(x)
        if memory_of(out) is not memory:
            raise DeviceUnavailable("x and out must both be on the host or both on the device")
        with memory.current_stream(x):
            view = self._checked(x, dtype, tag)
            target = memory.buffer_of(out)
            if not memory.is_writable(target):
                raise BufferTooSmall("out is read-only")
            if not budget:
                bound = self._payload_bound(view.nbytes, view.bits.size, view.format, key)
                check_capacity(header_size(len(view.shape)) + bound, target)
            return self._encode_part(_whole(view), key, tag, target).nbytes

    def encode_frames(
        self,
        x: object,
        key: Key | None = None,
        *,
        frame_elems: int = FRAME_ELEMENTS,
        dtype: object = None,
        tag: int = 0,
    ) -> Iterator[Encoded]:
        """Encode an array frame by frame; the frames' bytes in order are a stream that `decompress` reads.

        Memory beyond the array is that of one frame.
        """
        memory = memory_of(x)
        with memory.current_stream(x):
            view = self._checked(x, dtype, tag, one_frame=False)
        for part in _parts(view, frame_elems):
            # Entered anew for each frame: between two, the caller may be on another stream.
            with memory.current_stream(x):
                encoded = self.encode_part(part, key, tag=tag)
            yield encoded

    def encode_part(self, part: Part, key: Key | None = None, *, tag: int = 0) -> Encoded:
        """Encode one frame of a tensor of which only this part is at hand.

        Raises:
            SplitZipError: More elements than a frame holds; a checksum asked for on a CUDA device.
        """
        self._check_part(part.bits)
        n = int(part.bits.size)
        bound = self._payload_bound(n * part.format.itemsize, n, part.format, key)
        out = memory_of(part.bits).empty_bytes(header_size(len(part.shape)) + bound)
        return self._encode_part(part, key, tag, out)

    def encode_part_into(self, part: Part, out: Any, key: Key | None = None, *, tag: int = 0) -> Encoded:
        """As `encode_part`, at the start of `out`, a flat uint8 array where the part is; the frame is a view of it.

        Raises:
            BufferTooSmall: Even the raw elements would not fit; nothing is written then.
        """
        self._check_part(part.bits)
        check_capacity(header_size(len(part.shape)) + int(part.bits.nbytes), out)
        return self._encode_part(part, key, tag, out)

    def decode(self, buf: Any, *, out: Any = None, **options: Any) -> Any:
        """Decode a stream; as `decompress`, with this codec's threads and backend."""
        return decompress(buf, out=out, threads=self.threads, backend=self.backend, **options)

    def decode_frame(self, buf: Any, out: Any, *, verify: bool = True) -> FrameInfo:
        """Decode one frame of a stream to where it belongs in `out`, the whole tensor.

        Frames may come in any order and from several threads; whoever calls this sees to it that all come.

        Raises:
            SplitZipError: The bytes are not exactly one valid frame, or `out` has another dtype or shape.
        """
        source, target_memory = memory_of(_plain(buf)), memory_of(out)
        _check_direction(source, target_memory)
        with target_memory.current_stream(out):
            data = source.buffer_of(_plain(buf))
            info = parse_header(source.to_host(data[:MAX_HEADER]).data, MAX_BYTES)
            if data.size != info.nbytes:
                raise FormatError(f"the frame has {info.nbytes} bytes; got {data.size}")
            bits = target_memory.bits_of_output(out, info.format, info.shape)
            decode_payload(info, data[info.header_size :], bits, verify, self.threads, self.backend)
        return info

    def _checked(self, x: object, dtype: object, tag: int, *, one_frame: bool = True) -> BitView:
        view: BitView = memory_of(x).as_bits(x, dtype)
        check_shape(view.shape, tag)
        self._check_part(view.bits, one_frame)
        return view

    def _check_part(self, bits: Any, one_frame: bool = True) -> None:
        if self.checksum and is_on_device(bits):
            raise DeviceUnavailable("payload checksums are computed on the host: pass checksum=False for device arrays")
        if one_frame and bits.size > MAX_FRAME_ELEMENTS:
            raise LimitError(f"{bits.size} elements do not fit one frame; use encode_frames or compress")

    def _codebook_for(self, form: FloatFormat, key: Key | None) -> Codebook | None:
        if not form.is_float or self.codebook is None:
            return None
        codebook = self.codebook.find(key) if isinstance(self.codebook, CodebookBank) else self.codebook
        if codebook.format != form:
            raise SplitZipError(f"the array is {form.name}, the codebook was made for {codebook.format.name}")
        return codebook

    def _payload_bound(self, raw: int, n: int, form: FloatFormat, key: Key | None) -> int:
        codebook = self._codebook_for(form, key)
        if self.min_gain >= 0 or codebook is None or n == 0:
            return raw
        all_escaped = sections(form, codebook.code_bits, n, self.chunk_log2).payload_size(n)
        allowed = all_escaped if math.isinf(self.min_gain) else math.ceil(raw * (1 - self.min_gain))
        return max(raw, min(all_escaped, allowed))

    def _encode_part(self, part: Part, key: Key | None, tag: int, out: Any) -> Encoded:
        """Write one frame into `out`, which holds the bound, or whatever the caller's budget is."""
        memory = memory_of(out)
        bits, n = part.bits, int(part.bits.size)
        header = header_size(len(part.shape))
        payload = out[header:]
        raw = int(bits.nbytes)
        codebook = self._codebook_for(part.format, key)
        n_escapes = escape_rate = None
        payload_size = raw
        if codebook is not None and n:
            layout = sections(part.format, codebook.code_bits, n, self.chunk_log2)
            allowed = payload.size if math.isinf(self.min_gain) else math.ceil(raw * (1 - self.min_gain)) - 1
            limit = min(n, layout.max_escapes(min(allowed, payload.size)))
            if limit >= 0:
                backend = select(self.backend, raw, on_device=memory is not arrays)
                n_escapes = backend.encode(bits, codebook, layout, self.chunk_log2, payload, limit, self.threads)
                escape_rate = (limit + 1 if n_escapes is None else n_escapes) / n
        if n_escapes is None:
            codebook = None
            check_capacity(header + raw, out)
            payload[:raw] = bits.view("uint8")
        else:
            payload_size = layout.payload_size(n_escapes)
        info = FrameInfo(
            format=part.format,
            mode=RAW if codebook is None else DICT,
            code_bits=0 if codebook is None else codebook.code_bits,
            chunk_log2=0 if codebook is None else self.chunk_log2,
            n_elems=n,
            elem_offset=part.first,
            n_escapes=n_escapes or 0,
            payload_size=payload_size,
            checksum=xxhash.xxh3_64_intdigest(payload[:payload_size].data) if self.checksum else None,
            tag=tag,
            codebook=codebook,
            frame_index=part.index,
            last=part.first + n == math.prod(part.shape),
            shape=part.shape,
        )
        memory.put(out[:header], info.pack())
        encoded = Encoded(info, out[: info.nbytes], escape_rate)
        if self.monitor is not None and escape_rate is not None:
            self.monitor.update(escape_rate, key)
        return encoded


def compress(
    x: object,
    *,
    codebook: Codebook | Literal["auto"] = "auto",
    code_bits: CodeBits = 4,
    checksum: bool = True,
    frame_elems: int | None = None,
    threads: int | None = None,
    tag: int = 0,
    min_gain: float = 0.0,
    dtype: object = None,
    backend: BackendName = "auto",
) -> bytes:
    """Compress an array to self-describing bytes, bit-exactly.

    Args:
        x: NumPy (also ml_dtypes), torch (CPU) or JAX (CPU) array of bf16, fp16, fp32 or fp8, any shape of at most 8
            dimensions, any contents; a non-contiguous array is copied first. Or raw bit patterns with `dtype`.
        codebook: A calibrated `Codebook`, or `"auto"`: chosen from the exponents of a 1/16 sample of `x`.
        code_bits: Bits a code, for `codebook="auto"`: 4 (the paper's), 3, or `"auto"`.
        checksum: Store an XXH3-64 of each payload.
        frame_elems: Elements a frame; None: one frame up to 2^28 elements.
        threads: Most threads to use; None: the CPUs this process may use, at most 8.
        tag: Unsigned 64-bit number stored in each frame, for `decompress(expected_tag=)`.
        min_gain: Store a frame RAW unless coding saves more than this fraction of it.
        dtype: Element format of raw bit patterns (`"bf16"` for a uint16 array, say), or `"opaque"` for arbitrary bytes.
        backend: `"auto"`, `"numpy"` or `"numba"`.

    Returns:
        At most the array's own bytes and 192 bytes a frame.

    Raises:
        SplitZipError: Unsupported element type or device, or an argument out of its range.
    """
    view = arrays.as_bits(x, dtype)
    form = view.format
    chosen = None if codebook == "auto" else codebook
    if codebook == "auto" and form.is_float:
        chosen = Codebook.from_histogram(sample_histogram(view.bits, form), form, code_bits=code_bits)
    codec = Codec(chosen, checksum=checksum, threads=threads, min_gain=min_gain, backend=backend)
    check_shape(view.shape, tag)
    header = header_size(len(view.shape))
    parts = list(_parts(view, frame_elems))
    bounds = [codec._payload_bound(p.bits.nbytes, p.bits.size, form, None) for p in parts]
    out = arrays.empty_bytes(header * len(parts) + sum(bounds))
    size = 0
    for part in parts:
        size += codec._encode_part(part, None, tag, out[size:]).nbytes
    return out[:size].tobytes()


def decompress(
    buf: Any,
    *,
    out: Any = None,
    like: Like | None = None,
    expected_dtype: object = None,
    expected_shape: tuple[int, ...] | None = None,
    expected_tag: int | None = None,
    verify: bool = True,
    max_bytes: int = MAX_BYTES,
    allow_trailing: bool = False,
    threads: int | None = None,
    backend: BackendName = "auto",
) -> Any:
    """Decompress what `compress` or a `Codec` wrote; nothing but the bytes is needed.

    Every header is checked before anything is allocated, every payload before it is decoded.

    Args:
        buf: Bytes-like object, uint8 array on a CUDA device, or an `Encoded`.
        out: C-contiguous, writable array to decode into, of the data's dtype (or the unsigned integers of its size) and
            shape. If decoding fails its contents are undefined.
        like: What to return if `out` is None: `"numpy"` (ml_dtypes' dtypes for bf16 and fp8), `"torch"`, `"jax"` or
            `"cupy"` (unsigned integers for bf16 and fp8, which CuPy has no types for). None: NumPy, or CuPy if `buf`
            is on a CUDA device.
        expected_dtype, expected_shape, expected_tag: Refuse anything else.
        verify: Compare payload checksums, where the frames have them.
        max_bytes: Refuse data that would decode to more.
        allow_trailing: Accept bytes after the last frame.
        threads, backend: As for `compress`.

    Returns:
        `out`, or a new array.

    Raises:
        SplitZipError: The bytes are damaged, truncated, too large, of an unknown version, or not what was expected.
    """
    plain = _plain(buf)
    source = memory_of(plain)
    if like is None:
        like = "numpy" if source is arrays else "cupy"
    target_memory = memory_of(out) if out is not None else memory_named(like)
    _check_direction(source, target_memory)
    n_threads = thread_count(threads)
    with source.current_stream(plain), target_memory.current_stream(out if out is not None else plain):
        data = source.buffer_of(plain)
        info = _parse(source, data, max_bytes, allow_trailing)
        check_expected(info, expected_dtype, expected_shape, expected_tag)
        if out is None:
            result, bits = target_memory.allocate(info.format, info.shape, like)
        else:
            result, bits = out, target_memory.bits_of_output(out, info.format, info.shape)
        position = 0
        for frame in info.frames:
            payload = data[position + frame.header_size : position + frame.nbytes]
            decode_payload(frame, payload, bits, verify, n_threads, backend)
            position += frame.nbytes
    return arrays.finish(result, like) if out is None else result


def inspect(buf: Any, *, max_bytes: int = MAX_BYTES) -> StreamInfo:
    """Read the headers of a stream, without looking at its payloads; bytes after it are reported, not refused."""
    memory = memory_of(_plain(buf))
    return _parse(memory, memory.buffer_of(_plain(buf)), max_bytes, allow_trailing=True)


def _parse(memory: Any, data: Any, max_bytes: int, allow_trailing: bool) -> StreamInfo:
    def header_at(position: int) -> memoryview:
        header: Bytes = memory.to_host(data[position : position + MAX_HEADER])
        return header.data

    return parse_stream(header_at, int(data.size), max_bytes=max_bytes, allow_trailing=allow_trailing)


def decode_payload(
    info: FrameInfo, payload: Any, bits: Any, verify: bool, threads: int, backend: BackendName = "auto"
) -> None:
    """Decode a frame's payload to its place in the tensor's `bits`; either may be on the device.

    Raises:
        SplitZipError: The checksum does not match, or the payload is not sound.
    """
    out = bits if info.n_elems == bits.size else bits[info.elem_offset : info.elem_offset + info.n_elems]
    if verify and info.checksum is not None:
        if is_on_device(payload):
            raise DeviceUnavailable(
                "this frame has a payload checksum, which is compared on the host: decompress the host's bytes with"
                " like='cupy' or out=, or pass verify=False"
            )
        if xxhash.xxh3_64_intdigest(payload.data) != info.checksum:
            raise ChecksumError(f"the payload checksum of frame {info.frame_index} does not match: the data is damaged")
    on_device = is_on_device(bits)
    if on_device and not is_on_device(payload):
        payload = memory_named("cupy").upload(payload)
    if info.mode == RAW:
        out.view("uint8")[:] = payload
        return
    assert info.codebook is not None
    chosen = select(backend, info.raw_nbytes, on_device=on_device)
    chosen.decode(payload, info.codebook, info.sections, info.chunk_log2, info.n_escapes, out, threads)


def _check_direction(source: Any, target: Any) -> None:
    if source is not arrays and target is arrays:
        raise DeviceUnavailable("the frame is on a CUDA device; decode it there, or copy it to the host first")


def _plain(buf: Any) -> Any:
    return buf.buffer if isinstance(buf, Encoded) else buf
