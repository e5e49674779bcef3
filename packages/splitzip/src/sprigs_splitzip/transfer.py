"""When compressing a transfer pays: closed forms, a simulator of overlapped frames, and a policy that adapts.

Notation: B the link's bandwidth, E and D the encoder's and decoder's rates, all in raw bytes a second; r the ratio.
Uncompressed, S bytes take S / B.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import SplitZipError

Floats = npt.NDArray[np.float64]

_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}


def _check(**quantities: float) -> None:
    for name, value in quantities.items():
        if not value > 0:
            raise SplitZipError(f"{name} must be positive; got {value}")


@dataclass(frozen=True)
class LinkProfile:
    """A link.

    Args:
        bandwidth: Bytes a second.
        latency: Seconds before the first byte of a transfer arrives.
    """

    bandwidth: float
    latency: float = 0.0

    def __post_init__(self) -> None:
        _check(bandwidth=self.bandwidth)
        if not self.latency >= 0:
            raise SplitZipError(f"latency must not be negative; got {self.latency}")

    @classmethod
    def parse(cls, text: str) -> LinkProfile:
        """Read `"25GB/s"` (bytes) or `"400Gb/s"`, `"400Gbps"` (bits).

        Raises:
            SplitZipError: It is neither.
        """
        match = re.fullmatch(r"\s*([\d.]+(?:e[+-]?\d+)?)\s*([kmgt]?)(b|B)(?:/s|ps)\s*", text, re.IGNORECASE)
        # `b` and `B` differ, so the unit's letter is read as it stands.
        if match is None or not float(match[1]) > 0:
            raise SplitZipError(f"a link is given like 25GB/s (bytes) or 400Gb/s (bits); got {text!r}")
        bits = match[3] == "b"
        return cls(float(match[1]) * _UNITS[match[2].lower()] / (8 if bits else 1))


@dataclass(frozen=True)
class CodecProfile:
    """What a codec does to the data at hand.

    Args:
        ratio: Raw bytes / encoded bytes.
        encode_rate, decode_rate: Raw bytes a second.
    """

    ratio: float
    encode_rate: float
    decode_rate: float

    def __post_init__(self) -> None:
        _check(ratio=self.ratio, encode_rate=self.encode_rate, decode_rate=self.decode_rate)


RAW_PROFILE = CodecProfile(1.0, float("inf"), float("inf"))
"""Sending without a codec."""


def breakeven_bandwidth(ratio: float, encode_rate: float, decode_rate: float) -> float:
    """Link bandwidth up to which compress, send, decompress one after another is no slower than sending raw.

    B* = (1 - 1/r) / (1/E + 1/D), in the unit of the rates; 0 if the ratio is not above 1.
    """
    _check(ratio=ratio, encode_rate=encode_rate, decode_rate=decode_rate)
    return max(0.0, 1 - 1 / ratio) / (1 / encode_rate + 1 / decode_rate)


def serial_speedup(bandwidth: float, ratio: float, encode_rate: float, decode_rate: float) -> float:
    """Speed-up when encoding, sending and decoding follow one another: (1/B) / (1/E + 1/(rB) + 1/D)."""
    _check(bandwidth=bandwidth, ratio=ratio, encode_rate=encode_rate, decode_rate=decode_rate)
    return (1 / bandwidth) / (1 / encode_rate + 1 / (ratio * bandwidth) + 1 / decode_rate)


def pipelined_speedup(bandwidth: float, ratio: float, encode_rate: float, decode_rate: float) -> float:
    """Speed-up in the limit of many frames whose encoding, sending and decoding overlap: the slowest stage counts.

    (1/B) / max(1/E, 1/(rB), 1/D).
    """
    _check(bandwidth=bandwidth, ratio=ratio, encode_rate=encode_rate, decode_rate=decode_rate)
    return (1 / bandwidth) / max(1 / encode_rate, 1 / (ratio * bandwidth), 1 / decode_rate)


@dataclass(frozen=True, eq=False)
class Timeline:
    """When each frame leaves each stage, in seconds; arrays of shape (frames,).

    Attributes:
        encoded, sent, decoded: When a frame has been encoded, has crossed the link, has been decoded.
        starts: When each of the three began, shape (3, frames).
    """

    encoded: Floats
    sent: Floats
    decoded: Floats
    starts: Floats

    @property
    def total(self) -> float:
        """Seconds until the last frame is decoded."""
        return float(self.decoded[-1]) if self.decoded.size else 0.0

    def plot(self, path: Any) -> None:
        """Draw the stages of each frame against time, as a PNG (matplotlib)."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 2.6), layout="constrained")
        axes = figure.subplots()
        for row, (name, ends) in enumerate((("encode", self.encoded), ("link", self.sent), ("decode", self.decoded))):
            spans = [(start, end - start) for start, end in zip(self.starts[row], ends, strict=True)]
            axes.broken_barh(spans, (row - 0.4, 0.8), edgecolor="white", linewidth=0.5, facecolor=f"C{row}")
            axes.text(0, row, f" {name}", va="center", ha="right")
        axes.set(xlabel="seconds", yticks=[], ylim=(2.6, -0.6), title=f"{self.total:.4g} s")
        figure.savefig(path, dpi=110)


