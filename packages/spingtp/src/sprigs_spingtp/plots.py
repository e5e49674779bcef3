"""Pictures, drawn into a matplotlib axes; every function returns it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import BackendUnavailable, SpinTPError
from .tables import harmonics, product_grid, tangent_frame
from .three_j import kappa


def _axes(ax: Any, projection: str | None = None) -> Any:
    if ax is not None:
        return ax
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise BackendUnavailable("pictures need matplotlib: pip install 'sprigs-spingtp[plot]'") from error
    return Figure(layout="constrained").add_subplot(projection=projection)


def path_strengths(lmax: int = 4, kind: str = "odd", ax: Any = None) -> Any:
    """Strength of every path of a kind: pairs of inputs down, output degree across; blank where there is no path."""
    ax = _axes(ax)
    pairs = [(l1, l2) for l1 in range(lmax + 1) for l2 in range(l1, lmax + 1)]
    table = np.array([[kappa(l1, l2, l3, kind) for l3 in range(2 * lmax + 1)] for l1, l2 in pairs])
    pairs = [pair for pair, strengths in zip(pairs, table, strict=True) if strengths.any()]
    table = table[table.any(axis=1)]
    image = ax.imshow(np.where(table > 0, table, np.nan), aspect="auto", cmap="viridis", vmin=0)
    ax.set_yticks(range(len(pairs)), [f"{l1} x {l2}" for l1, l2 in pairs], fontsize=7)
    what = "symmetric (scalar fields)" if kind == "even" else "antisymmetric (gradient fields)"
    ax.set(xlabel="degree of the output", title=f"Paths: {what}", xticks=range(2 * lmax + 1))
    ax.figure.colorbar(image, ax=ax, label="strength")
    return ax


def scaling(times: Mapping[str, Mapping[int, float]], ax: Any = None) -> Any:
    """Seconds against the highest degree, log-log, with the slope of each line beside its name."""
    ax = _axes(ax)
    for name, of_degree in times.items():
        degrees = np.array(sorted(of_degree))
        values = np.array([of_degree[int(l)] for l in degrees])
        slope = np.polyfit(np.log(degrees), np.log(values), 1)[0] if len(degrees) > 1 else np.nan
        ax.loglog(degrees, values, "o-", label=f"{name}: L^{slope:.1f}")
    ticks = sorted({l for of_degree in times.values() for l in of_degree})
    ax.set_xticks(ticks, [str(t) for t in ticks])
    ax.minorticks_off()
    ax.set(xlabel="highest degree L", ylabel="seconds", title="Cost of a product")
    ax.legend(fontsize=8)
    return ax


def confusion(counts: npt.ArrayLike, names: Sequence[str], ax: Any = None, *, title: str = "") -> Any:
    """Confusion matrix: what it is down, what it was taken for across, as shares of the row.

    Raises:
        SpinTPError: The counts are not square, or names are missing.
    """
    ax = _axes(ax)
    table = np.asarray(counts, float)
    if table.shape != (len(names), len(names)):
        raise SpinTPError(f"{len(names)} names need a square of counts; got shape {table.shape}")
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1)
    ax.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    for i, j in np.argwhere(shares > 0):
        color = "white" if shares[i, j] > 0.6 else "black"
        ax.text(j, i, f"{shares[i, j]:.0%}", ha="center", va="center", fontsize=7, color=color)
    ax.set_xticks(range(len(names)), names, rotation=45, ha="right", fontsize=8)
    ax.set_yticks(range(len(names)), names, fontsize=8)
    ax.set(title=title, xlabel="taken for", ylabel="shape")
    return ax


def force_parity(reference: npt.ArrayLike, predicted: npt.ArrayLike, ax: Any = None, *, label: str = "") -> Any:
    """Predicted force components against the reference's, eV/angstrom, with the mean absolute error."""
    ax = _axes(ax)
    x, y = np.asarray(reference, float).ravel(), np.asarray(predicted, float).ravel()
    if x.shape != y.shape or not len(x):
        raise SpinTPError(f"reference and prediction must have as many components; got {x.shape} and {y.shape}")
    low, high = float(min(x.min(), y.min())), float(max(x.max(), y.max()))
    ax.plot([low, high], [low, high], color="0.6", lw=1)
    ax.plot(x, y, ".", ms=2, label=f"{label} MAE {np.abs(x - y).mean():.3f}".strip())
    ax.set(xlabel="reference force, eV/Å", ylabel="predicted force, eV/Å", title="Forces", aspect="equal")
    ax.legend()
    return ax


def spin_quiver(l: int = 3, m: int = 2, ax: Any = None, *, rings: int = 14) -> Any:
    """The spin-1 harmonic of degree l and order m as arrows on the sphere: the unit-normalised gradient of Y_lm.

    The sphere is coloured by Y_lm itself.

    Raises:
        SpinTPError: No such harmonic: l must be at least 1, and |m| at most l.
    """
    if l < 1 or abs(m) > l:
        raise SpinTPError(f"a spin-1 harmonic has l >= 1 and |m| <= l; got l = {l}, m = {m}")
    ax = _axes(ax, "3d")
    beta, alpha, _ = product_grid(rings, 2 * rings)
    _, fb, fa = (f[l + m] for f in harmonics([l], beta, alpha))
    b, a = np.repeat(beta, len(alpha)), np.tile(alpha, len(beta))
    points = np.stack([np.sin(b) * np.sin(a), np.cos(b), np.sin(b) * np.cos(a)], axis=-1)
    e_b, e_a = tangent_frame(points)
    arrows = fb[:, None] * e_b + fa[:, None] * e_a
    fine_b, fine_a = np.linspace(1e-3, np.pi - 1e-3, 60), np.linspace(0, 2 * np.pi, 120)
    surface = harmonics([l], fine_b, fine_a)[0][l + m].reshape(60, 120)
    bb, aa = np.meshgrid(fine_b, fine_a, indexing="ij")
    colour = (surface / np.abs(surface).max() + 1) / 2
    import matplotlib

    # e3nn's polar axis is y: draw it upwards.
    faces = matplotlib.colormaps["coolwarm"](colour)
    sphere = np.sin(bb) * np.cos(aa), np.sin(bb) * np.sin(aa), np.cos(bb)
    style = {"rstride": 1, "cstride": 1, "alpha": 0.55, "linewidth": 0, "antialiased": False, "shade": False}
    ax.plot_surface(*sphere, facecolors=faces, **style)
    p, v = 1.02 * points[:, [2, 0, 1]], arrows[:, [2, 0, 1]]
    towards = p @ _view() > 0.05
    ax.quiver(*p[towards].T, *v[towards].T, length=0.35, color="black", lw=0.8, arrow_length_ratio=0.35)
    ax.view_init(elev=25, azim=35)
    ax.set_box_aspect((1, 1, 1), zoom=1.5)
    ax.set_axis_off()
    ax.set_title(f"Spin-1 harmonic, l = {l}, m = {m}: gradient of Y")
    return ax


def _view() -> npt.NDArray[np.float64]:
    elevation, azimuth = np.radians([25, 35])
    return np.array([np.cos(elevation) * np.cos(azimuth), np.cos(elevation) * np.sin(azimuth), np.sin(elevation)])
