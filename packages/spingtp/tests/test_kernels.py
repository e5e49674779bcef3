"""The CUDA kernels, emulated: the contractions of one tensor, whatever the order in which threads and blocks run."""

import numpy as np
import pytest

from sprigs_spingtp import SpinTPError, kernels
from sprigs_spingtp.programs import COMPLETE, GAUNT, ODD, G, X, Y, program

sprigs_emulator = pytest.importorskip("sprigs_emulator")

from emulated import solve  # noqa: E402

try:
    sprigs_emulator.find_compiler()
except sprigs_emulator.CompilerNotFound as missing:
    pytest.skip(str(missing), allow_module_level=True)

FORMS = {
    "scalars": program((0,), (0,), (0,)),
    "vectors": program((0, 1), (0, 1), (0, 1)),
    "lmax 2": program((0, 1, 2), (0, 1, 2), (0, 1, 2)),
    "lmax 4": program(tuple(range(5)), tuple(range(5)), tuple(range(5))),
    "gaps": program((0, 2), (1, 2, 3), (0, 2, 4)),
    "gaunt": program((0, 1, 2), (0, 1), (0, 1, 2, 3), GAUNT),
    "odd": program((1, 2), (1, 2), (1, 2), (ODD,)),
    "merged": program((1,), (2,), (1, 2, 3), COMPLETE, True),
    "merged gaunt": program((1,), (1,), (0, 2), GAUNT, True),
}
EINSUM = {G: "ra,rb,abkc->krc", X: "rb,krc,abkc->ra", Y: "ra,krc,abkc->rb"}


def inputs(form, rows, dtype, seed=0):
    rng = np.random.default_rng(seed)
    shapes = ((rows, form.sizes[X]), (rows, form.sizes[Y]), (form.outputs, rows, form.sizes[G]))
    return [rng.normal(size=shape).astype(dtype) for shape in shapes]


def check(form, slot, rows, dtype, seed=0, **options):
    arrays = inputs(form, rows, dtype, seed)
    a, b = (arrays[s] for s in (X, Y, G) if s != slot)
    out = np.full_like(arrays[slot], np.nan)  # every element must be written
    found = solve(form, slot, a, b, out, **options)
    expected = np.einsum(EINSUM[slot], a.astype(float), b.astype(float), form.dense)
    np.testing.assert_allclose(found, expected, atol=1e-12 if dtype == "float64" else 2e-5)


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("slot", [G, X, Y])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_product_and_adjoints(name, slot, dtype):
    """With memcheck, racecheck, initcheck and synccheck on; one row, a part of a block, more than one block."""
    for rows in (1, 3, 67) if name in ("lmax 2", "merged") else (2,):
        check(FORMS[name], slot, rows, dtype, checks="all", seed=rows, interleave=2)


@pytest.mark.parametrize("slot", [G, X, Y])
def test_fifty_schedules(slot):
    for seed in range(50):
        check(FORMS["vectors"], slot, 70, "float64", seed=seed, interleave=1 + seed % 3)


def test_a_grid_smaller_than_the_rows():
    """Blocks stride over the rows: launched with a grid of one."""
    form = FORMS["vectors"]
    x, y, g = inputs(form, 150, "float64")
    out = np.full_like(g, np.nan)

    class OneBlock:
        def table(self, array):
            return array

        def launch(self, module, name, grid, block, args, shared):
            assert grid == 3
            module.emulate()[name](1, block, args, shared=shared, checks="all")

    kernels.run(OneBlock(), form, G, x, y, out, 150, "float64")
    np.testing.assert_allclose(out, np.einsum(EINSUM[G], x, y, form.dense), atol=1e-12)


def test_no_rows_launch_nothing():
    form = FORMS["vectors"]
    x, y, g = inputs(form, 0, "float32")
    assert solve(form, G, x, y, g).shape == (2, 0, 4)


def test_what_the_kernels_do_not_know():
    with pytest.raises(SpinTPError, match="up to degree 8"):
        kernels.run(None, program((0, 9), (0,), (0,)), G, None, None, None, 1, "float32")
    with pytest.raises(SpinTPError, match="complete"):
        kernels.run(None, program((2,), (2,), (0,), ((2, -2, "even"),)), G, None, None, None, 1, "float32")
    eight = tuple(range(9))
    assert kernels.shared_bytes(program(eight, eight, eight), "float64") <= 227 * 1024


@pytest.mark.gpu
@pytest.mark.parametrize("name", FORMS)
def test_on_the_device(name):
    import torch

    from sprigs_spingtp import functional

    form = FORMS[name]
    for dtype in ("float64", "float32"):
        for slot in (G, X, Y):
            arrays = [torch.tensor(a, device="cuda") for a in inputs(form, 1000, dtype)]
            a, b = (arrays[s] for s in (X, Y, G) if s != slot)
            found = functional._RUN["cuda"](form, slot, a, b).cpu().double().numpy()
            expected = np.einsum(EINSUM[slot], a.cpu().double(), b.cpu().double(), form.dense)
            np.testing.assert_allclose(found, expected, atol=1e-12 if dtype == "float64" else 5e-5)


@pytest.mark.gpu
def test_gradients_on_the_device():
    import torch

    from sprigs_spingtp import spin_tensor_product

    x, y = (torch.randn(3, 9, dtype=torch.float64, device="cuda", requires_grad=True) for _ in range(2))

    def product(x, y):
        return tuple(spin_tensor_product(x, y, 2, 2, 2, backend="cuda").values())

    assert torch.autograd.gradcheck(product, (x, y))
    assert torch.autograd.gradgradcheck(product, (x, y))
