"""Models as files: safetensors with the parameters as JSON beside the weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .errors import SplineFlowError

FORMAT = "sprigs-splineflow 1"
_MOST_LAYERS, _MOST_WIDTH = 64, 1 << 16
_SCALARS = (int, float, str, bool, type(None))


def save(model: Any, file: Path) -> None:
    """Write a fitted model."""
    from safetensors.torch import save_file

    tensors = {f"network.{name}": value for name, value in model.network_.state_dict().items()}
    if model.score_network_ is not None:
        tensors |= {f"score.{name}": value for name, value in model.score_network_.state_dict().items()}
    tensors |= {f"scaling.{name}": torch.from_numpy(np.asarray(v)) for name, v in vars(model.scaling_).items()}
    tensors["loss"] = torch.from_numpy(model.loss_)
    parameters = {
        name: list(value) if isinstance(value, tuple) else np.asarray(value).tolist() if name == "g" else value
        for name, value in model.get_params().items()
        if name not in ("device", "t_sampler") or isinstance(value, str)
    }
    header = {
        "format": FORMAT,
        "parameters": json.dumps(parameters),
        "facts": json.dumps(
            {
                "degree": model.degree_,
                "kind": model.kind_,
                "time_range": list(model.time_range_),
                "dims": model.n_features_in_,
            }
        ),
    }
    content = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    save_file(content, file, metadata=header)


def load(cls: Any, file: Path, device: Any) -> Any:
    """Read a model; the content is checked before anything is built from it.

    Raises:
        SplineFlowError: The file is missing, damaged, or no model of this package.
    """
    from safetensors import SafetensorError, safe_open

    from .training import Scaling

    try:
        with safe_open(file, framework="pt") as opened:
            header = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise SplineFlowError(f"{file} cannot be read as a model: {error}") from error
    if header.get("format") != FORMAT:
        raise SplineFlowError(f"{file} is no model of {FORMAT!r}")
    try:
        parameters, facts = json.loads(header["parameters"]), json.loads(header["facts"])
        model = cls(**_checked(parameters))
        model._check_parameters()
        dims = int(facts["dims"])
        arrays = {
            n.removeprefix("scaling."): v.double().numpy() for n, v in tensors.items() if n.startswith("scaling.")
        }
        scaling = Scaling(**arrays)
        conditions = len(scaling.c_mean)
        expected = {"c_mean": conditions, "c_std": conditions, "t_mean": 1, "t_std": 1}
        for name, value in arrays.items():
            if value.shape != (expected.get(name, dims),) or not np.isfinite(value).all():
                raise ValueError(f"scaling {name} does not fit")
        if any((arrays[name] <= 0).any() for name in ("x_std", "t_std", "v_std", "c_std")):
            raise ValueError("a standard deviation is not above 0")
        low, high = (float(edge) for edge in facts["time_range"])
        model.n_features_in_, model.degree_, model.kind_ = dims, int(facts["degree"]), str(facts["kind"])
        model.time_range_, model.scaling_ = (low, high), scaling
        model.g_ = scaling.g * scaling.x_std if model.stochastic else None
        model.loss_ = tensors["loss"].numpy()
        _check_weights(tensors)
        model._build(dims, conditions, torch.device(device or "cpu"), 0)
        for prefix, network in (("network.", model.network_), ("score.", model.score_network_)):
            if network is not None:
                network.load_state_dict({n.removeprefix(prefix): v for n, v in tensors.items() if n.startswith(prefix)})
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise SplineFlowError(f"{file} is no complete model: {error}") from error
    model.path_ = None
    return model


def _checked(parameters: dict[str, Any]) -> dict[str, Any]:
    hidden = parameters["hidden"]
    if (
        not isinstance(hidden, list)
        or not 1 <= len(hidden) <= _MOST_LAYERS
        or not all(isinstance(w, int) and 1 <= w <= _MOST_WIDTH for w in hidden)
    ):
        raise ValueError("hidden is no list of widths")
    for name, value in parameters.items():
        if name == "g" and isinstance(value, list):
            continue
        if name != "hidden" and not isinstance(value, _SCALARS):
            raise ValueError(f"parameter {name} is no plain value")
    return {**parameters, "hidden": tuple(hidden)}


def _check_weights(tensors: dict[str, torch.Tensor]) -> None:
    for name, value in tensors.items():
        if name.startswith(("network.", "score.")) and (
            value.dtype != torch.float32 or not bool(torch.isfinite(value).all())
        ):
            raise ValueError(f"{name} is not finite float32")
