"""The fast path beside the plain one.

python benchmarks/bench_means.py [-o benchmarks/results/means.json]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from sprigs.bench import compare
from sprigs_sprigling import reference
from sprigs_sprigling.means import running_mean


def agree(results: dict[str, object]) -> None:
    np.testing.assert_allclose(results["sprigling"], results["plain loop"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    rows = []
    for n in (1_000, 10_000, 100_000):
        x = np.random.default_rng(0).normal(size=n)
        plain = list(x)
        result = compare(
            {"sprigling": lambda x=x: running_mean(x), "plain loop": lambda x=plain: reference.running_mean(x)},
            check=agree,
        )
        factor, low, high = result.ratios["plain loop"]
        rows.append([n, f"{1e6 * result.medians['sprigling']:.1f}", f"{factor:.0f}x ({low:.0f} to {high:.0f})"])
    table = {"columns": ["numbers", "µs", "plain loop takes"], "rows": rows}
    print(json.dumps(table, indent=2))
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps({"table": table}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
