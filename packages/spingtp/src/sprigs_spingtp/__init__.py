"""Equivariant tensor products on the sphere that keep every Clebsch-Gordan path.

>>> from sprigs_spingtp import SpinTensorProduct
>>> product = SpinTensorProduct("16x0e+16x1o+16x2e", "16x0e+16x1o+16x2e", "16x0e+16x1o+16x1e+16x2e")
>>> z = product(x, y)

Names load on first use (see `__init__.pyi` for the list), so importing the package costs next to nothing.
"""

import lazy_loader

from .__about__ import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
