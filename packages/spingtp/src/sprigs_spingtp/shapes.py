"""Learning what only antisymmetric paths see: cross products, the chiral Tetris pair, handed molecules and crystals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from itertools import combinations
from typing import Any, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from .atoms import Graph, collate, make_graph, neighbours
from .errors import BackendUnavailable
from .harmonics import spherical_harmonics
from .irreps import Irrep, Irreps, spherical_harmonics_irreps
from .layers import SpinTensorProduct
from .nn import IrrepsLinear, RadialBasis, SpinForceField, SpinInteractionBlock

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _single_thread(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Run on one thread: these networks are so small that more would only wait for one another."""

    @wraps(function)
    def run(*args: _P.args, **options: _P.kwargs) -> _R:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return function(*args, **options)
        finally:
            torch.set_num_threads(threads)

    return run


# Cross products


def polynomials(vectors: Tensor) -> Tensor:
    """Return |v|^l Y_l(v), l = 0..2, of vectors [rows, n, 3] as features n x 0e + n x 1o + n x 2e."""
    length = vectors.norm(dim=-1, keepdim=True)
    y = spherical_harmonics(2, vectors)
    parts = [y[..., :1], y[..., 1:4] * length, y[..., 4:9] * length**2]
    return torch.cat([part.flatten(1) for part in parts], dim=1)


class OneProduct(nn.Module):
    """One product between two channel mixes of the inputs, and a mix of what comes out; parity is ignored."""

    def __init__(self, vectors: int, spins: str, channels: int = 8) -> None:
        super().__init__()
        given = Irreps(f"{vectors}x0e+{vectors}x1o+{vectors}x2e")
        wide = Irreps(f"{channels}x0e+{channels}x1o+{channels}x2e")
        self.left, self.right = IrrepsLinear(given, wide), IrrepsLinear(given, wide)
        self.product = SpinTensorProduct(wide, wide, wide, spins=spins, so3=True)
        self.out = IrrepsLinear(wide, "1x1o")

    def forward(self, vectors: Tensor) -> Tensor:
        """Return a vector [rows, 3] of vectors [rows, n, 3]."""
        x = polynomials(vectors)
        found: Tensor = self.out(self.product(self.left(x), self.right(x)))
        return found


@_single_thread
def learn_cross_product(spins: str, vectors: int = 2, steps: int = 300, seed: int = 0) -> tuple[float, float]:
    """Learn the sum of r_i x r_j over pairs from 512 samples; return (MSE, R^2) on 512 others."""
    torch.manual_seed(seed)
    inputs = torch.randn(1024, vectors, 3, dtype=torch.float64)
    target = sum(torch.linalg.cross(inputs[:, i], inputs[:, j]) for i, j in combinations(range(vectors), 2))
    assert isinstance(target, Tensor)
    model = OneProduct(vectors, spins).double()
    optimiser = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=steps, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = (model(inputs[:512]) - target[:512]).pow(2).mean()
        loss.backward()
        return loss

    optimiser.step(closure)
    with torch.no_grad():
        error = float((model(inputs[512:]) - target[512:]).pow(2).mean())
    return error, 1 - error / float(target[512:].pow(2).mean())


# Tetris

SHAPES = {
    "chiral 1": [(0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 1, 0)],
    "chiral 2": [(0, 0, 0), (0, 0, 1), (1, 0, 0), (1, -1, 0)],
    "square": [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0)],
    "line": [(0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 0, 3)],
    "corner": [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)],
    "L": [(0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 1, 0)],
    "T": [(0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 1, 1)],
    "zigzag": [(0, 0, 0), (1, 0, 0), (1, 1, 0), (2, 1, 0)],
}
"""The eight shapes of four cubes; the first two are mirror images."""


def tetris(rotations: Tensor | None = None, mirror: bool = False) -> tuple[Graph, Tensor]:
    """Return the shapes, each turned by one rotation [8, 3, 3], as a graph of radius 1.1, and their labels."""
    graphs = []
    for k, cubes in enumerate(SHAPES.values()):
        positions = torch.tensor(cubes, dtype=torch.get_default_dtype())
        positions = -positions if mirror else positions
        if rotations is not None:
            positions = positions @ rotations[k].T
        graphs.append(make_graph([1] * 4, positions, *neighbours(positions.numpy(), 1.1)))
    return collate(graphs), torch.arange(len(SHAPES))


