"""The modules: against e3nn and explicit sums, normalisation, rank, parity, compilation, bad input."""

import numpy as np
import pytest
import torch
from e3nn import o3

from sprigs_spingtp import (
    GauntTensorProduct,
    IncompleteProductWarning,
    Irreps,
    SpinFullTensorProduct,
    SpinTensorProduct,
    SpinTPError,
    from_e3nn,
)
from sprigs_spingtp.reference import real_three_j

C = 3
FULL = "+".join(f"{C}x{l}{p}" for l in range(4) for p in "eo")
NATURAL = f"{C}x0e+{C}x1o+{C}x2e+{C}x3o"
MIXED = f"{C}x3o+{C}x0e+{C}x1e+{C}x2o"  # not sorted, gaps, both naturalnesses
OPTIONS = {
    "rank 1": {},
    "rank 3": {"rank": 3},
    "norm": {"irrep_normalization": "norm"},
    "spins": {"spins": [(0, 0), (1, -1), (2, -2), (1, 0)]},
    "paths": {"mode": "paths"},
    "paths, norm": {"mode": "paths", "irrep_normalization": "norm"},
    "symmetric": {"symmetry": "symmetric"},
    "gaunt": {"spins": "gaunt"},
}


def explicit(product, x, y, weight=None):
    """The sum over paths, one by one, with the coefficients that the module names."""
    slices1, slices2 = (
        {block.ir: (where, block.mul) for block, where in zip(irreps, irreps.slices(), strict=True)}
        for irreps in (product.irreps_in1, product.irreps_in2)
    )
    out = torch.zeros(len(x), product.irreps_out.dim, dtype=x.dtype)
    targets = {block.ir: where for block, where in zip(product.irreps_out, product.irreps_out.slices(), strict=True)}
    for path, w in product.path_weights(weight).items():
        (a, mul1), (b, mul2) = slices1[path.ir1], slices2[path.ir2]
        left, right = x[:, a].reshape(len(x), mul1, -1), y[:, b].reshape(len(y), mul2, -1)
        tensor = torch.tensor(real_three_j(path.ir1.l, path.ir2.l, path.ir_out.l))
        term = torch.einsum("rca,rcb,abd,c->rcd", left, right.expand(-1, mul1, -1), tensor, w.double().expand(mul1))
        out[:, targets[path.ir_out]] += term.reshape(len(x), -1)
    return out


@pytest.mark.parametrize("inputs", [(FULL, FULL), (NATURAL, NATURAL), (MIXED, FULL), (FULL, "1x0e+1x1o+1x2e")])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.filterwarnings("ignore::sprigs_spingtp.errors.IncompleteProductWarning")
def test_equals_the_sum_over_its_paths(inputs, options, double):
    if options.get("symmetry") and inputs[0] != inputs[1]:
        pytest.skip("a symmetric product has equal inputs")
    out = FULL if inputs != (NATURAL, NATURAL) else NATURAL
    product = SpinTensorProduct(*inputs, out, **options)
    x, y = product.irreps_in1.randn(5, -1), product.irreps_in2.randn(5, -1)
    np.testing.assert_allclose(product(x, y).detach(), explicit(product, x, y).detach(), atol=1e-12)


@pytest.mark.parametrize("options", [*OPTIONS.values(), {"so3": True}], ids=[*OPTIONS, "so3"])
@pytest.mark.filterwarnings("ignore::sprigs_spingtp.errors.IncompleteProductWarning")
def test_equivariance(options, double):
    so3 = options.get("so3", False)
    irreps = o3.Irreps(NATURAL if so3 else FULL)
    product = SpinTensorProduct(irreps, irreps, irreps, **options)
    out = o3.Irreps(str(product.irreps_out))
    x, y = irreps.randn(7, -1), irreps.randn(7, -1)
    before = product(x, y)
    for seed in range(20):
        torch.manual_seed(seed)
        rotation = o3.rand_matrix() * (1 if so3 else (-1) ** seed)
        turn, turn_out = irreps.D_from_matrix(rotation), out.D_from_matrix(rotation)
        assert (product(x @ turn.T, y @ turn.T) - before @ turn_out.T).abs().max() < 1e-12 * before.abs().max().clamp(1)


