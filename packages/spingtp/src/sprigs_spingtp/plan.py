"""How a layer splits irreps into products on the sphere: shared by torch and JAX, arrays in NumPy.

Naturalness n = p (-1)^l tells the parities that functions on the sphere have (0e, 1o, 2e, ...: natural) from the others
(0o, 1e, 2o, ...: pseudo). A symmetric path has n3 = n1 n2, an antisymmetric one n3 = -n1 n2; so inputs with both parts
take four products, and natural ones alone take one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from .errors import SpinTPError
from .irreps import Block, Irrep, Irreps
from .programs import Kind, encode
from .tables import Array, Indices
from .three_j import in_triangle, kappa, spin_kappa


class Path(NamedTuple):
    """One path of a layer: irreps of the inputs and the output, and through which fields."""

    ir1: Irrep
    ir2: Irrep
    ir_out: Irrep
    kind: Kind

    def __str__(self) -> str:
        s1, s2, part = self.kind
        return f"{self.ir1} x {self.ir2} -> {self.ir_out} ({part}, spins {s1} {s2})"


@dataclass(frozen=True)
class Part:
    """The blocks of one naturalness: features [..., channels, n], degrees ascending.

    Attributes:
        natural: 1 or -1; 0 where naturalness is ignored.
        degrees: ascending.
        blocks: index of each degree's block in the irreps.
        expand: [degrees, n], which spreads a weight for each degree over its coefficients (and, with
            irrep_normalization="norm", gives them unit variance).
    """

    natural: int
    degrees: tuple[int, ...]
    blocks: tuple[int, ...]
    expand: Array


@dataclass(frozen=True)
class Output:
    """Where one kind of a combination goes.

    Attributes:
        kind: index into the program's outputs.
        part: index into the plan's output parts.
        degrees: those it reaches.
        expand: [degrees, n3], which spreads weights over coefficients and makes the variance one; zero where nothing
            is reached or wanted.
        weights: slice of the flat weights, [channels, rank, degrees].
    """

    kind: int
    part: int
    degrees: tuple[int, ...]
    expand: Array
    weights: slice


@dataclass(frozen=True)
class Combination:
    """A product of one part of each input, with weights of its own."""

    part1: int
    part2: int
    code: str
    kinds: tuple[Kind, ...]
    weights1: slice
    weights2: slice
    outputs: tuple[Output, ...]


@dataclass(frozen=True)
class FusedPlan:
    """A rank-R product: w1 on the first input, w2 on the second, w3 on each kind of the output.

    Attributes:
        irreps_in1, irreps_in2, irreps_out: as given.
        channels: of the first input and the output.
        channels2: of the second input: the same, or 1, which serves every channel.
        rank: R.
        parts1, parts2, parts_out: their parts.
        degrees_out: of every product: those of the output, ascending; n3 coefficients in all.
        combinations: the products.
        weight_numel: length of the flat weights.
        paths: every path, with its coefficient of the Wigner 3j tensor before weights.
    """

    irreps_in1: Irreps
    irreps_in2: Irreps
    irreps_out: Irreps
    channels: int
    channels2: int
    rank: int
    parts1: tuple[Part, ...]
    parts2: tuple[Part, ...]
    parts_out: tuple[Part, ...]
    degrees_out: tuple[int, ...]
    combinations: tuple[Combination, ...]
    weight_numel: int
    paths: tuple[tuple[Path, float], ...]


def gather_index(irreps: Irreps, part: Part, layout: str) -> Indices:
    """Return where each coefficient of a part lies in the features, [channels, n]."""
    slices = irreps.slices()
    pieces = []
    for degree, block in zip(part.degrees, part.blocks, strict=True):
        mul, dim = irreps[block].mul, 2 * degree + 1
        at = slices[block].start + np.arange(mul * dim)
        pieces.append(at.reshape(mul, dim) if layout == "mul_ir" else at.reshape(dim, mul).T)
    return np.concatenate(pieces, axis=1)


def scatter_index(plan: FusedPlan, layout: str) -> Indices:
    """Return, for each feature of the output, where it lies in the parts [channels, parts * n3], flattened."""
    n3 = sum(2 * l + 1 for l in plan.degrees_out)
    out = np.empty(plan.irreps_out.dim, np.int64)
    for p, part in enumerate(plan.parts_out):
        columns = p * n3 + np.array(_columns(plan.degrees_out, part.degrees))
        rows = np.arange(plan.channels)[:, None] * (len(plan.parts_out) * n3)
        out[gather_index(plan.irreps_out, part, layout)] = rows + columns
    return out


def channels_of(irreps: Irreps, name: str) -> int:
    """Return the multiplicity that all blocks share.

    Raises:
        SpinTPError: There are several, or no blocks.
    """
    found = sorted({block.mul for block in irreps})
    if len(found) != 1:
        raise SpinTPError(
            f"a channel-wise product needs equal multiplicities; {name} = '{irreps}' has {found or 'no irreps'}:"
            " put a spingtp.nn.IrrepsLinear before it"
        )
    return found[0]


def split(irreps: Irreps, name: str, so3: bool) -> tuple[Part, ...]:
    """Return natural and pseudo part, as far as they are there; one part of all where parity is ignored.

    Raises:
        SpinTPError: An irrep stands twice.
    """
    out = []
    for natural in (0,) if so3 else (1, -1):
        found = sorted(
            ((block.ir.l, i) for i, block in enumerate(irreps) if so3 or block.ir.natural == natural),
        )
        degrees = tuple(l for l, _ in found)
        if len(set(degrees)) != len(degrees):
            what = "a degree (so3=True ignores parity)" if so3 else "an irrep"
            raise SpinTPError(f"{name} = '{irreps}' has {what} more than once: merge its channels into one block")
        if found:
            out.append(
                Part(natural, degrees, tuple(i for _, i in found), _spread(degrees, degrees, [1.0] * len(degrees)))
            )
    return tuple(out)


def fused_plan(
    irreps_in1: Irreps,
    irreps_in2: Irreps,
    irreps_out: Irreps,
    kinds: tuple[Kind, ...],
    rank: int = 1,
    irrep_normalization: str = "component",
    so3: bool = False,
    tied: bool = False,
) -> FusedPlan:
    """Plan a rank-R product.

    Raises:
        SpinTPError: Multiplicities differ, an irrep stands twice, an output cannot be reached, or the rank is no
            positive integer.
    """
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
        raise SpinTPError(f"rank must be a positive integer; got {rank!r}")
    _check_normalization(irrep_normalization)
    channels = channels_of(irreps_in1, "irreps_in1")
    channels2 = channels_of(irreps_in2, "irreps_in2")
    out_channels = channels_of(irreps_out, "irreps_out")
    if out_channels != channels or channels2 not in (1, channels):
        raise SpinTPError(
            f"a channel-wise product needs equal multiplicities (1 will do for irreps_in2); got {channels}, {channels2}"
            f" and {out_channels}: put a spingtp.nn.IrrepsLinear before or after it"
        )
    if tied and (channels2 != channels or irreps_in1 != irreps_in2):
        raise SpinTPError(f"a (anti)symmetric product needs equal inputs; got '{irreps_in1}' and '{irreps_in2}'")
    parts1, parts2 = split(irreps_in1, "irreps_in1", so3), split(irreps_in2, "irreps_in2", so3)
    parts_out = split(irreps_out, "irreps_out", so3)
    degrees_out = tuple(sorted({l for part in parts_out for l in part.degrees}))

    # Which outputs each combination and kind reaches, and how strongly.
    reached: dict[tuple[int, int, int], list[tuple[int, int, float]]] = {}
    paths: list[tuple[int, int, Path, int, float]] = []
    for a, one in enumerate(parts1):
        for b, two in enumerate(parts2):
            for k, (s1, s2, name) in enumerate(kinds):
                turn = 1 if name == "even" else -1
                for c, out in enumerate(parts_out):
                    if not so3 and out.natural != one.natural * two.natural * turn:
                        continue
                    for l3 in out.degrees:
                        power = 0.0
                        for l1 in one.degrees:
                            for l2 in two.degrees:
                                strength = _strength(l1, l2, l3, s1, s2, name)
                                if abs(strength) > 1e-12:
                                    power += strength**2 / (2 * l3 + 1)
                                    irs = (
                                        _irrep(irreps_in1, one, l1),
                                        _irrep(irreps_in2, two, l2),
                                        _irrep(irreps_out, out, l3),
                                    )
                                    paths.append((a, b, Path(*irs, (s1, s2, name)), c, strength))
                        if power > 0:
                            reached.setdefault((a, b, k), []).append((c, l3, power))
    arrivals: dict[tuple[int, int], int] = {}
    for targets in reached.values():
        for c, l3, _ in targets:
            arrivals[c, l3] = arrivals.get((c, l3), 0) + 1
    for c, out in enumerate(parts_out):
        for l3 in out.degrees:
            if (c, l3) not in arrivals:
                ir = _irrep(irreps_out, out, l3)
                raise SpinTPError(
                    f"no path leads from '{irreps_in1}' and '{irreps_in2}' to {ir}"
                    + ("" if len(kinds) > 1 else f" through {kinds[0][2]} products alone")
                )

    start = 0

    def take(*shape: int) -> slice:
        nonlocal start
        begin, start = start, start + math.prod(shape)
        return slice(begin, start)

    norms: dict[tuple[int, int, int, int], float] = {}
    made: dict[tuple[int, int], Combination] = {}
    for a, one in enumerate(parts1):
        for b, two in enumerate(parts2):
            used = [k for k in range(len(kinds)) if (a, b, k) in reached]
            if not used:
                continue
            code = encode(one.degrees, two.degrees, degrees_out, tuple(kinds[k] for k in used))
            # Of equal inputs, x+ y- and x- y+ share weights: exchanging the inputs changes at most the sign.
            twin = made.get((b, a)) if tied and a != b else None
            if twin is not None:
                weights1, weights2 = twin.weights2, twin.weights1
            else:
                weights1 = take(channels, rank, len(one.degrees))
                weights2 = weights1 if tied and a == b else take(channels, rank, len(two.degrees))
            outputs: list[Output] = []
            for number, k in enumerate(used):
                targets = reached[a, b, k]
                c = targets[0][0]
                these = tuple(l3 for _, l3, _ in targets)
                scale = []
                for _, l3, power in targets:
                    norm = 1 / math.sqrt(power * arrivals[c, l3] * rank)
                    if irrep_normalization == "norm":
                        norm /= math.sqrt(2 * l3 + 1)
                    norms[a, b, k, l3] = norm
                    scale.append(norm)
                outputs.append(
                    Output(
                        number,
                        c,
                        these,
                        _spread(these, degrees_out, scale),
                        twin.outputs[number].weights if twin else take(channels, rank, len(these)),
                    )
                )
            made[a, b] = Combination(a, b, code, tuple(kinds[k] for k in used), weights1, weights2, tuple(outputs))
    normed = irrep_normalization == "norm"
    if normed:
        parts1, parts2 = (
            tuple(replace(p, expand=p.expand * np.sqrt([[2 * l + 1] for l in p.degrees])) for p in parts)
            for parts in (parts1, parts2)
        )
    coefficients = []
    for a, b, path, _, strength in paths:
        value = strength * norms[a, b, kinds.index(path.kind), path.ir_out.l]
        coefficients.append((path, value * math.sqrt(path.ir1.dim * path.ir2.dim) if normed else value))
    return FusedPlan(
        irreps_in1,
        irreps_in2,
        irreps_out,
        channels,
        channels2,
        rank,
        parts1,
        parts2,
        parts_out,
        degrees_out,
        tuple(made.values()),
        start,
        tuple(coefficients),
    )


@dataclass(frozen=True)
class Instruction:
    """One path with a weight of its own, as e3nn has them.

    Attributes:
        block1, block2, block_out: indices into the irreps.
        coefficient: of the Wigner 3j tensor.
        weights: slice of the flat weights, one for each channel; None without weights.
    """

    block1: int
    block2: int
    block_out: int
    coefficient: float
    weights: slice | None


@dataclass(frozen=True)
class Pair:
    """All paths of a pair of blocks: one product with every kind merged.

    Attributes:
        code: of the program, for the degrees of `outputs`.
        block1, block2: indices into the irreps.
        outputs: (instruction, columns of the product, coefficient over kappa).
    """

    code: str
    block1: int
    block2: int
    outputs: tuple[tuple[Instruction, slice, float], ...]


@dataclass(frozen=True)
class PathPlan:
    """Products with separately weighted paths.

    Attributes:
        mode: "uuu" (channel by channel; a second input of one channel serves all) or "uvuv" (all pairs of channels).
    """

    irreps_in1: Irreps
    irreps_in2: Irreps
    irreps_out: Irreps
    mode: str
    pairs: tuple[Pair, ...]
    weight_numel: int
    paths: tuple[tuple[Path, float], ...]


def path_plan(
    irreps_in1: Irreps,
    irreps_in2: Irreps,
    irreps_out: Irreps,
    instructions: Sequence[tuple[int, int, int, float, bool]],
    mode: str,
    kinds: tuple[Kind, ...],
) -> PathPlan:
    """Plan products from (block1, block2, block_out, coefficient, weighted).

    Raises:
        SpinTPError: A path breaks the triangle or parity, multiplicities do not fit, or no path is there.
    """
    if not instructions:
        raise SpinTPError(f"no path leads from '{irreps_in1}' and '{irreps_in2}' to '{irreps_out}'")
    start = 0
    by_pair: dict[tuple[int, int], list[Instruction]] = {}
    paths = []
    for i, j, k, coefficient, weighted in instructions:
        one, two, out = irreps_in1[i], irreps_in2[j], irreps_out[k]
        _check_path(one, two, out, mode)
        mul = out.mul
        weights = None
        if weighted:
            weights = slice(start, start + mul)
            start += mul
        instruction = Instruction(i, j, k, coefficient, weights)
        by_pair.setdefault((i, j), []).append(instruction)
        kind = kinds[(one.ir.l + two.ir.l + out.ir.l) % 2]
        paths.append((Path(one.ir, two.ir, out.ir, kind), coefficient))
    pairs = []
    for (i, j), members in by_pair.items():
        l1, l2 = irreps_in1[i].ir.l, irreps_in2[j].ir.l
        degrees = tuple(sorted({irreps_out[m.block_out].ir.l for m in members}))
        starts = np.cumsum([0, *(2 * l + 1 for l in degrees)])
        needed = tuple(kind for k, kind in enumerate(kinds) if any((l1 + l2 + l3) % 2 == k for l3 in degrees))
        outputs = []
        for m in members:
            l3 = irreps_out[m.block_out].ir.l
            at = degrees.index(l3)
            outputs.append((m, slice(int(starts[at]), int(starts[at + 1])), m.coefficient / kappa(l1, l2, l3)))
        pairs.append(Pair(encode((l1,), (l2,), degrees, needed, True), i, j, tuple(outputs)))
    return PathPlan(irreps_in1, irreps_in2, irreps_out, mode, tuple(pairs), start, tuple(paths))


def channelwise_instructions(
    irreps_in1: Irreps, irreps_in2: Irreps, irreps_out: Irreps, irrep_normalization: str, odd: bool
) -> list[tuple[int, int, int, float, bool]]:
    """Return every path into every block of the output, normalised as e3nn does ("element").

    Raises:
        SpinTPError: A block of the output cannot be reached.
    """
    _check_normalization(irrep_normalization)
    found: list[tuple[int, int, int]] = []
    for i, one in enumerate(irreps_in1):
        for j, two in enumerate(irreps_in2):
            for k, out in enumerate(irreps_out):
                allowed = in_triangle(one.ir.l, two.ir.l, out.ir.l) and one.ir.p * two.ir.p == out.ir.p
                if allowed and (odd or (one.ir.l + two.ir.l + out.ir.l) % 2 == 0):
                    found.append((i, j, k))
    counts = [sum(k == target for _, _, k in found) for target in range(len(irreps_out))]
    for k, count in enumerate(counts):
        if not count:
            raise SpinTPError(f"no path leads from '{irreps_in1}' and '{irreps_in2}' to {irreps_out[k].ir}")
    out_list = []
    for i, j, k in found:
        alpha = float(irreps_out[k].ir.dim)
        if irrep_normalization == "norm":
            alpha = float(irreps_in1[i].ir.dim * irreps_in2[j].ir.dim)
        out_list.append((i, j, k, math.sqrt(alpha / counts[k]), True))
    return out_list


def full_instructions(
    irreps_in1: Irreps, irreps_in2: Irreps, filter_ir_out: Sequence[Irrep] | None, irrep_normalization: str
) -> tuple[Irreps, list[tuple[int, int, int, float, bool]]]:
    """Return the output and the paths of all pairs of channels, in the order of e3nn's `FullTensorProduct`."""
    _check_normalization(irrep_normalization)
    found = []
    for i, one in enumerate(irreps_in1):
        for j, two in enumerate(irreps_in2):
            for l3 in range(abs(one.ir.l - two.ir.l), one.ir.l + two.ir.l + 1):
                ir = Irrep(l3, one.ir.p * two.ir.p)
                if filter_ir_out is None or ir in filter_ir_out:
                    found.append((ir, one.mul * two.mul, i, j))
    order = sorted(range(len(found)), key=lambda q: (found[q][0].l, found[q][0].p))
    out = Irreps([(found[q][1], found[q][0]) for q in order])
    place = {q: k for k, q in enumerate(order)}
    instructions = []
    for q, (ir, _, i, j) in enumerate(found):
        alpha = ir.dim
        if irrep_normalization == "norm":
            alpha = irreps_in1[i].ir.dim * irreps_in2[j].ir.dim
        instructions.append((i, j, place[q], math.sqrt(alpha), False))
    return out, instructions


