"""`$SYS`: what the broker says about itself, retained, at an interval.

The names are the ones that operators of Mosquitto know (`$SYS/broker/…`), so that their dashboards
work; what is Headgate's own stands below `$SYS/headgate`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headgate import __version__
from headgate.core.reasons import Drop

if TYPE_CHECKING:
    from headgate.core.broker import Broker


class Statistics:
    """Gathers and publishes. What sessions that are gone had counted stays in the totals."""

    def __init__(self, broker: Broker, started: float) -> None:
        self.broker = broker
        self.started = started
        self._interval = 0.0

    def start(self, interval: float, now: float) -> None:
        """Publish now and then at every interval."""
        self._interval = interval
        self._publish(now)

    def _publish(self, now: float) -> None:
        for topic, value in self.values(now):
            self.broker.publish(topic, value.encode(), True, now)
        self.broker.schedule(now + self._interval, self._publish)

    def drops(self) -> list[int]:
        """Messages dropped, by reason, of all flows since the start."""
        totals = list(self.broker.past.drops)
        for session in self.broker.sessions.values():
            for flow in session.flows.values():
                for reason, count in enumerate(flow.drops):
                    totals[reason] += count
        return totals

    def delivered(self) -> int:
        """Messages handed to subscribers since the start."""
        total = self.broker.past.delivered
        for session in self.broker.sessions.values():
            for flow in session.flows.values():
                total += flow.delivered
        return total

    def values(self, now: float) -> Iterator[tuple[str, str]]:
        """Topic and value of all that is published."""
        broker = self.broker
        counters = broker.counters
        connected = sum(1 for s in broker.sessions.values() if s.channel is not None)
        drops = self.drops()
        delivered = self.delivered()
        yield "$SYS/broker/version", f"headgate {__version__}"
        yield "$SYS/broker/uptime", f"{int(now - self.started)} seconds"
        yield "$SYS/broker/clients/connected", str(connected)
        yield "$SYS/broker/clients/disconnected", str(len(broker.sessions) - connected)
        yield "$SYS/broker/clients/total", str(len(broker.sessions))
        yield "$SYS/broker/connections", str(len(broker.channels))
        yield "$SYS/broker/connections/opened", str(counters.connections_opened)
        yield "$SYS/broker/connections/refused", str(counters.connections_refused)
        yield "$SYS/broker/connections/failed", str(counters.connections_failed)
        yield "$SYS/broker/messages/received", str(counters.messages_received)
        yield "$SYS/broker/messages/sent", str(delivered)
        yield "$SYS/broker/publish/messages/received", str(counters.messages_received)
        yield "$SYS/broker/publish/messages/sent", str(delivered)
        yield "$SYS/broker/publish/messages/dropped", str(sum(drops))
        yield "$SYS/broker/publish/messages/refused", str(counters.messages_refused)
        yield "$SYS/broker/bytes/received", str(counters.bytes_received)
        yield "$SYS/broker/bytes/sent", str(counters.bytes_sent)
        yield "$SYS/broker/retained messages/count", str(broker.retained.count)
        yield "$SYS/broker/subscriptions/count", str(broker.router.subscriptions)
        yield "$SYS/broker/store/messages/count", str(broker.pool.messages)
        yield "$SYS/broker/store/messages/bytes", str(broker.pool.size)
        yield "$SYS/headgate/memory/queued", str(broker.pool.size)
        yield "$SYS/headgate/memory/inflight", str(broker.pool.unacknowledged)
        yield "$SYS/headgate/memory/retained", str(broker.pool.retained)
        yield "$SYS/headgate/memory/sessions", str(broker.pool.standing)
        yield "$SYS/headgate/subscriptions/refused", str(counters.subscriptions_refused)
        yield "$SYS/headgate/messages/urgent", str(counters.messages_urgent)
        yield "$SYS/headgate/messages/critical", str(counters.messages_critical)
        yield "$SYS/headgate/claims/denied", str(counters.claims_denied)
        for reason in Drop:
            yield f"$SYS/headgate/dropped/{reason.name.lower()}", str(drops[reason])
