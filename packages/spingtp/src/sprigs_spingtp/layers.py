"""Channel-wise tensor products of irreps as torch modules."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from . import native, native_layer
from .errors import IncompleteProductWarning, SpinTPError
from .functional import BACKENDS, check_pair, multiply
from .irreps import Irrep, Irreps
from .plan import (
    FusedPlan,
    Output,
    Part,
    Path,
    PathPlan,
    channelwise_instructions,
    full_instructions,
    fused_plan,
    gather_index,
    path_plan,
    scatter_index,
)
from .programs import COMPLETE, Kind, kinds_of

LAYOUTS = ("mul_ir", "ir_mul")


class SpinTensorProduct(nn.Module):
    """The channel-wise product of two sets of irreps, with every Clebsch-Gordan path, evaluated on the sphere.

    Two modes. "fused" multiplies whole functions: channel c of the output takes from channel c of the inputs

        sum over r:  w3[c, r, l3, kind] * product(w1[c, r, l1] x_l1, w2[c, r, l2] y_l2)

    so that the weights of the paths form a tensor of rank R; with R = (lmax + 1)^2 they are free. "paths" has a weight
    for every path, as e3nn's `TensorProduct` with "uuu" instructions, which it equals.

    Where the inputs have natural (0e, 1o, 2e, ...) and pseudo parts (0o, 1e, 2o, ...), each of the up to four products
    has weights of its own.

    Args:
        irreps_in1, irreps_in2, irreps_out: strings, or e3nn's `Irreps`, of equal multiplicities; `irreps_in2` may have
            multiplicity 1, which serves every channel. In mode "fused" no irrep stands twice.
        rank: R, mode "fused".
        mode: "fused" or "paths".
        internal_weights: whether the weights are a parameter (`weight`, flat) or given to `forward`.
        shared_weights: False: `forward` gets weights [..., weight_numel], one set for each of the leading dimensions.
        irrep_normalization: "component" (components of unit variance) or "norm", as in e3nn.
        spins: "complete" (scalar and gradient fields), "gaunt" (scalar fields: antisymmetric paths are lost), or a list
            of pairs of spins, each of which adds its own weights: a more expressive basis, mode "fused".
        so3: ignore parity: one product instead of up to four; each degree once in each set of irreps.
        symmetry: None, "symmetric" (x y = y x: even paths, w2 = w1) or "antisymmetric" (odd paths); mode "fused".
        layout: "mul_ir" (e3nn's) or "ir_mul" of each block.
        backend: see `spin_tensor_product`.

    Attributes:
        irreps_in1, irreps_in2, irreps_out: as `Irreps`.
        weight_numel: number of weights.
        paths: every path.

    Raises:
        SpinTPError: Irreps that cannot be read, do not fit, or cannot be reached; an unknown option.
    """

    def __init__(
        self,
        irreps_in1: Any,
        irreps_in2: Any,
        irreps_out: Any,
        *,
        rank: int = 1,
        mode: str = "fused",
        internal_weights: bool = True,
        shared_weights: bool = True,
        irrep_normalization: str = "component",
        spins: str | Sequence[tuple[int, int]] = "complete",
        so3: bool = False,
        symmetry: str | None = None,
        layout: str = "mul_ir",
        backend: str = "auto",
    ) -> None:
        super().__init__()
        one, two, out = Irreps(irreps_in1), Irreps(irreps_in2), Irreps(irreps_out)
        kinds = kinds_of(spins)
        if symmetry not in (None, "symmetric", "antisymmetric"):
            raise SpinTPError(f"symmetry must be None, 'symmetric' or 'antisymmetric'; got {symmetry!r}")
        if symmetry is not None:
            if spins != "complete":
                raise SpinTPError("symmetry chooses the kinds itself: leave spins='complete'")
            kinds = COMPLETE[:1] if symmetry == "symmetric" else COMPLETE[1:]
        if spins == "gaunt":
            out = _without_odd(one, two, out, so3)
        self._engine: _Fused | _Paths
        if mode == "fused":
            plan = fused_plan(one, two, out, kinds, rank, irrep_normalization, so3, symmetry is not None)
            self._engine = _Fused(plan, _layout(layout), _backend(backend))
        elif mode == "paths":
            if rank != 1 or so3 or symmetry or spins not in ("complete", "gaunt"):
                raise SpinTPError(
                    "mode 'paths' weights every path: rank, so3, symmetry and lists of spins do not apply"
                )
            found = channelwise_instructions(one, two, out, irrep_normalization, odd=len(kinds) > 1)
            engine = path_plan(one, two, out, found, "uuu", kinds)
            self._engine = _Paths(engine, _layout(layout), _backend(backend))
        else:
            raise SpinTPError(f"mode must be 'fused' or 'paths'; got {mode!r}")
        self._finish(internal_weights, shared_weights)

    def _finish(self, internal_weights: bool, shared_weights: bool) -> None:
        if internal_weights and not shared_weights:
            raise SpinTPError("weights for each row come from outside: set internal_weights=False")
        self._dims = self.irreps_in1.dim, self.irreps_in2.dim
        self.internal_weights = internal_weights
        self.shared_weights = shared_weights
        if internal_weights and self.weight_numel:
            self.weight = nn.Parameter(torch.empty(self.weight_numel))
            self.reset_parameters()
        else:
            self.register_parameter("weight", None)

    @classmethod
    def _from_plan(cls, plan: PathPlan, layout: str, backend: str, internal_weights: bool) -> SpinTensorProduct:
        self = cls.__new__(cls)
        nn.Module.__init__(self)
        self._engine = _Paths(plan, _layout(layout), _backend(backend))
        self._finish(internal_weights, True)
        return self

    @property
    def irreps_in1(self) -> Irreps:
        """Of the first input."""
        return self._engine.plan.irreps_in1

    @property
    def irreps_in2(self) -> Irreps:
        """Of the second input."""
        return self._engine.plan.irreps_in2

    @property
    def irreps_out(self) -> Irreps:
        """Of the output."""
        return self._engine.plan.irreps_out

    @property
    def weight_numel(self) -> int:
        """Number of weights."""
        return self._engine.plan.weight_numel

    @property
    def paths(self) -> tuple[Path, ...]:
        """Every path, with the fields it goes through."""
        return tuple(path for path, _ in self._engine.plan.paths)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Draw the weights, uniform of unit variance; of rank one, w1 and w2 are random signs.

        Signs rather than ones: the paths of a product of correlated inputs would add up in step.
        """
        if self.weight is None:
            return
        with torch.no_grad():
            self.weight.uniform_(-(3**0.5), 3**0.5, generator=generator)
            if isinstance(self._engine, _Fused) and self._engine.plan.rank == 1:
                inputs = self.input_weights().to(self.weight.device) == 1
                self.weight[inputs] = torch.sign(self.weight[inputs])

    def input_weights(self) -> Tensor:
        """Return [weight_numel], 1 for the weights on the inputs (w1 and w2 of mode "fused"), 0 for the others."""
        mask = torch.zeros(self.weight_numel)
        if isinstance(self._engine, _Fused):
            for combination in self._engine.plan.combinations:
                mask[combination.weights1] = 1.0
                mask[combination.weights2] = 1.0
        return mask

    def path_weights(self, weight: Tensor | None = None) -> dict[Path, Tensor]:
        """Return what multiplies the Wigner 3j tensor of each path, [channels].

        Paths of the same irreps through other fields, or into another block, stand apart in the list of `paths` but are
        summed here.

        Args:
            weight: flat weights; the module's own by default.
        """
        weight = self._weight(weight, None)
        return self._engine.path_weights(weight)

    def forward(self, x: Tensor, y: Tensor, weight: Tensor | None = None) -> Tensor:
        """Multiply.

        Args:
            x: [..., irreps_in1.dim].
            y: [..., irreps_in2.dim], the same dtype and device; leading dimensions broadcast.
            weight: [weight_numel], or with `shared_weights=False` [..., weight_numel]; None takes the module's own.

        Returns:
            [..., irreps_out.dim].

        Raises:
            SpinTPError: A wrong last dimension or dtype, weights of the wrong shape, or none.
        """
        check_pair(x, y, *self._dims)
        if x.ndim == 2 and y.ndim == 2 and x.shape[0] == y.shape[0]:
            # The usual case, without the cost of broadcasting nothing.
            weight = self._weight(weight, x.shape[:1])
            return self._engine(x, y, weight.to(x.dtype) if weight.dtype != x.dtype else weight)
        shape = torch.broadcast_shapes(x.shape[:-1], y.shape[:-1])
        weight = self._weight(weight, shape)
        rows_x = x.expand(*shape, x.shape[-1]).reshape(-1, x.shape[-1])
        rows_y = y.expand(*shape, y.shape[-1]).reshape(-1, y.shape[-1])
        out = self._engine(rows_x, rows_y, weight.to(x.dtype) if weight.dtype != x.dtype else weight)
        result: Tensor = out.reshape(*shape, out.shape[-1])
        return result

    def _weight(self, weight: Tensor | None, shape: tuple[int, ...] | None) -> Tensor:
        n = self.weight_numel
        if weight is None:
            if self.weight is not None:
                return self.weight
            if n == 0:
                return torch.empty(0)
            raise SpinTPError(f"this product has no weights of its own: give {n}")
        if self.shared_weights:
            if tuple(weight.shape) != (n,):
                raise SpinTPError(f"weight must have shape ({n},); got {tuple(weight.shape)}")
            return weight
        if weight.ndim == 0 or weight.shape[-1] != n:
            raise SpinTPError(f"the last dimension of weight must be {n}; got shape {tuple(weight.shape)}")
        if shape is None:
            raise SpinTPError("weights for each row have no single set of path weights")
        try:
            return weight.expand(*shape, n).reshape(-1, n)
        except RuntimeError as error:
            raise SpinTPError(
                f"weight {tuple(weight.shape)} does not broadcast to the inputs' {(*shape, n)}"
            ) from error

    def extra_repr(self) -> str:
        """Show irreps, paths and weights."""
        irreps = f"{self.irreps_in1} x {self.irreps_in2} -> {self.irreps_out}"
        return f"{irreps} | {len(self.paths)} paths | {self.weight_numel} weights"


class GauntTensorProduct(SpinTensorProduct):
    """The product of functions on the sphere alone (spin 0): every antisymmetric path is lost. A baseline.

    Outputs that only those paths reach (a cross product's 1e, a triple product's 0o) are left out with a warning.
    """

    def __init__(self, irreps_in1: Any, irreps_in2: Any, irreps_out: Any, **options: Any) -> None:
        super().__init__(irreps_in1, irreps_in2, irreps_out, **{**options, "spins": "gaunt"})


class SpinFullTensorProduct(SpinTensorProduct):
    """Every path of every pair of channels, without weights: `e3nn.o3.FullTensorProduct`, blocks in its order.

    Args:
        irreps_in1, irreps_in2: any irreps.
        filter_ir_out: irreps to keep, such as ["0e", "1o"]; all by default.
        irrep_normalization, layout, backend: see `SpinTensorProduct`.
    """

    def __init__(
        self,
        irreps_in1: Any,
        irreps_in2: Any,
        filter_ir_out: Sequence[Any] | None = None,
        *,
        irrep_normalization: str = "component",
        layout: str = "mul_ir",
        backend: str = "auto",
    ) -> None:
        nn.Module.__init__(self)
        one, two = Irreps(irreps_in1), Irreps(irreps_in2)
        keep = None if filter_ir_out is None else [_as_irrep(ir) for ir in filter_ir_out]
        out, instructions = full_instructions(one, two, keep, irrep_normalization)
        self._engine = _Paths(
            path_plan(one, two, out, instructions, "uvuv", COMPLETE), _layout(layout), _backend(backend)
        )
        self._finish(internal_weights=False, shared_weights=True)


def from_e3nn(product: Any, *, backend: str = "auto") -> SpinTensorProduct:
    """Return the same product as an `e3nn.o3.TensorProduct`, its weights copied: equal up to rounding.

    Args:
        product: with instructions "uuu", or "uvu" and a second input of one channel, or "uvuv" without weights
            (`FullTensorProduct`); all of one kind.
        backend: see `spin_tensor_product`.

    Raises:
        SpinTPError: Other instructions: those mix channels, as a channel-wise product and an `o3.Linear` do.
    """
    one, two, out = Irreps(product.irreps_in1), Irreps(product.irreps_in2), Irreps(product.irreps_out)
    instructions, modes = [], set()
    for found in product.instructions:
        mode = found.connection_mode
        if mode == "uvu" and two[found.i_in2].mul == 1:
            mode = "uuu"
        if mode == "uvuv" and found.has_weight:
            mode = "uvuv with weights"
        modes.add(mode)
        coefficient = float(found.path_weight)
        instructions.append((found.i_in1, found.i_in2, found.i_out, coefficient, bool(found.has_weight)))
    if len(modes) != 1 or not modes <= {"uuu", "uvuv"}:
        raise SpinTPError(
            f"from_e3nn reads channel-wise products ('uuu', 'uvu' with one channel) and full ones; got {sorted(modes)}"
        )
    plan = path_plan(one, two, out, instructions, modes.pop(), COMPLETE)
    own = bool(product.internal_weights) and plan.weight_numel > 0
    converted = SpinTensorProduct._from_plan(plan, "mul_ir", backend, own)
    if not product.shared_weights:
        converted.shared_weights = False
    if own:
        with torch.no_grad():
            converted.weight = nn.Parameter(product.weight.detach().clone().reshape(-1))
    return converted.to(product.weight.device) if own else converted


def _as_irrep(ir: Any) -> Irrep:
    (block,) = Irreps(str(ir))
    return block.ir


def _layout(name: str) -> str:
    if name not in LAYOUTS:
        raise SpinTPError(f"layout must be 'mul_ir' or 'ir_mul'; got {name!r}")
    return name


def _backend(name: str) -> str:
    if name not in BACKENDS:
        raise SpinTPError(f"backend must be one of {', '.join(BACKENDS)}; got {name!r}")
    return name


def _without_odd(one: Irreps, two: Irreps, out: Irreps, so3: bool) -> Irreps:
    """Drop what the Gaunt product cannot reach, and say so."""
    even = {
        (l3, a.ir.p * b.ir.p)
        for a in one
        for b in two
        for l3 in range(abs(a.ir.l - b.ir.l), a.ir.l + b.ir.l + 1)
        if (a.ir.l + b.ir.l + l3) % 2 == 0
    }
    reach = {l for l, _ in even} if so3 else even
    kept = [b for b in out if (b.ir.l if so3 else (b.ir.l, b.ir.p)) in reach]
    lost = [str(b.ir) for b in out if b not in kept]
    if lost:
        warnings.warn(
            f"the Gaunt product has no path to {', '.join(lost)}: only antisymmetric ones lead there, which it loses."
            " SpinTensorProduct keeps them",
            IncompleteProductWarning,
            stacklevel=3,
        )
    if not kept:
        raise SpinTPError(f"no path leads from '{one}' and '{two}' to '{out}' by symmetric products alone")
    return Irreps(kept)


class _Select(torch.autograd.Function):
    """Columns of a matrix by an index without repetitions; its derivative is one too, unlike index_select's.

    `back` inverts the index, the number of selected columns standing for those that were left out.
    """

    @staticmethod
    def forward(x: Tensor, index: Tensor, back: Tensor) -> Tensor:
        return x.index_select(1, index)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
        _, index, back = inputs
        ctx.save_for_backward(index, back)
        ctx.save_for_forward(index, back)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        index, back = ctx.saved_tensors
        if len(back) != len(index):
            upstream = torch.nn.functional.pad(upstream, (0, 1))
            index = torch.nn.functional.pad(index, (0, 1), value=len(back))
        return _Select.apply(upstream, back, index), None, None

    @staticmethod
    def jvp(ctx: Any, x: Tensor, *_: None) -> Tensor:
        index, back = ctx.saved_tensors
        found: Tensor = _Select.apply(x, index, back)
        return found

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], x: Tensor, index: Tensor, back: Tensor) -> tuple[Tensor, int]:
        x = x.movedim(in_dims[0] or 0, 0)
        found = _Select.apply(x.reshape(-1, x.shape[-1]), index, back)
        return found.reshape(*x.shape[:-1], len(index)), 0