def test_a_wide_layer_up_to_degree_8(double):
    irreps = o3.Irreps("+".join(f"2x{l}{p}" for l in range(9) for p in "eo"))
    product = SpinTensorProduct(irreps, irreps, irreps)
    x, y = irreps.randn(3, -1), irreps.randn(3, -1)
    torch.manual_seed(1)
    turn = irreps.D_from_matrix(-o3.rand_matrix())
    assert (product(x @ turn.T, y @ turn.T) - product(x, y) @ turn.T).abs().max() < 1e-12


def channelwise(irreps1, irreps2, irreps_out, mode, **options):
    one, two, out = map(o3.Irreps, (irreps1, irreps2, irreps_out))
    instructions = [
        (i, j, k, mode, True)
        for i, a in enumerate(one)
        for j, b in enumerate(two)
        for k, c in enumerate(out)
        if c.ir in a.ir * b.ir
    ]
    return o3.TensorProduct(one, two, out, instructions, **options)


@pytest.mark.parametrize("irreps2", [FULL, MIXED])
@pytest.mark.parametrize("backend", ["auto", "dense", "cg", "separable"])
def test_paths_mode_equals_e3nns_uuu(irreps2, backend, double):
    theirs = channelwise(FULL, irreps2, FULL, "uuu")
    ours = from_e3nn(theirs, backend=backend)
    assert ours.weight_numel == theirs.weight_numel
    x, y = theirs.irreps_in1.randn(4, -1), theirs.irreps_in2.randn(4, -1)
    np.testing.assert_allclose(ours(x, y).detach(), theirs(x, y).detach(), atol=1e-12)
    plain = SpinTensorProduct(FULL, irreps2, FULL, mode="paths")
    plain.load_state_dict({"weight": theirs.weight.detach()})
    np.testing.assert_allclose(plain(x, y).detach(), theirs(x, y).detach(), atol=1e-12)


@pytest.mark.parametrize("shared", [True, False])
def test_conversion_of_nequips_product(shared, double):
    """'uvu' with one edge channel, every path into a block of its own, weights from outside."""
    one, edge = o3.Irreps(FULL), o3.Irreps("1x0e+1x1o+1x2e")
    blocks, instructions = [], []
    for i, a in enumerate(one):
        for j, b in enumerate(edge):
            for ir in a.ir * b.ir:
                if ir.l <= 2:
                    instructions.append((i, j, len(blocks), "uvu", True))
                    blocks.append((a.mul, ir))
    theirs = o3.TensorProduct(one, edge, o3.Irreps(blocks), instructions, shared_weights=shared, internal_weights=False)
    ours = from_e3nn(theirs)
    x, y = one.randn(6, -1), edge.randn(6, -1)
    weight = torch.randn(*(() if shared else (6,)), theirs.weight_numel)
    np.testing.assert_allclose(ours(x, y, weight), theirs(x, y, weight), atol=1e-12)


@pytest.mark.parametrize("normalization", ["component", "norm"])
def test_full_product_equals_e3nns(normalization, double):
    one, two = o3.Irreps("2x0e+3x1o+2x1e+1x2o"), o3.Irreps("1x0o+2x1o+1x2e")
    theirs = o3.FullTensorProduct(one, two, irrep_normalization=normalization)
    x, y = one.randn(4, -1), two.randn(4, -1)
    for ours in (SpinFullTensorProduct(one, two, irrep_normalization=normalization), from_e3nn(theirs)):
        assert str(ours.irreps_out) == str(theirs.irreps_out)
        np.testing.assert_allclose(ours(x, y), theirs(x, y), atol=1e-12)
    some = o3.FullTensorProduct(one, two, filter_ir_out=["1e", "2o"])
    ours = SpinFullTensorProduct(one, two, filter_ir_out=["1e", "2o"])
    np.testing.assert_allclose(ours(x, y), some(x, y), atol=1e-12)


