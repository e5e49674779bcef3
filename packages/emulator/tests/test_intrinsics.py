"""Intrinsics against their definitions in Python."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

U32 = 0xFFFFFFFF
WORDS = st.one_of(st.integers(0, U32), st.sampled_from([0, 1, 31, 32, 33, 0x80000000, U32, 0x7FFFFFFF, 0x3210, 0xBA98]))
SETTINGS = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def signed(x):
    return x - (1 << 32) if x >> 31 else x


def byte_perm(x, y, selector):
    source = (y << 32 | x).to_bytes(8, "little")
    result = []
    for i in range(4):
        control = selector >> 4 * i & 15
        byte = source[control & 7]
        result.append((255 if byte & 128 else 0) if control & 8 else byte)
    return int.from_bytes(bytes(result), "little")


def expected_bits(x, y, z):
    both = y << 32 | x
    by = [(x >> 8 * i & 255, y >> 8 * i & 255) for i in range(4)]
    return [
        byte_perm(x, y, z),
        x.bit_count(),
        (x & -x).bit_length(),
        32 - x.bit_length(),
        int(f"{x:032b}"[::-1], 2),
        (both << (z & 31)) >> 32 & U32,
        both >> (z & 31) & U32,
        (both << min(z, 32)) >> 32 & U32,
        both >> min(z, 32) & U32,
        x * y >> 32,
        signed(x) * signed(y) >> 32 & U32,
        (x & 0xFFFFFF) * (y & 0xFFFFFF) & U32,
        (sum(a * b for a, b in by) + z) & U32,
        sum(((a + b) & 255) << 8 * i for i, (a, b) in enumerate(by)),
        sum((255 if a > b else 0) << 8 * i for i, (a, b) in enumerate(by)),
        x,
    ]


@SETTINGS
@given(st.lists(st.tuples(WORDS, WORDS, WORDS), min_size=1, max_size=40))
def test_bits(kernels, words):
    a, b, c = (np.array(column, np.uint32) for column in zip(*words, strict=True))
    out = np.zeros((len(words), 16), np.uint32)
    kernels("bits.cu")["bits"](2, 32, (a, b, c, out, len(words)))
    np.testing.assert_array_equal(out, [expected_bits(*word) for word in words])


@SETTINGS
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=32))
def test_conversions_clamp(kernels, values):
    x = np.array(values, np.float32)
    i32, u32, i64 = np.zeros((x.size, 4), np.int32), np.zeros(x.size, np.uint32), np.zeros(x.size, np.int64)
    kernels("bits.cu")["conversions"](1, 32, (x, i32, u32, i64, x.size))
    wide = x.astype(np.float64)
    for column, rounding in enumerate((np.rint, np.trunc, np.floor, np.ceil)):
        np.testing.assert_array_equal(i32[:, column], np.clip(rounding(wide), -(2**31), 2**31 - 1).astype(np.int32))
    np.testing.assert_array_equal(u32, np.clip(np.rint(wide), 0, 2**32 - 1).astype(np.uint32))
    inside = np.abs(wide) < 2.0**62
    np.testing.assert_array_equal(i64[inside], np.rint(wide[inside]).astype(np.int64))
    assert (i64[wide >= 2.0**63] == 2**63 - 1).all()
    assert (i64[wide <= -(2.0**63)] == -(2**63)).all()


def test_conversion_of_nan_is_the_devices(kernels):
    x = np.full(1, np.nan, np.float32)
    i32, u32, i64 = np.ones((1, 4), np.int32), np.ones(1, np.uint32), np.ones(1, np.int64)
    kernels("bits.cu")["conversions"](1, 32, (x, i32, u32, i64, 1))
    assert i32.tolist() == [[0, 0, 0, 0]]
    assert u32[0] == 0
    assert i64[0] == -(2**63)


@pytest.mark.parametrize("checks", ["all", "fast"])
@pytest.mark.parametrize("width", [2, 8, 32])
@pytest.mark.parametrize("parameter", [0, 1, 3, 16, 31])
def test_shuffles(kernels, parameter, width, checks):
    x = np.arange(32, dtype=np.int32) * 7 + 5
    out = np.zeros((5, 32), np.int32)
    kernels("bits.cu")["shuffles"](1, 32, (x, out, parameter, width), seed=range(3), checks=checks)
    lane = np.arange(32)
    start = lane // width * width
    indexed = start + parameter % width
    up = np.where(lane - parameter >= start, lane - parameter, lane)
    down = np.where(lane + parameter < start + width, lane + parameter, lane)
    # PTX ISA 9.7.9.6, mode bfly: a source beyond the segment's last lane is not read, one before its first is.
    xor = np.where((lane ^ parameter) < start + width, lane ^ parameter, lane)
    np.testing.assert_array_equal(out, x[np.stack([indexed, up, down, xor, indexed])])


@pytest.mark.parametrize("checks", ["all", "fast"])
def test_votes_and_reductions_by_masks(kernels, checks):
    x = np.array([3, -1, 0, 7, 2, 2, 3, 50] * 4, np.int32)
    out = np.zeros((13, 32), np.uint32)
    kernels("bits.cu")["votes"](1, 32, (x, out), seed=range(5), checks=checks)
    for lane in range(32):
        group = [i for i in range(32) if (i % 3 == 0) == (lane % 3 == 0)]
        values = [int(x[i]) for i in group]
        raw = [v & U32 for v in values]
        expected = [
            sum(1 << i for i in group if x[i] > 0),
            any(v > 2 for v in values),
            all(v > -2 for v in values),
            sum(1 << i for i in group if x[i] == x[lane]),
            sum(1 << i for i in group),
            1,
            sum(values) & U32,
            min(values) & U32,
            max(values) & U32,
            np.bitwise_and.reduce(raw),
            np.bitwise_or.reduce(raw),
            np.bitwise_xor.reduce(raw),
            max(raw),
        ]
        np.testing.assert_array_equal(out[:, lane], expected)


@pytest.mark.parametrize("values", [[1, 0, 1, 1] * 17, [1] * 68, [0] * 68])
def test_counting_barriers(kernels, values):
    x = np.array(values, np.int32)
    out = np.zeros((3, x.size), np.int32)
    kernels("bits.cu")["barriers"](2, x.size, (x, np.zeros_like(out)), checks="fast")
    kernels("bits.cu")["barriers"](1, x.size, (x, out), seed=range(3))
    np.testing.assert_array_equal(out, [[x.sum()] * x.size, [x.all()] * x.size, [x.any()] * x.size])


@pytest.mark.parametrize("checks", ["all", "fast"])
def test_atomics(kernels, checks):
    n = 100
    i32 = np.array([0, 0, 5, -5], np.int32)
    u32 = np.array([U32, 0, 0, 0, 0, 0], np.uint32)
    u64 = np.zeros(5, np.uint64)
    f32, f64 = np.zeros(1, np.float32), np.zeros(1)
    kernels("bits.cu")["atomics"](1, n, (i32, u32, u64, f32, f64), seed=4, checks=checks)
    ranks = np.arange(n)
    assert i32.tolist() == [ranks.sum(), -ranks.sum(), -(n - 1), n - 1]
    parity = np.bitwise_xor.reduce(1 << (ranks % 32))
    counted = [0, U32, parity, n % 10, (-n) % 10]
    assert u32[:5].tolist() == counted
    assert u64[0] == n << 33
    assert u64[1] == n - 1
    assert (f32[0], f64[0]) == (n / 2, n / 4)
    # Each exchange hands on what the one before it stored, and the last stays.
    assert int(u64[3]) + int(u32[5]) == (ranks + 1).sum()
    value = 0
    for _ in range(n):
        value = (value * 3 + 1) % 2**64
    assert u64[4] == value
