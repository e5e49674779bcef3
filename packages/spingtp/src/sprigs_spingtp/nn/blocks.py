"""Convolution over edges, many-body products, and the two together."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import IncompleteProductWarning, SpinTPError
from ..irreps import Irreps
from ..layers import SpinTensorProduct
from ..plan import channels_of
from .linear import IrrepsLinear
from .radial import RadialNetwork

PRODUCTS = ("spin", "gaunt", "cg")


def make_product(product: str, irreps_in1: Any, irreps_in2: Any, irreps_out: Any, **options: Any) -> SpinTensorProduct:
    """Return a channel-wise product by name; outputs that it cannot reach are left out.

    Args:
        product: "spin" (complete, fused), "gaunt" (scalar fields alone) or "cg" (a weight for every path).
        irreps_in1, irreps_in2, irreps_out: see `SpinTensorProduct`.
        options: for `SpinTensorProduct`.

    Raises:
        SpinTPError: Another name.
    """
    if product not in PRODUCTS:
        raise SpinTPError(f"product must be one of {', '.join(PRODUCTS)}; got {product!r}")
    one, two, out = Irreps(irreps_in1), Irreps(irreps_in2), Irreps(irreps_out)
    reach = {(l, a.ir.p * b.ir.p) for a in one for b in two for l in range(abs(a.ir.l - b.ir.l), a.ir.l + b.ir.l + 1)}
    out = Irreps([block for block in out if tuple(block.ir) in reach])
    choice: dict[str, Any] = {"spin": {}, "gaunt": {"spins": "gaunt"}, "cg": {"mode": "paths"}}[product]
    with warnings.catch_warnings():
        if product == "gaunt":
            warnings.simplefilter("ignore", IncompleteProductWarning)
        return SpinTensorProduct(one, two, out, **choice, **options)


class SpinConvolution(nn.Module):
    """Messages along edges: the product of the sender's features with the harmonics of the edge, weighted by distance.

        out_i = 1 / sqrt(neighbours) sum over j:  product(h_j, Y(r_ij); weights = network(|r_ij|))

    Args:
        irreps_in: of the nodes, equal multiplicities.
        irreps_edge: of the edges, multiplicity 1: 1x0e + 1x1o + ...
        irreps_out: wanted; what no path reaches is left out of `irreps_out`.
        radial: size of the radial basis.
        hidden: widths of the radial network.
        neighbours: average number of neighbours.
        product: see `make_product`.
        options: for the product.
    """

    def __init__(
        self,
        irreps_in: Any,
        irreps_edge: Any,
        irreps_out: Any,
        *,
        radial: int = 8,
        hidden: tuple[int, ...] = (32, 32),
        neighbours: float = 1.0,
        product: str = "spin",
        **options: Any,
    ) -> None:
        super().__init__()
        self.product = make_product(
            product, irreps_in, irreps_edge, irreps_out, internal_weights=False, shared_weights=False, **options
        )
        self.irreps_in, self.irreps_out = self.product.irreps_in1, self.product.irreps_out
        self.network = RadialNetwork((radial, *hidden, self.product.weight_numel))
        self.neighbours = float(neighbours)
        # Of a fused product's three factors, those on the inputs begin near one; the one on the output vanishes at the
        # cutoff, and the message with it. Three factors of order one each would make messages of any size.
        offset = self.product.input_weights().to(torch.get_default_dtype())
        self.register_buffer("offset", offset, persistent=False)
        with torch.no_grad():
            self.network.layers[-1][:, offset == 1] *= 0.1

    def forward(self, nodes: Tensor, edges: Tensor, radial: Tensor, senders: Tensor, receivers: Tensor) -> Tensor:
        """Pass messages.

        Args:
            nodes: features [N, irreps_in.dim].
            edges: harmonics [E, irreps_edge.dim].
            radial: basis of the distances [E, radial].
            senders, receivers: indices [E], int64.

        Returns:
            [N, irreps_out.dim].
        """
        messages = self.product(nodes[senders], edges, self.network(radial) + self.offset)
        out = messages.new_zeros(nodes.shape[0], messages.shape[1])
        return out.index_add(0, receivers, messages) / self.neighbours**0.5


class SymmetricSpinProduct(nn.Module):
    """Many-body features: A, A x A', and A x A' x A'', each mixed into the output.

    The factors are channel mixes A', A'' of A with weights of their own: the antisymmetric product of a channel with
    itself is zero. The triple product keeps all degrees up to twice those of A in between, so that it equals the
    product of three functions on a grid fine enough for them.

    Args:
        irreps_in: equal multiplicities.
        irreps_out: wanted.
        correlation: 1, 2 or 3.
        product: see `make_product`.
        options: for the products.

    Raises:
        SpinTPError: Another correlation.
    """

    def __init__(
        self, irreps_in: Any, irreps_out: Any, *, correlation: int = 2, product: str = "spin", **options: Any
    ) -> None:
        super().__init__()
        if correlation not in (1, 2, 3):
            raise SpinTPError(f"correlation must be 1, 2 or 3; got {correlation}")
        one = Irreps(irreps_in)
        self.irreps_in = one
        channels = channels_of(one, "irreps_in")
        degrees = one.lmax
        self.mixes = nn.ModuleList(IrrepsLinear(one, one) for _ in range((0, 2, 3)[correlation - 1]))
        self.products = nn.ModuleList()
        terms = [one]
        if correlation >= 2:
            lmax = degrees if correlation == 2 else 2 * degrees
            everything = Irreps([(channels, (l, p)) for l in range(lmax + 1) for p in (1, -1)])
            wanted = Irreps(irreps_out) if correlation == 2 else everything
            wanted = Irreps([(channels, block.ir) for block in wanted])
            self.products.append(make_product(product, one, one, wanted, **options))
            terms.append(self.products[0].irreps_out)
        if correlation == 3:
            wanted = Irreps([(channels, block.ir) for block in Irreps(irreps_out)])
            self.products.append(make_product(product, terms[-1], one, wanted, **options))
            terms.append(self.products[1].irreps_out)
        reached = {block.ir for term in terms for block in term}
        self.irreps_out = Irreps([block for block in Irreps(irreps_out) if block.ir in reached])
        self.linears = nn.ModuleList(
            IrrepsLinear(term, self.irreps_out)
            for term in terms
            if {b.ir for b in term} & {b.ir for b in self.irreps_out}
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map [..., irreps_in.dim] to [..., irreps_out.dim]."""
        terms = [x]
        if self.products:
            terms.append(self.products[0](self.mixes[0](x), self.mixes[1](x)))
        if len(self.products) > 1:
            terms.append(self.products[1](terms[-1], self.mixes[2](x)))
        sums = [linear(term) for linear, term in zip(self.linears, terms, strict=True)]
        return torch.stack(sums).sum(0) / len(sums) ** 0.5


