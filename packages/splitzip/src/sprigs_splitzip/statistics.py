"""How compressible an array is: exponent histograms, entropies and the ratios they allow."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from .arrays import Bits, as_bits
from .errors import UnsupportedDtype
from .floats import FloatFormat, float_format

_BLOCK = 1 << 20


def exponent_histogram(x: object, dtype: object = None) -> npt.NDArray[np.int64]:
    """Count the exponents of `x`.

    Args:
        x: Array, as `compress` accepts.
        dtype: Element format, for raw bit patterns.

    Returns:
        int64 array of shape (2^E,).
    """
    view = as_bits(x, dtype)
    form = view.format
    if not form.is_float:
        raise UnsupportedDtype("opaque bytes have no exponents")
    counts = np.zeros(form.n_exponents, np.int64)
    for start in range(0, view.bits.size, _BLOCK):
        exponents = (view.bits[start : start + _BLOCK] >> form.mantissa_bits) & (form.n_exponents - 1)
        counts += np.bincount(exponents, minlength=form.n_exponents)
    return counts


def sample_histogram(bits: Bits, form: FloatFormat, stride: int = 16, at_least: int = 65_536) -> npt.NDArray[np.int64]:
    """Histogram of every `stride`-th block of 1,024 elements, or of all if that were fewer than `at_least`."""
    block = 1024
    stride = max(1, min(stride, bits.size // at_least))
    whole = bits.size // (block * stride) * (block * stride)
    if stride == 1 or whole == 0:
        return exponent_histogram(bits, form)
    return exponent_histogram(bits[:whole].reshape(-1, stride, block)[:, 0], form)


def exponent_entropy(histogram: npt.ArrayLike) -> float:
    """Shannon entropy of the exponents, H(e), in bits an element; 0 for an empty histogram."""
    counts = np.asarray(histogram, np.float64)
    p = counts[counts > 0] / max(counts.sum(), 1.0)
    return float(-(p * np.log2(p)).sum()) + 0.0


def sign_mantissa_entropy(x: object, dtype: object = None) -> float:
    """Shannon entropy of sign and mantissa together, in bits an element (at most M + 1; 8-bit or shorter only)."""
    view = as_bits(x, dtype)
    form = view.format
    sign = view.bits >> (form.exponent_bits + form.mantissa_bits) << form.mantissa_bits
    rest = sign | (view.bits & ((1 << form.mantissa_bits) - 1))
    return exponent_entropy(np.unique(rest, return_counts=True)[1])


def best_ratio(histogram: npt.ArrayLike, dtype: object = "bf16") -> float:
    """Largest ratio any coder of the exponents alone can reach: bits / (M + 1 + H(e))."""
    form = float_format(dtype)
    return 8 * form.itemsize / (form.sm_bits + exponent_entropy(histogram))


@dataclass(frozen=True, kw_only=True)
class Report:
    """How compressible an array's exponents are, and what split coding makes of it. Rates are per element."""

    dtype: str
    n_elems: int
    entropy: float
    """H(e), bits."""
    sign_mantissa_entropy: float | None
    """Of the M + 1 bits kept verbatim; None above 16 bits."""
    best_ratio: float
    """What an ideal coder of the exponents alone reaches."""
    coverage: dict[int, float]
    """Code bits (3, 4) to the fraction of elements whose exponent has a code."""
    expected_ratio: dict[int, float]
    """Code bits to the ratio without headers; below 1 means the frame would be stored RAW."""
    codebooks: dict[int, tuple[int, ...]]
    """Code bits to the codebook chosen."""

    def to_dict(self) -> dict[str, object]:
        """Return a JSON-ready description."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"{self.n_elems} {self.dtype} elements; split coding is lossless and bit-exact",
            f"exponent entropy        {self.entropy:.3f} bits",
        ]
        if self.sign_mantissa_entropy is not None:
            lines.append(f"sign + mantissa entropy {self.sign_mantissa_entropy:.3f} bits")
        lines.append(f"ratio, exponent entropy {self.best_ratio:.3f} (ideal coder of the exponents alone)")
        for bits, ratio in self.expected_ratio.items():
            coverage = self.coverage[bits]
            lines.append(f"ratio, {bits}-bit codes     {ratio:.3f} (top {1 << bits} cover {100 * coverage:.3f} %)")
        return "\n".join(lines)


def report(x: object, dtype: object = None) -> Report:
    """Report how compressible an array is, without compressing it.

    Args:
        x: Array, as `compress` accepts.
        dtype: Element format, for raw bit patterns.
    """
    from .codebook import Codebook

    view = as_bits(x, dtype)
    form = view.format
    histogram = exponent_histogram(view.bits, form)
    bits = 8 * form.itemsize
    books = {b: Codebook.from_histogram(histogram, form, code_bits=b) for b in (3, 4)}
    return Report(
        dtype=form.name,
        n_elems=view.bits.size,
        entropy=exponent_entropy(histogram),
        sign_mantissa_entropy=sign_mantissa_entropy(view.bits, form) if form.sm_bits <= 16 else None,
        best_ratio=best_ratio(histogram, form),
        coverage={b: book.coverage(histogram) for b, book in books.items()},
        expected_ratio={b: bits / book.expected_bits(histogram) for b, book in books.items()},
        codebooks={b: book.values for b, book in books.items()},
    )
