"""Simulated systems against closed forms and independent integration; the cells' files."""

import dataclasses
import hashlib
import io
import os
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import sprigs
from sprigs_splineflow import SplineFlowError, datasets, systems
from sprigs_splineflow.datasets import make_ode, make_sde, principal_components, r_folders
from sprigs_splineflow.files import read_observations

MIRROR = Path(os.environ.get("SPRIGS_DATA", ""), "splineflow")
needs_mirror = pytest.mark.skipif(
    not (MIRROR / "emt.npz").is_file(), reason="SPRIGS_DATA holds no splineflow/emt.npz, which has no public address"
)


@pytest.mark.parametrize("name", systems.SYSTEMS)
def test_trajectories_solve_the_system(name):
    """Against another method, from the same starts; the time derivative is the field."""
    panel = make_ode(name, 3, np.linspace(0, 2, 41))
    for x in panel.values:
        peer = solve_ivp(panel.system.drift, (0, 2), x[0], "Radau", np.linspace(0, 2, 41), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(x, peer.y.T, atol=1e-5 * max(1, np.abs(x).max()))


def test_fixed_points_and_conserved_quantities():
    """What is known of each of the classics without integrating it."""
    made = {name: systems.make_system(name, 0) for name in systems.SYSTEMS}

    def still(name, state):
        np.testing.assert_allclose(made[name].drift(0.0, np.asarray(state, dtype=float)), 0, atol=1e-9)

    c = made["duffing"].parameters
    still("duffing", [np.sqrt(c["alpha"] / c["beta"]), 0])
    c = made["brusselator"].parameters
    still("brusselator", [c["a"], c["b"] / c["a"]])
    c = made["toggle-switch"].parameters
    roots = np.roots([1, -c["b"], 2, -2 * c["b"], 1 + c["a"] ** 2, -c["b"]])  # y from x = a / (1 + y^2)
    y = roots[np.abs(roots.imag) < 1e-9].real[0]
    still("toggle-switch", [c["a"] / (1 + y**2), y])
    c = made["repressilator"].parameters
    m = np.roots([1, -0.2, 1, -0.2 - c["alpha"]])
    still("repressilator", np.full(6, m[np.abs(m.imag) < 1e-9].real[0]))
    c = made["sir"].parameters
    x = make_ode(made["sir"], 3, np.linspace(0, 20, 41)).values
    # s + i - (gamma / beta) ln s does not change.
    kept = x.sum(axis=2) - c["gamma"] / c["beta"] * np.log(x[..., 0])
    np.testing.assert_allclose(kept, kept[:, :1] + 0 * kept, atol=1e-8)


def test_closed_forms():
    rng = np.random.default_rng(0)
    t = np.linspace(0, 5, 11)
    decay = systems.make_system("exp", rng)
    x0 = decay.start(4, rng)
    rate = decay.parameters["lambda"]
    np.testing.assert_allclose(systems.simulate(decay, x0, t), x0[:, None] * np.exp(-rate * t)[:, None], atol=1e-12)
    swing = systems.make_system("harmonic", rng)
    w, x0 = swing.parameters["omega"], swing.start(4, rng)
    expected = x0[:, :1] * np.cos(w * t) + x0[:, 1:] / w * np.sin(w * t)
    np.testing.assert_allclose(systems.simulate(swing, x0, t)[..., 0], expected, atol=1e-12)


@pytest.mark.parametrize("name", ["exp", "harmonic", "damped", "ou"])
def test_integration_equals_the_exact_flow(name):
    """At common times, and at times of each trajectory's own; the first may be after the start."""
    system = systems.make_system(name, 3)
    integrated = dataclasses.replace(system, flow=None)
    x0 = system.start(6, np.random.default_rng(0))
    own = np.sort(np.random.default_rng(1).uniform(0, 10, (6, 40)), axis=1)
    for times in (own[0], own, np.concatenate([np.zeros((6, 1)), own], axis=1)):
        exact = systems.simulate(system, x0, times)
        np.testing.assert_allclose(systems.simulate(integrated, x0, times), exact, atol=1e-8)


@pytest.mark.parametrize("name", systems.SYSTEMS)
def test_constants_and_starts_are_in_the_papers_ranges(name):
    ranges = {
        "exp": {"lambda": (0.2, 1.5)},
        "harmonic": {"omega": (0.5, 2.5)},
        "damped": {"omega": (0.8, 2), "gamma": (0.1, 0.7)},
        "lotka-volterra": {"alpha": (0.5, 1.5), "beta": (0.02, 0.08), "delta": (0.02, 0.08), "gamma": (0.5, 1.5)},
        "lorenz": {"sigma": (8, 14), "rho": (20, 35), "beta": (2, 3.5)},
        "van-der-pol": {"mu": (2, 2)},
        "fitzhugh-nagumo": {"a": (0.7, 0.7), "b": (0.8, 0.8), "tau": (12.5, 12.5), "I": (0.5, 0.5)},
        "duffing": {"delta": (0.1, 0.4), "alpha": (0.5, 1.5), "beta": (0.5, 1.5)},
        "brusselator": {"a": (0.8, 1.2), "b": (2.6, 3.4)},
        "toggle-switch": {"a": (3, 6), "b": (3, 6)},
        "repressilator": {"alpha": (20, 60), "beta": (0.5, 2)},
        "sir": {"beta": (0.8, 2), "gamma": (0.1, 0.4)},
        "ou": {"theta": (0.8, 0.8)},
    }[name]
    starts = {
        "exp": (0.5, 2),
        "harmonic": (-1, 1),
        "damped": (-1, 1),
        "lotka-volterra": (0.5, 2.5),
        "lorenz": (-15, 15),
        "duffing": (-1.5, 1.5),
        "brusselator": (0.5, 3),
        "toggle-switch": (0, 3),
        "repressilator": (0, 10),
        "sir": (np.array([0.8, 0.005]), np.array([0.95, 0.05])),
    }
    drawn = [systems.make_system(name, seed) for seed in range(200)]
    for constant, (low, high) in ranges.items():
        values = [system.parameters[constant] for system in drawn]
        assert low <= min(values) <= low + 0.05 * (high - low)
        assert high - 0.05 * (high - low) <= max(values) <= high
    low, high = starts.get(name, (-2, 2))
    x0 = drawn[0].start(1000, np.random.default_rng(0))
    low, high = (np.broadcast_to(end, drawn[0].dims) for end in (low, high))
    np.testing.assert_allclose((x0.min(axis=0) - low) / (high - low), 0, atol=0.02)
    np.testing.assert_allclose((x0.max(axis=0) - high) / (high - low), 0, atol=0.02)


def test_the_same_seed_gives_the_same_panel():
    for make in (make_ode, make_sde):
        one, two, other = (make("lorenz", 3, np.linspace(0, 1, 9), 0.5, True, seed).values for seed in (1, 1, 2))
        np.testing.assert_array_equal(one, two)
        assert not np.allclose(one, other)


def test_variance_at_irregular_times():
    """Of an Ornstein-Uhlenbeck process from x0 ~ U(-2, 2), every trajectory at a time of its own."""
    panel = make_sde("ou", 5000, np.linspace(0, 4, 8), irregular=True, noise=0.5)
    decay = np.exp(-2 * 0.8 * panel.times)
    variance = decay * 4 / 3 + (1 - decay) * 0.25 / 1.6
    share = np.square(panel.values[..., 0]).mean(axis=0) / variance.mean(axis=0)
    np.testing.assert_allclose(share[1:], 1, atol=0.09)


def test_populations_stay_above_the_floor():
    panel = make_sde("lotka-volterra", 50, np.linspace(0, 5, 51), noise=2.0)
    assert panel.values.min() == 1e-8


def test_stationary_variance():
    """g^2 / (2 theta) of the simulated Ornstein-Uhlenbeck process."""
    panel = make_sde("ou", 20_000, np.array([0.0, 8.0]), noise=0.5)
    expected = 0.25 / 1.6
    assert panel.values[:, 1].var() == pytest.approx(expected, rel=0.04)


@pytest.mark.parametrize("name", ["harmonic", "lorenz"])
def test_irregular_times(name):
    panel = make_ode(name, 5, np.linspace(0, 2, 30), irregular=True)
    assert panel.times.shape == (5, 30)
    assert (np.diff(panel.times, axis=1) > 0).all()
    for i in range(5):
        peer = solve_ivp(
            panel.system.drift, (0, 2), panel.values[i, 0], "DOP853", panel.times[i], rtol=1e-11, atol=1e-11
        )
        np.testing.assert_allclose(panel.values[i], peer.y.T, atol=1e-5)
    noisy = make_sde("damped", 4, np.linspace(0, 2, 10), irregular=True)
    assert (noisy.values[:, 1:] != noisy.values[:, :-1]).any(axis=2).all()


def test_missing_entries_and_split():
    panel = make_ode("damped", 50, np.linspace(0, 5, 51), missing=0.75)
    assert panel.mask[:, 0].all()
    assert (panel.mask.sum(axis=1) >= 2).all()
    assert panel.mask[:, 1:].mean() == pytest.approx(0.25, abs=0.02)
    train, test = panel.split()
    assert (len(train.values), len(test.values), len(test.mask)) == (40, 10, 10)
    np.testing.assert_array_equal(make_ode("damped", 50, np.linspace(0, 5, 51), missing=0.75).mask, panel.mask)


def test_noise_on_the_velocity_alone():
    """The damped oscillator's position has no noise of its own."""
    panel = make_sde("damped", 200, np.linspace(0, 1, 201))
    x = panel.values
    moved = x[:, 1:, 0] - x[:, :-1, 0] - 0.005 * x[:, :-1, 1]
    assert np.abs(moved).max() < 1e-12
    drift = panel.system.drift(0.0, x[:, :-1])[..., 1]
    rest = x[:, 1:, 1] - x[:, :-1, 1] - 0.005 * drift
    assert rest.std() == pytest.approx(0.08 * np.sqrt(0.005), rel=0.02)


@pytest.mark.parametrize(
    "options",
    [
        {"n": 0},
        {"missing": 1.0},
        {"times": [1.0]},
        {"times": [0.0, 0.0]},
        {"times": [-1.0, 1.0]},
        {"system": "pendulum"},
    ],
)
def test_bad_arguments(options):
    with pytest.raises(SplineFlowError):
        make_ode(**{"system": "exp", "n": 2, **options})
    with pytest.raises(SplineFlowError, match="empty"):
        make_ode("exp", 2).split(1.0)
    for noise in (-0.1, np.nan, np.inf):
        with pytest.raises(SplineFlowError, match="noise"):
            make_sde("ou", 2, noise=noise)


@needs_mirror
@pytest.mark.parametrize(
    ("load", "counts", "dims"),
    [
        (datasets.load_emt, (577, 885, 788, 754, 129), 3),
        (datasets.load_bifurcation, (231, 166, 93, 211, 122, 258, 456, 359), 4),
        (datasets.load_lineage, (1429, 3781, 5788), 2),
        (datasets.load_simulation, (400, 433, 518, 682, 914), 3),
        (datasets.load_mesc, (92, 91, 93, 87, 93), 5),
    ],
)
def test_cells(load, counts, dims):
    data = load()
    assert tuple(len(a) for a in data.arrays) == counts
    assert data.dims == dims
    assert (np.diff(data.times) > 0).all()
    if load is datasets.load_mesc:
        assert np.concatenate(data.arrays)[:, 0].std() == pytest.approx(1.0)
        np.testing.assert_array_equal(data.times, [0, 12, 24, 48, 72])


@needs_mirror
def test_damaged_files(tmp_path, monkeypatch):
    folder = tmp_path / "splineflow"
    folder.mkdir()
    monkeypatch.setenv("SPRIGS_DATA", str(tmp_path))
    (folder / "emt.npz").write_bytes((MIRROR / "emt.npz").read_bytes()[:-1])
    with pytest.raises(sprigs.DataMismatch):
        datasets.load_emt()
    with pytest.raises(sprigs.DataUnavailable, match="TIGON"):
        datasets.load_lineage()


def _declare(folder, monkeypatch, name, content):
    """Have a file of that content taken for the declared one, so that what is inside is looked at."""
    (folder / "splineflow").mkdir(exist_ok=True)
    (folder / "splineflow" / f"{name}.npz").write_bytes(content)
    file = dataclasses.replace(datasets.FILES[name], sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(datasets.FILES, name, file)
    monkeypatch.setenv("SPRIGS_DATA", str(folder))


def _npz(**arrays):
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


GOOD = {
    "x": np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32),
    "step": np.arange(10, dtype=np.int16) % 5,
}


@pytest.mark.parametrize(
    "change",
    [
        {"step": None},
        {"x": GOOD["x"][:, :2]},
        {"x": GOOD["x"][:9]},
        {"x": np.where(GOOD["x"] > 0, GOOD["x"], np.nan)},
        {"x": GOOD["x"].astype(str)},
        {"x": GOOD["x"].astype(object)},
        {"step": GOOD["step"].astype(float)},
        {"step": GOOD["step"] - 1},
        {"step": np.zeros(10, dtype=int)},
    ],
)
def test_other_content_is_refused(change, tmp_path, monkeypatch):
    _declare(tmp_path, monkeypatch, "emt", _npz(**GOOD))
    np.testing.assert_array_equal(datasets.load_emt().arrays[1], GOOD["x"][1::5])
    arrays = {name: array for name, array in {**GOOD, **change}.items() if array is not None}
    _declare(tmp_path, monkeypatch, "emt", _npz(**arrays))
    with pytest.raises(SplineFlowError):
        datasets.load_emt()


def test_unknown_hours_are_refused(tmp_path, monkeypatch):
    hours = np.array([0.0] * 5 + [np.nan] * 5)
    _declare(tmp_path, monkeypatch, "mesc_pre", _npz(x=GOOD["x"], hours=hours))
    with pytest.raises(SplineFlowError, match="hours"):
        datasets.load_mesc(2)


def test_damaged_bytes_load_or_are_refused(tmp_path, monkeypatch):
    rng, content = np.random.default_rng(0), _npz(**GOOD)
    refused = 0
    for _ in range(200):
        damaged = bytearray(content[: rng.integers(1, len(content) + 1)] if rng.uniform() < 0.3 else content)
        for at in rng.integers(0, len(damaged), 3):
            damaged[at] = rng.integers(256)
        _declare(tmp_path, monkeypatch, "emt", bytes(damaged))
        try:
            assert np.isfinite(np.concatenate(datasets.load_emt().arrays)).all()
        except SplineFlowError:
            refused += 1
    assert refused > 100


def test_principal_components_are_numpys():
    x = np.random.default_rng(0).normal(size=(40, 8)) @ np.diag(np.arange(1.0, 9))
    scores = principal_components(x, 3)
    values = np.linalg.eigvalsh(np.cov(x.T))[::-1][:3]
    np.testing.assert_allclose(scores.var(axis=0), values / values[0], rtol=1e-10)
    np.testing.assert_allclose(np.corrcoef(scores.T) - np.eye(3), 0, atol=1e-12)
    with pytest.raises(SplineFlowError, match="components"):
        principal_components(x, 9)


@pytest.mark.parametrize(
    ("load", "files", "package", "sizes"),
    [
        (datasets.load_hsmm, datasets.HSMM_SHA256, "HSMMSingleCell", [69, 74, 79, 49]),
        (datasets.load_guo, datasets.GUO_SHA256, "destiny", [19, 23, 43, 75, 109, 159]),
    ],
)
def test_cells_of_r_packages(load, files, package, sizes, tmp_path):
    with pytest.raises(sprigs.DataUnavailable, match=f"r-bioc-{package.lower()}"):
        load(tmp_path)
    for name in files:
        (tmp_path / name).write_bytes(b"RDX3")
    with pytest.raises(sprigs.DataMismatch):
        load(tmp_path)
    pytest.importorskip("rdata")
    if not any(folder.is_dir() for folder in r_folders(package)):
        pytest.skip(f"{package} is not installed")
    data = load()
    assert [len(a) for a in data.arrays] == sizes
    assert data.dims == 5
    assert np.concatenate(data.arrays)[:, 0].std() == pytest.approx(1.0)


def test_cells_of_anndata(tmp_path):
    anndata = pytest.importorskip("anndata")
    from scipy.sparse import csr_matrix

    rng = np.random.default_rng(0)
    x = rng.poisson(1.0, (30, 4)).astype(np.float32)
    adata = anndata.AnnData(csr_matrix(x), obs={"day": np.repeat([2.0, 0.0, 10.0], 10)})
    adata.obs["day"] = adata.obs["day"].astype("category")
    adata.obsm["X_pca"] = rng.normal(size=(30, 3))
    found = datasets.from_anndata(adata, "day")
    np.testing.assert_array_equal(found.times, [0, 2, 10])
    np.testing.assert_array_equal(found.arrays[0], adata.obsm["X_pca"][10:20])
    np.testing.assert_array_equal(datasets.from_anndata(adata, "day", "X").arrays[2], x[20:])
    adata.write_h5ad(tmp_path / "cells.h5ad")
    read = read_observations(tmp_path / "cells.h5ad", "day")
    np.testing.assert_array_equal(read.snapshots[1], adata.obsm["X_pca"][:10])
    assert read_observations(tmp_path / "cells.h5ad", "day", "X").names == tuple(adata.var_names)
    adata.obs["stage"] = ["early"] * 30
    adata.obs["gone"] = np.nan
    adata.obsm["broken"] = np.full((30, 2), np.inf)
    for arguments in (("hour",), ("day", "X_umap"), ("stage",), ("gone",), ("day", "broken")):
        with pytest.raises(SplineFlowError):
            datasets.from_anndata(adata, *arguments)
    raw = (tmp_path / "cells.h5ad").read_bytes()
    for damaged in (b"", b"no HDF5", raw[: len(raw) // 2]):
        (tmp_path / "bad.h5ad").write_bytes(damaged)
        with pytest.raises(SplineFlowError, match="cannot be read"):
            read_observations(tmp_path / "bad.h5ad")
