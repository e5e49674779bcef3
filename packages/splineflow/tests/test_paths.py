"""Paths against SciPy, closed forms and identities."""

import itertools
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import Akima1DInterpolator, BSpline, PchipInterpolator, make_interp_spline

from sprigs_splineflow import (
    AkimaPath,
    BrownianBridge,
    BSplinePath,
    ConstantSigma,
    DegreeWarning,
    HermitePath,
    LagrangePath,
    LinearPath,
    PchipPath,
    RescaledBridge,
    SplineFlowError,
    piecewise,
    reference,
)

DOUBLE = {"dtype": torch.float64}
BOTH = [("not-a-knot", k) for k in range(1, 6)] + [(bc, k) for bc in ("natural", "clamped") for k in (1, 3, 5)]


def panel(seed=0, n_trajectories=3, n=12, d=2, missing=0.0):
    """Random irregular times [n], values [N, n, d] and a mask with the first two times kept."""
    rng = np.random.default_rng(seed)
    times = np.sort(rng.uniform(0, 10, n))
    values = rng.normal(size=(n_trajectories, n, d))
    mask = rng.uniform(size=values.shape) >= missing
    mask[:, :2] = True
    return times, values, mask


def curve(path, i, t, nu=0):
    return path.evaluate(np.full(len(t), i), t, nu).numpy()


def scipy_spline(t, x, k, bc):
    orders = []
    if bc != "not-a-knot" and k > 1:
        e = (k - 1) // 2
        orders = [(nu, np.zeros_like(x[0])) for nu in (range(e + 1, k) if bc == "natural" else range(1, e + 1))]
    return make_interp_spline(t, x, k=k, bc_type=(orders, orders) if orders else None)


@pytest.fixture(params=["compiled", "plain"])
def backend(request, monkeypatch):
    """Run with numba and without."""
    if request.param == "plain":
        monkeypatch.setattr(piecewise, "compiled", lambda: None)
        for module in ("conditional", "paths"):
            monkeypatch.setattr(f"sprigs_splineflow.{module}.compiled", lambda: None)
    elif piecewise.compiled() is None:
        pytest.skip("needs numba")
    return request.param


@pytest.mark.parametrize(("bc", "k"), BOTH)
@pytest.mark.parametrize("layout", ["shared", "trajectory", "dimension"])
def test_equal_to_scipy(bc, k, layout, backend):
    """Values, first and second derivatives; grids that all share, of each trajectory, of each dimension."""
    times, values, mask = panel(k, missing=0.0 if layout == "shared" else 0.4)
    if layout == "trajectory":
        mask = np.repeat(mask[:, :, :1], values.shape[2], axis=2)
        mask[0] = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegreeWarning)
        path = BSplinePath.fit(times, np.where(mask, values, np.nan), mask, k, bc, **DOUBLE)
    assert path.records.layout == layout
    rng = np.random.default_rng(1)
    for i, j in np.ndindex(values.shape[0], values.shape[2]):
        t, x = times[mask[i, :, j]], values[i, mask[i, :, j], j]
        degree = min(k, len(t) - 1) if bc == "not-a-knot" else k
        expected = scipy_spline(t, x, degree, bc)
        q = np.concatenate([t, rng.uniform(t[0], t[-1], 40)])
        for nu in range(3):
            want = expected(q, nu) if nu <= degree else np.zeros_like(q)
            if degree == nu:  # SciPy takes the left-hand limit at the last knot alone, as we do
                q, want = q[len(t) :], want[len(t) :]
            found = curve(path, i, q, nu)[:, j]
            np.testing.assert_allclose(found, want, atol=1e-10 * max(1, np.abs(want).max()))
    assert path.marginal_error() < 1e-10


@pytest.mark.parametrize("k", range(1, 6))
def test_equal_to_the_reference(k, backend):
    times, values, _ = panel(7, n=9)
    path = BSplinePath.fit(times, values, degree=k, **DOUBLE)
    knots, control, degree = reference.fit(times, values[1], k)
    np.testing.assert_allclose(path.knots[0], knots, atol=1e-14)
    np.testing.assert_allclose(path.control_points[1], control, atol=1e-11)
    for t in (times[0], *np.linspace(times[0], times[-1], 7)[1:-1], times[-1]):
        for nu in range(2):
            expected = reference.evaluate(knots, control, degree, t, nu)
            np.testing.assert_allclose(curve(path, 1, np.array([t]), nu)[0], expected, atol=1e-9)


