"""The product beside what people use today, on one thread of the CPU; results are checked equal first.

python benchmarks/bench_speed.py [-o benchmarks/results/speed.json]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sprigs.bench import compare
from sprigs_spingtp import SpinTensorProduct, spin_tensor_product
from sprigs_spingtp.costs import slope
from sprigs_spingtp.reference import real_three_j

ROWS, CHANNELS = 64, 16  # 1024 functions
COLUMNS = ["what", "ours", "each", "beside", "each", "takes times as long", "goal"]


Timed = tuple[str, Callable[[], Any]]


def row(what: str, goal: str, ours: Timed, peer: Timed, rounds: int = 15, check: Any = None) -> list[str]:
    """Time two callables in turn; the ratio is the peer's time over ours."""

    def agree(results: Any) -> None:
        one, two = (np.asarray(_plain(results[name])) for name in ("ours", "peer"))
        np.testing.assert_allclose(one, two, atol=2e-4 * max(1.0, float(np.abs(two).max())))

    found = compare(
        {"ours": ours[1], "peer": peer[1]}, check=check or agree, rounds=rounds, warmup=2, baseline="ours", threads=1
    )
    ratio, low, high = found.ratios["peer"]
    each = [f"{1e3 * found.medians[name]:.3g} ms" for name in ("ours", "peer")]
    return [what, ours[0], each[0], peer[0], each[1], f"{ratio:.3g} ({low:.3g}..{high:.3g})", goal]


def _plain(result: Any) -> Any:
    if isinstance(result, (tuple, list)):
        return np.concatenate([np.asarray(_plain(r)).ravel() for r in result])
    return result.detach().numpy() if isinstance(result, torch.Tensor) else result


def natural(lmax: int, mul: int) -> str:
    return "+".join(f"{mul}x{l}{'eo'[l % 2]}" for l in range(lmax + 1))


def every(lmax: int, mul: int) -> str:
    """What the product of natural irreps reaches, up to lmax."""
    return "+".join(f"{mul}x{l}{p}" for l in range(lmax + 1) for p in "eo" if (l, p) != (0, "o"))


def e3nn_product(ours: SpinTensorProduct) -> Any:
    """Return e3nn's product with "uuu" instructions and the same path weights."""
    from e3nn import o3

    one, two, out = (o3.Irreps(str(i)) for i in (ours.irreps_in1, ours.irreps_in2, ours.irreps_out))
    instructions = [
        (i, j, k, "uuu", True)
        for i, a in enumerate(one)
        for j, b in enumerate(two)
        for k, c in enumerate(out)
        if c.ir in a.ir * b.ir
    ]
    theirs = o3.TensorProduct(one, two, out, instructions)
    weights = {tuple(str(ir) for ir in path[:3]): w for path, w in ours.path_weights().items()}
    with torch.no_grad():
        pieces = []
        for i in theirs.instructions:
            key = (str(one[i.i_in1].ir), str(two[i.i_in2].ir), str(out[i.i_out].ir))
            pieces.append(weights[key] / i.path_weight)
        theirs.weight.copy_(torch.cat(pieces))
    return theirs


def beside_e3nn() -> list[list[str]]:
    rows = []
    for lmax, goal in ((3, ">= 20"), (6, ">= 10"), (8, ">= 10")):
        rows += one_degree(lmax, natural(lmax, CHANNELS), every(lmax, CHANNELS), f"L = {lmax}", goal, lmax < 8)
    both = "+".join(f"{CHANNELS}x{l}{p}" for l in range(4) for p in "eo")
    return rows + one_degree(3, both, both, "L = 3, both parities", ">= 20", True)


