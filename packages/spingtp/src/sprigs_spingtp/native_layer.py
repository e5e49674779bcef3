"""A whole channel-wise layer as machine code: irreps and weights in, irreps out, nothing in between in memory.

For layers of rank one in layout "mul_ir", whose channels fill whole vectors. A block is `lanes` channels of one row:
each degree's features are neighbours in memory and are dealt out to one vector for each coefficient; weights likewise.
The same code, solved for another slot, gives the gradients of features and weights.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from . import native
from .irreps import Irreps
from .native import _Emitter
from .plan import Combination, FusedPlan, Part
from .programs import G, Program, X, Y, decode

# Dealing k vectors out takes k (k - 1) shuffles; beyond this a transposition of rows takes fewer.
_DEALT = 8


@dataclass(frozen=True)
class Piece:
    """Where one degree of a slot lies.

    Attributes:
        coefficient: first of its coefficients among the slot's vectors.
        degree: l.
        offset: of its block in the features.
        weight: its place among the degrees of its weights.
        scale: constant factor.
    """

    coefficient: int
    degree: int
    offset: int
    weight: int
    scale: float


@dataclass(frozen=True)
class Side:
    """One slot of a combination: pieces, and its weights [channels, degrees] from `start`.

    The output has one for each kind.
    """

    pieces: tuple[Piece, ...]
    start: int
    degrees: int


@dataclass(frozen=True)
class Spec:
    """A combination of a plan, as far as the code depends on it."""

    code: str
    channels: int
    shared: bool
    sides: tuple[tuple[Side, ...], tuple[Side, ...], tuple[Side, ...]]
    dims: tuple[int, int, int]


def spec_of(plan: FusedPlan, combination: Combination) -> Spec:
    """Describe a combination of a plan of rank one in layout "mul_ir"."""
    form = decode(combination.code)

    def side(p: Part, irreps: Irreps, where: slice) -> Side:
        slices = irreps.slices()
        pieces, start = [], 0
        for j, (degree, block) in enumerate(zip(p.degrees, p.blocks, strict=True)):
            pieces.append(Piece(start, degree, slices[block].start, j, float(p.expand[j, start])))
            start += 2 * degree + 1
        return Side(tuple(pieces), where.start, len(p.degrees))

    outputs = []
    slices = plan.irreps_out.slices()
    starts = {}
    position = 0
    for degree in form.degrees[G]:
        starts[degree] = position
        position += 2 * degree + 1
    for number, output in enumerate(combination.outputs):
        part = plan.parts_out[output.part]
        pieces = [
            Piece(
                number * form.sizes[G] + starts[degree],
                degree,
                slices[part.blocks[part.degrees.index(degree)]].start,
                j,
                float(output.expand[j, starts[degree]]),
            )
            for j, degree in enumerate(output.degrees)
        ]
        outputs.append(Side(tuple(pieces), output.weights.start, len(output.degrees)))
    one = side(plan.parts1[combination.part1], plan.irreps_in1, combination.weights1)
    two = side(plan.parts2[combination.part2], plan.irreps_in2, combination.weights2)
    dims = plan.irreps_in1.dim, plan.irreps_in2.dim, plan.irreps_out.dim
    return Spec(combination.code, plan.channels, plan.channels2 == 1, ((one,), (two,), tuple(outputs)), dims)


@dataclass
class Channels:
    """The layout of a layer.

    Parameters: features of X, Y and G, the solved slot's gradient, weights, their gradient by row, strides of the two
    weights (0 where all rows share them). The solved slot's features serve its weights' gradient.

    Attributes:
        spec: the combination.
        slot: the solved one.
        gradient: whether to write the weights' gradient; for the output alone, instead of the product.
    """

    spec: Spec
    slot: int
    gradient: bool
    row: str = ""
    first: str = ""
    weights: str = ""
    gradients: str = ""

    @property
    def parameters(self) -> str:
        """Addresses of features, result, weights and their gradient, and the rows' strides of both."""
        # Only what is written is free of aliases: an argument that is not used may be any other.
        return "ptr readonly %x, ptr readonly %y, ptr %g, ptr %out, ptr readonly %w, ptr %gw, i64 %stride, i64 %gstride"

    def begin(self, e: _Emitter, block: str) -> None:
        """Find row and first channel of a block."""
        blocks = self.spec.channels // e.lanes
        self.row = e.put(f"udiv i64 {block}, {blocks}")
        first = e.put(f"urem i64 {block}, {blocks}")
        self.first = e.put(f"mul i64 {first}, {e.lanes}")
        here = e.put(f"mul i64 {self.row}, %stride")
        self.weights = e.at("%w", here)
        there = e.put(f"mul i64 {self.row}, %gstride")
        self.gradients = e.at("%gw", there)

    def _base(self, e: _Emitter, pointer: str, slot: int, offset: int, each: int, alone: bool) -> str:
        row = e.at(pointer, e.put(f"mul i64 {self.row}, {self.spec.dims[slot]}"))
        if alone:
            return e.at(row, offset)
        place = e.put(f"mul i64 {self.first}, {each}")
        return e.at(e.at(row, place), offset)

    def _weights(self, e: _Emitter, side: Side) -> list[str]:
        place = e.put(f"mul i64 {self.first}, {side.degrees}")
        return deal(e, e.at(e.at(self.weights, place), side.start), side.degrees)

    def _features(self, e: _Emitter, slot: int, piece: Piece) -> list[str]:
        each = 2 * piece.degree + 1
        alone = slot == Y and self.spec.shared
        base = self._base(e, ("%x", "%y", "%g")[slot], slot, piece.offset, each, alone)
        if alone:
            return [e.splat(e.at(base, m)) for m in range(each)]
        return deal(e, base, each)

    def read(self, e: _Emitter, slot: int, memory: str) -> None:
        """Features times weights; a coefficient of the output that goes nowhere is zero."""
        if slot == G:
            form = decode(self.spec.code)
            for k in range(form.outputs * form.sizes[G]):
                e.store("zeroinitializer", memory, k)
        for side in self.spec.sides[slot]:
            weights = self._weights(e, side)
            for piece in side.pieces:
                w = weights[piece.weight]
                if piece.scale != 1.0:
                    w = e.op("fmul", w, e.constant(piece.scale))
                for m, value in enumerate(self._features(e, slot, piece)):
                    e.store(e.op("fmul", value, w), memory, piece.coefficient + m)

    def write(self, e: _Emitter, memory: str) -> None:
        """Add the solved slot times its weights to what is there, and write the weights' gradient."""
        for side in self.spec.sides[self.slot]:
            weights = self._weights(e, side)
            slopes = ["zeroinitializer"] * side.degrees
            for piece in side.pieces:
                each = 2 * piece.degree + 1
                raw = [e.load(memory, piece.coefficient + m) for m in range(each)]
                if piece.scale != 1.0:
                    raw = [e.op("fmul", value, e.constant(piece.scale)) for value in raw]
                if self.gradient:
                    total = slopes[piece.weight]
                    for value, own in zip(raw, self._features(e, self.slot, piece), strict=True):
                        total = e.fma(value, own, total)
                    slopes[piece.weight] = total
                if self.slot != G or not self.gradient:
                    base = self._base(e, "%out", self.slot, piece.offset, each, False)
                    collect(e, base, [e.op("fmul", value, weights[piece.weight]) for value in raw], add=True)
            if self.gradient:
                place = e.put(f"mul i64 {self.first}, {side.degrees}")
                collect(e, e.at(e.at(self.gradients, place), side.start), slopes, add=True)


