"""Tensors over a socket, frame by frame: encoding, sending and decoding overlap.

The reference for transports of one's own: what crosses the wire is a SPLZ stream and nothing else.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .arrays import Like
from .bank import Key
from .codec import FRAME_ELEMENTS, Codec, Encoded
from .errors import SplitZipError, TruncatedError
from .format import MAX_HEADER, MIN_HEADER, parse_header
from .stream import StreamDecoder

_PIECE = 1 << 16
_AHEAD = 4
"""Frames that may be encoded ahead of the link."""


class TokenBucket:
    """Limits a flow of bytes to a rate, as a slower link would.

    Args:
        rate: Bytes a second.
        burst: Bytes that may go at once after a pause.
    """

    def __init__(self, rate: float, burst: int = 1 << 17) -> None:
        if not rate > 0 or burst < 1:
            raise SplitZipError(f"rate and burst must be positive; got {rate} and {burst}")
        self.rate = rate
        self.burst = burst
        self._tokens = 0.0
        self._then: float | None = None

    def take(self, nbytes: int) -> None:
        """Wait until `nbytes` may go."""
        now = time.perf_counter()
        if self._then is not None:
            self._tokens = min(self.burst, self._tokens + (now - self._then) * self.rate)
        self._then = now
        self._tokens -= nbytes
        if self._tokens < 0:
            time.sleep(-self._tokens / self.rate)


def send_tensor(
    connection: socket.socket,
    x: object,
    codec: Codec,
    key: Key | None = None,
    *,
    dtype: object = None,
    tag: int = 0,
    frame_elems: int = FRAME_ELEMENTS,
    limit: TokenBucket | None = None,
) -> int:
    """Send an array as a stream; return the bytes sent. Frames are encoded while earlier ones are on the wire.

    Args:
        connection: A connected stream socket.
        x, codec, key, dtype, tag, frame_elems: As for `Codec.encode_frames`; `Codec(None)` sends raw frames.
        limit: Holds the flow back to a rate.

    Raises:
        OSError: The connection broke.
        SplitZipError: The array cannot be encoded.
    """
    frames = codec.encode_frames(x, key, frame_elems=frame_elems, dtype=dtype, tag=tag)
    return send_frames(connection, frames, limit=limit)


def send_frames(connection: socket.socket, frames: Iterable[Encoded], *, limit: TokenBucket | None = None) -> int:
    """Send frames as they are made, in a thread of their own; return the bytes sent."""
    sent = 0
    for frame in _ahead(frames):
        data = frame.memoryview
        for start in range(0, len(data), _PIECE):
            piece = data[start : start + _PIECE]
            if limit is not None:
                limit.take(len(piece))
            connection.sendall(piece)
            sent += len(piece)
    return sent


def receive_tensor(
    connection: socket.socket,
    *,
    out: Any = None,
    like: Like = "numpy",
    expected_dtype: object = None,
    expected_shape: tuple[int, ...] | None = None,
    expected_tag: int | None = None,
    max_bytes: int = 2**36,
    threads: int | None = None,
) -> Any:
    """Receive an array, decoding each frame while later ones arrive; verified, or an error.

    Args:
        connection: A connected stream socket.
        out, like, expected_dtype, expected_shape, expected_tag, max_bytes, threads: As for `decompress`.

    Raises:
        TruncatedError: The connection ended before the stream did.
        OSError: The connection broke.
        SplitZipError: The bytes are damaged, out of order, or not what was expected.
    """
    decoder = StreamDecoder(
        out=out,
        like=like,
        expected_dtype=expected_dtype,
        expected_shape=expected_shape,
        expected_tag=expected_tag,
        max_bytes=max_bytes,
        threads=threads,
    )

    # The socket is read ahead, so that the sender need not wait while a frame is decoded.
    for piece in _ahead(_stream_of(connection, max_bytes), 2 * _AHEAD):
        decoder.feed(piece)
        if decoder.finished:
            return decoder.result()
    raise TruncatedError(f"the connection ended after {decoder.decoded_elems} elements, before the stream did")


def _stream_of(connection: socket.socket, max_bytes: int) -> Iterator[bytearray]:
    """Read headers and payloads in turn, and not a byte beyond the last frame: the connection may go on."""
    while True:
        header = _read(connection, MIN_HEADER)
        if len(header) == MIN_HEADER and header[6] == MAX_HEADER // 64:
            header += _read(connection, MAX_HEADER - MIN_HEADER)
        yield header
        if len(header) < MIN_HEADER:
            return
        info = parse_header(memoryview(header), max_bytes)
        payload = _read(connection, info.payload_size)
        yield payload
        if info.last or len(payload) < info.payload_size:
            return


def _read(connection: socket.socket, size: int) -> bytearray:
    """Read `size` bytes, fewer if the connection ends."""
    data = bytearray(size)
    filled = 0
    while filled < size:
        got = connection.recv_into(memoryview(data)[filled:])
        if not got:
            break
        filled += got
    return data if filled == size else data[:filled]


def fetch(connect: Callable[[], socket.socket], receive: Callable[[socket.socket], Any], *, attempts: int = 3) -> Any:
    """Receive with new connections until it succeeds; a failed attempt leaves nothing behind.

    Args:
        connect: Makes a connection on which the sender starts over.
        receive: Receives from it, such as `receive_tensor`.
        attempts: How often to try.

    Raises:
        SplitZipError, OSError: What the last attempt raised.
    """
    if attempts < 1:
        raise SplitZipError(f"attempts must be at least 1; got {attempts}")
    for attempt in range(attempts):
        try:
            with connect() as connection:
                return receive(connection)
        except (SplitZipError, OSError):
            if attempt == attempts - 1:
                raise
    raise AssertionError("unreachable")


def _ahead(items: Iterable[Any], room: int = _AHEAD) -> Iterator[Any]:
    """Run an iterable in a thread, `room` items ahead of whoever consumes it; pass on what it raises."""
    ready: queue.Queue[tuple[str, Any]] = queue.Queue(room)
    stop = threading.Event()

    def put(what: str, item: Any) -> bool:
        while not stop.is_set():
            try:
                ready.put((what, item), timeout=0.05)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            for item in items:
                if not put("item", item):
                    return
        except BaseException as error:
            put("error", error)
        else:
            put("end", None)

    worker = threading.Thread(target=work, daemon=True, name="splitzip-ahead")
    worker.start()
    try:
        while True:
            what, item = ready.get()
            if what == "end":
                return
            if what == "error":
                raise item
            yield item
    finally:
        stop.set()
