from .__about__ import __version__ as __version__
from .errors import BackendUnavailable as BackendUnavailable
from .errors import IncompleteProductWarning as IncompleteProductWarning
from .errors import SpinTPError as SpinTPError
from .functional import spin_tensor_product as spin_tensor_product
from .irreps import Irreps as Irreps
from .layers import GauntTensorProduct as GauntTensorProduct
from .layers import SpinFullTensorProduct as SpinFullTensorProduct
from .layers import SpinTensorProduct as SpinTensorProduct
from .layers import from_e3nn as from_e3nn
__all__ = ["BackendUnavailable","IncompleteProductWarning","SpinTPError","spin_tensor_product","Irreps","GauntTensorProduct","SpinFullTensorProduct","SpinTensorProduct","from_e3nn"]