def test_rank_four_has_any_path_weights(double):
    """With R = (L + 1)^2 ranks, one for each pair of input degrees, every path's weight is free; L = 1."""
    irreps = "1x0e+1x1o"
    out = "1x0e+1x1o+1x1e"
    product = SpinTensorProduct(irreps, irreps, out, rank=4, internal_weights=False)
    plan = product._engine.plan
    rng = np.random.default_rng(0)
    wanted = {path: float(rng.normal()) for path in product.paths}
    weight = torch.zeros(product.weight_numel)
    (combination,) = plan.combinations
    w1, w2 = torch.zeros(1, 4, 2), torch.zeros(1, 4, 2)
    for r in range(4):
        w1[0, r, r // 2] = w2[0, r, r % 2] = 1
    weight[combination.weights1], weight[combination.weights2] = w1.flatten(), w2.flatten()
    unit = dict(plan.paths)
    for output in combination.outputs:
        w3 = torch.zeros(1, 4, len(output.degrees))
        for path, value in wanted.items():
            if path.kind == combination.kinds[output.kind] and path.ir_out.l in output.degrees:
                w3[0, 2 * path.ir1.l + path.ir2.l, output.degrees.index(path.ir_out.l)] = value / unit[path]
        weight[output.weights] = w3.flatten()
    found = product.path_weights(weight)
    assert {path: float(w) for path, w in found.items()} == pytest.approx(wanted)
    x, y = torch.randn(5, 4), torch.randn(5, 4)
    np.testing.assert_allclose(product(x, y, weight), explicit(product, x, y, weight), atol=1e-13)


@pytest.mark.parametrize("inputs", [(NATURAL, NATURAL), (FULL, FULL), (FULL, "1x0e+1x1o+1x2e")])
@pytest.mark.parametrize("normalization", ["component", "norm"])
@pytest.mark.parametrize("spins", ["complete", "gaunt"])
def test_unit_variance(inputs, normalization, spins):
    """10^5 normal rows, all weights one: every block of the output has variance 1 within 3 %."""
    product = SpinTensorProduct(*inputs, FULL if inputs[0] == FULL else NATURAL, irrep_normalization=normalization,
                                spins=spins, internal_weights=False)  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    x, y = (irreps.randn(100_000 // C, -1, generator=generator) for irreps in (product.irreps_in1, product.irreps_in2))
    if normalization == "norm":
        for features, irreps in ((x, product.irreps_in1), (y, product.irreps_in2)):
            for block, where in zip(irreps, irreps.slices(), strict=True):
                features[:, where] /= block.ir.dim**0.5
    out = product(x, y, torch.ones(product.weight_numel))
    for block, where in zip(product.irreps_out, product.irreps_out.slices(), strict=True):
        scale = block.ir.dim if normalization == "norm" else 1
        # A scalar block of 10^5 heavy-tailed products is itself uncertain by a percent.
        assert out[:, where].var() * scale == pytest.approx(1, abs=0.03)


def test_natural_inputs_cost_one_product_and_both_cost_four():
    assert len(SpinTensorProduct(NATURAL, NATURAL, NATURAL)._engine.plan.combinations) == 1
    assert len(SpinTensorProduct(FULL, NATURAL, FULL)._engine.plan.combinations) == 2
    assert len(SpinTensorProduct(FULL, FULL, FULL)._engine.plan.combinations) == 4
    assert len(SpinTensorProduct(NATURAL, NATURAL, NATURAL, so3=True)._engine.plan.combinations) == 1


def test_parities():
    product = SpinTensorProduct("1x1o", "1x1o", "1x0e+1x1e+1x2e")
    assert [str(p) for p in product.paths] == [
        "1o x 1o -> 0e (even, spins 0 0)",
        "1o x 1o -> 2e (even, spins 0 0)",
        "1o x 1o -> 1e (odd, spins 1 -1)",
    ]
    u, v = torch.randn(4, 3), torch.randn(4, 3)
    weight = torch.ones(product.weight_numel)
    cross = product(u, v, weight)[:, 1:4]
    ratio = cross / torch.linalg.cross(u, v)
    assert ratio.std() < 1e-5
    assert ratio.mean() > 0, "right-handed"


def test_symmetric_and_antisymmetric(double):
    x, y = Irreps(FULL).randn(4, -1), Irreps(FULL).randn(4, -1)
    symmetric = SpinTensorProduct(FULL, FULL, FULL, symmetry="symmetric", rank=2)
    np.testing.assert_allclose(symmetric(x, y).detach(), symmetric(y, x).detach(), atol=1e-12)
    natural = SpinTensorProduct(NATURAL, NATURAL, f"{C}x1e+{C}x2o+{C}x3e", symmetry="antisymmetric", rank=2)
    x, y = Irreps(NATURAL).randn(4, -1), Irreps(NATURAL).randn(4, -1)
    np.testing.assert_allclose(natural(x, y).detach(), -natural(y, x).detach(), atol=1e-12)
    assert natural(x, x).abs().max() < 1e-12


def test_layouts():
    def turned(irreps, x, back=False):
        pieces = []
        for block, where in zip(irreps, irreps.slices(), strict=True):
            a, b = (block.mul, block.ir.dim) if not back else (block.ir.dim, block.mul)
            pieces.append(x[:, where].reshape(-1, a, b).mT.reshape(len(x), -1))
        return torch.cat(pieces, dim=1)

    for options in ({}, {"mode": "paths"}):
        one = SpinTensorProduct(FULL, MIXED, FULL, **options)
        two = SpinTensorProduct(FULL, MIXED, FULL, layout="ir_mul", **options)
        two.load_state_dict(one.state_dict())
        x, y = one.irreps_in1.randn(4, -1), one.irreps_in2.randn(4, -1)
        found = two(turned(two.irreps_in1, x), turned(two.irreps_in2, y))
        np.testing.assert_allclose(turned(two.irreps_out, found, back=True).detach(), one(x, y).detach(), atol=1e-5)


NATIVE = {
    "natural": ("16x0e+16x1o+16x2e+16x3o", "16x0e+16x1o+16x2e+16x3o", "16x0e+16x1o+16x1e+16x2e+16x2o+16x3o+16x3e"),
    "both parities": ("+".join(f"16x{l}{p}" for l in range(3) for p in "eo"),) * 3,
    "unsorted, high": ("16x5e+16x0o+16x1e", "16x4o+16x1o+16x1e", "16x1e+16x9o+16x5o+16x2o+16x0e"),
    "an edge": ("32x0e+32x1o+32x1e", "1x0e+1x1o+1x2e", "32x2e+32x1o+32x1e"),
}


@pytest.mark.parametrize("irreps", NATIVE.values(), ids=NATIVE)
@pytest.mark.parametrize("normalization", ["component", "norm"])
@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_compiled_layer_equals_the_composed_one(irreps, normalization, shared, dtype):
    """Values, and gradients of both inputs and the weights; strided input; rows that fill no block of rows."""
    options = {"internal_weights": False, "shared_weights": shared, "irrep_normalization": normalization}
    product = SpinTensorProduct(*irreps, **options)
    bound = 1e-12 if dtype == torch.float64 else 3e-5
    for rows in (0, 1, 7):
        x = product.irreps_in1.randn(-1, rows, dtype=dtype).T.requires_grad_()
        y = product.irreps_in2.randn(rows, -1, dtype=dtype).requires_grad_()
        w = torch.randn(*(() if shared else (rows,)), product.weight_numel, dtype=dtype).requires_grad_()
        found = product(x, y, w)
        assert product._engine._layers[dtype] is not None, "it is what runs"
        expected = product._engine.composed(x.contiguous(), y, w)
        assert (found - expected).abs().sum() <= bound * max(1, rows)
        upstream = torch.randn_like(found)
        ours, theirs = (torch.autograd.grad(out, (x, y, w), upstream) for out in (found, expected))
        for one, two in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one, two, atol=bound * max(1.0, float(two.abs().max()) if two.numel() else 1.0))


def test_the_compiled_layer_has_derivatives_of_any_order(double):
    product = SpinTensorProduct("8x0e+8x1o", "1x0e+1x1o", "8x0e+8x1o+8x1e", internal_weights=False)
    x, y = product.irreps_in1.randn(1, -1).requires_grad_(), product.irreps_in2.randn(1, -1).requires_grad_()
    w = torch.randn(product.weight_numel, requires_grad=True)
    assert torch.autograd.gradcheck(product, (x, y, w), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(product, (x, y, w))
    both = SpinTensorProduct("8x0e+8x1o", "8x0e+8x1o", "8x1e+8x1o", internal_weights=False)
    z = both.irreps_in2.randn(1, -1).requires_grad_()
    w = torch.randn(both.weight_numel, requires_grad=True)
    assert torch.autograd.gradcheck(both, (x, z, w))
    for wanted in ((x,), (z,), (w,), (x, w)):
        (one, *_), (two, *_) = (
            torch.autograd.grad(f(x, z, w).pow(2).sum(), wanted) for f in (both, both._engine.composed)
        )
        np.testing.assert_allclose(one, two, atol=1e-12)


def test_the_compiled_layer_gives_way_to_transforms(double):
    product = SpinTensorProduct("8x0e+8x1o", "8x0e+8x1o", "8x0e+8x1o+8x1e")
    x = product.irreps_in1.randn(3, -1)
    rows = torch.vmap(lambda t: product(t, t))(x)
    np.testing.assert_allclose(rows.detach(), product(x, x).detach(), atol=1e-13)
    jacobian = torch.func.jacrev(lambda t: product(t, t).sum())(x)
    forward = torch.func.jacfwd(lambda t: product(t, t).sum())(x)
    np.testing.assert_allclose(jacobian.detach(), forward.detach(), atol=1e-12)


def test_the_compiled_layer_on_two_threads():
    product = SpinTensorProduct(*NATIVE["natural"])
    x = product.irreps_in1.randn(2001, -1)
    threads = torch.get_num_threads()
    found = []
    try:
        for n in (1, 2):
            torch.set_num_threads(n)
            a = x.clone().requires_grad_()
            out = product(a, x)
            found.append((out.detach(), *torch.autograd.grad(out.pow(2).sum(), (a, product.weight))))
    finally:
        torch.set_num_threads(threads)
    for one, two in zip(*found, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5 * float(one.abs().max()))
    assert torch.equal(found[0][0], found[1][0])


def test_weights_for_each_row(double):
    product = SpinTensorProduct(FULL, "1x0e+1x1o", FULL, rank=2, internal_weights=False, shared_weights=False)
    shared = SpinTensorProduct(FULL, "1x0e+1x1o", FULL, rank=2, internal_weights=False)
    x, y = product.irreps_in1.randn(4, -1), product.irreps_in2.randn(4, -1)
    weight = torch.randn(4, product.weight_numel)
    rows = torch.stack([shared(x[k], y[k], weight[k]) for k in range(4)])
    np.testing.assert_allclose(product(x, y, weight), rows, atol=1e-13)
    np.testing.assert_allclose(product(x, y, weight[0]), shared(x, y, weight[0]), atol=1e-13)


def test_derivatives_of_inputs_and_weights(double):
    product = SpinTensorProduct("2x0e+2x1o+2x1e", "2x0e+2x1o", "2x0e+2x1o+2x1e+2x0o", internal_weights=False)
    x, y = product.irreps_in1.randn(2, -1).requires_grad_(), product.irreps_in2.randn(2, -1).requires_grad_()
    weight = torch.randn(product.weight_numel, requires_grad=True)
    assert torch.autograd.gradcheck(product, (x, y, weight))
    assert torch.autograd.gradgradcheck(product, (x, y, weight))


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"rank": 2}, {"mode": "paths"}, {"irrep_normalization": "norm"}])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # torch's compiler, of itself
def test_compiles_as_one_graph(options):
    product = SpinTensorProduct("4x0e+4x1o+4x1e", "4x0e+4x1o", "4x0e+4x1o+4x1e", **options)
    compiled = torch.compile(product, fullgraph=True)
    x, y = product.irreps_in1.randn(6, -1).requires_grad_(), product.irreps_in2.randn(6, -1)
    expected = product(x, y)
    (wanted,) = torch.autograd.grad(expected.pow(2).sum(), x)
    found = compiled(x, y)
    (gradient,) = torch.autograd.grad(found.pow(2).sum(), x)
    np.testing.assert_allclose(found.detach(), expected.detach(), atol=1e-5)
    np.testing.assert_allclose(gradient, wanted, atol=1e-4)
    np.testing.assert_allclose(compiled(x[:0], y[:0]).detach().shape, (0, product.irreps_out.dim))


