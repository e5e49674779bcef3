"""Frames through registered memory: what transports that write straight into a peer's buffer have in common.

Each side registers one buffer, cut into slots. The sender encodes each frame into a slot of its own and writes it, with
its true length, into the same slot of the receiver, which decodes it from there and answers; the slot is then free for
another frame. So a cache of many thousand pages crosses as a few large writes of one descriptor each, encoding,
transfer and decoding overlap, and memory beyond the tensors is that of the slots.

Every write is announced in 16 bytes: frame (u32), flags (u32), length (u64), little-endian. The flags' upper half marks
the message as ours, bits 8..15 number the transfer, so that announcements of one that failed are not taken for the next
one's.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from .. import arrays
from ..arrays import Like, is_on_device
from ..backends import thread_count
from ..bank import Key
from ..codec import MAX_BYTES, Codec, Part, decode_payload
from ..errors import BufferTooSmall, FormatError, SplitZipError
from ..format import MAX_HEADER, FrameInfo, StreamInfo, StreamOrder, check_expected, frame_ranges, parse_header
from ..memory import memory_named, memory_of

LAST = 1
DECODED = 2
FAILED = 4

_MESSAGE = struct.Struct("<IIQ")
_MARK = 0x5A53 << 16
_REGION = struct.Struct("<8sQQQII")
_REGION_MAGIC = b"SPLZRGN1"


@dataclass(frozen=True)
class Announcement:
    """What is said of a frame: by the sender that it is there, by the receiver that it was decoded or not."""

    frame: int
    flags: int
    length: int
    transfer: int

    def pack(self) -> bytes:
        """Return the 16 bytes."""
        return _MESSAGE.pack(self.frame, _MARK | self.transfer << 8 | self.flags, self.length)

    @classmethod
    def unpack(cls, data: bytes) -> Announcement | None:
        """Read a message; None if it is none of ours."""
        if len(data) != _MESSAGE.size:
            return None
        frame, flags, length = _MESSAGE.unpack(data)
        if flags & 0xFFFF0000 != _MARK or flags & 0xF8:
            return None
        return cls(frame, flags & 7, length, flags >> 8 & 0xFF)


@dataclass(frozen=True)
class Region:
    """A registered buffer, as its owner tells a peer of it.

    Attributes:
        address: Of the first byte.
        slot_bytes: Bytes a slot, a multiple of 64.
        slots: Number of slots.
        device: Device id; 0 on the host.
        on_device: Whether it is memory of a CUDA device.
    """

    address: int
    slot_bytes: int
    slots: int
    device: int = 0
    on_device: bool = False

    def slot(self, frame: int) -> int:
        """Address of the slot that a frame uses."""
        return self.address + frame % self.slots * self.slot_bytes

    def pack(self) -> bytes:
        """Return bytes for a side channel."""
        return _REGION.pack(_REGION_MAGIC, self.address, self.slot_bytes, self.slots, self.device, self.on_device)

    @classmethod
    def unpack(cls, data: bytes) -> Region:
        """Read what `pack` wrote.

        Raises:
            FormatError: It is something else.
        """
        if len(data) != _REGION.size:
            raise FormatError(f"a region has {_REGION.size} bytes; got {len(data)}")
        magic, address, slot_bytes, slots, device, on_device = _REGION.unpack(data)
        if magic != _REGION_MAGIC or not slots or slot_bytes % 64 or slot_bytes <= MAX_HEADER or on_device > 1:
            raise FormatError("these bytes describe no region")
        return cls(address, slot_bytes, slots, device, bool(on_device))


class Slots:
    """A buffer cut into slots, on the host or on a CUDA device.

    Args:
        buffer: Contiguous writable uint8 array, for instance pinned memory or a CUDA tensor; None: memory of the host.
        slot_bytes: Bytes a slot, rounded down to a multiple of 64.
        slots: How many, if `buffer` is None; else as many as fit.

    Raises:
        BufferTooSmall: Not a single slot fits, or a slot holds no frame.
    """

    def __init__(self, buffer: Any = None, *, slot_bytes: int = 1 << 23, slots: int = 4) -> None:
        slot_bytes = slot_bytes // 64 * 64
        if slot_bytes <= 16 * MAX_HEADER:
            raise BufferTooSmall(f"a slot of {slot_bytes} bytes holds no frame worth sending")
        self.memory: Any = memory_of(buffer)
        whole: Any = arrays.empty_bytes(slot_bytes * slots) if buffer is None else self.memory.buffer_of(buffer)
        self.buffer = whole
        if not self.memory.is_writable(self.buffer):
            raise BufferTooSmall("the buffer is read-only")
        count = self.buffer.size // slot_bytes
        if not count:
            raise BufferTooSmall(f"a buffer of {self.buffer.size} bytes has no room for a slot of {slot_bytes}")
        on_device = self.memory is not arrays
        self.region = Region(
            int(whole.data.ptr) if on_device else int(whole.ctypes.data),
            slot_bytes,
            count,
            int(whole.device.id) if on_device else 0,
            on_device,
        )

    def __getitem__(self, frame: int) -> Any:
        start = frame % self.region.slots * self.region.slot_bytes
        return self.buffer[start : start + self.region.slot_bytes]


class SendTransport(Protocol):
    """How a sender reaches its receiver."""

    def write(self, local: int, remote: int, announcement: Announcement) -> None:
        """Begin to write `announcement.length` bytes from an address to the peer's, announced when they are there."""

    def poll(self) -> Iterable[Announcement]:
        """Take answers that have come, without waiting; also let writes go on.

        Raises:
            ConnectionError: A write failed.
        """

    def drain(self) -> None:
        """Wait until no write is under way; failures no longer matter."""


