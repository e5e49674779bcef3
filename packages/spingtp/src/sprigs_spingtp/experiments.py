"""The force fields behind the claims, trained at a scale for a laptop."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from sprigs.data import DataFile

from .atoms import Graph, graph_of, isolated_energies, read_frames
from .nn import SpinForceField
from .training import TrainingConfig, evaluate, fit, statistics

_COMMIT = "https://raw.githubusercontent.com/davkovacs/BOTNet-datasets/29e6d467317e4b5967b7ea5cbee54de953fa0d45"
_HASHES = {
    "3bpa/train_300K.xyz": (
        "dataset_3BPA/train_300K.xyz",
        "d109971fab90e2231ad931a83eb704c8d940f5c7d7a8de27fe3b84ea18634c0a",
    ),
    "3bpa/train_mixedT.xyz": (
        "dataset_3BPA/train_mixedT.xyz",
        "bc108532964b2ed259eaaabf82e5dfaffa5bda9ac384fc2afabcce192a49250b",
    ),
    "3bpa/iso_atoms.xyz": (
        "dataset_3BPA/iso_atoms.xyz",
        "e12a2465a2612bf38fd5dabdf64d4b57fc58ce9610a858c54ea1142d517c053f",
    ),
    "acac/train_300K.xyz": (
        "dataset_acac/train_300K.xyz",
        "8f5706d6902360555a5be59395612d2afc3489a75688388a58e7275fdad68af3",
    ),
    "acac/test_MD_300K.xyz": (
        "dataset_acac/test_MD_300K.xyz",
        "2291f3186a3cc6a5e05e92952c84a9237ca53f862d78fd3316a769360719ec43",
    ),
    "acac/test_MD_600K.xyz": (
        "dataset_acac/test_MD_600K.xyz",
        "d5a5bba154ec43f915eb7529f86ec3af60e6f911743859daba030181a0378ff7",
    ),
    "acac/test_H_transfer.xyz": (
        "dataset_acac/test_H_transfer.xyz",
        "ea4d76c79cf4cfccd2f93eaf755172b0b648886c4907eb0f82dff07a77530743",
    ),
    "acac/isolated_atoms.xyz": (
        "dataset_acac/isolated_atoms.xyz",
        "b74f321b453374621b447d65c60979f70df1b7182c8ee0215388b2c574f33823",
    ),
}


def _declared(name: str) -> DataFile:
    return DataFile("spingtp", name, _HASHES[name][1], "MIT", f"{_COMMIT}/{_HASHES[name][0]}")


# Force fields


@dataclass(frozen=True)
class Dataset:
    """Frames for a force field.

    Attributes:
        train, validation: graphs to learn from.
        tests: name -> graphs that were not seen.
        energies: of isolated atoms, eV.
    """

    train: list[Graph]
    validation: list[Graph]
    tests: dict[str, list[Graph]]
    energies: dict[int, float]


def three_bpa(r_max: float, train: int = 300) -> Dataset:
    """3-(benzyloxy)pyridin-2-amine: 300 K to learn from, the rest and mixed temperatures to test on.

    The published test files (300 K, 600 K, 1200 K, dihedral slices) are not used: frames of the two training files are
    held out.

    Raises:
        DataUnavailable: The files are neither in the mirror nor to be fetched.
    """
    cold, mixed = (read_frames(_declared(f"3bpa/{name}.xyz").path()) for name in ("train_300K", "train_mixedT"))
    order = np.random.default_rng(0).permutation(len(cold))
    graphs = [graph_of(cold[k], r_max) for k in order]
    # A few frames are in both files.
    known = {frame.positions.tobytes() for frame in cold}
    hot = [graph_of(frame, r_max) for frame in mixed if frame.positions.tobytes() not in known]
    tests = {"300 K": graphs[train + 50 :], "mixed T": hot}
    energies = isolated_energies(read_frames(_declared("3bpa/iso_atoms.xyz").path()))
    return Dataset(graphs[:train], graphs[train : train + 50], tests, energies)


def acetylacetone(r_max: float, train: int = 300) -> Dataset:
    """Acetylacetone: 300 K to learn from; 300 K and 600 K dynamics and the proton's transfer to test on.

    Raises:
        DataUnavailable: The files are neither in the mirror nor to be fetched.
    """
    names = ("train_300K", "test_MD_300K", "test_MD_600K", "test_H_transfer")
    cold, same, hot, transfer = (read_frames(_declared(f"acac/{name}.xyz").path()) for name in names)
    order = np.random.default_rng(0).permutation(len(cold))
    graphs = [graph_of(cold[k], r_max) for k in order]
    tests = {
        name: [graph_of(frame, r_max) for frame in frames]
        for name, frames in (("300 K", same), ("600 K", hot), ("H transfer", transfer))
    }
    energies = isolated_energies(read_frames(_declared("acac/isolated_atoms.xyz").path()))
    return Dataset(graphs[:train], graphs[train : train + 50], tests, energies)


DATASETS = {"3bpa": three_bpa, "acac": acetylacetone}


def train_force_field(
    dataset: str,
    product: str,
    seed: int,
    *,
    epochs: int = 20,
    channels: int = 16,
    lmax: int = 2,
    train: int = 300,
    r_max: float = 5.0,
    rank: int = 2,
    test: int | None = None,
) -> dict[str, Any]:
    """Train a force field of two layers; return its errors on each test set, eV/angstrom and eV an atom.

    `rank` is that of the fused products; "cg" weights every path.
    """
    torch.set_num_threads(1)
    data = DATASETS[dataset](r_max, train)
    torch.manual_seed(seed)
    species = sorted(data.energies)
    options: dict[str, Any] = {} if product == "cg" else {"rank": rank}
    model = SpinForceField(
        species,
        r_max,
        lmax,
        channels,
        2,
        product=product,
        **options,
        atomic_energies=[data.energies[z] for z in species],
        **statistics(data.train),
    )
    began = time.perf_counter()
    history = fit(model, data.train, data.validation, TrainingConfig(epochs=epochs, seed=seed), progress=False)
    seconds = time.perf_counter() - began
    found = {name: evaluate(model, graphs[:test]) for name, graphs in data.tests.items()}
    return {
        "dataset": dataset,
        "product": product,
        "seed": seed,
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": seconds,
        "validation": history[-1]["force_mae"],
        "force_mae": {name: errors.force_mae for name, errors in found.items() if errors.force_mae is not None},
        "energy_mae": {name: errors.energy_mae for name, errors in found.items()},
    }


def force_fields(
    datasets: Sequence[str] = ("3bpa", "acac"),
    products: Sequence[str] = ("spin", "cg", "gaunt"),
    seeds: Sequence[int] = (0, 1, 2),
    *,
    workers: int = 1,
    **options: Any,
) -> list[dict[str, Any]]:
    """Train every combination, in `workers` processes; see `train_force_field`."""
    jobs = [(d, p, s) for s in seeds for d in datasets for p in products]
    if workers == 1:
        return [train_force_field(*job, **options) for job in jobs]
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as executor:
        running = [executor.submit(train_force_field, *job, **options) for job in jobs]
        return [job.result() for job in running]
