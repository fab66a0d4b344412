"""Three models that every contender can express alike, and what theory says of them."""

from __future__ import annotations

from dataclasses import dataclass

from headgate.model import MM1, Distribution, PriorityMG1


@dataclass(frozen=True)
class Queues:
    """Poisson classes, in order of urgency, that pass one or two exponential servers in a row."""

    name: str
    rates: tuple[float, ...]
    services: tuple[float, ...]
    """Mean service time at each server, the same for all classes."""

    @property
    def rate(self) -> float:
        return sum(self.rates)

    @property
    def mean_response(self) -> float:
        """Of all messages. Priorities among alike services leave the first-come mean as it is."""
        if len(self.services) > 1:
            return sum(MM1(self.rate, 1 / mean).mean_response for mean in self.services)
        service = Distribution.exponential(self.services[0])
        queue = PriorityMG1(self.rates, [service] * len(self.rates))
        weighted = (rate * queue.mean_response(k) for k, rate in enumerate(self.rates))
        return sum(weighted) / self.rate


MODELS = (
    Queues("M/M/1", (0.8,), (1.0,)),
    Queues("M/M/1 with 4 priorities", (0.2, 0.2, 0.2, 0.2), (1.0,)),
    Queues("two M/M/1 in a row", (0.8,), (0.9, 1.0)),
)
