"""Slate solvers on prompts made of real queries' clarifying questions (generated ones where they are not to be had).

python benchmarks/bench_slates.py [-o benchmarks/results/slates.json]
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np

from sprigs_sponsored import SlateInstance, advertiser_values, solve_slate
from sprigs_sponsored.experiments import topics_at_hand
from sprigs_sponsored.slates import slates_of_topic


def large(prompts: int = 60, instances: int = 5) -> list[str | int]:
    """Many random prompts, 523,686 slates: where enumeration no longer answers at once."""
    seconds = {"enumerate": 0.0, "bnb": 0.0, "greedy": 0.0}
    shares, gaps, bounds = [], [], []
    for seed in range(instances):
        rng = np.random.default_rng(seed)
        values = rng.lognormal(size=(8, 5)) * (rng.random((8, 5)) < 0.5)
        instance = SlateInstance(rng.dirichlet(np.ones(5)), rng.normal(size=(prompts, 5)), values, 4)
        found = {}
        for method in seconds:
            began = time.perf_counter()
            found[method] = solve_slate(instance, method, payments=False)
            seconds[method] += time.perf_counter() - began
        assert abs(found["bnb"].welfare - found["enumerate"].welfare) < 1e-9
        shares.append(found["bnb"].nodes / found["bnb"].total)
        gaps.append(1 - found["greedy"].welfare / found["enumerate"].welfare)
        bounds.append(found["greedy"].gap)
    return [
        f"{prompts} random prompts",
        instances,
        f"{100 * np.mean(shares):.3f} %",
        f"{100 * np.mean(np.array(shares) < 0.1):.0f} %",
        f"{100 * np.max(shares):.3f} %",
        f"{100 * np.max(gaps):.2f} % / {100 * np.mean(bounds):.1f} %",
        *(f"{1e3 * s / instances:.1f} ms" for s in seconds.values()),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    source, topics = topics_at_hand()
    solve_slate(SlateInstance([1.0], np.zeros((3, 1)), [[1.0]], 2), "bnb")  # compiles
    rows = []
    for least, most in ((4, 12), (13, 13), (14, 99)):
        seconds = {"enumerate": 0.0, "bnb": 0.0, "greedy": 0.0}
        shares, gaps, bounds = [], [], []
        for topic in topics.values():
            if not least <= len(topic.questions) <= most:
                continue
            for model in ("random", "rivals"):
                values = advertiser_values(model, 8, len(topic.facets), np.random.default_rng(topic.topic_id))
                instance = slates_of_topic(topic.answers, values, 4)
                found = {}
                for method in seconds:
                    began = time.perf_counter()
                    found[method] = solve_slate(instance, method, payments=False)
                    seconds[method] += time.perf_counter() - began
                exact = found["enumerate"]
                assert abs(found["bnb"].welfare - exact.welfare) < 1e-9
                shares.append(found["bnb"].nodes / exact.total)
                gaps.append(1 - found["greedy"].welfare / exact.welfare if exact.welfare else 0.0)
                bounds.append(found["greedy"].gap)
        each = {method: f"{1e3 * s / len(shares):.1f} ms" for method, s in seconds.items()}
        rows.append(
            [
                f"{least}..{most}" if most != least else str(least),
                len(shares),
                f"{100 * np.mean(shares):.1f} %",
                f"{100 * np.mean(np.array(shares) < 0.1):.0f} %",
                f"{100 * np.max(shares):.0f} %",
                f"{100 * np.max(gaps):.2f} % / {100 * np.mean(bounds):.1f} %",
                each["enumerate"],
                each["bnb"],
                each["greedy"],
            ]
        )
    rows.append(large())
    columns = [
        f"questions ({source})", "slates of 4: instances", "looked at: mean", "below 10 % in", "most",
        "greedy: worst loss / mean certificate", "enumerate", "branch and bound", "greedy",
    ]  # fmt: skip
    content = {"table": {"columns": columns, "rows": rows}}
    print(json.dumps(content, indent=2))
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
