"""Pictures, drawn into a matplotlib axes; every function returns it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .equilibrium import poa, sponsor_bid, sponsor_loss
from .errors import BackendUnavailable
from .families import engagement, intents
from .instance import Array, Instance
from .mechanisms import JointVCG, Modular, Outcome, Redistribution


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise BackendUnavailable("pictures need matplotlib: pip install 'sprigs-sponsored[plot]'") from error
    return Figure(layout="constrained").subplots()


def poa_curve(ax: Any = None, *, ratios: Sequence[float] = (2, 4, 8, 16, 32, 64)) -> Any:
    """Price of anarchy against the parameter of both families, log-log, beside their closed forms."""
    ax = _axes(ax)
    x = np.array(ratios, dtype=float)
    measured = [poa(engagement(1, 1 / r), Modular(), np.array([0.5, 1.0]) / r).value for r in x]
    ax.loglog(x, measured, "o", label="engagement, all pure equilibria")
    ax.loglog(x, x, "-", color="0.6", label="V / eps")
    truthful = [JointVCG().run(f).welfare / Modular().run(f).welfare for f in (intents(int(r)) for r in x)]
    ax.loglog(x, truthful, "s", mfc="none", label="intents, nobody leaves")
    ax.loglog(x, [(1 - 1e-3) / (1e-3 / m + (1 - 1e-3) / m) for m in x], ":", color="0.4", label="closed form")
    ticks = [int(r) for r in x]
    ax.set_xticks(ticks, [str(t) for t in ticks])
    ax.set_yticks(ticks, [str(t) for t in ticks])
    ax.minorticks_off()
    ax.set(xlabel="V / eps, or number of intents", ylabel="price of anarchy", title="Modular: no bound")
    ax.legend()
    return ax


def mechanism_bars(outcomes: Sequence[Outcome], ax: Any = None) -> Any:
    """Welfare of each mechanism, split into revenue, advertisers' surplus and what questions are worth themselves."""
    ax = _axes(ax)
    y = np.arange(len(outcomes))
    revenue = np.array([o.revenue for o in outcomes])
    surplus = np.array([o.surplus for o in outcomes])
    rest = np.array([o.welfare for o in outcomes]) - revenue - surplus
    ax.barh(y, revenue, label="revenue")
    ax.barh(y, surplus, left=revenue, label="advertisers")
    if np.abs(rest).max() > 1e-9:
        ax.barh(y, rest, left=revenue + surplus, label="question")
    ax.set(yticks=y, yticklabels=[o.mechanism for o in outcomes], xlabel="welfare", title="Who gets what")
    ax.invert_yaxis()
    ax.legend()
    return ax


def welfare_cdf(shares: Array, names: Sequence[str], ax: Any = None) -> Any:
    """Distribution over auctions of welfare as a share of full information; shares of shape (auctions, mechanisms)."""
    ax = _axes(ax)
    for j, name in enumerate(names):
        ax.ecdf(shares[:, j], label=name)
    ax.set(xlabel="welfare / full information", ylabel="share of auctions", title="How often how good", xlim=(0, 1.02))
    ax.legend()
    return ax


def rebate_tradeoff(ax: Any = None, *, V: float = 1.0, eps: float = 0.1) -> Any:
    """What a rebate to the sponsor cures and what it costs: price of anarchy, and efficiency lost in the ad stage."""
    ax = _axes(ax)
    rho = np.linspace(0, 1, 41)
    grid = np.arange(1, 21) * V / 20
    instance = engagement(V, eps)
    anarchy = [poa(instance, Modular(redistribution=Redistribution(float(r))), grid).value for r in rho]
    ax.step(rho, anarchy, where="post", label="price of anarchy (engagement)")
    ax.set(xlabel="share of revenue handed back, rho", ylabel="price of anarchy", title="The rebate's two sides")
    other = ax.twinx()
    lost = [100 * sponsor_loss(float(r)) / (2 / 3) for r in rho]
    over = [100 * (sponsor_bid(0.4, float(r)) / 0.4 - 1) / 10 for r in rho]
    other.plot(rho, lost, "C1--", label="ad stage: welfare lost, %")
    other.plot(rho, over, "C2:", label="overbid at value 0.4, tens of %")
    other.set(ylabel="ad stage", ylim=(0, 11))
    lines = [*ax.get_lines(), *other.get_lines()]
    ax.legend(lines, [line.get_label() for line in lines], loc="upper right")
    return ax


def posterior_tree(instance: Instance, question: int | None = None, ax: Any = None) -> Any:
    """From the query over a question's signals to the ads: probabilities, posteriors and winners."""
    ax = _axes(ax)
    question = JointVCG().run(instance).question if question is None else question
    stage = instance.ad_stage()
    mass = instance.signal_probability[question]
    shown = np.flatnonzero(mass > 1e-12)
    y = np.linspace(1, 0, len(shown)) if len(shown) > 1 else np.array([0.5])
    ax.plot(0, 0.5, "o", color="C0")
    ax.annotate(_short(instance.name("question", question), 34), (0, 0.5), xytext=(0, 12), textcoords="offset points")
    for signal, height in zip(shown, y, strict=True):
        ax.plot([0, 1], [0.5, height], color="0.6", linewidth=0.5 + 5 * mass[signal])
        posterior = instance.prior * instance.kernel[question, :, signal] / mass[signal]
        likely = int(posterior.argmax())
        winner = int(stage.winners[question, signal, 0])
        text = (
            f"{instance.name('signal', int(signal))} ({100 * mass[signal]:.0f} %)\n"
            f"{_short(instance.name('intent', likely), 30)} {100 * posterior[likely]:.0f} %\n"
            f"ad: {_short(instance.name('advertiser', winner), 24)}"
        )
        ax.plot(1, height, "o", color="C1")
        ax.annotate(text, (1, height), xytext=(8, 0), textcoords="offset points", va="center", fontsize="small")
    ax.set(xlim=(-0.15, 2.1), ylim=(-0.15, 1.15), title="Signals and ads")
    ax.set_axis_off()
    return ax


def _short(text: str, size: int) -> str:
    return text if len(text) <= size else text[: size - 1] + "…"
