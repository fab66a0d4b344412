"""The performance model: queueing theory, and a compiled simulator of the same network.

Closed forms of single queues are in `single`, `priority`, `onoff` and `limited_onoff`; their
inverse problems in `inverse`. `Model` and `predict` answer for a whole scenario under a policy,
and `network_inverse` asks them backwards. `simulation` is imported on its own: it needs numba.
"""

from headgate.model.distributions import Distribution
from headgate.model.feasibility import Answer, Feasible, Infeasible
from headgate.model.flows import Flow, FlowTable, Settings
from headgate.model.limited_onoff import LimitedOnOffQueue
from headgate.model.onoff import OnOffQueue
from headgate.model.prediction import Model, Prediction, predict
from headgate.model.priority import PriorityMG1
from headgate.model.qbd import QuasiBirthDeath
from headgate.model.scenario import (
    Client,
    Connectivity,
    InputQueue,
    LinkCalibration,
    Scenario,
    Shape,
    Stage,
    Topic,
)
from headgate.model.single import MG1, MM1, MM1K

__all__ = [
    "MG1",
    "MM1",
    "MM1K",
    "Answer",
    "Client",
    "Connectivity",
    "Distribution",
    "Feasible",
    "Flow",
    "FlowTable",
    "Infeasible",
    "InputQueue",
    "LimitedOnOffQueue",
    "LinkCalibration",
    "Model",
    "OnOffQueue",
    "Prediction",
    "PriorityMG1",
    "QuasiBirthDeath",
    "Scenario",
    "Settings",
    "Shape",
    "Stage",
    "Topic",
    "predict",
]