@pytest.mark.parametrize("k", range(1, 6))
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(6, 30))
@settings(max_examples=15, deadline=None)
def test_polynomials_are_reproduced(k, seed, n):
    """Value and velocity of polynomials of degree <= k, at random irregular times."""
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.uniform(0.2, 1.0, n))
    polynomial = np.polynomial.Polynomial(rng.normal(size=k + 1), domain=[times[0], times[-1]])
    path = BSplinePath.fit(times, polynomial(times)[None, :, None], degree=k, **DOUBLE)
    q = rng.uniform(times[0], times[-1], 50)
    for nu in (0, 1):
        want = polynomial.deriv(nu)(q) if nu else polynomial(q)
        np.testing.assert_allclose(curve(path, 0, q, nu)[:, 0], want, atol=1e-9 * max(1, np.abs(want).max()))


@pytest.mark.parametrize("kind", ["bspline", "linear"])
def test_degree_one_is_piecewise_linear(kind):
    times, values, _ = panel(3)
    path = (
        BSplinePath.fit(times, values, degree=1, **DOUBLE)
        if kind == "bspline"
        else LinearPath.fit(times, values, **DOUBLE)
    )
    q = np.linspace(times[0], times[-1], 101)
    np.testing.assert_allclose(curve(path, 0, q)[:, 0], np.interp(q, times, values[0, :, 0]), atol=1e-15)
    chords = np.diff(values[0, :, 0]) / np.diff(times)
    # The right-hand slope at each observation, the last one at the end.
    np.testing.assert_allclose(curve(path, 0, times, 1)[:, 0], [*chords, chords[-1]], rtol=1e-12)


@pytest.mark.parametrize("k", range(1, 6))
def test_basis_and_convex_hull(k):
    """Partition of unity, no negative value, k + 1 at most that are not zero; curves stay in their points' hull."""
    times, values, _ = panel(11, n=15)
    path = BSplinePath.fit(times, values, degree=k, **DOUBLE)
    knots, control = path.knots[0], path.control_points[0]
    q = np.linspace(times[0], times[-1], 60)
    table = np.array([[reference.basis(knots, k, j, t) for j in range(len(control))] for t in q])
    np.testing.assert_allclose(table.sum(axis=1), 1.0, atol=1e-13)
    assert table.min() >= 0
    assert (table != 0).sum(axis=1).max() <= k + 1
    found = curve(path, 0, q)
    for row, x in zip(table, found, strict=True):
        hull = control[row != 0]
        assert (hull.min(axis=0) - 1e-12 <= x).all()
        assert (x <= hull.max(axis=0) + 1e-12).all()


@pytest.mark.parametrize("parametrization", ["time", "index", "centripetal"])
@pytest.mark.parametrize("k", [2, 3, 5])
def test_velocity_is_the_derivative(k, parametrization):
    times, values, mask = panel(5, missing=0.3)
    for m in (None, mask):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DegreeWarning)
            path = BSplinePath.fit(times, values, m, k, parametrization=parametrization, **DOUBLE)
        t = torch.linspace(times[0], times[-1], 57, dtype=torch.float64, requires_grad=True)
        index = torch.ones(57, dtype=torch.long)
        for nu in (0, 1):
            value = path.evaluate(index, t, nu)
            for j in range(2):
                (slope,) = torch.autograd.grad(value[:, j].sum(), t, retain_graph=True)
                np.testing.assert_allclose(path.evaluate(index, t, nu + 1)[:, j].detach(), slope, atol=1e-9)


@pytest.mark.parametrize("k", range(1, 6))
def test_velocity_integrates_to_the_displacement(k):
    """Gauss-Legendre on each span is exact."""
    times, values, _ = panel(2)
    path = BSplinePath.fit(times, values, degree=k, **DOUBLE)
    nodes, weights = np.polynomial.legendre.leggauss(4)
    breaks = np.unique(path.knots[0])
    total = 0.0
    for a, b in itertools.pairwise(breaks):
        total = total + (weights * (b - a) / 2) @ curve(path, 0, (a + b) / 2 + (b - a) / 2 * nodes, 1)
    np.testing.assert_allclose(total, values[0, -1] - values[0, 0], atol=1e-12)


@pytest.mark.parametrize(("k", "order"), [(1, 1), (2, 2), (3, 3), (4, 4)])
def test_order_of_convergence(k, order):
    """The largest interior velocity error on a sine falls with h^k."""
    errors = []
    for n in (41, 81, 161):
        t = np.linspace(0, 10, n)
        path = BSplinePath.fit(t, np.sin(t)[None, :, None], degree=k, **DOUBLE)
        q = np.linspace(2.5, 7.5, 4001)
        errors.append(np.abs(curve(path, 0, q, 1)[:, 0] - np.cos(q)).max())
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.15)
    assert np.log2(errors[1] / errors[2]) == pytest.approx(order, abs=0.15)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=10, deadline=None)
