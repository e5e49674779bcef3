"""Panels of simulated systems, and snapshots of cells: the data of the paper's experiments, and two sets more."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import sprigs
from sprigs.data import DataFile

from .errors import BackendUnavailable, SplineFlowError
from .files import read_npz
from .systems import System, make_system, simulate, simulate_noisy

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Panel:
    """Trajectories of a system.

    Attributes:
        times: [n], or [N, n] where each trajectory has its own.
        values: [N, n, d], complete.
        mask: [N, n, d] bool, True where observed, or None for all.
        system: what made them.
    """

    times: Array
    values: Array
    mask: npt.NDArray[np.bool_] | None
    system: System

    def split(self, share: float = 0.8) -> tuple[Panel, Panel]:
        """Return the first trajectories, and the rest (80 to 20 in the paper)."""
        cut = round(share * len(self.values))
        if not 0 < cut < len(self.values):
            raise SplineFlowError(f"a share of {share:g} of {len(self.values)} trajectories leaves one side empty")
        first, rest = (
            Panel(
                self.times[part] if self.times.ndim == 2 else self.times,
                self.values[part],
                None if self.mask is None else self.mask[part],
                self.system,
            )
            for part in (slice(None, cut), slice(cut, None))
        )
        return first, rest


@dataclass(frozen=True)
class Snapshots:
    """Populations seen at several times; no member is seen twice.

    Attributes:
        name: of the data.
        arrays: [n_k, d] float64 members at each time.
        times: [m + 1].
        unit: of time.
    """

    name: str
    arrays: tuple[Array, ...]
    times: Array
    unit: str

    @property
    def dims(self) -> int:
        """Return the number of dimensions."""
        return int(self.arrays[0].shape[1])


def make_ode(
    system: str | System,
    n: int = 1000,
    times: npt.ArrayLike | None = None,
    missing: float = 0.0,
    irregular: bool = False,
    seed: int = 42,
) -> Panel:
    """Simulate a deterministic system as the paper does: 0, 0.05 .. 9.95, one draw of constants.

    Args:
        system: a name of `systems.SYSTEMS`, or one made by `systems.make_system`.
        n: trajectories.
        times: [T] increasing, from 0 on.
        missing: probability that an entry is not observed; the first time and one more of each dimension always are.
        irregular: draw each trajectory's times uniformly over the same range instead (the first kept).
        seed: of constants, starts, times and mask.

    Raises:
        SplineFlowError: Arguments out of range.
    """
    return _panel(system, n, times, missing, irregular, seed, None)


def make_sde(
    system: str | System,
    n: int = 1000,
    times: npt.ArrayLike | None = None,
    missing: float = 0.0,
    irregular: bool = False,
    seed: int = 42,
    noise: float | None = None,
) -> Panel:
    """Simulate a stochastic system; `noise` replaces the diffusion where it is not zero. The rest as in `make_ode`.

    Raises:
        SplineFlowError: Arguments out of range.
    """
    if noise is not None and not 0 <= noise < np.inf:
        raise SplineFlowError(f"noise must be a diffusion, not negative; got {noise!r}")
    return _panel(system, n, times, missing, irregular, seed, True if noise is None else noise)


def _panel(
    system: str | System, n: int, times: npt.ArrayLike | None, missing: float, irregular: bool, seed: int, noise: Any
) -> Panel:
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
        raise SplineFlowError(f"n must be a positive number of trajectories; got {n!r}")
    if not 0 <= missing < 1:
        raise SplineFlowError(f"missing is a probability below 1; got {missing!r}")
    t = np.arange(200) * 0.05 if times is None else np.asarray(times, dtype=np.float64)
    if t.ndim != 1 or len(t) < 2 or not np.isfinite(t).all() or t[0] < 0 or (np.diff(t) <= 0).any():
        raise SplineFlowError("times must be [T], two or more, increasing from 0 on")
    rng = np.random.default_rng(seed)
    made = make_system(system, rng) if isinstance(system, str) else system
    x0 = made.start(int(n), rng)
    grid: Any = t
    if irregular:
        own = np.sort(rng.uniform(t[0], t[-1], (n, len(t) - 1)), axis=1)
        grid = np.concatenate([np.full((n, 1), t[0]), own], axis=1)
    if noise is None:
        values = simulate(made, x0, grid)
    else:
        diffusion = made.noise if noise is True else np.where(made.noise > 0, float(noise), 0.0)
        values = simulate_noisy(made, x0, grid, rng, diffusion)
    mask = None
    if missing > 0:
        mask = rng.uniform(size=values.shape) >= missing
        mask[:, 0] = True
        alone = mask.sum(axis=1) < 2
        mask[:, -1] |= alone
    return Panel(grid, values, mask, made)


_TIGON = "re-saved from Input/ of github.com/yutongo/TIGON as an .npz of x (cells, dimensions) and step (time index)"
_SCODE = "re-saved from data/ and data3/ of github.com/hmatsu1226/SCODE as an .npz of x (cells, 100 genes) and hours"
FILES = {
    name: DataFile("splineflow", f"{name}.npz", sha256, "MIT", how=how)
    for name, sha256, how in (
        ("emt", "c857653b8204ad671e3fa61f863ca94361c30e84ee57f86becd40bb34115b0c0", _TIGON),
        ("bifurcation", "f411b636ef782b66ec5602077d708f7840dfcdd5bddfd40393219521a7e23149", _TIGON),
        ("lineage", "9fae69a2a507df6fb426d436db84babba6382f9edbb412c3857c7128b29fdf7f", _TIGON),
        ("simulation", "c4749ec96afb10ac1ae0678ae0d57ea0d3d7d36d9f97eaab56d4f77fb03723c1", _TIGON),
        ("mesc_pre", "987c425139499a8b0b3c491aede2e08774ab1bcd892f3e2e5ccbb4eda575f7c6", _SCODE),
    )
}
R_LIBRARIES = ("/usr/local/lib/R/site-library", "/usr/lib/R/site-library", "/usr/lib/R/library")
HSMM_SHA256 = {
    "HSMM_expr_matrix.rda": "164937f63687f3fe3ec68f8509b7ba22b27b44bb7b3641ad462260675c4b015f",
    "HSMM_sample_sheet.rda": "599ddb58abd8795c6b8a06bb0b80c29c962043c3dce1ab32e46f6c87b140a622",
}
GUO_SHA256 = {"guo_norm.rda": "edf86b2ea39254b56628aaa61f16beab3c60be63aa1dbbd18bcd47f52a1bd01f"}


def from_anndata(adata: Any, time_key: str, use_rep: str = "X_pca", unit: str = "") -> Snapshots:
    """Return the cells of an AnnData object as snapshots, for `SplineFlow.fit_snapshots`.

    Args:
        adata: anndata's, or anything with `obs`, `obsm` and `X`.
        time_key: column of `obs`: numbers, or categories that read as numbers.
        use_rep: key of `obsm` whose [cells, d] are the states, or "X" for the expression matrix itself.
        unit: of time.

    Raises:
        SplineFlowError: There is no such column or representation, times that are no numbers, states not finite.
    """
    if time_key not in adata.obs:
        raise SplineFlowError(f"obs has no column {time_key!r}; it has {', '.join(map(str, adata.obs)) or 'none'}")
    try:
        when = np.asarray(adata.obs[time_key].astype(str).astype(float), dtype=np.float64)
    except ValueError as error:
        raise SplineFlowError(
            f"obs[{time_key!r}] must hold numbers, or categories that read as such: {error}"
        ) from error
    if use_rep != "X" and use_rep not in adata.obsm:
        raise SplineFlowError(f"obsm has no {use_rep!r}; it has {', '.join(adata.obsm) or 'none'} (or use 'X')")
    x = adata.X if use_rep == "X" else adata.obsm[use_rep]
    try:
        x = np.asarray(x.toarray() if hasattr(x, "toarray") else x, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise SplineFlowError(f"{use_rep} must hold numbers: {error}") from error
    if x.ndim != 2 or len(x) != len(when) or not (np.isfinite(x).all() and np.isfinite(when).all()):
        raise SplineFlowError(f"{use_rep} must be finite [cells, d], and every cell must have a time")
    return _grouped("cells", x, when, unit)


def load_emt() -> Snapshots:
    """TGFB1-induced epithelial-mesenchymal transition of A549 cells, 3133 cells in three latent dimensions, 0 h to 7 d.

    Cook and Vanderhyden (2020), Nat. Commun. 11:2142; dimensions as in TIGON's repository. Raises
    `sprigs.DataUnavailable` where the file is not to be had, as all loaders do.
    """
    return _tigon("emt", (0, 8, 24, 72, 168), "h", 3)


def load_bifurcation() -> Snapshots:
    """Human iPSC to cardiomyocytes, single-cell RT-qPCR, 1896 cells, four dimensions, days 0 to 5.

    Bargaje et al. (2017), PNAS 114:2271; dimensions as in TIGON's repository.
    """
    return _tigon("bifurcation", (0, 1, 1.5, 2, 2.5, 3, 4, 5), "d", 4)


def load_lineage() -> Snapshots:
    """Haematopoiesis with lineage tracing, 10 998 cells, two-dimensional layout, days 2, 4 and 6.

    Weinreb et al. (2020), Science 367:eaaw3381; dimensions as in TIGON's repository.
    """
    return _tigon("lineage", (2, 4, 6), "d", 2)


def load_simulation() -> Snapshots:
    """TIGON's synthetic toggle of three genes with growth, 2947 cells, times 0 to 4."""
    return _tigon("simulation", (0, 1, 2, 3, 4), "", 3)


