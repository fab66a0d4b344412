"""Links shared by priority: non-preemptive queues with batch arrivals, one per link.

A published message reaches a link as one copy per subscription at the same instant: a *batch*. A
copy waits for the work that it finds (`priority.delay_moments`) and then for the copies of the same
message that go first: all those of higher levels, and of its own level those of flows before it in
the scenario. The broker, too, goes through the subscriptions of a topic in one order.

All that a batch does follows from two running sums over its copies in the order in which they are
sent, mean T and variance V of the number of copies that go first. A copy that arrives with the
probability c adds to the moments of the batch's number of copies, N,

    E[N^2]: c (1 + 2T)      E[N^3]: c (1 + 3 (T + T^2 + V))

so that one pass over the copies is enough, however many batches, levels and links there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.special import ndtri

from headgate.model.flows import Array, FlowTable, Ints, Settings
from headgate.model.parts import Part, blended, score, sums
from headgate.model.priority import LevelDelay, LevelWork, delay_moments, fitted_quantile


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
        per_byte = np.array([8 / (links[number].rate or 1) for number in self.numbers])
        moments = wire[topic]
        extra, self._stretch, self._factor = self._calibrated(table)
        if extra.any():
            moments = shifted(moments, extra[self._link])
        seconds = (moments * per_byte[self._link, None] ** np.arange(1, 4)).T
        self._work = stream_rate * seconds
        self._size, self._square = seconds[0].copy(), seconds[1].copy()
        self._varies = self._square - self._size**2
        self._vary = self._per_flow(self._varies)
        self._size_scores = {p: self._per_flow(scores[topic]) for p, scores in size_scores.items()}
        self._find_batches(topic, np.isin(self.flow, alone))

    def _calibrated(self, table: FlowTable) -> tuple[Array, Array, Array]:
        """Of each link: bytes beyond the scenario's overhead, factors on waiting and response."""
        known = {entry.name: entry for entry in table.scenario.calibration}
        usual = float(table.scenario.overhead)
        count = len(self.numbers)
        extra, stretch, factor = np.zeros(count), np.ones(count), np.ones(count)
        for place, number in enumerate(self.numbers):
            entry = known.get(table.scenario.links[number].name)
            if entry is not None:
                extra[place] = 0.0 if entry.overhead is None else entry.overhead - usual
                stretch[place], factor[place] = entry.burstiness, entry.response_factor
        return extra, stretch, factor

    def _find_batches(self, topic: Ints, alone: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> None:
        """Which copies share a batch with others, batch by batch; the rest wait for nobody."""
        batch = np.where(alone, -1, self._link * (int(topic.max(initial=0)) + 1) + topic)
        order = np.argsort(batch, kind="stable")
        ordered = batch[order]
        sizes = np.bincount(np.cumsum(np.diff(ordered, prepend=-2) != 0) - 1)
        size = np.repeat(sizes, sizes)
        shared = (size > 1) & (ordered >= 0)
        self._shared = order[shared]
        _, first, number = np.unique(ordered[shared], return_index=True, return_inverse=True)
        self._first = first[number]
        """Where in `_shared` the batch of each copy begins."""

    def respond(
        self, settings: Settings, chance: Array, percentiles: Sequence[float]
    ) -> tuple[Part, Array, Array]:
        """The time at the links, the part that each flow gets through, the links' loads.

        `chance` is, per flow, the part of the published messages that gets as far as the link.
        """
        level, levels = _ranked(settings.priority)
        level = level[self.flow]
        at = self._link * levels + level
        copy = chance[self.flow]
        ahead, spread = self._ahead(copy, level)
        work = self._level_work(copy, ahead, spread, at, levels)
        delay = delay_moments(work, preemptive=False)
        part = self._waits(work, delay, ahead, spread, at, percentiles)
        # Levels that a link cannot carry in full deliver what is left over for them.
        above = np.cumsum(work.load, axis=1) - work.load
        with np.errstate(divide="ignore", invalid="ignore"):
            left = np.minimum(np.maximum(1 - above, 0.0), work.load)
            passed = np.where(work.load > 0, left / work.load, 1.0)
        through = np.ones(self._flows)
        through[self.flow] = passed.ravel()[at]
        utilisation = np.zeros(self._links)
        utilisation[self.numbers] = work.load.sum(axis=1)
        return part, through, utilisation

    def _ahead(self, chance: Array, level: Ints) -> tuple[Array, Array]:
        """Copies of the same message that go first: mean and variance of their number."""
        mean, variance = np.zeros(len(chance)), np.zeros(len(chance))
        count = len(self._shared)
        if not count:
            return mean, variance
        # Batches keep their places: one sort puts the copies of each in order of level, then of
        # flow. Numbers that are sorted as they are take a quarter of the time of an argsort.
        place = np.arange(count)
        key = (self._first * (int(level.max()) + 1) + level[self._shared]) * count + place
        key.sort()
        sent = self._shared[key % count]
        chance = chance[sent]
        for values, result in ((chance, mean), (chance * (1 - chance), variance)):
            before = np.cumsum(values) - values
            result[sent] = np.maximum(before - before[self._first], 0.0)
        return mean, variance

    def _level_work(
        self, chance: Array, ahead: Array, spread: Array, at: Ints, levels: int
    ) -> LevelWork:
        shape = len(self.numbers), levels

        def per_level(values: Array) -> Array:
            return sums(at, values, shape[0] * levels).reshape(shape)

        first, second, third = self._work * chance
        return LevelWork(
            load=per_level(first),
            second=per_level(second),
            third=per_level(third),
            batch_second=np.cumsum(per_level(second * (1 + 2 * ahead)), axis=1),
            batch_third=np.cumsum(per_level(third * (1 + 3 * (ahead + ahead**2 + spread))), axis=1),
        )

    def _waits(
        self,
        work: LevelWork,
        delay: LevelDelay,
        ahead: Array,
        spread: Array,
        at: Ints,
        percentiles: Sequence[float],
    ) -> Part:
        # What was there before the message came: one distribution per link and level.
        found, found2 = delay.stretched(delay.found_mean, delay.found_second)
        with np.errstate(invalid="ignore"):
            found_variance = np.where(np.isfinite(found), found2 - found**2, 0.0)
        own, own_variance = self._own_batch(delay, ahead, spread, at)
        # Below an overloaded level nothing is ever sent, not even what has nothing ahead of it.
        waits = found.ravel()[at]
        endless = not np.isfinite(found).all()
        stream_mean = np.where(np.isfinite(waits), waits + own, np.inf) if endless else waits + own
        mean = self._per_flow(stream_mean)
        if endless:
            own_variance = np.where(np.isfinite(stream_mean), own_variance, 0.0)
        if not self._single:
            # Streams of one flow wait alike and differ in size: their means spread as well.
            with np.errstate(invalid="ignore"):
                apart = (stream_mean - mean[self.flow]) ** 2
            own_variance = own_variance + np.where(np.isfinite(apart), apart, 0.0)
        own_part = self._per_flow(own_variance)
        found_part = self._per_flow(found_variance.ravel()[at])
        sizes_vary = self._vary > 1e-9 * mean**2
        used = np.flatnonzero(np.bincount(at, minlength=work.load.size))
        idle = np.maximum(1 - work.load.sum(axis=1), 0.0)[used // work.load.shape[1]]
        moments = found.ravel()[used], found2.ravel()[used]
        of_cell = np.zeros((len(percentiles), found.size))
        quantiles = fitted_quantile(np.array(percentiles)[:, None] / 100, *moments, idle)
        of_cell[:, used] = score(quantiles, moments[0], found_variance.ravel()[used])
        scores = {}
        for p, of_level in zip(percentiles, of_cell, strict=True):
            # Where the size does not vary, how many copies were spared does, a little: normally.
            own_score = np.where(sizes_vary, self._size_scores[p], ndtri(p / 100))
            scores[p] = blended(self._per_flow(of_level[at]), found_part, own_score, own_part)
        variance = own_part + found_part
        if (self._stretch != 1).any() or (self._factor != 1).any():
            # A linear map of the response: its scores stay, its deviation grows with it.
            stretch, factor = self._per_link(self._stretch), self._per_link(self._factor)
            service = self._per_flow(self._size)
            mean = factor * (service + stretch * (mean - service))
            variance = variance * (factor * stretch) ** 2
        return Part(mean, variance, scores)

    def _per_link(self, values: Array) -> Array:
        """For every flow, the value of its link; 1 where it has none."""
        of_flow = np.ones(self._flows)
        of_flow[self.flow] = values[self._link]
        return of_flow

    def _own_batch(
        self, delay: LevelDelay, ahead: Array, spread: Array, at: Ints
    ) -> tuple[Array, Array]:
        """Moments of the time for copies of the same message that go first, and for the copy."""
        stretch, jitter = delay.stretch.ravel()[at], delay.jitter.ravel()[at]
        size, square, varies = self._size, self._square, self._varies
        with np.errstate(invalid="ignore"):
            before = ahead * size
            stretched = before * stretch
            # One size counts for each copy ahead and for the copy itself:
            # (E[N^2] E[S^2] - (E[N] E[S])^2) stretch^2 + E[N] (E[S] jitter + 2 Var[S] stretch).
            variance = (
                ((spread + ahead**2) * square - before**2) * stretch**2
                + before * jitter
                + 2 * ahead * varies * stretch
                + varies
            )
        return stretched + size, np.maximum(variance, 0.0)

    def _per_flow(self, values: Array) -> Array:
        """The mean over the streams of each flow; most flows have one."""
        if self._single:
            return values
        with np.errstate(invalid="ignore"):
            return sums(self.flow, values * self._share, self._flows)


def shifted(moments: Array, by: Array | float) -> Array:
    """Raw moments of X + by."""
    first, second, third = moments.T
    return np.stack(
        [
            first + by,
            second + 2 * by * first + by**2,
            third + 3 * by * second + 3 * by**2 * first + by**3,
        ],
        axis=1,
    )


def _ranked(priority: Ints) -> tuple[Ints, int]:
    """The level of each flow, counted without gaps, and how many levels there are."""
    if int(priority.min()) < 0:
        raise ValueError("a priority is 0 or more: 0 goes first")
    rank = np.cumsum(np.bincount(priority) > 0)
    return rank[priority] - 1, int(rank[-1])
