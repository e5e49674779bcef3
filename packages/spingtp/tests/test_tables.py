"""Harmonics, 3j symbols, grids: closed forms, identities, independent packages."""

import json
import math
import time

import numpy as np
import pytest
import torch
from e3nn import o3
from hypothesis import given, settings
from hypothesis import strategies as st

from sprigs.data import DataFile, DataUnavailable
from sprigs_spingtp import SpinTPError, get_tables, grid, kappa, spin_paths, swsh, wigner_d
from sprigs_spingtp.programs import COMPLETE, program
from sprigs_spingtp.reference import real_three_j
from sprigs_spingtp.tables import harmonics, product_grid, spin_fields, tangent_frame
from sprigs_spingtp.three_j import gradient_three_j, kind_of, paths, scalar_three_j, spin_kappa, three_j


def points_of(beta, alpha):
    b, a = np.repeat(beta, len(alpha)), np.tile(alpha, len(beta))
    return np.stack([np.sin(b) * np.sin(a), np.cos(b), np.sin(b) * np.cos(a)], axis=-1)


def test_values_of_the_plan():
    assert kappa(1, 1, 1, "odd") == pytest.approx(0.598413420602149, abs=1e-15)
    for l in range(9):
        assert kappa(0, l, l) == pytest.approx(math.sqrt((2 * l + 1) / (4 * math.pi)), rel=1e-15)
    counts = {L: len(paths(L, L, L)) for L in (1, 2, 3, 4, 5, 6, 8)}
    assert counts == {1: 5, 2: 15, 3: 34, 4: 65, 5: 111, 6: 175, 8: 369}
    assert min(kappa(*p) for p in paths(5, 5, 10)) == pytest.approx(1 / math.sqrt(4 * math.pi))
    assert min(kappa(*p) for p in paths(6, 6, 6)) > 0.27


def test_every_path_has_its_strength_in_the_mirror():
    file = DataFile(
        "spingtp",
        "path_coefficients_L6.json",
        "0afaf27736662897f62dc1c49c6033f7fb0600c83c7470fa9124f6bd76b00ea9",
        "CC0",
    )
    try:
        path = file.path()
    except DataUnavailable as missing:
        pytest.skip(str(missing))
    for degrees, entry in json.loads(path.read_text())["paths"].items():
        l1, l2, l3 = map(int, degrees.split(","))
        assert kind_of(l1, l2, l3) == entry["parity"]
        assert kappa(l1, l2, l3) == pytest.approx(entry["coef"], rel=1e-14)


def test_three_j_symbols_equal_sympys():
    from sympy.physics.wigner import wigner_3j

    rng = np.random.default_rng(0)
    for _ in range(300):
        l1, l2, l3 = (int(l) for l in rng.integers(0, 13, 3))
        m1, m2 = int(rng.integers(-l1, l1 + 1)), int(rng.integers(-l2, l2 + 1))
        if abs(m1 + m2) <= l3:
            expected = float(wigner_3j(l1, l2, l3, m1, m2, -m1 - m2))
            assert three_j(l1, l2, l3, m1, m2, -m1 - m2) == pytest.approx(expected, abs=1e-15)


def test_closed_forms_equal_racahs_sum():
    for l1, l2, l3 in paths(12, 12, 24):
        assert scalar_three_j(l1, l2, l3) == pytest.approx(abs(three_j(l1, l2, l3, 0, 0, 0)), rel=1e-14)
        if kind_of(l1, l2, l3) == "odd":
            assert gradient_three_j(l1, l2, l3) == pytest.approx(abs(three_j(l1, l2, l3, 1, -1, 0)), rel=1e-14)
            assert gradient_three_j(l1, l2, l3) > 0, "completeness"
        else:
            assert scalar_three_j(l1, l2, l3) > 0, "completeness"


@pytest.mark.parametrize("bad", [(-1, 0, 0, 0, 0, 0), (1, 1, 1, 2, -1, -1)])
def test_no_such_symbol(bad):
    with pytest.raises(SpinTPError, match="degrees"):
        three_j(*bad)


def test_real_three_j_equals_e3nns():
    for p in paths(6, 6, 6):
        expected = o3.wigner_3j(*p, dtype=torch.float64).numpy()
        np.testing.assert_allclose(real_three_j(*p), expected, atol=1e-14)


