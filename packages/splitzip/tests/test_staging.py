"""NIXL (1.5) and Mooncake (0.3.13): against stand-ins with their signatures, and against the real ones where they are.

Both exist on PyPI for machines without a GPU: nixl-cu12, mooncake-transfer-engine-non-cuda (which needs libibverbs1).
"""

import contextlib
import ctypes
import socket
import struct
import threading
import time

import numpy as np
import pytest

from sprigs_splitzip import BufferTooSmall, Codebook, Codec, FormatError, LayoutMismatch, SplitZipError, encode_pages
from sprigs_splitzip.integrations import mooncake, nixl, staging
from sprigs_splitzip.samples import shipped_cache

BOOK = Codebook("bf16", range(113, 129))


def a_tensor(n=300_000, seed=0):
    x = np.random.default_rng(seed).normal(size=n).astype(np.float32).view(np.uint32) >> 16
    return x.astype(np.uint16).reshape(-1, 100)


class Agent:
    """What the adapter uses of `nixl_agent`; a write ends after being asked about a few times."""

    def __init__(self, name, network, *, delay=lambda: 2, corrupt=None):
        self.name, self.network, self.delay, self.corrupt = name, network, delay, corrupt
        self.registered, self.notifications, self.writes = [], {}, 0
        network[name] = self

    def register_memory(self, reg_list, mem_type=None, backends=()):
        ((address, size, _device, _meta),) = reg_list
        assert mem_type == "DRAM"
        self.registered.append((address, size))
        return (address, size)

    def deregister_memory(self, registered, backends=()):
        self.registered.remove(registered)

    def get_xfer_descs(self, descs, mem_type=None):
        assert mem_type == "DRAM"
        ((address, size, device),) = descs
        return (address, size, device)

    def initialize_xfer(self, operation, local, remote, remote_agent, notif_msg=b"", backends=()):
        assert operation == "WRITE"
        peer = self.network[remote_agent]
        for (address, size, _), owner in ((local, self), (remote, peer)):
            assert any(a <= address and address + size <= a + n for a, n in owner.registered), "not registered"
        return {"local": local, "remote": remote, "peer": peer, "message": notif_msg, "left": self.delay()}

    def transfer(self, handle, notif_msg=b""):
        self.writes += 1
        handle["number"] = self.writes
        if self.corrupt == ("refuse", self.writes):
            return "ERR"
        return self.check_xfer_state(handle)

    def check_xfer_state(self, handle):
        handle["left"] -= 1
        if handle["left"] > 0:
            return "PROC"
        if self.corrupt == ("fail", handle["number"]):
            return "ERR"
        if handle["left"] == 0:
            (source, size, _), (target, _, _) = handle["local"], handle["remote"]
            data = bytearray((ctypes.c_ubyte * size).from_address(source))
            if self.corrupt == ("flip", handle["number"]):
                data[size // 2] ^= 1
            ctypes.memmove(target, (ctypes.c_ubyte * size).from_buffer(data), size)
            handle["peer"].notifications.setdefault(self.name, []).append(handle["message"])
        return "DONE"

    def release_xfer_handle(self, handle):
        handle["left"] = -100

    def get_new_notifs(self, backends=()):
        new, self.notifications = self.notifications, {}
        return new

    def send_notif(self, remote_agent_name, notif_msg, backend=None):
        said = self.network[remote_agent_name].notifications.setdefault(self.name, [])
        said.insert(len(said) // 2, notif_msg)  # no order is promised


@contextlib.contextmanager
def nixl_pair(a, b, codec=None, **sizes):
    sizes = {"slot_bytes": 1 << 16, "slots": 3, **sizes}
    receiver = nixl.NixlReceiver(b, **sizes)
    sender = nixl.NixlSender(a, codec or Codec(BOOK), b"b", receiver.description, **sizes)
    yield sender, receiver
    sender.close()
    receiver.close()


def agents(**options):
    network = {}
    return Agent("a", network, **options), Agent("b", network)


def exchange(send, receive):
    """Run both ends; return what each returned or raised."""
    results = {}

    def work():
        try:
            results["sent"] = send()
        except Exception as error:
            results["sent"] = error

    thread = threading.Thread(target=work)
    thread.start()
    try:
        results["received"] = receive()
    except Exception as error:
        results["received"] = error
    thread.join(20)
    assert not thread.is_alive()
    return results["sent"], results["received"]


def test_nixl_round_trip():
    x = a_tensor()
    a, b = agents()
    with nixl_pair(a, b) as (sender, receiver):
        for tag in range(3):  # transfer after transfer through the same slots
            sent, received = exchange(
                lambda tag=tag: sender.send(x, dtype="bf16", tag=tag, timeout=5),
                lambda tag=tag: receiver.receive(expected_tag=tag, timeout=5),
            )
            assert sent < 0.78 * x.nbytes
            assert np.array_equal(received.view(np.uint16), x)
        assert a.writes == 3 * 10, "one write a frame"
        out = np.zeros_like(x)
        sent, received = exchange(
            lambda: sender.send(x, dtype="bf16", timeout=5), lambda: receiver.receive(out=out, timeout=5)
        )
        assert received is out
        assert np.array_equal(out, x)
    assert a.registered == b.registered == []


def test_nixl_small_and_empty_arrays():
    a, b = agents()
    with nixl_pair(a, b) as (sender, receiver):
        for x in (np.zeros((0, 4), np.float32), np.float32([1.5]), np.arange(7, dtype=np.float16)):
            codec = Codec(None)
            sender._sender.codec = codec
            _, received = exchange(lambda x=x: sender.send(x, timeout=5), lambda: receiver.receive(timeout=5))
            assert received.dtype == x.dtype
            assert np.array_equal(received, x)


def test_nixl_pages_cross_as_one_descriptor_a_frame():
    """A paged cache is encoded in place; its frame is bytes like any others."""
    paged = shipped_cache()[0].reshape(2, 4, 16, 3, 64)
    frame = encode_pages(paged, [3, 1], Codec(BOOK), page_dim=1, dtype="bf16")
    a, b = agents()
    with nixl_pair(a, b, Codec(None)) as (sender, receiver):
        _, received = exchange(
            lambda: sender.send(frame.buffer, dtype="opaque", timeout=5), lambda: receiver.receive(timeout=5)
        )
    assert a.writes == 1
    assert received.tobytes() == frame.tobytes()


@pytest.mark.parametrize("slots", [1, 2, 7])
@pytest.mark.parametrize("seed", range(5))
def test_nixl_writes_that_overtake_one_another(slots, seed):
    x = a_tensor(400_000)
    generator = np.random.default_rng(seed)
    a, b = agents(delay=lambda: int(generator.integers(1, 12)))
    with nixl_pair(a, b, slots=slots) as (sender, receiver):
        _, received = exchange(lambda: sender.send(x, dtype="bf16", timeout=5), lambda: receiver.receive(timeout=5))
    assert np.array_equal(received.view(np.uint16), x)


def test_slots_of_different_sizes():
    a, b = agents()
    receiver = nixl.NixlReceiver(b, slot_bytes=1 << 17, slots=2)
    sender = nixl.NixlSender(a, Codec(BOOK), "b", receiver.description, slot_bytes=1 << 16, slots=5)
    x = a_tensor(150_000)
    _, received = exchange(lambda: sender.send(x, dtype="bf16", timeout=5), lambda: receiver.receive(timeout=5))
    assert np.array_equal(received.view(np.uint16), x)
    with pytest.raises(BufferTooSmall, match="slots"):
        nixl.NixlSender(a, Codec(BOOK), "b", receiver.description, slot_bytes=1 << 18)


def test_nixl_damage_is_told_to_both_sides_and_the_next_transfer_is_sound():
    x = a_tensor()
    a, b = agents(corrupt=("flip", 4))
    with nixl_pair(a, b) as (sender, receiver):
        out = np.zeros_like(x)
        sent, received = exchange(
            lambda: sender.send(x, dtype="bf16", timeout=5), lambda: receiver.receive(out=out, timeout=5)
        )
        assert isinstance(sent, SplitZipError)
        assert "frame 3" in str(sent)
        assert isinstance(received, SplitZipError)
        a.corrupt = None
        _, received = exchange(lambda: sender.send(x, dtype="bf16", timeout=5), lambda: receiver.receive(timeout=5))
        assert np.array_equal(received.view(np.uint16), x)


@pytest.mark.parametrize("how", ["refuse", "fail"])
def test_nixl_errors_of_the_transport(how):
    x = a_tensor()
    a, b = agents(corrupt=(how, 2))
    with nixl_pair(a, b) as (sender, receiver):
        sent, received = exchange(
            lambda: sender.send(x, dtype="bf16", timeout=5), lambda: receiver.receive(timeout=0.3)
        )
        assert isinstance(sent, ConnectionError)
        assert isinstance(received, TimeoutError)


def test_nixl_nobody_answers():
    a, b = agents()
    with nixl_pair(a, b) as (sender, _):
        begun = time.monotonic()
        with pytest.raises(TimeoutError, match=r"frame 0 within 0\.1 s"):
            sender.send(a_tensor(), dtype="bf16", timeout=0.1)
        with pytest.raises(TimeoutError, match="did not come"):
            nixl.NixlReceiver(Agent("c", {})).receive(timeout=0.1)
        assert time.monotonic() - begun < 2
        assert b.notifications, "the announcements that were not taken"


def test_nixl_leaves_other_peoples_messages_alone():
    x = a_tensor(1000)
    a, b = agents()
    with nixl_pair(a, b) as (sender, receiver):
        a.send_notif("b", b"hello")
        a.send_notif("b", b"0123456789abcdef")  # sixteen bytes, and still none of ours
        b.send_notif("a", b"well")
        _, received = exchange(lambda: sender.send(x, dtype="bf16", timeout=5), lambda: receiver.receive(timeout=5))
        assert np.array_equal(received.view(np.uint16), x)
        assert sorted(receiver.mailbox.others) == [("a", b"0123456789abcdef"), ("a", b"hello")]
        assert sender.mailbox.others == [("b", b"well")]


def test_what_is_expected_and_what_lies_is_refused():
    x = a_tensor(1000)
    a, b = agents()
    with nixl_pair(a, b) as (sender, receiver):
        sent, received = exchange(
            lambda: sender.send(x, dtype="bf16", timeout=5), lambda: receiver.receive(expected_tag=9, timeout=5)
        )
        assert isinstance(received, LayoutMismatch)
        assert isinstance(sent, SplitZipError)
    for frame, flags, length in ((4, 1, 500), (0, 1, 0), (0, 1, 1 << 40), (0, 1, 500), (0, 0, 128)):
        a, b = agents()
        with nixl_pair(a, b) as (_, receiver):
            a.send_notif("b", staging.Announcement(frame, flags, length, 7).pack())
            with pytest.raises(SplitZipError):
                receiver.receive(timeout=1)
            answers = [staging.Announcement.unpack(m) for m in a.notifications["b"]]
            assert [(m.flags, m.transfer) for m in answers] == [(staging.FAILED, 7)]


def test_messages_and_regions():
    said = staging.Announcement(3, staging.LAST, 2**40, 255)
    assert len(said.pack()) == 16
    assert struct.unpack("<IIQ", said.pack())[::2] == (3, 2**40)
    assert staging.Announcement.unpack(said.pack()) == said
    for other in (b"", b"x" * 16, said.pack()[:-1]):
        assert staging.Announcement.unpack(other) is None
    region = staging.Region(2**47, 1 << 20, 4, 3, True)
    assert staging.Region.unpack(region.pack()) == region
    for bad in (b"", region.pack()[:-1], b"y" + region.pack()[1:], staging.Region(1, 65, 4).pack()):
        with pytest.raises(FormatError):
            staging.Region.unpack(bad)
    for arguments in ({"slot_bytes": 100}, {"buffer": np.zeros(1000, np.uint8)}):
        with pytest.raises(BufferTooSmall):
            staging.Slots(**arguments)
    frozen = np.zeros(1 << 20, np.uint8)
    frozen.flags.writeable = False
    with pytest.raises(BufferTooSmall, match="read-only"):
        staging.Slots(frozen, slot_bytes=1 << 18)
    assert staging.Slots(np.zeros(1 << 20, np.uint8), slot_bytes=1 << 18).region.slots == 4


ENGINES = {}


class Engine:
    """What the adapter uses of `mooncake.engine.TransferEngine`."""

    def __init__(self, session, *, corrupt=None, fail=None):
        self.registered, self.corrupt, self.fail, self.writes = {}, corrupt, fail, 0
        ENGINES[session] = self

    def register_memory(self, buffer_addr, capacity, location="*"):
        self.registered[buffer_addr] = capacity
        return -1 if self.fail == "register" else 0

    def unregister_memory(self, buffer_addr):
        del self.registered[buffer_addr]
        return 0

    def transfer_sync_write(self, target_hostname, buffer, peer_buffer_address, length, transport_hint=""):
        self.writes += 1
        if self.fail == self.writes:
            return -1
        peer = ENGINES[target_hostname]
        assert any(
            a <= peer_buffer_address and peer_buffer_address + length <= a + n for a, n in peer.registered.items()
        )
        data = bytearray((ctypes.c_ubyte * length).from_address(buffer))
        if self.corrupt == self.writes:
            data[-20] ^= 1
        ctypes.memmove(peer_buffer_address, (ctypes.c_ubyte * length).from_buffer(data), length)
        return 0


@contextlib.contextmanager
def mooncake_pair(engine, peer, session="peer:1", **sizes):
    sizes = {"slot_bytes": 1 << 16, "slots": 3, **sizes}
    one, other = socket.socketpair()
    with one, other:
        receiver = mooncake.MooncakeReceiver(peer, other, **sizes)
        sender = mooncake.MooncakeSender(engine, Codec(BOOK), session, receiver.description, one, **sizes)
        yield sender, receiver
        sender.close()
        receiver.close()


def test_mooncake_round_trip():
    x = a_tensor()
    engine, peer = Engine("own:1"), Engine("peer:1")
    with mooncake_pair(engine, peer) as (sender, receiver):
        for _ in range(2):
            sent, received = exchange(
                lambda: sender.send(x, dtype="bf16", timeout=5), lambda: receiver.receive(timeout=5)
            )
            assert sent < 0.78 * x.nbytes
            assert np.array_equal(received.view(np.uint16), x)
    assert engine.registered == peer.registered == {}


def test_mooncake_faults():
    x = a_tensor()
    engine, peer = Engine("own:1", corrupt=2), Engine("peer:1")
    with mooncake_pair(engine, peer) as (sender, receiver):
        sent, received = exchange(lambda: sender.send(x, dtype="bf16", timeout=5), lambda: receiver.receive(timeout=5))
        assert isinstance(sent, SplitZipError)
        assert isinstance(received, SplitZipError)
        _, received = exchange(lambda: sender.send(x, dtype="bf16", timeout=5), lambda: receiver.receive(timeout=5))
        assert np.array_equal(received.view(np.uint16), x), "the next transfer is sound"
        engine.fail = engine.writes + 2
        sent, received = exchange(
            lambda: sender.send(x, dtype="bf16", timeout=5), lambda: receiver.receive(timeout=0.3)
        )
        assert isinstance(sent, ConnectionError)
        assert isinstance(received, TimeoutError)
    with pytest.raises(ConnectionError, match="register"), mooncake_pair(Engine("own:1", fail="register"), peer):
        pass
    with mooncake_pair(Engine("own:1"), peer) as (sender, receiver):
        sender._channel._connection.close()
        with pytest.raises(ConnectionError, match="closed"):
            receiver.receive(timeout=1)


@pytest.mark.slow
def test_the_real_nixl():
    api = pytest.importorskip("nixl_cu12", reason="nixl-cu12 is not installed")
    config = api.nixl_agent_config(backends=["UCX"])
    a, b = api.nixl_agent("a", config), api.nixl_agent("b", config)
    x = a_tensor(3_000_000)
    receiver = nixl.NixlReceiver(b, slot_bytes=1 << 20)
    name = a.add_remote_agent(b.get_agent_metadata())
    sender = nixl.NixlSender(a, Codec(BOOK), name, receiver.description, slot_bytes=1 << 20)
    b.add_remote_agent(a.get_agent_metadata())
    for _ in range(3):
        sent, received = exchange(lambda: sender.send(x, dtype="bf16"), receiver.receive)
        assert sent < 0.78 * x.nbytes
        assert np.array_equal(received.view(np.uint16), x)
    a.send_notif("b", b"hello")
    _, received = exchange(lambda: sender.send(x, dtype="bf16"), lambda: receiver.receive(like="numpy"))
    assert np.array_equal(received.view(np.uint16), x)
    assert receiver.mailbox.others == [("a", b"hello")]
    sender.close()
    receiver.close()


@pytest.mark.slow
def test_the_real_mooncake():
    try:
        from mooncake.engine import TransferEngine
    except ImportError as error:
        pytest.skip(f"mooncake-transfer-engine-non-cuda is not usable here: {error}")
    engine, peer = TransferEngine(), TransferEngine()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    assert peer.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    x = a_tensor(3_000_000)
    with mooncake_pair(engine, peer, f"127.0.0.1:{peer.get_rpc_port()}", slot_bytes=1 << 20) as (sender, receiver):
        for _ in range(3):
            sent, received = exchange(lambda: sender.send(x, dtype="bf16"), receiver.receive)
            assert sent < 0.78 * x.nbytes
            assert np.array_equal(received.view(np.uint16), x)
