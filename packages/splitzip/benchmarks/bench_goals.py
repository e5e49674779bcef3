"""The figures this package set out to reach, each measured: ratio, speed beside peers and beside a memory copy.

    python benchmarks/bench_goals.py [-o benchmarks/results/goals.json]

Speeds are best of the rounds on both sides, 16 MiB, one thread; splitzip's own into a buffer that is reused where the
yardstick (`np.copyto`) reuses its own, and with fresh output where the peers make fresh output.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

import sprigs
from sprigs_splitzip import Codebook, CodebookBank, Codec
from sprigs_splitzip.bench import benchmark_input, measure
from sprigs_splitzip.samples import ALICE256, CONSTITUTION96, load_dump, shipped_bank, shipped_cache

BUFFER = "splitzip, into a buffer"
BARE = "splitzip, into a buffer, no checksum"


def ratio_rows() -> list[list[str]]:
    try:
        cache, calibration = load_dump(ALICE256), load_dump(CONSTITUTION96)
        parts = list(np.ndindex(*cache.shape[:2]))
        bank = CodebookBank.calibrate((((i, "kv"[p]), calibration[i, p]) for i, p in parts), "bf16", code_bits=3)
        book = Codebook.from_samples([calibration], "bf16")
    except sprigs.DataUnavailable:
        cache, bank, book = shipped_cache(), shipped_bank(3), shipped_bank(4)["default"]
        parts = list(np.ndindex(*cache.shape[:2]))
    four = Codec(book).encode(cache, dtype="bf16").ratio
    codec = Codec(bank)
    three = cache.nbytes / sum(codec.encode(cache[i, p], (i, "kv"[p]), dtype="bf16").nbytes for i, p in parts)
    return [
        row("ratio, 4 bits, one codebook from another text", ">= 1.330", four, 1.330, "{:.4f}"),
        row("ratio, 3 bits, a bank from another text", ">= 1.37", three, 1.37, "{:.4f}"),
    ]


def row(what: str, goal: str, value: float, bar: float, form: str = "{:.2f}x") -> list[str]:
    return [what, goal, form.format(value), "yes" if value >= bar else "**no**"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    rows = ratio_rows()
    x, one, _ = benchmark_input(16.0)
    encoding, decoding = measure(x, Codebook.from_samples([one], "bf16"), rounds=options.rounds)
    best = [{name: min(values) for name, values in side.seconds.items()} for side in (encoding, decoding)]

    def faster(side: int, ours: str, than: str) -> float:
        return best[side][than] / best[side][ours]

    for peer, bar in (("zipnn", 5.0), ("blosc2 lz4 + bitshuffle", 3.0)):
        if peer in best[0]:
            for ours, label in (("splitzip", "with checksum"), ("splitzip, no checksum", "no checksum, like it")):
                what = f"against {peer}, {label}"
                rows.append(row(f"encode, {what}", f">= {bar:g}x", faster(0, ours, peer), bar))
                rows.append(row(f"decode, {what}", ">= 5x", faster(1, ours, peer), 5.0))
    for ours, share in ((BARE, 1.0), (BUFFER, 0.7)):
        for side, (name, bar) in enumerate((("encode", 0.35), ("decode", 0.7))):
            what = f"{name}, against a memory copy, {'no checksum' if ours == BARE else 'with checksum'}"
            rows.append(row(what, f">= {share * bar:.3g}x", faster(side, ours, "copy"), share * bar))
    table = {"columns": ["figure", "goal", "measured", "reached"], "rows": rows}
    for line in (table["columns"], *rows):
        print(" | ".join(line))
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        data = {"table": table, "encode": encoding.to_dict(), "decode": decoding.to_dict()}
        options.output.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
