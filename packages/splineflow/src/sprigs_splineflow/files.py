"""Observations as files: NumPy's .npz, CSV and .h5ad. Outside bytes are taken as hostile."""

from __future__ import annotations

import csv
import math
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import BackendUnavailable, SplineFlowError

Array = npt.NDArray[np.float64]
MOST_BYTES = 4 << 30  # of arrays in a file: a small archive can hold a large one


@dataclass(frozen=True)
class Observations:
    """Trajectories, or snapshots, read from a file.

    Attributes:
        times: [n] or [N, n] for trajectories, [m + 1] for snapshots.
        values: [N, n, d] trajectories, NaN where missing; None for snapshots.
        mask: [N, n, d] bool, or None where all is observed.
        snapshots: arrays [n_k, d]; None for trajectories.
        names: of the d dimensions.
        cond: [N, c] conditions, or None.
    """

    times: Array
    values: Array | None
    mask: npt.NDArray[np.bool_] | None
    snapshots: list[Array] | None
    names: tuple[str, ...]
    cond: Array | None = None


def read_observations(file: str | Path, time_key: str = "time", use_rep: str = "X_pca") -> Observations:
    """Read trajectories or snapshots.

    `.npz` with `times` [n] or [N, n] and `values` [N, n, d] (NaN for missing, or `mask`; optionally `cond` [N, c])
    holds trajectories; with `x` [cells, d] and `time` [cells] it holds snapshots. A CSV file with the columns `id`,
    `time` and one for each dimension holds trajectories (an empty field is missing); without `id`, snapshots. `.h5ad`
    (anndata) holds snapshots, read with `datasets.from_anndata`.

    Args:
        file: its name says what it is.
        time_key, use_rep: column of `obs` and key of `obsm` of an .h5ad file.

    Raises:
        SplineFlowError: The file cannot be read or holds something else.
        BackendUnavailable: An .h5ad file without the package anndata.
    """
    path = Path(file)
    if path.suffix == ".h5ad":
        return _from_h5ad(path, time_key, use_rep)
    if path.suffix == ".npz":
        return _from_arrays(read_npz(path), path)
    if path.suffix == ".csv":
        return _from_rows(path)
    raise SplineFlowError(f"{path} must end in .npz, .csv or .h5ad")


