"""A KV cache from one process to another over a limited loopback socket: measured, simulated, ideal.

python benchmarks/bench_transfer.py [-o benchmarks/results/transfer.json]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

import sprigs
from sprigs_splitzip import Codebook
from sprigs_splitzip.loopback import measure_transfers
from sprigs_splitzip.samples import ALICE256, CONSTITUTION96, load_dump, shipped_bank, shipped_cache

LINKS = [50e6, 100e6, 200e6, 400e6]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    try:
        cache, book = load_dump(ALICE256), Codebook.from_samples([load_dump(CONSTITUTION96)], "bf16")
    except sprigs.DataUnavailable:
        cache, book = shipped_cache(), shipped_bank(4)["default"]
    transfers = measure_transfers(np.resize(cache.reshape(-1), 1 << 24), book, LINKS)
    rows = [
        [
            f"{t.link / 1e6:.0f} MB/s",
            f"{t.raw:.3f} s",
            f"{t.compressed:.3f} s",
            f"{t.speedup:.3f}x",
            f"{t.simulated_speedup:.3f}x",
            f"{t.ratio:.3f}x",
        ]
        for t in transfers
    ]
    table = {"columns": ["link", "raw", "compressed", "speed-up", "simulated", "ideal"], "rows": rows}
    for line in (table["columns"], *rows):
        print(" | ".join(line))
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        data = {"table": table, "transfers": [asdict(t) for t in transfers]}
        options.output.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
