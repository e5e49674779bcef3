"""Flow matching along B-spline paths: vector fields from irregular time series and snapshots.

>>> from sprigs_splineflow import SplineFlow
>>> model = SplineFlow(autonomous=True).fit(times, values, mask)
>>> model.predict(x0, numpy.linspace(0, 10, 200))

Names load on first use (see `__init__.pyi` for the list), so importing the package costs next to nothing.
"""

import lazy_loader

from .__about__ import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
