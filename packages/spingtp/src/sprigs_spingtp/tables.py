"""Harmonics on the quadrature grid: scalar, and with spin; built in float64, cast last.

Convention of e3nn: real orthonormal harmonics, orders m = -l..l, polar axis y: a point has the polar angle b (beta)
from +y and the azimuth a (alpha) from +z towards +x, and

    Y_lm = P_l|m|(cos b) * (sqrt(2) sin |m|a, 1, sqrt(2) cos ma)   for m < 0, m = 0, m > 0

without Condon-Shortley's sign. A set of degrees (0, 1, 2, ...) has one row for each (l, m), l slowest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import SpinTPError
from .three_j import in_triangle, spin_kappa

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

MAX_DEGREE = 20
"""Highest degree of the public functions. The sums themselves are stable well beyond."""


def check_degree(l: int, name: str = "l") -> int:
    """Return a degree, checked.

    Raises:
        SpinTPError: It is no integer, negative, or above `MAX_DEGREE`.
    """
    if isinstance(l, bool) or not isinstance(l, (int, np.integer)):
        raise SpinTPError(f"{name} must be an integer; got {l!r}")
    if not 0 <= l <= MAX_DEGREE:
        raise SpinTPError(f"{name} must be between 0 and {MAX_DEGREE}; got {l}")
    return int(l)


def grid(l1: int, l2: int, l3: int) -> tuple[Array, Array, Array]:
    """Return the smallest product grid on which the products of these band limits are integrated exactly.

    With B = l1 + l2 + l3: floor(B / 2) + 1 Gauss-Legendre rings and B + 1 equally spaced meridians.

    Returns:
        beta: polar angles of the rings, radians, [n_b]; no pole is among them.
        alpha: azimuths, radians, [n_a].
        weights: of the rings with the meridians' 2 pi / n_a in them, [n_b]; they sum to 4 pi / n_a.
    """
    B = l1 + l2 + l3
    return product_grid(B // 2 + 1, B + 1)


def product_grid(n_b: int, n_a: int) -> tuple[Array, Array, Array]:
    """Return (beta, alpha, weights) of n_b Gauss-Legendre rings with n_a points each."""
    x, w = np.polynomial.legendre.leggauss(n_b)
    beta: Array = np.arccos(np.asarray(x, np.float64))
    alpha: Array = np.arange(n_a, dtype=np.float64) * (2 * math.pi / n_a)
    return beta, alpha, np.asarray(w, np.float64) * (2 * math.pi / n_a)


def legendre(lmax: int, beta: Array) -> tuple[Array, Array, Array]:
    """Return normalised associated Legendre functions, their derivative by beta, and their quotient by sin(beta).

    Args:
        lmax: highest degree.
        beta: polar angles, not 0 or pi, [n_b].

    Returns:
        Three arrays [lmax + 1, lmax + 1, n_b], by degree and order, zero where the order exceeds the degree.
    """
    c, s = np.cos(beta), np.sin(beta)
    if len(beta) and np.abs(s).min() < 1e-12:
        raise SpinTPError("the gradient of a harmonic has no frame at the poles: keep beta away from 0 and pi")
    P = np.zeros((lmax + 1, lmax + 1, len(beta)))
    P[0, 0] = math.sqrt(1 / (4 * math.pi))
    for m in range(1, lmax + 1):
        P[m, m] = math.sqrt((2 * m + 1) / (2 * m)) * s * P[m - 1, m - 1]
    for m in range(lmax + 1):
        for l in range(m + 1, lmax + 1):
            a = math.sqrt((4 * l * l - 1) / (l * l - m * m))
            P[l, m] = a * c * P[l - 1, m]
            if l > m + 1:
                P[l, m] -= a * math.sqrt(((l - 1) ** 2 - m * m) / (4 * (l - 1) ** 2 - 1)) * P[l - 2, m]
    dP = np.zeros_like(P)
    for l in range(1, lmax + 1):
        for m in range(l + 1):
            below = math.sqrt((2 * l + 1) / (2 * l - 1) * (l * l - m * m)) * P[l - 1, m] if l > m else 0.0
            dP[l, m] = (l * c * P[l, m] - below) / s
    return P, dP, P / s


def azimuth(lmax: int, alpha: Array) -> tuple[Array, Array]:
    """Return the azimuth's functions by order m = -lmax..lmax and their derivatives, [2 lmax + 1, n_a] each."""
    m = np.arange(1, lmax + 1)[:, None]
    cos, sin = np.cos(m * alpha), np.sin(m * alpha)
    root = math.sqrt(2)
    value = np.concatenate([root * sin[::-1], np.ones((1, len(alpha))), root * cos])
    slope = np.concatenate([(root * m * cos)[::-1], np.zeros((1, len(alpha))), -root * m * sin])
    return value, slope


