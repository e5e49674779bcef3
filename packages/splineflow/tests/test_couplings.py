"""Plans and chains against identities and POT."""

import numpy as np
import ot
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from sprigs_splineflow import SplineFlowError
from sprigs_splineflow.couplings import ExactOT, Independent, Sinkhorn, Unbalanced, chain, resolve


def clouds(seed=0, sizes=(40, 60, 50), d=2):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=(n, d)) + k for k, n in enumerate(sizes)]


@pytest.mark.parametrize("batch", [None, 40])
def test_identical_snapshots_are_paired_with_themselves(batch):
    (x,) = clouds(sizes=(40,))
    index = chain([x, x, x], n=80, rng=0, batch=batch)
    np.testing.assert_array_equal(index, np.repeat(index[:, :1], 3, axis=1))
    np.testing.assert_array_equal(np.bincount(index[:, 0]), np.full(40, 2))


def test_cost_and_marginals_of_the_exact_plan():
    x, y, _ = clouds()
    plan = ExactOT().plan(x, y)
    np.testing.assert_allclose(plan.sum(axis=0), 1 / 60, atol=1e-12)
    np.testing.assert_allclose(plan.sum(axis=1), 1 / 40, atol=1e-12)
    assert (plan * ot.dist(x, y)).sum() == pytest.approx(ot.emd2([], [], ot.dist(x, y)), rel=1e-12)


@pytest.mark.parametrize("coupling", ["exact", "sinkhorn", "independent"])
def test_chains_visit_every_member_evenly(coupling):
    arrays = clouds()
    index = chain(arrays, coupling, n=24_000, rng=1)
    for k, a in enumerate(arrays):
        assert chisquare(np.bincount(index[:, k], minlength=len(a))).pvalue > 1e-3
    # Consecutive members come in the plan's proportions.
    plan = resolve(coupling).plan(arrays[0], arrays[1])
    joint = np.zeros_like(plan)
    np.add.at(joint, (index[:, 0], index[:, 1]), 1 / len(index))
    assert np.abs(joint - plan).max() < 4 * np.sqrt(plan.max() / len(index))


@given(st.integers(0, 1000))
@settings(max_examples=5, deadline=None)
def test_minibatches_are_optimal_assignments(seed):
    arrays = clouds(seed, (30, 30))
    index = chain(arrays, n=30, rng=seed, batch=30)
    cost = np.square(arrays[0][index[:, 0]] - arrays[1][index[:, 1]]).sum(axis=1).mean()
    assert cost == pytest.approx(ot.emd2([], [], ot.dist(*arrays)), rel=1e-9)


def test_sinkhorn_tends_to_the_exact_plan_and_to_independence():
    x, y, _ = clouds()
    exact, loose, tight = (c.plan(x, y) for c in (ExactOT(), Sinkhorn(100.0), Sinkhorn(0.02)))
    cost = ot.dist(x, y)
    best, near = (float((p * cost).sum()) for p in (exact, tight))
    assert best <= near < 1.1 * best
    np.testing.assert_allclose(loose, Independent().plan(x, y), rtol=0.1)
    np.testing.assert_allclose(tight.sum(axis=1), 1 / 40, atol=1e-6)


@pytest.mark.parametrize("reg", [0.1, 0.01, 0.001])
@pytest.mark.parametrize("far", [0.0, 100.0])
def test_sinkhorn_is_optimal(reg, far):
    """The marginals are met, and log P + C / reg is a sum of a function of x and one of y: nothing else is optimal."""
    x, y, _ = clouds(sizes=(12, 14, 1))
    x[0] += far  # one outlier: where exp(-C / reg) underflows
    plan = Sinkhorn(reg).plan(x, y)
    np.testing.assert_allclose(plan.sum(axis=0), 1 / 14, atol=1e-8)
    np.testing.assert_allclose(plan.sum(axis=1), 1 / 12, atol=1e-8)
    cost = ot.dist(x, y)
    potentials = np.log(np.maximum(plan, 1e-300)) + cost / cost.mean() / reg
    potentials[plan < 1e-250] = np.nan
    assert np.nanmax(np.abs(np.diff(np.diff(potentials, axis=0), axis=1))) < 1e-6


@pytest.mark.parametrize(
    ("reg", "reg_m"), [(0.1, 10.0), (0.1, 1.0), (0.1, 0.1), (0.01, 1.0), (0.01, 0.1), (0.001, 0.1)]
)
@pytest.mark.parametrize("far", [0.0, 100.0])
def test_unbalanced_plans_are_optimal(reg, reg_m, far):
    """reg log(P / ab) + C + reg_m (log(P1 / a) + log(P'1 / b)) = 0, the gradient of what is minimised."""
    x, y, _ = clouds(sizes=(12, 14, 1))
    x[0] += far
    plan = Unbalanced(reg, reg_m).plan(x, y)
    cost = ot.dist(x, y)
    seen = plan > 1e-250
    with np.errstate(divide="ignore"):
        grown = np.log(plan.sum(axis=1) * 12)[:, None] + np.log(plan.sum(axis=0) * 14)
        gradient = reg * np.log(plan * 12 * 14) + cost / cost.mean() + reg_m * grown
    assert np.abs(gradient[seen]).max() < 1e-6
    assert seen[1:].any(axis=1).all()