def test_harmonics_equal_e3nns_and_their_derivatives_are_derivatives():
    lmax = 10
    beta, alpha, _ = product_grid(9, 17)
    f0, fb, fa = harmonics(range(lmax + 1), beta, alpha)
    points = torch.tensor(points_of(beta, alpha))
    expected = o3.spherical_harmonics(list(range(lmax + 1)), points, False, "integral")
    np.testing.assert_allclose(f0, expected.numpy().T, atol=1e-13)
    # Derivatives along the frame, by autograd through e3nn's harmonics of unnormalised vectors.
    e_b, e_a = (torch.tensor(e) for e in tangent_frame(points.numpy()))
    for frame, table in ((e_b, fb), (e_a, fa)):
        _, slope = torch.func.jvp(
            lambda p: o3.spherical_harmonics(list(range(lmax + 1)), p, True, "integral"), (points,), (frame,)
        )
        for l in range(1, lmax + 1):
            rows = slice(l * l, (l + 1) ** 2)
            np.testing.assert_allclose(
                table[rows] * math.sqrt(l * (l + 1)), slope.numpy().T[rows], atol=1e-10, err_msg=str(l)
            )
    assert not fb[0].any()
    assert not fa[0].any()


@pytest.mark.slow
def test_swsh_equal_an_independent_package():
    quaternionic = pytest.importorskip("quaternionic")
    spherical = pytest.importorskip("spherical")

    lmax = 10
    wigner = spherical.Wigner(lmax)
    rng = np.random.default_rng(0)
    theta, phi = rng.uniform(0.05, np.pi - 0.05, 7), rng.uniform(0, 2 * np.pi, 7)
    rotors = quaternionic.array.from_spherical_coordinates(theta, phi)
    for s in range(-2, 3):
        expected = wigner.sYlm(s, rotors)
        for l in range(abs(s), lmax + 1):
            for m in range(-l, l + 1):
                found = swsh(s, l, m, theta, phi)
                np.testing.assert_allclose(found, expected[:, wigner.Yindex(l, m)], atol=1e-12)


def test_swsh_conjugation_orthonormality_and_ladder():
    beta, alpha, weights = product_grid(14, 27)
    b, a = np.repeat(beta, len(alpha)), np.tile(alpha, len(beta))
    w = np.repeat(weights, len(alpha))
    for s in range(-2, 3):
        items = [(l, m) for l in range(abs(s), 5) for m in range(-l, l + 1)]
        values = np.array([swsh(s, l, m, b, a) for l, m in items])
        np.testing.assert_allclose((values.conj() * w) @ values.T, np.eye(len(items)), atol=1e-13)
        for (l, m), value in zip(items, values, strict=True):
            np.testing.assert_allclose(value.conj(), (-1) ** (s + m) * swsh(-s, l, -m, b, a), atol=1e-13)
    for l in range(1, 6):
        for m in range(-l, l + 1):
            # eth Y = -(d_b + i / sin b d_a) Y = sqrt(l (l + 1)) 1Y; the derivative by b analytically, through d.
            step = 1e-6
            slope = (swsh(0, l, m, b + step, a) - swsh(0, l, m, b - step, a)) / (2 * step)
            eth = -(slope - m / np.sin(b) * swsh(0, l, m, b, a))
            np.testing.assert_allclose(eth, math.sqrt(l * (l + 1)) * swsh(1, l, m, b, a), atol=1e-8)


def test_spin_fields_are_orthonormal_and_real_up_to_conjugation():
    beta, alpha, weights = product_grid(12, 23)
    w = np.repeat(weights, len(alpha))
    for s in range(4):
        re, im = spin_fields(s, range(6), beta, alpha)
        gram = ((re - 1j * im) * w) @ (re + 1j * im).T
        there = np.repeat(np.arange(6), 2 * np.arange(6) + 1) >= s
        np.testing.assert_allclose(gram, np.diag(there), atol=1e-13)


def test_wigner_d_is_a_representation():
    rng = np.random.default_rng(0)
    for l in (0, 1, 2, 5, 10, 20):
        x, y = rng.uniform(-np.pi, np.pi, 2)
        product = wigner_d(l, x) @ wigner_d(l, y)
        np.testing.assert_allclose(product, wigner_d(l, x + y), atol=1e-12)
        np.testing.assert_allclose(product @ product.T, np.eye(2 * l + 1), atol=1e-12)
    c, s = np.cos(0.7), np.sin(0.7)
    np.testing.assert_allclose(
        wigner_d(1, 0.7),
        [[(1 + c) / 2, s / 2**0.5, (1 - c) / 2], [-s / 2**0.5, c, s / 2**0.5], [(1 - c) / 2, -s / 2**0.5, (1 + c) / 2]],
        atol=1e-14,
    )


