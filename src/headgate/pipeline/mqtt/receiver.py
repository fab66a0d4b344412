"""What one connection has received and not yet acknowledged.

    received ─▶ waiting ──take──▶ held in a segment ──settle──▶ acknowledged

A message is the broker's until it is acknowledged, and it is acknowledged when the micro-batch
that it is in is committed. After a break the broker sends again what was not acknowledged, under
the same packet identifiers [MQTT-4.4.0-1]: what is known by identifier and content is not taken
twice. Should the broker have lost the session, identifiers mean nothing any more, and it is taken
twice rather than not at all.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import paho.mqtt.client as mqtt

from headgate.pipeline.mqtt.connection import Connection
from headgate.pipeline.mqtt.message import Message, message_of

NOT_YET = 1 << 62
"""The segment of a message that is in none."""
ROOM = 200_000
"""Messages that may wait: those of QoS 0 are not bounded by the receive maximum."""


@dataclass(slots=True)
class Held:
    """A message that is owed an acknowledgement."""

    packet: int
    topic: str
    payload: bytes
    segment: int = NOT_YET
    here: bool = False
    """It came over the connection that there is now, so that this one can acknowledge it."""


class Receiver:
    """Fills from paho's thread; `take` and `settle` are called from Spark's."""

    def __init__(self, connection: Connection, known: Iterable[Held] = ()) -> None:
        self.connection = connection
        self.arrived = threading.Condition()
        self._waiting: deque[tuple[Message, Held | None]] = deque()
        self._held: dict[int, Held] = {one.packet: one for one in known}
        self._settled = -1
        self._closed = False
        connection.on_connected = self._connected
        connection.client.on_message = self._received

    def __len__(self) -> int:
        return len(self._waiting)

    def _connected(self, session_present: bool) -> None:
        with self.arrived:
            for one in self._held.values():
                one.here = False
            if not session_present:
                self._held.clear()

    def _received(self, client: mqtt.Client, _data: object, received: mqtt.MQTTMessage) -> None:
        with self.arrived:
            while len(self._waiting) >= ROOM and not self._closed:
                self.arrived.wait(1.0)  # nothing is read meanwhile, and TCP holds the broker back
            held = None
            if received.qos:
                known = self._held.get(received.mid)
                if (
                    known is not None
                    and received.dup
                    and (known.topic, known.payload) == (received.topic, received.payload)
                ):
                    known.here = True
                    if known.segment <= self._settled:
                        del self._held[known.packet]
                        client.ack(known.packet, 1)
                    return
                held = Held(received.mid, received.topic, bytes(received.payload), here=True)
                self._held.pop(received.mid, None)  # so that the order stays that of arrival
                self._held[received.mid] = held
            self._waiting.append((message_of(received), held))
            self.arrived.notify_all()

    def take(self, most: int, segment: int) -> list[tuple[Message, int]]:
        """Up to so many messages that wait, which now belong to a segment; with their packet
        identifiers, 0 for those that need no acknowledgement."""
        taken: list[tuple[Message, int]] = []
        with self.arrived:
            while self._waiting and len(taken) < most:
                message, held = self._waiting.popleft()
                # After a lost session the identifier may be another message's by now.
                if held is not None and self._held.get(held.packet) is held:
                    held.segment = segment
                    taken.append((message, held.packet))
                else:
                    taken.append((message, 0))
            self.arrived.notify_all()
        return taken

    def settle(self, through: int) -> None:
        """Acknowledge what is in segments up to this one, in the order in which it came."""
        with self.arrived:
            if through <= self._settled:
                return
            self._settled = through
            done = [one for one in self._held.values() if one.here and one.segment <= through]
            for one in done:
                del self._held[one.packet]
        for one in done:  # [MQTT-4.6.0-2]: a dict keeps the order of arrival
            self.connection.client.ack(one.packet, 1)

    def close(self) -> None:
        with self.arrived:
            self._closed = True
            self.arrived.notify_all()
        self.connection.close()