def harmonics(degrees: Sequence[int], beta: Array, alpha: Array) -> tuple[Array, Array, Array]:
    """Return F0 = Y, Fb = d_b Y / sqrt(l(l+1)) and Fa = d_a Y / (sin b sqrt(l(l+1))) on a product grid.

    Returns:
        Three arrays [n, n_b * n_a], points of a ring together; Fb = Fa = 0 for l = 0.
    """
    lmax = max(degrees)
    P, dP, Q = legendre(lmax, beta)
    value, slope = azimuth(lmax, alpha)
    rows: list[list[Array]] = [[], [], []]
    for l in degrees:
        norm = 1 / math.sqrt(l * (l + 1)) if l else 0.0
        for m in range(-l, l + 1):
            k = abs(m)
            rows[0].append(np.outer(P[l, k], value[lmax + m]).ravel())
            rows[1].append(norm * np.outer(dP[l, k], value[lmax + m]).ravel())
            rows[2].append(norm * np.outer(Q[l, k], slope[lmax + m]).ravel())
    f0, fb, fa = (np.array(r) for r in rows)
    return f0, fb, fa


@lru_cache(maxsize=64)
def _jy(l: int) -> tuple[Array, npt.NDArray[np.complex128]]:
    m = np.arange(-l, l)
    up = np.sqrt(l * (l + 1) - m * (m + 1))
    jy = np.zeros((2 * l + 1, 2 * l + 1), complex)
    jy[np.arange(1, 2 * l + 1), np.arange(2 * l)] = up / 2j
    values, vectors = np.linalg.eigh(jy + jy.conj().T)
    return np.rint(values), vectors


def wigner_d(l: int, beta: npt.ArrayLike) -> Array:
    """Return Wigner's small d-matrices d^l_{m' m}(beta) = <l m'| exp(-i beta J_y) |l m>.

    Args:
        l: degree, at most `MAX_DEGREE`.
        beta: angles, radians, any shape.

    Returns:
        [..., 2l+1, 2l+1], rows m' and columns m = -l..l.

    Raises:
        SpinTPError: The degree is out of range.
    """
    check_degree(l)
    values, vectors = _jy(l)
    phase = np.exp(-1j * np.multiply.outer(np.asarray(beta, float), values))
    return np.ascontiguousarray(np.einsum("ik,...k,jk->...ij", vectors, phase, vectors.conj()).real)


def swsh(s: int, l: int, m: int, theta: npt.ArrayLike, phi: npt.ArrayLike) -> npt.NDArray[np.complex128]:
    """Return the spin-weighted spherical harmonic sY_lm(theta, phi), of Goldberg et al. (1967).

    sY_lm = (-1)^s sqrt((2l+1) / 4 pi) d^l_{m,-s}(theta) exp(i m phi): orthonormal for each s, the ordinary complex
    harmonic with Condon-Shortley's sign for s = 0.

    Args:
        s: spin weight, |s| <= l.
        l, m: degree and order.
        theta, phi: polar angle and azimuth, radians, broadcast together.

    Raises:
        SpinTPError: |s| or |m| exceeds l, or l is out of range.
    """
    check_degree(l)
    if abs(s) > l or abs(m) > l:
        raise SpinTPError(f"a harmonic of degree {l} has |s| <= l and |m| <= l; got s = {s}, m = {m}")
    d = wigner_d(l, theta)[..., l + m, l - s]
    return np.asarray((-1) ** s * math.sqrt((2 * l + 1) / (4 * math.pi)) * d * np.exp(1j * m * np.asarray(phi, float)))


