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
        np.testing.assert_allclose(found.velocity, slope, atol=atol * scale)


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


@pytest.mark.parametrize("degree", range(1, 6))
@pytest.mark.parametrize("layout", ["shared", "trajectory"])
def test_a_warp_a_sample_in_every_degree(degree, layout):
    path = make(degree, dims=9, layout=layout)
    for dtype, atol in (("float64", 1e-10), ("float32", 2e-4)):
        sampler = kernels.PathSampler(path, EmulatedDevice(), dtype)
        index, t = pairs(sampler, 13)
        found = sampler.sample(index, t, seed=7)
        mu, slope = expected(sampler, index, t)
        np.testing.assert_allclose(found.mu, mu, atol=atol)
        np.testing.assert_allclose(found.velocity, slope, atol=atol * max(1, np.abs(slope).max()))


@pytest.mark.parametrize("degree", range(1, 6))
def test_beyond_the_ends_the_path_stands_still(degree):
    """For the constant schedule x keeps its noise, for a bridge it has none: in both the velocity is zero."""
    for schedule in (ConstantSigma(0.3), BrownianBridge(0.7)):
        path = make(degree, schedule=schedule)
        sampler = kernels.PathSampler(path, EmulatedDevice(), "float64")
        values = path.records.values.reshape(path.records.sites.shape[1], 5, 3)
        first, last = path.records.first[0], path.records.last[0]
        found = sampler.sample(np.array([1, 2]), np.array([first - 1, last + 1]), seed=0)
        np.testing.assert_array_equal(found.velocity, 0)
        np.testing.assert_allclose(found.mu, [values[0, 1], values[-1, 2]], atol=1e-12)
        np.testing.assert_allclose(found.sigma, 0.0 if schedule.bridges else 0.3)


def test_what_does_not_move_has_no_velocity_in_float32():
    """Differences of control points vanish where slopes of basis functions would leave 1e4 times their rounding."""
    for dims in (2, 9):
        given = arrays(dims=dims, batch=50, dtype="float32")
        given["coef"][:] = 12345.678
        np.testing.assert_array_equal(kernels.sample(EmulatedDevice(), **given).velocity, 0)


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


