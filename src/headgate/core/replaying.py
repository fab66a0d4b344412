"""The replays of the broker: how they begin, that they go on, and that they survive a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.core.flows import Flow
from headgate.core.replay import Replay
from headgate.core.scheduler import REST, pump
from headgate.core.subscribing import record

if TYPE_CHECKING:
    from headgate.core.broker import Broker


class Replays:
    """All replays of the broker: how they begin, and that they go on."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.awake = True
        """No alarm is set, for none rests."""

    def prepare(self, flow: Flow) -> None:
        """Owe the retained messages that a subscription matches, from now on.

        A replay of the same subscription that is under way begins anew: every message comes after
        this SUBSCRIBE, and no number of them makes more work than one (§3.8.4).
        """
        before: Replay | None = flow.replay
        if before is not None:
            before.recorded = False  # whoever prepares another records that
            before.end()
        replay = Replay(self.broker, flow)
        if replay.cursor.step():
            self.attach(replay)

    def begin(self, flow: Flow, now: float) -> None:
        """Send the first of a replay that was prepared at once, and see that the rest follows."""
        replay: Replay | None = flow.replay
        if replay is None or replay.lane.listed:
            return
        session = flow.session
        if session.link is None or session.link.rate == 0.0:
            if not session.owed:
                while flow.replay is not None and replay.proceed(now) == 0:
                    pass
            if flow.replay is None:
                return
        if session.outlet is not None:
            replay.lane.listed = True
            session.own_link().enlist(replay.lane, replay.lane.level)

    def owe(self, flow: Flow) -> None:
        """After a restart: what an interrupted replay had left is owed, from its beginning."""
        replay = Replay(self.broker, flow)
        if replay.cursor.step():
            replay.lasting = True
            replay.recorded = True
            self.attach(replay)

    @staticmethod
    def attach(replay: Replay) -> None:
        flow = replay.flow
        replay.lane.replay = replay
        flow.replay = replay
        flow.session.waiting[replay.lane] = None
        flow.refresh()

    def record(self, flow: Flow) -> None:
        """Have the journal know whether a session that lasts is owed a replay."""
        if flow.session.flows.get(flow.filter) is flow and (flow.replay is None or flow.qos):
            record(self.broker, flow)

    def rouse(self) -> None:
        """Make sure that the replays that rest go on."""
        if self.awake and self.broker.pool.resting:
            self.awake = False
            self.broker.schedule(self.broker.pool.rested, self.resume)

    def resume(self, now: float) -> None:
        """Let the replays that rest go on, in turn, for as long as a slice lasts."""
        pool = self.broker.pool
        waiting, pool.resting = pool.resting, []
        pool.resuming = True
        done = 0
        for lane in waiting:
            if not pool.may_step(now):
                break
            done += 1
            if lane.resting:
                lane.resting = False
                link = lane.flow.session.own_link()
                link.enlist(lane, lane.level)
                self.broker.wait_for_pace(link, pump(link, now))
        pool.resuming = False
        pool.resting = waiting[done:] + pool.resting
        pool.rested = max(pool.rested, now + REST)
        self.awake = True
        self.rouse()