def _select(x: Tensor, index: Tensor, back: Tensor) -> Tensor:
    if torch.compiler.is_compiling() or not x.requires_grad:
        return x.index_select(1, index)
    found: Tensor = _Select.apply(x, index, back)
    return found


class _Layer(torch.autograd.Function):
    """A compiled layer; what its derivatives are differentiated for again is composed of torch's operations."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, weight: Tensor, engine: _Fused, layer: native_layer.Layer) -> Tensor:
        ctx.save_for_backward(x, y, weight)
        ctx.rest = engine, layer
        return layer.forward(*(t.detach().contiguous() for t in (x, y, weight)))

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> Any:
        inputs = ctx.saved_tensors
        engine, layer = ctx.rest
        wanted = ctx.needs_input_grad[:3]
        again = torch.is_grad_enabled() and (upstream.requires_grad or any(t.requires_grad for t in inputs))
        if again or (layer.plan.channels2 == 1 and (wanted[1] or wanted[2])):
            with torch.enable_grad():
                if not again:
                    inputs = [t.detach().requires_grad_(need) for t, need in zip(inputs, wanted, strict=True)]
                out = engine.composed(*inputs)
                some = [t for t, need in zip(inputs, wanted, strict=True) if need]
                found = iter(torch.autograd.grad(out, some, upstream, create_graph=again))
            return *(next(found) if need else None for need in wanted), None, None
        plain = [t.detach().contiguous() for t in (*inputs, upstream)]
        return *layer.gradients(*plain, wanted), None, None


class _Fused(nn.Module):
    """A fused plan in torch."""

    indexout: Tensor
    backout: Tensor

    def __init__(self, plan: FusedPlan, layout: str, backend: str) -> None:
        super().__init__()
        self.plan, self.layout, self.backend = plan, layout, backend
        self._layers: dict[torch.dtype, native_layer.Layer | None] = {}
        self.size = sum(2 * l + 1 for l in plan.degrees_out)
        for name, irreps, parts in (("1", plan.irreps_in1, plan.parts1), ("2", plan.irreps_in2, plan.parts2)):
            for p, part in enumerate(parts):
                self._index(f"{name}_{p}", gather_index(irreps, part, layout).ravel(), irreps.dim)
                self._constant(f"expand{name}_{p}", torch.tensor(part.expand))
        for c, combination in enumerate(plan.combinations):
            for o, output in enumerate(combination.outputs):
                self._constant(f"expand_out_{c}_{o}", torch.tensor(output.expand))
        self._index("out", scatter_index(plan, layout), plan.channels * len(plan.parts_out) * self.size)

    def _index(self, name: str, index: npt.NDArray[np.int64], size: int) -> None:
        back = np.full(size, len(index))
        back[index] = np.arange(len(index))
        self._constant(f"index{name}", torch.from_numpy(index))
        self._constant(f"back{name}", torch.from_numpy(back))

    def _constant(self, name: str, value: Tensor) -> None:
        self.register_buffer(name, value, persistent=False)

    def _apply(self, fn: Any, recurse: bool = True) -> _Fused:
        # Constants follow to other devices, but keep float64: they are cast where they are used.
        kept = {name: buffer for name, buffer in self.named_buffers() if buffer.is_floating_point()}
        super()._apply(fn, recurse)
        for name, buffer in kept.items():
            setattr(self, name, buffer.to(getattr(self, name).device))
        return self

    def _spread(self, weight: Tensor, where: slice, name: str) -> Tensor:
        """Weights of the degrees on their coefficients, [rows or 1, channels, rank, n]."""
        expand: Tensor = getattr(self, name)
        w = weight[..., where].reshape(-1, self.plan.channels, self.plan.rank, expand.shape[0])
        return w @ expand.to(w.dtype)

    def _part(self, x: Tensor, name: str, channels: int) -> Tensor:
        """Features of a part, [rows, channels, 1, n]."""
        index: Tensor = getattr(self, f"index{name}")
        found = _select(x, index, getattr(self, f"back{name}"))
        return found.view(x.shape[0], channels, 1, index.shape[0] // channels)

    def forward(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        layer = self._compiled(x, y, weight)
        if layer is None:
            return self.composed(x, y, weight)
        shared = weight.reshape(-1) if weight.ndim == 2 and weight.shape[0] == 1 else weight
        if not (torch.is_grad_enabled() and (x.requires_grad or y.requires_grad or shared.requires_grad)):
            return layer.forward(x.contiguous(), y.contiguous(), shared.contiguous())
        found: Tensor = _Layer.apply(x, y, shared, self, layer)
        return found

    def _compiled(self, x: Tensor, y: Tensor, weight: Tensor) -> native_layer.Layer | None:
        """The whole layer as machine code, where it may be used."""
        if (
            torch.compiler.is_compiling()
            or self.backend not in ("auto", "native")
            or x.device.type != "cpu"
            or x.dtype not in (torch.float32, torch.float64)
            or any(type(t) not in (Tensor, nn.Parameter) for t in (x, y, weight))
            or torch._C._are_functorch_transforms_active()
            or torch.autograd.forward_ad._current_level >= 0
            or not native.available()
        ):
            return None
        if x.dtype not in self._layers:
            self._layers[x.dtype] = native_layer.layer_of(self.plan, self.layout, x.dtype)
        return self._layers[x.dtype]

    def composed(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """The same by torch's operations around the product."""
        plan, rank, channels = self.plan, self.plan.rank, self.plan.channels
        rows = x.shape[0]
        parts1 = [self._part(x, f"1_{p}", channels) for p in range(len(plan.parts1))]
        parts2 = [self._part(y, f"2_{p}", plan.channels2) for p in range(len(plan.parts2))]
        sums: list[Tensor | None] = [None] * len(plan.parts_out)
        for c, combination in enumerate(plan.combinations):
            a, b = combination.part1, combination.part2
            left = parts1[a] * self._spread(weight, combination.weights1, f"expand1_{a}")
            right = parts2[b] * self._spread(weight, combination.weights2, f"expand2_{b}")
            n1, n2 = left.shape[-1], right.shape[-1]
            product = multiply(left.view(-1, n1), right.view(-1, n2), combination.code, self.backend)
            for o, output in enumerate(combination.outputs):
                found = product[output.kind].view(rows, channels, rank, self.size)
                found = found * self._spread(weight, output.weights, f"expand_out_{c}_{o}")
                found = found.sum(2) if rank > 1 else found.view(rows, channels, self.size)
                before = sums[output.part]
                sums[output.part] = found if before is None else before + found
        parts = [part for part in sums if part is not None]
        out = (torch.cat(parts, dim=-1) if len(parts) > 1 else parts[0]).view(rows, channels * len(parts) * self.size)
        return _select(out, self.indexout, self.backout)

    def path_weights(self, weight: Tensor) -> dict[Path, Tensor]:
        plan = self.plan
        coefficients = dict(plan.paths)
        out: dict[Path, Tensor] = {}
        for combination in plan.combinations:
            one, two = plan.parts1[combination.part1], plan.parts2[combination.part2]
            w1, w2 = (
                weight[where].reshape(plan.channels, plan.rank, -1)
                for where in (combination.weights1, combination.weights2)
            )
            for output in combination.outputs:
                w3 = weight[output.weights].reshape(plan.channels, plan.rank, -1)
                for path, coefficient in coefficients.items():
                    if not self._belongs(path, one, two, output, combination.kinds[output.kind]):
                        continue
                    i, j = one.degrees.index(path.ir1.l), two.degrees.index(path.ir2.l)
                    k = output.degrees.index(path.ir_out.l)
                    value = coefficient * (w1[:, :, i] * w2[:, :, j] * w3[:, :, k]).sum(1)
                    out[path] = out[path] + value if path in out else value
        return out

    def _belongs(self, path: Path, one: Part, two: Part, output: Output, kind: Kind) -> bool:
        same = all(
            part.natural in (0, ir.natural) and ir.l in part.degrees for part, ir in ((one, path.ir1), (two, path.ir2))
        )
        return same and path.kind == kind and path.ir_out.l in output.degrees


