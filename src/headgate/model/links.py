"""Links shared by priority: non-preemptive queues with batch arrivals, one per link.

A published message reaches a link as one copy per subscription at the same instant. A copy waits
for the work that it finds (`priority.delay_moments`) and then for the copies of the same message
that go first: all those of higher levels, and of its own level those of flows before it in the
scenario. The broker, too, goes through the subscriptions of a topic in one order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from headgate.model.flows import Array, FlowTable, Ints, Settings
from headgate.model.parts import Part, blended, score, sums
from headgate.model.priority import LevelDelay, LevelWork, delay_moments, fitted_quantile


@dataclass(frozen=True)
class _Copies:
    """How many copies of a message reach the link: per batch (rows) and level (columns)."""

    count: Array
    variance: Array
    through: Array
    """Running sums over the levels; cumulants of independent copies add up."""
    through_variance: Array
    through_skew: Array


class LinkQueues:
    """The constrained links of a scenario, numbered as in it."""

    def __init__(
        self,
        table: FlowTable,
        rate: Array,
        wire: Array,
        size_scores: Mapping[float, Array],
        alone: Ints,
    ) -> None:
        """Per topic: messages per second, moments of the bytes on the wire, percentiles of the size
        as scores. Flows in `alone` reach the link one by one, because a client's own queue stands
        before it."""
        links = table.scenario.links
        of_flow = np.array(
            [
                -1 if flow.link is None or links[flow.link].rate is None else flow.link
                for flow in table.flows
            ],
            dtype=np.int64,
        )
        streams = np.flatnonzero(of_flow[table.stream_flow] >= 0)
        self.flow = table.stream_flow[streams]
        topic = table.stream_topic[streams]
        self.numbers, self._link = np.unique(of_flow[self.flow], return_inverse=True)
        self._links, self._flows = len(links), len(table)
        stream_rate = rate[topic]
        offered = sums(self.flow, stream_rate, len(table))
        self._share = stream_rate / offered[self.flow]
        self._single = bool(np.array_equal(self.flow, np.arange(len(table))))
        # Batches are numbered link by link, so that each link's are one slice.
        batch = topic.copy()
        single = np.isin(self.flow, alone)
        batch[single] = len(rate) + np.flatnonzero(single)
        combined = self._link * (len(rate) + len(streams)) + batch
        _, first, self._batch = np.unique(combined, return_index=True, return_inverse=True)
        self._starts = np.searchsorted(self._link[first], np.arange(len(self.numbers)))
        per_byte = np.array([8 / (links[number].rate or 1) for number in self.numbers])
        seconds = wire[topic[first]] * per_byte[self._link[first], None] ** np.arange(1, 4)
        self._size_scores = {p: scores[topic] for p, scores in size_scores.items()}
        self._work = (rate[topic[first], None] * seconds).T
        self._size, self._square = seconds[self._batch, 0], seconds[self._batch, 1]

    def respond(
        self, settings: Settings, chance: Array, percentiles: Sequence[float]
    ) -> tuple[Part, Array, Array]:
        """The time at the links, the part that each flow gets through, the links' loads.

        `chance` is, per flow, the part of the published messages that gets as far as the link.
        """
        priorities, level = np.unique(settings.priority[self.flow], return_inverse=True)
        copy = chance[self.flow]
        copies = self._copies(copy, level, len(priorities))
        work = self._level_work(copies)
        delay = delay_moments(work, preemptive=False)
        part = self._waits(work, delay, copies, copy, level, percentiles)
        # Levels that a link cannot carry in full deliver what is left over for them.
        above = np.cumsum(work.load, axis=1) - work.load
        with np.errstate(divide="ignore", invalid="ignore"):
            passed = np.where(work.load > 0, np.clip(1 - above, 0.0, work.load) / work.load, 1.0)
        through = np.ones(self._flows)
        through[self.flow] = passed[self._link, level]
        utilisation = np.zeros(self._links)
        utilisation[self.numbers] = work.load.sum(axis=1)
        return part, through, utilisation

    def _copies(self, chance: Array, level: Ints, levels: int) -> _Copies:
        batches = self._work.shape[1]
        cell = self._batch * levels + level

        def table(values: Array) -> Array:
            return sums(cell, values, batches * levels).reshape(batches, levels)

        lost = chance * (1 - chance)
        count, variance = table(chance), table(lost)
        return _Copies(
            count,
            variance,
            np.cumsum(count, axis=1),
            np.cumsum(variance, axis=1),
            np.cumsum(table(lost * (1 - 2 * chance)), axis=1),
        )

    def _level_work(self, copies: _Copies) -> LevelWork:
        first, second, third = self._work[:, :, None]
        through, variance = copies.through, copies.through_variance

        def per_link(values: Array) -> Array:
            return np.asarray(np.add.reduceat(values, self._starts, axis=0))

        return LevelWork(
            load=per_link(first * copies.count),
            second=per_link(second * copies.count),
            third=per_link(third * copies.count),
            batch_second=per_link(second * (variance + through**2)),
            batch_third=per_link(
                third * (copies.through_skew + 3 * variance * through + through**3)
            ),
        )

    def _waits(
        self,
        work: LevelWork,
        delay: LevelDelay,
        copies: _Copies,
        chance: Array,
        level: Ints,
        percentiles: Sequence[float],
    ) -> Part:
        # What was there before the message came: one distribution per link and level.
        found, found2 = delay.stretched(delay.found_mean, delay.found_second)
        with np.errstate(invalid="ignore"):
            found_variance = np.where(np.isfinite(found), found2 - found**2, 0.0)
        at = (self._link, level)
        own, own_variance = self._own_batch(delay, copies, chance, level)
        # Below an overloaded level nothing is ever sent, not even what has nothing ahead of it.
        stream_mean = np.where(np.isfinite(found[at]), found[at] + own, np.inf)
        mean = self._per_flow(stream_mean)
        # Streams of one flow wait alike and differ in size: their means spread as well.
        with np.errstate(invalid="ignore"):
            spread = np.where(np.isfinite(stream_mean), (stream_mean - mean[self.flow]) ** 2, 0.0)
        own_part = self._per_flow(np.where(np.isfinite(stream_mean), own_variance, 0.0) + spread)
        found_part = self._per_flow(found_variance[at])
        sizes_vary = self._per_flow(self._square - self._size**2) > 1e-9 * mean**2
        idle = np.clip(1 - work.load.sum(axis=1, keepdims=True), 0.0, 1.0)
        scores = {}
        for p in percentiles:
            quantile = fitted_quantile(p / 100, found, found2, idle)
            found_score = self._per_flow(score(quantile, found, found_variance)[at])
            # Where the size does not vary, how many copies were spared does, a little: normally.
            own_score = np.where(sizes_vary, self._per_flow(self._size_scores[p]), ndtri(p / 100))
            scores[p] = blended(found_score, found_part, own_score, own_part)
        return Part(mean, own_part + found_part, scores)

    def _own_batch(
        self, delay: LevelDelay, copies: _Copies, chance: Array, level: Ints
    ) -> tuple[Array, Array]:
        """Moments of the time for copies of the same message that go first, and for the copy."""
        place = (self._batch, level)
        levels = copies.count.shape[1]
        lost = chance * (1 - chance)
        above = copies.through[place] - copies.count[place]
        above_variance = copies.through_variance[place] - copies.variance[place]
        before, before_variance = self._before(chance, lost, self._batch * levels + level)
        ahead = above + before
        ahead_square = above_variance + before_variance + ahead**2
        stretch, jitter = delay.stretch[self._link, level], delay.jitter[self._link, level]
        size, square = self._size, self._square
        varies = square - size**2
        with np.errstate(invalid="ignore"):
            mean = ahead * size * stretch + size
            # One size counts for each copy ahead and for the copy itself.
            variance = (
                (ahead_square * square - (ahead * size) ** 2) * stretch**2
                + ahead * size * jitter
                + 2 * ahead * varies * stretch
                + varies
            )
        return mean, np.maximum(variance, 0.0)

    def _before(self, chance: Array, lost: Array, cell: Ints) -> tuple[Array, Array]:
        """Copies of the own level that go first: mean and variance of their number."""
        order = np.argsort(cell, kind="stable")
        ordered = cell[order]
        first = np.searchsorted(ordered, ordered)
        results = []
        for values in (chance, lost):
            running = np.concatenate([[0.0], np.cumsum(values[order])])
            before = np.empty_like(values)
            before[order] = running[:-1] - running[first]
            results.append(np.maximum(before, 0.0))
        return results[0], results[1]

    def _per_flow(self, values: Array) -> Array:
        """The mean over the streams of each flow; most flows have one."""
        if self._single:
            return values
        with np.errstate(invalid="ignore"):
            return sums(self.flow, values * self._share, self._flows)
