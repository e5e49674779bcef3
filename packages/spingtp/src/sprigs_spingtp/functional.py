"""The product on plain arrays of coefficients, in torch: differentiable any number of times, compilable, with vmap."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from . import kernels, native
from .errors import BackendUnavailable, SpinTPError
from .programs import NAMED, G, Program, X, Y, decode, encode
from .tables import check_degree

BACKENDS = ("auto", "native", "cuda", "dense", "separable", "cg")
_COMPUTED = (torch.float32, torch.float64)
_CAST = (torch.float16, torch.bfloat16)
_PLAIN = (Tensor, torch.nn.Parameter)

# Floats of grid fields that are worked on at a time: what stays in a core's second-level cache.
_CHUNK_FLOATS = 1 << 18


def spin_tensor_product(
    x: Tensor,
    y: Tensor,
    l1max: int,
    l2max: int,
    l3max: int,
    *,
    kinds: Sequence[str] = ("even", "odd"),
    backend: str = "auto",
) -> dict[str, Tensor]:
    """Multiply two functions on the sphere, keeping symmetric and antisymmetric paths.

    With fields X0, Xb, Xa of x (values and unit-normalised derivatives) and the same of y, "even" projects X0 Y0 and
    "odd" projects Xb Ya - Xa Yb onto harmonics: the tensor of each path is `kappa(l1, l2, l3)` times e3nn's Wigner 3j.

    Args:
        x: coefficients [..., (l1max + 1)^2], real orthonormal harmonics in e3nn's order.
        y: coefficients [..., (l2max + 1)^2]; leading dimensions broadcast with those of x.
        l1max, l2max, l3max: band limits, at most 20.
        kinds: which parts to compute.
        backend: "native" (compiled for the program and this CPU, extra "fast"), "cuda" (kernels for NVIDIA GPUs, extras
            "cuda12" and "cuda13"), "dense" (matrix products with the grid), "separable" (rings, then meridians), "cg"
            (one matrix product with the whole tensor), or "auto": the fastest of those that are there.

    Returns:
        Kind -> [..., (l3max + 1)^2], not normalised. float16 and bfloat16 are computed in float32 and cast back.

    Raises:
        SpinTPError: Shapes, dtypes, devices or names that do not fit; nothing is cast silently.
    """
    for name, l in (("l1max", l1max), ("l2max", l2max), ("l3max", l3max)):
        check_degree(l, name)
    unknown = [kind for kind in kinds if kind not in NAMED]
    if unknown or not kinds or len(set(kinds)) != len(kinds):
        raise SpinTPError(f"kinds must be 'even', 'odd', or both; got {list(kinds)!r}")
    check_pair(x, y, (l1max + 1) ** 2, (l2max + 1) ** 2)
    shape = torch.broadcast_shapes(x.shape[:-1], y.shape[:-1])
    code = encode(
        tuple(range(l1max + 1)), tuple(range(l2max + 1)), tuple(range(l3max + 1)), tuple(NAMED[k] for k in kinds)
    )
    rows_x = x.expand(*shape, x.shape[-1]).reshape(-1, x.shape[-1])
    rows_y = y.expand(*shape, y.shape[-1]).reshape(-1, y.shape[-1])
    out = multiply(rows_x, rows_y, code, backend)
    return {kind: out[k].reshape(*shape, out.shape[-1]) for k, kind in enumerate(kinds)}


def check_pair(x: Tensor, y: Tensor, n1: int, n2: int) -> None:
    """Check the inputs of a product.

    Raises:
        SpinTPError: They are no real floating-point tensors of the same dtype and device with these last dimensions.
    """
    for name, tensor, n in (("x", x, n1), ("y", y, n2)):
        if not isinstance(tensor, Tensor):
            raise SpinTPError(f"{name} must be a torch.Tensor; got {type(tensor).__name__}")
        if tensor.dtype not in (*_COMPUTED, *_CAST):
            raise SpinTPError(f"{name} must be real floating point; got {tensor.dtype}")
        if tensor.ndim == 0 or tensor.shape[-1] != n:
            raise SpinTPError(f"the last dimension of {name} must be {n}; got shape {tuple(tensor.shape)}")
    if x.dtype != y.dtype or x.device != y.device:
        raise SpinTPError(f"x is {x.dtype} on {x.device} and y is {y.dtype} on {y.device}: convert one of them")


def multiply(x: Tensor, y: Tensor, code: str, backend: str = "auto") -> Tensor:
    """Return the product [K, rows, n3] of rows [rows, n1] and [rows, n2] by an encoded program."""
    if backend not in BACKENDS:
        raise SpinTPError(f"backend must be one of {', '.join(BACKENDS)}; got {backend!r}")
    if x.dtype in _CAST:
        return _solve(x.float(), y.float(), code, G, backend).to(x.dtype)
    return _solve(x, y, code, G, backend)


def _solve(a: Tensor, b: Tensor, code: str, slot: int, backend: str) -> Tensor:
    # The compiler takes the operator with its registered derivative; torch.func's transforms take the Function.
    if torch.compiler.is_compiling():
        compiled: Tensor = torch.ops.sprigs_spingtp.trilinear(a, b, code, slot, backend)
        return compiled
    found: Tensor = _Trilinear.apply(a, b, code, slot, backend)
    return found


def _evaluate(a: Tensor, b: Tensor, code: str, slot: int, backend: str) -> Tensor:
    form = decode(code)
    name = choose(form, a.device.type) if backend == "auto" else backend
    if name == "separable" and not form.is_separable:
        raise SpinTPError("the separable back end knows spins up to 1; use backend='dense' for others")
    return _RUN[name](form, slot, a.detach().contiguous(), b.detach().contiguous())


@torch.library.custom_op("sprigs_spingtp::trilinear", mutates_args=())
def trilinear(a: Tensor, b: Tensor, code: str, slot: int, backend: str) -> Tensor:
    """Solve the trilinear form for one slot; a and b are the other two, in the order x, y, g."""
    return _evaluate(a, b, code, slot, backend)


@trilinear.register_fake
def _(a: Tensor, b: Tensor, code: str, slot: int, backend: str) -> Tensor:
    form = decode(code)
    rows = a.shape[0]
    shape = (form.outputs, rows, form.sizes[G]) if slot == G else (rows, form.sizes[slot])
    return a.new_empty(shape)


def _derivative(
    ctx: Any, upstream: Tensor, solve: Callable[[Tensor, Tensor, str, int, str], Tensor]
) -> tuple[Tensor | None, Tensor | None, None, None, None]:
    a, b = ctx.saved_tensors
    code, slot, backend = ctx.rest
    first, second = others(slot)
    grads: list[Tensor | None] = [None, None]
    for index, (target, other, kept) in enumerate(((first, second, b), (second, first, a))):
        if ctx.needs_input_grad[index]:
            (_, left), (_, right) = sorted(((slot, upstream), (other, kept)), key=lambda item: item[0])
            grads[index] = solve(left, right, code, target, backend)
    return grads[0], grads[1], None, None, None


def _setup(ctx: Any, inputs: tuple[Tensor, Tensor, str, int, str], output: Tensor) -> None:
    a, b, *ctx.rest = inputs
    ctx.save_for_backward(a, b)
    ctx.save_for_forward(a, b)


def _setup_operator(ctx: Any, inputs: tuple[Tensor, Tensor, str, int, str], output: Tensor) -> None:
    a, b, *ctx.rest = inputs
    ctx.save_for_backward(a, b)


trilinear.register_autograd(
    lambda ctx, upstream: _derivative(ctx, upstream, torch.ops.sprigs_spingtp.trilinear), setup_context=_setup_operator
)


class _Trilinear(torch.autograd.Function):
    """The operator for eager mode, with forward-mode derivatives and vmap."""

    @staticmethod
    def forward(a: Tensor, b: Tensor, code: str, slot: int, backend: str) -> Tensor:
        # The dispatcher costs more than a small product; subclasses (fake tensors, ...) need it.
        if type(a) in _PLAIN and type(b) in _PLAIN:
            return _evaluate(a, b, code, slot, backend)
        found: Tensor = torch.ops.sprigs_spingtp.trilinear(a, b, code, slot, backend)
        return found

    setup_context = staticmethod(_setup)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:
        return _derivative(ctx, upstream, _Trilinear.apply)

    @staticmethod
    def jvp(ctx: Any, da: Tensor | None, db: Tensor | None, *_: None) -> Any:
        a, b = ctx.saved_tensors
        parts = [_Trilinear.apply(p, q, *ctx.rest) for p, q in ((da, b), (a, db)) if p is not None and q is not None]
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], a: Tensor, b: Tensor, code: str, slot: int, backend: str
    ) -> tuple[Tensor, int]:
        size = info.batch_size
        flat, rows = [], 0
        for tensor, where, at in zip((a, b), in_dims, others(slot), strict=False):
            batched = tensor.expand(size, *tensor.shape) if where is None else tensor.movedim(where, 0)
            rows = batched.shape[-2]
            if at == G:
                flat.append(batched.movedim(0, 1).reshape(batched.shape[1], size * rows, batched.shape[-1]))
            else:
                flat.append(batched.reshape(size * rows, batched.shape[-1]))
        out = _Trilinear.apply(*flat, code, slot, backend)
        if slot == G:
            return out.reshape(out.shape[0], size, rows, out.shape[-1]), 1
        return out.reshape(size, rows, out.shape[-1]), 0


def others(slot: int) -> tuple[int, int]:
    """Return the two other slots, in order."""
    return ((Y, G), (X, G), (X, Y))[slot]


@lru_cache(maxsize=1024)
def choose(form: Program, device: str) -> str:
    """Return the back end that is fastest for a program: measured by `benchmarks/bench_speed.py`."""
    if device == "cpu" and form.is_separable and max(form.bands) <= native.MAX_BAND and native.available():
        return "native"
    if device == "cuda" and kernels.supports(form) and kernels.available():
        return "cuda"
    cost = form.cost()
    if cost["cg"] < 1.3 * cost["dense"]:
        return "cg"
    return "separable" if form.is_separable and max(form.bands) > 5 else "dense"


# Tables as tensors


_Key = tuple[str, str, torch.dtype]


@lru_cache(maxsize=256)
def _dense_tables(code: Program, slot: int, device: str, dtype: torch.dtype) -> tuple[tuple[Tensor, ...], ...]:
    """Fields of the two other slots, and those of the solved slot with weights, transposed; coefficients apart."""
    first, second = others(slot)
    tables = code.tables
    out = [torch.from_numpy(tables[s]).to(device, dtype).contiguous() for s in (first, second)]
    back = np.ascontiguousarray((tables[slot] * code.weights).transpose(0, 2, 1))
    out.append(torch.from_numpy(back).to(device, dtype))
    return tuple(tuple(t.unbind(0)) for t in out)


def _chunks(rows: int, floats_a_row: int) -> list[slice]:
    step = max(64, min(rows, _CHUNK_FLOATS // max(1, floats_a_row)))
    return [slice(start, min(rows, start + step)) for start in range(0, rows, step)]


def _combine(terms: list[tuple[int, int, float]], left: list[Tensor], right: list[Tensor]) -> Tensor:
    i, j, c = terms[0]
    out = left[i] * right[j]
    if c != 1.0:
        out *= c
    for i, j, c in terms[1:]:
        out.addcmul_(left[i], right[j], value=c)
    return out


@lru_cache(maxsize=256)
def _terms(form: Program, slot: int) -> tuple[list[tuple[int, int, float]], ...]:
    """For each field of the solved slot: which fields of the other two to multiply."""
    first, second = others(slot)
    found: list[list[tuple[int, int, float]]] = [[] for _ in form.fields[slot]]
    for term in form.terms:
        found[int(term[slot])].append((int(term[first]), int(term[second]), term[3]))
    return tuple(found)


def _dense(form: Program, slot: int, a: Tensor, b: Tensor) -> Tensor:
    first, second = others(slot)
    tables_a, tables_b, back = _dense_tables(form, slot, str(a.device), a.dtype)
    rows = a.shape[0]
    out = _empty(form, slot, rows, a)
    fields = form.fields
    terms = _terms(form, slot)
    floats = (len(tables_a) + len(tables_b) + len(back)) * form.points
    for part in _chunks(rows, floats):
        left = [_rows(a, first, fields[first][i][2], part) @ t for i, t in enumerate(tables_a)]
        right = [_rows(b, second, fields[second][j][2], part) @ t for j, t in enumerate(tables_b)]
        begun = set()
        for q, table in enumerate(back):
            kind = fields[slot][q][2]
            target = out[kind, part] if slot == G else out[part]
            values = _combine(terms[q], left, right)
            if kind in begun:
                target.addmm_(values, table)
            else:
                torch.mm(values, table, out=target)
            begun.add(kind)
    return out


def _rows(tensor: Tensor, slot: int, kind: int, part: slice) -> Tensor:
    return tensor[kind, part] if slot == G else tensor[part]


def _empty(form: Program, slot: int, rows: int, like: Tensor) -> Tensor:
    if slot == G:
        return like.new_empty(form.outputs, rows, form.sizes[G])
    return like.new_empty(rows, form.sizes[slot])


@lru_cache(maxsize=256)
def _dense_tensor(form: Program, slot: int, device: str, dtype: torch.dtype) -> Tensor:
    table = form.dense.reshape(form.sizes[0], form.sizes[1], -1)
    first, second = others(slot)
    turned = np.ascontiguousarray(table.transpose(first, second, slot))
    return torch.from_numpy(turned.reshape(-1, turned.shape[2])).to(device, dtype)


def _cg(form: Program, slot: int, a: Tensor, b: Tensor) -> Tensor:
    first, second = others(slot)
    table = _dense_tensor(form, slot, str(a.device), a.dtype)
    rows = a.shape[0]
    flat_a, flat_b = (
        t.transpose(0, 1).reshape(rows, t.shape[0] * t.shape[2]) if s == G else t for s, t in ((first, a), (second, b))
    )
    width = flat_a.shape[1] * flat_b.shape[1]
    out = a.new_empty(rows, table.shape[1])
    for part in _chunks(rows, width + table.shape[1]):
        outer = (flat_a[part].unsqueeze(2) * flat_b[part].unsqueeze(1)).reshape(-1, width)
        torch.mm(outer, table, out=out[part])
    if slot == G:
        return out.view(rows, form.outputs, form.sizes[G]).transpose(0, 1).contiguous()
    return out


@lru_cache(maxsize=256)
def _separable_tables(form: Program, device: str, dtype: torch.dtype) -> tuple[tuple[Tensor, Tensor, Tensor], ...]:
    out = []
    for slot in (X, Y, G):
        rings, meridians = form.separable[slot]
        fields, orders, n_b, degrees = rings.shape
        flat = np.ascontiguousarray(rings.transpose(1, 0, 2, 3).reshape(orders, fields * n_b, degrees))
        out.append(
            (
                torch.from_numpy(form.orders(slot)).to(device),
                torch.from_numpy(flat).to(device, dtype),
                torch.from_numpy(np.ascontiguousarray(meridians.transpose(0, 2, 1))).to(device, dtype),
            )
        )
    return tuple(out)


def _separable(form: Program, slot: int, a: Tensor, b: Tensor) -> Tensor:
    first, second = others(slot)
    tables = _separable_tables(form, str(a.device), a.dtype)
    rows = a.shape[0]
    out = _empty(form, slot, rows, a)
    n_b, n_a = len(form.grid[0]), len(form.grid[1])
    weights = torch.as_tensor(form.grid[2], dtype=a.dtype, device=a.device)[:, None]
    terms = _terms(form, slot)
    floats = sum(map(len, form.fields)) * form.points
    for part in _chunks(rows, floats):
        left = _to_grid(form, first, a[:, part] if first == G else a[part], tables[first], n_b)
        right = _to_grid(form, second, b[:, part] if second == G else b[part], tables[second], n_b)
        count = part.stop - part.start
        index, rings, meridians = tables[slot]
        spectra = a.new_empty(index.shape[0], len(terms), n_b, count)
        for q, these in enumerate(terms):
            values = _combine(these, left, right).view(n_a, n_b, count)
            values *= weights
            spectra[:, q] = (meridians[q].T @ values.view(n_a, -1)).view(-1, n_b, count)
        kinds = [field[2] for field in form.fields[slot]]
        for kind in sorted(set(kinds)):
            of_kind = [q for q, k in enumerate(kinds) if k == kind]
            start, stop = of_kind[0], of_kind[-1] + 1
            legs = rings[:, start * n_b : stop * n_b]
            found = torch.bmm(legs.transpose(1, 2), spectra[:, start:stop].reshape(index.shape[0], -1, count))
            features = a.new_empty(form.sizes[slot] + 1, count)
            features[index.reshape(-1)] = found.reshape(-1, count)
            target = out[kind, part] if slot == G else out[part]
            target.copy_(features[:-1].T)
    return out


def _to_grid(
    form: Program, slot: int, features: Tensor, tables: tuple[Tensor, Tensor, Tensor], n_b: int
) -> list[Tensor]:
    """Return the fields of a slot, [n_a, n_b * rows] each."""
    index, rings, meridians = tables
    fields = form.fields[slot]
    out: list[Tensor] = []
    for kind in dict.fromkeys(field[2] for field in fields):
        x = features[kind] if slot == G else features
        padded = torch.cat([x.T, x.new_zeros(1, x.shape[0])])[index.reshape(-1)].view(*index.shape, -1)
        of_kind = [q for q, field in enumerate(fields) if field[2] == kind]
        start, stop = of_kind[0], of_kind[-1] + 1
        spectra = torch.bmm(rings[:, start * n_b : stop * n_b], padded).view(index.shape[0], stop - start, -1)
        out += [meridians[q] @ spectra[:, q - start] for q in of_kind]
    return out


def _native(form: Program, slot: int, a: Tensor, b: Tensor) -> Tensor:
    if a.device.type != "cpu" or not form.is_separable:
        raise SpinTPError("the native back end runs on the CPU, with spins up to 1; use backend='dense' for others")
    function = native.compile_product(form, slot, str(a.dtype).removeprefix("torch."))
    first, second = others(slot)
    rows, lanes = a.shape[-2], function.lanes
    out = _empty(form, slot, rows, a)
    blocks = rows // lanes
    arrays = ((a, form.sizes[first]), (b, form.sizes[second]), (out, form.sizes[slot]))
    size = a.element_size()

    def run(start: int, stop: int) -> None:
        at = [tensor.data_ptr() + start * lanes * n * size for tensor, n in arrays]
        function(*at, rows, blocks=stop - start)

    native.in_parts(run, blocks, blocks * lanes * form.cost()["separable"])
    if rows % lanes:
        rest = rows - blocks * lanes
        padded = []
        for tensor, n in arrays:
            tail = tensor.new_zeros(*tensor.shape[:-2], lanes, n)
            tail[..., :rest, :] = tensor[..., blocks * lanes :, :]
            padded.append(tail)
        function(*(tail.data_ptr() for tail in padded), lanes, blocks=1)
        out[..., blocks * lanes :, :] = padded[2][..., :rest, :]
    return out


def _cuda(form: Program, slot: int, a: Tensor, b: Tensor) -> Tensor:
    if a.device.type != "cuda":
        raise SpinTPError(f"the CUDA kernels need tensors on a GPU; got {a.device}")
    if not kernels.available():
        raise BackendUnavailable("backend='cuda' needs CuPy: pip install 'sprigs-spingtp[cuda12]' or '[cuda13]'")
    rows = a.shape[-2]
    out = _empty(form, slot, rows, a)
    dtype = str(a.dtype).removeprefix("torch.")
    kernels.run(kernels.gpu(a.device.index or 0), form, slot, a, b, out, rows, dtype)
    return out


_RUN = {"native": _native, "cuda": _cuda, "dense": _dense, "separable": _separable, "cg": _cg}
