"""The simulator in numba: draws and logarithms a chunk at a time in SIMD, then one auction after another in cache."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numba
import numpy as np

from .counters import ACTIVE, KERNEL, MULTIPLIERS, PRIOR, ROUNDS, VALUES, WEYL

if TYPE_CHECKING:
    from .instance import Array
    from .simulation import SimulationConfig

CHUNK = 256
"""Auctions drawn together: their random numbers stay in the second-level cache."""

_M0, _M1 = np.uint64(MULTIPLIERS[0]), np.uint64(MULTIPLIERS[1])
_W0, _W1 = np.uint64(WEYL[0]), np.uint64(WEYL[1])
_WORD, _SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32)
_OPTIONS = {"nogil": True, "cache": True, "error_model": "numpy", "fastmath": {"nnan", "ninf", "nsz", "contract"}}


@numba.njit(**_OPTIONS)  # type: ignore[untyped-decorator, unused-ignore]
def _uniforms(u: Any, start: Any, stream: Any, seed: Any) -> None:
    """Fill u, shape (auctions, 4 * blocks); blocks do not depend on one another, so LLVM makes vectors of them."""
    for b in range(u.shape[0]):
        auction = start + np.uint64(b)
        low, high = auction & _WORD, auction >> _SHIFT
        for block in range(u.shape[1] // 4):
            x, y, z, w = low, high, np.uint64(block), stream
            k0, k1 = seed & _WORD, seed >> _SHIFT
            for _ in range(ROUNDS):
                p, q = x * _M0, z * _M1
                x, y, z, w = (q >> _SHIFT) ^ y ^ k0, q & _WORD, (p >> _SHIFT) ^ w ^ k1, p & _WORD
                k0, k1 = (k0 + _W0) & _WORD, (k1 + _W1) & _WORD
            u[b, 4 * block] = (float(np.int64(x)) + 0.5) * 2.0**-32
            u[b, 4 * block + 1] = (float(np.int64(y)) + 0.5) * 2.0**-32
            u[b, 4 * block + 2] = (float(np.int64(z)) + 0.5) * 2.0**-32
            u[b, 4 * block + 3] = (float(np.int64(w)) + 0.5) * 2.0**-32


@numba.njit(**_OPTIONS)  # type: ignore[untyped-decorator, unused-ignore]
def _normals(u: Any, radius: Any, out: Any) -> None:
    """Box and Muller's pairs: radius times cosine and sine of a turn's share u[:, 1::2], by series within an eighth."""
    for b in range(u.shape[0]):
        for pair in range(u.shape[1] // 2):
            turn = u[b, 2 * pair + 1]
            quarter = math.floor(4.0 * turn + 0.5)
            x = 2.0 * math.pi * (turn - 0.25 * quarter)
            y = x * x
            sine = x * (1 + y * (-1 / 6 + y * (1 / 120 + y * (-1 / 5040 + y * (1 / 362880 + y * (-1 / 39916800 + y * (
                1 / 6227020800 - y / 1307674368000)))))))  # fmt: skip
            cosine = 1 + y * (-1 / 2 + y * (1 / 24 + y * (-1 / 720 + y * (1 / 40320 + y * (-1 / 3628800 + y * (
                1 / 479001600 + y * (-1 / 87178291200 + y / 20922789888000)))))))  # fmt: skip
            odd = quarter in (1.0, 3.0)
            c = sine if odd else cosine
            d = cosine if odd else sine
            c = -c if quarter in (1.0, 2.0) else c
            d = -d if quarter in (2.0, 3.0) else d
            out[b, 2 * pair] = radius[b, pair] * c
            out[b, 2 * pair + 1] = radius[b, pair] * d


@numba.njit(**_OPTIONS)  # type: ignore[untyped-decorator, unused-ignore]
def _first_of(x: Any) -> int:
    top = x[0]
    for k in range(1, len(x)):
        top = max(top, x[k])
    least = top - 1e-12 * max(1.0, top)
    for k in range(len(x)):
        if x[k] >= least:
            return k
    return 0


@numba.njit(**_OPTIONS)  # type: ignore[untyped-decorator, unused-ignore]
def _pivots(objective: Any, continuation: Any, question: int, most: Any) -> float:
    questions, n = continuation.shape
    for i in range(n):
        most[i] = objective[0] - continuation[0, i]
    for ell in range(1, questions):
        o = objective[ell]
        for i in range(n):
            most[i] = max(most[i], o - continuation[ell, i])
    total = 0.0
    kept = objective[question]
    for i in range(n):
        total += max(most[i] - (kept - continuation[question, i]), 0.0)
    return total


@numba.njit(**_OPTIONS)  # type: ignore[untyped-decorator, unused-ignore]
def _auctions(
    prior: Any, drawn: Any, kernel0: Any, values: Any, signals: int, utility: Any, rho: float, out: Any
) -> None:
    """Run auctions on drawn priors (B, m), kernel weights (B, blocks) or a fixed kernel, and values (B, n, m)."""
    size, n, m = values.shape
    total = len(utility)
    rows = total * signals
    w = np.empty((n, m))
    kernel = np.empty((m, rows))  # questions and signals side by side, so that vectors run over them
    expected, best_of, second_of = np.empty(rows), np.empty(rows), np.empty(rows)
    who = np.empty(rows)
    highest, most = np.empty(n), np.empty(n)
    continuation = np.empty((total, n))
    welfare, revenue, surplus, objective = np.empty(total), np.empty(total), np.empty(total), np.empty(total)
    bonus = utility.max()
    fixed = len(kernel0) > 0
    if fixed:
        for ell in range(total):
            for t in range(m):
                for s in range(signals):
                    kernel[t, ell * signals + s] = kernel0[ell, t, s]
    else:
        kernel[:, :signals] = 0.0
        kernel[:, 0] = 1.0
    for b in range(size):
        if not fixed:
            asked = rows - signals
            for t in range(m):
                for k in range(asked):
                    x = drawn[b, t * asked + k]
                    kernel[t, signals + k] = x * x
                for ell in range(1, total):
                    mass = 0.0
                    for k in range(ell * signals, (ell + 1) * signals):
                        mass += kernel[t, k]
                    mass = 1.0 / mass
                    for k in range(ell * signals, (ell + 1) * signals):
                        kernel[t, k] *= mass
        full, runner = 0.0, 0.0
        for t in range(m):
            best, second = 0.0, 0.0
            for i in range(n):
                x = prior[b, t] * values[b, i, t]
                w[i, t] = x
                second = max(second, min(best, x))
                best = max(best, x)
            full += best
            runner += second
        for k in range(rows):
            best_of[k] = 0.0
            second_of[k] = 0.0
            who[k] = 0.0
        for i in range(n):
            p = w[i, 0]
            for k in range(rows):
                expected[k] = p * kernel[0, k]
            for t in range(1, m):
                p = w[i, t]
                for k in range(rows):
                    expected[k] += p * kernel[t, k]
            advertiser = float(i)
            for k in range(rows):
                x = expected[k]
                second_of[k] = max(second_of[k], min(best_of[k], x))
                who[k] = advertiser if x > best_of[k] else who[k]
                best_of[k] = max(best_of[k], x)
        for ell in range(total):
            gain, paid = 0.0, 0.0
            for i in range(n):
                continuation[ell, i] = 0.0
            for k in range(ell * signals, (ell + 1) * signals):
                gain += best_of[k]
                paid += second_of[k]
                continuation[ell, int(who[k])] += best_of[k] - second_of[k]
            welfare[ell] = gain + utility[ell]
            revenue[ell] = paid
            surplus[ell] = gain - paid
        row = out[b]
        row[0, 0], row[0, 1], row[0, 2] = welfare[0], revenue[0], surplus[0]
        for k in range(2):
            share = rho if k else 0.0
            for i in range(n):
                highest[i] = 0.0
            for ell in range(total):
                extra = share * revenue[ell]
                for i in range(n):
                    highest[i] = max(highest[i], continuation[ell, i] + extra)
            top = 0.0
            for i in range(n):
                top = max(top, highest[i])
            sponsor, question = -1, 0
            if top > 0.0:
                least = top - 1e-12 * max(1.0, top)
                sponsor = 0
                while highest[sponsor] < least:
                    sponsor += 1
                while continuation[question, sponsor] + share * revenue[question] < least:
                    question += 1
                highest[sponsor] = 0.0
            price = 0.0
            for i in range(n):
                price = max(price, highest[i])
            handed = share * revenue[question] if sponsor >= 0 else 0.0
            row[1 + k, 0] = welfare[question]
            row[1 + k, 1] = revenue[question] + price - handed
            row[1 + k, 2] = surplus[question] - price + handed
        for k in range(3):
            for ell in range(total):
                if k == 0:
                    objective[ell] = surplus[ell]
                elif k == 1:
                    objective[ell] = surplus[ell] + (rho * revenue[ell] + utility[ell])
                else:
                    objective[ell] = welfare[ell]
            question = _first_of(objective)
            pivots = _pivots(objective, continuation, question, most)
            row[3 + k, 0] = welfare[question]
            row[3 + k, 1] = revenue[question] + pivots
            row[3 + k, 2] = surplus[question] - pivots
        row[6, 0], row[6, 1], row[6, 2] = full + bonus, runner, full - runner
        for k in range(7):
            row[k, 3] = row[k, 0] / row[6, 0] if row[6, 0] > 0 else 1.0


def outcomes(config: SimulationConfig, start: int, size: int, seed: int) -> Array:
    """As `simulation.batch`: metrics of auctions, shape (size, mechanisms, metrics)."""
    out = np.empty((size, 7, 4))
    utility = np.zeros(config.questions + 1) if config.question_utility is None else config.question_utility
    n, m = config.advertisers, config.intents
    rows = min(CHUNK, size)
    u = np.empty((rows, 4 * ((n * m + 3) // 4)))
    active = np.empty_like(u)
    normal = np.empty_like(u)
    prior = np.empty((rows, 4 * ((m + 3) // 4)))
    weights = np.empty((rows, 4 * ((config.questions * m * config.signals + 3) // 4) if config.kernel is None else 0))
    fixed = np.zeros((0, 0, 0)) if config.kernel is None else config.kernel
    key = np.uint64(seed)
    for first in range(0, size, rows):
        count = min(rows, size - first)
        at = np.uint64(start + first)
        if config.prior is None:
            _uniforms(prior[:count], at, np.uint64(PRIOR), key)
            drawn = -np.log(prior[:count, :m])
            drawn /= drawn.sum(axis=1, keepdims=True)
        else:
            drawn = np.broadcast_to(config.prior, (count, m)).copy()
        if config.kernel is None:
            _uniforms(weights[:count], at, np.uint64(KERNEL), key)
        _uniforms(u[:count], at, np.uint64(VALUES), key)
        _uniforms(active[:count], at, np.uint64(ACTIVE), key)
        # NumPy's logarithms and exponentials are vectors where the machine has them, its sines and cosines are not.
        radius = np.sqrt(-2 * np.log(u[:count, ::2]))
        _normals(u[:count], radius, normal[:count])
        values = np.exp(config.sigma * normal[:count, : n * m])
        values *= active[:count, : n * m] < config.active
        shaped = values.reshape(count, n, m)
        if config.values is not None:
            shaped = shaped * config.values
        _auctions(
            drawn,
            weights[:count],
            fixed,
            shaped,
            config.signals,
            utility,
            float(config.rho),
            out[first : first + count],
        )
    return out
