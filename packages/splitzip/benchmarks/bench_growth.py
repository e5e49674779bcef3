"""How time grows with size: encoding, decoding and a memory copy from 1 MiB to 256 MiB, one thread, no checksum.

python benchmarks/bench_growth.py [-o benchmarks/results/growth.json]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from sprigs.bench import scaling
from sprigs_splitzip import Codebook, Codec
from sprigs_splitzip.bench import benchmark_input

SIZES = [1, 4, 16, 64, 256]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    _, one, name = benchmark_input(1.0)
    codec = Codec(Codebook.from_samples([one], "bf16"), checksum=False, threads=1)

    def encode(mib: int) -> Callable[[], int]:
        x = np.resize(one, mib << 19)
        frame = np.empty(codec.max_encoded_size(x, "bf16"), np.uint8)
        return lambda: codec.encode_into(x, frame, dtype="bf16")

    def decode(mib: int) -> Callable[[], object]:
        x = np.resize(one, mib << 19)
        frame = codec.encode(x, dtype="bf16")
        return lambda: codec.decode(frame, out=x)

    def copy(mib: int) -> Callable[[], None]:
        x = np.resize(one, mib << 19)
        y = np.empty_like(x)
        return lambda: np.copyto(y, x)

    fits = {work.__name__: scaling(work, SIZES, rounds=9) for work in (encode, decode, copy)}
    rows = []
    for label, fit in fits.items():
        rates = [mib * 2**20 / median(fit.seconds[mib]) / 1e9 for mib in SIZES]
        low, high = fit.interval
        rows.append([label, *(f"{rate:.1f}" for rate in rates), f"{fit.exponent:.2f} ({low:.2f}..{high:.2f})"])
    table = {"columns": ["GB/s at", *(f"{mib} MiB" for mib in SIZES), "time ~ size^"], "rows": rows}
    for line in (table["columns"], *rows):
        print(" | ".join(line))
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        data = {"input": name, "table": table, "fits": {label: fit.to_dict() for label, fit in fits.items()}}
        options.output.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
