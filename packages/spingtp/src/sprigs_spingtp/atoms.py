"""Atoms in and forces out: neighbour lists, batches, files that ASE reads, an ASE calculator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from .errors import BackendUnavailable, SpinTPError

if TYPE_CHECKING:
    from .nn.force_field import SpinForceField


@dataclass(frozen=True)
class Graph:
    """One or several systems as a graph.

    Attributes:
        numbers: atomic numbers [N].
        positions: [N, 3], angstrom.
        senders, receivers: neighbours [E]; an edge points from receiver to sender.
        shifts: of the senders by the periodic cell [E, 3].
        batch: system of each atom [N].
        energy: [systems], eV, float64; NaN where it is not known.
        forces: [N, 3], eV/angstrom; NaN where they are not known.
    """

    numbers: Tensor
    positions: Tensor
    senders: Tensor
    receivers: Tensor
    shifts: Tensor
    batch: Tensor
    energy: Tensor
    forces: Tensor

    @property
    def systems(self) -> int:
        """How many systems."""
        return len(self.energy)

    def inputs(self) -> tuple[Tensor, ...]:
        """What `SpinForceField` takes, in its order."""
        return self.numbers, self.positions, self.senders, self.receivers, self.shifts, self.batch

    def to(self, *args: Any, **options: Any) -> Graph:
        """Move and cast as torch's `to`: floating point alone is cast; energies stay float64."""
        moved = {}
        for name in self.__dataclass_fields__:
            tensor = getattr(self, name)
            cast = tensor.is_floating_point() and name != "energy"
            moved[name] = tensor.to(*args, **options) if cast else tensor.to(torch.empty(0).to(*args, **options).device)
        return Graph(**moved)