def test_affine_equivariance(seed):
    rng = np.random.default_rng(seed)
    times, values, _ = panel(seed % 1000)
    matrix, shift = rng.normal(size=(2, 2)), rng.normal(size=2)
    plain = BSplinePath.fit(times, values, **DOUBLE)
    moved = BSplinePath.fit(times, values @ matrix.T + shift, **DOUBLE)
    slower = BSplinePath.fit(3 * times - 5, values, **DOUBLE)
    q = np.linspace(times[0], times[-1], 30)
    np.testing.assert_allclose(curve(moved, 2, q), curve(plain, 2, q) @ matrix.T + shift, atol=1e-9)
    np.testing.assert_allclose(curve(slower, 2, 3 * q - 5, 1) * 3, curve(plain, 2, q, 1), atol=1e-8)


def test_trajectories_do_not_touch_each_other(backend):
    """Permuted and repeated trajectories give permuted and repeated paths, bit for bit."""
    times, values, mask = panel(4, n_trajectories=5, missing=0.3)
    order = np.array([3, 0, 0, 4, 2])
    q = np.linspace(times[0], times[-1], 25)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegreeWarning)
        one, two = (BSplinePath.fit(times, values[o], mask[o]) for o in (np.arange(5), order))
    for i, j in enumerate(order):
        np.testing.assert_array_equal(curve(two, i, q), curve(one, j, q))


def test_times_of_each_trajectory_and_padding():
    """Rows of a padded array equal the paths fitted alone."""
    rng = np.random.default_rng(0)
    lengths = [5, 9, 7]
    times, values, mask = np.full((3, 9), np.nan), np.full((3, 9, 2), np.nan), np.zeros((3, 9, 2), bool)
    for i, n in enumerate(lengths):
        times[i, :n] = np.sort(rng.uniform(i, i + 4, n))
        values[i, :n], mask[i, :n] = rng.normal(size=(n, 2)), True
    path = BSplinePath.fit(times, values, mask, **DOUBLE)
    for i, n in enumerate(lengths):
        alone = BSplinePath.fit(times[i, :n], values[i : i + 1, :n], **DOUBLE)
        q = np.linspace(times[i, 0], times[i, n - 1], 20)
        np.testing.assert_allclose(curve(path, i, q, 1), curve(alone, 0, q, 1), atol=1e-11)


@pytest.mark.parametrize(("kind", "peer"), [(PchipPath, PchipInterpolator), (AkimaPath, Akima1DInterpolator)])
def test_other_pieces_equal_scipy(kind, peer, backend):
    times, values, mask = panel(8, n=14, missing=0.4)
    values[0, 3:6] = values[0, 3]  # flat stretches are their special cases
    path = kind.fit(times, values, mask, **DOUBLE)
    for i, j in np.ndindex(values.shape[0], values.shape[2]):
        t, x = times[mask[i, :, j]], values[i, mask[i, :, j], j]
        expected = peer(t, x)
        q = np.linspace(t[0], t[-1], 50)[:-1]
        for nu in range(3):
            np.testing.assert_allclose(curve(path, i, q, nu)[:, j], expected(q, nu), atol=1e-10)


def test_monotone_shape_is_pchip_as_a_bspline(backend):
    times, values, _ = panel(9)
    path = BSplinePath.fit(times, values, shape="monotone", **DOUBLE)
    q = np.linspace(times[0], times[-1], 300)
    for j in range(2):
        expected = PchipInterpolator(times, values[0, :, j])
        np.testing.assert_allclose(curve(path, 0, q)[:, j], expected(q), atol=1e-10)
        written = BSpline(path.knots[0], path.control_points[0, :, j], 3)
        np.testing.assert_allclose(written(q), expected(q), atol=1e-10)
    cell = np.clip(np.searchsorted(times, q, "right") - 1, 0, len(times) - 2)
    low, high = (f(values[0, cell], values[0, cell + 1]) for f in (np.minimum, np.maximum))
    assert ((low - 1e-12 <= curve(path, 0, q)) & (curve(path, 0, q) <= high + 1e-12)).all()
    assert path.marginal_error() < 1e-10