def philox(counter, seed):
    """Philox 4x32-10 in whole numbers of Python."""
    c, key = [counter & 0xFFFFFFFF, counter >> 32, 0, 0], [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ key[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ key[1], a & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


@pytest.mark.parametrize("dims", [1, 3, 6, 9])
def test_the_generator_is_philox(dims):
    # The first of Random123's known answers (kat_vectors).
    assert philox(0, 0) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    for seed, offset in ((0, 0), (2**63 + 12345, 2**35 + 8)):
        sampler = kernels.PathSampler(make(dims=dims), EmulatedDevice(), "float64")
        found = sampler.sample(np.zeros(5, int), np.full(5, 105.0), seed, offset).score_noise
        blocks = -(-dims // 4)
        for b in range(5):
            want = []
            for q in range(blocks):
                words = philox(offset // 4 + b * blocks + q, seed)
                for radius, angle in (words[:2], words[2:]):
                    r, turn = np.sqrt(-2 * np.log((radius + 0.5) / 2**32)), 2 * np.pi * angle / 2**32
                    want += [r * np.cos(turn), r * np.sin(turn)]
            np.testing.assert_allclose(found[b], want[:dims], atol=1e-12)


@pytest.mark.parametrize("dims", [4, 10])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_noise_is_normal_and_independent(dtype, dims):
    sampler = kernels.PathSampler(make(dims=dims), EmulatedDevice(checks="fast"), dtype)
    batch = 20_000 // dims
    index, t = np.zeros(batch, int), np.full(batch, 105.0)
    call = kernels.spent(batch, dims)
    one, same, later, other = (
        sampler.sample(index, t, seed, offset).score_noise for seed, offset in ((1, 0), (1, 0), (1, call), (2, 0))
    )
    np.testing.assert_array_equal(one, same)
    for noise in (one, later, other):
        flat = noise.ravel().astype(float)
        assert stats.kstest(flat, "norm").pvalue > 1e-3
        # Four standard errors of 20 000 numbers.
        assert abs(flat.mean()) < 4 / np.sqrt(20_000)
        assert abs(flat.var() - 1) < 4 * np.sqrt(2 / 20_000)
        assert abs(stats.kurtosis(flat)) < 4 * np.sqrt(24 / 20_000)
        # Neither the numbers of a pair nor their squares, which share a radius.
        for part in (noise, noise**2):
            assert np.abs(np.corrcoef(part.T) - np.eye(dims)).max() < 4.5 / np.sqrt(batch)
        assert len(np.unique(noise)) > 0.99 * noise.size
    for another in (later, other):
        assert abs(np.corrcoef(one.ravel(), another.ravel())[0, 1]) < 4 / np.sqrt(20_000)
        assert (one != another).mean() > 0.99
    # A call of half the size goes on where the first half ended.
    half = batch // 2
    second = sampler.sample(index[:half], t[:half], 1, kernels.spent(batch - half, dims)).score_noise
    np.testing.assert_array_equal(second, one[batch - half :])


class Reshaped(EmulatedDevice):
    """Launches with another grid, block and number of lanes than asked for."""

    def __init__(self, grid, block, lanes):
        super().__init__()
        self.shape, self.lanes = (grid, block), lanes

    def launch(self, module, name, grid, block, args):
        degree = next(int(o[4:]) for o in module.options if o.startswith("-DK="))
        super().launch(kernels.module(degree, str(args[0].dtype), self.lanes), name, *self.shape, args)


@pytest.mark.parametrize("dims", [3, 13])
def test_results_do_not_depend_on_the_launch(dims):
    path = make(dims=dims, schedule=BrownianBridge(0.5))
    results = []
    for device in (EmulatedDevice(), Reshaped(1, 32, 1), Reshaped(7, 64, 1), Reshaped(2, 96, 32), Reshaped(1, 256, 32)):
        sampler = kernels.PathSampler(path, device, "float32")
        index, t = pairs(sampler, 70)
        results.append(sampler.sample(index, t, seed=3, offset=40))
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def arrays(degree=3, rows=4, n=9, dims=2, batch=6, grids=1, dtype="float64", seed=0):
    """Arguments of `kernels.sample`."""
    rng = np.random.default_rng(seed)
    sites = np.sort(rng.uniform(0, 5, (grids, n)), axis=1)
    knots = np.array([reference.knot_vector(row, degree) for row in sites])
    coef, t = rng.normal(size=(rows, n, dims)), rng.uniform(sites.min(), sites.max(), batch)
    coef, knots, sites, t = (a.astype(dtype) for a in (coef, knots, sites, t))
    counts, index = np.full(grids, n, np.int32), rng.integers(0, rows, batch).astype(np.int32)
    return {"coef": coef, "knots": knots, "sites": sites, "counts": counts, "index": index, "t": t,
            "schedule": "constant", "width": 0.5, "seed": 1}  # fmt: skip


@pytest.mark.parametrize("degree", range(1, 6))
@pytest.mark.parametrize("grids", [1, 4])
def test_sample_of_bare_arrays(degree, grids):
    given = arrays(degree, grids=grids)
    shape = (6, 2)
    out = kernels.Drawn(*(np.full(shape, np.nan) for _ in range(4)), sigma=np.full(6, np.nan))
    found = kernels.sample(EmulatedDevice(), **given, out=out)
    assert found is out
    for b, (i, t) in enumerate(zip(given["index"], given["t"], strict=True)):
        knots = given["knots"][0 if grids == 1 else i]
        held = np.clip(t, knots[0], knots[-1])
        np.testing.assert_allclose(out.mu[b], reference.evaluate(knots, given["coef"][i], degree, held), atol=1e-12)
        slope = reference.evaluate(knots, given["coef"][i], degree, held, 1) * (held == t)
        np.testing.assert_allclose(out.velocity[b], slope, atol=1e-10)
    np.testing.assert_allclose(out.x - out.mu, 0.5 * out.score_noise, atol=1e-14)


@pytest.mark.parametrize("dims", [2, 9])
def test_rows_that_do_not_exist_give_nan(dims):
    """Unchecked, and nothing is read out of bounds: the emulator would say so."""
    given = arrays(dims=dims, grids=4)
    given["index"][:4] = -1, 4, 2**31 - 1, -(2**31)
    given["index"][4:] = 2, 3
    given["counts"][2] = 10
    found = kernels.sample(EmulatedDevice(), **given, trusted=True)
    for part in found:
        assert np.isnan(part[:5]).all()
        assert np.isfinite(part[5]).all()


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
@pytest.mark.parametrize(("count", "n"), [(1, None), (1, 6), (33, 14), (150, 9)])
def test_interpolation_of_many_records(degree, count, n):
    times, counts, values = records(degree, count, n or degree + 1)
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


@pytest.mark.parametrize("degree", range(1, 6))
def test_interpolation_in_float32(degree):
    """Meets the observations to float32's digits where gaps are of like size."""
    rng = np.random.default_rng(degree)
    times = np.arange(20) + rng.uniform(-0.2, 0.2, (5, 20))
    values, counts = rng.normal(size=(5, 20)), np.array([20, 20, 13, degree + 1, 20])
    knots, coef = kernels.solve(EmulatedDevice(), times, counts, values, degree, "float32")
    assert coef.dtype == knots.dtype == np.float32
    for s, c in enumerate(counts):
        want, control, _ = reference.fit(times[s, :c], values[s, :c, None], degree)
        np.testing.assert_allclose(knots[: c + degree + 1, s], want, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(coef[:c, s], control[:, 0], atol=2e-4 * np.abs(control).max())


def test_fifty_schedules_interpolate_with_the_same_bits():
    times, counts, values = records(4, 140, 8)
    before = kernels.solve(EmulatedDevice(checks="fast"), times, counts, values, 4)
    for seed in range(1, 50):
        device = EmulatedDevice(checks="fast", seed=seed, interleave=1 + seed % 3)
        for a, b in zip(kernels.solve(device, times, counts, values, 4), before, strict=True):
            np.testing.assert_array_equal(a, b)


class Idle(EmulatedDevice):
    """Launches nothing."""

    def launch(self, *arguments):
        raise AssertionError("launched")


def test_nothing_to_do_launches_nothing():
    sampler = kernels.PathSampler(make(), Idle())
    assert sampler.sample(np.zeros(0, int), np.zeros(0), 0).mu.shape == (0, 3)
    assert kernels.sample(Idle(), **arrays(batch=0)).sigma.shape == (0,)
    knots, coef = kernels.solve(Idle(), np.zeros((0, 5)), np.zeros(0, int), np.zeros((0, 5)), 3)
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
        ([0], [1.0], 1 << 64),
        ([0], [1.0], 0, 2),
        ([0], [1.0], 0, 1 << 64),
    ):
        with pytest.raises(SplineFlowError):
            sampler.sample(*(np.array(a) if isinstance(a, list) else a for a in arguments))
    close = BSplinePath.fit([0.0, 1000, 1000.00001, 1001, 1002], np.arange(5.0)[:, None])
    with pytest.raises(SplineFlowError, match="equal in float32"):
        kernels.PathSampler(close, EmulatedDevice())
    kernels.PathSampler(close, EmulatedDevice(), "float64")
    good = records(3, 4, 8)
    for change in (
        {0: good[0][:, :5]},
        {1: np.full(4, 3)},
        {1: np.full(4, 9)},
        {0: -np.sort(-np.nan_to_num(good[0]))},
        {2: np.full_like(good[2], np.inf)},
        {3: 6},
        {1: np.full(4, 5.5)},
    ):
        arguments = [*good, 3]
        for position, value in change.items():
            arguments[position] = value
        with pytest.raises(SplineFlowError):
            kernels.solve(EmulatedDevice(), *arguments)
    far = np.arange(8.0) + np.full((4, 1), 1e9)
    with pytest.raises(SplineFlowError, match="increase strictly, in float32"):
        kernels.solve(EmulatedDevice(), far, good[1], np.zeros((4, 8)), 3, "float32")
    with pytest.raises(SplineFlowError, match="dtype"):
        kernels.solve(EmulatedDevice(), far, good[1], np.zeros((4, 8)), 3, "float16")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"index": np.array([0, 4, 0, 0, 0, 0], np.int32)}, r"within 0\.\.3"),
        ({"index": np.array([0, -1, 0, 0, 0, 0], np.int32)}, r"within 0\.\.3"),
        ({"index": np.zeros(6, np.int64)}, "int32"),
        ({"index": np.zeros(5, np.int32)}, "go together"),
        ({"counts": np.array([3], np.int32)}, r"within 4\.\.9"),
        ({"counts": np.array([10], np.int32)}, r"within 4\.\.9"),
        ({"counts": np.array([9, 9], np.int32)}, "go together"),
        ({"t": np.array([0, 1, np.nan, 0, 0, 0])}, "finite"),
        ({"t": np.array([0, 1, np.inf, 0, 0, 0])}, "finite"),
        ({"t": np.zeros(6, np.float32)}, "all be float32"),
        ({"coef": np.zeros((4, 9))}, "expected coef"),
        ({"coef": np.zeros((4, 9, 0))}, "no dimensions"),
        ({"coef": np.zeros((4, 12, 2))}, "degree 0"),
        ({"sites": np.zeros((1, 8))}, "go together"),
        ({"schedule": "linear"}, "schedule"),
        ({"width": -1.0}, "width"),
        ({"width": np.nan}, "width"),
        ({"seed": -1}, "64-bit"),
        ({"offset": 3}, "multiple of 4"),
        ({"offset": (1 << 64) - 4}, "64-bit"),
        ({"out": kernels.Drawn(*(np.zeros((6, 2)) for _ in range(4)), sigma=np.zeros(5))}, "sigma must be"),
        ({"out": kernels.Drawn(*(np.zeros((6, 2), "f") for _ in range(4)), sigma=np.zeros(6))}, "mu must be"),
    ],
)
def test_what_sample_refuses(change, message):
    with pytest.raises(SplineFlowError, match=message):
        kernels.sample(Idle(), **{**arrays(), **change})


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