class ReceiveTransport(Protocol):
    """How a receiver hears its sender."""

    def poll(self) -> Iterable[Announcement]:
        """Take announcements that have come, without waiting."""

    def answer(self, announcement: Announcement) -> None:
        """Send one back."""


class StagedSender:
    """Sends tensors through slots; one at a time.

    Args:
        codec: How to encode. If the slots are on a device it must write no checksums; tensors on a device that go
            through slots on the host are given theirs there.
        slots: This side's registered memory.
        remote: The receiver's.

    Raises:
        BufferTooSmall: The receiver's slots are smaller.
    """

    def __init__(self, codec: Codec, slots: Slots, remote: Region) -> None:
        if remote.slot_bytes < slots.region.slot_bytes:
            raise BufferTooSmall(
                f"the receiver's slots have {remote.slot_bytes} bytes, this side's {slots.region.slot_bytes}"
            )
        self.codec = codec
        self.slots = slots
        self.remote = remote
        self.window = min(slots.region.slots, remote.slots)
        self._transfer = os.urandom(1)[0]

    def send(
        self,
        transport: SendTransport,
        x: Any,
        key: Key | None = None,
        *,
        dtype: object = None,
        tag: int = 0,
        timeout: float = 30.0,
    ) -> int:
        """Send an array; return the bytes written, once the receiver has decoded all of it.

        Args:
            transport: How to reach the receiver.
            x, key, dtype, tag: As for `Codec.encode`.
            timeout: Seconds to wait for any one answer.

        Raises:
            SplitZipError: The receiver could not decode a frame, or the array cannot be encoded.
            TimeoutError: No answer came.
            ConnectionError: A write failed.
        """
        memory = memory_of(x)
        on_device = memory is not arrays
        codec = self.codec.without_checksum() if on_device else self.codec
        with memory.current_stream(x):
            view = memory.as_bits(x, dtype)
        elements = (self.slots.region.slot_bytes - MAX_HEADER) // view.format.itemsize
        ranges = list(frame_ranges(int(view.bits.size), max(1, elements)))
        self._transfer = (self._transfer + 1) % 256
        answered = written = 0
        try:
            for index, (first, n) in enumerate(ranges):
                while index - answered >= self.window:
                    answered = self._wait(transport, answered, timeout)
                part = Part(view.bits[first : first + n], view.format, view.shape, first, index)
                with memory.current_stream(x):
                    length = self._encode(codec, part, key, tag, index)
                flags = LAST if index == len(ranges) - 1 else 0
                announcement = Announcement(index, flags, length, self._transfer)
                transport.write(self.slots.region.slot(index), self.remote.slot(index), announcement)
                written += length
            while answered < len(ranges):
                answered = self._wait(transport, answered, timeout)
        finally:
            transport.drain()  # no write may be under way into slots that the next transfer uses
        return written

    def _encode(self, codec: Codec, part: Part, key: Key | None, tag: int, index: int) -> int:
        slot = self.slots[index]
        if is_on_device(part.bits) == self.slots.region.on_device:
            return codec.encode_part_into(part, slot, key, tag=tag).nbytes
        if self.slots.region.on_device:
            encoded = codec.encode_part(part, key, tag=tag)
            self.slots.memory.put(slot[: encoded.nbytes], encoded.tobytes())
            return encoded.nbytes
        encoded = codec.encode_part(part, key, tag=tag).sealed()
        slot[: encoded.nbytes] = encoded.buffer
        return encoded.nbytes

    def _wait(self, transport: SendTransport, answered: int, timeout: float) -> int:
        for answer in _until(transport, timeout, f"no answer to frame {answered}"):
            if answer.transfer != self._transfer:
                continue
            if answer.flags & FAILED:
                raise SplitZipError(f"the receiver could not decode frame {answer.frame}")
            if answer.flags & DECODED:  # as are all frames before it: answers may overtake one another too
                answered = max(answered, answer.frame + 1)
        return answered


