"""The CUDA kernels, emulated: paths, noise and interpolation, whatever the order in which threads and blocks run."""

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.interpolate import make_interp_spline

from sprigs_splineflow import (
    BrownianBridge,
    BSplinePath,
    ConstantSigma,
    RescaledBridge,
    SplineFlowError,
    kernels,
    reference,
)

sprigs_emulator = pytest.importorskip("sprigs_emulator")

from emulated import EmulatedDevice  # noqa: E402

try:
    sprigs_emulator.find_compiler()
except sprigs_emulator.CompilerNotFound as missing:
    pytest.skip(str(missing), allow_module_level=True)


def make(degree=3, dims=3, layout="shared", schedule=None, n=11, trajectories=5, seed=0):
    rng = np.random.default_rng(seed)
    times = np.sort(rng.uniform(100, 110, (trajectories, n)))
    values = rng.normal(size=(trajectories, n, dims))
    mask = rng.uniform(size=values.shape) < 0.8
    mask[:, : degree + 1] = True
    if layout == "shared":
        times, mask = times[0], None
    elif layout == "trajectory":
        mask = np.repeat(mask[:, :, :1], dims, axis=2)
    return BSplinePath.fit(times, values, mask, degree, schedule=schedule or ConstantSigma(0.3), dtype=torch.float64)


def pairs(sampler, batch, seed=1):
    """Random rows and times, with both ends, an observation and times outside of the record among them."""
    rng = np.random.default_rng(seed)
    index = rng.integers(0, sampler._rows, batch)
    t = rng.uniform(100, 110, batch)
    grid = np.zeros_like(index) if len(sampler.origin) == 1 else index
    ends = sampler.path.records.sites[grid]
    for b, column in zip(range(batch - 1, max(batch - 5, 0), -1), (0, -1, 3, 2), strict=False):
        t[b] = ends[b, column]
    if batch > 8:
        t[:2] = 90.0, 120.0
    return index, t


def expected(sampler, index, t):
    """Value and velocity [B, d] by the reference."""
    path, spline = sampler.path, sampler.path.splines[0][1]
    control = path.records.per_trajectory(spline.control[:, :, None, :])[:, :, 0]
    mu, slope = np.zeros((2, len(index), sampler.dims))
    for b, (i, s) in enumerate(zip(index, t, strict=True)):
        g = 0 if len(sampler.origin) == 1 else i
        c = spline.counts[g]
        knots = spline.knots[g, : c + spline.degree + 1]
        held = np.clip(s, knots[0], knots[-1])
        mu[b] = reference.evaluate(knots, control[i, :c], spline.degree, held)
        if held == s:
            slope[b] = reference.evaluate(knots, control[i, :c], spline.degree, held, 1)
    return mu, slope


@pytest.mark.parametrize("degree", range(1, 6))
@pytest.mark.parametrize("layout", ["shared", "trajectory", "dimension"])
def test_values_and_velocities(degree, layout):
    path = make(degree, layout=layout)
    for dtype, atol in (("float64", 1e-10), ("float32", 2e-4)):
        sampler = kernels.PathSampler(path, EmulatedDevice(), dtype)
        index, t = pairs(sampler, 37)
        found = sampler.sample(index, t, seed=7)
        mu, slope = expected(sampler, index, t)
        scale = max(1, np.abs(slope).max())
        np.testing.assert_allclose(found.mu, mu, atol=atol)
        if degree == 1:  # at an observation rounding may take the chord before it
            index, t, slope = index[:-4], t[:-4], slope[:-4]
        np.testing.assert_allclose(found.velocity[: len(t)], slope, atol=atol * scale)


@pytest.mark.parametrize("dims", [1, 8, 9, 40])
def test_a_thread_or_a_warp_a_sample(dims):
    for batch in (1, 300):
        sampler = kernels.PathSampler(make(dims=dims), EmulatedDevice(), "float64")
        index, t = pairs(sampler, batch)
        found = sampler.sample(index, t, seed=3)
        mu, slope = expected(sampler, index[:20], t[:20])
        np.testing.assert_allclose(found.mu[:20], mu, atol=1e-10)
        np.testing.assert_allclose(found.velocity[:20], slope, atol=1e-9)
        assert all(np.isfinite(part).all() for part in found)


