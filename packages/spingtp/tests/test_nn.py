"""Layers, networks, atoms: equivariance, forces, periodic neighbours, files, training, ASE."""

import dataclasses

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from e3nn import o3
from hypothesis import given, settings
from hypothesis import strategies as st

from sprigs_spingtp import (
    BackendUnavailable,
    Irreps,
    SpinTPError,
    TrainingConfig,
    collate,
    evaluate,
    fit,
    graph_of,
    load,
    neighbours,
    nn,
    read_frames,
    save,
    spherical_harmonics,
    training,
)
from sprigs_spingtp.atoms import isolated_energies, make_graph
from sprigs_spingtp.cli import commands
from sprigs_spingtp.irreps import spherical_harmonics_irreps

ase = pytest.importorskip("ase")
from ase.build import bulk, molecule  # noqa: E402
from ase.calculators.emt import EMT  # noqa: E402

PRODUCTS = ("spin", "cg", "gaunt")
RUN = {command.name: command for command in commands}


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(-10, 10), min_size=3, max_size=3), st.integers(0, 8))
def test_harmonics_equal_e3nns(vector, lmax):
    v = torch.tensor([vector], dtype=torch.float64)
    if v.norm() < 1e-3:
        return
    for normalization in ("component", "norm", "integral"):
        expected = o3.spherical_harmonics(list(range(lmax + 1)), v, True, normalization)
        np.testing.assert_allclose(spherical_harmonics(lmax, v, normalization), expected, atol=1e-13)


