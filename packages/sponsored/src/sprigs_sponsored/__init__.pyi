from .__about__ import __version__ as __version__
from .equilibrium import PriceOfAnarchy as PriceOfAnarchy
from .equilibrium import best_response_dynamics as best_response_dynamics
from .equilibrium import hedge as hedge
from .equilibrium import incentive_gap as incentive_gap
from .equilibrium import make_game as make_game
from .equilibrium import poa as poa
from .equilibrium import pos as pos
from .equilibrium import pure_nash as pure_nash
from .equilibrium import sponsor_bid as sponsor_bid
from .equilibrium import sponsor_loss as sponsor_loss
from .errors import AbandonmentWarning as AbandonmentWarning
from .errors import BackendUnavailable as BackendUnavailable
from .errors import GridWarning as GridWarning
from .errors import SponsoredError as SponsoredError
from .export import to_gambit as to_gambit
from .export import to_openspiel_matrix as to_openspiel_matrix
from .families import advertiser_values as advertiser_values
from .families import engagement as engagement
from .families import free_rider as free_rider
from .families import intents as intents
from .families import random_instance as random_instance
from .instance import AdStage as AdStage
from .instance import Instance as Instance
from .mechanisms import FullInformation as FullInformation
from .mechanisms import JointVCG as JointVCG
from .mechanisms import Mechanism as Mechanism
from .mechanisms import Modular as Modular
from .mechanisms import Null as Null
from .mechanisms import Outcome as Outcome
from .mechanisms import Redistribution as Redistribution
from .queries import Topic as Topic
from .queries import load_topics as load_topics
from .queries import qulac as qulac
from .simulation import Simulation as Simulation
from .simulation import SimulationConfig as SimulationConfig
from .simulation import simulate as simulate
from .slates import SlateInstance as SlateInstance
from .slates import SlateSolution as SlateSolution
from .slates import modular_slate as modular_slate
from .slates import solve_slate as solve_slate
from .tables import Recommendation as Recommendation
from .tables import read_instance as read_instance
from .tables import recommend as recommend

__all__ = [
    "AbandonmentWarning",
    "AdStage",
    "BackendUnavailable",
    "FullInformation",
    "GridWarning",
    "Instance",
    "JointVCG",
    "Mechanism",
    "Modular",
    "Null",
    "Outcome",
    "PriceOfAnarchy",
    "Recommendation",
    "Redistribution",
    "Simulation",
    "SimulationConfig",
    "SlateInstance",
    "SlateSolution",
    "SponsoredError",
    "Topic",
    "advertiser_values",
    "best_response_dynamics",
    "engagement",
    "free_rider",
    "hedge",
    "incentive_gap",
    "intents",
    "load_topics",
    "make_game",
    "modular_slate",
    "poa",
    "pos",
    "pure_nash",
    "qulac",
    "random_instance",
    "read_instance",
    "recommend",
    "simulate",
    "solve_slate",
    "sponsor_bid",
    "sponsor_loss",
    "to_gambit",
    "to_openspiel_matrix",
]
