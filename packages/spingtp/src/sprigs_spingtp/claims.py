"""The paper's claims, run: `sprigs claims spingtp`. Bars are those of the plan, fixed before anything was run."""

from __future__ import annotations

import os
from collections.abc import Callable
from statistics import mean
from typing import Any

import numpy as np

from sprigs import Claim, DataUnavailable, Outcome

from .errors import BackendUnavailable


def _complete(fast: bool) -> Outcome:
    from .programs import COMPLETE, program
    from .reference import real_three_j
    from .three_j import kappa, kind_of, paths

    lmax = 4 if fast else 6
    degrees = tuple(range(lmax + 1))
    tensor = program(degrees, degrees, degrees, COMPLETE).dense
    worst = gaunt = 0.0
    weakest, count = np.inf, 0
    for l1, l2, l3 in paths(lmax, lmax, lmax):
        a, b, c = (slice(l * l, (l + 1) ** 2) for l in (l1, l2, l3))
        odd = kind_of(l1, l2, l3) == "odd"
        found = tensor[a, b, int(odd), c]
        worst = max(worst, float(np.abs(found - kappa(l1, l2, l3) * real_three_j(l1, l2, l3)).max()))
        weakest, count = min(weakest, kappa(l1, l2, l3)), count + 1
        if odd:
            gaunt = max(gaunt, float(np.abs(tensor[a, b, 0, c]).max()))
    return Outcome(
        measured=f"{count} paths, degrees up to {lmax}: residual {worst:.1e}, weakest {weakest:.3f}; odd paths through"
        f" scalar fields alone: {gaunt:.0e}",
        baseline="Clebsch-Gordan tensors; Gaunt product",
        holds=worst < 1e-12 and weakest > 0.27 and gaunt == 0.0,
    )


def _equivariant(fast: bool) -> Outcome:
    from .reference import rotation_matrices, spin_tensor_product

    lmax = 4 if fast else 8
    rng = np.random.default_rng(0)
    import torch

    from .functional import spin_tensor_product as ours

    worst = off = 0.0
    n = (lmax + 1) ** 2
    for _ in range(20):
        x, y = rng.normal(size=(2, 3, n))
        rotation = rotation_matrices(lmax, rng)
        before = ours(torch.tensor(x), torch.tensor(y), lmax, lmax, lmax)
        after = ours(torch.tensor(x @ rotation.T), torch.tensor(y @ rotation.T), lmax, lmax, lmax)
        for kind in before:
            worst = max(worst, float(np.abs(before[kind].numpy() @ rotation.T - after[kind].numpy()).max()))
    plain = spin_tensor_product(x, y, lmax, lmax, lmax)
    off = max(float(np.abs(plain[kind] - before[kind].numpy()).max()) for kind in plain)
    return Outcome(
        measured=f"20 rotations, degrees up to {lmax}: {worst:.1e}; from the Clebsch-Gordan sum: {off:.1e}",
        baseline="0",
        holds=max(worst, off) < 1e-12,
    )


def _cross(fast: bool) -> Outcome:
    from .shapes import learn_cross_product

    rows = [(learn_cross_product("complete", n)[0], learn_cross_product("gaunt", n)[1]) for n in (2, 3)]
    mine, theirs = max(a for a, _ in rows), max(b for _, b in rows)
    return Outcome(
        measured=f"mean squared error {mine:.1e}",
        baseline=f"Gaunt: R² {theirs:.4f}",
        holds=mine < 1e-6 and theirs <= 0.02,
    )


def _tetris(fast: bool) -> Outcome:
    from .shapes import learn_tetris

    seeds = (0,) if fast else (0, 1, 2)
    found = {p: [learn_tetris(p, seed=s) for s in seeds] for p in ("spin", "cg", "gaunt")}
    accuracy = {p: [float(r.accuracy) for r in rs] for p, rs in found.items()}
    flip = max(r.odd_error or 0.0 for r in found["spin"])
    shown = {p: ", ".join(f"{a:.1%}" for a in rs) for p, rs in accuracy.items()}
    return Outcome(
        measured=f"complete {shown['spin']}; odd readouts of mirror images cancel to {flip:.0e}",
        baseline=f"Clebsch-Gordan {shown['cg']}; Gaunt {shown['gaunt']}",
        holds=min(*accuracy["spin"], *accuracy["cg"], 1.0) == 1.0 and max(accuracy["gaunt"]) <= 0.875 and flip < 1e-5,
        note=f"{len(seeds)} seeds, 150 steps, 50 unseen turns of each shape",
    )