def test_hermite_takes_velocities():
    t = np.linspace(0, 6, 9)
    path = HermitePath.fit(t, np.sin(t)[None, :, None], np.cos(t)[None, :, None], **DOUBLE)
    q = np.linspace(0, 6, 200)
    np.testing.assert_allclose(curve(path, 0, t, 1)[:, 0], np.cos(t), atol=1e-12)
    assert np.abs(curve(path, 0, q)[:, 0] - np.sin(q)).max() < 0.75**4 / 384 * 1.01  # the Hermite remainder


@pytest.mark.parametrize("parametrization", ["index", "centripetal"])
@pytest.mark.parametrize("layout", ["shared", "trajectory", "dimension"])
def test_time_maps_increase_and_interpolation_stays_exact(parametrization, layout, backend):
    times, values, mask = panel(6, n=10, missing=0.0 if layout == "shared" else 0.3)
    if layout == "trajectory":
        mask = np.repeat(mask[:, :, :1], 2, axis=2)
    times = times**3  # uneven gaps
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegreeWarning)
        path = BSplinePath.fit(times, values, mask, 2, parametrization=parametrization, **DOUBLE)
    assert path.marginal_error() < 1e-10
    grid = torch.zeros(500, dtype=torch.long)
    q = torch.linspace(times[0], float(path.records.sites[0, -1]), 500, dtype=torch.float64)
    u, du = path._map.derivatives(grid, q, (0, 1))
    assert bool((u.diff(dim=0) > 0).all())
    assert bool((du >= 0).all())
    drawn = path.sample(64, torch.Generator().manual_seed(0))
    np.testing.assert_allclose(path.evaluate(drawn.index, drawn.t), drawn.mu, atol=1e-12)


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_smoothing_between_a_natural_spline_and_a_line(missing):
    times, values, mask = panel(13, n=20, missing=missing)
    mask[:, -1] = mask[:, 0] = True
    t, x = times[mask[0, :, 0]], values[0, mask[0, :, 0], 0]
    q = np.linspace(t[0], t[-1], 40)
    natural = BSplinePath.fit(times, values, mask, bc="natural", **DOUBLE)
    rough = BSplinePath.fit(times, values, mask, smoothing=1e-16, **DOUBLE)
    stiff = BSplinePath.fit(times, values, mask, smoothing=1e6, **DOUBLE)
    np.testing.assert_allclose(curve(rough, 0, q), curve(natural, 0, q), rtol=1e-6, atol=1e-6)
    line = np.polynomial.Polynomial.fit(t, x, 1)
    np.testing.assert_allclose(curve(stiff, 0, q)[:, 0], line(q), atol=1e-3)
    assert stiff.marginal_error() > 0.1 > 1e-6 > rough.marginal_error()
    assert not stiff.interpolates
    chosen = BSplinePath.fit(times, np.sin(times)[None, :, None] + 0.01 * values[:1, :, :1], smoothing="gcv", **DOUBLE)
    assert 0 < chosen.marginal_error() < 0.1


def test_smoothing_weights():
    times, values, _ = panel(14, n=20)
    weights = np.ones_like(values)
    weights[:, 7] = 1e6
    plain, heavy = (BSplinePath.fit(times, values, smoothing=10.0, weights=w, **DOUBLE) for w in (None, weights))
    off = [np.abs(curve(p, 1, times[7:8])[0] - values[1, 7]).max() for p in (plain, heavy)]
    assert off[1] < 1e-3 < off[0]


def test_runge():
    """One polynomial through 21 equispaced points of 1/(1 + 25 x^2) swings to about 60; a cubic B-spline does not."""
    x = np.linspace(-1, 1, 21)
    values = (1 / (1 + 25 * x**2))[None, :, None]
    q = np.linspace(-1, 1, 4001)
    exact = 1 / (1 + 25 * q**2)
    lagrange, spline = LagrangePath.fit(x, values, **DOUBLE), BSplinePath.fit(x, values, **DOUBLE)
    assert 55 < np.abs(curve(lagrange, 0, q)[:, 0] - exact).max() < 65
    assert np.abs(curve(spline, 0, q)[:, 0] - exact).max() < 2.5e-2
    assert lagrange.marginal_error() < 1e-10


def test_lagrange_equals_numpys_polynomial():
    times, values, mask = panel(15, n=7, missing=0.3)
    path = LagrangePath.fit(times, values, mask, **DOUBLE)
    for i, j in np.ndindex(3, 2):
        t, x = times[mask[i, :, j]], values[i, mask[i, :, j], j]
        polynomial = np.polynomial.Polynomial.fit(t, x, len(t) - 1)
        q = np.concatenate([t[1:-1], np.linspace(t[0], t[-1], 30)])
        for nu in range(3):
            want = polynomial.deriv(nu)(q) if nu else polynomial(q)
            np.testing.assert_allclose(curve(path, i, q, nu)[:, j], want, atol=1e-8 * max(1, np.abs(want).max()))


