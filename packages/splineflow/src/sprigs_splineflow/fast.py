"""The hot paths for CPUs, compiled by numba (extra "fast"): fitting many records, and evaluating random pairs.

Floors, degree 3 and three dimensions in float32: a sample reads one row of 48 bytes and searches its grid's breaks, and
writes 24; a fit of n observations does about 60 n operations and writes 16 n numbers a series.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

BLOCK = 64  # pairs whose rows are asked for together
_jit = numba.njit(cache=True, nogil=True, error_model="numpy")


@_jit
def _basis(knots: Any, span: int, t: float, degree: int, values: Any) -> None:
    """Fill values[0 .. degree] with the basis functions of a span at t (Cox and de Boor)."""
    values[0] = 1.0
    for p in range(1, degree + 1):
        saved = 0.0
        for r in range(p):
            right, left = knots[span + r + 1], knots[span + r + 1 - p]
            share = values[r] / (right - left)
            values[r] = saved + (right - t) * share
            saved = (t - left) * share
        values[p] = saved


@_jit
def interpolate(sites: Any, counts: Any, values: Any, k: int, knots: Any, control: Any) -> None:
    """Fill knots [G, n + k + 1] and control points [G, n, R] of not-a-knot splines through values [G, n, R]."""
    grids, n, series = values.shape
    band = np.empty((n, 2 * k + 1))
    basis = np.empty(k + 1)
    skipped = k // 2 if k % 2 == 0 else (k + 1) // 2
    for g in range(grids):
        c = counts[g]
        tau, x = knots[g], control[g]
        for j in range(n + k + 1):
            if j <= k:
                tau[j] = sites[g, 0]
            elif j >= c:
                tau[j] = sites[g, c - 1]
            elif k % 2 == 0:
                q = j - k - 1 + skipped
                tau[j] = (sites[g, q] + sites[g, q + 1]) / 2
            else:
                tau[j] = sites[g, j - k - 1 + skipped]
        for i in range(c):
            passed = i - k // 2 if k % 2 == 0 else i - (k + 1) // 2 + 1
            span = k + min(max(passed, 0), c - k - 1)
            _basis(tau, span, sites[g, i], k, basis)
            band[i] = 0.0
            for r in range(k + 1):
                band[i, span - i + r] = basis[r]
            for j in range(series):
                x[i, j] = values[g, i, j]
        # Totally positive: no pivots.
        for i in range(c):
            inverse = 1.0 / band[i, k]
            for r in range(1, min(k, c - 1 - i) + 1):
                share = band[i + r, k - r] * inverse
                if share != 0.0:
                    for q in range(1, k + 1):
                        band[i + r, k - r + q] -= share * band[i, k + q]
                    for j in range(series):
                        x[i + r, j] -= share * x[i, j]
        for i in range(c - 1, -1, -1):
            for j in range(series):
                total = x[i, j]
                for r in range(1, min(k, c - 1 - i) + 1):
                    total -= band[i, k + r] * x[i + r, j]
                x[i, j] = total / band[i, k]
        for i in range(c, n):
            for j in range(series):
                x[i, j] = x[c - 1, j]


@_jit
def rows_of_grids(knots: Any, control: Any, counts: Any, k: int, breaks: Any, rows: Any) -> None:
    """Fill breaks [G, M + 1] and rows [G, M, k + 1, R] with each grid's pieces: Taylor coefficients at left ends."""
    grids, spans, series = rows.shape[0], rows.shape[1], rows.shape[3]
    points = np.empty((k + 1, series))
    values = np.empty(k + 1)
    for g in range(grids):
        there = counts[g] - k
        for s in range(spans + 1):
            breaks[g, s] = knots[g, k + s] if s <= there else np.inf
        for s in range(spans):
            span = k + s
            left = knots[g, span]
            if s >= there or (k > 0 and knots[g, span + 1] <= left):
                rows[g, s] = 0.0
                continue
            for r in range(k + 1):
                for j in range(series):
                    points[r, j] = control[g, s + r, j]
            factor = 1.0
            for nu in range(k + 1):
                p = k - nu
                # Basis of degree p at the left end, where the last function vanishes.
                values[0] = 1.0
                for q in range(1, p):
                    saved = 0.0
                    for r in range(q):
                        right, low = knots[g, span + r + 1], knots[g, span + r + 1 - q]
                        share = values[r] / (right - low)
                        values[r] = saved + (right - left) * share
                        saved = (left - low) * share
                    values[q] = saved
                if p > 1:
                    # One degree more, without its last function.
                    saved = 0.0
                    for r in range(p):
                        right, low = knots[g, span + r + 1], knots[g, span + r + 1 - p]
                        share = values[r] / (right - low)
                        values[r] = saved + (right - left) * share
                        saved = (left - low) * share
                for j in range(series):
                    total = 0.0
                    for r in range(max(p, 1)):
                        total += values[r] * points[r, j]
                    rows[g, s, nu, j] = factor * total
                factor /= nu + 1
                for r in range(p):
                    share = p / (knots[g, span + r + 1] - knots[g, span + r + 1 - p])
                    for j in range(series):
                        points[r, j] = (points[r + 1, j] - points[r, j]) * share


