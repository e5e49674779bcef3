"""Complete equivariant tensor products on the sphere, every Clebsch-Gordan path at the Gaunt product's cost.

Names load on first use (see `__init__.pyi` for the list), so importing the package costs next to nothing.
"""

import lazy_loader

from .__about__ import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
