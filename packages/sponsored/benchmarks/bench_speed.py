"""The simulator, the equilibrium search and the pivots beside what one would write first.

python benchmarks/bench_speed.py [-o benchmarks/results/speed.json]
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from sprigs.bench import compare
from sprigs_sponsored import Modular, SimulationConfig, engagement, pure_nash, random_instance, reference, simulate
from sprigs_sponsored.simulation import as_instances, batch
from sprigs_sponsored.tables import standard_mechanisms

CONFIG = SimulationConfig()  # 6 intents, 8 questions, 4 signals, 16 advertisers
SEED = 1


def python_loop(n: int) -> float:
    """Auctions one by one in plain Python: the reference functions, without the mechanisms' payments."""
    total = 0.0
    for instance in as_instances(CONFIG, 0, n, SEED):
        prior, kernel, values = instance.prior.tolist(), instance.kernel.tolist(), instance.values.tolist()
        utility = [0.0] * len(kernel)
        question, _, _ = reference.joint_vcg(prior, kernel, values, utility)
        total += reference.stage(prior, kernel, values, question)[0]
    return total / n


def objects(n: int) -> float:
    """Auctions one by one, an object each for instance, mechanism and outcome."""
    mechanisms = standard_mechanisms()
    total = 0.0
    for instance in as_instances(CONFIG, 0, n, SEED):
        total += [mechanism.run(instance).welfare for mechanism in mechanisms][5]
    return total / n


def plain_numpy(n: int, block: int = 512) -> float:
    """Array operations over blocks of auctions: draw, matmul, rank, all mechanisms."""
    total = 0.0
    for start in range(0, n, block):
        auctions = np.arange(start, min(n, start + block), dtype=np.uint64)
        total += float(batch(np, CONFIG, auctions, SEED)[:, 5, 0].sum())
    return total / n


def ours(n: int, threads: int) -> float:
    result = simulate(CONFIG, n, SEED, backend="numba", threads=threads, keep=False, progress=False)
    return float(result.mean[5, 0])


def per_item(
    what: str,
    goal: str,
    mine: tuple[str, Callable[[], object], int],
    other: tuple[str, Callable[[], object], int],
    rounds: int = 7,
) -> list[str]:
    """A row: time of the other per item over ours per item, median and interval; sizes may differ."""
    found = compare(
        {"ours": mine[1], "other": other[1]}, check=lambda results: None, rounds=rounds, warmup=1, baseline="ours"
    )
    scale = mine[2] / other[2]
    ratio, low, high = (x * scale for x in found.ratios["other"])
    each = found.medians["ours"] / mine[2]
    return [what, mine[0], f"{1e6 * each:.3g} µs", other[0], f"{ratio:.3g} ({low:.3g}..{high:.3g})", goal]


def nash_rows() -> list[list[str]]:
    instance = engagement(1, 0.1)
    rows = []
    for actions in (15, 30, 60):
        grid = np.arange(1, actions) / (actions - 1)
        mechanism = Modular()
        found = pure_nash(instance, mechanism, grid, "none")
        # One question each, so that there are `actions` of them: the first of each advertiser's.
        game = found.game
        keep = [np.r_[0, 1 + np.arange(actions - 1) + (actions - 1) * q] for q in (1, 1, 2)]
        small = type(game)(
            game.first,
            "none",
            tuple(q[k] for q, k in zip(game.questions, keep, strict=True)),
            tuple(b[k] for b, k in zip(game.bids, keep, strict=True)),
        )
        moves = [
            list(zip(q.tolist(), b.tolist(), strict=True)) for q, b in zip(small.questions, small.bids, strict=True)
        ]

        def search(small=small):
            _, utility = small.utilities()
            stable = np.ones(small.shape, bool)
            for i in range(3):
                own = utility[..., i]
                stable &= own >= own.max(axis=i, keepdims=True) - 1e-9
            return np.argwhere(stable)

        def triple_loop(game=game, moves=moves):
            return reference.pure_nash(game.first.worth, game.first.stage.welfare, moves)

        if actions <= 30:
            assert [tuple(p) for p in search().tolist()] == triple_loop()
        goal = ">= 50" if actions == 60 else ""
        label = f"pure Nash, 3 x {actions} actions"
        rows.append(
            per_item(
                label, goal, ("all profiles", search, 1), ("triple loop", triple_loop, 1), 3 if actions == 60 else 7
            )
        )
    return rows


def pivot_rows() -> list[list[str]]:
    rows = []
    for n in (4, 16, 64):
        instance = random_instance(0, m=6, questions=8, signals=4, n=n)

        def one_pass(instance=instance):
            stage = instance.ad_stage()
            return (stage.welfare[:, None] - stage.continuation).max(axis=0)

        def solves(instance=instance, n=n):
            found = [instance.welfare().max()]
            for i in range(n):
                values = instance.values.copy()
                values[i] = 0
                found.append(instance.welfare(values).max())
            return np.array(found[1:])

        np.testing.assert_allclose(one_pass(), solves(), atol=1e-12)
        goal = f">= {0.4 * (n + 1):.3g}"
        label = f"pivots, {n} advertisers"
        rows.append(per_item(label, goal, ("one pass", one_pass, 1), (f"{n + 1} solves", solves, 1)))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    assert np.allclose(ours(512, 1), plain_numpy(512), rtol=1e-12)
    assert np.isclose(objects(64), plain_numpy(64), rtol=1e-10)
    assert np.isclose(python_loop(16), plain_numpy(16), rtol=1e-10)
    rows = []
    many = 1 << 17
    for threads, goal in ((2, ">= 15"), (1, "")):
        mine = (f"numba, threads: {threads}", lambda threads=threads: ours(many, threads), many)
        rows.append(
            per_item("auctions, 7 mechanisms", goal, mine, ("NumPy, one thread", lambda: plain_numpy(4096), 4096))
        )
    mine = ("numba, threads: 2", lambda: ours(many, 2), many)
    rows.append(per_item("auctions", ">= 200", mine, ("objects, one by one", lambda: objects(64), 64)))
    rows.append(per_item("auctions", ">= 200", mine, ("plain Python (VCG alone)", lambda: python_loop(8), 8)))
    rows += nash_rows()
    rows += pivot_rows()
    growth = []
    for n in itertools.accumulate([1 << 15] * 3, lambda a, _: 4 * a):
        found = compare({"ours": lambda n=n: ours(n, 2)}, rounds=5, baseline="ours")
        growth.append((n, found.medians["ours"]))
    exponent = float(np.polyfit(np.log([n for n, _ in growth]), np.log([t for _, t in growth]), 1)[0])
    rows.append(["auctions, growth", f"{growth[0][0]}..{growth[-1][0]}", "", "", f"exponent {exponent:.3f}", ""])
    columns = ["what", "ours", "each", "beside", "takes times as long", "goal"]
    content = {"table": {"columns": columns, "rows": rows}}
    print(json.dumps(content, indent=2, ensure_ascii=False))
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