def _molecules(fast: bool) -> Outcome:
    from .shapes import handed_molecules, learn_molecules

    try:
        items = handed_molecules(400 if fast else 1200)
    except BackendUnavailable as missing:
        return Outcome(measured="not run", holds=None, note=str(missing))
    cut = len(items) * 3 // 4
    seeds = (0,) if fast else (0, 1, 2)
    epochs = 15 if fast else 40
    mine = [learn_molecules(items[:cut], items[cut:], "spin", epochs=epochs, seed=s) for s in seeds]
    theirs = learn_molecules(items[:cut], items[cut:], "gaunt", epochs=1)
    accuracy = mean(r.accuracy for r in mine)
    flip = max(r.flip for r in mine)
    error = (0.25 / (len(items) - cut)) ** 0.5
    return Outcome(
        measured=f"{accuracy:.1%} of {len(items) - cut} unseen molecules; logits of mirror images cancel to {flip:.0e}",
        baseline=f"Gaunt {theirs.accuracy:.1%} (largest logit {theirs.largest:.0e})",
        holds=accuracy > 0.5 + 4 * error and theirs.largest == 0.0 and flip < 1e-4,
        note=f"{cut} molecules to learn from, {len(seeds)} seeds; chance is 50 % ± {error:.1%}",
    )


def _crystals(fast: bool) -> Outcome:
    from .shapes import handed_crystals, learn_handedness, learn_rotatory

    names = ("quartz", "tellurium", "cinnabar")
    try:
        train, test = handed_crystals(60 if fast else 180, names, seed=0), handed_crystals(90, names, seed=1)
    except BackendUnavailable as missing:
        return Outcome(measured="not run", holds=None, note=str(missing))
    epochs = 15 if fast else 30
    seen, unseen = ([(s.graph, s.hand) for s in samples] for samples in (train, test))
    mine = learn_handedness(seen, unseen, "spin", r_max=4.0, epochs=epochs, batch_size=10)
    theirs = learn_handedness(seen, unseen, "gaunt", r_max=4.0, epochs=1)
    score, flip = learn_rotatory(train, test, "spin", r_max=4.0, epochs=epochs)
    baseline, _ = learn_rotatory(train, test, "gaunt", r_max=4.0, epochs=1)
    return Outcome(
        measured=f"hand of {mine.accuracy:.1%} of {len(test)} unseen crystals; triple product: R² {score:.3f}; mirror"
        f" images cancel to {max(mine.flip, flip):.0e}",
        baseline=f"Gaunt {theirs.accuracy:.1%}, R² {baseline:.3f} (all zero)",
        holds=mine.accuracy > 0.9 and score > 0.5 and theirs.largest == 0.0 and max(mine.flip, flip) < 1e-4,
        note="alpha-quartz, tellurium and cinnabar in P3_1 21 and P3_2 21, strained by 3 %, shaken by 0.03 angstrom",
    )


def _force_fields(fast: bool) -> Outcome:
    from .experiments import force_fields

    settings: dict[str, Any] = {"epochs": 1, "train": 20, "test": 20} if fast else {}
    seeds = (0,) if fast else (0, 1, 2)
    workers = 1 if fast else max(1, min(8, (os.cpu_count() or 1)))
    try:
        runs = force_fields(("3bpa", "acac"), seeds=seeds, workers=workers, **settings)
    except (DataUnavailable, BackendUnavailable) as missing:
        return Outcome(measured="not run", holds=None, note=str(missing))
    told, holds = [], True
    for dataset in ("3bpa", "acac"):
        of = {p: [r for r in runs if r["dataset"] == dataset and r["product"] == p] for p in ("spin", "cg", "gaunt")}
        for test in of["spin"][0]["force_mae"]:
            error = {p: 1e3 * mean(r["force_mae"][test] for r in rs) for p, rs in of.items()}
            told.append(f"{dataset} {test} {error['spin']:.1f} / {error['cg']:.1f} / {error['gaunt']:.1f}")
            holds &= error["spin"] <= 1.1 * error["cg"] and error["spin"] < error["gaunt"]
    return Outcome(
        measured="force MAE, meV/angstrom, complete / Clebsch-Gordan / Gaunt: " + "; ".join(told),
        baseline="Clebsch-Gordan with a weight for every path; Gaunt",
        holds=None if fast else bool(holds),
        note=f"16 channels, rank 2, 2 layers, degrees up to 2, {1 if fast else 20} epochs, mean of {len(seeds)} seeds"
        + ("; too short to judge" if fast else ""),
    )


def _cost(fast: bool) -> Outcome:
    from .costs import slope, times

    degrees = (2, 4, 6) if fast else (3, 4, 5, 6, 8, 10)
    large = (4, 6, 8) if fast else (6, 8, 10, 12, 14, 16)
    dense = times("dense", degrees)
    separable = times("separable", large)
    native = times("native", degrees)
    cg = times("cg", degrees[:3] if fast else (3, 4, 5, 6, 8))
    gaunt = times("dense", degrees, kinds=("even",))
    ratio = [dense[l] / gaunt[l] for l in degrees]
    slopes = {"dense": slope(dense), "separable": slope(separable), "native": slope(native), "cg": slope(cg)}
    shown = ", ".join(f"{name} L^{s:.2f}" for name, s in slopes.items())
    return Outcome(
        measured=f"{shown}; time over the Gaunt product's {min(ratio):.2f}..{max(ratio):.2f}",
        baseline="dense Clebsch-Gordan matrix product (cg); Gaunt product on the same grid",
        holds=slopes["dense"] <= 4.2
        and slopes["separable"] <= 3.3
        and max(ratio) <= 3.2
        and slopes["cg"] > slopes["dense"],
        note=f"degrees {degrees[0]}..{degrees[-1]}, separable {large[0]}..{large[-1]}; 1024 rows, float32, one thread",
    )


