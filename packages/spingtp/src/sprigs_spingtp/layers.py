"""Channel-wise tensor products of irreps as torch modules."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .engines import FusedEngine, PathsEngine
from .errors import IncompleteProductWarning, SpinTPError
from .functional import BACKENDS, check_pair
from .irreps import Irrep, Irreps
from .plan import (
    Path,
    PathPlan,
    channelwise_instructions,
    full_instructions,
    fused_plan,
    path_plan,
)
from .programs import COMPLETE, kinds_of

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
        self._engine: FusedEngine | PathsEngine
        if mode == "fused":
            plan = fused_plan(one, two, out, kinds, rank, irrep_normalization, so3, symmetry is not None)
            self._engine = FusedEngine(plan, _layout(layout), _backend(backend))
        elif mode == "paths":
            if rank != 1 or so3 or symmetry or spins not in ("complete", "gaunt"):
                raise SpinTPError(
                    "mode 'paths' weights every path: rank, so3, symmetry and lists of spins do not apply"
                )
            found = channelwise_instructions(one, two, out, irrep_normalization, odd=len(kinds) > 1)
            engine = path_plan(one, two, out, found, "uuu", kinds)
            self._engine = PathsEngine(engine, _layout(layout), _backend(backend))
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
        self._engine = PathsEngine(plan, _layout(layout), _backend(backend))
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
            if isinstance(self._engine, FusedEngine) and self._engine.plan.rank == 1:
                inputs = self.input_weights().to(self.weight.device) == 1
                self.weight[inputs] = torch.sign(self.weight[inputs])

    def input_weights(self) -> Tensor:
        """Return [weight_numel], 1 for the weights on the inputs (w1 and w2 of mode "fused"), 0 for the others."""
        mask = torch.zeros(self.weight_numel)
        if isinstance(self._engine, FusedEngine):
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
        self._engine = PathsEngine(
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