def simulate(
    encode: npt.ArrayLike, send: npt.ArrayLike, decode: npt.ArrayLike, ready: npt.ArrayLike | None = None
) -> Timeline:
    """Follow frames through encoder, link and decoder, each of which works on one frame at a time, in order.

    E_i = max(E_{i-1}, r_i) + a_i; L_i = max(L_{i-1}, E_i) + b_i; D_i = max(D_{i-1}, L_i) + c_i. Equal frames that are
    ready at once take a + b + c + (K - 1) max(a, b, c).

    Args:
        encode, send, decode: Seconds a, b, c of each frame; shape (frames,).
        ready: When each frame's data is there to encode; None: at once.

    Raises:
        SplitZipError: The shapes differ, or a time is negative or no number.
    """
    stages = [np.atleast_1d(np.asarray(stage, np.float64)) for stage in (encode, send, decode)]
    stages.append(np.zeros_like(stages[0]) if ready is None else np.atleast_1d(np.asarray(ready, np.float64)))
    if len({stage.shape for stage in stages}) > 1 or stages[0].ndim != 1:
        raise SplitZipError(f"give a time for each frame and stage; got shapes {[stage.shape for stage in stages]}")
    if not all((stage >= 0).all() for stage in stages):
        raise SplitZipError("times must not be negative or NaN")
    *costs, arrivals = stages
    ends, starts = [], []
    for cost in costs:
        end = np.empty_like(cost)
        start = np.empty_like(cost)
        free = 0.0
        for i in range(cost.size):
            start[i] = max(free, arrivals[i])
            end[i] = free = start[i] + cost[i]
        ends.append(end)
        starts.append(start)
        arrivals = end
    encoded, sent, decoded = ends
    return Timeline(encoded, sent, decoded, np.array(starts))


