from .__about__ import __version__ as __version__
from ._compiler import find_compiler as find_compiler
from .emulated import Emulated as Emulated
from .emulated import Kernel as Kernel
from .emulated import compile as compile
from .errors import CompileError as CompileError
from .errors import CompilerNotFound as CompilerNotFound
from .errors import DeterminismError as DeterminismError
from .errors import EmulatorError as EmulatorError
from .errors import Fault as Fault
from .errors import InitcheckError as InitcheckError
from .errors import KernelAssertionError as KernelAssertionError
from .errors import LaunchError as LaunchError
from .errors import MemcheckError as MemcheckError
from .errors import RacecheckError as RacecheckError
from .errors import SynccheckError as SynccheckError

__all__ = [
    "CompileError",
    "CompilerNotFound",
    "DeterminismError",
    "Emulated",
    "EmulatorError",
    "Fault",
    "InitcheckError",
    "Kernel",
    "KernelAssertionError",
    "LaunchError",
    "MemcheckError",
    "RacecheckError",
    "SynccheckError",
    "compile",
    "find_compiler",
]
