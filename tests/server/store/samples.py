"""One of each record, with values that would be noticed if they were mixed up."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from headgate.core.journal import (
    StoredArrivals,
    StoredConnectivity,
    StoredDelivery,
    StoredMessage,
    StoredSession,
    StoredSubscription,
    StoredWill,
)

MESSAGE = StoredMessage(
    key=41,
    topic="räume/2/temperatur".encode(),
    payload=bytes(range(256)),
    properties=b"\x26\x00\x01a\x00\x01b",
    qos=2,
    retain=True,
    rank=1,
    expires=1893456000.125,
    arrived=1700000000.1234567,
    sender="sensor-7",
)
SESSION = StoredSession(
    client_id="app",
    user="anna",
    expiry=3600,
    ends=1700003600.5,
    connectivity=StoredConnectivity(
        on=(151.5, 3.25, 2.5),
        off=(78.0, 3.0, 2.75),
        drain=(41.5, 0.75),
        since=1699999000.25,
        parted=1700000000.5,
        arrivals=(StoredArrivals(filter="räume/+/#", messages=12.5, seconds=90.25, join=0.417),),
    ),
)
SUBSCRIPTION = StoredSubscription(
    client_id="app",
    filter="$share/g/räume/+/#",
    qos=1,
    no_local=True,
    retain_as_published=False,
    retain_handling=2,
    identifier=268435455,
    claims=(("category", "RT"), ("max-loss", "0.1")),
    replaying=True,
)
DELIVERY = StoredDelivery(
    client_id="app",
    sequence=5,
    message=41,
    filter="räume/+/#",
    qos=2,
    packet_id=0,
    released=False,
    retain=True,
)
WILL = StoredWill(client_id="app", due=1700000123.75, message=replace(MESSAGE, key=42), delay=30)


def message(key: int, **changes: Any) -> StoredMessage:
    return replace(MESSAGE, key=key, **changes)


def delivery(client_id: str, sequence: int, **changes: Any) -> StoredDelivery:
    return replace(DELIVERY, client_id=client_id, sequence=sequence, message=sequence, **changes)
