"""A product as a trilinear form on the grid, from which every back end and every derivative is read.

For features x, y of the inputs and g dual to the output, the form is

    T(x, y, g) = sum over points p and terms (i, j, k, c):  w_p c X_i(p) Y_j(p) G_k(p)

where X_i, Y_j, G_k are real fields, linear in the features. The product is dT/dg; the gradients of its inputs are dT/dx
and dT/dy; and theirs are the same three again. So one primitive, with the slot that it solves for, is closed under
differentiation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from .errors import SpinTPError
from .tables import Array, azimuth, check_degree, grid, legendre, spin_fields

X, Y, G = 0, 1, 2
"""Slots of the form."""

Kind = tuple[int, int, str]
"""Spin weights of the inputs' fields and which part of the product: "even" (real) or "odd" (imaginary)."""

EVEN: Kind = (0, 0, "even")
ODD: Kind = (1, -1, "odd")
NAMED: dict[str, Kind] = {"even": EVEN, "odd": ODD}
COMPLETE, GAUNT = (EVEN, ODD), (EVEN,)


def kinds_of(spins: str | Sequence[tuple[int, int]]) -> tuple[Kind, ...]:
    """Return the kinds of "complete", "gaunt", or a list of pairs of spins.

    A listed pair gives its real and its imaginary part, as far as it has them: (0, 0) has no imaginary part.

    Raises:
        SpinTPError: Another word, or pairs that are not pairs of integers.
    """
    if spins == "complete":
        return COMPLETE
    if spins == "gaunt":
        return GAUNT
    if isinstance(spins, str):
        raise SpinTPError(f"spins must be 'complete', 'gaunt', or a list of pairs (s1, s2); got {spins!r}")
    found: list[Kind] = []
    for pair in spins:
        if len(pair) != 2 or any(isinstance(s, bool) or not isinstance(s, (int, np.integer)) for s in pair):
            raise SpinTPError(f"a pair of spins has two integers; got {pair!r}")
        s1, s2 = int(pair[0]), int(pair[1])
        check_degree(abs(s1), "|s1|")
        check_degree(abs(s2), "|s2|")
        found.append((s1, s2, "even"))
        if (s1, s2) != (0, 0):
            found.append((s1, s2, "odd"))
    if not found or len(set(found)) != len(found):
        raise SpinTPError(f"spins must list at least one pair, each once; got {list(spins)!r}")
    return tuple(found)


# A field of a slot: |spin|, part (0 real, 1 imaginary), and for the output's slot the kind it belongs to.
_Field = tuple[int, int, int]
# Index into the fields of each slot, and a coefficient.
Term = tuple[int, int, int, float]