def test_unbalanced_plans_are_pots():
    """Its plain iteration is right where nothing underflows; the limit of stiff marginals is the balanced plan."""
    x, y, _ = clouds()
    cost = ot.dist(x, y)
    peer = ot.unbalanced.sinkhorn_unbalanced(
        np.full(40, 1 / 40), np.full(60, 1 / 60), cost / cost.mean(), 0.05, 1.0, numItermax=5000, stopThr=1e-12
    )
    np.testing.assert_allclose(Unbalanced().plan(x, y), peer, rtol=1e-6)
    np.testing.assert_allclose(Unbalanced(0.05, 1e5).plan(x, y), Sinkhorn(0.05).plan(x, y), rtol=1e-3, atol=1e-9)


def test_an_unfinished_plan_is_warned_of(monkeypatch):
    monkeypatch.setattr("sprigs_splineflow.couplings.MOST_ITERATIONS", 2)
    with pytest.warns(UserWarning, match="converged"):
        Unbalanced().plan(*clouds()[:2])


@given(st.floats(-1e8, 1e8))
@settings(max_examples=10, deadline=None)
def test_chains_do_not_depend_on_the_origin(offset):
    arrays = [np.random.default_rng(k).integers(-50, 50, (20, 2)) / 16 for k in range(2)]
    moved = [a + np.round(offset) for a in arrays]
    np.testing.assert_array_equal(chain(moved, n=20, rng=0), chain(arrays, n=20, rng=0))
    index = chain([moved[0], moved[0][::-1]], n=20, rng=0, batch=20)
    np.testing.assert_array_equal(moved[0][index[:, 0]], moved[0][::-1][index[:, 1]])


def test_unbalanced_plans_let_members_grow():
    """Half of the first snapshot has nothing near it in the second: its members leave fewer descendants."""
    rng = np.random.default_rng(0)
    near, far = rng.normal(size=(40, 2)), rng.normal(size=(40, 2)) + 30
    x, y = np.concatenate([near, far]), rng.normal(size=(50, 2))
    plan = Unbalanced(0.05, 0.1).plan(x, y)
    grown = plan.sum(axis=1) / plan.sum()
    assert grown[:40].sum() > 0.9
    index = chain([x, y], Unbalanced(0.05, 0.1), n=2000, rng=0)
    assert (index[:, 0] < 40).mean() == pytest.approx(grown[:40].sum(), abs=0.01)


def test_functions_and_empty_rows():
    """A plan's rows without mass go to the nearest member."""
    x, y = np.array([[0.0], [10.0]]), np.array([[1.0], [9.0], [50.0]])

    def lopsided(a, b):
        return np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]])

    index = chain([y, x, y], lambda a, b: lopsided(a, b) if len(a) == 2 else np.full((3, 2), 1 / 6), n=300, rng=0)
    assert set(index[index[:, 1] == 0, 2]) == {0}
    assert set(index[index[:, 1] == 1, 2]) == {2}


def test_the_same_seed_gives_the_same_chains():
    arrays = clouds()
    np.testing.assert_array_equal(chain(arrays, n=100, rng=3), chain(arrays, n=100, rng=np.random.default_rng(3)))
    assert len(chain(arrays)) == 240
    np.testing.assert_array_equal(
        chain(arrays, ExactOT(), n=100, rng=3, batch=10), chain(arrays, "exact", n=100, rng=3, batch=10)
    )


def test_large_exact_plans_are_warned_of(monkeypatch):
    monkeypatch.setattr("sprigs_splineflow.couplings.MOST_EXACT", 20)
    with pytest.warns(UserWarning, match="Sinkhorn"):
        chain(clouds(), n=4, rng=0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"snapshots": clouds()[:1]}, "at least two"),
        ({"snapshots": [np.zeros((3, 2)), np.zeros((3, 1))]}, "same dimensions"),
        ({"snapshots": [np.zeros((3, 2)), np.zeros((0, 2))]}, "snapshot 1"),
        ({"snapshots": [np.zeros((3, 2)), np.full((3, 2), np.nan)]}, "finite"),
        ({"coupling": "emd"}, "coupling must be"),
        ({"coupling": lambda x, y: np.zeros((1, 1))}, "plan of snapshots"),
        ({"coupling": lambda x, y: -np.ones((len(x), len(y)))}, "not negative"),
        ({"coupling": lambda x, y: np.zeros((len(x), len(y)))}, "all zero"),
        ({"coupling": lambda x, y: np.full((len(x), len(y)), np.nan)}, "finite"),
        ({"coupling": Sinkhorn(0.0)}, "reg must be"),
        ({"coupling": Unbalanced(0.05, -1.0)}, "reg_m must be"),
        ({"n": 0}, "positive"),
        ({"batch": 0}, "batch"),
        ({"batch": 8, "coupling": "sinkhorn"}, "minibatches"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(SplineFlowError, match=message):
        chain(**{"snapshots": clouds(), **arguments})
