from .__about__ import __version__ as __version__
from .means import running_mean as running_mean

__all__ = ["running_mean"]
