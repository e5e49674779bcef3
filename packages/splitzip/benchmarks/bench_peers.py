"""Encoding and decoding a real KV cache beside the peers, in turn, on one thread and on two.

python benchmarks/bench_peers.py [-o benchmarks/results/peers.json]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from sprigs_splitzip import Codebook
from sprigs_splitzip.bench import benchmark_input, measure, ratios

OURS = "splitzip"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--mib", type=float, default=16.0)
    options = parser.parse_args()
    x, one, name = benchmark_input(options.mib)
    codebook = Codebook.from_samples([one], "bf16")
    ratio = ratios(one, codebook)
    rows, raw = [], {}
    for threads in (1, 2):
        sides = {}
        for side, comparison in zip(
            ("encode", "decode"), measure(x, codebook, threads=threads, rounds=options.rounds), strict=True
        ):
            sides[side] = replace(comparison, baseline=OURS)
            raw[f"{side}, {threads} thread(s)"] = comparison.to_dict()
        for codec in sides["encode"].rates:
            cells = []
            for comparison in sides.values():
                factor, low, high = comparison.ratios[codec]
                cells += [f"{comparison.rates[codec] / 1e9:.2f}", f"{factor:.2f} ({low:.2f}..{high:.2f})"]
            rows.append([codec, threads, f"{ratio[codec]:.3f}" if codec in ratio else "", *cells])
    table = {
        "columns": ["", "threads", "ratio", "encode GB/s", "time / splitzip's", "decode GB/s", "time / splitzip's"],
        "rows": rows,
    }
    for row in (table["columns"], *rows):
        print(" | ".join(map(str, row)))
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        data = {"input": f"{name}, tiled to {options.mib:g} MiB", "table": table, "measurements": raw}
        options.output.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
