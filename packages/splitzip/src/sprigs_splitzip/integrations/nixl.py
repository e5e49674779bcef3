"""NIXL: tensors and pages from agent to agent through registered staging memory.

Written against NIXL 1.5 (`nixl_agent` of the package `nixl`):
`register_memory([(address, bytes, device, "")], mem_type)`, `deregister_memory(registered)`,
`get_xfer_descs([(address, bytes, device)], mem_type)`,
`initialize_xfer("WRITE", local, remote, remote_agent, notif_msg)`, `transfer(handle)` and `check_xfer_state(handle)` to
"DONE", "PROC" or "ERR", `release_xfer_handle(handle)`, `get_new_notifs()` to {agent: [bytes]},
`send_notif(agent, bytes)`. One write of one descriptor carries a frame, whatever the pages it was encoded from; its
notification holds the length.

    receiver = NixlReceiver(agent)                   # send receiver.description to the other side, by any means
    kv = receiver.receive(like="torch")

    sender = NixlSender(agent, codec, "receiver's name", description)
    sender.send(kv)

The agents must know each other's metadata (`add_remote_agent`) first: notifications go both ways.
"""

from __future__ import annotations

import time
from typing import Any

from ..bank import Key
from ..codec import Codec
from .staging import Announcement, Region, Slots, StagedReceiver, StagedSender


class Mailbox:
    """An agent's notifications, sorted: `get_new_notifs` empties the agent's list, whoever calls it.

    Attributes:
        others: Messages that are none of ours, (agent, bytes), in order; take them out and use them.
    """

    def __init__(self, agent: Any) -> None:
        self.agent = agent
        self.others: list[tuple[str, bytes]] = []
        self._ours: dict[str, list[Announcement]] = {}

    def take(self, name: str | None) -> list[tuple[str, Announcement]]:
        """Return what has come from the agent `name` (None: from any) since the last call."""
        for sender, messages in self.agent.get_new_notifs().items():
            for message in messages:
                said = Announcement.unpack(message)
                if said is None:
                    self.others.append((_name(sender), message))
                else:
                    self._ours.setdefault(_name(sender), []).append(said)
        names = list(self._ours) if name is None else [name]
        return [(each, said) for each in names for said in self._ours.pop(each, [])]


