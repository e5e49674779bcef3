"""Instances and mechanisms, against hand results, identities and the plain loops of `reference`."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sprigs_sponsored import (
    AbandonmentWarning,
    FullInformation,
    Instance,
    JointVCG,
    Modular,
    Null,
    Redistribution,
    SponsoredError,
    incentive_gap,
    random_instance,
    reference,
)
from sprigs_sponsored.instance import first_max

seeds = st.integers(0, 2**32 - 1)


def hand(**changes):
    kernel = [[[1, 0], [1, 0]], [[1, 0], [0, 1]]]
    return Instance([0.5, 0.5], kernel, [[10, 0], [0, 8], [6, 6]], **changes)


def any_instance(seed, **options):
    rng = np.random.default_rng(seed)
    m, questions, signals, n = rng.integers(1, 6), rng.integers(0, 5), rng.integers(1, 5), rng.integers(1, 7)
    return random_instance(rng, int(m), int(questions), int(signals), int(n), **options)


def test_the_hand_instance():
    instance = hand()
    assert instance.welfare().tolist() == [6, 9]
    assert instance.continuation().tolist() == [[0, 0, 1], [2, 1, 0]]
    assert instance.revenue().tolist() == [5, 6]
    outcome = JointVCG().run(instance)
    assert (outcome.question, outcome.winners.ravel().tolist()) == (1, [0, 1])
    assert outcome.payments.tolist() == [3, 3, 0]
    assert outcome.utilities.tolist() == [2, 1, 0]
    assert (outcome.welfare, outcome.revenue) == (9, 6)
    assert outcome.detail["pivot"].tolist() == [0, 0, 0]
    modular = Modular().run(instance)
    assert (modular.question, modular.detail["sponsor"]) == (1, 0)
    assert modular.detail["stage1_payment"].tolist() == [1, 0, 0]
    assert instance.full_information() == 9


@given(seeds)
def test_identities(seed):
    instance = any_instance(seed, abandonment=0.5, question_utility=0.3)
    utility = np.asarray(instance.question_utility)
    total = utility + instance.continuation().sum(axis=1) + instance.revenue()
    np.testing.assert_allclose(instance.welfare(), total, atol=1e-12)
    for question in range(instance.n_questions):
        welfare, continuation, revenue = reference.stage(instance.prior, instance.kernel, instance.values, question)
        assert instance.welfare()[question] == pytest.approx(welfare + utility[question], abs=1e-12)
        np.testing.assert_allclose(instance.continuation()[question], continuation, atol=1e-12)
        assert instance.revenue()[question] == pytest.approx(revenue, abs=1e-12)
    assert instance.welfare().max() <= instance.full_information() + 1e-12


@given(seeds)
def test_joint_vcg_is_clarkes(seed):
    """One pass against n + 1 problems solved from scratch."""
    instance = any_instance(seed, abandonment=0.5, question_utility=0.3)
    outcome = JointVCG().run(instance)
    question, payments, utilities = reference.joint_vcg(
        instance.prior, instance.kernel, instance.values, instance.question_utility
    )
    assert outcome.question == question
    np.testing.assert_allclose(outcome.payments, payments, atol=1e-10)
    np.testing.assert_allclose(outcome.utilities, utilities, atol=1e-10)
    assert outcome.utilities.min() >= -1e-12
    assert outcome.payments.min() >= -1e-12
    assert outcome.welfare == pytest.approx(instance.welfare().max(), abs=1e-12)
    total = outcome.surplus + outcome.revenue + np.asarray(instance.question_utility)[question]
    assert outcome.welfare == pytest.approx(total, abs=1e-10)


@given(seeds, st.integers(2, 4))
def test_joint_vcg_with_several_slots_and_a_reserve(seed, slots):
    rng = np.random.default_rng(seed)
    instance = any_instance(seed, slots=slots, abandonment=0.3).replace(reserve=float(rng.random()))
    outcome = JointVCG("realised").run(instance)
    for i in range(instance.n_advertisers):
        # Clarke: what the others could have had without i, less what they have.
        alone = instance.replace(values=np.where(np.arange(instance.n_advertisers)[:, None] == i, 0, instance.values))
        own = outcome.utilities[i] + outcome.payments[i]
        cost = sum(
            instance.reserve * instance.ctr[j] * instance.signal_probability[outcome.question, s]
            for s, row in enumerate(outcome.winners)
            for j, who in enumerate(row)
            if who == i
        )
        others = outcome.welfare - (own - cost)
        assert outcome.payments[i] == pytest.approx(alone.welfare().max() - others + cost, abs=1e-10)
    # What is charged ad by ad comes to the same in expectation.
    price = outcome.detail["price_when_shown"]
    mass = instance.signal_probability[outcome.question]
    charged = outcome.detail["pivot"].copy()
    for s, j in np.argwhere(outcome.winners >= 0):
        charged[outcome.winners[s, j]] += mass[s] * price[s, j]
    np.testing.assert_allclose(charged, outcome.payments, atol=1e-10)


@given(seeds, st.sampled_from([0.0, 0.4, 1.0]))
def test_single_winner_against_the_plain_version(seed, rho):
    instance = any_instance(seed, abandonment=0.5)
    outcome = Modular(redistribution=Redistribution(rho)).run(instance)
    question, sponsor, price, utilities = reference.single_winner(instance.prior, instance.kernel, instance.values, rho)
    assert (outcome.question, outcome.detail["sponsor"]) == (question, sponsor)
    assert outcome.detail["stage1_payment"].sum() == pytest.approx(price, abs=1e-10)
    np.testing.assert_allclose(outcome.utilities, utilities, atol=1e-10)


@given(seeds, st.sampled_from(["second_price", "first_price", "all_pay", "gsp", "vcg", "gsp_equilibrium"]))
def test_money_is_conserved(seed, stage2):
    """Welfare goes to advertisers, to the platform, and to the question; whatever the rules."""
    instance = any_instance(seed, abandonment=0.3, question_utility=0.2)
    rules = [Modular(price1=p, stage2=stage2) for p in ("second_price", "first_price", "all_pay")]
    rules += [
        Modular(s, stage2=stage2, redistribution=Redistribution(0.5, to))
        for s, to in (("public_vcg", "equal"), ("public_first_price", "proportional"), ("single_winner", "sponsor"))
    ]
    rules += [Modular("public_vcg", stage2=stage2, redistribution=Redistribution(0.7, "credit"))]
    bids = np.random.default_rng(seed).random((instance.n_advertisers, instance.n_questions))
    for rule in rules:
        for reports in (None, bids):
            outcome = rule.run(instance, reports)
            value = outcome.utilities + outcome.payments
            utility = np.asarray(instance.question_utility)[outcome.question]
            assert outcome.welfare == pytest.approx(outcome.surplus + outcome.revenue + utility, abs=1e-10), rule.name
            assert outcome.payments.sum() == pytest.approx(outcome.revenue, abs=1e-10)
            assert value.sum() + utility == pytest.approx(outcome.welfare, abs=1e-10)


@given(seeds)
def test_value_of_information(seed):
    """Where nobody leaves, asking never hurts, and gains at most min(n, m)-fold; merging signals never helps."""
    instance = any_instance(seed)
    welfare = instance.welfare()
    assert (welfare >= welfare[0] - 1e-12).all()
    bound = min(instance.n_advertisers, instance.n_intents)
    assert (welfare.max() <= bound * welfare + 1e-12).all()
    kernel = instance.kernel
    if kernel.shape[2] > 1:
        merged = np.concatenate([kernel[..., :-2], kernel[..., -2:].sum(axis=2, keepdims=True)], axis=2)
        assert (instance.replace(kernel=merged).welfare() <= welfare + 1e-12).all()


@given(seeds, st.floats(0.01, 100))
def test_relabelling_and_scaling(seed, factor):
    instance = any_instance(seed, abandonment=0.4)
    rng = np.random.default_rng(seed)
    intents, signals = rng.permutation(instance.n_intents), rng.permutation(instance.kernel.shape[2])
    advertisers = rng.permutation(instance.n_advertisers)
    other = Instance(
        instance.prior[intents], instance.kernel[:, intents][:, :, signals], instance.values[advertisers][:, intents]
    )
    np.testing.assert_allclose(other.welfare(), instance.welfare(), atol=1e-12)
    np.testing.assert_allclose(other.continuation(), instance.continuation()[:, advertisers], atol=1e-12)
    scaled = instance.replace(values=instance.values * factor)
    np.testing.assert_allclose(scaled.welfare(), factor * instance.welfare(), rtol=1e-12, atol=1e-12)
    a, b = JointVCG().run(instance), JointVCG().run(scaled)
    np.testing.assert_allclose(b.payments, factor * a.payments, rtol=1e-9, atol=1e-9)


@given(seeds)
def test_credit_at_one_asks_what_the_joint_mechanism_does(seed):
    instance = any_instance(seed, abandonment=0.4, question_utility=0.3)
    credit = Modular("public_vcg", redistribution=Redistribution(1, "credit")).run(instance)
    joint = JointVCG().run(instance)
    assert credit.question == joint.question
    np.testing.assert_allclose(credit.payments, joint.payments, atol=1e-10)


@given(seeds)
def test_sponsor_rebate_at_one_is_within_n_of_the_best(seed):
    instance = any_instance(seed, abandonment=0.6)
    outcome = Modular(redistribution=Redistribution(1, "sponsor")).run(instance)
    assert outcome.welfare >= instance.welfare().max() / instance.n_advertisers - 1e-12


@settings(deadline=None)
@given(seeds, st.integers(2, 4))
def test_gsp_and_vcg(seed, slots):
    """Truthful GSP earns no less than VCG; its lowest envy-free equilibrium pays the same (Edelman and others 2007)."""
    instance = any_instance(seed, slots=slots)
    gsp, vcg, lowest = (instance.ad_stage(rule) for rule in ("gsp", "vcg", "gsp_equilibrium"))
    assert (gsp.revenue >= vcg.revenue - 1e-12).all()
    np.testing.assert_array_equal(lowest.prices, vcg.prices)
    # Its bids, b_k = price of slot k-1 / ctr of k-1, leave nobody wanting another slot at that slot's price.
    ctr = np.asarray(instance.ctr)
    for question, signal in np.ndindex(instance.n_questions, instance.kernel.shape[2]):
        winners = lowest.winners[question, signal]
        for j, who in enumerate(winners):
            if who < 0:
                continue
            value = instance.expected[question, signal, who]
            own = ctr[j] * value - lowest.prices[question, signal, j]
            envied = ctr * value - lowest.prices[question, signal]
            assert (own >= envied[winners >= 0] - 1e-10).all()
    one = instance.replace(ctr=(1.0,))
    np.testing.assert_allclose(one.ad_stage("vcg").prices, one.ad_stage("second_price").prices)


def test_all_pay_equilibrium():
    """Against its closed form: bids uniform on [0, b], the lower bidder in with probability b / a."""
    stage = Instance([1.0], [[[1.0]]], [[3.0], [2.0]]).ad_stage("all_pay")
    assert stage.continuation[0].tolist() == [1, 0]
    assert stage.payments[0] == pytest.approx([1.0, 2 / 3])
    rng = np.random.default_rng(0)
    high, low = rng.uniform(0, 2, 400_000), rng.uniform(0, 2, 400_000) * (rng.random(400_000) < 2 / 3)
    assert stage.welfare[0] == pytest.approx(np.where(high > low, 3, 2).mean(), abs=0.005)
    assert stage.payments[0] == pytest.approx([high.mean(), low.mean()], abs=0.005)


@pytest.mark.parametrize("pay", ["expected", "realised"])
def test_no_deviation_gains_anything(pay):
    """Truthful: 400 instances, 80 random reports each besides scaled ones and an ascent, and a grid."""
    worst = 0.0
    for seed in range(400):
        instance = random_instance(seed, abandonment=0.3 if seed % 2 else 0.0)
        worst = max(worst, incentive_gap(JointVCG(pay), instance, seed % 4, deviations=80 if pay == "expected" else 5))
        if pay == "expected" and seed < 20:
            truthful = JointVCG().run(instance).utilities[0]
            for scale in np.ndindex(*[4] * 4):
                reports = instance.values.copy()
                reports[0] = np.array(scale) / 1.5
                worst = max(worst, JointVCG().run(instance, reports).utilities[0] - truthful)
    assert worst <= 1e-12


def test_an_untruthful_mechanism_is_found_out():
    """The tool that finds no gain above does find one where there is one: pay-your-bid for a question."""
    gaps = [incentive_gap(Modular("public_first_price"), random_instance(s), 0) for s in range(10)]
    assert max(gaps) > 0.01


def test_bounds_and_nulls():
    instance = hand()
    assert Null().run(instance).welfare == 6
    assert Null().run(instance).payments.tolist() == [0, 0, 5]
    full = FullInformation().run(instance)
    assert (full.welfare, full.question) == (9, -1)
    nobody = hand().replace(values=np.zeros((3, 2)))
    for mechanism in (Null(), Modular(), Modular("public_vcg"), JointVCG(), FullInformation()):
        outcome = mechanism.run(nobody)
        assert (outcome.welfare, outcome.revenue, outcome.surplus) == (0, 0, 0)
        assert (outcome.winners == -1).all()
    assert Modular().run(nobody).question == 0


def test_ties_go_to_the_lowest_index():
    assert first_max(np.array([0.1 + 0.2, 0.3, 0.3])) == 0
    assert first_max(np.array([0.3, 0.1 + 0.2])) == 0
    twice = Instance([1.0], np.ones((3, 1, 1)), [[1.0], [1.0]])
    assert JointVCG().run(twice).question == 0
    assert JointVCG().run(twice).winners.ravel().tolist() == [0]


def test_probability_zero_signals_cost_nothing():
    kernel = np.zeros((2, 2, 5))
    kernel[..., 0] = 1
    outcome = JointVCG("realised").run(Instance([0.5, 0.5], kernel, [[1, 2], [2, 1]]))
    assert np.isfinite(outcome.detail["price_when_shown"]).all()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prior": [0.5, 0.6]}, "sum to 1"),
        ({"prior": [1.5, -0.5]}, "probabilities"),
        ({"prior": [np.nan, 1]}, "NaN"),
        ({"prior": "x"}, "numbers"),
        ({"prior": [[0.5, 0.5]]}, "shape"),
        ({"kernel": np.full((2, 2, 2), 0.6)}, "at most"),
        ({"kernel": np.full((2, 2, 2), -0.1)}, "probabilities"),
        ({"kernel": np.ones((2, 3, 1))}, "kernel has shape"),
        ({"values": [[1, -1]]}, "not negative"),
        ({"values": [[1, 2, 3]]}, "values has shape"),
        ({"question_utility": [0]}, "question_utility"),
        ({"ctr": [0.5, 1]}, "best first"),
        ({"ctr": []}, "ctr"),
        ({"reserve": -1}, "reserve"),
    ],
)
def test_bad_instances(changes, said):
    own = {"prior": [0.5, 0.5], "kernel": np.full((2, 2, 2), 0.5), "values": [[1, 2]]}
    with pytest.raises(SponsoredError, match=said):
        Instance(**{**own, **changes})


def test_bad_mechanisms_and_reports():
    for make in (
        lambda: JointVCG("later"),
        lambda: Modular("lottery"),
        lambda: Modular(price1="third_price"),
        lambda: Modular("public_vcg", redistribution=Redistribution(1, "sponsor")),
        lambda: Modular(redistribution=Redistribution(1, "credit")),
        lambda: Redistribution(1.5),
        lambda: Redistribution(0.5, "me"),
        lambda: hand().ad_stage("lottery"),
        lambda: hand(ctr=(1, 0.5)).ad_stage("second_price"),
        lambda: hand(reserve=1).ad_stage("all_pay"),
        lambda: JointVCG().run(hand(), np.ones((2, 2))),
        lambda: JointVCG().run(hand(), -np.ones((3, 2))),
        lambda: Null().run(hand(), np.full((3, 2), np.nan)),
        lambda: Modular().run(hand(), np.ones((3, 3))),
        lambda: Modular().run(hand(), -np.ones((3, 2))),
    ):
        with pytest.raises(SponsoredError):
            make()


def test_instances_are_not_changed_and_warn():
    values = np.array([[1.0, 2.0]])
    instance = Instance([0.5, 0.5], np.full((1, 2, 1), 0.9), values)
    values[0, 0] = 9
    assert instance.values[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        instance.values[0, 0] = 3
    assert instance.has_abandonment
    with pytest.warns(AbandonmentWarning, match="lose sessions"):
        instance.warn_of_abandonment()
