"""Real KV caches: the one in the package, and the larger ones of the benchmarks."""

from __future__ import annotations

from importlib.resources import as_file, files

import numpy as np
import numpy.typing as npt

from sprigs.data import DataFile

from .bank import CodebookBank

_HOW = (
    "It holds KV tensors dumped from a model; `sprigs splitzip capture` makes caches of the same kind, "
    "though not the same bytes."
)


def _dump(name: str, sha256: str) -> DataFile:
    return DataFile("splitzip", name, sha256, "Apache-2.0 or MIT (model weights), public-domain text", how=_HOW)


ALICE256 = _dump(
    "smollm2_135m_kv_alice256.npy",
    "276b282888eb1c63750d14940025ea779a3a127dd145d9ad1f58f6d79598d4ec",
)
CONSTITUTION96 = _dump(
    "smollm2_135m_kv_constitution96.npy",
    "18c59547863ef3c6ee9dc44e2f214941f189facfe7f288df6702c77137e1f307",
)
MINILM128 = _dump(
    "minilm_l6_kv_alice128.npy",
    "de39fab1d65b67ea6dd197e1c599690f43dc1e96fd7b8aaa63fd4f28c0b17e95",
)
STORIES256 = _dump(
    "stories260k_kv_256.npy",
    "7db44b00636d54930653095d0a807685a3848646f13fcf6dc8c382e515bb36f7",
)
DUMPS = {"alice256": ALICE256, "constitution96": CONSTITUTION96, "minilm": MINILM128, "stories": STORIES256}
"""uint16 BF16 bit patterns of shape (layers, 2, tokens, heads, head width); axis 1: 0 keys, 1 values."""


def shipped_cache() -> npt.NDArray[np.uint16]:
    """KV cache of SmolLM2-135M reading 64 tokens of "Alice": BF16 bits, (30 layers, 2, 64 tokens, 3 heads, 64)."""
    with as_file(files("sprigs_splitzip") / "data" / "smollm2_135m_kv_alice64.npy") as path:
        cache: npt.NDArray[np.uint16] = np.load(path)
    return cache


def shipped_bank(code_bits: int) -> CodebookBank:
    """Codebooks of the same model, calibrated on another text (the Declaration of Independence), 3 or 4 bits."""
    with as_file(files("sprigs_splitzip") / "data" / f"smollm2_135m_bank{code_bits}.json") as path:
        return CodebookBank.load(path)


def load_dump(dump: DataFile) -> npt.NDArray[np.uint16]:
    """Load one of `DUMPS`; raises `sprigs.DataUnavailable` where it is not to be had."""
    loaded: npt.NDArray[np.uint16] = np.load(dump.path())
    return loaded
