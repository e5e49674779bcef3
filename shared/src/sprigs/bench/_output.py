"""What comparisons and scalings share on their way to a file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# What three digits show as 1: without it, a hair below 1 GB/s would read 1e+03 MB/s.
_ONE = 0.9995


def write_json(path: str | os.PathLike[str], content: dict[str, object]) -> None:
    """Write JSON for people to read and diff; missing folders are made."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure apart from pyplot, which leaves the caller's backend and windows alone.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as cause:
        raise ModuleNotFoundError("a plot needs matplotlib: pip install 'sprigs[bench]'", name=cause.name) from cause
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.add_subplot()


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a PNG; missing folders are made."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=150)


def duration(seconds: float) -> str:
    """A time with the unit that suits it."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * scale >= _ONE:
            return f"{seconds * scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def rate(bytes_per_second: float) -> str:
    """A throughput with the decimal unit that suits it."""
    for unit, scale in (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3)):
        if bytes_per_second >= _ONE * scale:
            return f"{bytes_per_second / scale:.3g} {unit}"
    return f"{bytes_per_second:.3g} B/s"