class NixlSender:
    """Sends tensors to one receiver.

    Args:
        agent: The `nixl_agent`.
        codec: How to encode; one that writes no checksums if `buffer` is on a device.
        remote_agent: The receiver's name, as `add_remote_agent` returned it.
        description: What the receiver says of its memory, `NixlReceiver.description`.
        buffer: Memory to stage frames in; None: memory of the host. See `staging.Slots`.
        slot_bytes, slots: Size and number of the slots.
        mailbox: The agent's mailbox, if it has one already.

    Raises:
        SplitZipError: The description is damaged, or the receiver's slots are smaller.
    """

    def __init__(
        self,
        agent: Any,
        codec: Codec,
        remote_agent: str | bytes,
        description: bytes,
        *,
        buffer: Any = None,
        slot_bytes: int = 1 << 23,
        slots: int = 4,
        mailbox: Mailbox | None = None,
    ) -> None:
        self.agent = agent
        self.remote_agent = _name(remote_agent)
        self.mailbox = mailbox or Mailbox(agent)
        staged = Slots(buffer, slot_bytes=slot_bytes, slots=slots)
        self._sender = StagedSender(codec, staged, Region.unpack(description))
        self._registered: Any = _register(agent, self._sender.slots)
        self._handles: list[Any] = []

    def send(self, x: Any, key: Key | None = None, *, dtype: object = None, tag: int = 0, timeout: float = 30.0) -> int:
        """Send an array; return the bytes written, once the receiver has decoded and verified all of it.

        Raises:
            SplitZipError, TimeoutError, ConnectionError: See `staging.StagedSender.send`.
        """
        return self._sender.send(self, x, key, dtype=dtype, tag=tag, timeout=timeout)

    def write(self, local: int, remote: int, announcement: Announcement) -> None:
        """Post one write; its notification is the announcement."""
        own, other = self._sender.slots.region, self._sender.remote
        length = announcement.length
        handle = self.agent.initialize_xfer(
            "WRITE",
            self.agent.get_xfer_descs([(local, length, own.device)], _mem_type(own)),
            self.agent.get_xfer_descs([(remote, length, other.device)], _mem_type(other)),
            self.remote_agent,
            announcement.pack(),
        )
        if self.agent.transfer(handle) == "ERR":
            self.agent.release_xfer_handle(handle)
            raise ConnectionError(f"NIXL could not begin to write frame {announcement.frame}")
        self._handles.append(handle)

    def poll(self) -> list[Announcement]:
        """Take the receiver's answers, and let writes go on."""
        under_way = []
        failed = False
        for handle in self._handles:
            state = self.agent.check_xfer_state(handle)
            if state == "PROC":
                under_way.append(handle)
                continue
            failed |= state == "ERR"
            self.agent.release_xfer_handle(handle)
        self._handles = under_way
        if failed:
            raise ConnectionError("NIXL could not write a frame")
        return [said for _, said in self.mailbox.take(self.remote_agent)]

    def drain(self, timeout: float = 10.0) -> None:
        """Wait until no write is under way, and cancel what does not end."""
        deadline = time.monotonic() + timeout
        while self._handles and time.monotonic() < deadline:
            self._handles = [h for h in self._handles if not self._over(h)]
        for handle in self._handles:
            self.agent.release_xfer_handle(handle)
        self._handles = []

    def close(self) -> None:
        """Deregister the memory."""
        if self._registered is not None:
            self.agent.deregister_memory(self._registered)
            self._registered = None

    def _over(self, handle: Any) -> bool:
        if self.agent.check_xfer_state(handle) == "PROC":
            return False
        self.agent.release_xfer_handle(handle)
        return True


class NixlReceiver:
    """Receives tensors into registered memory, from one sender at a time.

    Args:
        agent: The `nixl_agent`.
        sender: Its name, if only one may send.
        buffer, slot_bytes, slots, mailbox: As for `NixlSender`; the slots must not be smaller than the sender's.
    """

    def __init__(
        self,
        agent: Any,
        sender: str | bytes | None = None,
        *,
        buffer: Any = None,
        slot_bytes: int = 1 << 23,
        slots: int = 4,
        mailbox: Mailbox | None = None,
    ) -> None:
        self.agent = agent
        self.sender = None if sender is None else _name(sender)
        self.mailbox = mailbox or Mailbox(agent)
        self._receiver = StagedReceiver(Slots(buffer, slot_bytes=slot_bytes, slots=slots))
        self._registered: Any = _register(agent, self._receiver.slots)
        self._from: str | None = None

    @property
    def description(self) -> bytes:
        """What the sender must know of the memory."""
        return self._receiver.slots.region.pack()

    def receive(self, **options: Any) -> Any:
        """Receive an array; options as for `staging.StagedReceiver.receive`.

        Raises:
            SplitZipError, TimeoutError: A frame is damaged or did not come.
        """
        self._from = self.sender
        return self._receiver.receive(self, **options)

    def poll(self) -> list[Announcement]:
        """Take the sender's announcements. Who speaks first is the sender."""
        said = []
        for name, announcement in self.mailbox.take(self._from):
            self._from = self._from or name
            if name == self._from:
                said.append(announcement)
        return said

    def answer(self, announcement: Announcement) -> None:
        """Tell the sender."""
        self.agent.send_notif(self._from, announcement.pack())

    def close(self) -> None:
        """Deregister the memory."""
        if self._registered is not None:
            self.agent.deregister_memory(self._registered)
            self._registered = None


def _register(agent: Any, slots: Slots) -> Any:
    region = slots.region
    return agent.register_memory([(region.address, slots.buffer.size, region.device, "")], _mem_type(region))


def _mem_type(region: Region) -> str:
    return "VRAM" if region.on_device else "DRAM"


def _name(agent: str | bytes) -> str:
    return agent.decode() if isinstance(agent, bytes) else agent
