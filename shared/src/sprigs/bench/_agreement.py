"""Whether the results of compared callables agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sprigs._errors import BenchMismatch

Check = Callable[[dict[str, object]], object]


def require_agreement(results: dict[str, object], baseline: str, check: Check | None) -> None:
    """Hold the results against each other before anything is timed.

    Raises:
        TypeError: `check` is not a function.
        ValueError: without `check`, when all results are None and so nothing can be compared.
        BenchMismatch: `check` returns False or raises an AssertionError, or without it, a result
            differs from the baseline's.
    """
    if check is None:
        _require_equal(results, baseline)
        return
    if not callable(check):
        raise TypeError(
            f"check must be a function of the results, given {check!r}; what is not checked is not comparable"
        )
    try:
        verdict = check(results)
    except AssertionError as reason:
        raise BenchMismatch(f"the check of the results failed: {reason}") from reason
    if verdict is False:
        raise BenchMismatch("the check of the results returned False")


def _require_equal(results: dict[str, object], baseline: str) -> None:
    if all(result is None for result in results.values()):
        raise ValueError(
            "every callable returns None, so nothing says that they do the same work:"
            " return the result, or pass check=a function of the results"
        )
    for name, result in results.items():
        if not equal(result, results[baseline]):
            raise BenchMismatch(
                f"{name!r} and {baseline!r} give different results: {_short(result)} and"
                f" {_short(results[baseline])}; if they may differ, pass check=a function"
            )


def equal(left: object, right: object) -> bool:
    """Exact equality of bytes, arrays (NaN equals NaN) and containers of them; else `==`."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(equal(left[k], right[k]) for k in left)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(equal, left, right))
    if hasattr(left, "__array__") or hasattr(right, "__array__"):
        return _equal_arrays(left, right)
    return bool(left == right)


def _equal_arrays(left: object, right: object) -> bool:
    import numpy as np

    first, second = np.asarray(left), np.asarray(right)
    inexact = first.dtype.kind in "fc" and second.dtype.kind in "fc"
    return bool(np.array_equal(first, second, equal_nan=inexact))


def _short(result: object) -> str:
    text = " ".join(repr(result).split())
    return text if len(text) <= 80 else f"{text[:77]}..."
