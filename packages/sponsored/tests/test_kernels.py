"""The CUDA kernels, emulated: the numbers of NumPy, whatever the order in which threads and blocks run."""

import numpy as np
import pytest

from sprigs_sponsored import (
    SimulationConfig,
    SlateInstance,
    SponsoredError,
    kernels,
    random_instance,
    simulation,
    solve_slate,
)
from sprigs_sponsored.slates import unrank

sprigs_emulator = pytest.importorskip("sprigs_emulator")

from emulated import EmulatedDevice  # noqa: E402

try:
    sprigs_emulator.find_compiler()
except sprigs_emulator.CompilerNotFound as missing:
    pytest.skip(str(missing), allow_module_level=True)

CONFIGS = {
    "default": SimulationConfig(),
    "one of each": SimulationConfig(1, 0, 1, 1),
    "odd": SimulationConfig(3, 2, 3, 5, sigma=0.3, active=0.9, rho=0.4),
    "wide": SimulationConfig(2, 40, 3, 40, question_utility=np.linspace(0, 0.4, 41), active=0.9),
    "nobody": SimulationConfig(2, 2, 2, 3, active=0.0),
    "given": SimulationConfig.from_instance(random_instance(1, abandonment=0.4), sigma=0.5, rho=0.7),
}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("size", [1, 37])
def test_auctions(name, size):
    """With memcheck, racecheck, initcheck and synccheck on."""
    config = CONFIGS[name]
    for start, seed in ((0, 1), (2**40 + 3, 2**64 - 1)):
        found = kernels.outcomes(EmulatedDevice(checks="all", interleave=2, seed=size), config, start, size, seed)
        np.testing.assert_allclose(found, simulation._outcomes(config, start, size, seed, "numpy"), atol=1e-10)


def test_auctions_under_fifty_schedules():
    config = CONFIGS["odd"]
    expected = simulation._outcomes(config, 5, 9, 3, "numpy")
    for seed in range(50):
        found = kernels.outcomes(EmulatedDevice(seed=seed, interleave=1 + seed % 3), config, 5, 9, 3)
        np.testing.assert_allclose(found, expected, atol=1e-10)


@pytest.mark.parametrize(
    ("prompts", "k", "m", "n"), [(9, 2, 3, 4), (7, 3, 2, 5), (5, 1, 1, 1), (12, 4, 6, 16), (6, 5, 2, 2)]
)
def test_slates(prompts, k, m, n):
    for seed in range(3):
        rng = np.random.default_rng(seed)
        values = rng.lognormal(size=(n, m)) * (rng.random((n, m)) < 0.6)
        instance = SlateInstance(rng.dirichlet(np.ones(m)), rng.normal(size=(prompts, m)), values, k)
        device = EmulatedDevice(checks="all" if seed == 0 else "fast", seed=seed, interleave=2)
        empty = instance.welfare(())
        parts = [kernels.enumerate_slates(device, instance, size) for size in range(1, k + 1)]
        exact = solve_slate(instance, "enumerate")
        assert max(empty, *(welfare for welfare, _, _ in parts)) == pytest.approx(exact.welfare, abs=1e-12)
        for size, (welfare, index, without) in enumerate(parts, 1):
            slate = unrank(index, prompts, size)
            assert instance.welfare(slate) == pytest.approx(welfare, abs=1e-12)
            assert (without <= exact.without + 1e-12).all()
        best = np.max([without for _, _, without in parts], axis=0)
        alone = [instance.without(i).welfare(()) for i in range(n)]
        np.testing.assert_allclose(np.maximum(best, alone), exact.without, atol=1e-12)


def test_slates_through_the_solver(monkeypatch):
    monkeypatch.setattr(kernels, "gpu", EmulatedDevice)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        values = rng.lognormal(size=(4, 3)) * (rng.random((4, 3)) < 0.6)
        instance = SlateInstance(rng.dirichlet(np.ones(3)), rng.normal(size=(8, 3)), values, 3)
        exact, found = solve_slate(instance, "enumerate"), solve_slate(instance, "cuda")
        assert found.slate == exact.slate
        np.testing.assert_allclose(found.payments, exact.payments, atol=1e-12)


def test_ties_go_to_the_lowest_slate():
    instance = SlateInstance([0.5, 0.5], np.zeros((40, 2)), [[1, 0], [0, 1]], 2)
    for seed in range(5):
        _, index, _ = kernels.enumerate_slates(EmulatedDevice(seed=seed, interleave=3), instance, 2)
        assert index == 0


def test_refusals():
    device = EmulatedDevice()
    with pytest.raises(SponsoredError, match="shared memory"):
        kernels.outcomes(device, SimulationConfig(50, 60, 10, 50), 0, 1, 0)
    wide = SlateInstance([1.0], np.zeros((6000, 1)), [[1.0]], 1)
    with pytest.raises(SponsoredError, match="4096"):
        kernels.enumerate_slates(device, wide, 1)
    large = SlateInstance(np.full(6, 1 / 6), np.zeros((1200, 6)), np.ones((2, 6)), 1)
    with pytest.raises(SponsoredError, match="shared memory"):
        kernels.enumerate_slates(device, large, 1)
    with pytest.raises(SponsoredError, match="MNL"):
        kernels.enumerate_slates(device, SlateInstance([1.0], [[1.0]], [[1.0]], 1, "coverage"), 1)


@pytest.mark.gpu
def test_on_a_device():
    pytest.importorskip("cupy")
    for config in CONFIGS.values():
        found = kernels.outcomes(kernels.gpu(), config, 0, 4096, 1)
        np.testing.assert_allclose(found, simulation._outcomes(config, 0, 4096, 1, "numpy"), atol=1e-10)
