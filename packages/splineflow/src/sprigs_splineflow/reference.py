"""The plainest correct version, in NumPy and float64, one spline and one time at a time: the oracle of the tests.

Equations are those of de Boor, "A Practical Guide to Splines" (1978), and of the paper (arXiv 2601.23072, M1 to M4).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


def knot_vector(times: npt.ArrayLike, degree: int) -> Array:
    """Return the not-a-knot knots [n + degree + 1] of n strictly increasing times; n > degree.

    Odd degrees take data sites inside, even ones midpoints of gaps, as `scipy.interpolate.make_interp_spline` does.
    """
    t = np.asarray(times, dtype=float)
    if degree % 2:
        cut = (degree + 1) // 2
        inner = t[cut : len(t) - cut]
    else:
        middle = (t[1:] + t[:-1]) / 2
        cut = degree // 2
        inner = middle[cut : len(middle) - cut]
    return np.concatenate([np.repeat(t[0], degree + 1), inner, np.repeat(t[-1], degree + 1)])


def basis(knots: Array, degree: int, j: int, t: float) -> float:
    """Return B_{j, degree}(t) by the recursion of Cox and de Boor, with 0/0 := 0 and the last span closed."""
    if degree == 0:
        last = t == knots[-1] and knots[j] < knots[j + 1] == knots[-1]
        return float(knots[j] <= t < knots[j + 1] or last)
    value = 0.0
    if knots[j + degree] > knots[j]:
        value += (t - knots[j]) / (knots[j + degree] - knots[j]) * basis(knots, degree - 1, j, t)
    if knots[j + degree + 1] > knots[j + 1]:
        rest = (knots[j + degree + 1] - t) / (knots[j + degree + 1] - knots[j + 1])
        value += rest * basis(knots, degree - 1, j + 1, t)
    return value


def fit(times: npt.ArrayLike, values: npt.ArrayLike, degree: int) -> tuple[Array, Array, int]:
    """Return knots, control points [n, d] and degree of the interpolating spline of values [n, d].

    With n <= degree observations the degree is n - 1.
    """
    t, x = np.asarray(times, dtype=float), np.asarray(values, dtype=float)
    k = min(degree, len(t) - 1)
    knots = knot_vector(t, k)
    collocation = np.array([[basis(knots, k, j, s) for j in range(len(t))] for s in t])
    return knots, np.linalg.solve(collocation, x), k


def evaluate(knots: Array, control: Array, degree: int, t: float, nu: int = 0) -> Array:
    """Return the nu-th derivative [d] at t within the knots: differences of control points, then one spline less."""
    c, tau, k = control, knots, degree
    for _ in range(nu):
        if k == 0:
            return np.zeros(control.shape[1])
        gaps = tau[k + 1 : -1] - tau[1 : -k - 1]
        c = k * (c[1:] - c[:-1]) / gaps[:, None]
        tau, k = tau[1:-1], k - 1
    return np.asarray(sum(basis(tau, k, j, t) * c[j] for j in range(len(c))))


def bridge(g: float, t: float, left: float, right: float) -> tuple[float, float]:
    """Return the standard deviation of a Brownian bridge of diffusion g over [left, right], and its derivative."""
    s = g * math.sqrt((t - left) * (right - t) / (right - left))
    return s, s * (left + right - 2 * t) / (2 * (t - left) * (right - t))


def perturb(mu: Array, velocity: Array, s: float, ds: float, eps: Array) -> tuple[Array, Array, Array]:
    """Return x_t, the conditional velocity and the conditional score for one draw of noise, the same in all three."""
    return mu + s * eps, velocity + ds * eps, -eps / s