@pytest.mark.parametrize(
    ("L", "shape"), [(1, (2, 4)), (2, (4, 7)), (3, (5, 10)), (4, (7, 13)), (8, (13, 25)), (10, (16, 31))]
)
def test_grid(L, shape):
    beta, alpha, weights = grid(L, L, L)
    assert (len(beta), len(alpha)) == shape
    assert weights.sum() * len(alpha) == pytest.approx(4 * np.pi)
    assert np.sin(beta).min() > 0.01


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 6))
def test_the_grid_is_exact_and_one_node_fewer_is_not(l1, l2, l3):
    def tensor(n_b, n_a):
        beta, alpha, weights = product_grid(n_b, n_a)
        x, y, z = (harmonics([l], beta, alpha)[0] for l in (l1, l2, l3))
        return np.einsum("ap,bp,cp,p->abc", x, y, z, np.repeat(weights, len(alpha)))

    B = l1 + l2 + l3
    exact = kappa(l1, l2, l3, "even") * real_three_j(l1, l2, l3) if B % 2 == 0 else np.zeros(1)
    np.testing.assert_allclose(
        tensor(B // 2 + 1, B + 1), exact * np.ones((2 * l1 + 1, 2 * l2 + 1, 2 * l3 + 1)), atol=1e-12
    )


@pytest.mark.parametrize("L", [1, 2, 3, 4])
def test_the_grid_is_the_smallest(L):
    degrees = tuple(range(L + 1))
    form = program(degrees, degrees, degrees, COMPLETE[:1])

    def tensor(n_b, n_a):
        beta, alpha, weights = product_grid(n_b, n_a)
        f = harmonics(degrees, beta, alpha)[0]
        return np.einsum("ap,bp,cp,p->abc", f, f, f, np.repeat(weights, len(alpha)), optimize=True)

    n_b, n_a = len(form.grid[0]), len(form.grid[1])
    exact = form.dense[:, :, 0]
    np.testing.assert_allclose(tensor(n_b, n_a), exact, atol=1e-13)
    assert np.abs(tensor(n_b, n_a - 1) - exact).max() > 1e-2
    assert np.abs(tensor(n_b - 1, n_a) - exact).max() > 1e-2


def test_the_gradient_pair_alone_is_not_enough():
    assert abs(spin_kappa(3, 5, 6, 1, -1)) < 1e-14, "an accidental zero"
    assert kappa(3, 5, 6) > 0.27
    zeros = [p for p in paths(6, 6, 6) if min(p) > 0 and kind_of(*p) == "even" and abs(spin_kappa(*p, 1, -1)) < 1e-14]
    assert (3, 5, 6) in zeros
    degrees = tuple(range(7))
    tensor = program(degrees, degrees, degrees, ((1, -1, "even"),)).dense[9:16, 25:36, 0, 36:49]
    assert np.abs(tensor).max() < 1e-13
    found = spin_paths([(0, 0), (1, -1)], 6)
    assert found[3, 5, 6] == {(0, 0): pytest.approx(kappa(3, 5, 6)), (1, -1): pytest.approx(0, abs=1e-14)}


@pytest.mark.parametrize("s1", range(-2, 3))
@pytest.mark.parametrize("s2", range(-2, 3))
def test_spins_have_the_strengths_of_their_symbols(s1, s2):
    degrees = (0, 1, 2, 3)
    kinds = ((s1, s2, "even"), (s1, s2, "odd"))[: 1 if (s1, s2) == (0, 0) else 2]
    tensor = program(degrees, degrees, degrees, kinds).dense
    for l1, l2, l3 in paths(3, 3, 3):
        a, b, c = (slice(l * l, (l + 1) ** 2) for l in (l1, l2, l3))
        for k, (_, _, part) in enumerate(kinds):
            expected = spin_kappa(l1, l2, l3, s1, s2) * real_three_j(l1, l2, l3) * (part == kind_of(l1, l2, l3))
            np.testing.assert_allclose(tensor[a, b, k, c], expected, atol=1e-13)


def test_tables_are_quick_to_build_and_cached():
    get_tables.cache_clear()
    began = time.perf_counter()
    tables = get_tables(8, 8, 8)
    assert time.perf_counter() - began < 0.5
    assert tables.f0.shape == (81, 13 * 25)
    np.testing.assert_allclose(tables.proj @ tables.f0.T, np.eye(81), atol=1e-13)
    assert get_tables(8, 8, 8) is tables
    assert get_tables(2, 2, 2, "float32").fb.dtype == np.float32
    with pytest.raises(ValueError, match="read-only"):
        tables.f0[0, 0] = 1


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: get_tables(21, 1, 1), "between 0 and 20"),
        (lambda: get_tables(-1, 1, 1), "between 0 and 20"),
        (lambda: get_tables(1.5, 1, 1), "integer"),
        (lambda: swsh(2, 1, 0, 0.1, 0.1), r"\|s\| <= l"),
        (lambda: swsh(0, 1, 2, 0.1, 0.1), r"\|s\| <= l"),
        (lambda: harmonics([1], np.array([0.0]), np.array([0.0])), "poles"),
        (lambda: kappa(1, 1, 1, "both"), "even"),
        (lambda: spin_fields(-1, [1], np.array([1.0]), np.array([0.0])), "conjugates"),
        (lambda: program((1, 0), (0,), (0,)), "ascending"),
        (lambda: program((), (0,), (0,)), "at least one"),
    ],
)
def test_bad_input(call, said):
    with pytest.raises(SpinTPError, match=said):
        call()
