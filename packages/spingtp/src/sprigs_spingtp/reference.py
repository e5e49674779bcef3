"""The plainest correct version: a Clebsch-Gordan sum over all paths, in NumPy. The oracle of the tests."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from .tables import Array
from .three_j import in_triangle, kappa, kind_of, three_j


@lru_cache(maxsize=4096)
def real_three_j(l1: int, l2: int, l3: int) -> Array:
    """Return the Wigner 3j tensor in the real basis of e3nn, [2 l1 + 1, 2 l2 + 1, 2 l3 + 1], of norm 1.

    The complex symbols, turned into the real basis. The phase makes it real; the sign is e3nn's.
    """
    shape = (2 * l1 + 1, 2 * l2 + 1, 2 * l3 + 1)
    if not in_triangle(l1, l2, l3):
        return np.zeros(shape)
    symbols = np.zeros(shape)
    for m1 in range(-l1, l1 + 1):
        for m2 in range(-l2, l2 + 1):
            if abs(m1 + m2) <= l3:
                symbols[l1 + m1, l2 + m2, l3 - m1 - m2] = three_j(l1, l2, l3, m1, m2, -m1 - m2)
    turned = np.einsum("ai,bj,ck,ijk->abc", *(_real_basis(l) for l in (l1, l2, l3)), symbols)
    if kind_of(l1, l2, l3) == "even":
        sign = 1.0 if three_j(l1, l2, l3, 0, 0, 0) > 0 else -1.0
        return np.ascontiguousarray(sign * turned.real)
    sign = 1.0 if three_j(l1, l2, l3, 1, -1, 0) > 0 else -1.0
    return np.ascontiguousarray(-sign * turned.imag)


def _real_basis(l: int) -> np.ndarray[tuple[int, ...], np.dtype[np.complex128]]:
    """Rows: real harmonics; columns: complex ones with Condon-Shortley's sign."""
    u = np.zeros((2 * l + 1, 2 * l + 1), complex)
    u[l, l] = 1
    for m in range(1, l + 1):
        u[l + m, l + m], u[l + m, l - m] = (-1) ** m / np.sqrt(2), 1 / np.sqrt(2)
        u[l - m, l + m], u[l - m, l - m] = (-1) ** m / (1j * np.sqrt(2)), -1 / (1j * np.sqrt(2))
    return u


def spin_tensor_product(x: Array, y: Array, l1max: int, l2max: int, l3max: int) -> dict[str, Array]:
    """Return {"even": ..., "odd": ...}, [..., (l3max + 1)^2], of coefficients [..., (l + 1)^2]: see `functional`."""
    lead = np.broadcast_shapes(x.shape[:-1], y.shape[:-1])
    out = {kind: np.zeros((*lead, (l3max + 1) ** 2)) for kind in ("even", "odd")}
    for l1 in range(l1max + 1):
        for l2 in range(l2max + 1):
            for l3 in range(abs(l1 - l2), min(l1 + l2, l3max) + 1):
                one, two = x[..., l1 * l1 : (l1 + 1) ** 2], y[..., l2 * l2 : (l2 + 1) ** 2]
                path = np.einsum("...a,...b,abc->...c", one, two, real_three_j(l1, l2, l3))
                out[kind_of(l1, l2, l3)][..., l3 * l3 : (l3 + 1) ** 2] += kappa(l1, l2, l3) * path
    return out


def rotation_matrices(lmax: int, rng: np.random.Generator) -> Array:
    """Return the matrix of a random rotation on coefficients up to degree lmax, [(lmax + 1)^2, (lmax + 1)^2].

    Made from the harmonics themselves: their values at rotated points, solved for the coefficients.
    """
    from .tables import harmonics, product_grid

    beta, alpha, weights = product_grid(lmax + 1, 2 * lmax + 1)
    b, a = np.repeat(beta, len(alpha)), np.tile(alpha, len(beta))
    points = np.stack([np.sin(b) * np.sin(a), np.cos(b), np.sin(b) * np.cos(a)], axis=-1)
    q, r = np.linalg.qr(rng.normal(size=(3, 3)))
    rotation = q * np.sign(np.diag(r))
    turned = points @ (rotation * np.sign(np.linalg.det(rotation))).T
    at = [
        harmonics(range(lmax + 1), np.array([np.arccos(np.clip(p[1], -1, 1))]), np.array([np.arctan2(p[0], p[2])]))[0]
        for p in turned
    ]
    values = np.concatenate(at, axis=1)
    return (values * np.repeat(weights, len(alpha))) @ harmonics(range(lmax + 1), beta, alpha)[0].T