@_jit
def rows_of_shared(weights: Any, control: Any, dims: int, rows: Any) -> None:
    """Fill rows [N, M, k + 1, d]: weights [M, k + 1, k + 1] times control points [m, N d]."""
    n, spans, order = rows.shape[0], rows.shape[1], rows.shape[2]
    for i in range(n):
        for s in range(spans):
            for nu in range(order):
                for j in range(dims):
                    total = 0.0
                    for r in range(order):
                        total += weights[s, nu, r] * control[s + r, i * dims + j]
                    rows[i, s, nu, j] = total


@_jit
def pairs(
    times: Any,
    pieces: Any,
    last: Any,
    rows: Any,
    layout: int,
    dims: int,
    index: Any,
    t: Any,
    mu: Any,
    slope: Any,
    inside: Any,
) -> float:
    """Fill values and velocities [B, d] at pairs of trajectories and times.

    Args:
        times, pieces, last: `piecewise.Breaks`.
        rows: [rows, k + 1, w].
        layout: 0 shared, 1 by trajectory, 2 by dimension.
        dims: d.
        index: [B].
        t: [B, 1], or [B, d] by dimension.
        mu, slope: [B, d].
        inside: [B, 1], or [B, d] by dimension, 1 where the time is within the record, else 0.

    Returns:
        Nothing of use: a sum of what was loaded ahead, which keeps the loads.
    """
    most = times.shape[1] - 1
    order, width = rows.shape[1], rows.shape[2]
    columns = dims if layout == 2 else 1
    entries = len(index) * columns
    grid, place = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
    held, density, local, alive = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    # Grids and rows lie anywhere in memory: loads close together wait for it together, not one after another.
    touched = 0.0
    for start in range(0, entries, BLOCK):
        size = min(BLOCK, entries - start)
        b, column = start // columns, start % columns
        for e in range(size):
            series = index[b] * dims + column if layout == 2 else index[b]
            g = 0 if layout == 0 else series
            grid[e], held[e], place[e] = g, t[b, column], series
            touched += times[g, 0] + last[g] + pieces[g]
            column += 1
            if column == columns:
                b, column = b + 1, 0
        for e in range(size):
            g, moment = grid[e], held[e]
            first, end, most_here = times[g, 0], last[g], pieces[g] - 1
            held[e] = min(max(moment, first), end)
            alive[e] = 1.0 if held[e] == moment else 0.0
            # A guess by proportion, right or nearly so where gaps are alike.
            density[e] = (most_here + 1) / (end - first) if end > first else 0.0
            low = min(int((held[e] - first) * density[e]), most_here)
            local[e] = low
            touched += times[g, low]
        for e in range(size):
            g, h, low, last_piece = grid[e], held[e], int(local[e]), pieces[grid[e]] - 1
            # A better guess from where the first one is, then steps; failing these, bisection.
            low = min(max(low + int((h - times[g, low]) * density[e]), 0), last_piece)
            low = min(max(low + int((h - times[g, low]) * density[e]), 0), last_piece)
            for _ in range(3):
                if h < times[g, low]:
                    low -= 1
                elif low < last_piece and h >= times[g, low + 1]:
                    low += 1
                else:
                    break
            if h < times[g, low] or (low < last_piece and h >= times[g, low + 1]):
                low, length = 0, last_piece + 1
                while length > 1:
                    half = length >> 1
                    low += half if h >= times[g, low + half] else 0
                    length -= half
            local[e] = h - times[g, low]
            place[e] = place[e] * most + low
        for e in range(size):
            touched += rows[place[e], 0, 0] + rows[place[e], order - 1, width - 1]
        b, column = start // columns, start % columns
        for e in range(size):
            row, h, moves = place[e], local[e], alive[e]
            if order == 4:
                for j in range(width):
                    c0, c1, c2, c3 = rows[row, 0, j], rows[row, 1, j], rows[row, 2, j], rows[row, 3, j]
                    mu[b, column + j] = ((c3 * h + c2) * h + c1) * h + c0
                    slope[b, column + j] = moves * ((3 * c3 * h + 2 * c2) * h + c1)
            else:
                for j in range(width):
                    value, step = rows[row, order - 1, j] * 1.0, 0.0
                    for q in range(order - 2, -1, -1):
                        step = step * h + value
                        value = value * h + rows[row, q, j]
                    mu[b, column + j] = value
                    slope[b, column + j] = moves * step
            inside[b, column] = moves
            column += 1
            if column == columns:
                b, column = b + 1, 0
    return touched
