"""Irreps as e3nn writes them, without needing e3nn."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, NamedTuple

from .errors import SpinTPError
from .tables import MAX_DEGREE

_TERM = re.compile(r"(?:(\d+)\s*x\s*)?(\d+)\s*([eo])")


class Irrep(NamedTuple):
    """A degree l and a parity p = 1 (e) or -1 (o) of O(3)."""

    l: int
    p: int

    @property
    def dim(self) -> int:
        """2l + 1."""
        return 2 * self.l + 1

    @property
    def natural(self) -> int:
        """Naturalness p (-1)^l: 1 for 0e, 1o, 2e, ..., -1 for 0o, 1e, 2o, ..."""
        return -self.p if self.l % 2 else self.p

    def __str__(self) -> str:
        return f"{self.l}{'e' if self.p > 0 else 'o'}"


class Block(NamedTuple):
    """A multiplicity and an irrep; e3nn's `Irreps` accepts a list of them."""

    mul: int
    ir: Irrep

    @property
    def dim(self) -> int:
        """Multiplicity times 2l + 1."""
        return self.mul * self.ir.dim


class Irreps(tuple[Block, ...]):
    """Blocks of irreps, in the order of the features.

    >>> Irreps("16x0e + 16x1o").dim
    64

    Accepts a string, an `e3nn.o3.Irreps`, an `e3nn_jax.Irreps`, or a sequence of (multiplicity, irrep); `str` of it is
    what e3nn's own constructors read.

    Raises:
        SpinTPError: It cannot be read, a degree is beyond 20, or a multiplicity is zero.
    """

    def __new__(cls, irreps: Any) -> Irreps:
        """Parse."""
        if isinstance(irreps, Irreps):
            return irreps
        if type(irreps) in (list, tuple):
            terms = [(mul, Irrep(*ir) if type(ir) is tuple else ir) for mul, ir in irreps]
            irreps = "+".join(f"{mul}x{ir}" for mul, ir in terms)
        text = str(irreps).strip()
        blocks = []
        for term in text.split("+") if text else []:
            match = _TERM.fullmatch(term.strip())
            if match is None:
                raise SpinTPError(f"cannot read {term.strip()!r} in irreps {text!r}; write like '16x0e + 8x1o'")
            blocks.append(_block(int(match[1] or 1), int(match[2]), 1 if match[3] == "e" else -1))
        return tuple.__new__(cls, blocks)

    @property
    def dim(self) -> int:
        """Number of features."""
        return sum(block.dim for block in self)

    @property
    def lmax(self) -> int:
        """Highest degree.

        Raises:
            SpinTPError: There are no irreps.
        """
        if not self:
            raise SpinTPError("there are no irreps")
        return max(block.ir.l for block in self)

    def slices(self) -> list[slice]:
        """Where each block lies in the features."""
        ends = [0]
        for block in self:
            ends.append(ends[-1] + block.dim)
        return [slice(a, b) for a, b in pairwise(ends)]

    def randn(self, *shape: int, generator: Any = None, **options: Any) -> Any:
        """Return normal random features: a -1 in the shape becomes the dimension, as in e3nn."""
        import torch

        return torch.randn(*(self.dim if n == -1 else n for n in shape), generator=generator, **options)

    def __repr__(self) -> str:
        return f"Irreps({str(self)!r})"

    def __str__(self) -> str:
        return "+".join(f"{block.mul}x{block.ir}" for block in self)


def _block(mul: int, l: int, p: int) -> Block:
    if mul < 1:
        raise SpinTPError(f"a multiplicity must be at least 1; got {mul}")
    if not 0 <= l <= MAX_DEGREE:
        raise SpinTPError(f"degrees go from 0 to {MAX_DEGREE}; got {l}")
    if p not in (1, -1):
        raise SpinTPError(f"a parity is 1 (e) or -1 (o); got {p}")
    return Block(mul, Irrep(l, p))


def spherical_harmonics_irreps(lmax: int) -> Irreps:
    """Return 1x0e + 1x1o + 1x2e + ..., the irreps of the harmonics of a vector."""
    return Irreps([(1, (l, (-1) ** l)) for l in range(lmax + 1)])
