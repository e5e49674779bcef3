"""What goes wrong at the door."""

from __future__ import annotations

from sprigs._errors import SprigsError


class KernelError(SprigsError):
    """Base of the errors about kernels."""


class SignatureError(KernelError, ValueError):
    """The source has no such kernel, or a parameter of a type that the door does not know."""


class ArgumentError(KernelError, TypeError):
    """An argument does not fit the kernel's parameter: kernel and parameter are named."""


class LaunchError(KernelError, ValueError):
    """The grid, block or shared memory is zero or beyond the limits."""


class KernelsUnavailable(KernelError, RuntimeError):
    """CuPy, or a CUDA device, or the emulator is not there; the message says what to install."""
