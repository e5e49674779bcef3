"""Transfers over a loopback socket, whole and broken."""

import multiprocessing
import os
import signal
import socket
import threading
import time

import numpy as np
import pytest

from sprigs_splitzip import Codec, SplitZipError, TruncatedError
from sprigs_splitzip.loopback import measure_transfers, replay_requests
from sprigs_splitzip.samples import shipped_bank, shipped_cache
from sprigs_splitzip.sockets import TokenBucket, fetch, receive_tensor, send_frames, send_tensor

BOOK = shipped_bank(4)["default"]


@pytest.fixture
def cache():
    return shipped_cache().reshape(-1)


class Server:
    """Sends to whoever connects; each connection gets the next of the given behaviours."""

    def __init__(self, *behaviours):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.behaviours = behaviours
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        for behave in self.behaviours:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                try:
                    behave(connection)
                except OSError:
                    continue  # the receiver has gone

    def connect(self):
        connection = socket.create_connection(self.listener.getsockname())
        connection.settimeout(20)
        return connection

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.listener.close()
        self.thread.join(20)


def frames_of(cache):
    return [frame.tobytes() for frame in Codec(BOOK).encode_frames(cache, dtype="bf16", frame_elems=100_000)]


def whole(cache):
    return lambda connection: send_tensor(connection, cache, Codec(BOOK), dtype="bf16", frame_elems=100_000)


def sends(*pieces):
    return lambda connection: connection.sendall(b"".join(pieces))


def test_a_tensor_crosses(cache):
    with Server(whole(cache)) as server, server.connect() as connection:
        received = receive_tensor(connection, expected_dtype="bf16", expected_shape=cache.shape)
    assert np.array_equal(received.view(np.uint16), cache)


def broken_streams(cache):
    frames = frames_of(cache)
    damaged = bytearray(frames[3])
    damaged[20_000] ^= 4
    header = bytearray(frames[3])
    header[24] ^= 1
    return {
        "cut in the middle of a frame": [b"".join(frames[:2]), frames[2][:1000]],
        "cut between frames": frames[:3],
        "cut in a header": [*frames[:2], frames[2][:50]],
        "a bit flipped in a payload": [*frames[:3], bytes(damaged), *frames[4:]],
        "a bit flipped in a header": [*frames[:3], bytes(header), *frames[4:]],
        "a frame twice": [*frames[:3], frames[2], *frames[3:]],
        "two frames swapped": [*frames[:3], frames[4], frames[3], *frames[5:]],
        "a frame lost": [*frames[:3], *frames[4:]],
        "nothing": [],
        "something else": [b"HTTP/1.1 200 OK\r\n\r\n" * 100],
    }


FAULTS = sorted(broken_streams(np.zeros(800_000, np.uint16)))


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_an_error_and_a_retry_succeeds(cache, fault):
    pieces = broken_streams(cache)[fault]
    with Server(sends(*pieces)) as server, server.connect() as connection, pytest.raises(SplitZipError):
        receive_tensor(connection)
    with Server(sends(*pieces), sends(*pieces), whole(cache)) as server:
        received = fetch(server.connect, receive_tensor)
    assert np.array_equal(received.view(np.uint16), cache)
    with Server(sends(*pieces), sends(*pieces)) as server, pytest.raises(SplitZipError):
        fetch(server.connect, receive_tensor, attempts=2)


def _receive_slowly(port, result):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        result.send("connected")
        received = receive_tensor(connection)
        result.send(received.view(np.uint16))


def test_a_receiver_killed_and_restarted(cache):
    """The sender sees a broken connection; the new receiver gets the whole tensor."""
    context = multiprocessing.get_context("spawn")
    seen = []

    def held_back(connection):
        try:
            send_tensor(connection, cache, Codec(BOOK), dtype="bf16", frame_elems=100_000, limit=TokenBucket(4e5))
        except OSError as error:
            seen.append(error)
            raise

    with Server(held_back, whole(cache)) as server:
        ours, theirs = context.Pipe()
        process = context.Process(target=_receive_slowly, args=(server.listener.getsockname()[1], theirs))
        process.start()
        assert ours.recv() == "connected"
        time.sleep(0.3)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        with server.connect() as connection:
            received = receive_tensor(connection)
    assert seen, "the sender must notice"
    assert np.array_equal(received.view(np.uint16), cache)


def test_an_encoder_that_fails_breaks_the_transfer(cache):
    def frames():
        yield from list(Codec(BOOK).encode_frames(cache, dtype="bf16", frame_elems=100_000))[:2]
        raise SplitZipError("no more")

    ours, theirs = socket.socketpair()
    with ours, theirs:
        receiver = threading.Thread(target=lambda: theirs.makefile("rb").read(), daemon=True)
        receiver.start()
        with pytest.raises(SplitZipError, match="no more"):
            send_frames(ours, frames())


def test_a_connection_that_ends_early_says_how_far_it_came(cache):
    frames = frames_of(cache)
    with (
        Server(sends(*frames[:2])) as server,
        server.connect() as connection,
        pytest.raises(TruncatedError, match="200000 elements"),
    ):
        receive_tensor(connection)


def test_two_tensors_over_one_connection(cache):
    def both(connection):
        send_tensor(connection, cache, Codec(BOOK), dtype="bf16", tag=1, frame_elems=100_000)
        send_tensor(connection, cache[:1000], Codec(BOOK), dtype="bf16", tag=2)

    with Server(both) as server, server.connect() as connection:
        for tag, size in ((1, cache.size), (2, 1000)):
            received = receive_tensor(connection, expected_tag=tag)
            assert np.array_equal(received.view(np.uint16), cache[:size])


def test_token_bucket_holds_the_rate():
    bucket = TokenBucket(10e6, burst=1000)
    begun = time.perf_counter()
    for _ in range(20):
        bucket.take(100_000)
    assert time.perf_counter() - begun >= 0.19
    with pytest.raises(SplitZipError):
        TokenBucket(0)


@pytest.mark.slow
def test_two_processes_and_a_slow_link():
    """The measured gain is the simulator's, within 10 %, best of three tries on a shared machine."""
    x = np.resize(shipped_cache().reshape(-1), 1 << 24)
    best = 0.0
    for _ in range(3):
        (transfer,) = measure_transfers(x, BOOK, [100e6])
        best = max(best, transfer.speedup)
        if abs(transfer.speedup / transfer.simulated_speedup - 1) < 0.1:
            break
    assert best > 1.15
    assert transfer.speedup == pytest.approx(transfer.simulated_speedup, rel=0.1)


@pytest.mark.slow
def test_requests_follow_amdahls_law():
    x = np.resize(shipped_cache().reshape(-1), 1 << 22)
    for _ in range(3):
        replay = replay_requests(x, BOOK, 100e6, 0.75, requests=3)
        if abs(replay.gain / replay.predicted - 1) < 0.1:
            break
    assert replay.predicted == pytest.approx(1 / (1 - 0.75 * (1 - 1 / 1.331)), rel=1e-3)
    assert replay.gain == pytest.approx(replay.predicted, rel=0.1)
    with pytest.raises(SplitZipError):
        replay_requests(x, BOOK, 1e6, 1.5)