def random_rotations(n: int, generator: torch.Generator | None = None) -> Tensor:
    """Return rotation matrices [n, 3, 3], uniform, from normal quaternions."""
    q = torch.randn(n, 4, generator=generator)
    w, x, y, z = (q / q.norm(dim=1, keepdim=True)).unbind(1)
    rows = [
        torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)], -1),
        torch.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)], -1),
        torch.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1),
    ]
    return torch.stack(rows, 1)


class ShapeClassifier(nn.Module):
    """Interactions over a shape's cubes, then logits: the mirror pair share an even one and differ by an odd one."""

    def __init__(self, product: str, layers: int = 3, channels: int = 8, lmax: int = 2) -> None:
        super().__init__()
        self.lmax, self.channels = lmax, channels
        self.basis = RadialBasis(1.5)
        edges = spherical_harmonics_irreps(lmax)
        hidden = Irreps([(channels, (l, p)) for l in range(lmax + 1) for p in ((-1) ** l, -((-1) ** l))])
        scalars = Irreps(f"{channels}x0e+{channels}x0o")
        self.blocks = nn.ModuleList()
        irreps = Irreps(f"{channels}x0e")
        for k in range(layers):
            last = k == layers - 1
            block = SpinInteractionBlock(
                irreps,
                edges,
                scalars if last else hidden,
                irreps_messages=hidden,
                species=1,
                product=product,
                neighbours=2.0,
            )
            self.blocks.append(block)
            irreps = block.irreps_out
        self.even = nn.Linear(channels, len(SHAPES) - 1)
        self.odd = nn.Linear(channels, 1, bias=False)

    def forward(self, graph: Graph) -> tuple[Tensor, Tensor]:
        """Return logits [systems, 8] and the odd readout [systems]."""
        vectors = graph.positions[graph.senders] - graph.positions[graph.receivers]
        radial = self.basis(vectors.norm(dim=-1))
        edges = spherical_harmonics(self.lmax, vectors)
        nodes = graph.positions.new_ones(len(graph.numbers), self.channels)
        species = torch.zeros_like(graph.numbers)
        irreps = Irreps("1x0e")
        for block in self.blocks:
            nodes = block(nodes, species, edges, radial, graph.senders, graph.receivers)
            irreps = block.irreps_out
        pooled = nodes.new_zeros(graph.systems, nodes.shape[1]).index_add(0, graph.batch, nodes) / 2
        scalars = {b.ir: pooled[:, where] for b, where in zip(irreps, irreps.slices(), strict=True)}
        even = self.even(scalars[Irrep(0, 1)])
        odd = self.odd(scalars[Irrep(0, -1)])[:, 0] if Irrep(0, -1) in scalars else even.new_zeros(graph.systems)
        pair = torch.stack([even[:, 0] + odd, even[:, 0] - odd], dim=1)
        return torch.cat([pair, even[:, 1:]], dim=1), odd


@dataclass(frozen=True)
class TetrisResult:
    """What a classifier learnt.

    Attributes:
        accuracy: on turned shapes that were not seen.
        confusion: how often shape (row) was taken for shape (column), [8, 8].
        steps: of training.
        odd_error: largest sum of the odd readouts of mirror images, over their largest size; None if all are zero.
    """

    accuracy: float
    confusion: npt.NDArray[np.int64]
    steps: int
    odd_error: float | None