def test_only_weights_are_saved_and_moving_keeps_accuracy():
    product = SpinTensorProduct(FULL, FULL, FULL, irrep_normalization="norm")
    assert set(product.state_dict()) == {"weight"}
    x, y = product.irreps_in1.randn(4, -1).double(), product.irreps_in2.randn(4, -1).double()
    turned = product.half().float().double()  # constants are not rounded on the way
    expected = explicit(turned, x, y)
    np.testing.assert_allclose(turned(x, y).detach(), expected.detach(), atol=1e-12)
    assert all(tensor.device.type == "meta" for tensor in (*product.to("meta").buffers(), product.weight))


def test_the_gaunt_product_says_what_it_loses():
    with pytest.warns(IncompleteProductWarning, match="1e"):
        product = GauntTensorProduct("4x0e+4x1o", "4x0e+4x1o", "4x0e+4x1o+4x1e")
    assert str(product.irreps_out) == "4x0e+4x1o"
    with pytest.warns(IncompleteProductWarning), pytest.raises(SpinTPError, match="symmetric products alone"):
        GauntTensorProduct("4x1o", "4x1o", "4x1e")


def test_empty_batches_and_leading_dimensions():
    for options in ({}, {"mode": "paths"}):
        product = SpinTensorProduct(NATURAL, NATURAL, NATURAL, **options)
        n = product.irreps_in1.dim
        assert product(torch.randn(0, n), torch.randn(0, n)).shape == (0, n)
        x = torch.randn(2, 1, 3, n)
        assert product(x, x[0]).shape == (2, 1, 3, n)
        assert product(x[0, 0, 0], x[0, 0, 0]).shape == (n,)


