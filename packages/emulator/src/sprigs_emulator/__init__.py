"""CUDA C kernels on the CPU, under seeded adversarial schedules, with memcheck, racecheck, initcheck and synccheck.

>>> import sprigs_emulator
>>> kernels = sprigs_emulator.compile(text)
>>> kernels["add"](grid, block, (x, y, n))

Names load on first use (see `__init__.pyi` for the list), so importing the package costs next to nothing.
"""

import lazy_loader

from .__about__ import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