# Outside of the record


def test_flat_with_zero_velocity_beyond_the_observations():
    times, values, mask = panel(16, missing=0.3)
    mask[0, -3:, 0] = False
    path = BSplinePath.fit(times, values, mask, 1, **DOUBLE)
    beyond = np.array([times[0] - 1, times[-1] + 1, times[-1]])
    found, slope = curve(path, 0, beyond), curve(path, 0, beyond, 1)
    last = values[0, mask[0, :, 0], 0][-1]
    np.testing.assert_allclose(found[:, 0], [values[0, 0, 0], last, last], atol=1e-12)
    assert (slope[:2] == 0).all()
    assert slope[2, 0] == 0


def test_weights_are_zero_where_nothing_was_observed(backend):
    times, values, mask = panel(17, missing=0.3)
    mask[:, -4:, 0] = False
    for extrapolation in ("mask", "flat"):
        path = BSplinePath.fit(times, values, mask, 1, extrapolation=extrapolation, **DOUBLE)
        drawn = path.sample(4000, torch.Generator().manual_seed(0))
        ends = np.array([[times[mask[i, :, j]][-1] for j in range(2)] for i in range(3)])
        inside = drawn.t.numpy()[:, None] <= ends[drawn.index.numpy()]
        expected = inside if extrapolation == "mask" else np.ones_like(inside)
        assert (~inside).any()
        np.testing.assert_array_equal(drawn.weight.numpy() > 0, expected)


def test_times_of_your_own_beyond_the_record_have_no_weight():
    times, values, _ = panel(17)
    t = np.array([times[0] - 1, times[0], times[-1], times[-1] + 1])
    for rows in (times, np.stack([times] * 3)):
        path = BSplinePath.fit(rows, values)
        np.testing.assert_array_equal(path.sample(4, index=np.zeros(4, int), t=t).weight[:, 0], [0, 1, 1, 0])
        flat = BSplinePath.fit(rows, values, extrapolation="flat")
        np.testing.assert_array_equal(flat.sample(4, index=np.zeros(4, int), t=t).weight, np.ones((4, 2)))


# Sampling


@pytest.mark.parametrize(
    "schedule", [ConstantSigma(0.3), ConstantSigma([0.1, 0.2]), BrownianBridge(0.5), RescaledBridge([0.4, 0.7])]
)
@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_samples_share_their_noise(schedule, missing, backend):
    """x - mu is sigma times the noise, velocity - mu' is sigma' times the same noise, with the formulas' sigma."""
    times, values, mask = panel(18, missing=missing)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegreeWarning)
        path = BSplinePath.fit(times, values, mask, schedule=schedule, **DOUBLE)
    drawn = path.sample(500, torch.Generator().manual_seed(1))
    np.testing.assert_allclose(drawn.mu, path.evaluate(drawn.index, drawn.t), atol=1e-12)
    np.testing.assert_allclose(drawn.x - drawn.mu, drawn.sigma * drawn.score_noise, atol=1e-12)
    extra = (drawn.velocity - path.evaluate(drawn.index, drawn.t, 1)).numpy()
    for b in range(0, 500, 7):
        i, t = int(drawn.index[b]), float(drawn.t[b])
        for j in range(2):
            if drawn.weight[b, j] == 0:
                continue
            sites = times[mask[i, :, j]]
            q = np.clip(np.searchsorted(sites, t, "right") - 1, 0, len(sites) - 2)
            left, right = sites[q], sites[q + 1]
            if isinstance(schedule, ConstantSigma):
                s, ds = np.broadcast_to(schedule.sigma, 2)[j], 0.0
            else:
                g = np.broadcast_to(schedule.g, 2)[j]
                s, ds = reference.bridge(g, t, left, right)
                if isinstance(schedule, RescaledBridge):
                    s, ds = (v / np.sqrt(right - left) for v in (s, ds))
                assert schedule.margin * 0.99 <= (t - left) / (right - left) <= 1 - schedule.margin * 0.99
            np.testing.assert_allclose(drawn.sigma[b, j], s, rtol=1e-9)
            np.testing.assert_allclose(extra[b, j], ds * float(drawn.score_noise[b, j]), atol=1e-8)