class _Paths(nn.Module):
    """A plan with separately weighted paths in torch."""

    def __init__(self, plan: PathPlan, layout: str, backend: str) -> None:
        super().__init__()
        self.plan, self.layout, self.backend = plan, layout, backend

    def forward(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        plan = self.plan
        rows = x.shape[0]
        slices1, slices2 = plan.irreps_in1.slices(), plan.irreps_in2.slices()
        sums: list[Tensor | None] = [None] * len(plan.irreps_out)
        for pair in plan.pairs:
            left = self._block(x, slices1[pair.block1], plan.irreps_in1[pair.block1].mul)
            right = self._block(y, slices2[pair.block2], plan.irreps_in2[pair.block2].mul)
            if plan.mode == "uvuv":
                left, right = left.unsqueeze(2), right.unsqueeze(1)
            lead = torch.broadcast_shapes(left.shape[:-1], right.shape[:-1])
            left, right = (t.expand(*lead, t.shape[-1]).reshape(-1, t.shape[-1]) for t in (left, right))
            width = math.prod(lead[1:])
            flat = multiply(left, right, pair.code, self.backend)[0]
            product = flat.view(rows, width, flat.shape[-1])
            for instruction, columns, scale in pair.outputs:
                found = product[:, :, columns] * scale
                if instruction.weights is not None:
                    w = weight[..., instruction.weights]
                    found = found * w.reshape(-1, w.shape[-1], 1)
                before = sums[instruction.block_out]
                sums[instruction.block_out] = found if before is None else before + found
        pieces = []
        for block, total in zip(plan.irreps_out, sums, strict=True):
            if total is None:
                pieces.append(x.new_zeros(rows, block.dim))
            else:
                pieces.append((total if self.layout == "mul_ir" else total.mT).reshape(rows, block.dim))
        return torch.cat(pieces, dim=-1)

    def _block(self, x: Tensor, where: slice, mul: int) -> Tensor:
        piece = x[:, where]
        dim = piece.shape[1] // mul
        return piece.reshape(-1, mul, dim) if self.layout == "mul_ir" else piece.reshape(-1, dim, mul).mT

    def path_weights(self, weight: Tensor) -> dict[Path, Tensor]:
        out: dict[Path, Tensor] = {}
        plan = self.plan
        flat = [m for pair in plan.pairs for m, _, _ in pair.outputs]
        order = {(path.ir1, path.ir2, path.ir_out): path for path, _ in plan.paths}
        for m in flat:
            irs = (plan.irreps_in1[m.block1].ir, plan.irreps_in2[m.block2].ir, plan.irreps_out[m.block_out].ir)
            path = order[irs]
            mul = plan.irreps_out[m.block_out].mul
            value = m.coefficient * (weight[m.weights] if m.weights is not None else torch.ones(mul))
            out[path] = out[path] + value if path in out else value
        return out
