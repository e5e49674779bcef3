"""An energy and its forces: an equivariant network over atoms and their neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import SpinTPError
from ..harmonics import spherical_harmonics
from ..irreps import Irrep, Irreps, spherical_harmonics_irreps
from .blocks import SpinInteractionBlock
from .radial import RadialBasis


class OddReadout(nn.Module):
    """A number that a mirror turns to its negative: bounded odd functions of pseudoscalars, weighted by even ones."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.mix = nn.Linear(channels, channels, bias=False)
        self.gate = nn.Sequential(nn.Linear(channels, channels), nn.SiLU(), nn.Linear(channels, channels))

    def forward(self, odd: Tensor, even: Tensor) -> Tensor:
        """Return [N] of pseudoscalars and scalars [N, channels]."""
        return (torch.tanh(self.mix(odd)) * self.gate(even)).sum(1)


class SpinForceField(nn.Module):
    """A message-passing force field of few layers, with conservative forces.

        E = sum over atoms:  E0[species] + shift + scale * readouts(features of each layer)

    Args:
        species: atomic numbers that it knows.
        r_max: cutoff, angstrom.
        lmax: highest degree of features and edges.
        channels: of each irrep.
        layers: number of interactions.
        correlation: order of the many-body products, 1 to 3.
        product: "spin", "gaunt" or "cg", see `make_product`.
        neighbours: average number of neighbours, from the training set.
        atomic_energies: E0 of each species, eV.
        scale: of the interaction energy of an atom, eV: the training set's force RMS is a good one.
        radial, hidden: size of the radial basis, widths of its networks.
        chiral_readout: make pseudoscalars (0o) as well: `forward` returns them as "pseudoscalar".
        options: for the products, such as rank= and backend=.

    Raises:
        SpinTPError: Options that do not fit.
    """

    index: Tensor
    atomic_energies: Tensor
    scale: Tensor

    def __init__(
        self,
        species: Sequence[int],
        r_max: float = 5.0,
        lmax: int = 2,
        channels: int = 16,
        layers: int = 2,
        *,
        correlation: int = 2,
        product: str = "spin",
        neighbours: float = 10.0,
        atomic_energies: Sequence[float] | None = None,
        scale: float = 1.0,
        radial: int = 8,
        hidden: tuple[int, ...] = (32, 32),
        chiral_readout: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        known = sorted(set(map(int, species)))
        if not known or layers < 1 or channels < 1:
            raise SpinTPError("a force field needs species, at least one layer and at least one channel")
        self.species, self.r_max, self.lmax = tuple(known), float(r_max), lmax
        self.config = {
            "species": known, "r_max": float(r_max), "lmax": lmax, "channels": channels, "layers": layers,
            "correlation": correlation, "product": product, "neighbours": float(neighbours), "scale": float(scale),
            "radial": radial, "hidden": list(hidden), "chiral_readout": chiral_readout, **options,
        }  # fmt: skip
        dtype = torch.get_default_dtype()
        energies = torch.zeros(len(known), dtype=torch.float64)
        if atomic_energies is not None:
            if len(atomic_energies) != len(known):
                raise SpinTPError(f"{len(known)} species need as many atomic energies; got {len(atomic_energies)}")
            by_number = dict(zip(map(int, species), atomic_energies, strict=True))
            energies = torch.tensor([float(by_number[z]) for z in known], dtype=torch.float64)
        index = torch.full((max(known) + 1,), -1)
        index[torch.tensor(known)] = torch.arange(len(known))
        self.register_buffer("index", index, False)
        self.register_buffer("atomic_energies", energies)
        self.register_buffer("scale", torch.tensor(float(scale), dtype=dtype))
        self.embedding = nn.Parameter(torch.randn(len(known), channels))
        self.basis = RadialBasis(r_max, radial)
        edges = spherical_harmonics_irreps(lmax)
        hidden_irreps = Irreps([(channels, (l, p)) for l in range(lmax + 1) for p in ((-1) ** l, -((-1) ** l))])
        scalars = Irreps([(channels, Irrep(0, 1)), *([(channels, Irrep(0, -1))] if chiral_readout else [])])
        self.blocks = nn.ModuleList()
        irreps = Irreps([(channels, (0, 1))])
        for k in range(layers):
            block = SpinInteractionBlock(
                irreps,
                edges,
                hidden_irreps if k < layers - 1 else scalars,
                irreps_messages=hidden_irreps,
                species=len(known),
                correlation=correlation,
                product=product,
                neighbours=neighbours,
                radial=radial,
                hidden=tuple(hidden),
                **options,
            )
            self.blocks.append(block)
            irreps = block.irreps_out
        self.readouts = nn.ModuleList(nn.Linear(channels, 1, bias=False) for _ in range(layers - 1))
        self.final = nn.Sequential(nn.Linear(channels, channels), nn.SiLU(), nn.Linear(channels, 1))
        self.pseudo = OddReadout(channels) if chiral_readout else None

    def _apply(self, fn: Any, recurse: bool = True) -> SpinForceField:
        # Total energies have more digits than float32: their part from isolated atoms stays float64.
        kept = self.atomic_energies
        super()._apply(fn, recurse)
        self.atomic_energies = kept.to(self.atomic_energies.device)
        return self

    def features(
        self, numbers: Tensor, vectors: Tensor, senders: Tensor, receivers: Tensor
    ) -> list[tuple[Tensor, Irreps]]:
        """Return the features of every layer, [N, dim] with their irreps."""
        species = self._species(numbers)
        # A padded or coincident edge has no direction.
        distance = vectors.norm(dim=-1)
        radial = self.basis(distance)
        edges = spherical_harmonics(self.lmax, vectors)
        nodes = self.embedding[species]
        out = []
        for block in self.blocks:
            nodes = block(nodes, species, edges, radial, senders, receivers)
            out.append((nodes, block.irreps_out))
        return out

    def forward(
        self,
        numbers: Tensor,
        positions: Tensor,
        senders: Tensor,
        receivers: Tensor,
        shifts: Tensor | None = None,
        batch: Tensor | None = None,
        *,
        forces: bool = True,
        training: bool = False,
    ) -> dict[str, Tensor]:
        """Return energies and forces.

        Args:
            numbers: atomic numbers [N], int64.
            positions: [N, 3], angstrom.
            senders, receivers: neighbours within r_max, [E]: the edge points from receiver to sender.
            shifts: of the senders by the periodic cell, [E, 3].
            batch: the system of each atom, [N], from 0; all of one by default.
            forces: whether to differentiate.
            training: keep the graph, so that a loss of the forces can be differentiated.

        Returns:
            "energy" [systems], eV, float64; "interaction" the same without atomic energies; "forces" [N, 3],
            eV/angstrom; "virial" [systems, 3, 3], the derivative of the energy by a strain, eV; with `chiral_readout`
            "pseudoscalar" [systems], which a mirror turns to its negative.

        Raises:
            SpinTPError: A species that it does not know.
        """
        batch = torch.zeros_like(numbers) if batch is None else batch
        systems = int(batch.max()) + 1 if len(batch) else 0
        with torch.set_grad_enabled(forces or torch.is_grad_enabled()):
            vectors = positions[senders] - positions[receivers]
            if shifts is not None:
                vectors = vectors + shifts
            if forces and not vectors.requires_grad:
                vectors.requires_grad_()
            layers = self.features(numbers, vectors, senders, receivers)
            channels = self.embedding.shape[1]
            atom = positions.new_zeros(len(numbers))
            for (nodes, irreps), readout in zip(layers[:-1], self.readouts, strict=True):
                atom = atom + readout(_scalars(nodes, irreps, channels, 1))[:, 0]
            last, irreps = layers[-1]
            atom = atom + self.final(_scalars(last, irreps, channels, 1))[:, 0]
            interaction = self.scale * positions.new_zeros(systems).index_add(0, batch, atom)
            out = {"interaction": interaction}
            if self.pseudo is not None:
                value = self.pseudo(_scalars(last, irreps, channels, -1), _scalars(last, irreps, channels, 1))
                out["pseudoscalar"] = positions.new_zeros(systems).index_add(0, batch, value)
            if forces:
                # By the edges, not the positions: forces and virial come from one derivative.
                (g,) = torch.autograd.grad(interaction.sum(), vectors, create_graph=training, retain_graph=training)
                zero = torch.zeros_like(positions)
                out["forces"] = zero.index_add(0, receivers, g).index_add(0, senders, -g)
                virial = positions.new_zeros(systems, 3, 3)
                out["virial"] = virial.index_add(0, batch[receivers], vectors[:, :, None] * g[:, None, :])
        isolated = self.atomic_energies[self._species(numbers)]
        baseline = torch.zeros(systems, dtype=torch.float64, device=isolated.device).index_add(0, batch, isolated)
        out["energy"] = interaction.double() + baseline
        return out if training else {name: value.detach() for name, value in out.items()}

    def _species(self, numbers: Tensor) -> Tensor:
        index = self.index
        inside = (numbers >= 0) & (numbers < len(index))
        found: Tensor = torch.where(inside, index[numbers.clamp(0, len(index) - 1)], -1)
        if not torch.compiler.is_compiling() and bool((found < 0).any()):
            strange = sorted(set(numbers[found < 0].tolist()))
            raise SpinTPError(f"this force field knows the atomic numbers {list(self.species)}; got {strange}")
        return found

    def ase_calculator(self, **options: Any) -> Any:
        """Return an ASE calculator of energy, forces and stress.

        Raises:
            BackendUnavailable: ASE is not installed.
        """
        from ..atoms import calculator

        return calculator(self, **options)


def _scalars(nodes: Tensor, irreps: Irreps, channels: int, parity: int) -> Tensor:
    for block, where in zip(irreps, irreps.slices(), strict=True):
        if block.ir == Irrep(0, parity):
            return nodes[:, where]
    return nodes.new_zeros(nodes.shape[0], channels)
