from . import couplings as couplings
from . import datasets as datasets
from . import diffusion as diffusion
from . import losses as losses
from . import metrics as metrics
from . import plot as plot
from . import schedules as schedules
from . import solvers as solvers
from . import systems as systems
from .__about__ import __version__ as __version__
from .conditional import ConditionalPath as ConditionalPath
from .conditional import PathSample as PathSample
from .diffusion import estimate_diffusion as estimate_diffusion
from .errors import BackendUnavailable as BackendUnavailable
from .errors import DegreeWarning as DegreeWarning
from .errors import ExtrapolationWarning as ExtrapolationWarning
from .errors import InterruptedWarning as InterruptedWarning
from .errors import OvershootWarning as OvershootWarning
from .errors import SplineFlowError as SplineFlowError
from .estimator import SplineFlow as SplineFlow
from .losses import flow_matching_loss as flow_matching_loss
from .losses import score_flow_matching_loss as score_flow_matching_loss
from .networks import ResidualMLP as ResidualMLP
from .paths import AkimaPath as AkimaPath
from .paths import BSplinePath as BSplinePath
from .paths import HermitePath as HermitePath
from .paths import LagrangePath as LagrangePath
from .paths import LinearPath as LinearPath
from .paths import PchipPath as PchipPath
from .schedules import BrownianBridge as BrownianBridge
from .schedules import ConstantSigma as ConstantSigma
from .schedules import RescaledBridge as RescaledBridge
from .solvers import integrate as integrate
from .solvers import integrate_sde as integrate_sde

__all__ = [
    "AkimaPath",
    "BSplinePath",
    "BackendUnavailable",
    "BrownianBridge",
    "ConditionalPath",
    "ConstantSigma",
    "DegreeWarning",
    "ExtrapolationWarning",
    "HermitePath",
    "InterruptedWarning",
    "LagrangePath",
    "LinearPath",
    "OvershootWarning",
    "PathSample",
    "PchipPath",
    "RescaledBridge",
    "ResidualMLP",
    "SplineFlow",
    "SplineFlowError",
    "couplings",
    "datasets",
    "diffusion",
    "estimate_diffusion",
    "flow_matching_loss",
    "integrate",
    "integrate_sde",
    "losses",
    "metrics",
    "plot",
    "schedules",
    "score_flow_matching_loss",
    "solvers",
    "systems",
]