def deal(e: _Emitter, base: str, k: int) -> list[str]:
    """Return k vectors of every k-th number from `base`."""
    if k > _DEALT:
        return native.read_rows(e, base, k, k)
    v, w = e.vector, e.lanes
    align = 4 if e.scalar == "float" else 8
    packed = [e.put(f"load {v}, ptr {e.at(base, t * w)}, align {align}") for t in range(k)]
    return [_pick(e, packed, [i * k + j for i in range(w)]) for j in range(k)]


def collect(e: _Emitter, base: str, columns: list[str], add: bool) -> None:
    """The reverse of `deal`, adding to what is there."""
    k = len(columns)
    if k > _DEALT:
        if add:
            before = native.read_rows(e, base, k, k)
            columns = [e.op("fadd", a, b) for a, b in zip(before, columns, strict=True)]
        native.write_rows(e, base, k, columns)
        return
    v, w = e.vector, e.lanes
    align = 4 if e.scalar == "float" else 8
    for t in range(k):
        # The number at place p of the block is lane p // k of column p % k.
        places = [t * w + i for i in range(w)]
        packed = _pick(e, columns, [p % k * w + p // k for p in places])
        address = e.at(base, t * w)
        if add:
            before_ = e.put(f"load {v}, ptr {address}, align {align}")
            packed = e.op("fadd", before_, packed)
        e.do(f"store {v} {packed}, ptr {address}, align {align}")


def _pick(e: _Emitter, vectors: list[str], wanted: list[int]) -> str:
    """One vector of chosen lanes, numbered through all vectors."""
    v, w = e.vector, e.lanes
    if len(vectors) == 1:
        return vectors[0]
    found = vectors[0]
    for t in range(1, len(vectors)):
        mask = []
        for i, p in enumerate(wanted):
            if p // w == t:
                mask.append(w + p % w)
            elif p // w == 0 and t == 1:
                mask.append(p)
            elif p // w < t:
                mask.append(i)
            else:
                mask.append(0)
        lanes = ", ".join(f"i32 {m}" for m in mask)
        found = e.put(f"shufflevector {v} {found}, {v} {vectors[t]}, <{w} x i32> <{lanes}>")
    return found


@cache
def compiled(spec: Spec, slot: int, gradient: bool, dtype: str) -> native.Function:
    """Return the machine code of a combination, solved for a slot; compiled once a process."""
    types = (ctypes.c_void_p,) * 6 + (ctypes.c_int64,) * 2
    form: Program = decode(spec.code)
    return native.compile_with(form, slot, dtype, Channels(spec, slot, gradient), types)


class Layer:
    """A plan whose every combination can be compiled, for a dtype; each function when it is first needed.

    Attributes:
        plan: the layer.
    """

    def __init__(self, plan: FusedPlan, dtype: torch.dtype) -> None:
        self.plan = plan
        self._dtype = str(dtype).removeprefix("torch.")
        self._specs = [spec_of(plan, combination) for combination in plan.combinations]
        self._work = [plan.channels * decode(spec.code).cost()["separable"] for spec in self._specs]
        self._functions: dict[tuple[int, int, bool], native.Function] = {}

    def forward(self, x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
        """Return the product of contiguous [rows, dim1] and [rows, dim2] with weights [n] or [rows, n]."""
        out = x.new_zeros(x.shape[0], self.plan.irreps_out.dim)
        for number in range(len(self._specs)):
            self._run(number, G, False, x, y, out, out, weight, weight)
        return out

    def gradients(
        self, x: Tensor, y: Tensor, weight: Tensor, upstream: Tensor, wanted: tuple[bool, bool, bool]
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return the gradients of x, y and the weights, as far as they are wanted."""
        gx = torch.zeros_like(x) if wanted[0] or wanted[2] else None
        gy = torch.zeros_like(y) if wanted[1] or wanted[2] else None
        rows = weight.new_zeros(x.shape[0], weight.shape[-1]) if wanted[2] else weight
        for number in range(len(self._specs)):
            if gx is not None:
                self._run(number, X, wanted[2], x, y, upstream, gx, weight, rows)
            if gy is not None:
                self._run(number, Y, wanted[2], x, y, upstream, gy, weight, rows)
            if wanted[2]:
                self._run(number, G, True, x, y, upstream, upstream, weight, rows)
        gw = None
        if wanted[2]:
            gw = rows if weight.ndim == 2 else rows.sum(0)
        return gx if wanted[0] else None, gy if wanted[1] else None, gw

    def _run(
        self, number: int, slot: int, slopes: bool, x: Tensor, y: Tensor, g: Tensor, out: Tensor, w: Tensor, gw: Tensor
    ) -> None:
        spec = self._specs[number]
        key = number, slot, slopes
        function = self._functions.get(key)
        if function is None:
            function = self._functions[key] = compiled(spec, slot, slopes, self._dtype)
        a_row = spec.channels // function.lanes
        n = w.shape[-1]
        stride = n if w.ndim == 2 else 0
        size = x.element_size()
        rows = x.shape[0]
        features = (
            (x.data_ptr(), spec.dims[X] * size),
            (y.data_ptr(), spec.dims[Y] * size),
            (g.data_ptr(), spec.dims[G] * size),
            (out.data_ptr(), spec.dims[slot] * size),
            (w.data_ptr(), stride * size),
            (gw.data_ptr(), n * size),
        )

        def run(start: int, stop: int) -> None:
            function(*(p + start * each for p, each in features), stride, n, blocks=(stop - start) * a_row)

        native.in_parts(run, rows, rows * self._work[number])


def layer_of(plan: FusedPlan, layout: str, dtype: torch.dtype) -> Layer | None:
    """Return the compiled layer of a plan, or None where it does not fit one."""
    lanes = native.lanes_of(str(dtype).removeprefix("torch."))
    if plan.rank != 1 or layout != "mul_ir" or plan.channels % lanes:
        return None
    forms = [decode(combination.code) for combination in plan.combinations]
    if not all(form.is_separable and max(form.bands) <= native.MAX_BAND for form in forms):
        return None
    return Layer(plan, dtype)
