"""Clients that come and go: one ON/OFF queue per client, shared by its flows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headgate.model.flows import Array, FlowTable, Ints, Settings
from headgate.model.onoff import OnOffQueue
from headgate.model.parts import Part, score, sums
from headgate.model.scenario import Connectivity

BLOCK = 16384
"""Queues that are solved at once: what one step leaves for the next then stays in the cache."""


class ClientQueues:
    """The intermittent clients of a scenario. `flows` are the flows that pass their queues."""

    def __init__(self, table: FlowTable) -> None:
        clients = table.scenario.clients
        number: dict[int, int] = {}
        self.known: list[Connectivity] = []
        for index, client in enumerate(clients):
            if client.connectivity is not None:
                number[index] = len(self.known)
                self.known.append(client.connectivity)
        owners = [(f, number[c]) for f, c in enumerate(table.client_of) if c in number]
        self.flows = np.array([flow for flow, _ in owners], dtype=np.int64)
        self._client = np.array([client for _, client in owners], dtype=np.int64)
        periods = np.array([[c.on, c.off, c.drain] for c in self.known]).reshape(-1, 3)
        self._periods = np.ascontiguousarray(periods.T)
        self._everyone = len(table)
        self._all = len(self.flows) == len(table)
        self._first = np.unique(self._client, return_index=True)[1]
        """Of each client's flows."""

    def respond(
        self, settings: Settings, carried: Array, percentiles: Sequence[float]
    ) -> tuple[Part, Array]:
        """The time spent in the queues, and what every flow carries after them."""
        flows, client = self.flows, self._client
        rate, join = carried[flows], settings.join[flows]
        total = sums(client, rate, len(self.known))
        joining = sums(client, rate * join, len(self.known))
        with np.errstate(divide="ignore", invalid="ignore"):
            shared = np.where(total > 0, joining / total, 1.0)
        on, off, drain = self._periods
        whole = OnOffQueue(total, drain, on, off, shared)
        # Seen from each flow: the client's queue, with the flow's own chance to join. Flows of one
        # client mostly share that too, and then the answer.
        owned = self._owned(join)
        who = client if owned is None else client[self._first]
        chance = join if owned is None else join[self._first]
        queues = np.stack([total, drain, on, off, shared])
        if not len(who) == len(self._first) == len(self.known):  # else all of them, in order
            queues = queues[:, who]
        answers = _responses(queues, chance, percentiles)
        if owned is not None:
            answers = answers[:, owned]
        mean, variance, *scores = (self._spread(values) for values in answers)
        part = Part(mean, variance, dict(zip(percentiles, scores, strict=True)))
        on_part = (on / (on + off))[client]
        taken = rate * (on_part + (1 - on_part) * join)
        stable = whole.stable
        if not stable.all():
            # A queue that cannot take all of it delivers what its ON periods can serve.
            with np.errstate(divide="ignore", invalid="ignore"):
                part_served = whole.throughput / (total * np.asarray(whole.success_rate))
            taken = taken * np.where(stable, 1.0, part_served)[client]
        result = carried.copy()
        result[flows] = taken
        return part, result

    def _owned(self, join: Array) -> Ints | None:
        """Which client's answer is each flow's, if the flows of every client join alike."""
        if len(self._first) == len(self._client):
            return None
        position = np.empty(len(self.known), dtype=np.int64)
        position[self._client[self._first]] = np.arange(len(self._first))
        owned = position[self._client]
        return owned if np.array_equal(join[self._first][owned], join) else None

    def mixes_priorities(self, settings: Settings) -> bool:
        """Whether some client has flows of different priorities: here they are served in order."""
        if len(self._first) == len(self._client):
            return False  # one flow each
        priority = settings.priority[self.flows].astype(np.float64)
        count = sums(self._client, np.ones(len(priority)), len(self.known))
        mean = sums(self._client, priority, len(self.known)) / np.maximum(count, 1.0)
        return bool(np.any(priority != mean[self._client]))

    def _spread(self, values: Array) -> Array:
        if self._all:
            return values
        everyone = np.zeros(self._everyone)
        everyone[self.flows] = values
        return everyone


def _responses(queues: Array, join: Array, percentiles: Sequence[float]) -> Array:
    """Mean, variance and scores of the percentiles (rows) of many queues (columns)."""
    results = np.empty((2 + len(percentiles), len(join)))
    for begin in range(0, len(join), BLOCK):
        block = slice(begin, begin + BLOCK)
        response = OnOffQueue(*queues[:, block]).response(join[block])
        mean, second = (np.asarray(moment) for moment in response.moments)
        finite = np.where(np.isfinite(mean), mean, 0.0)
        variance = np.where(np.isfinite(mean), second - finite**2, 0.0)
        results[0, block], results[1, block] = mean, variance
        found = response.quantiles([p / 100 for p in percentiles])
        for row, p in enumerate(percentiles):
            results[2 + row, block] = score(np.asarray(found[p / 100]), finite, variance)
    return results
