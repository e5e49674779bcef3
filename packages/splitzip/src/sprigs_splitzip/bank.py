"""A codebook for each layer and part of a KV cache, and watching whether they still fit."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .arrays import as_bits
from .codebook import CodeBits, Codebook, Kind
from .errors import FormatError, SplitZipError
from .statistics import exponent_histogram, sample_histogram

Key = str | tuple[int, str]
"""A bank's key: any string, or (layer, part) such as `(3, "k")`, which is the same as `"3/k"`."""

DEFAULT = "default"
_MAX_FILE_BYTES = 1 << 26


def key_name(key: Key) -> str:
    """Return the string form of a key: `(3, "k")` is `"3/k"`."""
    if isinstance(key, str):
        return key
    if isinstance(key, tuple) and len(key) == 2:
        return f"{key[0]}/{key[1]}"
    raise SplitZipError(f"a key is a string or (layer, part); got {key!r}")


class CodebookBank(Mapping[str, Codebook]):
    """Codebooks by key; `find` falls back on the one under `"default"`.

    Args:
        codebooks: Key to codebook; all of one element format.
    """

    def __init__(self, codebooks: Mapping[Any, Codebook]) -> None:
        self._codebooks = {key_name(key): codebook for key, codebook in codebooks.items()}
        if not self._codebooks:
            raise SplitZipError("a bank holds at least one codebook")
        if len({codebook.format for codebook in self._codebooks.values()}) > 1:
            raise SplitZipError("the codebooks of a bank are of one element format; make a bank for each")

    @classmethod
    def calibrate(
        cls,
        samples: Iterable[tuple[Key, object]],
        dtype: object = None,
        *,
        code_bits: CodeBits = 4,
        kind: Kind = "auto",
    ) -> CodebookBank:
        """Calibrate a codebook for each key, and a `"default"` one on all samples together.

        Args:
            samples: (key, array) pairs; a key may come more than once.
            dtype: Element format, for raw bit patterns.
            code_bits, kind: As in `Codebook.from_histogram`.
        """
        histograms: dict[str, npt.NDArray[np.int64]] = {}
        form = None
        for key, sample in samples:
            view = as_bits(sample, dtype)
            if form is not None and view.format != form:
                raise SplitZipError(f"samples mix {form.name} and {view.format.name}; make a bank for each")
            form = view.format
            histogram = exponent_histogram(view.bits, form)
            for name in (key_name(key), DEFAULT):
                histograms[name] = histograms.get(name, 0) + histogram
        if form is None:
            raise SplitZipError("no samples to calibrate on")
        chosen = {
            name: Codebook.from_histogram(histogram, form, code_bits=code_bits, kind=kind)
            for name, histogram in histograms.items()
        }
        return cls(chosen)

    def __getitem__(self, key: Key) -> Codebook:
        return self._codebooks[key_name(key)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._codebooks)

    def __len__(self) -> int:
        return len(self._codebooks)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str | tuple) and key_name(key) in self._codebooks

    def __repr__(self) -> str:
        return f"CodebookBank({len(self)} codebooks, {next(iter(self.values())).format.name})"

    def find(self, key: Key | None) -> Codebook:
        """Return the codebook for `key`, or the default one.

        Raises:
            SplitZipError: If there is neither.
        """
        name = DEFAULT if key is None else key_name(key)
        codebook = self._codebooks.get(name, self._codebooks.get(DEFAULT))
        if codebook is None:
            known = ", ".join(list(self._codebooks)[:8])
            raise SplitZipError(f"the bank has no codebook {name!r} and no {DEFAULT!r} one; it has {known}, ...")
        return codebook

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the bank as JSON; the file appears whole or not at all."""
        target = Path(path)
        data = {"splitzip_bank": 1, "codebooks": {k: c.to_dict() for k, c in self._codebooks.items()}}
        temporary = target.with_name(f".{target.name}.{os.getpid()}.{threading.get_ident()}.tmp")
        try:
            with temporary.open("x", encoding="utf-8") as file:
                json.dump(data, file, separators=(",", ":"))
                file.write("\n")
            os.replace(temporary, target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> CodebookBank:
        """Read what `save` wrote.

        Raises:
            FormatError: If the file is not a codebook bank.
        """
        source = Path(path)
        if source.stat().st_size > _MAX_FILE_BYTES:
            raise FormatError(f"{source} has {source.stat().st_size} bytes; no codebook bank is that large")
        try:
            data = json.loads(source.read_text(encoding="utf-8"))
            version, entries = data["splitzip_bank"], data["codebooks"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise FormatError(f"{source} is not a codebook bank: {error}") from error
        if version != 1 or not isinstance(entries, dict):
            raise FormatError(f"{source} is a codebook bank of unknown version {version!r}")
        return cls({key: Codebook.from_dict(entry) for key, entry in entries.items()})


class EscapeMonitor:
    """Notices when a codebook no longer fits the data, from the escape rate that each frame reveals for free.

    Args:
        recalibrate_at: Escape rate above which recalibration is due.
        decay: Weight that the past keeps at each update of the moving average, in [0, 1).
    """

    def __init__(self, *, recalibrate_at: float = 0.02, decay: float = 0.9) -> None:
        if not 0 < recalibrate_at <= 1 or not 0 <= decay < 1:
            raise SplitZipError(f"recalibrate_at lies in (0, 1] and decay in [0, 1); got {recalibrate_at} and {decay}")
        self.recalibrate_at = recalibrate_at
        self.decay = decay
        self._rates: dict[str, float] = {}

    def update(self, escape_rate: float, key: Key | None = None) -> None:
        """Take a frame's escape rate into the moving average of its key."""
        name = DEFAULT if key is None else key_name(key)
        past = self._rates.get(name, escape_rate)
        self._rates[name] = self.decay * past + (1 - self.decay) * escape_rate

    def rate(self, key: Key | None = None) -> float | None:
        """Return the moving average for `key`; None before its first frame."""
        return self._rates.get(DEFAULT if key is None else key_name(key))

    def due(self) -> list[str]:
        """Return the keys whose codebook should be calibrated anew."""
        return [name for name, rate in self._rates.items() if rate > self.recalibrate_at]

    def recalibrated(self, x: object, codebook: Codebook, key: Key | None = None) -> Codebook:
        """Choose a new codebook from a 1/64 sample of `x`, and forget the key's average.

        Args:
            x: A recent array of that key.
            codebook: The one in use; the new one has its format and code bits.
        """
        view = as_bits(x, codebook.format)
        histogram = sample_histogram(view.bits, view.format, stride=64)
        self._rates.pop(DEFAULT if key is None else key_name(key), None)
        return Codebook.from_histogram(histogram, view.format, code_bits=codebook.code_bits)  # type: ignore[arg-type]
