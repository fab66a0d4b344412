"""Discrete-event simulation of the broker's network of queues, compiled.

`simulate` runs a `Network` of sources, streams and stations and returns a `Measurement`.
"""

from headgate.model.simulation.layout import Outcome
from headgate.model.simulation.network import Arrivals, Network, Source, Station, Stream
from headgate.model.simulation.running import simulate
from headgate.model.simulation.statistics import Estimate, Group, Measurement

__all__ = [
    "Arrivals",
    "Estimate",
    "Group",
    "Measurement",
    "Network",
    "Outcome",
    "Source",
    "Station",
    "Stream",
    "simulate",
]
