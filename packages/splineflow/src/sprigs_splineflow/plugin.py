"""The card by which host applications know this package; imports nothing heavy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sprigs

if TYPE_CHECKING:
    import click

_EXPORTS = {
    "BackendUnavailable": "errors",
    "DegreeWarning": "errors",
    "ExtrapolationWarning": "errors",
    "InterruptedWarning": "errors",
    "OvershootWarning": "errors",
    "SplineFlowError": "errors",
    "AkimaPath": "paths",
    "BSplinePath": "paths",
    "ConditionalPath": "conditional",
    "HermitePath": "paths",
    "LagrangePath": "paths",
    "LinearPath": "paths",
    "PathSample": "conditional",
    "PchipPath": "paths",
    "estimate_diffusion": "diffusion",
    "SplineFlow": "estimator",
    "flow_matching_loss": "losses",
    "score_flow_matching_loss": "losses",
    "ResidualMLP": "networks",
    "BrownianBridge": "schedules",
    "ConstantSigma": "schedules",
    "RescaledBridge": "schedules",
    "integrate": "solvers",
    "integrate_sde": "solvers",
}


@sprigs.hookimpl
def sprigs_method() -> sprigs.Method:
    """Return the card."""
    return sprigs.Method(
        name="splineflow",
        title="Flow matching along B-spline paths: vector fields from irregular time series and snapshots",
        paper=sprigs.Paper(
            title="SplineFlow (arXiv 2601.23072)",
            url="https://arxiv.org/abs/2601.23072",
        ),
        exports={name: f"sprigs_splineflow.{module}:{name}" for name, module in _EXPORTS.items()},
        demo="sprigs_splineflow.demo:demo",
        claims="sprigs_splineflow.claims:CLAIMS",
        extras={
            "fast": ("numba",),
            "plot": ("matplotlib",),
            "ode": ("torchdiffeq",),
            "cuda12": ("cupy",),
            "cuda13": ("cupy",),
        },
        capabilities=("flow-matching.path",),
    )


@sprigs.hookimpl
def sprigs_commands() -> list[click.Command]:
    """Return the commands that appear as `sprigs splineflow ...`."""
    from .cli import commands

    return commands
