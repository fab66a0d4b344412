"""Connections: how fast they come and go, and what an idle one costs."""

import select
import socket
import time

from bench import packets
from bench.client import SETUP_TIMEOUT, BrokerError, Client
from bench.target import Effort, Measurement, Stopwatch, Target

# Ports of closed connections stay in TIME_WAIT, and a search for a free one among many of them
# costs the driver more than all the rest. Loopback has plenty of addresses to come from.
_SOURCES = 50
_BIND_ADDRESS_NO_PORT = 24  # IP_BIND_ADDRESS_NO_PORT, which the socket module does not name
_PORTS_PER_SOURCE = 8000


def run_connects(target: Target, effort: Effort, parallel: int) -> Measurement:
    """CONNECT, CONNACK, DISCONNECT, close: `parallel` at any time."""
    epoll = select.epoll()
    waiting: dict[int, socket.socket] = {}
    opened = finished = 0
    waited = 0.0

    def begin() -> None:
        nonlocal opened
        # Loopback completes this in the kernel; the broker takes part from CONNECT on.
        connection = socket.socket()
        if target.address[0].startswith("127."):
            connection.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
            connection.bind((f"127.0.0.{2 + opened % _SOURCES}", 0))
        connection.connect(target.address)
        connection.send(packets.connect(f"connect-{opened}"))
        waiting[connection.fileno()] = connection
        epoll.register(connection.fileno(), select.EPOLLIN)
        opened += 1

    try:
        watch = Stopwatch(target, lambda: finished, lambda: waited)
        for _ in range(parallel):
            begin()
        watch.start()
        end = time.perf_counter() + effort.seconds
        while time.perf_counter() < end:
            began_waiting = time.perf_counter()
            events = epoll.poll(SETUP_TIMEOUT)
            waited += time.perf_counter() - began_waiting
            if not events:
                raise BrokerError(f"no CONNACK within {SETUP_TIMEOUT:.0f} s")
            for descriptor, _ in events:
                connection = waiting.pop(descriptor)
                if connection.recv(16) != packets.CONNACK_ACCEPTED:
                    raise BrokerError("a connection was refused")
                connection.send(packets.DISCONNECT)
                epoll.unregister(descriptor)
                connection.close()
                finished += 1
                begin()
        return watch.stop()
    finally:
        for connection in waiting.values():
            connection.close()
        epoll.close()


def run_idle(target: Target, effort: Effort) -> Measurement:
    """Resident memory that each connected but silent client adds to the broker."""
    Client(target.address).close()
    target.find_processes()
    before = target.resident_bytes()
    clients = []
    try:
        for number in range(effort.idle_connections):
            loopback = target.address[0].startswith("127.")
            source = f"127.0.0.{2 + number // _PORTS_PER_SOURCE}" if loopback else ""
            clients.append(Client(target.address, keep_alive=600, source=source))
        after = target.resident_bytes()
    finally:
        for client in clients:
            client.close()
    if before is None or after is None:
        return Measurement({})
    return Measurement({"kib": (after - before) / 1024 / effort.idle_connections})
