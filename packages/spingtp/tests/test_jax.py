"""The twin: torch's numbers, and JAX's transformations."""

import subprocess
import sys

import numpy as np
import pytest
import torch

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)

from sprigs_spingtp import SpinTensorProduct, SpinTPError, reference  # noqa: E402
from sprigs_spingtp import jax as twin  # noqa: E402

RNG = np.random.default_rng(0)
IRREPS = "+".join(f"3x{l}{p}" for l in range(3) for p in "eo")


@pytest.mark.parametrize("backend", ["auto", "dense", "separable", "cg"])
@pytest.mark.parametrize("degrees", [(0, 0, 0), (2, 3, 4), (6, 5, 6)])
def test_arrays(backend, degrees):
    x, y = (RNG.normal(size=(4, (l + 1) ** 2)) for l in degrees[:2])
    found = twin.spin_tensor_product_arrays(x, y, *degrees, backend=backend)
    expected = reference.spin_tensor_product(x, y, *degrees)
    for kind in expected:
        np.testing.assert_allclose(found[kind], expected[kind], atol=1e-12)
    odd = twin.spin_tensor_product_arrays(x, y, *degrees, kinds=("odd",), backend=backend)
    assert list(odd) == ["odd"]


@pytest.mark.parametrize(
    "options",
    [{}, {"rank": 2}, {"irrep_normalization": "norm"}, {"spins": [(0, 0), (1, -1), (2, -2)]}, {"spins": "complete"}],
)
@pytest.mark.parametrize("second", [IRREPS, "1x0e+1x1o+1x2e"])
def test_the_same_numbers_as_torch(options, second):
    product = SpinTensorProduct(IRREPS, second, IRREPS, **options).double()
    x, y = RNG.normal(size=(5, product.irreps_in1.dim)), RNG.normal(size=(5, product.irreps_in2.dim))
    weight = product.weight.detach().numpy()
    assert twin.weight_numel(IRREPS, second, IRREPS, **options) == len(weight)
    found = twin.spin_tensor_product_irreps(x, y, IRREPS, second, IRREPS, weight, **options)
    np.testing.assert_allclose(found, product(torch.tensor(x), torch.tensor(y)).detach(), atol=1e-12)

    def ours(x, y, w):
        return (twin.spin_tensor_product_irreps(x, y, IRREPS, second, IRREPS, w, **options) ** 2).sum()

    gradients = jax.grad(ours, argnums=(0, 1, 2))(x, y, weight)
    a, b, w = (torch.tensor(t, requires_grad=True) for t in (x, y, weight))
    theirs = torch.autograd.grad((torch.func.functional_call(product, {"weight": w}, (a, b)) ** 2).sum(), (a, b, w))
    for one, two in zip(gradients, theirs, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-11)


def test_transformations():
    x, y = RNG.normal(size=(2, 5, 27 * 2)), RNG.normal(size=(2, 5, 27 * 2))

    def product(x, y):
        return twin.spin_tensor_product_irreps(x, y, IRREPS, IRREPS, IRREPS)

    expected = product(x, y)
    np.testing.assert_allclose(jax.jit(product)(x, y), expected, atol=1e-13)
    np.testing.assert_allclose(jax.vmap(product)(x, y), expected, atol=1e-13)
    np.testing.assert_allclose(jax.vmap(product, in_axes=(0, None))(x, y[0])[0], expected[0], atol=1e-13)
    from jax.test_util import check_grads

    check_grads(product, (x[0, :2], y[0, :2]), order=2)


def test_irreps_arrays():
    e3nn_jax = pytest.importorskip("e3nn_jax")
    irreps = e3nn_jax.Irreps("4x0e+4x1o+4x2e")
    a, b = (e3nn_jax.IrrepsArray(irreps, RNG.normal(size=(6, irreps.dim))) for _ in range(2))
    found = twin.spin_tensor_product(a, b)
    assert str(found.irreps) == "4x0e+4x1o+4x1e+4x2e+4x2o+4x3o+4x3e+4x4e"
    for seed in range(5):
        rotation = -e3nn_jax.rand_matrix(jax.random.PRNGKey(seed), dtype=np.float64)
        turned = twin.spin_tensor_product(a.transform_by_matrix(rotation), b.transform_by_matrix(rotation))
        np.testing.assert_allclose(turned.array, found.transform_by_matrix(rotation).array, atol=1e-10)
    only = twin.spin_tensor_product(a, b, filter_ir_out=["1e", "0e"])
    assert str(only.irreps) == "4x0e+4x1e"
    # One channel, one path: e3nn_jax's own product of two vectors, normalised alike.
    u, v = (e3nn_jax.IrrepsArray("1o", RNG.normal(size=(6, 3))) for _ in range(2))
    ours = twin.spin_tensor_product(u, v, filter_ir_out=["1e"]).array
    np.testing.assert_allclose(ours, np.cross(u.array, v.array) / np.sqrt(2), atol=1e-13)
    jitted = jax.jit(lambda a, b: twin.spin_tensor_product(a, b).array)
    np.testing.assert_allclose(jitted(a, b), found.array, atol=1e-13)


def test_float32_stays_float32():
    x = RNG.normal(size=(3, 9)).astype(np.float32)
    assert twin.spin_tensor_product_arrays(x, x, 2, 2, 2)["even"].dtype == np.float32


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda x: twin.spin_tensor_product_arrays(x, x, 1, 2, 2), "last dimension of x"),
        (lambda x: twin.spin_tensor_product_arrays(x.astype(int), x, 2, 2, 2), "floating point"),
        (lambda x: twin.spin_tensor_product_arrays(x, x.astype(np.float32), 2, 2, 2), "convert one"),
        (lambda x: twin.spin_tensor_product_arrays(x, x, 2, 2, 2, kinds=("no",)), "kinds"),
        (lambda x: twin.spin_tensor_product_arrays(x, x, 2, 2, 2, backend="native"), "backend"),
        (lambda x: twin.spin_tensor_product_arrays(x, x, 2, 2, 21), "between 0 and 20"),
        (lambda x: twin.spin_tensor_product_irreps(x, x, "1x0e+1x1o+1x2e", "1x0e+1x1o+1x2e", "1x5e"), "no path"),
        (lambda x: twin.reachable("1x0e", "1x0e", ["1o"]), "reach none"),
    ],
)
def test_bad_input(call, said):
    with pytest.raises(SpinTPError, match=said):
        call(RNG.normal(size=(3, 9)))


def test_without_e3nn_jax():
    """The functions on arrays do not import it."""
    code = (
        "import sys; sys.modules['e3nn_jax'] = None\n"
        "import numpy as np\n"
        "from sprigs_spingtp import jax as twin\n"
        "x = np.ones((2, 9), np.float32)\n"
        "print(twin.spin_tensor_product_irreps(x, x, '1x0e+1x1o+1x2e', '1x0e+1x1o+1x2e', '1x1e').shape)\n"
        "try: twin.spin_tensor_product(None, None)\n"
        "except ImportError: print('no')\n"
        "except ValueError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "(2, 3)"
    assert "pip install 'sprigs-spingtp[jax]'" in done.stdout
