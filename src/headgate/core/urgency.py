"""Who may call a message urgent or critical, and what that makes of it (p-MQTT §2).

Anybody could claim it, so a claim needs a permission and is limited by a rate. One that is denied
is delivered as a normal message and counted, or refused, as configured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.config import Unpermitted
from headgate.core.message import NORMAL, URGENT, Message, varint
from headgate.core.publication import CLASS_PROPERTIES, PREFIXES, Properties
from headgate.core.session import Session

if TYPE_CHECKING:
    from headgate.core.broker import Broker
    from headgate.core.publishing import Publisher


class Claims:
    """Judges claims."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def judge(
        self,
        channel: Publisher,
        message: Message,
        rank: int,
        properties: Properties | None,
        early: bool,
        now: float,
    ) -> bool:
        """Give a message the rank it claims, if it may; False if it is refused for claiming.

        `early`: it has its turn yet, and if it may not claim, that is when it is judged.
        """
        session = channel.session
        assert session is not None
        if self._permitted(session, message, rank) and self._within_rate(channel, now):
            self._promote(message, rank, properties)
            return True
        return False if early else self._deny()

    def judge_will(self, session: Session, message: Message) -> bool:
        """The same for a will, whose class stands in its topic or its properties.

        There is one for a connection: no rate limits it.
        """
        properties = Properties()
        encoded = varint(len(message.properties)) + message.properties
        properties.scan(encoded, 0, len(encoded))
        message.properties = properties.forwarded
        rank = properties.rank
        for prefix, claimed in PREFIXES:
            if message.topic.startswith(prefix):
                message.topic = message.topic[len(prefix) :]
                rank = claimed
                break
        if rank == NORMAL:
            return True
        if self._permitted(session, message, rank):
            self._promote(message, rank, properties)
            return True
        return self._deny()

    def _permitted(self, session: Session, message: Message, rank: int) -> bool:
        name = "urgent" if rank == URGENT else "critical"
        return self.broker.gatekeeper.may_claim(
            session.identity, session.client_id, name, message.topic.decode()
        )

    def _within_rate(self, channel: Publisher, now: float) -> bool:
        """Has the client claims left? Whoever cries wolf too often is a normal one."""
        rate = self.broker.config.urgency.rate
        if rate == 0.0:
            return True
        most = max(rate, 1.0)
        if channel.claimed == 0.0:
            channel.claim_allowance = most
        else:
            earned = (now - channel.claimed) * rate
            channel.claim_allowance = min(most, channel.claim_allowance + earned)
        channel.claimed = now
        if channel.claim_allowance < 1.0:
            return False
        channel.claim_allowance -= 1.0
        return True

    def _promote(self, message: Message, rank: int, properties: Properties | None) -> None:
        message.rank = rank
        # Urgent is sent once and at once; critical is made sure of (p-MQTT §2.2).
        message.qos = 0 if rank == URGENT else 2
        others = message.properties
        place = len(others) if properties is None or properties.place < 0 else properties.place
        message.properties = others[:place] + CLASS_PROPERTIES[rank] + others[place:]
        if rank == URGENT:
            self.broker.counters.messages_urgent += 1
        else:
            self.broker.counters.messages_critical += 1

    def _deny(self) -> bool:
        self.broker.counters.claims_denied += 1
        return self.broker.config.urgency.unpermitted is Unpermitted.DELIVER
