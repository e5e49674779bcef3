"""The same products in JAX: pure functions for `jit`, `vmap`, `grad` and sharding, from the same tables.

`spin_tensor_product` takes and returns `e3nn_jax.IrrepsArray`; the functions on plain arrays do not import e3nn_jax.
Numbers equal torch's to rounding; enable `jax_enable_x64` for float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .errors import BackendUnavailable, SpinTPError
from .irreps import Irrep, Irreps
from .plan import FusedPlan, fused_plan, gather_index, scatter_index
from .programs import NAMED, G, Program, X, Y, decode, encode, kinds_of
from .tables import Array, check_degree

if TYPE_CHECKING:
    import jax.numpy as jnp
else:
    try:
        import jax.numpy as jnp
    except ModuleNotFoundError as error:
        raise BackendUnavailable("sprigs_spingtp.jax needs JAX: pip install 'sprigs-spingtp[jax]'") from error

BACKENDS = ("auto", "dense", "separable", "cg")


def spin_tensor_product_arrays(
    x: Any,
    y: Any,
    l1max: int,
    l2max: int,
    l3max: int,
    *,
    kinds: Sequence[str] = ("even", "odd"),
    backend: str = "auto",
) -> dict[str, Any]:
    """Multiply two functions on the sphere: the twin of torch's `spin_tensor_product`.

    Args:
        x, y: coefficients [..., (l + 1)^2], float32 or float64, real orthonormal harmonics in e3nn's order.
        l1max, l2max, l3max: band limits, at most 20.
        kinds: "even", "odd" or both.
        backend: "dense", "separable", "cg" or "auto".

    Returns:
        Kind -> [..., (l3max + 1)^2], not normalised.

    Raises:
        SpinTPError: Shapes, dtypes or names that do not fit.
    """
    for name, l in (("l1max", l1max), ("l2max", l2max), ("l3max", l3max)):
        check_degree(l, name)
    if any(kind not in NAMED for kind in kinds) or not kinds:
        raise SpinTPError(f"kinds must be 'even', 'odd', or both; got {list(kinds)!r}")
    x, y = _check(x, y, (l1max + 1) ** 2, (l2max + 1) ** 2)
    degrees = (tuple(range(l + 1)) for l in (l1max, l2max, l3max))
    code = encode(*degrees, tuple(NAMED[kind] for kind in kinds))
    return dict(zip(kinds, multiply(x, y, code, backend), strict=True))


def multiply(x: Any, y: Any, code: str, backend: str = "auto") -> list[Any]:
    """Return each kind of the product [..., n3] of x [..., n1] and y [..., n2] by an encoded program."""
    if backend not in BACKENDS:
        raise SpinTPError(f"backend must be one of {', '.join(BACKENDS)}; got {backend!r}")
    form = decode(code)
    if backend == "auto":
        cost = form.cost()
        backend = "cg" if cost["cg"] < 1.3 * cost["dense"] else "dense"
        if backend == "dense" and form.is_separable and max(form.bands) > 5:
            backend = "separable"
    if backend == "separable" and not form.is_separable:
        raise SpinTPError("the separable back end knows spins up to 1; use backend='dense' for others")
    return _RUN[backend](form, x, y)


# Tables are NumPy constants: XLA folds them into the program, and the caches hold nothing of a trace.


def _dense(form: Program, x: Any, y: Any) -> list[Any]:
    left, right = (
        [x_ @ jnp.asarray(t, x_.dtype) for t in tables] for x_, tables in ((x, form.tables[X]), (y, form.tables[Y]))
    )
    out: list[Any] = [0.0] * form.outputs
    for k, (values, table) in enumerate(zip(_fields(form, left, right), form.tables[G], strict=True)):
        kind = form.fields[G][k][2]
        out[kind] = out[kind] + values @ jnp.asarray((table * form.weights).T, x.dtype)
    return out


def _separable(form: Program, x: Any, y: Any) -> list[Any]:
    grids = []
    for slot, features in ((X, x), (Y, y)):
        rings, meridians = form.separable[slot]
        padded = jnp.concatenate([features, jnp.zeros((*features.shape[:-1], 1), features.dtype)], axis=-1)
        spectra = padded[..., form.orders(slot)]
        fields = []
        for ring, meridian in zip(rings, meridians, strict=True):
            partial = jnp.einsum("...ml,mbl->...bm", spectra, jnp.asarray(ring, x.dtype))
            fields.append(partial @ jnp.asarray(meridian, x.dtype))
        grids.append(fields)
    rings, meridians = form.separable[G]
    index = form.orders(G)
    weights = jnp.asarray(form.grid[2], x.dtype)[:, None]
    out: list[Any] = [0.0] * form.outputs
    for k, values in enumerate(_fields(form, *grids)):
        partial = (values * weights) @ jnp.asarray(meridians[k].T, x.dtype)
        spectra = jnp.einsum("...bm,mbl->...ml", partial, jnp.asarray(rings[k], x.dtype))
        flat = jnp.zeros((*spectra.shape[:-2], form.sizes[G] + 1), x.dtype)
        kind = form.fields[G][k][2]
        out[kind] = out[kind] + flat.at[..., index].set(spectra)[..., :-1]
    return out


def _fields(form: Program, left: list[Any], right: list[Any]) -> list[Any]:
    found: list[Any] = [0.0] * len(form.fields[G])
    for i, j, k, c in form.terms:
        product = left[i] * right[j]
        found[k] = found[k] + (product if c == 1.0 else c * product)
    return found


def _cg(form: Program, x: Any, y: Any) -> list[Any]:
    table = jnp.asarray(form.dense.reshape(-1, form.outputs * form.sizes[G]), x.dtype)
    outer = x[..., :, None] * y[..., None, :]
    found = outer.reshape(*outer.shape[:-2], -1) @ table
    return [found[..., k * form.sizes[G] : (k + 1) * form.sizes[G]] for k in range(form.outputs)]


_RUN = {"dense": _dense, "separable": _separable, "cg": _cg}


@lru_cache(maxsize=256)
def _plan(one: Irreps, two: Irreps, out: Irreps, spins: Any, rank: int, normalization: str, so3: bool) -> FusedPlan:
    return fused_plan(one, two, out, kinds_of(spins), rank, normalization, so3)


def spin_tensor_product_irreps(
    x: Any,
    y: Any,
    irreps_in1: Any,
    irreps_in2: Any,
    irreps_out: Any,
    weights: Any = None,
    *,
    rank: int = 1,
    spins: str | Sequence[tuple[int, int]] = "complete",
    irrep_normalization: str = "component",
    so3: bool = False,
    backend: str = "auto",
) -> Any:
    """Multiply features of irreps channel by channel: the twin of `SpinTensorProduct` in mode "fused".

    Args:
        x, y: [..., irreps_in1.dim] and [..., irreps_in2.dim]; leading dimensions broadcast.
        irreps_in1, irreps_in2, irreps_out: equal multiplicities.
        weights: flat, as the torch module has them, [weight_numel(...)] or [..., weight_numel]; None: all ones.
        rank, spins, irrep_normalization, so3, backend: see `SpinTensorProduct`.

    Returns:
        [..., irreps_out.dim].

    Raises:
        SpinTPError: Irreps or shapes that do not fit.
    """
    spins_key = spins if isinstance(spins, str) else tuple(tuple(pair) for pair in spins)
    plan = _plan(Irreps(irreps_in1), Irreps(irreps_in2), Irreps(irreps_out), spins_key, rank, irrep_normalization, so3)
    x, y = _check(x, y, plan.irreps_in1.dim, plan.irreps_in2.dim)
    weights = jnp.ones(plan.weight_numel, x.dtype) if weights is None else jnp.asarray(weights, x.dtype)
    if weights.ndim == 0 or weights.shape[-1] != plan.weight_numel:
        raise SpinTPError(f"the last dimension of weights must be {plan.weight_numel}; got shape {weights.shape}")
    parts1, parts2 = (
        [features[..., gather_index(irreps, part, "mul_ir")] for part in parts]
        for features, irreps, parts in ((x, plan.irreps_in1, plan.parts1), (y, plan.irreps_in2, plan.parts2))
    )
    sums: list[Any] = [0.0] * len(plan.parts_out)
    for combination in plan.combinations:
        a, b = combination.part1, combination.part2
        left = parts1[a][..., None, :] * _spread(weights, combination.weights1, plan, plan.parts1[a].expand)
        right = parts2[b][..., None, :] * _spread(weights, combination.weights2, plan, plan.parts2[b].expand)
        products = multiply(left, right, combination.code, backend)
        for output in combination.outputs:
            w3 = _spread(weights, output.weights, plan, output.expand)
            sums[output.part] = sums[output.part] + (products[output.kind] * w3).sum(-2)
    out = jnp.concatenate(sums, axis=-1)
    return out.reshape(*out.shape[:-2], -1)[..., scatter_index(plan, "mul_ir")]


def weight_numel(irreps_in1: Any, irreps_in2: Any, irreps_out: Any, *, rank: int = 1, **options: Any) -> int:
    """Return how many weights `spin_tensor_product_irreps` takes."""
    spins = options.get("spins", "complete")
    key = spins if isinstance(spins, str) else tuple(tuple(pair) for pair in spins)
    normalization, so3 = options.get("irrep_normalization", "component"), options.get("so3", False)
    return _plan(Irreps(irreps_in1), Irreps(irreps_in2), Irreps(irreps_out), key, rank, normalization, so3).weight_numel


def reachable(irreps_in1: Any, irreps_in2: Any, filter_ir_out: Sequence[Any] | None = None) -> Irreps:
    """Return every irrep that the product of two reaches, with their channels, by degree, natural parity first."""
    one, two = Irreps(irreps_in1), Irreps(irreps_in2)
    found = {
        Irrep(l, a.ir.p * b.ir.p) for a in one for b in two for l in range(abs(a.ir.l - b.ir.l), a.ir.l + b.ir.l + 1)
    }
    if filter_ir_out is not None:
        found &= {block.ir for ir in filter_ir_out for block in Irreps(str(ir))}
    if not found or not one:
        raise SpinTPError(f"'{one}' and '{two}' reach none of {filter_ir_out}")
    return Irreps([(one[0].mul, ir) for ir in sorted(found, key=lambda ir: (ir.l, -ir.natural))])


def spin_tensor_product(
    a: Any, b: Any, filter_ir_out: Sequence[Any] | None = None, weights: Any = None, **options: Any
) -> Any:
    """Multiply two `e3nn_jax.IrrepsArray` channel by channel.

    Args:
        a, b: of equal multiplicities (1 will do for b).
        filter_ir_out: irreps to return; by default every one that is reached.
        weights: see `spin_tensor_product_irreps`; None: every path of unit variance.
        options: rank, spins, irrep_normalization, so3, backend.

    Returns:
        An `e3nn_jax.IrrepsArray` with the channels of a.

    Raises:
        BackendUnavailable: e3nn_jax is not installed.
        SpinTPError: Irreps that do not fit.
    """
    try:
        import e3nn_jax
    except ModuleNotFoundError as error:
        raise BackendUnavailable("IrrepsArray needs e3nn_jax: pip install 'sprigs-spingtp[jax]'") from error
    out = reachable(str(a.irreps), str(b.irreps), filter_ir_out)
    array = spin_tensor_product_irreps(a.array, b.array, str(a.irreps), str(b.irreps), out, weights, **options)
    return e3nn_jax.IrrepsArray(str(out), array)


def _check(x: Any, y: Any, n1: int, n2: int) -> tuple[Any, Any]:
    x, y = jnp.asarray(x), jnp.asarray(y)
    for name, array, n in (("x", x, n1), ("y", y, n2)):
        if not jnp.issubdtype(array.dtype, jnp.floating):
            raise SpinTPError(f"{name} must be real floating point; got {array.dtype}")
        if array.ndim == 0 or array.shape[-1] != n:
            raise SpinTPError(f"the last dimension of {name} must be {n}; got shape {array.shape}")
    if x.dtype != y.dtype:
        raise SpinTPError(f"x is {x.dtype} and y is {y.dtype}: convert one of them")
    return x, y


def _spread(weights: Any, where: slice, plan: FusedPlan, expand: Array) -> Any:
    """Weights of the degrees on their coefficients, [..., channels, rank, n]."""
    w = weights[..., where].reshape(*weights.shape[:-1], plan.channels, plan.rank, len(expand))
    return w @ jnp.asarray(expand, w.dtype)


__all__ = [
    "multiply",
    "reachable",
    "spin_tensor_product",
    "spin_tensor_product_arrays",
    "spin_tensor_product_irreps",
    "weight_numel",
]