def one_degree(lmax: int, irreps: str, out: str, name: str, goal: str, more: bool) -> list[list[str]]:
    ours = SpinTensorProduct(irreps, irreps, out)
    theirs = e3nn_product(ours)
    x, y = ours.irreps_in1.randn(ROWS, -1), ours.irreps_in2.randn(ROWS, -1)
    a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
    rounds = 21 if more else 9

    def both(product: Any) -> Any:
        return torch.autograd.grad(product(a, b).pow(2).sum(), (a, b, product.weight))[:2]

    with torch.no_grad():
        peer = ("e3nn uuu", lambda: theirs(x, y))
        rows = [row(f"forward, {name}", goal, ("fused", lambda: ours(x, y)), peer, rounds)]
    if not more:
        return rows
    pair = ("fused", lambda: both(ours)), ("e3nn uuu", lambda: both(theirs))
    rows.append(row(f"forward and backward, {name}", ">= 8", *pair, rounds))
    paths = SpinTensorProduct(irreps, irreps, out, mode="paths")
    paths.load_state_dict({"weight": theirs.weight.detach()})
    with torch.no_grad():
        rows.append(row(f"forward, {name}", "", ("a weight for every path", lambda: paths(x, y)), peer, rounds))
    return rows


def beside_matrices() -> list[list[str]]:
    """One matrix product with the whole Clebsch-Gordan tensor; Gaunt's product on the same grid."""
    rows = []
    for lmax, goal in ((1, ""), (2, ""), (3, ""), (4, "crossover"), (6, ""), (8, ">= 3")):
        x, y = torch.randn(2, ROWS * CHANNELS, (lmax + 1) ** 2)

        def run(backend: str, kinds: tuple[str, ...] = ("even", "odd"), x: Any = x, y: Any = y, l: int = lmax) -> Any:
            return tuple(spin_tensor_product(x, y, l, l, l, kinds=kinds, backend=backend).values())

        cg = ("dense Clebsch-Gordan", lambda run=run: run("cg"))
        rows.append(row(f"L = {lmax}", goal, ("auto (native)", lambda run=run: run("auto")), cg))
        rows.append(row(f"L = {lmax}", goal, ("dense grid", lambda run=run: run("dense")), cg))
    return rows


def beside_gaunt() -> list[list[str]]:
    rows = []
    for lmax in (2, 3, 4, 6, 8, 10):
        x, y = torch.randn(2, ROWS * CHANNELS, (lmax + 1) ** 2)
        for backend in ("dense", "native"):
            first = spin_tensor_product(x, y, lmax, lmax, lmax, backend=backend)["even"]
            alone = spin_tensor_product(x, y, lmax, lmax, lmax, kinds=("even",), backend=backend)["even"]
            np.testing.assert_allclose(first, alone, atol=1e-3)

            def run(kinds: tuple[str, ...], x: Any = x, y: Any = y, l: int = lmax, backend: str = backend) -> Any:
                return spin_tensor_product(x, y, l, l, l, kinds=kinds, backend=backend)["even"]

            found = compare(
                {"gaunt": lambda run=run: run(("even",)), "complete": lambda run=run: run(("even", "odd"))},
                check=lambda results: None, rounds=25, warmup=3, baseline="gaunt", threads=1,
            )  # fmt: skip
            ratio, low, high = found.ratios["complete"]
            each = [f"{1e3 * found.medians[name]:.3g} ms" for name in ("complete", "gaunt")]
            rows.append([f"L = {lmax}", f"complete, {backend}", each[0], "Gaunt, the same grid", each[1],
                         f"{1 / ratio:.2g}: ours takes {ratio:.3g} ({low:.3g}..{high:.3g})", "<= 3.2"])  # fmt: skip
    return rows


