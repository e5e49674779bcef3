"""Wigner 3j symbols, exact up to the last rounding, and the strength of each path."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

from .errors import SpinTPError


def in_triangle(l1: int, l2: int, l3: int) -> bool:
    """Whether three degrees can couple."""
    return abs(l1 - l2) <= l3 <= l1 + l2


def kind_of(l1: int, l2: int, l3: int) -> str:
    """Return "even" or "odd" after l1 + l2 + l3: symmetric paths, and those that the Gaunt product loses."""
    return "odd" if (l1 + l2 + l3) % 2 else "even"


@lru_cache(maxsize=1 << 18)
def three_j(l1: int, l2: int, l3: int, m1: int, m2: int, m3: int) -> float:
    """Return the Wigner 3j symbol (l1 l2 l3; m1 m2 m3), by Racah's sum in integers: one rounding in all.

    Source: DLMF 34.2.4.

    Raises:
        SpinTPError: A degree is negative or an order exceeds its degree.
    """
    if min(l1, l2, l3) < 0 or abs(m1) > l1 or abs(m2) > l2 or abs(m3) > l3:
        raise SpinTPError(f"no 3j symbol has degrees {l1, l2, l3} and orders {m1, m2, m3}")
    if m1 + m2 + m3 or not in_triangle(l1, l2, l3):
        return 0.0
    f = math.factorial
    low = max(0, l2 - l3 - m1, l1 - l3 + m2)
    high = min(l1 + l2 - l3, l1 - m1, l2 + m2)
    total = Fraction(0)
    for k in range(low, high + 1):
        bottom = (
            f(k) * f(l3 - l2 + k + m1) * f(l3 - l1 + k - m2) * f(l1 + l2 - l3 - k) * f(l1 - k - m1) * f(l2 - k + m2)
        )
        total += Fraction((-1) ** k, bottom)
    orders = f(l1 + m1) * f(l1 - m1) * f(l2 + m2) * f(l2 - m2) * f(l3 + m3) * f(l3 - m3)
    square = Fraction(orders * f(l1 + l2 - l3) * f(l1 - l2 + l3) * f(-l1 + l2 + l3), f(l1 + l2 + l3 + 1)) * total**2
    sign = (-1) ** (l1 - l2 - m3) * (1 if total > 0 else -1)
    return sign * math.sqrt(square) if total else 0.0


def scalar_three_j(l1: int, l2: int, l3: int) -> float:
    """Return |(l1 l2 l3; 0 0 0)| in closed form: positive for every even path inside the triangle, else zero.

    Source: DLMF 34.3.5.
    """
    J = l1 + l2 + l3
    if J % 2 or not in_triangle(l1, l2, l3):
        return 0.0
    g, f = J // 2, math.factorial
    ways = Fraction(f(g), f(g - l1) * f(g - l2) * f(g - l3))
    return math.sqrt(ways**2 * Fraction(f(J - 2 * l1) * f(J - 2 * l2) * f(J - 2 * l3), f(J + 1)))


def gradient_three_j(l1: int, l2: int, l3: int) -> float:
    """Return |(l1 l2 l3; 1 -1 0)| of an odd path in closed form, zero for what is no odd path.

    Every factor is positive: that no odd path vanishes is the completeness of the product.
    """
    J = l1 + l2 + l3
    if J % 2 == 0 or not in_triangle(l1, l2, l3):
        return 0.0
    g, f = J // 2, math.factorial
    ways = Fraction(2 * f(g + 1), f(g - l1) * f(g - l2) * f(g - l3))
    below = f(J + 1) * l1 * (l1 + 1) * l2 * (l2 + 1)
    return math.sqrt(ways**2 * Fraction(f(J - 2 * l1) * f(J - 2 * l2) * f(J - 2 * l3), below))


def kappa(l1: int, l2: int, l3: int, kind: str | None = None) -> float:
    """Return the strength of a path: the product's tensor is kappa times the real Wigner 3j tensor of e3nn.

    Args:
        l1, l2, l3: degrees of the inputs and of the output.
        kind: "even" (scalar fields), "odd" (gradient fields), or None for the one the degrees call for.

    Returns:
        sqrt((2 l1 + 1)(2 l2 + 1)(2 l3 + 1) / 4 pi) times |(l1 l2 l3; 0 0 0)| or |(l1 l2 l3; 1 -1 0)|; zero where the
        kind has no such path.

    Raises:
        SpinTPError: A negative degree, or a kind that is neither.
    """
    if min(l1, l2, l3) < 0:
        raise SpinTPError(f"degrees must not be negative; got {l1, l2, l3}")
    kind = kind_of(l1, l2, l3) if kind is None else kind
    if kind not in ("even", "odd"):
        raise SpinTPError(f"kind must be 'even' or 'odd'; got {kind!r}")
    symbol = scalar_three_j(l1, l2, l3) if kind == "even" else gradient_three_j(l1, l2, l3)
    return math.sqrt((2 * l1 + 1) * (2 * l2 + 1) * (2 * l3 + 1) / (4 * math.pi)) * symbol


def spin_kappa(l1: int, l2: int, l3: int, s1: int, s2: int) -> float:
    """Return the signed strength of a path through fields of spin s1 and s2, zero where a spin exceeds a degree.

    The tensor of the pair's even part (real) or odd part (imaginary) is this times e3nn's Wigner 3j tensor, where
    l1 + l2 + l3 is even or odd.
    """
    if l1 < abs(s1) or l2 < abs(s2) or l3 < abs(s1 + s2) or not in_triangle(l1, l2, l3):
        return 0.0
    size = math.sqrt((2 * l1 + 1) * (2 * l2 + 1) * (2 * l3 + 1) / (4 * math.pi))
    sign = (-1) ** (s1 + s2) * _orientation(l1, l2, l3)
    return float(sign * size * three_j(l1, l2, l3, s1, s2, -s1 - s2))


def _orientation(l1: int, l2: int, l3: int) -> float:
    """The sign between e3nn's real tensor and the standard phases: that of (l1 l2 l3; 0 0 0) and of (1 -1 0)."""
    J = l1 + l2 + l3
    reference = three_j(l1, l2, l3, 1, -1, 0) if J % 2 else three_j(l1, l2, l3, 0, 0, 0)
    return 1.0 if reference >= 0 else -1.0


def paths(lmax1: int, lmax2: int, lmax3: int) -> list[tuple[int, int, int]]:
    """Return every (l1, l2, l3) inside the triangle, both kinds, in lexicographic order."""
    return [
        (l1, l2, l3)
        for l1 in range(lmax1 + 1)
        for l2 in range(lmax2 + 1)
        for l3 in range(abs(l1 - l2), min(l1 + l2, lmax3) + 1)
    ]
