import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sprigs.testing import checks
from sprigs_sprigling import running_mean
from sprigs_sprigling.reference import running_mean as plain

numbers = st.floats(-1e6, 1e6)


@given(st.lists(numbers, max_size=200))
def test_equals_the_plain_version(values):
    np.testing.assert_allclose(running_mean(values), plain(values), rtol=1e-9, atol=1e-9)


@given(st.lists(numbers, min_size=1, max_size=200))
def test_ends_at_the_mean_and_stays_within_the_range(values):
    means = running_mean(values)
    assert means[-1] == pytest.approx(np.mean(values), abs=1e-6)
    assert min(values) - 1e-6 <= means.min()
    assert means.max() <= max(values) + 1e-6


@pytest.mark.parametrize("bad", [[[1.0, 2.0]], [np.nan], [np.inf]])
def test_bad_input(bad):
    with pytest.raises(ValueError, match="expected"):
        running_mean(bad)


@pytest.mark.parametrize(("title", "check"), checks("sprigling"))
def test_contract(title, check):
    check()
