"""What the estimator makes of the kernel's answers about many connections."""

from headgate.core.capacity import Capacity, Phase, Reading
from headgate.core.link import HEADERS, SEGMENT
from headgate.server.estimator import INTERVAL, Sums, add
from headgate.server.tcp import Transfer

CLIENTS = 1_000
PER_SECOND = 100
"""Messages that each client is sent; one is always under way."""


def transfers(look: int, size: int) -> Transfer:
    """A client that has acknowledged all of its messages but the last."""
    messages = round(look * INTERVAL * PER_SECOND)
    return Transfer(
        in_flight=1, acknowledged=messages * size, shortest=50, closed=0, delivered=messages
    )


def watched(size: int) -> tuple[Capacity, Sums]:
    """Ten seconds of looks at a thousand such clients."""
    capacity, sums = Capacity(), Sums()
    for look in range(1, 101):
        sums = Sums()
        for _ in range(CLIENTS):
            add(sums, transfers(look - 1, size), transfers(look, size), held=size)
        reading = Reading(INTERVAL, 0.0, sums.delivered, sums.backlog, 50e-6, eager=False)
        capacity.follow(reading)
    return capacity, sums


def test_a_thousand_small_messages_under_way_are_no_queue() -> None:
    capacity, sums = watched(9)
    assert sums.backlog == CLIENTS * (9 + HEADERS)
    assert capacity.phase is Phase.FREE


def test_bytes_and_headers_count_on_both_sides() -> None:
    _, sums = watched(SEGMENT)
    assert sums.delivered == CLIENTS * PER_SECOND * INTERVAL * (SEGMENT + HEADERS)
    assert sums.backlog == CLIENTS * (SEGMENT + HEADERS)


def test_who_waits_for_its_receiver_is_no_queue() -> None:
    sums = Sums()
    before = transfers(1, 9)
    add(sums, before, before._replace(closed=40_000), held=200_000)
    assert sums.backlog == 0