def beside_e3nn_jax() -> list[list[str]]:
    """JAX, jitted: e3nn_jax's product of every channel, its paths weighted and summed."""
    import e3nn_jax
    import jax
    import jax.numpy as jnp

    from sprigs_spingtp import jax as twin
    from sprigs_spingtp.irreps import Irreps
    from sprigs_spingtp.plan import fused_plan
    from sprigs_spingtp.programs import COMPLETE

    rows = []
    for lmax in (3, 6):
        one, out = natural(lmax, CHANNELS), every(lmax, CHANNELS)
        rng = np.random.default_rng(0)
        x, y = (jnp.asarray(rng.normal(size=(ROWS, Irreps(one).dim)), jnp.float32) for _ in range(2))
        plan = fused_plan(Irreps(one), Irreps(one), Irreps(out), COMPLETE)
        strength = {tuple(str(ir) for ir in path[:3]): s for path, s in plan.paths}
        keep = [e3nn_jax.Irrep(str(b.ir)) for b in Irreps(out)]
        single = e3nn_jax.Irreps(natural(lmax, 1))
        order = sorted(
            ((c, str(a), str(b)) for _, a in single for _, b in single for c in a * b if c in keep), key=lambda t: t[0]
        )
        coefficients = {
            str(ir): np.array([strength[a, b, str(c)] / np.sqrt(2 * c.l + 1) for c, a, b in order if c == ir])
            for ir in keep
        }

        def theirs(x: Any, y: Any, one: str = one, keep: Any = keep, coefficients: Any = coefficients) -> Any:
            a, b = (e3nn_jax.IrrepsArray(one, t).mul_to_axis() for t in (x, y))
            product = e3nn_jax.tensor_product(a, b, filter_ir_out=keep)
            summed = {
                str(ir): jnp.einsum("rcpm,p->rcm", chunk, jnp.asarray(coefficients[str(ir)], jnp.float32))
                for (_, ir), chunk in zip(product.irreps, product.chunks, strict=True)
            }
            return jnp.concatenate([summed[str(ir)].reshape(len(x), -1) for ir in keep], axis=1)

        mine = jax.jit(lambda x, y, one=one, out=out: twin.spin_tensor_product_irreps(x, y, one, one, out))
        peer = jax.jit(theirs)

        def agree(results: Any, lmax: int = lmax) -> None:
            ours, other = np.asarray(results["ours"]), np.asarray(results["peer"])
            np.testing.assert_allclose(ours, other, atol=1e-3)

        rows.append(
            row(f"JAX, forward, L = {lmax}", "", ("twin, jit", lambda x=x, y=y, f=mine: f(x, y).block_until_ready()),
                ("e3nn_jax, jit", lambda x=x, y=y, f=peer: f(x, y).block_until_ready()), check=agree)
        )  # fmt: skip
    return rows


def beside_cuequivariance() -> list[list[str]]:
    """CuEquivariance's channel-wise product with the harmonics of an edge; on the CPU it runs without its kernels."""
    try:
        import cuequivariance as cue
        import cuequivariance_torch as cuet
    except ModuleNotFoundError:
        return [["convolution", "", "", "cuEquivariance", "not installed", "", ""]]
    rows = []
    for lmax in (3, 6):
        out = every(lmax, CHANNELS)
        ours = SpinTensorProduct(natural(lmax, CHANNELS), natural(lmax, 1), out)
        keep = [cue.O3(b.ir.l, b.ir.p) for b in ours.irreps_out]
        theirs = cuet.ChannelWiseTensorProduct(
            cue.Irreps("O3", natural(lmax, CHANNELS)), cue.Irreps("O3", natural(lmax, 1)), filter_irreps_out=keep,
            layout=cue.mul_ir, internal_weights=False, shared_weights=True,
        )  # fmt: skip
        x, y = ours.irreps_in1.randn(ROWS, -1), ours.irreps_in2.randn(ROWS, -1)
        # One path at a time tells what each of their weights multiplies.
        weights = {tuple(str(ir) for ir in path[:3]): w for path, w in ours.path_weights().items()}
        with torch.no_grad():
            w, blocks = _match(theirs, ours, weights, x, y)

            def peer(theirs: Any = theirs, w: Any = w, x: Any = x, y: Any = y, blocks: Any = blocks) -> Any:
                product = theirs(x, y, w)
                return torch.cat([sum(product[:, a:b] for a, b in parts) for parts in blocks], dim=1)

            mine = lambda p=ours, x=x, y=y: p(x, y)  # noqa: E731
            rows.append(
                row(f"with an edge's harmonics, L = {lmax}", "", ("fused", mine), ("cuEquivariance, CPU", peer))
            )
    return rows


