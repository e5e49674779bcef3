from . import nn as nn
from .__about__ import __version__ as __version__
from .atoms import Graph as Graph
from .atoms import collate as collate
from .atoms import graph_of as graph_of
from .atoms import neighbours as neighbours
from .atoms import read_frames as read_frames
from .errors import BackendUnavailable as BackendUnavailable
from .errors import IncompleteProductWarning as IncompleteProductWarning
from .errors import SpinTPError as SpinTPError
from .functional import spin_tensor_product as spin_tensor_product
from .harmonics import spherical_harmonics as spherical_harmonics
from .irreps import Irreps as Irreps
from .layers import GauntTensorProduct as GauntTensorProduct
from .layers import SpinFullTensorProduct as SpinFullTensorProduct
from .layers import SpinTensorProduct as SpinTensorProduct
from .layers import from_e3nn as from_e3nn
from .nn import SpinForceField as SpinForceField
from .tables import SphereTables as SphereTables
from .tables import get_tables as get_tables
from .tables import grid as grid
from .tables import spin_paths as spin_paths
from .tables import swsh as swsh
from .tables import wigner_d as wigner_d
from .three_j import kappa as kappa
from .training import TrainingConfig as TrainingConfig
from .training import evaluate as evaluate
from .training import fit as fit
from .training import load as load
from .training import save as save

__all__ = [
    "BackendUnavailable",
    "GauntTensorProduct",
    "Graph",
    "IncompleteProductWarning",
    "Irreps",
    "SphereTables",
    "SpinForceField",
    "SpinFullTensorProduct",
    "SpinTPError",
    "SpinTensorProduct",
    "TrainingConfig",
    "collate",
    "evaluate",
    "fit",
    "from_e3nn",
    "get_tables",
    "graph_of",
    "grid",
    "kappa",
    "load",
    "neighbours",
    "nn",
    "read_frames",
    "save",
    "spherical_harmonics",
    "spin_paths",
    "spin_tensor_product",
    "swsh",
    "wigner_d",
]