def _check_path(one: Block, two: Block, out: Block, mode: str) -> None:
    if not in_triangle(one.ir.l, two.ir.l, out.ir.l) or one.ir.p * two.ir.p != out.ir.p:
        raise SpinTPError(f"{one.ir} x {two.ir} -> {out.ir} is no path")
    if mode == "uvuv":
        if out.mul != one.mul * two.mul:
            raise SpinTPError(f"{one.mul} times {two.mul} channels give {one.mul * two.mul}, not {out.mul}")
    elif out.mul != one.mul or two.mul not in (1, one.mul):
        raise SpinTPError(
            f"a channel-wise product needs equal multiplicities (1 will do for the second input); a path has {one.mul},"
            f" {two.mul} and {out.mul}: put a spingtp.nn.IrrepsLinear before or after it"
        )


def _check_normalization(name: str) -> None:
    if name not in ("component", "norm"):
        raise SpinTPError(f"irrep_normalization must be 'component' or 'norm'; got {name!r}")


def _strength(l1: int, l2: int, l3: int, s1: int, s2: int, part: str) -> float:
    return spin_kappa(l1, l2, l3, s1, s2) if ((l1 + l2 + l3) % 2 == 1) == (part == "odd") else 0.0


def _irrep(irreps: Irreps, part: Part, degree: int) -> Irrep:
    return irreps[part.blocks[part.degrees.index(degree)]].ir


def _columns(degrees: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
    starts = dict(zip(degrees, np.cumsum([0, *(2 * l + 1 for l in degrees[:-1])]).tolist(), strict=True))
    return tuple(starts[l] + m for l in wanted for m in range(2 * l + 1))


def _spread(degrees: Sequence[int], onto: Sequence[int], values: Sequence[float]) -> Array:
    """[degrees, coefficients of `onto`]: the value of a degree on each of its coefficients, zero elsewhere."""
    onto_each = [k for k in onto for _ in range(2 * k + 1)]
    return np.array([[value * (l == k) for k in onto_each] for l, value in zip(degrees, values, strict=True)])
