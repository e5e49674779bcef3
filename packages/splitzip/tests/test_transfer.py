"""The closed forms against the paper's figures and against each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sprigs_splitzip import SplitZipError, breakeven_bandwidth, pipelined_speedup, serial_speedup

PAPER = (1.324, 613.3, 2181.8)  # ratio, encode and decode GB/s

positive = st.floats(1e-3, 1e4)
ratios = st.floats(1.001, 10)


def test_papers_break_even():
    assert breakeven_bandwidth(*PAPER) == pytest.approx(117.2, abs=0.1)


@pytest.mark.parametrize(("bandwidth", "speedup"), [(12.5, 1.280), (50, 1.163), (100, 1.037), (200, 0.852)])
def test_papers_serial_speedup(bandwidth, speedup):
    assert serial_speedup(bandwidth, *PAPER) == pytest.approx(speedup, abs=1e-3)
    assert pipelined_speedup(bandwidth, *PAPER) == pytest.approx(1.324, abs=1e-9)


@given(ratio=ratios, encode=positive, decode=positive)
def test_at_the_break_even_nothing_is_gained(ratio, encode, decode):
    bandwidth = breakeven_bandwidth(ratio, encode, decode)
    assert serial_speedup(bandwidth, ratio, encode, decode) == pytest.approx(1)


@given(bandwidth=positive, ratio=ratios, encode=positive, decode=positive)
def test_overlap_never_hurts_and_nothing_beats_the_ratio(bandwidth, ratio, encode, decode):
    serial = serial_speedup(bandwidth, ratio, encode, decode)
    overlapped = pipelined_speedup(bandwidth, ratio, encode, decode)
    assert serial <= overlapped * (1 + 1e-12)
    assert overlapped <= ratio * (1 + 1e-12)
    assert serial_speedup(2 * bandwidth, ratio, encode, decode) <= serial


def test_no_gain_no_break_even():
    assert breakeven_bandwidth(0.9, 1, 1) == 0
    with pytest.raises(SplitZipError, match="encode_rate"):
        breakeven_bandwidth(1.3, 0, 1)
    with pytest.raises(SplitZipError, match="bandwidth"):
        serial_speedup(float("nan"), 1.3, 1, 1)