def frame_times(
    nbytes: int, link: LinkProfile, codec: CodecProfile = RAW_PROFILE, *, frame_bytes: int = 1 << 22
) -> tuple[Floats, Floats, Floats]:
    """Return the (encode, send, decode) seconds of each frame of a transfer, as `simulate` takes them.

    Args:
        nbytes: Raw bytes of the transfer.
        link, codec: Through what.
        frame_bytes: Raw bytes a frame.

    Raises:
        SplitZipError: Not a positive number of bytes.
    """
    _check(nbytes=nbytes, frame_bytes=frame_bytes)
    sizes = np.full(-(-nbytes // frame_bytes), float(frame_bytes))
    sizes[-1] = nbytes - frame_bytes * (sizes.size - 1)
    send = sizes / (codec.ratio * link.bandwidth)
    send[0] += link.latency
    return sizes / codec.encode_rate, send, sizes / codec.decode_rate


def transfer_time(
    nbytes: int, link: LinkProfile, codec: CodecProfile = RAW_PROFILE, *, frame_bytes: int = 1 << 22
) -> float:
    """Seconds of an overlapped transfer, by `simulate`; without a codec, of sending raw."""
    return simulate(*frame_times(nbytes, link, codec, frame_bytes=frame_bytes)).total


class AdaptivePolicy:
    """Chooses a mode for each frame: raw, or one of several codecs, by how fast the link has been.

    RAW frames are ordinary frames, so the receiver need not be told.

    Args:
        codecs: Mode to profile, such as `{"4 bits": ..., "3 bits": ...}`; `"raw"` is added.
        link: First estimate of the link.
        decay: Weight that the past keeps at each observation, in [0, 1).
        hysteresis: Change modes only for a gain of more than this fraction.
    """

    def __init__(
        self,
        codecs: Mapping[str, CodecProfile],
        link: LinkProfile,
        *,
        decay: float = 0.8,
        hysteresis: float = 0.05,
    ) -> None:
        if "raw" in codecs:
            raise SplitZipError('"raw" is the mode without a codec; name yours otherwise')
        if not 0 <= decay < 1 or not 0 <= hysteresis < 1:
            raise SplitZipError(f"decay and hysteresis lie in [0, 1); got {decay} and {hysteresis}")
        self.profiles = {"raw": RAW_PROFILE, **codecs}
        self.decay = decay
        self.hysteresis = hysteresis
        self.bandwidth = link.bandwidth
        self.mode = self._best()

    def observe(self, nbytes: int, seconds: float) -> None:
        """Take in that `nbytes` on the wire took `seconds`, and choose anew.

        Raises:
            SplitZipError: Either is not positive.
        """
        _check(nbytes=nbytes, seconds=seconds)
        self.bandwidth = self.decay * self.bandwidth + (1 - self.decay) * nbytes / seconds
        best = self._best()
        if self._cost(best) * (1 + self.hysteresis) < self._cost(self.mode):
            self.mode = best

    def _best(self) -> str:
        return min(self.profiles, key=self._cost)

    def _cost(self, mode: str) -> float:
        """Seconds a raw byte, everything overlapped."""
        profile = self.profiles[mode]
        return max(1 / profile.encode_rate, 1 / (profile.ratio * self.bandwidth), 1 / profile.decode_rate)


def measure_codec(x: object, codec: Any = None, *, dtype: object = None, rounds: int = 5) -> CodecProfile:
    """Measure ratio, encode and decode rate on an array, into reused buffers; medians.

    Args:
        x: A typical array, long enough to be past the caches.
        codec: A `Codec`; None: one calibrated on `x`.
        dtype: Element format, for raw bit patterns.
        rounds: Measurements.
    """
    from .arrays import as_bits
    from .codebook import Codebook
    from .codec import Codec

    view = as_bits(x, dtype)
    if codec is None:
        codec = Codec(Codebook.from_samples([view.bits], view.format))
    frame = np.empty(codec.max_encoded_size(view.bits, view.format), np.uint8)
    out = np.empty_like(view.bits)
    spent: list[tuple[float, float]] = []
    for _ in range(rounds + 1):
        begun = time.perf_counter()
        size = codec.encode_into(view.bits, frame, dtype=view.format)
        between = time.perf_counter()
        codec.decode(frame[:size], out=out)
        spent.append((between - begun, time.perf_counter() - between))
    encoding, decoding = np.median(spent[1:], axis=0)  # the first compiles
    return CodecProfile(view.nbytes / size, view.nbytes / float(encoding), view.nbytes / float(decoding))


def compare_modes(
    nbytes: int, links: Iterable[LinkProfile], codecs: Mapping[str, CodecProfile], *, frame_bytes: int = 1 << 22
) -> list[dict[str, Any]]:
    """Tell for each link what each codec makes of a transfer, and which mode to use.

    Returns:
        For each link and codec: `link` (bytes a second), `codec`, `raw_seconds`, `serial_seconds`,
        `overlapped_seconds`, `breakeven` (bytes a second) and `answer`.
    """
    rows = []
    for link in links:
        raw = transfer_time(nbytes, link, frame_bytes=frame_bytes)
        for name, codec in codecs.items():
            encode, send, decode = frame_times(nbytes, link, codec, frame_bytes=frame_bytes)
            serial = float(encode.sum() + send.sum() + decode.sum())
            overlapped = simulate(encode, send, decode).total
            answer = "compress" if serial < raw else "compress, overlapped" if overlapped < raw else "send raw"
            rows.append(
                {
                    "link": link.bandwidth,
                    "codec": name,
                    "raw_seconds": raw,
                    "serial_seconds": serial,
                    "overlapped_seconds": overlapped,
                    "breakeven": breakeven_bandwidth(codec.ratio, codec.encode_rate, codec.decode_rate),
                    "answer": answer,
                }
            )
    return rows
