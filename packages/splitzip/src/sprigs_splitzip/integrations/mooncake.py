"""Mooncake: tensors through its transfer engine and registered staging memory.

Written against mooncake-transfer-engine 0.3.13, `mooncake.engine.TransferEngine`: `register_memory(address, bytes)`,
`unregister_memory(address)` and `transfer_sync_write(session, source, target, bytes)`, each 0 or, on error, another
number (writes: negative). The engine writes and says nothing to the peer, so the 16 bytes of an announcement go over a
channel of one's own: a connected socket.

    receiver = MooncakeReceiver(engine, connection)  # send receiver.description to the other side, by any means
    kv = receiver.receive(like="torch")

    sender = MooncakeSender(engine, codec, "host:port of the receiver's engine", description, connection)
    sender.send(kv)
"""

from __future__ import annotations

import select
import socket
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from ..bank import Key
from ..codec import Codec
from .staging import Announcement, Region, Slots, StagedReceiver, StagedSender

_MESSAGE_BYTES = 16


class MooncakeSender:
    """Sends tensors to one receiver. A frame is encoded while the engine writes the one before.

    Args:
        engine: An initialised `TransferEngine`.
        codec: How to encode; one that writes no checksums if `buffer` is on a device.
        session: The receiver's engine, "host:port".
        description: What the receiver says of its memory, `MooncakeReceiver.description`.
        connection: The channel to the receiver.
        buffer: Memory to stage frames in; None: memory of the host. See `staging.Slots`.
        slot_bytes, slots: Size and number of the slots.

    Raises:
        SplitZipError: The description is damaged, or the receiver's slots are smaller.
        ConnectionError: The engine does not register the memory.
    """

    def __init__(
        self,
        engine: Any,
        codec: Codec,
        session: str,
        description: bytes,
        connection: socket.socket,
        *,
        buffer: Any = None,
        slot_bytes: int = 1 << 23,
        slots: int = 4,
    ) -> None:
        self.engine = engine
        self.session = session
        self._channel = _Channel(connection)
        staged = Slots(buffer, slot_bytes=slot_bytes, slots=slots)
        self._sender = StagedSender(codec, staged, Region.unpack(description))
        _register(engine, self._sender.slots)
        self._writer = ThreadPoolExecutor(1, "splitzip-mooncake")
        self._writes: list[Future[None]] = []

    def send(self, x: Any, key: Key | None = None, *, dtype: object = None, tag: int = 0, timeout: float = 30.0) -> int:
        """Send an array; return the bytes written, once the receiver has decoded and verified all of it.

        Raises:
            SplitZipError, TimeoutError, ConnectionError: See `staging.StagedSender.send`.
        """
        return self._sender.send(self, x, key, dtype=dtype, tag=tag, timeout=timeout)

    def write(self, local: int, remote: int, announcement: Announcement) -> None:
        """Write one frame and then announce it, in the writer's thread."""

        def work() -> None:
            status = self.engine.transfer_sync_write(self.session, local, remote, announcement.length)
            if status < 0:
                raise ConnectionError(f"Mooncake could not write frame {announcement.frame}: {status}")
            self._channel.send(announcement)

        self._writes.append(self._writer.submit(work))

    def poll(self) -> list[Announcement]:
        """Take the receiver's answers."""
        while self._writes and self._writes[0].done():
            self._writes.pop(0).result()
        return self._channel.take()

    def drain(self) -> None:
        """Wait until no write is under way."""
        for write in self._writes:
            if not write.cancel():
                write.exception()
        self._writes.clear()

    def close(self) -> None:
        """Unregister the memory."""
        self._writer.shutdown()
        self.engine.unregister_memory(self._sender.slots.region.address)


class MooncakeReceiver:
    """Receives tensors into registered memory.

    Args:
        engine: An initialised `TransferEngine`.
        connection: The channel to the sender.
        buffer, slot_bytes, slots: As for `MooncakeSender`; the slots must not be smaller than the sender's.

    Raises:
        ConnectionError: The engine does not register the memory.
    """

    def __init__(
        self,
        engine: Any,
        connection: socket.socket,
        *,
        buffer: Any = None,
        slot_bytes: int = 1 << 23,
        slots: int = 4,
    ) -> None:
        self.engine = engine
        self._channel = _Channel(connection)
        self._receiver = StagedReceiver(Slots(buffer, slot_bytes=slot_bytes, slots=slots))
        _register(engine, self._receiver.slots)

    @property
    def description(self) -> bytes:
        """What the sender must know of the memory."""
        return self._receiver.slots.region.pack()

    def receive(self, **options: Any) -> Any:
        """Receive an array; options as for `staging.StagedReceiver.receive`.

        Raises:
            SplitZipError, TimeoutError, ConnectionError: A frame is damaged or did not come, or the sender is gone.
        """
        return self._receiver.receive(self, **options)

    def poll(self) -> list[Announcement]:
        """Take the sender's announcements."""
        return self._channel.take()

    def answer(self, announcement: Announcement) -> None:
        """Tell the sender."""
        self._channel.send(announcement)

    def close(self) -> None:
        """Unregister the memory."""
        self.engine.unregister_memory(self._receiver.slots.region.address)


class _Channel:
    """Announcements over a socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._pending = b""

    def send(self, announcement: Announcement) -> None:
        self._connection.sendall(announcement.pack())

    def take(self) -> list[Announcement]:
        """Return what has come, waiting a millisecond at most; what is no announcement is passed over."""
        if not select.select([self._connection], [], [], 0.001)[0]:
            return []
        data = self._connection.recv(1 << 12)
        if not data:
            raise ConnectionError("the other side closed the channel")
        data = self._pending + data
        whole = len(data) // _MESSAGE_BYTES * _MESSAGE_BYTES
        self._pending = data[whole:]
        read = (Announcement.unpack(data[i : i + _MESSAGE_BYTES]) for i in range(0, whole, _MESSAGE_BYTES))
        return [said for said in read if said is not None]


def _register(engine: Any, slots: Slots) -> None:
    status = engine.register_memory(slots.region.address, slots.buffer.size)
    if status:
        raise ConnectionError(f"Mooncake could not register {slots.buffer.size} bytes: {status}")
