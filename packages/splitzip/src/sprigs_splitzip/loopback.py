"""Two processes, a socket between them, and a limit on the flow: what a transfer gains, measured."""

from __future__ import annotations

import multiprocessing
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .codebook import Codebook
from .codec import Codec
from .errors import SplitZipError
from .sockets import TokenBucket, receive_tensor, send_tensor
from .transfer import CodecProfile, LinkProfile, Timeline, frame_times, measure_codec, simulate

Bits = npt.NDArray[np.uint16]


@dataclass(frozen=True)
class Transfer:
    """Seconds from the request to the last decoded element; best of the rounds.

    Attributes:
        link: Bytes a second the link was held to.
        raw, compressed: Measured.
        simulated_raw, simulated: What the simulator says, with the codec's rates on this machine.
        ratio: Of the data.
    """

    link: float
    raw: float
    compressed: float
    simulated_raw: float
    simulated: float
    ratio: float

    @property
    def speedup(self) -> float:
        """Measured: raw / compressed."""
        return self.raw / self.compressed

    @property
    def simulated_speedup(self) -> float:
        """Of the simulator: raw / compressed."""
        return self.simulated_raw / self.simulated


def measure_transfers(
    x: Bits, codebook: Codebook, links: Sequence[float], *, rounds: int = 3, frame_elems: int = 1 << 19
) -> list[Transfer]:
    """Send BF16 bits from a second process over a loopback socket, raw and compressed in turn, for each link.

    Args:
        x: uint16 bit patterns.
        codebook: Calibrated beforehand.
        links: Bytes a second to hold the link to.
        rounds: Transfers of each kind; the best counts, for a busy machine only ever makes them slower.
        frame_elems: Elements a frame.

    Raises:
        SplitZipError: What arrives is not what was sent.
    """
    profile = measure_codec(x, Codec(codebook, threads=1), dtype="bf16")
    out = np.empty_like(x)
    results = []
    with _Sender(x, codebook, frame_elems) as sender:
        sender.transfer(False, 1e12, out)  # connects, compiles
        sender.transfer(True, 1e12, out)
        for link in links:
            best = {False: float("inf"), True: float("inf")}
            for _ in range(rounds):
                for compressed, seconds in list(best.items()):
                    best[compressed] = min(seconds, sender.transfer(compressed, link, out))
                    if not np.array_equal(out, x):
                        raise SplitZipError("what arrived is not what was sent: please report this")
            frame_bytes = 2 * frame_elems
            timelines: list[Timeline] = [
                simulate(*frame_times(x.nbytes, LinkProfile(link), codec, frame_bytes=frame_bytes))
                for codec in (CodecProfile(1.0, 1e12, 1e12), profile)
            ]
            results.append(
                Transfer(link, best[False], best[True], timelines[0].total, timelines[1].total, profile.ratio)
            )
    return results


@dataclass(frozen=True)
class Replay:
    """Seconds a request, of which a fixed part is spent on something else than the transfer.

    Attributes:
        raw, compressed: Measured; best of the rounds.
        predicted: What Amdahl's law makes of the ratio: raw / compressed = 1 / (1 - share (1 - 1 / ratio)).
    """

    raw: float
    compressed: float
    predicted: float

    @property
    def gain(self) -> float:
        """Measured: raw / compressed; the gain in time to first token, or in requests a second."""
        return self.raw / self.compressed


def replay_requests(
    x: Bits, codebook: Codebook, link: float, share: float, *, requests: int = 1, rounds: int = 3
) -> Replay:
    """Replay requests one after another: a pause for prefill and the like, then the transfer of the KV cache.

    Args:
        x: uint16 bit patterns.
        codebook: Calibrated beforehand.
        link: Bytes a second to hold the link to.
        share: Of a request's time that the raw transfer takes; the pause takes the rest.
        requests: How many in a closed loop.
        rounds: Loops of each kind.
    """
    if not 0 < share < 1:
        raise SplitZipError(f"share lies between 0 and 1; got {share}")
    pause = x.nbytes / link * (1 - share) / share
    out = np.empty_like(x)
    best = {False: float("inf"), True: float("inf")}
    with _Sender(x, codebook, 1 << 19) as sender:
        for compressed in best:
            sender.transfer(compressed, 1e12, out)  # connects, compiles
        for _ in range(rounds):
            for compressed, seconds in list(best.items()):
                spent = sum(sender.transfer(compressed, link, out, pause=pause) for _ in range(requests)) / requests
                best[compressed] = min(seconds, spent)
    ratio = Codec(codebook).encode(x, dtype="bf16").ratio
    return Replay(best[False], best[True], 1 / (1 - share * (1 - 1 / ratio)))


class _Sender:
    """The other process. It connects to this one and serves requests over a pipe."""

    def __init__(self, x: Bits, codebook: Codebook, frame_elems: int) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        context = multiprocessing.get_context("spawn")
        self._pipe, other = context.Pipe()
        port = self._listener.getsockname()[1]
        self._process = context.Process(
            target=_serve, args=(port, other, x, codebook.to_dict(), frame_elems), daemon=True
        )

    def __enter__(self) -> _Sender:
        self._process.start()
        self._listener.settimeout(60)
        self._connection, _ = self._listener.accept()
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self

    def __exit__(self, *error: object) -> None:
        self._connection.close()
        self._listener.close()
        self._pipe.close()
        self._process.join(10)
        if self._process.is_alive():
            self._process.terminate()

    def transfer(self, compressed: bool, link: float, out: Bits, *, pause: float = 0.0) -> float:
        """Ask for the tensor, which the sender sends after a pause; return the seconds until all has arrived."""
        begun = time.perf_counter()
        self._pipe.send((compressed, link, pause))
        receive_tensor(self._connection, out=out, expected_dtype="bf16", threads=1)
        return time.perf_counter() - begun


def _serve(port: int, pipe: Any, x: Bits, codebook: dict[str, Any], frame_elems: int) -> None:
    codecs = {False: Codec(None, threads=1), True: Codec(Codebook.from_dict(codebook), threads=1)}
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            try:
                compressed, link, pause = pipe.recv()
            except EOFError:
                return
            time.sleep(pause)
            limit = TokenBucket(link)
            send_tensor(connection, x, codecs[compressed], dtype="bf16", frame_elems=frame_elems, limit=limit)
