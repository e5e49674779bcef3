"""Mechanism design for sponsored clarifying prompts and the ad auction that follows.

>>> from sprigs_sponsored import Instance, JointVCG
>>> outcome = JointVCG().run(Instance(prior, kernel, values))

Names load on first use (see `__init__.pyi` for the list), so importing the package costs next to nothing.
"""

import lazy_loader

from .__about__ import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