def load_mesc(components: int = 5) -> Snapshots:
    """Mouse embryonic stem cells to primitive endoderm, 456 cells, 100 transcription factors, hours 0 to 72.

    RamDA-seq; data of Matsumoto et al. (2017). Reduced to principal components, divided by the first one's deviation.

    Args:
        components: how many, up to 100.
    """
    content = _content("mesc_pre", ("x", "hours"))
    x, hours = content["x"].astype(np.float64), content["hours"].astype(np.float64)
    if x.ndim != 2 or hours.shape != (len(x),) or not (np.isfinite(x).all() and np.isfinite(hours).all()):
        raise SplineFlowError("mesc_pre does not hold finite x [cells, genes] and hours [cells]")
    return _grouped("mesc", principal_components(x, components), hours, "h")


def load_hsmm(folder: str | Path | None = None, components: int = 5) -> Snapshots:
    """Human skeletal muscle myoblasts in differentiation medium, 271 cells, 0, 24, 48 and 72 hours.

    Trapnell et al. (2014), Nat. Biotechnol. 32:381, as in Bioconductor's HSMMSingleCell (Artistic-2.0; Debian:
    `apt install r-bioc-hsmmsinglecell`). log(1 + FPKM) of genes expressed in at least a tenth of the cells, the 500
    most variable, reduced to principal components divided by the first one's deviation.

    Args:
        folder: that holds HSMM_expr_matrix.rda and HSMM_sample_sheet.rda; without, R's libraries are looked through
            (R_LIBS, R_LIBS_USER, R_LIBS_SITE, and where Debian has them).
        components: how many.

    Raises:
        sprigs.DataUnavailable: The files are not there.
        sprigs.DataMismatch: They are others.
        BackendUnavailable: The package rdata, which reads R's files, is missing.
    """
    read = _r_files("HSMMSingleCell", HSMM_SHA256, folder)
    sheet, matrix = read["HSMM_sample_sheet"], read["HSMM_expr_matrix"]
    x = np.log1p(np.asarray(matrix, dtype=np.float64).T)
    hours = np.asarray([float(h) for h in sheet["Hours"]])
    if len(hours) != len(x) or not np.isfinite(x).all():
        raise SplineFlowError("the sample sheet and the matrix do not fit")
    common = x[:, (x > 0).mean(axis=0) >= 0.1]
    variable = common[:, np.argsort(-common.var(axis=0), kind="stable")[:500]]
    return _grouped("hsmm", principal_components(variable, components), hours, "h")


