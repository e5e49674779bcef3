"""When compressing a transfer pays: closed forms for one link between an encoder and a decoder.

Notation: B the link's bandwidth, E and D the encoder's and decoder's rates, all in raw bytes a second; r the ratio.
Uncompressed, S bytes take S / B.
"""

from __future__ import annotations

from .errors import SplitZipError


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


def _check(**quantities: float) -> None:
    for name, value in quantities.items():
        if not value > 0:
            raise SplitZipError(f"{name} must be positive; got {value}")
