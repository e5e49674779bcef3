"""CUDA C kernels in a package's own `.cu` files: the one door to CuPy's `RawModule`.

The door reads the kernels' signatures and checks every argument before it launches: CuPy's raw kernels ignore strides
and types, so that a transposed view silently gives wrong numbers. CuPy and torch are imported when a kernel is
launched, not before.
"""

from sprigs.kernels._errors import ArgumentError, KernelError, KernelsUnavailable, LaunchError, SignatureError
from sprigs.kernels._module import Kernel, Module, import_cupy
from sprigs.kernels._signature import Parameter, Signature, signatures

__all__ = [
    "ArgumentError",
    "Kernel",
    "KernelError",
    "KernelsUnavailable",
    "LaunchError",
    "Module",
    "Parameter",
    "Signature",
    "SignatureError",
    "import_cupy",
    "signatures",
]
