"""A KV cache from one process to another over a limited loopback socket: measured, simulated, ideal.

python benchmarks/bench_transfer.py [-o benchmarks/results/transfer.json] [--plot docs/transfer.png]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

import sprigs
from sprigs_splitzip import Codebook
from sprigs_splitzip.loopback import Transfer, measure_transfers
from sprigs_splitzip.samples import ALICE256, CONSTITUTION96, load_dump, shipped_bank, shipped_cache

LINKS = [50e6, 100e6, 200e6, 400e6]


def plot(transfers: list[Transfer], path: Path) -> None:
    """Draw seconds and speed-up by link."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    links = [t.link / 1e6 for t in transfers]
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.6), constrained_layout=True)
    left.loglog(links, [t.simulated_raw for t in transfers], "--", color="C0", label="raw, simulated")
    left.loglog(links, [t.raw for t in transfers], "o", color="C0", label="raw, measured")
    left.loglog(links, [t.simulated for t in transfers], "--", color="C1", label="compressed, simulated")
    left.loglog(links, [t.compressed for t in transfers], "o", color="C1", label="compressed, measured")
    left.set(title="32 MiB over a limited loopback socket", ylabel="seconds")
    left.set_yticks([0.05, 0.1, 0.2, 0.4, 0.8], ["0.05", "0.1", "0.2", "0.4", "0.8"])
    right.semilogx(links, [t.ratio for t in transfers], ":", color="0.4", label="ideal: the ratio")
    right.semilogx(links, [t.simulated_speedup for t in transfers], "--", color="C1", label="simulated")
    right.semilogx(links, [t.speedup for t in transfers], "o", color="C1", label="measured")
    right.set(title="Speed-up", ylabel="raw / compressed", ylim=(1, 1.4))
    for axes in (left, right):
        axes.set_xticks(links, [f"{link:.0f}" for link in links])
        axes.minorticks_off()
        axes.set_xlabel("link, MB/s (log)")
        axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--plot", type=Path, help="a picture of it (needs matplotlib)")
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
    if options.plot is not None:
        plot(transfers, options.plot)


if __name__ == "__main__":
    main()