class SpinInteractionBlock(nn.Module):
    """One layer: mix channels, convolve, many-body product, and a residual that depends on the species.

    Args:
        irreps_in, irreps_edge, irreps_out: of nodes, edges and the new nodes.
        irreps_messages: of the messages; as `irreps_out` by default.
        species: number of species.
        correlation, product, neighbours, radial, hidden, options: see the parts.
    """

    def __init__(
        self,
        irreps_in: Any,
        irreps_edge: Any,
        irreps_out: Any,
        *,
        species: int,
        irreps_messages: Any = None,
        correlation: int = 2,
        product: str = "spin",
        neighbours: float = 1.0,
        radial: int = 8,
        hidden: tuple[int, ...] = (32, 32),
        **options: Any,
    ) -> None:
        super().__init__()
        one = Irreps(irreps_in)
        wanted = irreps_out if irreps_messages is None else irreps_messages
        self.up = IrrepsLinear(one, one)
        self.convolution = SpinConvolution(
            one, irreps_edge, wanted, radial=radial, hidden=hidden, neighbours=neighbours, product=product, **options
        )
        middle = self.convolution.irreps_out
        self.mix = IrrepsLinear(middle, middle)
        self.many_body = SymmetricSpinProduct(middle, irreps_out, correlation=correlation, product=product, **options)
        self.irreps_in, self.irreps_out = one, self.many_body.irreps_out
        kept = [block for block in one if block.ir in {b.ir for b in self.irreps_out}]
        self.residual = IrrepsLinear(kept, self.irreps_out)
        self._kept = one.slices(), [block in kept for block in one]
        self.by_species = nn.Parameter(torch.ones(species, len(kept)))
        self._muls = [block.dim for block in kept]

    def forward(
        self, nodes: Tensor, species: Tensor, edges: Tensor, radial: Tensor, senders: Tensor, receivers: Tensor
    ) -> Tensor:
        """Update features [N, irreps_in.dim] of atoms of `species` [N] to [N, irreps_out.dim]."""
        messages = self.convolution(self.up(nodes), edges, radial, senders, receivers)
        new = self.many_body(self.mix(messages))
        slices, keep = self._kept
        kept = [nodes[:, where] for where, k in zip(slices, keep, strict=True) if k]
        scales = self.by_species[species]
        kept = [piece * scales[:, k : k + 1] for k, piece in enumerate(kept)]
        return (new + self.residual(torch.cat(kept, dim=-1))) / 2**0.5
