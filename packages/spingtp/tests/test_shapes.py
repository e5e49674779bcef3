"""What only antisymmetric paths see: cross products, Tetris, handed molecules and crystals."""

import numpy as np
import pytest
import torch

from sprigs_spingtp import shapes
from sprigs_spingtp.atoms import collate


@pytest.mark.parametrize("vectors", [2, 3])
def test_cross_products_are_learnt_and_gaunts_product_is_stuck(vectors):
    error, score = shapes.learn_cross_product("complete", vectors)
    assert error < 1e-6
    assert score > 0.999999
    _, score = shapes.learn_cross_product("gaunt", vectors)
    assert score <= 0.02


def test_the_shapes_are_distinct_but_for_the_mirror_pair():
    graph, labels = shapes.tetris()
    assert labels.tolist() == list(range(8))
    assert torch.bincount(graph.batch).tolist() == [4] * 8
    spectra = []
    for cubes in shapes.SHAPES.values():
        points = np.array(cubes, float)
        distances = np.linalg.norm(points[:, None] - points[None], axis=-1)
        spectra.append(np.sort(distances, axis=None))
    for i in range(8):
        for j in range(i):
            same = np.allclose(spectra[i], spectra[j])
            assert same == ((i, j) == (1, 0)), (i, j)


@pytest.mark.slow
def test_tetris():
    complete = shapes.learn_tetris("spin", 120)
    assert complete.accuracy == 1.0
    assert np.array_equal(complete.confusion, 50 * np.eye(8))
    assert complete.odd_error < 1e-5
    gaunt = shapes.learn_tetris("gaunt", 120)
    assert gaunt.accuracy <= 0.875
    assert gaunt.odd_error is None
    assert gaunt.confusion[2:, 2:].trace() == 300, "it learns the others"


@pytest.mark.slow
def test_tetris_by_clebsch_gordan():
    assert shapes.learn_tetris("cg", 150).accuracy == 1.0


@pytest.fixture(scope="module")
def molecules():
    pytest.importorskip("rdkit")
    return shapes.handed_molecules(60)


def test_molecules_are_handed_and_distinct(molecules):
    """Labels are half and half; a mirror image has the other label."""
    from rdkit import Chem
    from rdkit.Chem import rdDetermineBonds

    assert sum(label for _, label in molecules) == 30
    assert len({tuple(sorted(g.numbers.tolist())) + tuple(g.positions.flatten().tolist()) for g, _ in molecules}) == 60
    for graph, label in molecules[:12]:
        for turned, expected in ((graph, label), (shapes.mirrored(graph), 1 - label)):
            symbols = [Chem.GetPeriodicTable().GetElementSymbol(int(z)) for z in turned.numbers]
            places = [" ".join(map(str, p)) for p in turned.positions.tolist()]
            lines = [f"{symbol} {place}" for symbol, place in zip(symbols, places, strict=True)]
            molecule = Chem.MolFromXYZBlock(f"{len(lines)}\n\n" + "\n".join(lines))
            rdDetermineBonds.DetermineBonds(molecule)
            Chem.AssignStereochemistryFrom3D(molecule)
            (centre,) = Chem.FindMolChiralCenters(molecule, useLegacyImplementation=False)
            assert centre[1] == "SR"[expected]


def test_learning_hands_flips_exactly(molecules):
    found = shapes.learn_molecules(molecules[:40], molecules[40:], "spin", epochs=3)
    assert found.largest > 0
    assert found.flip < 1e-4
    gaunt = shapes.learn_molecules(molecules[:40], molecules[40:], "gaunt", epochs=1)
    assert gaunt.accuracy == 0.5
    assert gaunt.largest == 0


@pytest.mark.slow
def test_hands_of_molecules_are_learnt():
    items = shapes.handed_molecules(600)
    found = shapes.learn_molecules(items[:450], items[450:], "spin", epochs=30)
    assert found.accuracy > 0.5 + 4 * (0.25 / 150) ** 0.5


def test_crystals_are_periodic_and_handed():
    pytest.importorskip("ase")
    samples = shapes.handed_crystals(60, ("quartz", "tellurium", "cinnabar"))
    assert {s.hand for s in samples} == {0, 1}
    sizes = {s.name: len(s.graph.numbers) for s in samples}
    assert sizes == {"quartz": 9, "tellurium": 3, "cinnabar": 6}
    for s in samples:
        vectors = s.graph.positions[s.graph.senders] - s.graph.positions[s.graph.receivers] + s.graph.shifts
        assert vectors.norm(dim=1).max() < 4.0
        assert vectors.norm(dim=1).min() > 1.4
        assert shapes.rotatory(shapes.mirrored(s.graph)) == pytest.approx(-s.rotatory, rel=1e-5, abs=1e-9)
    # Shaken as they are, the two hands of quartz have opposite triple products on average.
    means = [np.mean([s.rotatory for s in samples if s.name == "quartz" and s.hand == hand]) for hand in (0, 1)]
    assert means[0] > 0.03
    assert means[1] < -0.03


@pytest.mark.slow
def test_hands_of_crystals():
    pytest.importorskip("ase")
    names = ("quartz", "tellurium")
    train, test = (
        [(s.graph, s.hand) for s in shapes.handed_crystals(n, names, seed=seed)] for n, seed in ((80, 0), (40, 1))
    )
    found = shapes.learn_handedness(train, test, "spin", r_max=4.0, epochs=20, batch_size=10)
    assert found.accuracy > 0.9
    assert found.flip < 1e-4


def test_rotations_are_rotations():
    turns = shapes.random_rotations(50)
    np.testing.assert_allclose(turns @ turns.mT, np.broadcast_to(np.eye(3), (50, 3, 3)), atol=1e-5)
    np.testing.assert_allclose(torch.linalg.det(turns), 1, atol=1e-5)
    graph, _ = shapes.tetris(shapes.random_rotations(8))
    assert collate([graph, graph]).systems == 16
