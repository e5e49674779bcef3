"""The product of functions: every back end against Clebsch-Gordan sums, its symmetries and derivatives."""

import numpy as np
import pytest
import torch
from e3nn import o3
from hypothesis import given, settings
from hypothesis import strategies as st

from sprigs_spingtp import SpinTPError, native, reference, spin_tensor_product
from sprigs_spingtp.functional import multiply
from sprigs_spingtp.programs import COMPLETE, G, X, Y, decode, encode, kinds_of
from sprigs_spingtp.three_j import kind_of, paths, spin_kappa

BACKENDS = ("native", "dense", "separable", "cg")
RNG = np.random.default_rng(0)


def normal(*shape, dtype=torch.float64):
    return torch.tensor(RNG.normal(size=shape)).to(dtype)


@pytest.mark.parametrize("backend", BACKENDS)
@settings(deadline=None, max_examples=12)
@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 6), st.integers(0, 37))
def test_every_back_end_equals_the_sum_over_paths(backend, l1, l2, l3, rows):
    x, y = normal(rows, (l1 + 1) ** 2), normal(rows, (l2 + 1) ** 2)
    found = spin_tensor_product(x, y, l1, l2, l3, backend=backend)
    expected = reference.spin_tensor_product(x.numpy(), y.numpy(), l1, l2, l3)
    for kind in ("even", "odd"):
        np.testing.assert_allclose(found[kind].numpy(), expected[kind], atol=2e-13)


@pytest.mark.parametrize("backend", BACKENDS)
def test_float32(backend):
    x, y = normal(100, 25), normal(100, 25)
    exact = spin_tensor_product(x, y, 4, 4, 4, backend="dense")
    found = spin_tensor_product(x.float(), y.float(), 4, 4, 4, backend=backend)
    for kind in exact:
        assert found[kind].dtype == torch.float32
        np.testing.assert_allclose(found[kind].numpy(), exact[kind].numpy(), atol=2e-5)


def test_completeness():
    """Every path up to degree 6 is its strength times e3nn's tensor, both kinds; the Gaunt product has no odd one."""
    l = 6
    eye = torch.eye(49, dtype=torch.float64)
    pairs = [eye.repeat_interleave(49, 0), eye.repeat(49, 1)]
    found = {k: v.reshape(49, 49, 49) for k, v in spin_tensor_product(*pairs, l, l, l).items()}
    for l1, l2, l3 in paths(l, l, l):
        a, b, c = (slice(d * d, (d + 1) ** 2) for d in (l1, l2, l3))
        kind = kind_of(l1, l2, l3)
        s = (0, 0) if kind == "even" else (1, -1)
        expected = spin_kappa(l1, l2, l3, *s) * o3.wigner_3j(l1, l2, l3, dtype=torch.float64)
        np.testing.assert_allclose(found[kind][a, b, c], expected, atol=1e-12)
        assert found[kind][a, b, c].norm() > 0.27
        other = "odd" if kind == "even" else "even"
        assert found[other][a, b, c].abs().max() < 1e-13


def test_two_vectors():
    u, v = normal(5, 3), normal(5, 3)
    zero = torch.zeros(5, 1, dtype=torch.float64)
    found = spin_tensor_product(torch.cat([zero, u], 1), torch.cat([zero, v], 1), 1, 1, 1)
    cross = 0.24430125595145993 * torch.linalg.cross(u, v)
    np.testing.assert_allclose(found["odd"][:, 1:], cross, atol=1e-15)
    np.testing.assert_allclose(found["even"][:, 0], (u * v).sum(1) / np.sqrt(4 * np.pi), atol=1e-15)


