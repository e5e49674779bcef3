"""Equilibria, families and exports, against closed forms, the triple loop, nashpy and OpenSpiel."""

import itertools
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sprigs_sponsored import (
    GridWarning,
    Instance,
    JointVCG,
    Modular,
    Redistribution,
    SponsoredError,
    best_response_dynamics,
    engagement,
    free_rider,
    hedge,
    intents,
    make_game,
    poa,
    pos,
    pure_nash,
    random_instance,
    reference,
    sponsor_bid,
    sponsor_loss,
    to_gambit,
    to_openspiel_matrix,
)
from sprigs_sponsored.claims import best_bid_on_grid, loss_by_integration

TENTHS = np.arange(1, 11) / 10

coarse = pytest.mark.filterwarnings("ignore::sprigs_sponsored.errors.GridWarning")


@pytest.mark.parametrize(("m", "expected"), [(2, 1.998), (4, 3.996), (16, 15.984), (64, 63.936)])
def test_intents_family(m, expected):
    instance = intents(m)
    assert not instance.has_abandonment
    best = JointVCG().run(instance).welfare
    for rule in (Modular(), Modular(price1="first_price"), Modular("public_vcg"), Modular("public_first_price")):
        assert best / rule.run(instance).welfare == pytest.approx(expected, abs=5e-4)
    eps, eta = 1e-3 / m, 1e-3
    assert best / Modular().run(instance).welfare == pytest.approx((1 - eta) / (eps + (1 - eta) / m), rel=1e-12)


@pytest.mark.parametrize("ratio", [2, 5, 10, 20])
def test_engagement_family(ratio):
    instance = engagement(1, 1 / ratio)
    for rule in (
        Modular(),
        Modular(price1="first_price"),
        Modular(price1="all_pay"),
        Modular("public_vcg"),
        Modular("public_first_price"),
    ):
        found = poa(instance, rule, np.arange(1, 9) / (4 * ratio))
        assert found.value == pytest.approx(ratio, rel=1e-12), rule.name
        assert found.best == pytest.approx(ratio, rel=1e-12)
        assert found.count > 0


@given(st.integers(1, 12), st.floats(0.1, 5), st.floats(0.01, 2))
def test_free_rider_family(n, u, delta):
    instance = free_rider(n, u, delta)
    assert instance.continuation()[1] == pytest.approx([u] * n)
    found = poa(instance, Modular(), (), concept="truthful").value
    assert found == pytest.approx(max(1, n * u / (u + delta)) if n * u > u + delta else 1, rel=1e-9)


def test_one_equilibrium_without_overbidding_and_more_with():
    instance = engagement(1, 0.1)
    alone = pure_nash(instance, Modular(), TENTHS)
    assert len(alone) == 1
    assert alone.describe(0) == ["abstain", "abstain", "0.1 on keep the niche"]
    assert alone.welfare.tolist() == [pytest.approx(0.1)]
    assert poa(instance, Modular(), TENTHS).value == pytest.approx(10)
    free = pure_nash(instance, Modular(), TENTHS, "none")
    assert set(free.questions.tolist()) >= {1, 2}, "overbidding supports both questions"
    assert pos(instance, Modular(), TENTHS, refinement="none") == 1
    assert len(pure_nash(instance, Modular(), TENTHS, "undominated")) == 1


@pytest.mark.parametrize("rho", [0, 0.05, 0.1, 0.15, 0.2, 0.5, 1])
def test_the_switch_of_the_rebate(rho):
    found = poa(engagement(1, 0.1), Modular(redistribution=Redistribution(rho)), TENTHS)
    assert found.value == pytest.approx(10 if rho <= 0.1 else 1)


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10_000), st.sampled_from(["none", "no_overbidding"]))
def test_pure_nash_equals_the_triple_loop(seed, refinement):
    instance = random_instance(seed, m=3, questions=2, signals=2, n=3)
    found = pure_nash(instance, Modular(), np.arange(1, 5) * 0.3, refinement)
    actions = [
        list(zip(q.tolist(), b.tolist(), strict=True))
        for q, b in zip(found.game.questions, found.game.bids, strict=True)
    ]
    expected = reference.pure_nash(found.game.first.worth, found.game.first.stage.welfare, actions)
    assert [tuple(p) for p in found.profiles.tolist()] == expected