def _match(
    theirs: Any, ours: SpinTensorProduct, weights: Any, x: Any, y: Any
) -> tuple[Any, list[list[tuple[int, int]]]]:
    n, mul = theirs.weight_numel, CHANNELS
    paths = n // mul
    found: dict[str, list[tuple[int, int]]] = {str(b.ir): [] for b in ours.irreps_out}
    w = torch.zeros(1, n)
    ends = [0]
    irs = []
    for part in theirs.irreps_out:
        for _ in range(part.mul // mul):
            ends.append(ends[-1] + mul * part.ir.dim)
            irs.append(f"{part.ir.l}{'e' if part.ir.p == 1 else 'o'}")
    slices = dict(zip([str(b.ir) for b in ours.irreps_in1], ours.irreps_in1.slices(), strict=True))
    slices2 = dict(zip([str(b.ir) for b in ours.irreps_in2], ours.irreps_in2.slices(), strict=True))
    for p in range(paths):
        one = torch.zeros(1, n)
        one[0, p * mul : (p + 1) * mul] = 1
        out = theirs(x, y, one)
        (block,) = [k for k in range(len(irs)) if out[:, ends[k] : ends[k + 1]].abs().max() > 1e-6]
        for (a, b, c), value in weights.items():
            if c != irs[block]:
                continue
            tensor = torch.tensor(real_three_j(int(a[:-1]), int(b[:-1]), int(c[:-1]))).float()
            left = x[:, slices[a]].reshape(len(x), mul, -1)
            expected = torch.einsum("rca,rb,abd->rcd", left, y[:, slices2[b]], tensor).reshape(len(x), -1)
            got = out[:, ends[block] : ends[block + 1]]
            scale = float((got * expected).sum() / (expected * expected).sum())
            if (got - scale * expected).abs().max() < 1e-3:
                w[0, p * mul : (p + 1) * mul] = value / scale
                found[c].append((ends[block], ends[block + 1]))
                break
        else:
            raise AssertionError(f"path {p} of cuEquivariance was not recognised")
    return w, [found[str(b.ir)] for b in ours.irreps_out]


def growth() -> dict[str, dict[int, float]]:
    """Median seconds of 1024 functions against the degree, for each way."""
    from sprigs_spingtp.costs import times

    degrees = (3, 4, 5, 6, 8, 10)
    found = {
        "dense Clebsch-Gordan": times("cg", (3, 4, 5, 6, 8)),
        "complete, dense grid": times("dense", degrees),
        "Gaunt, dense grid": times("dense", degrees, kinds=("even",)),
        "complete, separable": times("separable", (4, 6, 8, 10, 12, 14, 16)),
        "complete, native": times("native", (3, 4, 5, 6, 8, 10, 12)),
    }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rows = beside_e3nn() + beside_matrices() + beside_gaunt()
    try:
        rows += beside_e3nn_jax()
    except ModuleNotFoundError as missing:
        rows.append(["JAX", "", "", "e3nn_jax", f"not run: {missing}", "", ""])
    rows += beside_cuequivariance()
    times = growth()
    for name, of_degree in times.items():
        goal = {"complete, separable": "<= 3.3", "complete, dense grid": "<= 4.2"}.get(name, "")
        degrees = sorted(of_degree)
        rows.append(
            [f"growth, L = {degrees[0]}..{degrees[-1]}", name, "", "", "", f"exponent {slope(of_degree):.2f}", goal]
        )
    content = {"table": {"columns": COLUMNS, "rows": rows}, "seconds": times}
    print(json.dumps(content["table"], indent=2, ensure_ascii=False))
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        from sprigs_spingtp import plots

        ax = plots.scaling(times)
        ax.figure.set_size_inches(7, 5)
        ax.figure.savefig(Path(__file__).parents[1] / "docs" / "scaling.png", dpi=110)


if __name__ == "__main__":
    main()