def spin_fields(s: int, degrees: Sequence[int], beta: Array, alpha: Array) -> tuple[Array, Array]:
    """Return real and imaginary part of eth^s, unit-normalised, of the real harmonics on a product grid.

    s = 0: (F0, 0); s = 1: (-Fb, -Fa); rows of degrees below s are zero. Real features have X_-s = (-1)^s conj(X_s).

    Returns:
        Two arrays [n, n_b * n_a].
    """
    if s < 0:
        raise SpinTPError(f"fields of negative spin are conjugates; got s = {s}")
    if s <= 1:
        f0, fb, fa = harmonics(degrees, beta, alpha)
        return (f0, np.zeros_like(f0)) if s == 0 else (-fb, -fa)
    rows = []
    for l in degrees:
        d = wigner_d(l, beta)[..., l - s] if l >= s else np.zeros((len(beta), 2 * l + 1))
        size = (-1) ** s * math.sqrt((2 * l + 1) / (4 * math.pi))
        for m in range(-l, l + 1):
            k = abs(m)
            plus = (-1) ** k * size * np.outer(d[:, l + k], np.exp(1j * k * alpha))
            minus = size * np.outer(d[:, l - k], np.exp(-1j * k * alpha))
            real = plus if m == 0 else (plus + minus) / math.sqrt(2) if m > 0 else (plus - minus) / (1j * math.sqrt(2))
            rows.append(real.ravel())
    table = np.array(rows)
    return np.ascontiguousarray(table.real), np.ascontiguousarray(table.imag)


@dataclass(frozen=True)
class SphereTables:
    """Everything that a product of band limits (l1, l2, l3) needs.

    Attributes:
        f0, fb, fa: of the inputs' degrees up to max(l1, l2): values and unit-normalised derivatives, [n, G].
        proj: harmonics of the output with the quadrature weights, [(l3+1)^2, G].
        beta, alpha, weights: the grid; G = n_b n_a points, a ring's together.
    """

    f0: npt.NDArray[Any]
    fb: npt.NDArray[Any]
    fa: npt.NDArray[Any]
    proj: npt.NDArray[Any]
    beta: Array
    alpha: Array
    weights: Array


@lru_cache(maxsize=128)
def get_tables(l1max: int, l2max: int, l3max: int, dtype: str = "float64") -> SphereTables:
    """Return the tables of a product, cached.

    Args:
        l1max, l2max, l3max: band limits of inputs and output, at most `MAX_DEGREE`.
        dtype: of the fields; they are built in float64 and cast last.

    Raises:
        SpinTPError: A degree is out of range.
    """
    for name, l in (("l1max", l1max), ("l2max", l2max), ("l3max", l3max)):
        check_degree(l, name)
    beta, alpha, weights = grid(l1max, l2max, l3max)
    f0, fb, fa = harmonics(range(max(l1max, l2max) + 1), beta, alpha)
    proj = harmonics(range(l3max + 1), beta, alpha)[0] * np.repeat(weights, len(alpha))
    cast = [np.ascontiguousarray(table.astype(dtype)) for table in (f0, fb, fa, proj)]
    found = SphereTables(cast[0], cast[1], cast[2], cast[3], beta, alpha, weights)
    for table in (found.f0, found.fb, found.fa, found.proj, beta, alpha, weights):
        table.flags.writeable = False
    return found


def spin_paths(spins: Iterable[tuple[int, int]], lmax: int) -> dict[tuple[int, int, int], dict[tuple[int, int], float]]:
    """Return, for every path of degrees up to lmax, its strength through each pair of spins: `spin_kappa`.

    A pair of spin 0 has no odd path; (1, -1) has all odd ones, and even ones with accidental zeros, first (3, 5, 6).
    """
    check_degree(lmax, "lmax")
    pairs = list(spins)
    return {
        (l1, l2, l3): {(s1, s2): spin_kappa(l1, l2, l3, s1, s2) for s1, s2 in pairs}
        for l1 in range(lmax + 1)
        for l2 in range(lmax + 1)
        for l3 in range(lmax + 1)
        if in_triangle(l1, l2, l3)
    }


def tangent_frame(points: Array) -> tuple[Array, Array]:
    """Return the unit vectors along growing beta and alpha at unit vectors [..., 3] in e3nn's (x, y, z)."""
    x, y, z = np.moveaxis(points, -1, 0)
    s = np.hypot(x, z)
    e_b = np.stack([y * x / s, -s, y * z / s], axis=-1)
    e_a = np.stack([z / s, np.zeros_like(s), -x / s], axis=-1)
    return e_b, e_a
