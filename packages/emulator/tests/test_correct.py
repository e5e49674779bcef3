"""Correct kernels equal NumPy, bit for bit, whatever the order in which their threads run."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

import sprigs_emulator as emulator

RNG = np.random.default_rng(7)
SEEDS = range(3)


@pytest.mark.parametrize("checks", ["all", "fast"])
@pytest.mark.parametrize("n", [1, 31, 256, 3000])
def test_block_reduce(kernels, n, checks):
    x = RNG.integers(-1000, 1000, n).astype(np.float32)
    y = np.zeros(3, np.float32)
    kernels("reduce.cu")["block_reduce"](3, 256, (x, y, n), seed=SEEDS, checks=checks, written_fully=["y"])
    assert y.sum() == x.sum()


@pytest.mark.parametrize("n", [1, 100, 1000])
def test_tree_reduce_in_dynamic_shared_memory(kernels, n):
    x = RNG.integers(-1000, 1000, n).astype(np.int32)
    y = np.zeros(1, np.int32)
    kernels("reduce.cu")["tree_reduce"](-(-n // 128), 128, (x, y, n), shared=4 * 128, seed=SEEDS)
    assert y[0] == x.sum()


@pytest.mark.parametrize("n", [1, 77, 128])
def test_scan_of_a_block(kernels, n):
    x = RNG.integers(-1000, 1000, n).astype(np.int32)
    y = np.zeros(n, np.int32)
    kernels("scan.cu")["scan_block"](1, 128, (x, y, n), shared=2 * 4 * 128, seed=SEEDS, written_fully=["y"])
    np.testing.assert_array_equal(y, np.cumsum(x))


@pytest.mark.parametrize("checks", ["all", "fast"])
@pytest.mark.parametrize(("interleave", "delay"), [(1, None), (8, None), (8, 0), (5, 3), (40, 17)])
def test_scan_by_decoupled_look_back(kernels, interleave, delay, checks):
    n, block = 2500, 64
    x = RNG.integers(0, 1000, n).astype(np.uint32)
    blocks = -(-n // block)
    arrays = x, np.zeros(n, np.uint32), n, np.zeros(1, np.uint32), np.zeros(blocks, np.uint64)
    launch = {"seed": 3, "interleave": interleave, "delay_block": delay, "checks": checks, "written_fully": ["y"]}
    kernels("scan.cu")["scan_look_back"](blocks, block, arrays, **launch)
    np.testing.assert_array_equal(arrays[1], np.cumsum(x, dtype=np.uint32))


@pytest.mark.parametrize("n", [1, 1000, 4096])
def test_histogram(kernels, n):
    x = RNG.integers(0, 256, n).astype(np.uint8)
    counts = np.zeros(256, np.uint32)
    kernels("integers.cu")["histogram"](3, 96, (x, counts, n), seed=SEEDS)
    np.testing.assert_array_equal(counts, np.bincount(x, minlength=256))


def test_compaction_by_ballot(kernels):
    x = RNG.integers(-5, 5, 1000).astype(np.int32)
    y, count = np.zeros_like(x), np.zeros(1, np.uint32)
    for seed in SEEDS:
        count[:] = 0
        kernels("integers.cu")["compact"](8, 128, (x, y, count, 1000), seed=seed)
        kept = x[x > 0]
        assert count[0] == kept.size
        np.testing.assert_array_equal(np.sort(y[: kept.size]), np.sort(kept))


def test_warp_aggregated_atomics(kernels):
    x = RNG.integers(0, 100, 1000).astype(np.int32)
    count, order = np.zeros(1, np.uint32), np.zeros(1000, np.uint32)
    orders = set()
    for seed in SEEDS:
        count[:] = 0
        kernels("integers.cu")["count_even"](8, 128, (x, count, order, 1000), seed=seed)
        even = np.flatnonzero(x % 2 == 0)
        np.testing.assert_array_equal(np.sort(order[: count[0]]), even)
        orders.add(order.tobytes())
    assert len(orders) > 1


def test_vector_copy_of_any_dtype(kernels):
    for dtype in (np.uint8, np.float32, np.float64):
        x = RNG.integers(0, 100, 64).astype(dtype)
        y = np.zeros_like(x)
        kernels("integers.cu")["copy_vectors"](2, 32, (x, y, x.nbytes // 16), seed=SEEDS, written_fully=["y"])
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize(("m", "n", "k"), [(16, 16, 16), (33, 20, 41)])
def test_tiled_matmul(kernels, m, n, k):
    a, b = RNG.standard_normal((m, k)).astype(np.float32), RNG.standard_normal((k, n)).astype(np.float32)
    c = np.zeros((m, n), np.float32)
    grid = -(-n // 16), -(-m // 16)
    kernels("matrices.cu", "transpose<double>")["matmul"](grid, (16, 16), (a, b, c, m, n, k), written_fully=["c"])
    expected = np.zeros((m, n), np.float32)
    for i in range(k):  # the kernel's order of additions
        expected += a[:, i : i + 1] * b[i : i + 1]
    np.testing.assert_array_equal(c, expected)


def test_transpose_with_padding(kernels):
    x = RNG.standard_normal((37, 50))
    y = np.zeros((50, 37))
    module = kernels("matrices.cu", "transpose<double>")
    module["transpose<double>"]((4, 3), (16, 16), (x, y, 37, 50), seed=SEEDS, written_fully=["y"])
    np.testing.assert_array_equal(y, x.T)


def test_three_dimensional_grid(kernels):
    x = RNG.standard_normal((6, 7, 9))
    y = np.zeros_like(x)
    kernels("matrices.cu", "transpose<double>")["laplacian"]((3, 2, 2), (3, 4, 3), (x, y, 9, 7, 6), written_fully=["y"])
    terms = [np.roll(x, shift, axis) for axis in (2, 1, 0) for shift in (1, -1)]
    expected = terms[0]
    for term in terms[1:]:
        expected = expected + term
    np.testing.assert_array_equal(y, expected - 6.0 * x)


ALL = np.arange(65536, dtype=np.uint16)


@pytest.mark.parametrize(("word", "dtype"), [("half", np.float16), ("bfloat16", ml_dtypes.bfloat16)])
class TestNarrowFloats:
    """Against NumPy's float16 and ml_dtypes' bfloat16."""

    @staticmethod
    def module(kernels):
        return kernels("narrow.cu", "arithmetic<__half>", "arithmetic<__nv_bfloat16>")

    def test_widening_of_every_pattern(self, kernels, word, dtype):
        y = np.zeros(65536, np.float32)
        self.module(kernels)[f"{word}_to_float"](64, 1024, (ALL.view(dtype), y), checks="fast")
        np.testing.assert_array_equal(y.view(np.uint32), ALL.view(dtype).astype(np.float32).view(np.uint32))

    def test_rounding_of_every_pattern_and_what_lies_around_and_between(self, kernels, word, dtype):
        exact = ALL.view(dtype).astype(np.float32)
        exact = exact[np.isfinite(exact)]
        above = np.roll(np.sort(exact), -1)
        with np.errstate(over="ignore"):
            middle = (np.sort(exact).astype(np.float64) + above) / 2
            near = [exact, np.nextafter(exact, np.float32(np.inf)), np.nextafter(exact, np.float32(-np.inf))]
            middle = middle.astype(np.float32)
            near += [middle, np.nextafter(middle, np.float32(np.inf)), np.nextafter(middle, np.float32(-np.inf))]
            near += [np.float32([np.inf, -np.inf, 65519.99, 65520.0, 3.4e38, 3.3961776e38, 1e-45, -1e-45, 1e-8])]
            x = np.concatenate(near)
            x = np.concatenate([x, np.zeros(-x.size % 256, np.float32)])
            expected = x.astype(dtype)
        y = np.zeros(x.size, dtype)
        self.module(kernels)[f"float_to_{word}"](x.size // 256, 256, (x, y), checks="fast")
        np.testing.assert_array_equal(y.view(np.uint16), expected.view(np.uint16))

    def test_nan_becomes_the_devices_canonical_one(self, kernels, word, dtype):
        x = np.uint32([0x7FC00000, 0xFFC00001, 0x7F800001, 0xFFFFFFFF]).view(np.float32)
        y = np.zeros(4, dtype)
        self.module(kernels)[f"float_to_{word}"](1, 4, (x, y))
        np.testing.assert_array_equal(y.view(np.uint16), 0x7FFF)

    def test_arithmetic(self, kernels, word, dtype):
        n = 20000
        a, b, c = (RNG.integers(0, 65536, n).astype(np.uint16).view(dtype) for _ in range(3))
        a[:1000] = b[:1000]
        out = np.zeros(5 * n, dtype)
        name = {"half": "__half", "bfloat16": "__nv_bfloat16"}[word]
        self.module(kernels)[f"arithmetic<{name}>"](79, 256, (a, b, c, out, n), checks="fast")
        with np.errstate(all="ignore"):
            wide = [v.astype(np.float32) for v in (a, b, c)]
            expected = [wide[0] + wide[1], wide[0] - wide[1], wide[0] * wide[1], wide[0] / wide[1]]
            expected = [v.astype(dtype) for v in expected]
        for k, values in enumerate(expected):
            got = out[k * n : (k + 1) * n]
            with np.errstate(invalid="ignore"):
                bad = ~((got == values) | (np.isnan(got) & np.isnan(values)))
            assert not bad.any(), (k, a[bad][:3], b[bad][:3], c[bad][:3], got[bad][:3], values[bad][:3])
            same_sign = np.signbit(got) == np.signbit(values)
            assert (same_sign | np.isnan(values)).all()
        assert_rounded_once(out[4 * n :], a, b, c)


def assert_rounded_once(got, a, b, c):
    """A fused multiply-add is the nearest number to the exact result, and of two equally near ones the even one."""
    with np.errstate(invalid="ignore"):  # signalling NaNs
        values = [x.astype(np.float64) for x in (got, a, b, c)]
    bits = got.view(np.uint16)
    for i in np.flatnonzero(np.isfinite(np.stack(values)).all(axis=0)):
        exact = Fraction(values[1][i]) * Fraction(values[2][i]) + Fraction(values[3][i])
        distance = abs(Fraction(values[0][i]) - exact)
        for neighbour in (int(bits[i]) - 1, int(bits[i]) + 1):
            value = float(np.uint16([neighbour & 0xFFFF]).view(got.dtype)[0])
            if np.isfinite(value) and value != values[0][i]:
                other = abs(Fraction(value) - exact)
                assert distance < other or (distance == other and bits[i] % 2 == 0)


def test_pairs_of_halves(kernels):
    n = 500
    a, b = (RNG.standard_normal(2 * n).astype(np.float16) for _ in range(2))
    out = np.zeros(2 * n, np.float16)
    module = kernels("narrow.cu", "arithmetic<__half>", "arithmetic<__nv_bfloat16>")
    module["pairs"](4, 128, (a, b, out, n), written_fully=["out"])
    exact = a.astype(np.float64) * b + (a + b).astype(np.float64)
    np.testing.assert_array_equal(out, exact.astype(np.float16))


def test_narrow_floats_are_checked_where_they_lie():
    text = """#include <cuda_fp16.h>
    extern "C" __global__ void update(__half* x, float* y, int at) {
        x[at] += __float2half(1.0f);
        y[0] = x[at];
    }
    extern "C" __global__ void widen(const __half* x, float* y, int at) {
        float v = x[at];
        y[threadIdx.x] = v;
    }"""
    module = emulator.compile(text)
    x, y = np.zeros(3, np.float16), np.zeros(4, np.float32)
    module["update"](1, 1, (x, y, 2))
    assert x.tolist() == [0, 0, 1]
    assert y[0] == 1
    with pytest.raises(emulator.MemcheckError) as caught:
        module["update"](1, 1, (x, y, 3))
    assert (caught.value.array, caught.value.index, caught.value.line) == ("x", 3, 3)
    with pytest.raises(emulator.RacecheckError) as caught:
        module["update"](1, 4, (x, y, 0))
    assert (caught.value.array, caught.value.line) == ("x", 3)
    with pytest.raises(emulator.MemcheckError) as caught:
        module["widen"](1, 4, (x, y, -1))
    assert (caught.value.array, caught.value.index, caught.value.line) == ("x", -1, 7)
