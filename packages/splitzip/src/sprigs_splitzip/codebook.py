"""Exponent codebooks: which 2^b exponents get a short code, and how they are chosen (calibration)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .errors import FormatError, SplitZipError, UnsupportedDtype
from .floats import FloatFormat, float_format

Kind = Literal["auto", "top", "window"]
CodeBits = Literal[3, 4, "auto"]

ESCAPE_BITS = 24
"""Cost of one escape: a 16-bit position in its chunk and an 8-bit exponent."""

WINDOW_TOLERANCE = 5e-4
"""`kind="auto"` takes the window unless it escapes this much more often than the top set (0.012 bit an element)."""


@dataclass(frozen=True)
class Run:
    """Consecutive exponents `first .. first + length - 1`, whose codes start at `code`."""

    first: int
    length: int
    code: int


@dataclass(frozen=True, init=False)
class Codebook:
    """2^b distinct exponent values; an exponent's code is its rank among them.

    The values are stored in ascending order whatever order they are given in, so the same set always gives the same
    bytes.

    Args:
        dtype: Element format, e.g. `"bf16"`; anything `float_format` accepts.
        values: 2^b distinct exponents in [0, 2^E).
        code_bits: b, 3 or 4.

    Raises:
        UnsupportedDtype: If `dtype` has no exponent, or `code_bits` is not 3 or 4.
        SplitZipError: If `values` is not a set of 2^b exponents of this format.
    """

    format: FloatFormat
    values: tuple[int, ...]
    code_bits: int

    def __init__(self, dtype: object, values: Sequence[int] | npt.NDArray[np.integer[Any]], code_bits: int = 4) -> None:
        form = float_format(dtype)
        if not form.is_float:
            raise UnsupportedDtype("opaque bytes have no exponents, so no codebook")
        if code_bits not in (3, 4):
            raise SplitZipError(f"code_bits is 3 or 4; got {code_bits!r}")
        exponents = tuple(sorted(int(v) for v in values))
        if len(exponents) != 1 << code_bits or len(set(exponents)) != len(exponents):
            raise SplitZipError(
                f"a {code_bits}-bit codebook is {1 << code_bits} distinct exponents; got {len(exponents)} values, "
                f"{len(set(exponents))} of them distinct"
            )
        if exponents[0] < 0 or exponents[-1] >= form.n_exponents:
            raise SplitZipError(f"{form.name} exponents lie in 0..{form.n_exponents - 1}; got {exponents}")
        object.__setattr__(self, "format", form)
        object.__setattr__(self, "values", exponents)
        object.__setattr__(self, "code_bits", int(code_bits))

    @classmethod
    def from_histogram(
        cls,
        histogram: npt.ArrayLike,
        dtype: object = "bf16",
        *,
        code_bits: CodeBits = 4,
        kind: Kind = "auto",
    ) -> Codebook:
        """Choose the codebook for exponents distributed as `histogram`.

        Args:
            histogram: Non-negative counts, shape (2^E,).
            dtype: Element format.
            code_bits: 3, 4, or `"auto"`: the one with the fewer expected bits, b + 24 * (escape rate).
            kind: `"top"`: the most frequent exponents (the paper's choice), ties toward the smaller exponent; if fewer
                than 2^b exponents occur, the nearest unused ones fill up. `"window"`: the best 2^b consecutive
                exponents, coded by arithmetic. `"auto"`: the window if it escapes less than 5e-4 more often.
        """
        form = float_format(dtype)
        counts = _checked_histogram(histogram, form)
        if code_bits == "auto":
            books = [cls.from_histogram(counts, form, code_bits=b, kind=kind) for b in (3, 4)]
            return min(books, key=lambda book: book.expected_bits(counts))
        if code_bits not in (3, 4):
            raise SplitZipError(f'code_bits is 3, 4 or "auto"; got {code_bits!r}')
        size = 1 << code_bits
        if kind not in ("auto", "top", "window"):
            raise SplitZipError(f'kind is "auto", "top" or "window"; got {kind!r}')
        top = cls(form, _top_values(counts, size), code_bits)
        if kind == "top":
            return top
        sums = np.convolve(counts, np.ones(size, counts.dtype), "valid")
        first = int(sums.argmax())  # argmax takes the first of equals: ties toward the smaller exponent
        window = cls(form, range(first, first + size), code_bits)
        if kind == "window" or top.coverage(counts) - window.coverage(counts) < WINDOW_TOLERANCE:
            return window
        return top

    @classmethod
    def from_samples(
        cls,
        samples: Iterable[object],
        dtype: object = None,
        *,
        code_bits: CodeBits = 4,
        kind: Kind = "auto",
    ) -> Codebook:
        """Calibrate on arrays: sum their exponent histograms, then choose as `from_histogram` does.

        Args:
            samples: Arrays of one element format (NumPy, torch or JAX; or raw bit patterns with `dtype` given).
        """
        from .arrays import as_bits
        from .statistics import exponent_histogram

        total: npt.NDArray[np.int64] | None = None
        form: FloatFormat | None = None
        for sample in samples:
            view = as_bits(sample, dtype)
            if form is not None and view.format != form:
                raise SplitZipError(f"samples mix {form.name} and {view.format.name}; calibrate each on its own")
            form = view.format
            histogram = exponent_histogram(view.bits, form)
            total = histogram if total is None else total + histogram
        if total is None or form is None:
            raise SplitZipError("no samples to calibrate on")
        return cls.from_histogram(total, form, code_bits=code_bits, kind=kind)

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """The values as maximal runs of consecutive exponents, ascending."""
        starts = [i for i, v in enumerate(self.values) if i == 0 or v != self.values[i - 1] + 1]
        ends = [*starts[1:], len(self.values)]
        return tuple(Run(self.values[a], b - a, a) for a, b in zip(starts, ends, strict=True))

    @property
    def is_window(self) -> bool:
        """Whether the values are consecutive."""
        return len(self.runs) == 1

    def coverage(self, histogram: npt.ArrayLike) -> float:
        """Fraction of elements whose exponent has a code; 1.0 for an empty histogram."""
        counts = _checked_histogram(histogram, self.format)
        total = int(counts.sum())
        return int(counts[list(self.values)].sum()) / total if total else 1.0

    def expected_bits(self, histogram: npt.ArrayLike) -> float:
        """Expected bits an element: b + (M + 1) + 24 * (escape rate), without headers and chunk starts."""
        return self.code_bits + self.format.sm_bits + ESCAPE_BITS * (1 - self.coverage(histogram))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-ready description; `from_dict` reads it back."""
        return {"dtype": self.format.name, "code_bits": self.code_bits, "values": list(self.values)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Codebook:
        """Read what `to_dict` wrote.

        Raises:
            FormatError: If `data` does not describe a codebook.
        """
        try:
            dtype, code_bits, values = data["dtype"], data["code_bits"], data["values"]
        except (KeyError, TypeError) as error:
            raise FormatError(f"a codebook is a mapping with dtype, code_bits and values; got {data!r:.200}") from error
        integers = isinstance(values, list) and all(type(v) is int for v in values)
        if not (isinstance(dtype, str) and type(code_bits) is int and integers):
            raise FormatError(f"codebook fields have the wrong types: {data!r:.200}")
        return cls(dtype, values, code_bits)


def _checked_histogram(histogram: npt.ArrayLike, form: FloatFormat) -> npt.NDArray[np.int64]:
    counts = np.asarray(histogram)
    if counts.shape != (form.n_exponents,):
        raise SplitZipError(f"a {form.name} histogram has shape ({form.n_exponents},); got {counts.shape}")
    if counts.dtype.kind not in "iu" or (counts.size and counts.min() < 0):
        raise SplitZipError("a histogram holds non-negative integer counts")
    return counts.astype(np.int64)


def _top_values(counts: npt.NDArray[np.int64], size: int) -> list[int]:
    ranked = np.argsort(-counts, kind="stable")[:size]
    used = [int(e) for e in ranked if counts[e] > 0]
    if not used:
        # Nothing seen: values of magnitude near 1 are the best guess, and the exponent bias marks them.
        used = [counts.size // 2 - 1]
    if len(used) == size:
        return used
    # Fill up so that every code names an exponent; near the used ones is where unseen values are likeliest.
    unused = sorted(set(range(counts.size)) - set(used), key=lambda e: (min(abs(e - u) for u in used), e))
    return used + unused[: size - len(used)]