@coarse
@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.sampled_from(["single_winner", "public_vcg", "public_first_price"]))
def test_games_play_as_mechanisms_run(seed, stage1):
    """Every profile's utilities are those of `Modular.run` on the same bids."""
    instance = random_instance(seed, m=2, questions=2, signals=2, n=3, abandonment=0.3)
    rebate = Redistribution(0.5, "sponsor" if stage1 == "single_winner" else "equal")
    for price in ("second_price", "first_price", "all_pay"):
        mechanism = Modular(stage1, price1=price, redistribution=rebate)
        game = make_game(instance, mechanism, [0.2, 0.5], "none")
        questions, utilities = game.utilities()
        rng = np.random.default_rng(seed)
        for _ in range(10):
            profile = tuple(int(rng.integers(size)) for size in game.shape)
            bids = np.zeros((3, instance.n_questions))
            for i, a in enumerate(profile):
                bids[i, game.questions[i][a]] = game.bids[i][a]
            outcome = mechanism.run(instance, bids)
            assert outcome.question == questions[profile]
            np.testing.assert_allclose(outcome.utilities, utilities[profile], atol=1e-12)


@coarse
@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000))
def test_two_players_against_nashpy(seed):
    import nashpy

    instance = random_instance(seed, m=2, questions=1, signals=2, n=2)
    game = make_game(instance, Modular(price1="first_price"), [0.11, 0.37], "none")
    _, (a, b) = to_openspiel_matrix(game)
    found = {
        tuple(p) for p in pure_nash(instance, Modular(price1="first_price"), [0.11, 0.37], "none").profiles.tolist()
    }
    theirs = nashpy.Game(a, b)
    for i, j in itertools.product(*map(range, game.shape)):
        rows, columns = np.eye(game.shape[0])[i], np.eye(game.shape[1])[j]
        best = theirs.is_best_response(rows, columns)
        if (i, j) in found:
            # nashpy compares exactly; payoffs that tie but for rounding are decided by our tolerance.
            assert a[i, j] >= a[:, j].max() - 1e-9
            assert b[i, j] >= b[i].max() - 1e-9
        else:
            assert not all(best)


def a_contest():
    """Two advertisers that want different questions: an all-pay auction with a prize of 1/2 for each."""
    kernel = np.zeros((3, 2, 1))
    kernel[1, 0] = kernel[2, 1] = 1
    return Instance([0.5, 0.5], kernel, np.eye(2))


def test_no_equilibrium_is_no_number():
    found = poa(a_contest(), Modular(price1="all_pay"), np.arange(1, 13) * 0.04)
    assert found.count == 0
    assert math.isnan(found.value)
    assert math.isnan(found.best)
    assert "no pure equilibrium" in found.reason


def test_a_welfare_of_zero_is_infinitely_bad():
    kernel = np.zeros((2, 1, 1))
    kernel[1] = 1
    instance = Instance([1.0], kernel, [[1.0], [1.0]])  # two equal rivals: nobody bids, everybody leaves
    assert poa(instance, Modular(), [0.1]).value == math.inf
    nobody = Instance([1.0], kernel, [[0.0], [0.0]])
    assert poa(nobody, Modular(), [0.1]).value == 1


def test_a_coarse_grid_is_warned_of():
    with pytest.warns(GridWarning, match="equilibria that a finer one does not have"):
        pure_nash(engagement(1, 0.1), Modular(price1="first_price"), TENTHS)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pure_nash(engagement(1, 0.1), Modular(price1="first_price"), TENTHS / 4)


@coarse
@settings(deadline=None, max_examples=20)
@given(st.integers(0, 10_000))
def test_best_responses_end_in_an_equilibrium_or_say_why(seed):
    instance = random_instance(seed, m=3, questions=2, signals=2, n=3)
    mechanism = Modular(price1="first_price") if seed % 2 else Modular()
    game = make_game(instance, mechanism, np.arange(1, 7) * 0.15 + 1e-3 * seed / 1e4, "none")
    found = best_response_dynamics(game)
    if found.converged:
        for i in range(3):
            replies = game.replies(found.profile, i)
            assert replies[found.profile[i]] >= replies.max() - 1e-9
        assert found.reason == ""
    else:
        assert found.cycle or "rounds" in found.reason
        assert "cycle" in found.reason or "rounds" in found.reason


def test_a_cycle_is_found():
    """Overbid by a step, until it no longer pays; then begin again."""
    found = best_response_dynamics(make_game(a_contest(), Modular(price1="all_pay"), np.arange(1, 13) * 0.04))
    assert not found.converged
    assert len(set(found.cycle)) == len(found.cycle) > 1
    assert f"a cycle of {len(found.cycle)} profiles" in found.reason