def _basis(fast: bool) -> Outcome:
    from .programs import kinds_of
    from .three_j import kind_of, paths, spin_kappa

    lmax = 4
    every = paths(lmax, lmax, lmax)
    ranks = {}
    for name, spins in (
        ("gaunt", "gaunt"),
        ("complete", "complete"),
        ("spins up to 2", [(0, 0), (1, -1), (2, -2), (1, 0), (0, 1)]),
    ):
        rows = []
        for s1, s2, part in kinds_of(spins):
            rows.append([spin_kappa(*p, s1, s2) if kind_of(*p) == part else 0.0 for p in every])
        ranks[name] = int(np.linalg.matrix_rank(np.array(rows))), int((np.abs(rows) > 1e-12).any(0).sum())
    return Outcome(
        measured="; ".join(
            f"{name}: {r} independent sets of path weights over {n} paths" for name, (r, n) in ranks.items()
        ),
        baseline=f"{len(every)} paths, degrees up to {lmax}",
        holds=ranks["gaunt"][1] < len(every) == ranks["complete"][1]
        and ranks["spins up to 2"][0] > ranks["complete"][0],
    )


def _elsewhere(fast: bool) -> Outcome:
    return Outcome(
        measured="not run",
        holds=None,
        note="SPICE-MACE-OFF and OC20 are too large for here: `read_frames` reads their extended XYZ and ASE databases",
    )


def _claim(id: str, statement: str, paper: str, here: str, bar: str, run: Callable[[bool], Outcome]) -> Claim:
    return Claim(id=id, statement=statement, paper=paper, here=here, bar=bar, run=run)


CLAIMS = (
    _claim(
        "complete",
        "Spin-weighted harmonics recover every antisymmetric path that the Gaunt product loses",
        "theorem",
        "every path, against its Clebsch-Gordan tensor",
        "residual < 1e-12, none below 0.27, Gaunt's odd paths exactly zero",
        _complete,
    ),
    _claim(
        "equivariant",
        "The product is E(3)-equivariant",
        "rigour",
        "random rotations of the inputs, float64",
        "< 1e-12",
        _equivariant,
    ),
    _claim(
        "basis",
        "Spins give a more expressive basis, parity-odd components included",
        "argument",
        "rank of the path weights that pairs of spins give",
        "complete reaches every path; more spins, more weightings",
        _basis,
    ),
    _claim(
        "cost",
        "... at the asymptotic cost of the Gaunt product, below the O(L^6) of Clebsch-Gordan",
        "O(L^3) against O(L^6)",
        "time against the degree, one thread",
        "exponents <= 4.2 (dense table), <= 3.3 (separable); <= 3.2 times Gaunt",
        _cost,
    ),
    _claim(
        "cross-product",
        "Antisymmetric interactions are learnt",
        "(argument)",
        "r_i x r_j summed over pairs, 512 samples",
        "error < 1e-6; Gaunt's R² <= 0.02",
        _cross,
    ),
    _claim(
        "tetris",
        "Tetris: the accuracy of the full product; Gaunt confuses the chiral pair",
        "(table)",
        "8 shapes, 3 layers, 8 channels",
        "100 % like Clebsch-Gordan; Gaunt 87.5 % at best",
        _tetris,
    ),
    _claim(
        "chiral-molecules",
        "Superior on chiral molecules",
        "(table)",
        "R or S of molecules with one stereocentre, RDKit geometries",
        "four standard errors above chance; Gaunt exactly at chance",
        _molecules,
    ),
    _claim(
        "crystals",
        "Superior on chiral and non-centrosymmetric materials",
        "(table)",
        "hand of strained crystals; a triple product",
        "over 90 %, R² over 0.5, exact sign flip; Gaunt zero",
        _crystals,
    ),
    _claim(
        "force-fields",
        "3BPA: accuracy comparable to the full product",
        "(table)",
        "3BPA and acetylacetone, 300 frames to learn from",
        "within 10 % of Clebsch-Gordan and better than Gaunt on each set",
        _force_fields,
    ),
    _claim(
        "spice-oc20",
        "SPICE-MACE-OFF and OC20: accuracy comparable to the full product",
        "(table)",
        "nothing",
        "(none)",
        _elsewhere,
    ),
)
