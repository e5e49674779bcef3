"""The card by which host applications know this package; imports nothing heavy."""

from __future__ import annotations

import sprigs


@sprigs.hookimpl
def sprigs_method() -> sprigs.Method:
    """Return the card."""
    return sprigs.Method(
        name="spingtp",
        title="Complete equivariant tensor products on the sphere, every Clebsch-Gordan path at the Gaunt product's cost",
        paper=sprigs.Paper(title="spingtp", url="https://arxiv.org/abs/2607.01408"),
        exports={"running_mean": "sprigs_spingtp.means:running_mean"},
        demo="sprigs_spingtp.demo:demo",
        claims="sprigs_spingtp.claims:CLAIMS",
    )