def test_hedge_has_little_regret():
    game = make_game(engagement(1, 0.1), Modular(), TENTHS, "none")
    seen = []
    learned = hedge(game, rounds=4000, seed=1, progress=seen.append)
    scale = game.first.worth.max() + 1
    bound = max(math.sqrt(math.log(size) / 8000) for size in game.shape) * scale
    assert learned.regret.max() <= 2 * bound, "theorem 2.2 of Cesa-Bianchi and Lugosi, and sampling"
    assert sum(seen) == 4000
    assert sum(learned.distribution.values()) == pytest.approx(1)
    assert learned.shares.sum() == pytest.approx(1)
    again = hedge(game, rounds=4000, seed=1)
    assert np.array_equal(again.regret, learned.regret)
    found = poa(engagement(1, 0.1), Modular(), TENTHS, concept="hedge", rounds=1000)
    assert 5 < found.value < 11


@pytest.mark.parametrize("rho", [0.0, 0.25, 0.5, 1.0])
def test_the_sponsors_bid_and_its_cost(rho):
    for x in (0.1, 0.4, 0.9):
        assert best_bid_on_grid(x, rho) == pytest.approx(sponsor_bid(x, rho), abs=1e-4)
    assert loss_by_integration(rho) == pytest.approx(sponsor_loss(rho), abs=2e-4)
    assert sponsor_bid(0.4, rho) == pytest.approx({0.0: 0.4, 0.25: 0.52, 0.5: 0.6, 1.0: 0.7}[rho])
    assert sponsor_loss(1) == pytest.approx(1 / 24)


def test_gambit_file(tmp_path):
    game = make_game(random_instance(3, n=3, questions=1), Modular(), [0.2, 0.4], "none")
    text = to_gambit(game, tmp_path / "game.nfg", title='with "quotes"')
    assert (tmp_path / "game.nfg").read_text() == text
    head, _, body = text.partition('\n""\n\n')
    assert head.startswith('NFG 1 R "with \\"quotes\\"" { "advertiser 0"')
    rows = [list(map(float, line.split())) for line in body.strip().splitlines()]
    _, utilities = game.utilities()
    sizes = game.shape
    assert len(rows) == math.prod(sizes)
    for k, row in enumerate(rows):
        profile = (k % sizes[0], k // sizes[0] % sizes[1], k // (sizes[0] * sizes[1]))
        assert row == pytest.approx(utilities[profile].tolist())


@pytest.mark.slow
def test_openspiel_agrees():
    pyspiel = pytest.importorskip("pyspiel")
    instance = random_instance(5, m=3, questions=2, signals=2, n=2)
    game = make_game(instance, Modular(), [0.13, 0.41, 0.77], "none")
    names, (a, b) = to_openspiel_matrix(game)
    theirs = pyspiel.create_matrix_game("g", "g", names[0], names[1], a, b)
    found = {tuple(p) for p in pure_nash(instance, Modular(), [0.13, 0.41, 0.77], "none").profiles.tolist()}
    stable = set()
    for i, j in itertools.product(range(theirs.num_rows()), range(theirs.num_cols())):
        best_row = max(theirs.player_utility(0, k, j) for k in range(theirs.num_rows()))
        best_column = max(theirs.player_utility(1, i, k) for k in range(theirs.num_cols()))
        if theirs.player_utility(0, i, j) >= best_row - 1e-9 and theirs.player_utility(1, i, j) >= best_column - 1e-9:
            stable.add((i, j))
    assert stable == found


def test_refusals():
    instance = engagement()
    game = make_game(instance, Modular(), TENTHS)
    for act in (
        lambda: make_game(instance, Modular(), [-1]),
        lambda: make_game(instance, Modular(), [np.inf]),
        lambda: make_game(instance, Modular(), TENTHS, "nice"),
        lambda: poa(instance, Modular(), TENTHS, concept="correlated"),
        lambda: best_response_dynamics(game, (0, 0)),
        lambda: best_response_dynamics(game, (0, 0, 99)),
        lambda: hedge(game, rounds=0),
        lambda: pure_nash(random_instance(0, n=6), Modular(), np.arange(1, 60) / 60, "none"),
        lambda: engagement(1, 2),
        lambda: intents(1),
        lambda: intents(4, eps=2),
        lambda: free_rider(0),
    ):
        with pytest.raises(SponsoredError):
            act()
