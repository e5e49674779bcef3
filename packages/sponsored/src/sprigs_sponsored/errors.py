"""What this package raises."""

from __future__ import annotations


class SponsoredError(ValueError):
    """Input that describes no instance, mechanism or game."""


class BackendUnavailable(SponsoredError):
    """A backend or extra that is not installed."""


class AbandonmentWarning(UserWarning):
    """Some sessions end without an ad, so that asking a question can lower welfare and no min(n, m) bound holds."""


class GridWarning(UserWarning):
    """A bid grid too coarse for the game: it shows equilibria that a finer one does not have."""
