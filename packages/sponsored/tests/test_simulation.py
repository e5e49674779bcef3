"""The simulator: backends against one another and against the mechanisms, the same bits for any workers."""

import multiprocessing
import threading
from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest

from sprigs_sponsored import BackendUnavailable, SimulationConfig, SponsoredError, random_instance, simulate, simulation
from sprigs_sponsored.counters import philox, uniforms
from sprigs_sponsored.simulation import BLOCK, MECHANISMS, METRICS, as_instances, batch
from sprigs_sponsored.tables import standard_mechanisms

CONFIGS = {
    "default": SimulationConfig(),
    "one of each": SimulationConfig(1, 0, 1, 1),
    "odd": SimulationConfig(3, 2, 3, 5, sigma=0.3, active=0.9, rho=0.4),
    "utility": SimulationConfig(2, 3, 2, 4, question_utility=[0, 0.3, -0.2, 0.05]),
    "nobody": SimulationConfig(2, 2, 2, 3, active=0.0),
    "given": SimulationConfig.from_instance(random_instance(1, abandonment=0.4), sigma=0.5, rho=0.7),
}


def outcomes(config, backend, start=0, size=300, seed=7):
    return simulation._outcomes(config, start, size, seed, backend)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0, 0, 0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, 2**64 - 1, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            0x299F31D0A4093822,
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_known_answers(counter, key, words):
    """Of the reference implementation (Random123's kat_vectors)."""
    got = philox(np, tuple(np.array([c], np.uint64) for c in counter), key)
    assert tuple(int(w[0]) for w in got) == words


def test_uniforms_are_uniform_and_differ():
    u = uniforms(np, np.arange(2000), 2, 50, 3)
    assert u.shape == (2000, 50)
    assert 0 < u.min() < u.max() < 1
    counts, _ = np.histogram(u, 20, (0, 1))
    assert ((counts - 5000) ** 2 / 5000).sum() < 45  # chi-square of 19, 0.9993 quantile
    assert np.unique(u).size > 99_000
    assert not np.array_equal(u, uniforms(np, np.arange(2000), 2, 50, 4))
    assert np.array_equal(u[:, :7], uniforms(np, np.arange(2000), 2, 7, 3)), "more do not change the first"
    far = uniforms(np, np.array([2**40 + 1], np.uint64), 0, 4, 0)
    assert not np.array_equal(far, uniforms(np, np.array([1], np.uint64), 0, 4, 0))


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("backend", ["numba", "jax"])
def test_backends_agree(name, backend):
    pytest.importorskip(backend)
    config = CONFIGS[name]
    np.testing.assert_allclose(outcomes(config, backend), outcomes(config, "numpy"), atol=1e-10)
    late = 2**40 + 5
    np.testing.assert_allclose(
        outcomes(config, backend, late, 9, 2**64 - 1), outcomes(config, "numpy", late, 9, 2**64 - 1), atol=1e-10
    )


@pytest.mark.parametrize("name", CONFIGS)
def test_auctions_are_those_of_the_mechanisms(name):
    config = CONFIGS[name]
    found = outcomes(config, "numpy", 100, 40, 3)
    for i, instance in enumerate(as_instances(config, 100, 40, 3)):
        for j, mechanism in enumerate(standard_mechanisms(config.rho)):
            outcome = mechanism.run(instance)
            expected = (outcome.welfare, outcome.revenue, outcome.surplus)
            np.testing.assert_allclose(found[i, j, :3], expected, atol=1e-10, err_msg=f"{i} {mechanism.name}")


def test_values_are_lognormal():
    config = SimulationConfig(1, 0, 1, 1, active=1.0, sigma=0.5)
    values = config.draw(np, np.arange(40_000, dtype=np.uint64), 0)[2].ravel()
    logs = np.log(values)
    assert logs.mean() == pytest.approx(0, abs=0.015)
    assert logs.std() == pytest.approx(0.5, abs=0.01)
    assert SimulationConfig(1, 0, 1, 1).draw(np, np.arange(40_000, dtype=np.uint64), 0)[2].astype(
        bool
    ).mean() == pytest.approx(0.5, abs=0.015)


@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_the_same_bits_for_any_workers(backend):
    config, n = SimulationConfig(3, 2, 2, 4), 5 * BLOCK + 77
    alone = simulate(config, n, 5, backend=backend, threads=1, keep=True)
    for executor in (ThreadPoolExecutor(3), ProcessPoolExecutor(2, multiprocessing.get_context("spawn"))):
        with executor:
            shared = simulate(config, n, 5, backend=backend, executor=executor, keep=True)
        assert np.array_equal(alone.mean, shared.mean)
        assert np.array_equal(alone.standard_error, shared.standard_error)
        assert np.array_equal(alone.arrays["revenue"], shared.arrays["revenue"])
    assert np.array_equal(simulate(config, n, 5, backend=backend, threads=2).mean, alone.mean)


def test_summaries():
    config = SimulationConfig(3, 2, 2, 4)
    result = simulate(config, 10_000, 1, backend="numpy")
    welfare = result.arrays["welfare"]
    assert welfare.shape == (10_000, 7)
    np.testing.assert_allclose(result.mean[:, 0], welfare.mean(axis=0), rtol=1e-12)
    expected = welfare.std(axis=0, ddof=1) / 100
    np.testing.assert_allclose(result.standard_error[:, 0], expected, rtol=1e-9)
    summary = result.summary()
    assert tuple(summary) == MECHANISMS
    assert tuple(summary["joint VCG"]) == METRICS
    order = [summary[name]["welfare"][0] for name in ("ask nothing", "joint VCG", "full information")]
    assert order == sorted(order)
    assert simulate(config, 10, 1, keep=False).arrays == {}
    more = simulate(config, BLOCK, 1, first=BLOCK, backend="numpy", keep=True)
    both = simulate(config, 2 * BLOCK, 1, backend="numpy", keep=True)
    assert np.array_equal(both.arrays["share"][BLOCK:], more.arrays["share"]), "an earlier run can be gone on from"


