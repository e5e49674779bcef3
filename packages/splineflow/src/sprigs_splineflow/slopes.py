"""Shape-preserving slopes at observations, of many series at once: PCHIP's and Akima's."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def pchip(t: Array, x: Array) -> Array:
    """Return slopes [g, c, R] of monotone cubic pieces through x [g, c, R] at t [g, c] (Fritsch and Butland, 1984)."""
    if t.shape[1] == 1:
        return np.zeros_like(x)
    h = np.diff(t, axis=1)[:, :, None]
    m = np.diff(x, axis=1) / h
    if t.shape[1] == 2:
        return np.concatenate([m, m], axis=1)
    slopes = np.zeros_like(x)
    same = (np.sign(m[:, 1:]) == np.sign(m[:, :-1])) & (m[:, 1:] != 0) & (m[:, :-1] != 0)
    w1, w2 = 2 * h[:, 1:] + h[:, :-1], h[:, 1:] + 2 * h[:, :-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        harmonic = (w1 + w2) / (w1 / m[:, :-1] + w2 / m[:, 1:])
    slopes[:, 1:-1] = np.where(same, harmonic, 0.0)
    slopes[:, 0] = _end(h[:, 0], h[:, 1], m[:, 0], m[:, 1])
    slopes[:, -1] = _end(h[:, -1], h[:, -2], m[:, -1], m[:, -2])
    return slopes


def _end(h0: Array, h1: Array, m0: Array, m1: Array) -> Array:
    """Return one-sided three-point slopes, limited to keep the shape."""
    d = ((2 * h0 + h1) * m0 - h0 * m1) / (h0 + h1)
    d = np.where(np.sign(d) != np.sign(m0), 0.0, d)
    steep = (np.sign(m0) != np.sign(m1)) & (np.abs(d) > 3 * np.abs(m0))
    return np.where(steep, 3 * m0, d)


def akima(t: Array, x: Array) -> Array:
    """Return Akima's slopes [g, c, R] (Akima, 1970), chords extended by two at either end."""
    if t.shape[1] == 1:
        return np.zeros_like(x)
    chords = np.diff(x, axis=1) / np.diff(t, axis=1)[:, :, None]
    if t.shape[1] == 2:
        return np.concatenate([chords, chords], axis=1)
    before = 2 * chords[:, 0] - chords[:, 1]
    after = 2 * chords[:, -1] - chords[:, -2]
    m = np.concatenate(
        [
            (2 * before - chords[:, 0])[:, None], before[:, None], chords,
            after[:, None], (2 * after - chords[:, -1])[:, None],
        ],
        axis=1,
    )  # fmt: skip
    jumps = np.abs(np.diff(m, axis=1))
    one, two = jumps[:, 2:], jumps[:, :-2]
    both = one + two
    slopes = (m[:, 3:] + m[:, :-3]) / 2
    sharp = both > 1e-9 * both.max(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        weighted = (one * m[:, 1:-2] + two * m[:, 2:-1]) / both
    found: Array = np.where(sharp, weighted, slopes)
    return found