class StagedReceiver:
    """Receives tensors through slots; one at a time.

    Args:
        slots: This side's registered memory; tell the sender of `slots.region`.
    """

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self._dead: int | None = None

    def receive(
        self,
        transport: ReceiveTransport,
        *,
        out: Any = None,
        like: Like | None = None,
        expected_dtype: object = None,
        expected_shape: tuple[int, ...] | None = None,
        expected_tag: int | None = None,
        verify: bool = True,
        max_bytes: int = MAX_BYTES,
        threads: int | None = None,
        timeout: float = 30.0,
    ) -> Any:
        """Receive an array, each frame decoded to its place while later ones are on their way.

        Args:
            transport: How to hear the sender.
            out, like, expected_dtype, expected_shape, expected_tag, verify, max_bytes, threads: As for `decompress`;
                `like` is NumPy by default, CuPy if the slots are on a device.
            timeout: Seconds to wait for any one frame.

        Raises:
            SplitZipError: A frame is damaged, out of order, or not what was expected; the sender is told.
            TimeoutError: No frame came.
        """
        order = StreamOrder(max_bytes)
        expected = (expected_dtype, expected_shape, expected_tag)
        kind: Like = like or ("cupy" if self.slots.region.on_device else "numpy")
        current: int | None = None
        ahead: dict[int, Announcement] = {}  # writes may overtake one another
        bits = None
        while not order.finished:
            for said in _until(transport, timeout, f"frame {len(order.frames)} did not come"):
                if current is None and said.transfer != self._dead:
                    current = said.transfer
                if said.transfer == current:
                    ahead[said.frame] = said
            number = len(order.frames)
            while ahead and not order.finished:
                said = ahead.pop(number) if number in ahead else next(iter(ahead.values()))
                if number < said.frame < number + self.slots.region.slots:
                    break  # the one before it is still on its way
                try:
                    info, payload = self._frame(said, number, max_bytes)
                    order.take(info)
                    if bits is None:
                        check_expected(StreamInfo((info,), 0), *expected)
                        out, bits = self._output(info, out, kind)
                    if not is_on_device(bits):
                        payload = self.slots.memory.to_host(payload)
                    decode_payload(info, payload, bits, verify, thread_count(threads))
                except SplitZipError:
                    self._dead = current
                    transport.answer(Announcement(said.frame, FAILED, 0, said.transfer))
                    raise
                transport.answer(Announcement(said.frame, DECODED, 0, said.transfer))
                number += 1
        self._dead = None
        return arrays.finish(out, kind)

    def _frame(self, said: Announcement, number: int, max_bytes: int) -> tuple[FrameInfo, Any]:
        if said.frame != number:
            raise FormatError(f"expected frame {number}, frame {said.frame} was announced")
        if not 0 < said.length <= self.slots.region.slot_bytes:
            raise FormatError(f"a frame of {said.length} bytes does not fit a slot of {self.slots.region.slot_bytes}")
        data = self.slots[number][: said.length]
        info = parse_header(self.slots.memory.to_host(data[:MAX_HEADER]).data, max_bytes)
        if info.nbytes != said.length:
            raise FormatError(f"frame {number} has {info.nbytes} bytes, {said.length} were announced")
        if info.last != bool(said.flags & LAST):
            raise FormatError(f"frame {number} and its announcement disagree on whether it is the last")
        return info, data[info.header_size :]

    def _output(self, info: FrameInfo, out: Any, like: Like) -> tuple[Any, Any]:
        if out is not None:
            return out, memory_of(out).bits_of_output(out, info.format, info.shape)
        made, bits = memory_named(like).allocate(info.format, info.shape, like)
        return made, bits


def _until(transport: Any, timeout: float, otherwise: str) -> list[Announcement]:
    """Poll until something comes."""
    deadline = time.monotonic() + timeout
    pause = 0.0
    while True:
        said = list(transport.poll())
        if said:
            return said
        if time.monotonic() > deadline:
            raise TimeoutError(f"{otherwise} within {timeout:g} s")
        time.sleep(pause)
        pause = min(0.001, pause + 0.00002)  # at first at once, later so as not to take a core
