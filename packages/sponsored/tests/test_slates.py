"""Slates: four solvers against one another, and against every slate looked at on its own."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sprigs
from sprigs_sponsored import (
    JointVCG,
    SlateInstance,
    SponsoredError,
    advertiser_values,
    load_topics,
    modular_slate,
    solve_slate,
)
from sprigs_sponsored.queries import generated_topics
from sprigs_sponsored.slate_solvers import Search, fast_search, upper_bound
from sprigs_sponsored.slates import count_slates, slates_of_topic, unrank

seeds = st.integers(0, 10_000)


def any_slates(seed, model="mnl", prompts=8, k=3):
    rng = np.random.default_rng(seed)
    m, n = int(rng.integers(1, 6)), int(rng.integers(1, 6))
    shape = (prompts, m)
    own = {
        "mnl": lambda: rng.normal(size=shape) * rng.integers(1, 4),
        "cascade": lambda: rng.random(shape),
        "coverage": lambda: (rng.random(shape) < 0.3) * 1.0,
    }[model]()
    values = rng.lognormal(size=(n, m)) * (rng.random((n, m)) < 0.6)
    return SlateInstance(rng.dirichlet(np.ones(m)), own, values, k, model)


def brute_force(instance):
    choose = itertools.permutations if instance.model == "cascade" else itertools.combinations
    best = {}
    for size in range(instance.k + 1):
        for slate in choose(range(instance.n_prompts), size):
            kernel = instance.kernel(slate)
            if instance.model == "coverage":
                kernel = kernel[:, 1:]
            worth = np.einsum("t,ts,it->si", instance.prior, kernel, instance.values)
            best[slate] = worth.max(axis=1).sum()
    return best


@settings(deadline=None, max_examples=40)
@given(seeds, st.sampled_from(["mnl", "cascade", "coverage"]))
def test_enumeration(seed, model):
    instance = any_slates(seed, model, prompts=6)
    every = brute_force(instance)
    found = solve_slate(instance, "enumerate")
    assert found.welfare == pytest.approx(max(every.values()), abs=1e-12)
    assert every[found.slate] == pytest.approx(found.welfare, abs=1e-12)
    assert found.nodes == found.total == len(every)
    for i in range(len(instance.values)):
        alone = max(brute_force(instance.without(i)).values())
        assert found.without[i] == pytest.approx(alone, abs=1e-12)
    assert instance.full_information() >= found.welfare - 1e-12
    assert upper_bound(instance) >= found.welfare - 1e-12


@settings(deadline=None, max_examples=60)
@given(seeds, st.sampled_from(["mnl", "coverage"]), st.integers(0, 4))
def test_branch_and_bound_equals_enumeration(seed, model, k):
    instance = any_slates(seed, model, k=k)
    exact, found = solve_slate(instance, "enumerate"), solve_slate(instance, "bnb")
    assert found.welfare == pytest.approx(exact.welfare, abs=1e-10)
    assert instance.welfare(found.slate) == pytest.approx(found.welfare, abs=1e-10)
    np.testing.assert_allclose(found.without, exact.without, atol=1e-10)
    np.testing.assert_allclose(found.payments.sum(), exact.payments.sum(), atol=1e-9)
    greedy = solve_slate(instance, "greedy")
    assert greedy.welfare <= exact.welfare + 1e-10 <= greedy.bound + 2e-10
    assert greedy.gap >= (exact.welfare - greedy.welfare) / max(exact.welfare, 1e-300) - 1e-9
    if model == "coverage":
        assert greedy.welfare >= (1 - 1 / math.e) * exact.welfare - 1e-12


@settings(deadline=None, max_examples=12)
@given(seeds, st.sampled_from(["mnl", "coverage"]))
def test_the_integer_program_equals_enumeration(seed, model):
    instance = any_slates(seed, model, prompts=6, k=2)
    exact, found = solve_slate(instance, "enumerate"), solve_slate(instance, "milp")
    assert found.welfare == pytest.approx(exact.welfare, abs=1e-6)
    np.testing.assert_allclose(found.without, exact.without, atol=1e-6)


@settings(deadline=None, max_examples=20)
@given(seeds)
def test_payments_are_those_of_the_joint_mechanism(seed):
    """A question for each slate: the same optimum and the same VCG payments."""
    for model in ("mnl", "coverage"):
        instance = any_slates(seed, model, prompts=5, k=2)
        slates = [s for size in (1, 2) for s in itertools.combinations(range(5), size)]
        joint = JointVCG().run(instance.as_instance(slates))
        found = solve_slate(instance, "enumerate")
        assert joint.welfare == pytest.approx(found.welfare, abs=1e-12)
        np.testing.assert_allclose(found.payments, joint.payments, atol=1e-10)


@settings(deadline=None)
@given(seeds, st.sampled_from(["gsp", "vcg"]), st.sampled_from(["mnl", "coverage"]))
def test_suggestion_slots_sold_apart(seed, prices, model):
    instance = any_slates(seed, model, prompts=7, k=3)
    bids = np.random.default_rng(seed).random((len(instance.values), 7))
    for offered in (None, bids):
        found = modular_slate(instance, offered, prices=prices)
        assert len(set(found.slate)) == len(found.slate) <= 3
        assert found.welfare == pytest.approx(instance.welfare(found.slate), abs=1e-12)
        assert found.welfare == pytest.approx(found.utilities.sum() + found.revenue, abs=1e-10)
        assert found.welfare <= solve_slate(instance, "enumerate").welfare + 1e-12
        assert found.payments.min() >= 0
    # Nobody pays more than it bid, and Clarke's price is what the others lose.
    best = np.sort(bids.max(axis=0))[::-1]
    assert [bids[i, p] for i, p in zip(found.sponsors, found.slate, strict=True)] == pytest.approx(best[:3].tolist())
    for i in range(len(bids)):
        own = sum(bids[s, p] for s, p in zip(found.sponsors, found.slate, strict=True) if s == i)
        assert found.payments[i] <= own + 1e-12
        if prices == "vcg":
            alone = np.delete(bids, i, axis=0)
            without = np.sort(alone.max(axis=0, initial=0))[::-1][:3].sum()
            assert found.payments[i] == pytest.approx(without - (best[:3].sum() - own), abs=1e-12)


@given(seeds)
def test_one_slot_sold_apart_is_the_single_winner(seed):
    """With one slot, Clarke's price is the best bid of other advertisers, on any prompt: the second price."""
    instance = any_slates(seed, prompts=4, k=1)
    bids = np.random.default_rng(seed).random((len(instance.values), 4))
    found = modular_slate(instance, bids, prices="vcg")
    rival = np.delete(bids, found.sponsors[0], axis=0).max(initial=0.0)
    assert found.payments[found.sponsors[0]] == pytest.approx(rival)


