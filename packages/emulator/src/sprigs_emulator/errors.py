"""What can go wrong, each with the facts of the fault as attributes and a text to read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Fault:
    """The facts of one fault; what does not apply is None.

    Attributes:
        kernel: the kernel's name.
        seed: the seed of the schedule under which it showed.
        array: the array, shared variable or global that was accessed.
        index: the element, counted in items of the array.
        block: the block's coordinates (x, y, z).
        thread: the thread's coordinates in its block.
        line: the line of the access, barrier or expression.
        file: the file of that line.
        access: "read", "write", "atomic"... what the thread did.
        other_block: of a race, the other thread's block.
        other_thread: of a race, the other thread.
        other_line: of a race, the line of the other access.
        other_access: of a race, what the other thread did.
        lines: of a synchronisation fault, every line where threads wait.
    """

    kernel: str | None = None
    seed: int | None = None
    array: str | None = None
    index: int | None = None
    block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None
    line: int | None = None
    file: str | None = None
    access: str | None = None
    other_block: tuple[int, int, int] | None = None
    other_thread: tuple[int, int, int] | None = None
    other_line: int | None = None
    other_access: str | None = None
    lines: tuple[int, ...] = ()


class EmulatorError(Exception):
    """The base of every error of this package.

    Attributes:
        fault: the facts.
    """

    def __init__(self, text: str, fault: Fault | None = None) -> None:
        super().__init__(text)
        self.fault = fault or Fault()

    def __getattr__(self, name: str) -> object:
        # `error.line` for `error.fault.line`; only called for what is not found otherwise.
        if name in Fault.__dataclass_fields__:
            return getattr(self.fault, name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __reduce__(self) -> tuple[type, tuple[str, Fault]]:
        return type(self), (str(self), self.fault)


class CompileError(EmulatorError):
    """The text is not CUDA C that can be emulated."""


class CompilerNotFound(EmulatorError):
    """There is no C++ compiler, or this platform is not supported."""


class LaunchError(EmulatorError):
    """A launch that a device would refuse too: wrong arguments, impossible sizes; or one that was given up."""


class KernelAssertionError(EmulatorError):
    """An `assert` in the kernel failed, or it reached `__trap`."""


class MemcheckError(EmulatorError):
    """An access out of bounds or misaligned, or an index that overflowed on its way there."""


class RacecheckError(EmulatorError):
    """Two threads, one address, one of them writing, and nothing that orders them."""


class InitcheckError(EmulatorError):
    """Memory read before it was written, or a declared output that was not written."""


class SynccheckError(EmulatorError):
    """A barrier or warp collective that not everybody reaches, or that is reached with different masks."""


class DeterminismError(EmulatorError):
    """The result depends on the order in which threads run."""
