"""The card by which host applications know this package; imports nothing heavy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sprigs

if TYPE_CHECKING:
    import click

_EXPORTS = {
    "Graph": "atoms",
    "collate": "atoms",
    "graph_of": "atoms",
    "neighbours": "atoms",
    "read_frames": "atoms",
    "BackendUnavailable": "errors",
    "IncompleteProductWarning": "errors",
    "SpinTPError": "errors",
    "spin_tensor_product": "functional",
    "spherical_harmonics": "harmonics",
    "Irreps": "irreps",
    "GauntTensorProduct": "layers",
    "SpinFullTensorProduct": "layers",
    "SpinTensorProduct": "layers",
    "from_e3nn": "layers",
    "SpinForceField": "nn",
    "SphereTables": "tables",
    "get_tables": "tables",
    "grid": "tables",
    "spin_paths": "tables",
    "swsh": "tables",
    "wigner_d": "tables",
    "kappa": "three_j",
    "TrainingConfig": "training",
    "evaluate": "training",
    "fit": "training",
    "load": "training",
    "save": "training",
}


@sprigs.hookimpl
def sprigs_method() -> sprigs.Method:
    """Return the card."""
    return sprigs.Method(
        name="spingtp",
        title="Complete equivariant tensor products on the sphere at the Gaunt product's cost",
        paper=sprigs.Paper(
            title="Spin-Weighted Spherical Harmonics Enable Complete and Scalable E(3)-Equivariant Networks"
            " (arXiv 2607.01408)",
            url="https://arxiv.org/abs/2607.01408",
        ),
        exports={name: f"sprigs_spingtp.{module}:{name}" for name, module in _EXPORTS.items()},
        demo="sprigs_spingtp.demo:demo",
        claims="sprigs_spingtp.claims:CLAIMS",
        extras={
            "fast": ("llvmlite",),
            "plot": ("matplotlib",),
            "atoms": ("ase", "matscipy"),
            "chem": ("rdkit",),
            "jax": ("jax", "e3nn_jax"),
            "cuda12": ("cupy",),
            "cuda13": ("cupy",),
        },
        capabilities=("tensor-product.spin",),
    )


@sprigs.hookimpl
def sprigs_commands() -> list[click.Command]:
    """Return the commands that appear as `sprigs spingtp ...`."""
    from .cli import commands

    return commands
