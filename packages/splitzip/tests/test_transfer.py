"""The closed forms against the paper's figures and against each other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sprigs_splitzip import (
    AdaptivePolicy,
    Codec,
    CodecProfile,
    LinkProfile,
    SplitZipError,
    breakeven_bandwidth,
    measure_codec,
    pipelined_speedup,
    serial_speedup,
    simulate,
    transfer_time,
)
from sprigs_splitzip.samples import shipped_bank, shipped_cache
from sprigs_splitzip.transfer import compare_modes

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


times = st.lists(st.floats(0, 10), min_size=1, max_size=12)


@given(a=st.floats(0, 5), b=st.floats(0, 5), c=st.floats(0, 5), frames=st.integers(1, 30))
def test_simulator_equals_the_closed_form_for_equal_frames(a, b, c, frames):
    total = simulate([a] * frames, [b] * frames, [c] * frames).total
    assert total == pytest.approx(a + b + c + (frames - 1) * max(a, b, c))


@given(costs=times, which=st.integers(0, 3), more=st.floats(0, 5), data=st.data())
def test_simulator_bounds_and_monotony(costs, which, more, data):
    n = len(costs)
    stages = [costs, *(data.draw(st.lists(st.floats(0, 10), min_size=n, max_size=n)) for _ in range(3))]
    line = simulate(*stages)
    a, b, c, ready = map(np.array, stages)
    assert line.total <= ready.max() + (a + b + c).sum() + 1e-9, "no slower than one after another"
    assert line.total >= max(a.sum(), b.sum(), c.sum()) - 1e-9, "no stage does two things at once"
    assert (line.decoded >= line.sent).all()
    assert (line.sent >= line.encoded).all()
    slower = [list(stage) for stage in stages]
    slower[which][data.draw(st.integers(0, n - 1))] += more
    assert simulate(*slower).total >= line.total - 1e-9


def test_many_small_frames_approach_the_limit_and_one_frame_is_serial():
    link, codec = LinkProfile(1e9), CodecProfile(1.33, 5e9, 8e9)
    raw = transfer_time(1 << 30, link)
    assert raw == pytest.approx((1 << 30) / 1e9)
    fine = transfer_time(1 << 30, link, codec, frame_bytes=1 << 16)
    assert raw / fine == pytest.approx(pipelined_speedup(1e9, 1.33, 5e9, 8e9), rel=1e-3)
    one = transfer_time(1 << 30, link, codec, frame_bytes=1 << 30)
    assert raw / one == pytest.approx(serial_speedup(1e9, 1.33, 5e9, 8e9))


def test_latency_is_paid_once():
    slow = LinkProfile(1e9, latency=0.25)
    assert transfer_time(10**8, slow) == pytest.approx(0.35)


@pytest.mark.parametrize(
    ("text", "bandwidth"),
    [("25GB/s", 25e9), ("400Gb/s", 50e9), ("400 Gbps", 50e9), ("1.5 MB/s", 1.5e6), ("100B/s", 100), ("8kb/s", 1000)],
)
def test_links_in_words(text, bandwidth):
    assert LinkProfile.parse(text).bandwidth == pytest.approx(bandwidth)


@pytest.mark.parametrize("text", ["", "fast", "25", "25GB", "GB/s", "-1GB/s", "0GB/s", "1XB/s"])
def test_links_that_are_none(text):
    with pytest.raises(SplitZipError, match="25GB/s"):
        LinkProfile.parse(text)


def test_policy_follows_the_link_with_hysteresis():
    codecs = {"4 bits": CodecProfile(1.33, 5e9, 8e9), "3 bits": CodecProfile(1.375, 2e9, 3e9)}
    policy = AdaptivePolicy(codecs, LinkProfile(0.1e9), decay=0.0)
    assert policy.mode == "3 bits"
    policy.observe(4_000_000, 0.001)  # 4 GB/s: 3 bits would encode too slowly
    assert policy.mode == "4 bits"
    policy.observe(100_000_000, 0.001)  # 100 GB/s
    assert policy.mode == "raw"
    policy.observe(5_100_000, 0.001)  # 5.1 GB/s: raw 0.196, 4 bits 0.2 ns a byte
    assert policy.mode == "raw"
    policy.observe(4_950_000, 0.001)  # 4 bits gains 1 %: not worth a change
    assert policy.mode == "raw"
    policy.observe(4_000_000, 0.001)
    assert policy.mode == "4 bits"
    policy.observe(100_000, 0.001)  # 0.1 GB/s: 3 bits gains 3.4 %
    assert policy.mode == "4 bits"


def test_policy_averages_observations():
    policy = AdaptivePolicy({}, LinkProfile(1e9), decay=0.5)
    policy.observe(3_000_000_000, 1.0)
    assert policy.bandwidth == pytest.approx(2e9)


def test_measured_profile_is_consistent_with_the_frame():
    x = shipped_cache()
    codec = Codec(shipped_bank(4)["default"])
    profile = measure_codec(x, codec, dtype="bf16", rounds=2)
    # The flat array has a header of 128 bytes, the cache's five dimensions one of 192.
    assert profile.ratio == pytest.approx(codec.encode(x.reshape(-1), dtype="bf16").ratio)
    assert 1e7 < profile.encode_rate < 1e12
    assert 1e7 < profile.decode_rate < 1e12


def test_modes_compared():
    codecs = {"4 bits": CodecProfile(1.33, 5e9, 8e9)}
    rows = compare_modes(1 << 30, [LinkProfile(0.1e9), LinkProfile(3e9), LinkProfile(100e9)], codecs)
    assert [row["answer"] for row in rows] == ["compress", "compress, overlapped", "send raw"]
    assert rows[0]["breakeven"] == pytest.approx(breakeven_bandwidth(1.33, 5e9, 8e9))


def test_timeline_picture(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "timeline.png"
    simulate([1, 1, 1], [2, 2, 2], [0.5, 0.5, 0.5]).plot(path)
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "make",
    [
        lambda: simulate([1, 2], [1], [1]),
        lambda: simulate([-1], [1], [1]),
        lambda: simulate([float("nan")], [1], [1]),
        lambda: simulate([[1]], [[1]], [[1]]),
        lambda: LinkProfile(0),
        lambda: LinkProfile(1, -1),
        lambda: CodecProfile(1.3, -1, 1),
        lambda: transfer_time(0, LinkProfile(1)),
        lambda: AdaptivePolicy({"raw": CodecProfile(1, 1, 1)}, LinkProfile(1)),
        lambda: AdaptivePolicy({}, LinkProfile(1), decay=1),
        lambda: AdaptivePolicy({}, LinkProfile(1)).observe(0, 1),
    ],
)
def test_bad_arguments(make):
    with pytest.raises(SplitZipError):
        make()
