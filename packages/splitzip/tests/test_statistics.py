"""Histograms and entropies against closed forms."""

import math

import ml_dtypes
import numpy as np
import pytest
from scipy.stats import norm

from sprigs_splitzip import Codebook, UnsupportedDtype, best_ratio, exponent_entropy, exponent_histogram, report
from sprigs_splitzip.floats import FORMATS, OPAQUE
from sprigs_splitzip.statistics import sample_histogram, sign_mantissa_entropy


def gaussian_exponents():
    """p_k = 2 (Phi(2^(k+1)) - Phi(2^k)) for the BF16 exponents of N(0, 1)."""
    k = np.arange(256) - 127.0
    return 2 * (norm.sf(2.0**k) - norm.sf(2.0 ** (k + 1)))


def test_gaussian_closed_form():
    p = gaussian_exponents()
    counts = np.round(p * 1e15).astype(np.int64)
    assert exponent_entropy(counts) == pytest.approx(2.54491, abs=5e-6)
    top16, top8 = (Codebook.from_histogram(counts, code_bits=b, kind="top") for b in (4, 3))
    assert top16.values == tuple(range(114, 130))
    assert 1 - top16.coverage(counts) == pytest.approx(9.740e-5, rel=1e-4)
    assert 1 - top8.coverage(counts) == pytest.approx(1.25298e-2, rel=1e-4)


def test_gaussian_samples_agree_with_the_closed_form():
    n = 1 << 22
    x = np.random.default_rng(0).standard_normal(n, np.float32).astype(ml_dtypes.bfloat16)
    counts = exponent_histogram(x)
    p = gaussian_exponents()
    assert counts.sum() == n
    # Rounding to BF16 carries about 2^-9 of a bin's upper edge into the next; the rest is sampling.
    tolerance = 5 * np.sqrt(p / n) + p * 2**-7 + 1e-6
    assert (np.abs(counts / n - p) <= tolerance).all()


@pytest.mark.parametrize("form", [f for f in FORMATS if f is not OPAQUE], ids=lambda f: f.name)
def test_histogram_counts_each_exponent(form):
    bits = (np.arange(form.n_exponents) << form.mantissa_bits).astype(form.bits_dtype)
    bits = np.repeat(bits, np.arange(form.n_exponents) + 1)
    sign = bits | bits.dtype.type(1 << (8 * form.itemsize - 1))
    expected = np.arange(form.n_exponents) + 1
    assert np.array_equal(exponent_histogram(bits, form), expected)
    assert np.array_equal(exponent_histogram(sign, form), expected)


def test_entropy_of_known_distributions():
    assert exponent_entropy([0, 7, 0]) == 0
    assert exponent_entropy([5] * 8) == pytest.approx(3)
    assert exponent_entropy([1, 1, 2]) == pytest.approx(1.5)
    assert exponent_entropy([0, 0]) == 0
    assert math.copysign(1, exponent_entropy([3])) == 1


def test_sign_mantissa_entropy_of_all_patterns():
    assert sign_mantissa_entropy(np.arange(65536, dtype=np.uint16), "bf16") == pytest.approx(8)
    assert sign_mantissa_entropy(np.full(10, 0x3F80, np.uint16), "bf16") == 0


def test_best_ratio():
    assert best_ratio([0] * 255 + [1]) == 2.0
    assert best_ratio([1] * 256) == pytest.approx(1.0)


def test_sample_histogram():
    x = np.arange(1 << 22, dtype=np.uint32).astype(np.uint16)
    sample = sample_histogram(x, FORMATS[0])
    assert sample.sum() == (1 << 22) // 16
    small = x[:50_000]
    assert np.array_equal(sample_histogram(small, FORMATS[0]), exponent_histogram(small, "bf16"))
    assert sample_histogram(x[: 3 * 65_536 + 17], FORMATS[0]).sum() >= 65_536


def test_report_on_a_cache(dump):
    cache = report(dump("alice256"), "bf16")
    assert cache.entropy == pytest.approx(2.937, abs=5e-4)
    assert cache.coverage[4] == pytest.approx(0.99942, abs=5e-6)
    assert cache.sign_mantissa_entropy == pytest.approx(7.96, abs=0.01)
    assert cache.best_ratio == pytest.approx(1.463, abs=5e-4)
    assert "bit-exact" in str(cache)
    assert cache.to_dict()["dtype"] == "bf16"


def test_opaque_has_no_exponents():
    with pytest.raises(UnsupportedDtype):
        exponent_histogram(b"abc", "opaque")