def load_guo(folder: str | Path | None = None, components: int = 5) -> Snapshots:
    """Mouse embryos from two cells to sixty-four, 428 cells, 48 genes by qPCR, time in divisions 1 to 6.

    Guo et al. (2010), Dev. Cell 18:675, as in Bioconductor's destiny (`guo_norm`, normalised to housekeeping genes;
    GPL-3; Debian: `apt install r-bioc-destiny`), reduced to principal components divided by the first one's deviation.

    Args:
        folder: that holds guo_norm.rda; without, R's libraries are looked through, as in `load_hsmm`.
        components: how many, up to 48.

    Raises:
        sprigs.DataUnavailable, sprigs.DataMismatch, BackendUnavailable: As in `load_hsmm`.
    """
    guo = _r_files("destiny", GUO_SHA256, folder)["guo_norm"]
    x = np.asarray(guo.assayData["exprs"], dtype=np.float64).T
    division = np.log2(np.asarray(guo.phenoData.data["num_cells"], dtype=np.float64))
    if x.ndim != 2 or division.shape != (len(x),) or not (np.isfinite(x).all() and np.isfinite(division).all()):
        raise SplineFlowError("guo_norm does not hold finite expression [genes, cells] and num_cells [cells]")
    return _grouped("guo", principal_components(x, components), division, "divisions")


