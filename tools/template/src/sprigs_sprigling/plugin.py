"""The card by which host applications know this package; imports nothing heavy."""

from __future__ import annotations

import sprigs


@sprigs.hookimpl
def sprigs_method() -> sprigs.Method:
    """Return the card."""
    return sprigs.Method(
        name="sprigling",
        title="DESCRIPTION",
        paper=sprigs.Paper(title="sprigling", url="PAPER"),
        exports={"running_mean": "sprigs_sprigling.means:running_mean"},
        demo="sprigs_sprigling.demo:demo",
        claims="sprigs_sprigling.claims:CLAIMS",
    )
