"""Distances against closed forms and libraries."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import wasserstein_distance

from sprigs_splineflow import SplineFlowError
from sprigs_splineflow.metrics import (
    energy_distance,
    field_error,
    mmd,
    rollout_error,
    sliced_wasserstein,
    wasserstein,
)

numbers = st.floats(-100, 100)


@given(st.lists(numbers, min_size=1, max_size=20), st.lists(numbers, min_size=1, max_size=20))
@settings(max_examples=30, deadline=None)
def test_w1_in_one_dimension_equals_scipy(a, b):
    x, y = np.array(a)[:, None], np.array(b)[:, None]
    assert wasserstein(x, y) == pytest.approx(wasserstein_distance(a, b), abs=1e-9)


def test_wasserstein_of_a_shift():
    x = np.random.default_rng(0).normal(size=(50, 3))
    shift = np.array([1.0, -2.0, 2.0])
    for p in (1, 2):
        assert wasserstein(x, torch.tensor(x + shift), p) == pytest.approx(3.0, rel=1e-9)
    # A projection of a shift is the shift's projection: the mean square over directions is |s|^2 / d.
    assert sliced_wasserstein(x, x + shift, 20_000, 0) == pytest.approx(np.sqrt(9 / 3), rel=0.02)


@given(st.lists(st.integers(1, 4), min_size=6, max_size=6), st.integers(0, 100))
@settings(max_examples=20, deadline=None)
def test_integer_weights_are_repeated_points(times, seed):
    x, y = np.random.default_rng(seed).normal(size=(2, 6, 2))
    for p in (1, 2):
        assert wasserstein(x, y, p, a=times) == pytest.approx(wasserstein(np.repeat(x, times, axis=0), y, p), rel=1e-9)
        assert wasserstein(y, x, p, b=times) == pytest.approx(wasserstein(x, y, p, a=times), rel=1e-9)


@given(st.floats(-1e8, 1e8))
@settings(max_examples=20, deadline=None)
def test_distances_do_not_depend_on_the_origin(offset):
    """Squared distances by |x|^2 + |y|^2 - 2xy would be lost to cancellation here."""
    x, y = np.random.default_rng(0).integers(-50, 50, (2, 30, 2)) / 16
    x, y = x + np.round(offset), y + np.round(offset)
    assert wasserstein(x, x[::-1]) == 0
    for distance in (wasserstein, lambda x, y: wasserstein(x, y, 2), energy_distance, mmd):
        assert distance(x, y) == pytest.approx(distance(x - np.round(offset), y - np.round(offset)), rel=1e-6)


def test_mmd_of_the_same_distribution_is_near_zero_and_of_others_is_not():
    rng = np.random.default_rng(0)
    same = [mmd(*rng.normal(size=(2, 200, 2))) for _ in range(20)]
    assert abs(np.mean(same)) < 4 * np.std(same) / np.sqrt(20)
    x, y = rng.normal(size=(200, 2)), rng.normal(size=(200, 2)) + 1
    assert mmd(x, y) > 10 * np.std(same)


def test_mmd_by_hand():
    x, y = np.array([[0.0], [1.0]]), np.array([[2.0], [4.0]])
    expected = 2 * np.exp(-1) / 2 + 2 * np.exp(-4) / 2 - 2 * np.mean(np.exp([-4.0, -16.0, -1.0, -9.0]))
    assert mmd(x, y, (1.0,)) == pytest.approx(expected, rel=1e-12)


@given(a=numbers, b=numbers)
def test_energy_distance_of_two_points(a, b):
    assert energy_distance([[a]], [[b]]) == pytest.approx(2 * abs(a - b), abs=1e-9)


def test_relative_errors():
    v = np.array([[3.0, 4.0], [0.0, 0.0]])
    assert field_error(v * 1.1, v) == pytest.approx(0.01)
    true = np.random.default_rng(0).normal(size=(4, 5, 2)) * [1, 1000]
    assert rollout_error(true + true.reshape(-1, 2).std(axis=0), true) == pytest.approx(1.0)
    # A constant that rounding makes uneven has no spread to divide by.
    assert rollout_error(np.full((7, 3, 1), 0.1) + 1e-3, np.full((7, 3, 1), 0.1)) == pytest.approx(1e-6)
    needs_gradient = torch.tensor(v, requires_grad=True)
    assert field_error(needs_gradient * 1.1, needs_gradient) == pytest.approx(0.01)


def test_bad_input():
    good = np.zeros((3, 2))
    for call in (
        lambda: wasserstein(good, np.zeros((3, 1))),
        lambda: wasserstein(good, np.zeros((0, 2))),
        lambda: wasserstein(good, good, 3),
        lambda: wasserstein(good, good, a=[1.0, 1.0]),
        lambda: wasserstein(good, good, b=[1.0, 1.0, -1.0]),
        lambda: wasserstein(good, good, b=[0.0, 0.0, 0.0]),
        lambda: sliced_wasserstein(good, good, 0),
        lambda: mmd(good, good, ()),
        lambda: mmd(good, good, (1.0, 0.0)),
        lambda: energy_distance(good, np.full((3, 2), np.nan)),
        lambda: mmd(good[:1], good),
        lambda: field_error(good, good),
        lambda: field_error(good, np.zeros((2, 2))),
        lambda: rollout_error(good, np.full((3, 2), np.inf)),
    ):
        with pytest.raises(SplineFlowError):
            call()