def test_suggestion_slots_refuse():
    instance = any_slates(0)
    for bids in (
        np.zeros((1, 1)),
        np.full((len(instance.values), 8), -1.0),
        np.full((len(instance.values), 8), np.nan),
    ):
        with pytest.raises(SponsoredError, match="bids are"):
            modular_slate(instance, bids)
    with pytest.raises(SponsoredError, match="prices are"):
        modular_slate(instance, prices="first")
    nobody = SlateInstance([1.0], [[1.0]], [[0.0]], 1)
    assert modular_slate(nobody).slate == ()


def test_the_classical_tight_instance_of_greedy():
    """Two prompts cover everything; greedy is led astray by ever larger ones, to 1 - (1 - 1/k)^k of the best."""
    k, blocks = 2, 3
    # k disjoint optimal prompts of equal weight; decoy j takes 1/k of what is left in each.
    m = k * blocks
    weights = np.zeros((k, blocks))
    left = 1.0
    for j in range(blocks - 1):
        weights[:, j] = left / k / k
        left -= left / k
    weights[:, -1] = left / k
    prior = (weights / weights.sum()).ravel()
    prompts = np.zeros((k + blocks - 1, m))
    for i in range(k):
        prompts[i, i * blocks : (i + 1) * blocks] = 1
    for j in range(blocks - 1):
        prompts[k + j, j::blocks] = 1
    instance = SlateInstance(prior, prompts[::-1], np.ones((1, m)), k, "coverage")
    exact, greedy = solve_slate(instance, "enumerate"), solve_slate(instance, "greedy")
    assert exact.welfare == pytest.approx(1)
    assert greedy.welfare == pytest.approx(1 - (1 - 1 / k) ** k)