def neighbours(
    positions: np.ndarray[Any, Any], r_max: float, cell: Any = None, pbc: Any = False
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return senders, receivers and the senders' shifts, of all pairs closer than r_max.

    Periodic systems need matscipy or ASE (extra "atoms"); others do not.

    Raises:
        BackendUnavailable: The system is periodic and neither is installed.
        SpinTPError: Positions that are not [N, 3] and finite, or a cutoff that is not positive.
    """
    positions = np.asarray(positions, float)
    if positions.ndim != 2 or positions.shape[1] != 3 or not np.isfinite(positions).all():
        raise SpinTPError(f"positions must be finite, [N, 3]; got shape {positions.shape}")
    if not r_max > 0:
        raise SpinTPError(f"the cutoff must be positive; got {r_max}")
    if not np.any(pbc):
        found = torch.from_numpy(positions)
        near = torch.cdist(found, found, compute_mode="donot_use_mm_for_euclid_dist") < r_max
        near.fill_diagonal_(False)
        receivers, senders = near.nonzero(as_tuple=True)
        return senders.numpy(), receivers.numpy(), np.zeros((len(senders), 3))
    cell = np.asarray(cell, float)
    flags = np.broadcast_to(np.asarray(pbc, bool), 3)
    try:
        from matscipy.neighbours import neighbour_list
    except ModuleNotFoundError:
        try:
            from ase.neighborlist import primitive_neighbor_list
        except ModuleNotFoundError as error:
            raise BackendUnavailable(
                "neighbours in a periodic cell need matscipy or ASE: pip install 'sprigs-spingtp[atoms]'"
            ) from error
        i, j, s = primitive_neighbor_list("ijS", list(flags), cell, positions, r_max)
    else:
        i, j, s = neighbour_list("ijS", positions=positions, cell=cell, pbc=flags, cutoff=float(r_max))
    return np.asarray(j), np.asarray(i), np.asarray(s, float) @ cell


def graph_of(atoms: Any, r_max: float) -> Graph:
    """Return the graph of an `ase.Atoms`, with the energy and forces that its calculator holds, if it does.

    Raises:
        SpinTPError: See `neighbours`.
    """
    senders, receivers, shifts = neighbours(atoms.positions, r_max, np.asarray(atoms.cell), atoms.pbc)
    n = len(atoms)
    energy, forces = np.nan, np.full((n, 3), np.nan)
    results = getattr(atoms.calc, "results", {}) if atoms.calc is not None else {}
    if "energy" in results:
        energy = float(results["energy"])
    if "forces" in results:
        forces = np.asarray(results["forces"], float)
    return make_graph(atoms.numbers, atoms.positions, senders, receivers, shifts, energy, forces)


def make_graph(
    numbers: Any, positions: Any, senders: Any, receivers: Any, shifts: Any, energy: float = np.nan, forces: Any = None
) -> Graph:
    """Return a graph of one system from arrays, in torch's default dtype."""
    dtype = torch.get_default_dtype()
    n = len(numbers)
    forces = np.full((n, 3), np.nan) if forces is None else forces
    return Graph(
        torch.as_tensor(np.asarray(numbers), dtype=torch.int64),
        torch.as_tensor(np.asarray(positions), dtype=dtype),
        torch.as_tensor(np.asarray(senders), dtype=torch.int64),
        torch.as_tensor(np.asarray(receivers), dtype=torch.int64),
        torch.as_tensor(np.asarray(shifts), dtype=dtype),
        torch.zeros(n, dtype=torch.int64),
        torch.tensor([energy], dtype=torch.float64),
        torch.as_tensor(np.asarray(forces), dtype=dtype),
    )


def collate(graphs: Sequence[Graph]) -> Graph:
    """Return one graph of several."""
    starts = np.cumsum([0, *(len(g.numbers) for g in graphs)]).tolist()
    systems = np.cumsum([0, *(g.systems for g in graphs)]).tolist()
    return Graph(
        torch.cat([g.numbers for g in graphs]),
        torch.cat([g.positions for g in graphs]),
        torch.cat([g.senders + start for g, start in zip(graphs, starts, strict=False)]),
        torch.cat([g.receivers + start for g, start in zip(graphs, starts, strict=False)]),
        torch.cat([g.shifts for g in graphs]),
        torch.cat([g.batch + start for g, start in zip(graphs, systems, strict=False)]),
        torch.cat([g.energy for g in graphs]),
        torch.cat([g.forces for g in graphs]),
    )


def batches(graphs: Sequence[Graph], size: int, generator: torch.Generator | None = None) -> Iterator[Graph]:
    """Yield batches of `size` systems, shuffled if a generator is given."""
    order = torch.randperm(len(graphs), generator=generator).tolist() if generator else range(len(graphs))
    order = list(order)
    for start in range(0, len(order), size):
        yield collate([graphs[k] for k in order[start : start + size]])


# What ASE's readers raise on damaged files.
_UNREADABLE = (ValueError, KeyError, IndexError, TypeError, AttributeError, OSError, RuntimeError)


def read_frames(path: str | Path, index: str = ":") -> list[Any]:
    """Return the `ase.Atoms` of a file: extended XYZ (3BPA, acac, SPICE-MACE-OFF), or an ASE database (OC20 converted).

    Energies and forces must be in the file's own fields, as ASE reads them ("energy", "forces"); names such as
    "REF_energy" and "REF_forces" are recognised too.

    Raises:
        BackendUnavailable: ASE is not installed.
        SpinTPError: There is no such file, or it cannot be read.
    """
    try:
        import ase.db
        import ase.io
        import ase.io.formats
        from ase.calculators.singlepoint import SinglePointCalculator
    except ModuleNotFoundError as error:
        raise BackendUnavailable("reading atoms needs ASE: pip install 'sprigs-spingtp[atoms]'") from error
    path = Path(path)
    if not path.is_file():
        raise SpinTPError(f"there is no file {path}")
    try:
        frames: list[Any]
        if path.suffix in (".db", ".aselmdb"):
            with ase.db.connect(path) as database:
                frames = [row.toatoms() for row in database.select()]
        else:
            frames = list(ase.io.iread(path, index=index))
    except (*_UNREADABLE, ase.io.formats.UnknownFileTypeError) as error:
        raise SpinTPError(f"{path} cannot be read: {error}") from error
    for frame in frames:
        results = dict(getattr(frame.calc, "results", {}) if frame.calc is not None else {})
        for name, place in (("energy", frame.info), ("forces", frame.arrays)):
            for key in (f"REF_{name}", f"dft_{name}", name):
                if name not in results and key in place:
                    results[name] = place[key]
        if results:
            frame.calc = SinglePointCalculator(frame, **{k: results[k] for k in ("energy", "forces") if k in results})
    return frames


def isolated_energies(frames: Iterable[Any]) -> dict[int, float]:
    """Return the energy of each species from frames of single atoms, eV."""
    found = {}
    for frame in frames:
        if len(frame) == 1:
            found[int(frame.numbers[0])] = float(frame.get_potential_energy())
    return found


def calculator(model: SpinForceField, dtype: torch.dtype | None = None) -> Any:
    """Return an `ase.calculators.calculator.Calculator` of a force field: energy, forces, stress.

    Raises:
        BackendUnavailable: ASE is not installed.
    """
    try:
        from ase.calculators.calculator import Calculator, all_changes
        from ase.stress import full_3x3_to_voigt_6_stress
    except ModuleNotFoundError as error:
        raise BackendUnavailable("the calculator needs ASE: pip install 'sprigs-spingtp[atoms]'") from error
    parameter = next(model.parameters())
    dtype = parameter.dtype if dtype is None else dtype

    class SpinCalculator(Calculator):
        implemented_properties = ["energy", "free_energy", "forces", "stress"]  # noqa: RUF012

        def calculate(
            self, atoms: Any = None, properties: Any = ("energy",), system_changes: Any = all_changes
        ) -> None:
            super().calculate(atoms, properties, system_changes)
            graph = graph_of(self.atoms, model.r_max).to(device=parameter.device, dtype=dtype)
            found = model(*graph.inputs())
            self.results["energy"] = self.results["free_energy"] = float(found["energy"][0])
            self.results["forces"] = found["forces"].double().cpu().numpy()
            if self.atoms.cell.rank == 3:
                virial = found["virial"][0].double().cpu().numpy()
                self.results["stress"] = full_3x3_to_voigt_6_stress((virial + virial.T) / 2 / self.atoms.get_volume())

    return SpinCalculator()