@pytest.mark.parametrize("backend", BACKENDS)
def test_symmetry(backend):
    x, y = normal(20, 36), normal(20, 36)
    one, two = (spin_tensor_product(*pair, 5, 5, 5, backend=backend) for pair in ((x, y), (y, x)))
    assert (one["even"] - two["even"]).abs().max() < 1e-13
    assert (one["odd"] + two["odd"]).abs().max() < 1e-13
    assert spin_tensor_product(x, x, 5, 5, 5, backend=backend)["odd"].abs().max() < 1e-13


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("lmax", [1, 3, 8])
def test_equivariance(backend, lmax, double):
    """20 rotations and inversions: 1e-12 in float64, 5e-5 in float32."""
    natural = o3.Irreps.spherical_harmonics(lmax)
    pseudo = o3.Irreps([(1, (l, -((-1) ** l))) for l in range(lmax + 1)])
    x, y = normal(6, (lmax + 1) ** 2), normal(6, (lmax + 1) ** 2)
    before = spin_tensor_product(x, y, lmax, lmax, lmax, backend=backend)
    for seed in range(20):
        torch.manual_seed(seed)
        rotation = o3.rand_matrix(dtype=torch.float64) * (-1) ** seed
        turn, turn_odd = (irreps.D_from_matrix(rotation) for irreps in (natural, pseudo))
        for dtype, bound in ((torch.float64, 1e-12), (torch.float32, 5e-5)):
            turned = [(t @ turn.T).to(dtype) for t in (x, y)]
            after = spin_tensor_product(*turned, lmax, lmax, lmax, backend=backend)
            for kind, matrix in (("even", turn), ("odd", turn_odd)):
                wanted = before[kind] @ matrix.T
                error = float((after[kind].double() - wanted).abs().max())
                assert error < bound * max(1.0, float(wanted.abs().max()))


