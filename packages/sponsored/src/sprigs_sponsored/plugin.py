"""The card by which host applications know this package; imports nothing heavy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sprigs

if TYPE_CHECKING:
    import click

_EXPORTS = {
    "AdStage": "instance",
    "Instance": "instance",
    "FullInformation": "mechanisms",
    "JointVCG": "mechanisms",
    "Mechanism": "mechanisms",
    "Modular": "mechanisms",
    "Null": "mechanisms",
    "Outcome": "mechanisms",
    "Redistribution": "mechanisms",
    "AbandonmentWarning": "errors",
    "BackendUnavailable": "errors",
    "GridWarning": "errors",
    "SponsoredError": "errors",
    "advertiser_values": "families",
    "engagement": "families",
    "free_rider": "families",
    "intents": "families",
    "random_instance": "families",
    "Topic": "queries",
    "load_topics": "queries",
    "qulac": "queries",
    "PriceOfAnarchy": "equilibrium",
    "best_response_dynamics": "equilibrium",
    "hedge": "equilibrium",
    "incentive_gap": "equilibrium",
    "make_game": "equilibrium",
    "poa": "equilibrium",
    "pos": "equilibrium",
    "pure_nash": "equilibrium",
    "sponsor_bid": "equilibrium",
    "sponsor_loss": "equilibrium",
    "SlateInstance": "slates",
    "SlateSolution": "slates",
    "solve_slate": "slates",
    "modular_slate": "slates",
    "Simulation": "simulation",
    "SimulationConfig": "simulation",
    "simulate": "simulation",
    "Recommendation": "tables",
    "read_instance": "tables",
    "recommend": "tables",
    "to_gambit": "export",
    "to_openspiel_matrix": "export",
}


@sprigs.hookimpl
def sprigs_method() -> sprigs.Method:
    """Return the card."""
    return sprigs.Method(
        name="sponsored",
        title="Mechanism design for sponsored clarifying prompts and the ad auction that follows",
        paper=sprigs.Paper(
            title="Sponsored Questions and How to Auction Them (arXiv 2512.03975)",
            url="https://arxiv.org/abs/2512.03975",
            authors="Bhawalkar, Psomas and Wang",
        ),
        exports={name: f"sprigs_sponsored.{module}:{name}" for name, module in _EXPORTS.items()},
        demo="sprigs_sponsored.demo:demo",
        claims="sprigs_sponsored.claims:CLAIMS",
        extras={
            "fast": ("numba",),
            "plot": ("matplotlib",),
            "jax": ("jax",),
            "cuda12": ("cupy",),
            "cuda13": ("cupy",),
        },
        capabilities=("auction.sponsored-prompts",),
    )


@sprigs.hookimpl
def sprigs_commands() -> list[click.Command]:
    """Return the commands that appear as `sprigs sponsored ...`."""
    from .cli import commands

    return commands
