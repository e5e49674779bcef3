"""Training a force field, and what comes of it."""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .atoms import Graph, batches
from .errors import SpinTPError
from .nn.force_field import SpinForceField


@dataclass(frozen=True)
class TrainingConfig:
    """How to train.

    Attributes:
        epochs: passes over the training set.
        batch_size: systems a step.
        learning_rate: of Adam with AMSGrad; it falls by a cosine to a hundredth.
        force_weight: of the mean squared force error; forces dominate.
        energy_weight: of the mean squared energy error an atom.
        ema: decay of the averaged weights, which are what is kept.
        clip: largest norm of the gradient.
        seed: of the order of the batches.
        max_seconds: stop earlier.
    """

    epochs: int = 50
    batch_size: int = 5
    learning_rate: float = 1e-2
    force_weight: float = 100.0
    energy_weight: float = 1.0
    ema: float = 0.99
    clip: float = 10.0
    seed: int = 0
    max_seconds: float = math.inf


@dataclass
class Errors:
    """Mean absolute and root mean squared errors of a set.

    Attributes:
        force_mae, force_rmse: eV/angstrom, over components; None where the set has no forces.
        energy_mae: eV an atom; None where the set has no energies.
    """

    force_mae: float | None
    force_rmse: float | None
    energy_mae: float | None


def statistics(graphs: Sequence[Graph]) -> dict[str, Any]:
    """Return what a force field wants to know of its training set: neighbours an atom, and the force RMS."""
    atoms = sum(len(g.numbers) for g in graphs)
    edges = sum(len(g.senders) for g in graphs)
    forces = torch.cat([g.forces for g in graphs]).double()
    return {"neighbours": edges / max(1, atoms), "scale": float(forces.pow(2).mean().sqrt())}


def evaluate(model: SpinForceField, graphs: Sequence[Graph], batch_size: int = 20) -> Errors:
    """Return the errors on labelled graphs.

    Raises:
        SpinTPError: There are none, or they have no labels.
    """
    if not graphs:
        raise SpinTPError("there is nothing to evaluate on")
    dtype = next(model.parameters()).dtype
    forces, energies = [], []
    for graph in batches(graphs, batch_size):
        moved = graph.to(dtype=dtype)
        found = model(*moved.inputs())
        forces.append((found["forces"] - moved.forces).double())
        energies.append((found["energy"] - moved.energy) / torch.bincount(moved.batch))
    labelled = (
        torch.cat([g.forces for g in graphs]).isfinite().all(),
        torch.cat([g.energy for g in graphs]).isfinite().all(),
    )
    if not any(labelled):
        raise SpinTPError("the graphs have neither forces nor energies throughout: nothing to compare with")
    force, energy = torch.cat(forces), torch.cat(energies)
    return Errors(
        float(force.abs().mean()) if labelled[0] else None,
        float(force.pow(2).mean().sqrt()) if labelled[0] else None,
        float(energy.abs().mean()) if labelled[1] else None,
    )