class Dying(ThreadPoolExecutor):
    """A pool that loses a worker, and is broken from then on."""

    def __init__(self):
        super().__init__(1)
        self.count = 0

    def submit(self, fn, /, *args, **kwargs):
        self.count += 1
        if self.count < 3:
            return super().submit(fn, *args, **kwargs)
        broken = Future()
        broken.set_exception(BrokenExecutor("a worker died"))
        return broken


def test_a_broken_pool_loses_nothing():
    config = SimulationConfig(2, 1, 2, 2)
    with Dying() as pool:
        found = simulate(config, 40 * BLOCK, 3, backend="numba", executor=pool, keep=False)
        assert pool.count > 3
    assert np.array_equal(found.mean, simulate(config, 40 * BLOCK, 3, backend="numba", keep=False).mean)


def test_other_errors_of_workers_are_raised(monkeypatch):
    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(simulation, "_run", fail)
    with pytest.raises(ZeroDivisionError):
        simulate(SimulationConfig(1, 0, 1, 1), 10)


def test_an_interrupt_keeps_what_was_done(monkeypatch):
    config, calls, run = SimulationConfig(1, 0, 1, 1), [], simulation._run

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) > 2:
            raise KeyboardInterrupt
        return run(*arguments)

    monkeypatch.setattr(simulation, "_run", interrupted)
    with pytest.warns(RuntimeWarning, match="interrupted after"):
        found = simulate(config, 40 * BLOCK, 1, backend="numpy", threads=1)
    assert found.interrupted
    assert 0 < found.n_auctions < 40 * BLOCK
    monkeypatch.setattr(simulation, "_run", run)
    assert np.array_equal(found.mean, simulate(config, found.n_auctions, 1, backend="numpy", threads=1).mean)


def test_configurations(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text("intents = 2\nquestions = 1\nsignals = 2\nadvertisers = 3\nprior = [0.25, 0.75]\nrho = 0.5\n")
    config = SimulationConfig.from_toml(path)
    assert config.prior.tolist() == [0.25, 0.75]
    for text, said in (
        ("intents = 0", "positive"),
        ("intents = 2\nprior = [1.0]", "kernel has shape|prior"),
        ("intent = 2", "unknown keys intent"),
        ("intents = ", "not TOML"),
        ("intents = 'x'", "positive"),
        ("active = 2", "shares"),
        ("intents = 1\nadvertisers = 1\nvalues = [[1.0, 2.0]]", "values has shape"),
    ):
        path.write_text(text)
        with pytest.raises(SponsoredError, match=said):
            SimulationConfig.from_toml(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SponsoredError, match="not TOML"):
        SimulationConfig.from_toml(path)
    with pytest.raises(SponsoredError, match="one ad slot"):
        SimulationConfig.from_instance(random_instance(0, slots=2))


def test_bad_arguments(monkeypatch):
    for arguments in (
        {"n_auctions": 0},
        {"n_auctions": 1.5},
        {"seed": -1},
        {"seed": 2**64},
        {"first": -1},
        {"threads": 0},
        {"backend": "abacus"},
    ):
        with pytest.raises(SponsoredError):
            simulate(SimulationConfig(1, 0, 1, 1), **{"n_auctions": 10, **arguments})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(BackendUnavailable, match="pip install"):
        simulate(None, 10, backend="cupy")
    assert simulate(SimulationConfig(1, 0, 1, 1), 10).backend == "numpy"


def test_one_compiled_batch_serves_threads():
    config = SimulationConfig(2, 1, 2, 3)
    expected = np.asarray(batch(np, config, np.arange(50, dtype=np.uint64), 1))
    found = []
    threads = [threading.Thread(target=lambda: found.append(outcomes(config, "numba", 0, 50, 1))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(np.allclose(f, expected, atol=1e-10) for f in found)


@pytest.mark.slow
def test_a_dask_cluster_that_loses_a_worker():
    distributed = pytest.importorskip("distributed")
    config, n = SimulationConfig(), 400 * BLOCK
    alone = simulate(config, n, 11, backend="numba", keep=False)
    with (
        distributed.LocalCluster(n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        victim = next(iter(cluster.workers.values()))
        process = victim.process.process._process
        killed = threading.Timer(1.5, process.kill)
        killed.start()
        shared = simulate(config, n, 11, backend="numba", executor=client.get_executor(), keep=False)
        assert not process.is_alive(), "it was killed before the end"
    assert np.array_equal(alone.mean, shared.mean)
    assert np.array_equal(alone.standard_error, shared.standard_error)


@pytest.mark.slow
def test_ten_million_auctions_in_bounded_memory():
    import resource

    simulate(SimulationConfig(), 100_000, keep=False)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = simulate(SimulationConfig(), 10_000_000, 2, keep=False)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert result.n_auctions == 10_000_000
    assert (after - before) / 1024 < 200, "MiB"
    assert result.standard_error[5, 0] < 1e-3