def test_irreps_read_what_e3nn_writes_and_are_read_by_it():
    for text in ("16x0e+8x1o", "1x3o", "0e + 2x1e"):
        ours, theirs = Irreps(text), o3.Irreps(text)
        assert ours == Irreps(theirs)
        assert o3.Irreps(str(ours)) == theirs
        assert o3.Irreps(list(ours)) == theirs
        assert ours.dim == theirs.dim
    assert Irreps([(2, (1, -1)), (1, "0e")]) == Irreps("2x1o+0e")
    assert repr(Irreps("2x1o")) == "Irreps('2x1o')"


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: SpinTensorProduct("4x1o", "4x1o", "4x1o"), "no path leads"),
        (lambda: SpinTensorProduct("4x1o", "4x1o", "4x3e"), "no path leads"),
        (lambda: SpinTensorProduct("4x1o", "4x1o", "4x3e", mode="paths"), "no path leads"),
        (lambda: SpinTensorProduct("4x1o+2x0e", "4x1o", "4x0e"), "IrrepsLinear"),
        (lambda: SpinTensorProduct("4x1o", "2x1o", "4x0e"), "IrrepsLinear"),
        (lambda: SpinTensorProduct("4x1o", "2x1o", "4x0e", mode="paths"), "IrrepsLinear"),
        (lambda: SpinTensorProduct("4x1o+4x1o", "4x1o", "4x0e"), "more than once"),
        (lambda: SpinTensorProduct("4x1o+4x1e", "4x1o", "4x0e", so3=True), "more than once"),
        (lambda: SpinTensorProduct("4x1o", "4x1o", "4x0e", rank=-1), "positive integer"),
        (lambda: SpinTensorProduct("4x1o", "4x1o", "4x0e", rank=1.5), "positive integer"),
        (lambda: SpinTensorProduct("4x1o", "4x1o", "4x0e", mode="full"), "mode"),
        (lambda: SpinTensorProduct("4x1o", "4x1o", "4x0e", layout="mul"), "layout"),
        (lambda: SpinTensorProduct("4x1o", "4x1o", "4x0e", backend="mul"), "backend"),
        (lambda: SpinTensorProduct("4x1o", "4x1o", "4x0e", irrep_normalization="mul"), "irrep_normalization"),
        (lambda: SpinTensorProduct("4x1o", "4x1o", "4x0e", symmetry="mul"), "symmetry"),
        (lambda: SpinTensorProduct("4x1o", "4x0e", "4x1o", symmetry="symmetric"), "equal inputs"),
        (lambda: SpinTensorProduct("4x1o", "4x1o", "4x0e", mode="paths", rank=2), "do not apply"),
        (lambda: SpinTensorProduct("4x1o", "4x1o", "4x0e", shared_weights=False), "internal_weights=False"),
        (lambda: SpinTensorProduct("4y1o", "4x1o", "4x0e"), "cannot read"),
        (lambda: SpinTensorProduct("4x21o", "4x1o", "4x0e"), "0 to 20"),
        (lambda: SpinTensorProduct("0x1o", "4x1o", "4x0e"), "at least 1"),
        (lambda: SpinTensorProduct("", "4x1o", "4x0e"), "no irreps"),
        (lambda: from_e3nn(o3.FullyConnectedTensorProduct("2x1o", "2x1o", "2x0e")), "channel-wise"),
    ],
)
def test_bad_construction(call, said):
    with pytest.raises(SpinTPError, match=said):
        call()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda p: p(torch.randn(3, 11), torch.randn(3, 12)), "last dimension of x"),
        (lambda p: p(torch.randn(3, 12), torch.randn(3, 11)), "last dimension of y"),
        (lambda p: p(torch.zeros(3, 12, dtype=torch.long), torch.randn(3, 12)), "floating point"),
        (lambda p: p(torch.randn(3, 12), torch.randn(3, 12).double()), "convert one"),
        (lambda p: p(torch.randn(3, 12), torch.randn(3, 12), torch.randn(4)), "weight must have shape"),
    ],
)
def test_bad_calls(call, said):
    with pytest.raises(SpinTPError, match=said):
        call(SpinTensorProduct("4x1o", "4x1o", "4x0e"))


def test_missing_weights():
    product = SpinTensorProduct("4x1o", "4x1o", "4x0e", internal_weights=False)
    with pytest.raises(SpinTPError, match="no weights of its own"):
        product(torch.randn(3, 12), torch.randn(3, 12))
    rows = SpinTensorProduct("4x1o", "4x1o", "4x0e", internal_weights=False, shared_weights=False)
    with pytest.raises(SpinTPError, match="last dimension of weight"):
        rows(torch.randn(3, 12), torch.randn(3, 12), torch.randn(3, 2))
    with pytest.raises(SpinTPError, match="broadcast"):
        rows(torch.randn(3, 12), torch.randn(3, 12), torch.randn(2, rows.weight_numel))
