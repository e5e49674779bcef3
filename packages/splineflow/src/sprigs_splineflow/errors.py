"""What this package raises and warns of."""

from __future__ import annotations


class SplineFlowError(ValueError):
    """Input that cannot be used; the message says what was given, what was expected and what to do."""


class BackendUnavailable(RuntimeError):
    """An optional dependency or device is missing; the message says what to install."""


class DegreeWarning(UserWarning):
    """Some records have too few observations for the degree that was asked for, and get a lower one."""


class OvershootWarning(UserWarning):
    """Gaps are so uneven that a spline in raw time is likely to overshoot."""


class ExtrapolationWarning(UserWarning):
    """Times or states lie outside of what the model was fitted on."""


class InterruptedWarning(UserWarning):
    """Training was interrupted from the keyboard; what was learnt so far is kept."""
