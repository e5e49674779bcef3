"""What goes wrong, and warnings."""

from __future__ import annotations


class SpinTPError(ValueError):
    """Base of the errors about irreps, shapes, weights and back ends; a `ValueError`."""


class BackendUnavailable(SpinTPError):
    """A package or device that a back end needs is missing; the message says what to install."""


class IncompleteProductWarning(UserWarning):
    """The Gaunt product was asked for an irrep that only antisymmetric paths reach."""