@pytest.mark.parametrize("backend", BACKENDS)
def test_derivatives(backend):
    x, y = normal(3, 9).requires_grad_(), normal(3, 4).requires_grad_()

    def product(x, y):
        return tuple(spin_tensor_product(x, y, 2, 1, 2, backend=backend).values())

    assert torch.autograd.gradcheck(product, (x, y), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(product, (x, y))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("merge", [False, True])
def test_each_slot_of_the_form(backend, merge):
    """The product and both adjoints are contractions of one tensor, for gaps in the degrees and any number of rows."""
    from sprigs_spingtp import functional

    form = decode(encode((0, 2), (1, 2, 3), (1, 2, 4), COMPLETE, merge))
    tensor = torch.tensor(form.dense)
    for rows in (0, 1, 8, 41):
        x, y = normal(rows, form.sizes[X]), normal(rows, form.sizes[Y])
        g = normal(form.outputs, rows, form.sizes[G])
        for slot, (a, b), text in (
            (G, (x, y), "ra,rb,abkc->krc"),
            (X, (y, g), "rb,krc,abkc->ra"),
            (Y, (x, g), "ra,krc,abkc->rb"),
        ):
            found = functional._RUN[backend](form, slot, a, b)
            np.testing.assert_allclose(found, torch.einsum(text, a, b, tensor), atol=1e-13)


@pytest.mark.parametrize("backend", ["dense", "cg"])
def test_other_spins(backend):
    kinds = kinds_of([(0, 0), (1, -1), (2, -2), (1, 0), (-1, 2)])
    degrees = (0, 1, 2, 3)
    x, y = normal(4, 16).requires_grad_(), normal(4, 16)
    code = encode(degrees, degrees, degrees, kinds)
    found = multiply(x, y, code, backend)
    for k, (s1, s2, part) in enumerate(kinds):
        expected = torch.zeros(4, 16, dtype=torch.float64)
        for l1, l2, l3 in paths(3, 3, 3):
            if kind_of(l1, l2, l3) == part:
                a, b, c = (slice(l * l, (l + 1) ** 2) for l in (l1, l2, l3))
                tensor = o3.wigner_3j(l1, l2, l3, dtype=torch.float64)
                path = torch.einsum("ra,rb,abc->rc", x.detach()[:, a], y[:, b], tensor)
                expected[:, c] += spin_kappa(l1, l2, l3, s1, s2) * path
        np.testing.assert_allclose(found[k].detach(), expected, atol=1e-13)
    assert torch.autograd.gradcheck(lambda x: multiply(x, y, code, backend), (x,))
    for name in ("separable", "native"):
        with pytest.raises(SpinTPError, match="spins up to 1"):
            multiply(x, y, code, name)


def test_broadcasting_and_leading_dimensions():
    x, y = normal(2, 1, 5, 9), normal(3, 1, 9)
    found = spin_tensor_product(x, y, 2, 2, 2)["odd"]
    assert found.shape == (2, 3, 5, 9)
    np.testing.assert_allclose(found[1, 2, 3], spin_tensor_product(x[1, 0, 3], y[2, 0], 2, 2, 2)["odd"], atol=1e-14)
    assert spin_tensor_product(x[0, 0, 0], y[0, 0], 2, 2, 2)["even"].shape == (9,)
    assert spin_tensor_product(x[:0], y, 2, 2, 2)["even"].shape == (0, 3, 5, 9)


def test_strided_input_is_read_as_what_it_is():
    x, y = normal(9, 40).T, normal(40, 18)[:, ::2]
    found = spin_tensor_product(x, y, 2, 2, 2, backend="native")
    expected = reference.spin_tensor_product(x.numpy(), y.numpy(), 2, 2, 2)
    np.testing.assert_allclose(found["odd"], expected["odd"], atol=1e-13)


def test_many_rows_on_two_threads():
    threads = torch.get_num_threads()
    x, y = normal(20_001, 16), normal(20_001, 16)
    try:
        torch.set_num_threads(1)
        one = spin_tensor_product(x, y, 3, 3, 3, backend="native")
        torch.set_num_threads(2)
        two = spin_tensor_product(x, y, 3, 3, 3, backend="native")
    finally:
        torch.set_num_threads(threads)
    for kind in one:
        assert torch.equal(one[kind], two[kind])


def test_transforms():
    x, y = normal(5, 3, 9), normal(5, 3, 9)

    def odd(x, y):
        return spin_tensor_product(x, y, 2, 2, 2)["odd"]

    np.testing.assert_allclose(torch.vmap(odd)(x, y), odd(x, y), atol=1e-14)
    np.testing.assert_allclose(torch.vmap(odd, in_dims=(0, None))(x, y[0]), odd(x, y[0]), atol=1e-14)
    np.testing.assert_allclose(torch.vmap(odd, in_dims=(1, 1), out_dims=1)(x, y), odd(x, y), atol=1e-14)
    row = x[0, 0]
    forward, backward = (f(lambda t: odd(t, t.flip(0)))(row) for f in (torch.func.jacfwd, torch.func.jacrev))
    np.testing.assert_allclose(forward, backward, atol=1e-14)
    rows = torch.func.vmap(torch.func.jacrev(lambda t: odd(t, t.flip(0))))(x[0])
    np.testing.assert_allclose(rows[0], backward, atol=1e-14)
    second = torch.func.hessian(lambda t: odd(t, t.flip(0)).pow(2).sum())(row)
    np.testing.assert_allclose(second, second.T, atol=1e-12)


def test_half_is_computed_in_float32():
    x, y = normal(50, 16), normal(50, 16)
    for dtype in (torch.float16, torch.bfloat16):
        a, b = x.to(dtype), y.to(dtype)
        found = spin_tensor_product(a, b, 3, 3, 3)["odd"]
        assert found.dtype == dtype
        expected = spin_tensor_product(a.float(), b.float(), 3, 3, 3)["odd"].to(dtype)
        assert torch.equal(found, expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_nan_stays_in_its_row(backend):
    x, y = normal(40, 9), normal(40, 9)
    x[7, 3] = torch.nan
    found = spin_tensor_product(x, y, 2, 2, 2, backend=backend)["even"]
    assert found[7].isnan().any()
    assert not found[torch.arange(40) != 7].isnan().any()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x: spin_tensor_product(x, x, 2, 2, 2), "must be 16|must be 9"),
        (lambda x: spin_tensor_product(x.long(), x, 3, 3, 3), "floating point"),
        (lambda x: spin_tensor_product(x.to(torch.complex64), x, 3, 3, 3), "floating point"),
        (lambda x: spin_tensor_product(x, x.float(), 3, 3, 3), "convert one"),
        (lambda x: spin_tensor_product(x, x.numpy(), 3, 3, 3), "torch.Tensor"),
        (lambda x: spin_tensor_product(x, x, 3, 3, 21), "between 0 and 20"),
        (lambda x: spin_tensor_product(x, x, 3, 3, 3, kinds=("odd", "odd")), "kinds"),
        (lambda x: spin_tensor_product(x, x, 3, 3, 3, kinds=()), "kinds"),
        (lambda x: spin_tensor_product(x, x, 3, 3, 3, backend="fast"), "backend"),
        (lambda x: spin_tensor_product(x, x, 3, 3, 3, backend="cuda"), "GPU"),
        (lambda x: kinds_of("most"), "complete"),
        (lambda x: kinds_of([(0, 0), (0, 0)]), "once"),
        (lambda x: kinds_of([(0.5, 0)]), "integers"),
    ],
)
def test_bad_input(call, said):
    with pytest.raises(SpinTPError, match=said):
        call(normal(4, 16))


def test_without_llvmlite(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "llvmlite.binding", None)
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    native._host.cache_clear()
    native.compile_product.cache_clear()
    try:
        assert not native.available()
        with pytest.raises(SpinTPError, match="llvmlite"):
            native.compile_product(decode(encode((0,), (0,), (0,), COMPLETE)), 2, "float64")
    finally:
        native._host.cache_clear()