@pytest.mark.parametrize("schedule", [ConstantSigma(0.3), BrownianBridge(0.7), RescaledBridge(0.7)])
@pytest.mark.parametrize("layout", ["shared", "trajectory"])
def test_noise_is_shared_and_schedules_are_the_formulas(schedule, layout):
    path = make(layout=layout, schedule=schedule)
    sampler = kernels.PathSampler(path, EmulatedDevice(), "float64")
    rng = np.random.default_rng(0)
    index = rng.integers(0, 5, 50)
    sites = path.records.sites[0 if layout == "shared" else index]
    last = sites[..., -1]
    t = sites[..., 0] + (last - sites[..., 0]) * rng.uniform(0.01, 0.99, 50)
    found = sampler.sample(index, t, seed=5)
    mu, slope = expected(sampler, index, t)
    np.testing.assert_allclose(found.x - mu, found.sigma[:, None] * found.score_noise, atol=1e-10)
    for b in range(50):
        row = sites if layout == "shared" else sites[b]
        q = np.searchsorted(row[: path.records.counts[0 if layout == "shared" else index[b]]], t[b], "right") - 1
        s, ds = 0.3, 0.0
        if not isinstance(schedule, ConstantSigma):
            s, ds = reference.bridge(0.7, t[b], row[q], row[q + 1])
            if isinstance(schedule, RescaledBridge):
                s, ds = (v / np.sqrt(row[q + 1] - row[q]) for v in (s, ds))
        assert found.sigma[b] == pytest.approx(s, rel=1e-9)
        np.testing.assert_allclose(found.velocity[b] - slope[b], ds * found.score_noise[b], atol=1e-8 * max(1, abs(ds)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_noise_is_normal_and_independent(dtype):
    sampler = kernels.PathSampler(make(dims=4), EmulatedDevice(checks="fast"), dtype)
    index, t = np.zeros(5000, int), np.full(5000, 105.0)
    one, same, later, other = (
        sampler.sample(index, t, seed, offset).score_noise for seed, offset in ((1, 0), (1, 0), (1, 20_000), (2, 0))
    )
    np.testing.assert_array_equal(one, same)
    for noise in (one, later, other):
        assert stats.kstest(noise.ravel(), "norm").pvalue > 1e-3
        assert abs(stats.kurtosis(noise.ravel())) < 0.15
        assert np.abs(np.corrcoef(noise.T) - np.eye(4)).max() < 0.06
    for another in (later, other):
        assert abs(np.corrcoef(one.ravel(), another.ravel())[0, 1]) < 0.03
        assert (one != another).mean() > 0.99
    # A call of half the size goes on where the first half ended.
    second = sampler.sample(index[:2500], t[:2500], 1, 10_000).score_noise
    np.testing.assert_array_equal(second, one[2500:])


def test_fifty_schedules_give_the_same_bits():
    path = make(dims=2, schedule=BrownianBridge(0.5))
    before = None
    for seed in range(50):
        sampler = kernels.PathSampler(path, EmulatedDevice(checks="fast", seed=seed, interleave=1 + seed % 3))
        index, t = pairs(sampler, 70)
        found = sampler.sample(index, t, seed=9)
        if before is not None:
            for a, b in zip(found, before, strict=True):
                np.testing.assert_array_equal(a, b)
        before = found


def records(degree, count, n, seed=0):
    rng = np.random.default_rng(seed)
    counts = rng.integers(degree + 1, n + 1, count)
    counts[0] = degree + 1
    times = np.sort(rng.uniform(0, 10, (count, n)), axis=1)
    values = rng.normal(size=(count, n))
    beyond = np.arange(n) >= counts[:, None]
    times[beyond], values[beyond] = np.nan, np.nan
    return times, counts, values


@pytest.mark.parametrize("degree", range(1, 6))
@pytest.mark.parametrize(("count", "n"), [(1, 6), (33, 14), (150, 9)])
def test_interpolation_of_many_records(degree, count, n):
    times, counts, values = records(degree, count, n)
    knots, coef = kernels.solve(EmulatedDevice(), times, counts, values, degree)
    for s in range(0, count, 7):
        c = counts[s]
        t, x = times[s, :c], values[s, :c]
        want, control, _ = reference.fit(t, x[:, None], degree)
        np.testing.assert_allclose(knots[: c + degree + 1, s], want, atol=1e-12)
        np.testing.assert_allclose(coef[:c, s], control[:, 0], atol=1e-7 * np.abs(control).max())
        peer = make_interp_spline(t, x, k=degree)
        np.testing.assert_allclose(coef[:c, s], peer.c, atol=1e-7 * np.abs(peer.c).max())
        assert (coef[c:, s] == coef[c - 1, s]).all()
        assert (knots[c + degree :, s] == t[-1]).all()


def test_nothing_to_do_launches_nothing():
    sampler = kernels.PathSampler(make(), EmulatedDevice())
    assert sampler.sample(np.zeros(0, int), np.zeros(0), 0).mu.shape == (0, 3)
    knots, coef = kernels.solve(EmulatedDevice(), np.zeros((0, 5)), np.zeros(0, int), np.zeros((0, 5)), 3)
    assert (knots.shape, coef.shape) == ((9, 0), (5, 0))


def test_what_the_kernels_do_not_know():
    times, values = np.arange(8.0), np.random.default_rng(0).normal(size=(2, 8, 2))
    for options in (
        {"bc": "natural"},
        {"parametrization": "index"},
        {"shape": "monotone"},
        {"schedule": ConstantSigma([1, 2])},
    ):
        path = BSplinePath.fit(times, values, **options)
        assert not kernels.supports(path)
        with pytest.raises(SplineFlowError, match="not-a-knot"):
            kernels.PathSampler(path, EmulatedDevice())
    sampler = kernels.PathSampler(make(), EmulatedDevice())
    for arguments in (
        ([5], [1.0], 0),
        ([-1], [1.0], 0),
        ([0.5], [1.0], 0),
        ([0], [1.0, 2.0], 0),
        ([0], [np.nan], 0),
        ([0], [1.0], -1),
    ):
        with pytest.raises(SplineFlowError):
            sampler.sample(*(np.array(a) if isinstance(a, list) else a for a in arguments))
    good = records(3, 4, 8)
    for change in (
        {0: good[0][:, :5]},
        {1: np.full(4, 3)},
        {1: np.full(4, 9)},
        {0: -np.sort(-np.nan_to_num(good[0]))},
        {2: np.full_like(good[2], np.inf)},
        {3: 6},
    ):
        arguments = [*good, 3]
        for position, value in change.items():
            arguments[position] = value
        with pytest.raises(SplineFlowError):
            kernels.solve(EmulatedDevice(), *arguments)


@pytest.mark.gpu
@pytest.mark.parametrize("dims", [3, 40])
@pytest.mark.parametrize("degree", [1, 2, 3, 5])
def test_on_the_device(degree, dims):
    path = make(degree, dims, "trajectory", BrownianBridge(0.5))
    for dtype, atol in (("float64", 1e-9), ("float32", 1e-3)):
        sampler = kernels.PathSampler(path, kernels.Gpu(), dtype)
        index, t = pairs(sampler, 1000)
        found = sampler.sample(index, t, seed=7)
        mu, _ = expected(sampler, index, t)
        np.testing.assert_allclose(found.mu.cpu(), mu, atol=atol)
        emulated = kernels.PathSampler(path, EmulatedDevice(checks="fast"), dtype).sample(index, t, seed=7)
        np.testing.assert_allclose(found.score_noise.cpu(), emulated.score_noise, atol=1e-5)
        np.testing.assert_allclose(found.sigma.cpu(), emulated.sigma, atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("degree", range(1, 6))
def test_interpolation_on_the_device(degree):
    times, counts, values = records(degree, 1000, 40)
    knots, coef = kernels.solve(kernels.Gpu(), times, counts, values, degree)
    want_knots, want = kernels.solve(EmulatedDevice(checks="fast"), times, counts, values, degree)
    np.testing.assert_allclose(knots.cpu(), want_knots, atol=1e-12)
    np.testing.assert_allclose(coef.cpu(), want, atol=1e-9 * np.abs(want).max())