def r_folders(package: str) -> list[Path]:
    """Return where an R package's data would lie in each of R's libraries."""
    named = [part for name in ("R_LIBS", "R_LIBS_USER", "R_LIBS_SITE") for part in os.environ.get(name, "").split(":")]
    return [Path(library, package, "data") for library in (*named, *R_LIBRARIES) if library]


def _r_files(package: str, files: dict[str, str], folder: str | Path | None) -> dict[str, Any]:
    """Return the objects of an R package's .rda files, each checked against its SHA-256 before it is read."""
    places = r_folders(package) if folder is None else [Path(folder)]
    found = next((p for p in places if all((p / name).is_file() for name in files)), None)
    if found is None:
        raise sprigs.DataUnavailable(
            f"{' and '.join(files)} not in {' or '.join(map(str, places))}: install Bioconductor's {package}"
            f" (Debian: apt install r-bioc-{package.lower()}), or pass the folder"
        )
    for name, sha256 in files.items():
        digest = hashlib.sha256((found / name).read_bytes()).hexdigest()
        if digest != sha256:
            raise sprigs.DataMismatch(f"{found / name} has SHA-256 {digest}, expected {sha256}: another release")
    try:
        import rdata
    except ModuleNotFoundError as missing:
        raise BackendUnavailable("reading R's files needs rdata: pip install rdata") from missing
    import warnings

    objects: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rdata's own, on attributes that are not needed
        for name in files:
            objects |= rdata.read_rda(found / name)
    return objects


def principal_components(x: Array, components: int) -> Array:
    """Return scores [n, components] on the first principal components, divided by the first one's deviation.

    Signs are such that the largest loading of each component is positive.
    """
    if isinstance(components, bool) or not isinstance(components, int) or not 1 <= components <= min(x.shape):
        raise SplineFlowError(f"components must be 1 to {min(x.shape)}; got {components!r}")
    centred = x - x.mean(axis=0)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    axes = axes[:components]
    axes = axes * np.sign(axes[np.arange(components), np.abs(axes).argmax(axis=1)])[:, None]
    scores: Array = centred @ axes.T
    reduced: Array = scores / scores[:, 0].std()
    return reduced


def _tigon(name: str, times: tuple[float, ...], unit: str, dims: int) -> Snapshots:
    content = _content(name, ("x", "step"))
    x, step = content["x"].astype(np.float64), content["step"]
    fits = x.ndim == 2 and x.shape[1] == dims and step.shape == (len(x),) and np.isfinite(x).all()
    if not fits or step.dtype.kind not in "iu" or not np.array_equal(np.unique(step), np.arange(len(times))):
        raise SplineFlowError(f"{name} does not hold finite x [cells, {dims}] and step [cells] of 0..{len(times) - 1}")
    return _grouped(name, x, np.asarray(times, dtype=np.float64)[step], unit)


def _content(name: str, keys: tuple[str, ...]) -> dict[str, npt.NDArray[Any]]:
    content = read_npz(FILES[name].path())
    if not set(keys) <= set(content):
        raise SplineFlowError(f"{name} must hold {' and '.join(keys)}; it holds {', '.join(sorted(content))}")
    for key in keys:
        if content[key].dtype.kind not in "fiu":
            raise SplineFlowError(f"{name}: {key} must hold numbers, not {content[key].dtype}")
    return content


def _grouped(name: str, x: Array, when: Array, unit: str) -> Snapshots:
    times = np.unique(when)
    return Snapshots(name, tuple(x[when == t] for t in times), times, unit)