def test_bridge_variance_at_mid_gap_and_at_knots():
    left, right, g = 1.0, 3.0, 0.7
    t = torch.tensor([[1.0], [2.0], [3.0]], dtype=torch.float64)
    s, _ = BrownianBridge(g).width(t, torch.full_like(t, left), torch.full_like(t, right))
    np.testing.assert_allclose(s[:, 0] ** 2, [0, g**2 * (right - left) / 4, 0], atol=1e-15)
    s, _ = RescaledBridge(g).width(t, torch.full_like(t, left), torch.full_like(t, right))
    np.testing.assert_allclose(s[:, 0], [0, g / 2, 0], atol=1e-15)


@pytest.mark.parametrize("schedule", [ConstantSigma(0.3), BrownianBridge(0.5), RescaledBridge(0.5)])
def test_conditional_velocity_satisfies_the_continuity_equation(schedule):
    """d/dt p + d/dx (p u) = 0 for the Gaussian path of one dimension, by finite differences."""
    times = np.array([0.0, 0.8, 1.5, 2.6, 3.0])
    path = BSplinePath.fit(times, np.sin(times)[None, :, None], schedule=schedule, **DOUBLE)

    def mean_and_width(t):
        piece = np.searchsorted(times, t, "right") - 1
        column = [torch.tensor([[v]], dtype=torch.float64) for v in (t, times[piece], times[piece + 1])]
        s, ds = (float(v) for v in schedule.width(*column))
        return curve(path, 0, [t])[0, 0], curve(path, 0, [t], 1)[0, 0], s, ds

    def density(t, x):
        mu, _, s, _ = mean_and_width(t)
        return np.exp(-0.5 * ((x - mu) / s) ** 2) / s

    def flux(t, x):
        mu, slope, s, ds = mean_and_width(t)
        return density(t, x) * (slope + ds / s * (x - mu))

    for t in (0.3, 1.1, 2.0):
        mu, _, s, _ = mean_and_width(t)
        x, h = mu + s * np.linspace(-2, 2, 9), 1e-5
        change = (density(t + h, x) - density(t - h, x)) / (2 * h)
        divergence = (flux(t, x + h) - flux(t, x - h)) / (2 * h)
        np.testing.assert_allclose(change + divergence, 0, atol=1e-5)


class Widening:
    """A schedule of a user's own: no bridge, but not constant either."""

    margin, bridges = 0.0, False

    def width(self, t, left, right):
        return 0.1 + 0.2 * t, torch.full_like(t, 0.2)


@pytest.mark.parametrize("given", [False, True])
def test_a_width_that_changes_with_time(given):
    times, values, mask = panel(3)
    path = BSplinePath.fit(times, values, mask, schedule=Widening(), **DOUBLE)
    t = torch.linspace(float(times.min()), float(times.max()), 500, dtype=torch.float64) if given else None
    drawn = path.sample(500, torch.Generator().manual_seed(0), t=t)
    sigma = (0.1 + 0.2 * drawn.t)[:, None]
    np.testing.assert_allclose(drawn.sigma, sigma.expand_as(drawn.x))
    np.testing.assert_allclose(drawn.x, drawn.mu + sigma * drawn.score_noise, atol=1e-12)
    slope = path.evaluate(drawn.index, drawn.t, 1)
    np.testing.assert_allclose(drawn.velocity, slope + 0.2 * drawn.score_noise, atol=1e-9)


@pytest.mark.parametrize("sampler", ["uniform", "stratified", "interval", lambda b, g: torch.linspace(0, 1, b)])
def test_time_samplers(sampler):
    times, values, _ = panel(19, n=8)
    times[-1] += 30  # one gap far longer than the others
    path = BSplinePath.fit(times, values, parametrization="index", **DOUBLE)
    t = np.sort(path.sample(8000, torch.Generator().manual_seed(0), sampler).t.numpy())
    assert times[0] <= t[0] <= t[-1] <= times[-1]
    share = np.histogram(t, times)[0] / len(t)
    expected = np.full(7, 1 / 7) if sampler == "interval" else np.diff(times) / (times[-1] - times[0])
    np.testing.assert_allclose(share, expected, atol=0.02)
    if sampler == "stratified":
        cells = np.histogram(t, np.linspace(times[0], times[-1], 8001))[0]
        assert (cells == 1).mean() > 0.999  # rounding may move one across an edge


def test_the_same_seed_gives_the_same_draws(backend):
    times, values, _ = panel(20)
    path = BSplinePath.fit(times, values)
    one, two, other = (path.sample(50, torch.Generator().manual_seed(s)) for s in (3, 3, 4))
    assert torch.equal(one.x, two.x)
    assert torch.equal(one.velocity, two.velocity)
    assert not torch.equal(one.x, other.x)
    t, x, u, noise = path.sample_location_and_conditional_flow(50, torch.Generator().manual_seed(3), return_noise=True)
    assert torch.equal(x, one.x)
    assert torch.equal(u, one.velocity)
    assert torch.equal(noise, one.score_noise)
    np.testing.assert_allclose(t, one.t, rtol=1e-6)