def test_harmonics_have_derivatives_at_the_poles():
    v = torch.tensor([[0.0, 1.0, 0.0], [0.0, -2.0, 0.0], [0.3, 0.4, 0.5]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: spherical_harmonics(3, v), (v,))
    assert torch.autograd.gradgradcheck(lambda v: spherical_harmonics(3, v), (v,))
    for bad, said in ((torch.zeros(3, 2), "vectors"), (torch.zeros(3, 3, dtype=torch.long), "vectors")):
        with pytest.raises(SpinTPError, match=said):
            spherical_harmonics(2, bad)
    with pytest.raises(SpinTPError, match="normalization"):
        spherical_harmonics(2, v, "unit")


def test_linear_equals_e3nns(double):
    one, two = "3x0e+2x1o+1x1o+2x2e", "4x0e+1x1o+2x1o+2x0o"
    theirs = o3.Linear(one, two, biases=False)
    ours = nn.IrrepsLinear(one, two)
    x = Irreps(one).randn(5, -1)
    out = ours(x)
    assert not out[:, -2:].any(), "nothing leads to 0o"
    # e3nn weights each pair of blocks apart and normalises alike.
    with torch.no_grad():
        parts = []
        for i, a in enumerate(ours.irreps_in):
            for j, b in enumerate(ours.irreps_out):
                if a.ir == b.ir:
                    rows = sum(c.mul for c in ours.irreps_in[:i] if c.ir == a.ir)
                    columns = sum(c.mul for c in ours.irreps_out[:j] if c.ir == b.ir)
                    parts.append(ours.weights[str(a.ir)][rows : rows + a.mul, columns : columns + b.mul].reshape(-1))
        theirs.weight.copy_(torch.cat(parts))
    np.testing.assert_allclose(out.detach(), theirs(x).detach(), atol=1e-13)
    with pytest.raises(SpinTPError, match="in common"):
        nn.IrrepsLinear("2x0e", "2x1o")
    with pytest.raises(SpinTPError, match="last dimension"):
        ours(x[:, 1:])


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("correlation", [1, 2, 3])
def test_many_body_products_are_equivariant(product, correlation, double):
    irreps = "4x0e+4x0o+4x1o+4x1e+4x2e+4x2o" if product != "gaunt" else "4x0e+4x1o+4x2e"
    layer = nn.SymmetricSpinProduct(irreps, irreps, correlation=correlation, product=product)
    one, out = o3.Irreps(irreps), o3.Irreps(str(layer.irreps_out))
    x = one.randn(5, -1)
    for seed in range(4):
        torch.manual_seed(seed)
        rotation = (-1) ** seed * o3.rand_matrix()
        turned = layer(x @ one.D_from_matrix(rotation).T)
        np.testing.assert_allclose(turned.detach(), (layer(x) @ out.D_from_matrix(rotation).T).detach(), atol=1e-11)


def test_the_triple_product_is_that_of_three_functions_on_a_fine_grid(double):
    """One channel, even kinds: the intermediate keeps every degree that matters."""
    from sprigs_spingtp.tables import harmonics, product_grid

    layer = nn.SymmetricSpinProduct("1x0e+1x1o", "1x0e+1x1o", correlation=3, product="gaunt")
    beta, alpha, weights = product_grid(8, 15)
    f = torch.tensor(harmonics([0, 1], beta, alpha)[0])
    w = torch.tensor(np.repeat(weights, len(alpha)))
    first, second = layer.products
    for product in (first, second):
        plan = product._engine.plan
        for combination in plan.combinations:
            with torch.no_grad():
                product.weight[combination.weights1] = product.weight[combination.weights2] = 1.0
                for output in combination.outputs:
                    product.weight[output.weights] = 1 / torch.tensor(output.expand).amax(1)
    x, y, z = torch.randn(3, 4, 4)
    middle = first(x, y)
    assert first.irreps_out.lmax == 2
    found = second(middle, z)
    expected = ((x @ f) * (y @ f) * (z @ f) * w) @ f.T
    np.testing.assert_allclose(found[:, :4].detach(), expected, atol=1e-12)


def test_a_self_product_without_mixing_would_lose_every_odd_path():
    product = nn.make_product("spin", "2x0e+2x1o", "2x0e+2x1o", "2x1e")
    x = product.irreps_in1.randn(3, -1)
    assert product(x, x).abs().max() < 1e-6
    layer = nn.SymmetricSpinProduct("2x0e+2x1o", "2x0e+2x1o+2x1e", correlation=2)
    assert layer(x)[:, -6:].abs().max() > 1e-3


def test_radial_functions_vanish_smoothly_at_the_cutoff():
    basis = nn.RadialBasis(3.0, 6)
    r = torch.tensor([0.5, 2.9999, 3.0, 4.0], dtype=torch.float64)
    values = basis(r)
    assert values.shape == (4, 6)
    assert values[1].abs().max() < 1e-9
    assert not values[2:].any()
    at = torch.tensor([2.999], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(basis(at).sum(), at)
    assert abs(float(slope)) < 1e-3
    with pytest.raises(SpinTPError, match="r_max"):
        nn.RadialBasis(-1.0)


def water_cluster(seed=0, n=3):
    rng = np.random.default_rng(seed)
    atoms = molecule("CH3CH2OH")
    atoms.positions += rng.normal(scale=0.05, size=atoms.positions.shape)
    return atoms


@pytest.fixture(params=PRODUCTS)
def force_field(request, double):
    torch.manual_seed(0)
    return nn.SpinForceField([1, 6, 8], 4.0, 2, 4, 2, product=request.param, neighbours=8.0,
                             atomic_energies=[-1.0, -2.0, -3.0], chiral_readout=True)  # fmt: skip


def turned(graph, rotation):
    rotation = torch.as_tensor(rotation, dtype=graph.positions.dtype)
    return dataclasses.replace(graph, positions=graph.positions @ rotation.T, shifts=graph.shifts @ rotation.T)


def test_energies_forces_and_pseudoscalars_turn_as_they_should(force_field):
    graph = graph_of(water_cluster(), 4.0)
    before = force_field(*graph.inputs())
    assert before["energy"][0] - before["interaction"][0] == pytest.approx(-6 - 4 - 3)
    for seed in range(4):
        torch.manual_seed(seed)
        sign = (-1) ** seed
        rotation = sign * o3.rand_matrix()
        after = force_field(*turned(graph, rotation).inputs())
        assert after["energy"] == pytest.approx(float(before["energy"]), abs=1e-10)
        np.testing.assert_allclose(after["forces"], before["forces"] @ rotation.T, atol=1e-10)
        if "pseudoscalar" in before:
            np.testing.assert_allclose(after["pseudoscalar"], sign * before["pseudoscalar"], atol=1e-10)
    assert before["forces"].sum(0).abs().max() < 1e-10


def test_mirror_images(double):
    """Only 0e: equal energies to 1e-12; 0o: exactly opposite."""
    torch.manual_seed(0)
    model = nn.SpinForceField([1, 6, 8], 4.0, 2, 4, 2, chiral_readout=True)
    graph = graph_of(water_cluster(), 4.0)
    one, two = (model(*g.inputs()) for g in (graph, turned(graph, -torch.eye(3))))
    assert float((one["interaction"] - two["interaction"]).abs()) < 1e-12
    assert float((one["pseudoscalar"] + two["pseudoscalar"]).abs()) < 1e-12
    assert float(one["pseudoscalar"].abs()) > 1e-8


def test_forces_are_the_energy_s_slope_and_batches_do_not_mix(force_field):
    graphs = [graph_of(water_cluster(seed), 4.0) for seed in range(3)]
    batch = collate(graphs)
    together = force_field(*batch.inputs())
    for k, graph in enumerate(graphs):
        alone = force_field(*graph.inputs())
        np.testing.assert_allclose(together["energy"][k], alone["energy"][0], atol=1e-10)
        np.testing.assert_allclose(together["forces"][batch.batch == k], alone["forces"], atol=1e-10)
    step = 1e-5
    for atom, axis in ((0, 0), (4, 2)):
        energies = []
        for sign in (1, -1):
            moved = graphs[0].positions.clone()
            moved[atom, axis] += sign * step
            energies.append(force_field(*dataclasses.replace(graphs[0], positions=moved).inputs())["interaction"])
        slope = float(energies[0] - energies[1]) / (2 * step)
        assert -slope == pytest.approx(float(together["forces"][atom, axis]), abs=1e-6)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")  # torch's compiler, of itself
def test_energies_compile_as_one_graph(double):
    torch.manual_seed(0)
    model = nn.SpinForceField([1, 6, 8], 4.0, 2, 4, 2)
    graph = graph_of(water_cluster(), 4.0)

    def nodes(vectors):
        return model.features(graph.numbers, vectors, graph.senders, graph.receivers)[-1][0]

    vectors = graph.positions[graph.senders] - graph.positions[graph.receivers]
    found = torch.compile(nodes, fullgraph=True)(vectors)
    np.testing.assert_allclose(found.detach(), nodes(vectors).detach(), atol=1e-10)


def test_neighbours_equal_ases():
    from ase.neighborlist import primitive_neighbor_list

    rng = np.random.default_rng(0)
    for atoms in (bulk("Cu", cubic=True), bulk("Si"), bulk("NaCl", "rocksalt", a=5.6), molecule("C6H6")):
        atoms.positions += rng.normal(scale=0.05, size=atoms.positions.shape)
        senders, receivers, shifts = neighbours(atoms.positions, 4.0, np.asarray(atoms.cell), atoms.pbc)
        i, j, d = primitive_neighbor_list("ijD", atoms.pbc, atoms.cell, atoms.positions, 4.0)
        vectors = atoms.positions[senders] - atoms.positions[receivers] + shifts

        def table(i, j, d):
            return sorted((int(a), int(b), *np.round(v, 8).tolist()) for a, b, v in zip(i, j, d, strict=True))

        assert table(receivers, senders, vectors) == table(i, j, d)
    for bad, said in ((np.zeros((3, 2)), "positions"), (np.full((3, 3), np.nan), "finite")):
        with pytest.raises(SpinTPError, match=said):
            neighbours(bad, 4.0)
    with pytest.raises(SpinTPError, match="cutoff"):
        neighbours(np.zeros((3, 3)), 0.0)


def test_the_calculator_runs_dynamics_and_gives_stress(double):
    """NVE conserves energy; stress is the slope by strain."""
    from ase import units
    from ase.md.verlet import VelocityVerlet

    torch.manual_seed(0)
    model = nn.SpinForceField([14], 4.5, 2, 4, 2, neighbours=16.0, scale=0.05)
    atoms = bulk("Si", cubic=True)
    atoms.rattle(0.05, seed=0)
    atoms.calc = model.ase_calculator()
    stress = atoms.get_stress(voigt=False)
    numeric = np.zeros((3, 3))
    for i in range(3):
        for j in range(3):
            energies = []
            for sign in (1, -1):
                strain = np.eye(3)
                strain[i, j] += sign * 1e-5
                moved = atoms.copy()
                moved.set_cell(atoms.cell @ strain, scale_atoms=True)
                moved.calc = model.ase_calculator()
                energies.append(moved.get_potential_energy())
            numeric[i, j] = (energies[0] - energies[1]) / 2e-5 / atoms.get_volume()
    np.testing.assert_allclose(stress, (numeric + numeric.T) / 2, atol=1e-7)
    atoms.set_momenta(np.random.default_rng(0).normal(scale=0.8, size=(len(atoms), 3)))
    before = atoms.get_total_energy()
    VelocityVerlet(atoms, 0.5 * units.fs).run(20)
    assert atoms.get_total_energy() == pytest.approx(before, abs=2e-4 * len(atoms))


@pytest.fixture
def labelled(tmp_path):
    """Copper clusters with EMT's energies and forces, written by ASE."""
    from ase.io import write

    rng = np.random.default_rng(0)
    frames = []
    for _ in range(24):
        atoms = bulk("Cu", cubic=True) * (1, 1, 1)
        atoms.pbc = False
        atoms.positions += rng.normal(scale=0.15, size=atoms.positions.shape)
        atoms.calc = EMT()
        atoms.get_forces()
        frames.append(atoms)
    write(tmp_path / "cu.xyz", frames)
    return tmp_path / "cu.xyz"


def test_training_learns_resumes_and_is_the_same_for_a_seed(labelled, tmp_path):
    graphs = [graph_of(frame, 4.0) for frame in read_frames(labelled)]
    assert all(torch.isfinite(g.forces).all() for g in graphs)
    statistics = training.statistics(graphs)
    config = TrainingConfig(epochs=6, batch_size=4, seed=1)

    def fresh():
        torch.manual_seed(0)
        return nn.SpinForceField([29], 4.0, 1, 4, 1, **statistics)

    whole = fresh()
    before = evaluate(whole, graphs).force_rmse
    history = fit(whole, graphs[:20], graphs[20:], config, progress=False)
    assert len(history) == 6
    assert evaluate(whole, graphs).force_rmse < 0.7 * before
    again = fresh()
    fit(again, graphs[:20], graphs[20:], config, progress=False)
    for a, b in zip(whole.parameters(), again.parameters(), strict=True):
        assert torch.equal(a, b)

    file = tmp_path / "state.pt"
    halted = fresh()
    seen = []

    def stop(*_, **__):
        if len(seen) == 3:
            raise KeyboardInterrupt
        seen.append(1)
        return original(*_, **__)

    original = training.evaluate
    training.evaluate = stop
    try:
        fit(halted, graphs[:20], graphs[20:], config, progress=False, checkpoint=file)
    finally:
        training.evaluate = original
    assert len(seen) == 3, "interrupted in the fourth epoch"
    resumed = fresh()
    rest = fit(resumed, graphs[:20], graphs[20:], config, progress=False, checkpoint=file)
    assert [row["epoch"] for row in rest] == [1, 2, 3, 4, 5, 6]
    for a, b in zip(whole.parameters(), resumed.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_models_are_saved_and_read(tmp_path, force_field):
    path = tmp_path / "model.safetensors"
    save(force_field, path)
    again = load(path)
    graph = graph_of(water_cluster(), 4.0)
    np.testing.assert_array_equal(again(*graph.inputs())["forces"], force_field(*graph.inputs())["forces"])
    data = path.read_bytes()
    for damaged in (b"", data[:100], data[:-50], b"\xff" * 64, data.replace(b"r_max", b"r_mix")):
        path.write_bytes(damaged)
        with pytest.raises(SpinTPError, match="no force field"):
            load(path)


def test_files(tmp_path):
    """Extended XYZ with REF_ keys, an ASE database, unlabelled frames, and what is no file of atoms."""
    from ase.calculators.singlepoint import SinglePointCalculator
    from ase.db import connect
    from ase.io import write

    atoms = molecule("H2O")
    atoms.info["REF_energy"] = -3.5
    atoms.arrays["REF_forces"] = np.arange(9.0).reshape(3, 3)
    write(tmp_path / "ref.xyz", atoms)
    (frame,) = read_frames(tmp_path / "ref.xyz")
    graph = graph_of(frame, 3.0)
    assert float(graph.energy) == -3.5
    np.testing.assert_allclose(graph.forces, np.arange(9.0).reshape(3, 3))
    plain = molecule("H2O")
    plain.calc = SinglePointCalculator(plain, energy=-1.0, forces=np.ones((3, 3)))
    with connect(tmp_path / "a.db") as database:
        database.write(plain)
    (frame,) = read_frames(tmp_path / "a.db")
    assert float(graph_of(frame, 3.0).energy) == -1.0
    write(tmp_path / "bare.xyz", molecule("H2O"))
    (frame,) = read_frames(tmp_path / "bare.xyz")
    assert graph_of(frame, 3.0).energy.isnan().all()
    model = nn.SpinForceField([1, 8], 3.0, 1, 2, 1)
    with pytest.raises(SpinTPError, match="neither forces nor energies"):
        evaluate(model, [graph_of(frame, 3.0)])
    for text in ("", "three\n\nH 0 0 0\n", "2\nProperties=species:S:1:pos:R:3\nH 0 0 0\n"):
        (tmp_path / "bad.xyz").write_text(text)
        with pytest.raises(SpinTPError, match="cannot be read"):
            read_frames(tmp_path / "bad.xyz")
    with pytest.raises(SpinTPError, match="no file"):
        read_frames(tmp_path / "none.xyz")
    atom = molecule("O")
    atom.calc = SinglePointCalculator(atom, energy=-7.0)
    assert isolated_energies([atom]) == {8: -7.0}


def test_commands(labelled, tmp_path):
    model, picture = tmp_path / "m.safetensors", tmp_path / "p.png"

    def run(name, *arguments):
        result = CliRunner().invoke(RUN[name], list(map(str, arguments)))
        assert result.exit_code == 0, result.output
        return result.output

    options = ("--epochs", 2, "--channels", 2, "--lmax", 1, "--layers", 1, "--r-max", 4)
    assert "parameters" in run("train", labelled, "-o", model, *options)
    assert "eV/angstrom" in run("evaluate", model, labelled, "--plot", picture)
    assert picture.stat().st_size > 5000
    import json

    assert json.loads(run("evaluate", model, labelled, "--json"))["force_mae"] > 0
    result = CliRunner().invoke(RUN["evaluate"], [str(labelled), str(labelled)])
    assert result.exit_code == 1
    assert "no force field" in result.output


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: nn.SpinForceField([]), "species"),
        (lambda: nn.SpinForceField([1], layers=0), "layer"),
        (lambda: nn.SpinForceField([1], atomic_energies=[1.0, 2.0]), "atomic energies"),
        (lambda: nn.SpinForceField([1], product="fast"), "product"),
        (lambda: nn.SymmetricSpinProduct("1x0e", "1x0e", correlation=4), "correlation"),
        (lambda: fit(nn.SpinForceField([1], 3.0, 1, 2, 1), []), "nothing to train"),
        (lambda: evaluate(nn.SpinForceField([1], 3.0, 1, 2, 1), []), "nothing to evaluate"),
        (lambda: nn.SpinForceField([1], 3.0, 1, 2, 1)(*graph_of(molecule("H2O"), 3.0).inputs()), "atomic numbers"),
    ],
)
def test_bad_input(call, said):
    with pytest.raises(SpinTPError, match=said):
        call()


def test_a_lone_atom_has_its_own_energy():
    model = nn.SpinForceField([8], 3.0, 1, 2, 2, atomic_energies=[-5.0])
    found = model(*make_graph([8], np.zeros((1, 3)), *neighbours(np.zeros((1, 3)), 3.0)).inputs())
    assert found["forces"].abs().max() == 0
    assert torch.isfinite(found["energy"]).all()


def test_without_ase(monkeypatch, tmp_path):
    import sys

    monkeypatch.setitem(sys.modules, "ase.db", None)
    with pytest.raises(BackendUnavailable, match="atoms"):
        read_frames(tmp_path / "x.xyz")
    assert spherical_harmonics_irreps(2) == Irreps("1x0e+1x1o+1x2e")
