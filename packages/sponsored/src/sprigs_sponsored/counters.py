"""Random numbers by counter: auction t has the same ones whoever computes it, in whatever order, on whatever backend.

Philox4x32-10 (Salmon and others, "Parallel random numbers: as easy as 1, 2, 3", SC 2011). The counter is (auction low,
auction high, block, stream), the key the seed; a block is four 32-bit words, a uniform (word + 1/2) / 2^32.
"""

from __future__ import annotations

from typing import Any

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
WEYL = (0x9E3779B9, 0xBB67AE85)

PRIOR, KERNEL, VALUES, ACTIVE = 0, 1, 2, 3
"""Streams."""


def philox(xp: Any, counter: tuple[Any, Any, Any, Any], seed: int) -> tuple[Any, Any, Any, Any]:
    """Four words of each counter, as unsigned 64-bit arrays.

    Args:
        xp: NumPy, `jax.numpy` or CuPy.
        counter: Four arrays of unsigned 64-bit integers below 2^32 that broadcast.
        seed: Key, below 2^64.
    """
    word = xp.uint64(0xFFFFFFFF)
    shift = xp.uint64(32)
    a, b, c, d = (xp.asarray(part, dtype=xp.uint64) for part in counter)
    low, high = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(ROUNDS):
        p, q = a * xp.uint64(MULTIPLIERS[0]), c * xp.uint64(MULTIPLIERS[1])
        a, b, c, d = (q >> shift) ^ b ^ xp.uint64(low), q & word, (p >> shift) ^ d ^ xp.uint64(high), p & word
        low, high = (low + WEYL[0]) & 0xFFFFFFFF, (high + WEYL[1]) & 0xFFFFFFFF
    return a, b, c, d


def uniforms(xp: Any, auctions: Any, stream: int, count: int, seed: int) -> Any:
    """The first `count` uniforms of a stream for each auction, shape (auctions, count), float64 in (0, 1)."""
    blocks = xp.arange((count + 3) // 4, dtype=xp.uint64)
    t = xp.asarray(auctions, dtype=xp.uint64)[:, None]
    counter = (t & xp.uint64(0xFFFFFFFF), t >> xp.uint64(32), blocks[None, :], xp.uint64(stream))
    words = xp.stack(xp.broadcast_arrays(*philox(xp, counter, seed)), axis=-1)
    return (words.reshape(len(auctions), -1)[:, :count].astype(xp.float64) + 0.5) * 2.0**-32
