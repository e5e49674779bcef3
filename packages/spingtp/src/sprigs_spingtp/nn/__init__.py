"""Networks: channel mixing, convolution over edges, many-body products, a force field."""

from .blocks import SpinConvolution, SpinInteractionBlock, SymmetricSpinProduct, make_product
from .force_field import SpinForceField
from .linear import IrrepsLinear
from .radial import RadialBasis, RadialNetwork

__all__ = [
    "IrrepsLinear",
    "RadialBasis",
    "RadialNetwork",
    "SpinConvolution",
    "SpinForceField",
    "SpinInteractionBlock",
    "SymmetricSpinProduct",
    "make_product",
]
