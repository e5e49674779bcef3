"""What runs a plan in torch: products by operations of torch around the primitive, or a layer compiled whole."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from . import native, native_layer
from .functional import multiply
from .plan import FusedPlan, Output, Part, Path, PathPlan, gather_index, scatter_index
from .programs import Kind


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
    def forward(
        ctx: Any, x: Tensor, y: Tensor, weight: Tensor, engine: FusedEngine, layer: native_layer.Layer
    ) -> Tensor:
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


class FusedEngine(nn.Module):
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

    def _apply(self, fn: Any, recurse: bool = True) -> FusedEngine:
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
        """Return [rows, irreps_out.dim] of [rows, dim] features and weights [n] or [rows, n]."""
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
        """Return what multiplies the Wigner 3j tensor of each path, [channels], for flat weights."""
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


class PathsEngine(nn.Module):
    """A plan with separately weighted paths in torch."""

    def __init__(self, plan: PathPlan, layout: str, backend: str) -> None:
        super().__init__()
        self.plan, self.layout, self.backend = plan, layout, backend

    def forward(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Return [rows, irreps_out.dim] of [rows, dim] features and weights [n] or [rows, n]."""
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
        """Return what multiplies the Wigner 3j tensor of each path, [channels], for flat weights."""
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