@pytest.mark.parametrize("clock", [0.0, 1e5, 1e9])
def test_float32_paths_keep_their_digits_on_long_clocks(clock, backend):
    """Times are kept in float64 and pieces in local coordinates."""
    t = np.linspace(0, 10, 200)
    path = BSplinePath.fit(clock + t, np.sin(t)[None, :, None])
    drawn = path.sample(1000, torch.Generator().manual_seed(0))
    local = drawn.t.numpy() - clock
    np.testing.assert_allclose(drawn.mu[:, 0], np.sin(local), atol=2e-6)
    np.testing.assert_allclose(drawn.velocity[:, 0], np.cos(local), atol=2e-4)


def test_compiled_and_plain_sampling_agree(monkeypatch):
    pytest.importorskip("numba")
    times, values, mask = panel(21, n_trajectories=40, n=30, missing=0.4)
    for m, parametrization in ((None, "time"), (mask, "time"), (mask, "index")):
        drawn = []
        for _ in range(2):
            path = BSplinePath.fit(times, values, m, parametrization=parametrization, **DOUBLE)
            drawn.append(path.sample(500, torch.Generator().manual_seed(0)))
            monkeypatch.setattr("sprigs_splineflow.conditional.compiled", lambda: None)
        monkeypatch.undo()
        np.testing.assert_allclose(drawn[0].mu, drawn[1].mu, atol=1e-11)
        np.testing.assert_allclose(drawn[0].velocity, drawn[1].velocity, atol=1e-9)


# Knots and few observations


def test_knots_of_your_own():
    times, values, _ = panel(22, n=10)
    knots = np.concatenate([np.repeat(times[0], 4), np.linspace(times[0], times[-1], 8)[1:-1], np.repeat(times[-1], 4)])
    path = None
    for shift in np.linspace(0, 1, 11):  # between equal spacing and not-a-knot there are knots that fit
        own = (1 - shift) * knots + shift * reference.knot_vector(times, 3)
        try:
            path = BSplinePath.fit(times, values, knots=own, **DOUBLE)
        except SplineFlowError as error:
            if "Schoenberg-Whitney" not in str(error):
                raise
            continue
        expected = make_interp_spline(times, values[0], k=3, t=own)
        q = np.linspace(times[0], times[-1], 50)
        np.testing.assert_allclose(curve(path, 0, q), expected(q), atol=1e-8)
    assert path is not None


def test_few_observations_lower_the_degree_with_a_warning():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(1, 3, 2))
    with pytest.warns(DegreeWarning, match="fewer than 6 observations"):
        path = BSplinePath.fit([0.0, 1.0, 3.0], values, degree=5, **DOUBLE)
    q = np.linspace(0, 3, 20)
    for j in range(2):
        parabola = np.polynomial.Polynomial.fit([0.0, 1.0, 3.0], values[0, :, j], 2)
        np.testing.assert_allclose(curve(path, 0, q)[:, j], parabola(q), atol=1e-12)
    with pytest.warns(DegreeWarning):
        single = BSplinePath.fit([2.0], values[:, :1], **DOUBLE)
    np.testing.assert_array_equal(curve(single, 0, np.array([0.0, 2.0, 5.0])), np.repeat(values[0, :1], 3, axis=0))
    assert (curve(single, 0, np.array([0.0, 2.0, 5.0]), 1) == 0).all()
    assert single.sample(5).t.tolist() == [2.0] * 5


def test_mixed_degrees_in_one_path(backend):
    """Records with one, two, three and many observations, side by side."""
    rng = np.random.default_rng(1)
    times, values = np.arange(9.0), rng.normal(size=(4, 9, 1))
    mask = np.zeros((4, 9, 1), bool)
    for i, n in enumerate((1, 2, 3, 9)):
        mask[i, :n] = True
    with pytest.warns(DegreeWarning, match="3 of 4"):
        path = BSplinePath.fit(times, values, mask, **DOUBLE)
    assert path.marginal_error() < 1e-12
    with pytest.raises(SplineFlowError, match="several degrees"):
        _ = path.control_points
    expected = make_interp_spline(times, values[3, :, 0], k=3)
    q = np.linspace(0, 8, 30)
    np.testing.assert_allclose(curve(path, 3, q)[:, 0], expected(q), atol=1e-12)