def read_npz(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read all arrays of an .npz file, none of them pickled.

    Raises:
        SplineFlowError: The file is missing, damaged, or larger inside than 4 GiB.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > MOST_BYTES:
            raise SplineFlowError(f"{path} holds {size / 2**30:.1f} GiB, more than {MOST_BYTES >> 30}")
        with np.load(path, allow_pickle=False) as content:
            return {name: content[name] for name in content.files}
    except SplineFlowError:
        raise
    except (OSError, ValueError, EOFError, KeyError, NotImplementedError, zipfile.BadZipFile) as error:
        raise SplineFlowError(f"{path} cannot be read as an .npz file: {error}") from error
    except Exception as error:  # zlib's and struct's errors have no common base but this
        raise SplineFlowError(f"{path} is damaged: {error}") from error


def _from_arrays(content: dict[str, npt.NDArray[Any]], path: Path) -> Observations:
    for name, array in content.items():
        if array.dtype.kind not in "fiub":
            raise SplineFlowError(f"{path}: {name} must hold numbers, not {array.dtype}")
    if {"times", "values"} <= set(content):
        values = content["values"].astype(np.float64)
        if values.ndim != 3:
            raise SplineFlowError(f"{path}: values must be [trajectories, times, dimensions]; got shape {values.shape}")
        mask = content.get("mask")
        missing = ~np.isnan(values)
        seen = missing if mask is None else mask.astype(bool)
        cond = content.get("cond")
        return Observations(
            content["times"].astype(np.float64), values, None if seen.all() else seen, None, _names(values.shape[2]),
            None if cond is None else cond.astype(np.float64),
        )  # fmt: skip
    if {"x", "time"} <= set(content):
        return _snapshots(content["x"].astype(np.float64), content["time"].astype(np.float64), None, path)
    raise SplineFlowError(f"{path} must hold times and values, or x and time; it holds {', '.join(sorted(content))}")


def _from_h5ad(path: Path, time_key: str, use_rep: str) -> Observations:
    from .datasets import from_anndata

    try:
        import anndata
    except ModuleNotFoundError as missing:
        raise BackendUnavailable("reading .h5ad needs anndata: pip install 'sprigs-splineflow[anndata]'") from missing
    try:
        content = anndata.read_h5ad(path)
    except Exception as error:  # h5py's and anndata's errors have no common base but this
        raise SplineFlowError(f"{path} cannot be read as an .h5ad file: {error}") from error
    found = from_anndata(content, time_key, use_rep)
    names = tuple(map(str, content.var_names)) if use_rep == "X" else _names(found.dims)
    return Observations(found.times, None, None, list(found.arrays), names)


def _snapshots(x: Array, time: Array, names: tuple[str, ...] | None, path: Path) -> Observations:
    if x.ndim != 2 or time.shape != (len(x),) or not np.isfinite(time).all() or not np.isfinite(x).all():
        raise SplineFlowError(f"{path}: x must be finite [cells, dimensions] and time [cells]")
    times = np.unique(time)
    arrays = [x[time == t] for t in times]
    return Observations(times, None, None, arrays, names or _names(x.shape[1]))


def _from_rows(path: Path) -> Observations:
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            rows = list(csv.reader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SplineFlowError(f"{path} cannot be read: {error}") from error
    header = [cell.strip() for cell in rows[0]] if rows else []
    if "time" not in header or len(set(header)) < len(header):
        raise SplineFlowError(f"{path} needs a header with the column time and no name twice; got {header}")
    names = tuple(name for name in header if name not in ("id", "time"))
    if not names:
        raise SplineFlowError(f"{path} has no column besides id and time")
    at = {name: i for i, name in enumerate(header)}
    table = []
    for line, row in enumerate(rows[1:], 2):
        if not any(cell.strip() for cell in row):
            continue
        if len(row) != len(header):
            raise SplineFlowError(f"{path}, line {line}: {len(row)} fields instead of {len(header)}")
        time = _number(row[at["time"]], path, line)
        x = [_number(row[at[name]], path, line) for name in names]
        if math.isnan(time):
            raise SplineFlowError(f"{path}, line {line}: there is no time")
        table.append((row[at["id"]].strip() if "id" in at else "", time, x))
    if not table:
        raise SplineFlowError(f"{path} has no rows")
    if "id" not in at:
        return _snapshots(np.array([x for _, _, x in table]), np.array([t for _, t, _ in table]), names, path)
    groups: dict[str, list[tuple[float, list[float]]]] = {}
    for who, time, x in table:
        groups.setdefault(who, []).append((time, x))
    longest = max(len(g) for g in groups.values())
    times = np.zeros((len(groups), longest))
    values = np.full((len(groups), longest, len(names)), np.nan)
    for i, group in enumerate(groups.values()):
        group.sort(key=lambda item: item[0])
        times[i, : len(group)] = [t for t, _ in group]
        values[i, : len(group)] = [x for _, x in group]
    mask = ~np.isnan(values)
    shared = mask.all() and (times == times[0]).all()
    return Observations(times[0] if shared else times, values, None if mask.all() else mask, None, names)


def _number(cell: str, path: Path, line: int) -> float:
    text = cell.strip()
    if text in ("", "NA", "NaN", "nan"):
        return math.nan
    try:
        value = float(text)
    except ValueError:
        value = math.inf
    if math.isinf(value):
        raise SplineFlowError(f"{path}, line {line}: {text!r} is no finite number")
    return value


def _names(dims: int) -> tuple[str, ...]:
    return tuple(f"x{j + 1}" for j in range(dims))


def write_paths(file: str | Path, times: Array, states: Array, names: tuple[str, ...]) -> None:
    """Write rollouts [N, T, d] (or [n, N, T, d] samples) as .npz (`times`, `values`) or CSV (`id`, `time`, dimensions).

    Raises:
        SplineFlowError: The name ends in something else.
    """
    path = Path(file)
    if path.suffix == ".npz":
        np.savez_compressed(path, times=times, values=states)
        return
    if path.suffix != ".csv":
        raise SplineFlowError(f"{path} must end in .npz or .csv")
    flat = states.reshape(-1, *states.shape[-2:])
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "time", *names])
        for i, row in enumerate(flat):
            writer.writerows([i, repr(float(t)), *(f"{v:.9g}" for v in x)] for t, x in zip(times, row, strict=True))