@dataclass(frozen=True)
class Program:
    """A product of given degrees and kinds; make it by `program`, which caches.

    Attributes:
        degrees: the degrees present in x, y and g, ascending.
        kinds: what the output has, in order: g is [K, rows, n3]; merged, K = 1 and the kinds are summed.
        fields: of each slot: (spin, part, kind).
        terms: the form.
    """

    degrees: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    kinds: tuple[Kind, ...]
    fields: tuple[tuple[_Field, ...], tuple[_Field, ...], tuple[_Field, ...]]
    terms: tuple[Term, ...]
    merge: bool = False

    @property
    def outputs(self) -> int:
        """K, how many arrays of n3 coefficients come out."""
        return 1 if self.merge else len(self.kinds)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Features of each slot, for one kind."""
        x, y, g = (sum(2 * l + 1 for l in degrees) for degrees in self.degrees)
        return x, y, g

    @property
    def bands(self) -> tuple[int, int, int]:
        """Highest degree of each slot."""
        x, y, g = (max(degrees) for degrees in self.degrees)
        return x, y, g

    @cached_property
    def grid(self) -> tuple[Array, Array, Array]:
        """The smallest exact grid: beta, alpha, weights of the rings."""
        return grid(*self.bands)

    @property
    def points(self) -> int:
        """Points of the grid."""
        return len(self.grid[0]) * len(self.grid[1])

    @cached_property
    def tables(self) -> tuple[Array, Array, Array]:
        """Fields of each slot, [F, n, points]; the weights are not in them."""
        beta, alpha, _ = self.grid
        out = []
        for degrees, fields in zip(self.degrees, self.fields, strict=True):
            parts = {spin: spin_fields(spin, degrees, beta, alpha) for spin, _, _ in set(fields)}
            out.append(np.stack([parts[spin][part] for spin, part, _ in fields]))
        x, y, g = out
        return x, y, g

    @cached_property
    def weights(self) -> Array:
        """Quadrature weights of the points."""
        return np.repeat(self.grid[2], len(self.grid[1]))

    @property
    def is_separable(self) -> bool:
        """Whether rings and meridians can be summed one after the other: spins up to 1."""
        return all(spin <= 1 for fields in self.fields for spin, _, _ in fields)

    @cached_property
    def separable(self) -> tuple[tuple[Array, Array], ...]:
        """Of each slot: Legendre tables [F, 2l+1, n_b, degrees] by order, and azimuth's [F, 2l+1, n_a]."""
        beta, alpha, _ = self.grid
        out = []
        for degrees, fields in zip(self.degrees, self.fields, strict=True):
            lmax = max(degrees)
            P, dP, Q = legendre(lmax, beta)
            value, slope = azimuth(lmax, alpha)
            ls = np.array(degrees)
            norm = -np.array([1 / np.sqrt(l * (l + 1)) if l else 0.0 for l in degrees])
            orders = np.abs(np.arange(-lmax, lmax + 1))
            rings, meridians = [], []
            for spin, part, _ in fields:
                table = P if spin == 0 else (dP, Q)[part]
                scale = np.ones(len(ls)) if spin == 0 else norm
                rings.append(np.moveaxis(table[ls][:, orders] * scale[:, None, None], 0, -1))
                meridians.append(slope if (spin, part) == (1, 1) else value)
            out.append((np.stack(rings), np.stack(meridians)))
        return tuple(out)

    def orders(self, slot: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
        """Where the feature of order m and degree l lies, [2l+1, degrees]; n where there is none."""
        degrees = self.degrees[slot]
        lmax, n = max(degrees), self.sizes[slot]
        index = np.full((2 * lmax + 1, len(degrees)), n, np.int64)
        start = 0
        for j, l in enumerate(degrees):
            index[lmax - l : lmax + l + 1, j] = start + np.arange(2 * l + 1)
            start += 2 * l + 1
        return index

    @cached_property
    def dense(self) -> Array:
        """The whole tensor [n1, n2, K, n3]: Clebsch-Gordan coefficients times the strengths of the paths."""
        x, y, g = self.tables
        out = np.zeros((*self.sizes[:2], self.outputs, self.sizes[2]))
        for kind in range(self.outputs):
            for i, j, k, c in self.terms:
                if self.fields[G][k][2] == kind:
                    pair = x[i][:, None] * (y[j] * (c * self.weights))
                    out[:, :, kind] += (pair.reshape(-1, self.points) @ g[k].T).reshape(*self.sizes)
        out[np.abs(out) < 1e-14] = 0.0
        return out

    def cost(self) -> dict[str, int]:
        """Multiplications a row in each back end."""
        n, points = self.sizes, self.points
        n_b, n_a = len(self.grid[0]), len(self.grid[1])
        found = {
            "dense": sum(len(f) * n[s] * points for s, f in enumerate(self.fields)),
            "cg": n[0] * n[1] * n[2] * self.outputs,
        }
        if self.is_separable:
            found["separable"] = sum(
                len(f) * ((2 * b + 1) * len(d) * n_b + n_b * n_a * (2 * b + 1))
                for f, b, d in zip(self.fields, self.bands, self.degrees, strict=True)
            )
        return found


@lru_cache(maxsize=512)
def program(
    degrees1: tuple[int, ...],
    degrees2: tuple[int, ...],
    degrees3: tuple[int, ...],
    kinds: tuple[Kind, ...] = COMPLETE,
    merge: bool = False,
) -> Program:
    """Return the program of a product, cached.

    Raises:
        SpinTPError: Degrees are missing, not ascending or out of range, or there is no kind.
    """
    for degrees in (degrees1, degrees2, degrees3):
        for l in degrees:
            check_degree(l)
        if not degrees or list(degrees) != sorted(set(degrees)):
            raise SpinTPError(f"degrees must be ascending, at least one; got {degrees}")
    if not kinds:
        raise SpinTPError("a product has at least one kind")
    slots: tuple[list[_Field], list[_Field], list[_Field]] = ([], [], [])
    terms: list[Term] = []

    def field(slot: int, spin: int, part: int, kind: int) -> int:
        wanted = (spin, part, kind)
        if wanted not in slots[slot]:
            slots[slot].append(wanted)
        return slots[slot].index(wanted)

    for number, (s1, s2, part) in enumerate(kinds):
        s3 = s1 + s2
        # Factors as (real, imaginary) coefficients of the parts: X_s = conj(X_|s|) (-1)^s for s < 0, output conjugate.
        for p1, c1 in _parts(s1):
            for p2, c2 in _parts(s2):
                for p3, c3 in _parts(s3, conjugate=True):
                    c = c1 * c2 * c3
                    value = c.real if part == "even" else c.imag
                    if value:
                        i, j = field(X, abs(s1), p1, 0), field(Y, abs(s2), p2, 0)
                        terms.append((i, j, field(G, abs(s3), p3, 0 if merge else number), float(value)))
    x, y, g = (tuple(slot) for slot in slots)
    return Program((degrees1, degrees2, degrees3), kinds, (x, y, g), tuple(terms), merge)


def _parts(s: int, conjugate: bool = False) -> list[tuple[int, complex]]:
    """The field of spin s as a sum over real and imaginary part of that of spin |s|."""
    if s == 0:
        return [(0, 1)]
    sign = (-1) ** s if s < 0 else 1
    turned = (s < 0) != conjugate
    return [(0, complex(sign)), (1, complex(0, -sign if turned else sign))]


# torch's operators take strings, not objects; so a program travels by its text.


@lru_cache(maxsize=1024)
def encode(
    degrees1: tuple[int, ...],
    degrees2: tuple[int, ...],
    degrees3: tuple[int, ...],
    kinds: tuple[Kind, ...],
    merge: bool = False,
) -> str:
    """Return a text that stands for a program."""
    program(degrees1, degrees2, degrees3, kinds, merge)
    parts = [",".join(map(str, degrees)) for degrees in (degrees1, degrees2, degrees3)]
    join = "+" if merge else " "
    return ";".join([*parts, join.join(f"{s1}:{s2}:{part}" for s1, s2, part in kinds) + (join if merge else "")])


@lru_cache(maxsize=1024)
def decode(code: str) -> Program:
    """Return the program of a text made by `encode`."""
    *degrees, kinds = code.split(";")
    one, two, three = (tuple(map(int, part.split(","))) for part in degrees)
    pairs = [kind.split(":") for kind in kinds.replace("+", " ").split()]
    return program(one, two, three, tuple((int(a), int(b), part) for a, b, part in pairs), "+" in kinds)