def test_duplicates():
    times = np.array([0.0, 1.0, 1.0, 2.0, 3.0, 4.0])
    values = np.arange(6.0).reshape(1, 6, 1) ** 2
    with pytest.raises(SplineFlowError, match="duplicates='mean'"):
        BSplinePath.fit(times, values)
    path = BSplinePath.fit(times, values, duplicates="mean", **DOUBLE)
    expected = make_interp_spline(np.unique(times), [0, 2.5, 9, 16, 25], k=3)
    q = np.linspace(0, 4, 9)
    np.testing.assert_allclose(curve(path, 0, q)[:, 0], expected(q), atol=1e-12)
    mask = np.array([True, True, False, True, True, True]).reshape(1, 6, 1)
    masked = BSplinePath.fit(np.stack([times]), values, mask, duplicates="mean", **DOUBLE)
    np.testing.assert_allclose(curve(masked, 0, np.array([1.0]))[0, 0], 1.0)


GOOD = (np.arange(6.0), np.zeros((2, 6, 1)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"times": np.array([0.0, 1, 2, 3, 5, 4])}, "increase strictly"),
        ({"times": np.array([0.0, 1, 2, 3, np.inf, 4])}, "finite"),
        ({"times": np.arange(5.0)}, r"\[6\] or \[2, 6\]"),
        ({"values": np.full((2, 6, 1), np.nan)}, "finite where observed"),
        ({"values": np.zeros((2, 0, 1)), "times": np.zeros(0)}, "none of them 0"),
        ({"values": np.zeros(6)}, "must be"),
        ({"values": np.array([["a"]])}, "real numbers"),
        ({"values": np.zeros((2, 6, 1), complex)}, "real numbers"),
        ({"mask": np.zeros((2, 6, 1), bool)}, "no observation"),
        ({"mask": np.ones((2, 5, 1), bool)}, "mask must be"),
        ({"mask": np.ones((2, 6, 1))}, "mask must be boolean"),
        ({"degree": 0}, "1 to 5"),
        ({"degree": 6}, "1 to 5"),
        ({"degree": 2.0}, "1 to 5"),
        ({"bc": "periodic"}, "bc must be"),
        ({"bc": "natural", "degree": 2}, "odd degree"),
        ({"parametrization": "chord"}, "parametrization must be"),
        ({"shape": "convex"}, "shape must be"),
        ({"shape": "monotone", "smoothing": 1.0}, "cannot be combined"),
        ({"smoothing": -1.0}, "smoothing must be"),
        ({"weights": np.ones((2, 6, 1))}, "smoothing"),
        ({"knots": np.arange(9.0)}, "knots must be"),
        ({"extrapolation": "linear"}, "extrapolation must be"),
        ({"duplicates": "drop"}, "duplicates must be"),
        ({"dtype": torch.float16}, "dtype must be"),
        ({"schedule": ConstantSigma([1.0, 2.0])}, "sigma must be"),
    ],
)
def test_bad_input(change, message):
    arguments = {"times": GOOD[0], "values": GOOD[1], **change}
    with pytest.raises(SplineFlowError, match=message):
        BSplinePath.fit(**arguments)


def test_bad_calls():
    path = BSplinePath.fit(*GOOD)
    for arguments, message in (
        (([0, 2], [0.0, 1.0]), "within 0..1"),
        (([0, 1], [0.0]), r"\[B\]"),
        (([0.0], [0.0]), "whole numbers"),
        (([0], [np.nan]), "finite"),
        (([0], [0.0], -1), "nu must be"),
    ):
        with pytest.raises(SplineFlowError, match=message):
            path.evaluate(*(np.array(a) if isinstance(a, list) else a for a in arguments))
    for options, message in (
        ({"batch": 0}, "batch"),
        ({"batch": 4, "t_sampler": "beta"}, "t_sampler"),
        ({"batch": 4, "index": np.zeros(3, int)}, r"\[B\]|expected 4"),
        ({"batch": 4, "t_sampler": lambda b, g: torch.full((b,), 2.0)}, "between 0 and 1"),
    ):
        with pytest.raises(SplineFlowError, match=message):
            path.sample(**options)
    for bad in (lambda: ConstantSigma(-1.0), lambda: BrownianBridge(0.0), lambda: RescaledBridge(1.0, margin=0.7)):
        with pytest.raises(SplineFlowError):
            bad()
    with pytest.raises(TypeError, match="unknown options"):
        LinearPath.fit(*GOOD, degree=3)
    with pytest.raises(SplineFlowError, match="64 observations"):
        LagrangePath.fit(np.arange(65.0), np.zeros((1, 65, 1)))