def test_adding_a_prompt_can_lower_welfare():
    """So that greedy on the MNL has a certificate, not a promise."""
    lowered = 0
    for seed in range(50):
        instance = any_slates(seed)
        every = brute_force(instance)
        for slate, welfare in every.items():
            if len(slate) == 2:
                lowered += welfare < min(every[slate[:1]], every[slate[1:]]) - 1e-9
    assert lowered > 0


def topics():
    try:
        return load_topics()
    except sprigs.DataUnavailable:
        return generated_topics(60)


def test_branch_and_bound_on_real_queries():
    """Equal to enumeration on every query of thirteen questions; on average it looks at under a tenth of the slates."""
    shares = []
    for topic in topics().values():
        if len(topic.questions) != 13:
            continue
        for model in ("random", "rivals"):
            values = advertiser_values(model, 8, len(topic.facets), np.random.default_rng(topic.topic_id))
            instance = slates_of_topic(topic.answers, values, 4)
            exact, found = solve_slate(instance, "enumerate"), solve_slate(instance, "bnb", payments=False)
            assert found.welfare == pytest.approx(exact.welfare, abs=1e-10)
            assert exact.total == 1093
            shares.append(found.nodes / exact.total)
    assert len(shares) > 5
    assert np.mean(shares) < 0.1


@given(st.integers(1, 9), st.integers(0, 9))
def test_unranking(n, k):
    if k > n:
        with pytest.raises(SponsoredError):
            unrank(0, n, k)
        return
    subsets = list(itertools.combinations(range(n), k))
    assert [unrank(i, n, k) for i in range(len(subsets))] == subsets
    with pytest.raises(SponsoredError):
        unrank(len(subsets), n, k)
    assert count_slates(n, k) == sum(math.comb(n, j) for j in range(k + 1))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prior": [0.5, 0.4]}, "sum to 1"),
        ({"prompts": [[1, 2, 3]]}, "prompts has shape"),
        ({"prompts": [[np.inf, 0]]}, "NaN"),
        ({"values": [[-1, 0]]}, "not negative"),
        ({"values": np.zeros((0, 2))}, "values has shape"),
        ({"k": 9}, "k lies in"),
        ({"model": "logit"}, "models are"),
        ({"model": "cascade", "prompts": [[2, 0]]}, "click probabilities"),
        ({"model": "coverage", "prompts": [[0.5, 0]]}, "0 or 1"),
    ],
)
def test_bad_slates(changes, said):
    own = {"prior": [0.5, 0.5], "prompts": [[1, 0], [0, 1]], "values": [[1, 2]], "k": 1}
    with pytest.raises(SponsoredError, match=said):
        SlateInstance(**{**own, **changes})


def test_methods_that_do_not_fit():
    for method in ("bnb", "milp"):
        with pytest.raises(SponsoredError, match="order of a cascade"):
            solve_slate(any_slates(0, "cascade"), method)
    with pytest.raises(SponsoredError, match="methods are"):
        solve_slate(any_slates(0), "quantum")
    large = SlateInstance([1.0], np.zeros((300, 1)), [[1.0]], 6)
    with pytest.raises(SponsoredError, match="too many"):
        solve_slate(large, "enumerate")
    assert solve_slate(large, "auto").welfare == pytest.approx(1)


@settings(deadline=None, max_examples=60)
@given(seeds, st.integers(0, 4), st.integers(0, 3))
def test_bounds_hold_and_are_the_same_in_numba(seed, chosen, room):
    """No slate that holds the chosen prompts and some of the open ones has more welfare than the bound."""
    instance = any_slates(seed, prompts=8, k=8)
    rng = np.random.default_rng(seed)
    order = rng.permutation(8)
    own, open_ = order[:chosen], order[chosen : chosen + 4]
    bound = Search(instance).bound(own, open_, room)
    fast = fast_search(instance)
    if fast is not None:
        assert fast.bound(tuple(own), open_, room) == pytest.approx(bound, rel=1e-12, abs=1e-12)
    values = [
        instance.welfare((*own, *more))
        for size in range(min(room, 4) + 1)
        for more in itertools.combinations(open_, size)
    ]
    assert max(values) <= bound + 1e-12
    if room == 0 or len(values) == 1:
        assert bound == pytest.approx(values[0], abs=1e-12)
    if room == 1 and bound < float(instance.full_information()) - 1e-9:
        assert bound >= max(values) - 1e-12