def fit(
    model: SpinForceField,
    train: Sequence[Graph],
    validation: Sequence[Graph] = (),
    config: TrainingConfig = TrainingConfig(),
    *,
    progress: bool = True,
    checkpoint: str | Path | None = None,
) -> list[dict[str, float]]:
    """Train on energies and forces; the model ends with the averaged weights.

    An interrupt from the keyboard ends training early and keeps what was learnt.

    Args:
        model: changed in place.
        train, validation: labelled graphs.
        config: how.
        progress: show a bar.
        checkpoint: file to save model, optimiser and epoch to after each epoch, and to go on from if it is there.

    Returns:
        A row for each epoch: "epoch", "loss", "seconds" and, with a validation set, its errors.

    Raises:
        SpinTPError: No training data, or a loss that is not finite.
    """
    from tqdm import tqdm

    if not train:
        raise SpinTPError("there is nothing to train on")
    dtype = next(model.parameters()).dtype
    optimiser = torch.optim.Adam(model.parameters(), config.learning_rate, amsgrad=True)
    generator = torch.Generator().manual_seed(config.seed)
    average = copy.deepcopy(model)
    history: list[dict[str, float]] = []
    steps_a_pass = -(-len(train) // config.batch_size)
    step = first = 0
    file = None if checkpoint is None else Path(checkpoint)
    if file is not None and file.is_file():
        state = torch.load(file, weights_only=True)
        model.load_state_dict(state["model"])
        average.load_state_dict(state["average"])
        optimiser.load_state_dict(state["optimiser"])
        generator.set_state(state["generator"])
        history, first, step = state["history"], state["epoch"], state["step"]
    began = time.perf_counter()
    bar = tqdm(range(first, config.epochs), initial=first, total=config.epochs, disable=not progress, desc="epochs")
    try:
        for epoch in bar:
            total = 0.0
            for graph in batches(train, config.batch_size, generator):
                share = min(1.0, (time.perf_counter() - began) / config.max_seconds) if first == 0 else 0.0
                share = max(share, step / (config.epochs * steps_a_pass))
                for group in optimiser.param_groups:
                    group["lr"] = config.learning_rate * (0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * share)))
                loss = _loss(model, graph.to(dtype=dtype), config)
                if not torch.isfinite(loss):
                    raise SpinTPError(f"the loss is {float(loss)} in epoch {epoch}: lower the learning rate")
                optimiser.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip)
                optimiser.step()
                step += 1
                _update(average, model, min(config.ema, step / (step + 10)))
                total += float(loss.detach())
            row = {"epoch": epoch + 1.0, "loss": total / steps_a_pass, "seconds": time.perf_counter() - began}
            if validation:
                errors = evaluate(average, validation)
                row |= {name: value for name, value in asdict(errors).items() if value is not None}
            history.append(row)
            bar.set_postfix({k: f"{v:.4g}" for k, v in row.items() if k not in ("epoch", "seconds")})
            if file is not None:
                state = {
                    "model": model.state_dict(), "average": average.state_dict(), "optimiser": optimiser.state_dict(),
                    "generator": generator.get_state(), "history": history, "epoch": epoch + 1, "step": step,
                }  # fmt: skip
                torch.save(state, file)
            if time.perf_counter() - began > config.max_seconds:
                break
    except KeyboardInterrupt:
        bar.write("interrupted: keeping what was learnt")
    model.load_state_dict(average.state_dict())
    return history


def _loss(model: SpinForceField, graph: Graph, config: TrainingConfig) -> Tensor:
    found = model(*graph.inputs(), training=True)
    atoms = torch.bincount(graph.batch, minlength=graph.systems)
    baseline = (found["energy"] - found["interaction"].double()).detach()
    wanted = (graph.energy - baseline).to(found["interaction"].dtype)
    energy = ((found["interaction"] - wanted) / atoms).pow(2).mean()
    force = (found["forces"] - graph.forces).pow(2).mean()
    return config.energy_weight * energy + config.force_weight * force


def _update(average: SpinForceField, model: SpinForceField, decay: float) -> None:
    with torch.no_grad():
        for kept, new in zip(average.parameters(), model.parameters(), strict=True):
            kept.lerp_(new, 1 - decay)


def save(model: SpinForceField, path: str | Path) -> None:
    """Write a force field to a safetensors file, its configuration in the header.

    Raises:
        BackendUnavailable: safetensors is not installed.
    """
    save_file = _safetensors().save_file
    tensors = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    save_file(tensors, str(path), metadata={"spingtp": json.dumps(model.config)})


def load(path: str | Path) -> SpinForceField:
    """Read a force field that `save` wrote.

    Raises:
        BackendUnavailable: safetensors is not installed.
        SpinTPError: The file is not one, or is damaged.
    """
    safetensors = _safetensors()
    try:
        with safetensors.safe_open(str(path), framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        config = json.loads(metadata["spingtp"])
        config["hidden"] = tuple(config["hidden"])
        model = SpinForceField(**config)
        model.load_state_dict(tensors)
    except (OSError, KeyError, TypeError, ValueError, RuntimeError, safetensors.SafetensorError) as error:
        raise SpinTPError(f"{path} holds no force field: {error}") from error
    moved: SpinForceField = model.to(tensors["embedding"].dtype)
    return moved


def _safetensors() -> Any:
    try:
        import safetensors
        import safetensors.torch
    except ModuleNotFoundError as error:
        from .errors import BackendUnavailable

        raise BackendUnavailable("saving force fields needs safetensors: pip install safetensors") from error

    class Both:
        save_file = staticmethod(safetensors.torch.save_file)
        safe_open = safetensors.safe_open
        SafetensorError = safetensors.SafetensorError

    return Both
