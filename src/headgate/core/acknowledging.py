"""Acknowledgements of QoS 1 and 2, in both directions (MQTT 5 §4.3).

None is sent before what it promises is safe: it waits at the gate for the journal, and the next
ones behind it [MQTT-4.6.0-2].

    PUBLISH 1 ──▶ PUBACK                        ┌─▶ finish ◀── PUBACK ◀── PUBLISH 1
    PUBLISH 2 ──▶ remember ──▶ PUBREC           │   PUBREL ◀── PUBREC ◀── PUBLISH 2
    PUBREL ────▶ recall ────▶ PUBCOMP           └─────────── PUBCOMP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headgate.core.message import uint16
from headgate.core.outlet import Outlet
from headgate.core.queueing import Delivery
from headgate.core.session import Session
from headgate.core.states import OPEN, OPENING
from headgate.errors import ProtocolViolation

if TYPE_CHECKING:
    from headgate.core.broker import Broker


class Acknowledger:
    """One connection's exchanges: what it is owed, and what it owes."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.pool = broker.pool
        self.outlet = Outlet(broker.board, 4)
        self.state = OPENING
        self.version = 4
        self.session: Session | None = None

        # Acknowledgements that wait for a commit, in order, and how many messages of this
        # connection have not had their last one (§4.9).
        self.gate: list[tuple[int, bytes]] = []
        self.unanswered = 0

    # What the client published

    def answer(self, qos: int, packet_id: int, reason: int, position: int) -> None:
        """PUBACK or PUBREC, after the commit at `position`."""
        first = b"\x40" if qos == 1 else b"\x50"
        if reason and self.version == 5:
            packet = first + b"\x03" + uint16(packet_id) + bytes((reason,))
        else:
            packet = first + b"\x02" + uint16(packet_id)
        self.acknowledge(packet, position)

    def acknowledge(self, packet: bytes, position: int) -> None:
        """Send an acknowledgement, never before an earlier one that waits [MQTT-4.6.0-2]."""
        if self.gate or position > self.pool.durable:
            if not self.gate:
                self.broker.gated.append(self)
            self.gate.append((position, packet))
        else:
            self.send_acknowledgement(packet)

    def send_acknowledgement(self, packet: bytes) -> None:
        """The last answer to a message gives its publisher room for another (§4.9)."""
        first = packet[0]
        if self.unanswered and (
            first in (0x40, 0x70) or (first == 0x50 and len(packet) > 4 and packet[4] >= 0x80)
        ):
            self.unanswered -= 1
        self.outlet.put(packet)

    def recorded(self, session: Session) -> int:
        """The position up to which everything that happened to a session so far is recorded."""
        return session.journal.position if session.journal is not None else 0

    def committed(self) -> None:
        """The journal got further: send the acknowledgements that waited for it."""
        gate = self.gate
        passed = 0
        for position, packet in gate:
            if position > self.pool.durable:
                break
            passed += 1
            if self.state == OPEN:
                self.send_acknowledgement(packet)
        del gate[:passed]

    def pubrel(self, packet_id: int, now: float) -> None:
        session = self.session
        assert session is not None
        if packet_id in session.received:
            self.recall(session, packet_id)
            # Not before the commit: the client may reuse the identifier after PUBCOMP, and a crash
            # must not make its next message look like a duplicate.
            self.acknowledge(b"\x70\x02" + uint16(packet_id), self.recorded(session))
        elif self.version == 5:
            self.acknowledge(b"\x70\x03" + uint16(packet_id) + b"\x92", self.recorded(session))
        else:
            self.acknowledge(b"\x70\x02" + uint16(packet_id), self.recorded(session))

    def remember(self, session: Session, packet_id: int) -> None:
        """A message of QoS 2 has come; until PUBREL, another with its identifier is the same."""
        session.received.add(packet_id)
        if session.journal is not None:
            session.journal.save_received(session.client_id, packet_id)
            self.pool.kept = session.journal.position

    def recall(self, session: Session, packet_id: int) -> None:
        """The exchange of a QoS 2 message is over: its identifier may mean another one now."""
        session.received.discard(packet_id)
        if session.journal is not None:
            session.journal.drop_received(session.client_id, packet_id)
            self.pool.kept = session.journal.position

    # What the client acknowledges

    def puback(self, packet_id: int, now: float) -> None:
        session = self.session
        assert session is not None
        delivery = session.inflight.get(packet_id)
        if delivery is not None and delivery.qos == 1 and delivery.sent:
            self.finish(delivery, now)

    def pubrec(self, packet_id: int, reason: int, now: float) -> None:
        session = self.session
        assert session is not None
        delivery = session.inflight.get(packet_id)
        if delivery is None or delivery.qos != 2 or not delivery.sent:
            if reason >= 0x80:
                return
            if self.version == 5:
                self.acknowledge(b"\x62\x03" + uint16(packet_id) + b"\x92", 0)
            else:
                self.acknowledge(b"\x62\x02" + uint16(packet_id), 0)
        elif reason >= 0x80:
            # Refused: the exchange ends here, without PUBREL (§4.3.3).
            self.finish(delivery, now)
        else:
            if not delivery.released:
                delivery.released = True
                if session.journal is not None and delivery.sequence:
                    session.journal.release_delivery(session.client_id, delivery.sequence)
            # Not before the commit: after PUBREL the client forgets the identifier, and a crash
            # must not make us send the message again.
            self.acknowledge(b"\x62\x02" + uint16(packet_id), self.recorded(session))

    def pubcomp(self, packet_id: int, now: float) -> None:
        session = self.session
        assert session is not None
        delivery = session.inflight.get(packet_id)
        if delivery is not None and delivery.released:
            self.finish(delivery, now)

    def finish(self, delivery: Delivery, now: float) -> None:
        """A delivery is complete: its identifier is free, the window opens."""
        flow = delivery.flow
        session = flow.session
        del session.inflight[delivery.packet_id]
        session.completed(delivery.message.size)
        flow.record_acknowledged(delivery, now)
        flow.forget(delivery)
        if session.draining and not session.inflight and not session.waiting:
            assert session.connectivity is not None
            session.connectivity.drained(session, now)


def packet_identifier(data: bytes, pos: int) -> int:
    """The packet identifier at `pos`, which is never 0 [MQTT-2.2.1-3], [MQTT-2.2.1-4]."""
    number = (data[pos] << 8) | data[pos + 1]
    if number == 0:
        raise ProtocolViolation("a packet identifier of 0")
    return number