@_single_thread
def learn_tetris(product: str, steps: int = 150, seed: int = 0, learning_rate: float = 1e-2) -> TetrisResult:
    """Train a classifier on turned shapes and test it on 50 other turns of each."""
    torch.manual_seed(seed)
    model = ShapeClassifier(product)
    optimiser = torch.optim.Adam(model.parameters(), learning_rate)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        graph, labels = tetris(random_rotations(8, generator))
        loss = nn.functional.cross_entropy(model(graph)[0], labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    confusion = np.zeros((8, 8), np.int64)
    largest = off = 0.0
    with torch.no_grad():
        for _ in range(50):
            turns = random_rotations(8, generator)
            graph, labels = tetris(turns)
            logits, odd = model(graph)
            np.add.at(confusion, (labels.numpy(), logits.argmax(1).numpy()), 1)
            mirrored = model(tetris(turns, mirror=True)[0])[1]
            largest, off = max(largest, float(odd.abs().max())), max(off, float((odd + mirrored).abs().max()))
    return TetrisResult(np.trace(confusion) / confusion.sum(), confusion, steps, off / largest if largest else None)


# Handed molecules

# Substituents by SMILES; their first atoms, and what follows, decide the priorities.
SUBSTITUENTS = ("[H]", "F", "Cl", "Br", "O", "N", "C", "CC", "C#N", "C=O", "OC", "C=C", "CF", "CO", "S", "C(C)C")


def handed_molecules(count: int = 300, seed: int = 0) -> list[tuple[Graph, int]]:
    """Return molecules with one stereocentre and their CIP labels (1 for R, 0 for S): ETKDG geometries, all different.

    A centre with four different substituents, one conformer of one hand each, relaxed by MMFF; labels are assigned from
    the geometry. Half are R.

    Raises:
        BackendUnavailable: RDKit is not installed.
    """
    try:
        from rdkit import Chem, RDLogger
        from rdkit.Chem import AllChem
    except ModuleNotFoundError as error:
        raise BackendUnavailable("molecules are made with RDKit: pip install 'sprigs-spingtp[chem]'") from error
    RDLogger.DisableLog("rdApp.*")
    rng = np.random.default_rng(seed)
    choices = list(combinations(range(len(SUBSTITUENTS)), 4))
    rng.shuffle(choices)
    found: list[tuple[Graph, int]] = []
    wanted = [count - count // 2, count // 2]
    for choice in choices:
        if not any(wanted):
            break
        groups = [SUBSTITUENTS[k] for k in rng.permutation(choice)]
        mark = "@" if rng.random() < 0.5 else "@@"
        smiles = f"[C{mark}]" + "".join(f"({g})" for g in groups[:-1]) + groups[-1]
        molecule = Chem.AddHs(Chem.MolFromSmiles(smiles))
        if AllChem.EmbedMolecule(molecule, randomSeed=int(rng.integers(1 << 30))) != 0:
            continue
        AllChem.MMFFOptimizeMolecule(molecule)
        Chem.AssignStereochemistryFrom3D(molecule)
        centres = Chem.FindMolChiralCenters(molecule, useLegacyImplementation=False)
        if len(centres) != 1 or centres[0][1] not in "RS":
            continue
        label = int(centres[0][1] == "R")
        if not wanted[label]:
            continue
        wanted[label] -= 1
        positions = molecule.GetConformer().GetPositions()
        numbers = [atom.GetAtomicNum() for atom in molecule.GetAtoms()]
        found.append((make_graph(numbers, positions, *neighbours(positions, 4.0)), label))
    return found


def mirrored(graph: Graph) -> Graph:
    """Return the mirror image (by inversion)."""
    return Graph(**{**graph.__dict__, "positions": -graph.positions, "shifts": -graph.shifts, "forces": -graph.forces})


@dataclass(frozen=True)
class Handedness:
    """What a pseudoscalar readout learnt of handed things.

    Attributes:
        accuracy: on those that were not seen.
        train_accuracy: on those that were.
        flip: largest sum of the logits of a thing and its mirror image, over the largest logit; 0 where all are zero.
        largest: the largest logit.
    """

    accuracy: float
    train_accuracy: float
    flip: float
    largest: float


@_single_thread
def learn_handedness(
    train: list[tuple[Graph, int]],
    test: list[tuple[Graph, int]],
    product: str,
    *,
    r_max: float,
    epochs: int = 40,
    seed: int = 0,
    channels: int = 16,
    batch_size: int = 20,
    learning_rate: float = 5e-3,
    layers: int = 2,
    lmax: int = 2,
    correlation: int = 2,
) -> Handedness:
    """Train on labels 0 and 1 by the sign of a pseudoscalar; no mirror images are added to the training set."""
    torch.manual_seed(seed)
    species = sorted({int(z) for graph, _ in (*train, *test) for z in graph.numbers})
    near = np.mean([len(g.senders) / len(g.numbers) for g, _ in train])
    model = SpinForceField(
        species,
        r_max,
        lmax,
        channels,
        layers,
        product=product,
        correlation=correlation,
        neighbours=float(near),
        chiral_readout=True,
    )
    optimiser = torch.optim.Adam(model.parameters(), learning_rate)
    generator = torch.Generator().manual_seed(seed)
    steps = epochs * -(-len(train) // batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(epochs):
        order = torch.randperm(len(train), generator=generator).tolist()
        for start in range(0, len(order), batch_size):
            chosen = [train[k] for k in order[start : start + batch_size]]
            logits = _logits(model, [g for g, _ in chosen])
            labels = torch.tensor([float(label) for _, label in chosen])
            loss = nn.functional.binary_cross_entropy_with_logits(logits, labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    with torch.no_grad():
        seen, unseen = (_logits(model, [g for g, _ in part]) for part in (train, test))
        turned = _logits(model, [mirrored(g) for g, _ in test])
    largest = float(unseen.abs().max())
    return Handedness(
        _accuracy(unseen, test),
        _accuracy(seen, train),
        float((unseen + turned).abs().max()) / largest if largest else 0.0,
        largest,
    )


def _accuracy(logits: Tensor, items: list[tuple[Graph, int]]) -> float:
    labels = torch.tensor([label for _, label in items])
    # A logit of zero says nothing: half a point.
    right = ((logits > 0).long() == labels).double()
    return float(torch.where(logits == 0, 0.5, right).mean())


def _logits(model: SpinForceField, graphs: list[Graph]) -> Tensor:
    found = model(*collate(graphs).inputs(), forces=False, training=True)
    if "pseudoscalar" not in found:
        return torch.zeros(len(graphs))
    return found["pseudoscalar"]


def learn_molecules(
    train: list[tuple[Graph, int]], test: list[tuple[Graph, int]], product: str, *, epochs: int = 40, seed: int = 0
) -> Handedness:
    """Learn R and S with one interaction and products of three: triple products weighted by species decide them."""
    return learn_handedness(
        train, test, product, r_max=3.0, epochs=epochs, seed=seed, layers=1, lmax=1, correlation=3, batch_size=10,
        learning_rate=1e-2,
    )  # fmt: skip


# Handed crystals

# Space groups 152 (P3_1 21) and 154 (P3_2 21) are mirror images. Lattice constants in angstrom, fractional coordinates
# of the asymmetric unit in 152.
CRYSTALS: dict[str, dict[str, Any]] = {
    "quartz": {
        "a": 4.913, "c": 5.405,
        "sites": [("Si", (0.4697, 0.0, 1 / 3)), ("O", (0.4135, 0.2669, 1 / 3 - 0.1191))],
    },
    "tellurium": {"a": 4.456, "c": 5.926, "sites": [("Te", (0.2636, 0.0, 1 / 3))]},
    "cinnabar": {
        "a": 4.149, "c": 9.495,
        "sites": [("Hg", (0.7198, 0.0, 1 / 3)), ("S", (0.4889, 0.0, 5 / 6))],
    },
}  # fmt: skip


@dataclass(frozen=True)
class CrystalSample:
    """A strained, shaken crystal.

    Attributes:
        graph: periodic, with the neighbours' shifts.
        hand: 1 for P3_1 21, 0 for P3_2 21.
        rotatory: the pseudoscalar of `rotatory`.
        name: which crystal.
    """

    graph: Graph
    hand: int
    rotatory: float
    name: str = field(default="")


def handed_crystals(count: int, names: tuple[str, ...], r_max: float = 4.0, seed: int = 0) -> list[CrystalSample]:
    """Return crystals of random hand, strained by 3 % and shaken by 0.03 angstrom.

    Raises:
        BackendUnavailable: ASE is not installed.
    """
    try:
        from ase.spacegroup import crystal
    except ModuleNotFoundError as error:
        raise BackendUnavailable("crystals are made with ASE: pip install 'sprigs-spingtp[atoms]'") from error
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(count):
        name = names[int(rng.integers(len(names)))]
        entry = CRYSTALS[name]
        symbols = [symbol for symbol, _ in entry["sites"]]
        sites = [site for _, site in entry["sites"]]
        hand = int(rng.integers(2))
        atoms = crystal(symbols, sites, spacegroup=152, cellpar=[entry["a"], entry["a"], entry["c"], 90, 90, 120])
        cell, positions = np.asarray(atoms.cell), atoms.positions
        if not hand:
            cell, positions = cell * [1, 1, -1], positions * [1, 1, -1]
        strain = np.eye(3) + rng.normal(scale=0.03, size=(3, 3))
        strain = (strain + strain.T) / 2
        cell, positions = cell @ strain, positions @ strain + rng.normal(scale=0.03, size=positions.shape)
        senders, receivers, shifts = neighbours(positions, r_max, cell, True)
        graph = make_graph(atoms.numbers, positions, senders, receivers, shifts)
        out.append(CrystalSample(graph, hand, rotatory(graph), name))
    return out


def rotatory(graph: Graph) -> float:
    """Return a pseudoscalar of a structure, a mean over atoms of triple products of neighbours.

    G = mean over i of (A_i x B_i) . C_i, with A, B, C the sums over neighbours j of r_ij times exp(-r^2 / 4),
    r exp(-r^2 / 4) and Z_j exp(-r / 2) / 10, r in angstrom: zero for what equals its mirror image.
    """
    vectors = (graph.positions[graph.senders] - graph.positions[graph.receivers] + graph.shifts).double()
    r = vectors.norm(dim=1, keepdim=True)
    charge = graph.numbers[graph.senders].double()[:, None] / 10
    weights = (torch.exp(-(r**2) / 4), r * torch.exp(-(r**2) / 4), charge * torch.exp(-r / 2))
    zero = torch.zeros(len(graph.numbers), 3, dtype=torch.float64)
    a, b, c = (zero.index_add(0, graph.receivers, vectors * w) for w in weights)
    return float((torch.linalg.cross(a, b) * c).sum(1).mean())


@_single_thread
def learn_rotatory(
    train: list[CrystalSample],
    test: list[CrystalSample],
    product: str,
    *,
    r_max: float,
    epochs: int = 60,
    seed: int = 0,
) -> tuple[float, float]:
    """Regress `rotatory`; return R^2 on the test set and the flip of `Handedness`."""
    torch.manual_seed(seed)
    species = sorted({int(z) for s in (*train, *test) for z in s.graph.numbers})
    near = float(np.mean([len(s.graph.senders) / len(s.graph.numbers) for s in train]))
    model = SpinForceField(
        species, r_max, 2, 16, 2, product=product, correlation=3, neighbours=near, chiral_readout=True
    )
    targets = torch.tensor([s.rotatory for s in train], dtype=torch.get_default_dtype())
    scale = float(targets.pow(2).mean().sqrt())
    optimiser = torch.optim.Adam(model.parameters(), 5e-3)
    generator = torch.Generator().manual_seed(seed)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs * -(-len(train) // 20))
    atoms = torch.tensor([float(len(s.graph.numbers)) for s in train])
    for _ in range(epochs):
        order = torch.randperm(len(train), generator=generator)
        for chosen in order.split(20):
            value = _logits(model, [train[k].graph for k in chosen.tolist()]) / atoms[chosen]
            loss = (value - targets[chosen] / scale).pow(2).mean()
            optimiser.zero_grad()
            if loss.requires_grad:
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
                optimiser.step()
            schedule.step()
    with torch.no_grad():
        graphs = [s.graph for s in test]
        sizes = torch.tensor([float(len(g.numbers)) for g in graphs])
        found = _logits(model, graphs) / sizes * scale
        turned = _logits(model, [mirrored(g) for g in graphs]) / sizes * scale
    wanted = torch.tensor([s.rotatory for s in test])
    largest = float(found.abs().max())
    flip = float((found + turned).abs().max()) / largest if largest else 0.0
    return 1 - float((found - wanted).pow(2).mean() / wanted.pow(2).mean()), flip
