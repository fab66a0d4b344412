"""Random and mutated streams thrown at live listeners by several connections at once.

Ten seconds in the suite; HEADGATE_FUZZ_SECONDS=3600 for an hour.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import threading
import time
from pathlib import Path

import pytest
from durability.process import MortalBroker
from memory.witness import MIB, Witness

from .streams import Streams

SECONDS = float(os.environ.get("HEADGATE_FUZZ_SECONDS", "10"))
THROWERS = 4
CONFIG = """
listeners:
  - {type: tcp, address: "127.0.0.1:0"}
  - {type: ws, address: "127.0.0.1:0"}
limits: {queued_messages: 100, connect_timeout: 2s, memory: 16MiB, keep_alive_max: 10s}
sys_interval: 1s
"""
HANDSHAKE = (
    b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: mqtt\r\n\r\n"
)


class Thrower(threading.Thread):
    """Connects, throws a stream, listens or does not, leaves politely or does not; again."""

    def __init__(self, broker: MortalBroker, seed: int, end: float) -> None:
        super().__init__(daemon=True)
        self.ports = {"tcp": broker.port_of("tcp"), "ws": broker.port_of("ws")}
        self.streams = Streams(seed)
        self.rng = random.Random(seed)
        self.end = end
        self.thrown = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while time.monotonic() < self.end:
                self.throw()
                self.thrown += 1
        except BaseException as error:
            self.failure = error

    def throw(self) -> None:
        rng = self.rng
        kind = rng.choice(["tcp", "tcp", "tcp", "ws"])
        with socket.create_connection(("127.0.0.1", self.ports[kind]), timeout=10.0) as connection:
            if rng.random() < 0.3:
                # Closing sends a reset, which may come in the middle of anything.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            pieces = self.streams.pieces(self.streams.next())
            if kind == "ws" and rng.random() < 0.8:
                pieces = [HANDSHAKE] + [self.frame(piece) for piece in pieces]
            with contextlib.suppress(OSError):  # the broker may have had enough
                for piece in pieces:
                    connection.sendall(piece)
                if rng.random() < 0.5:
                    connection.shutdown(socket.SHUT_WR)
                if rng.random() < 0.7:
                    connection.settimeout(rng.choice([0.001, 0.01, 0.05]))
                    while connection.recv(65536):
                        pass

    def frame(self, payload: bytes) -> bytes:
        """A WebSocket frame around a piece, mostly a correct one."""
        rng = self.rng
        first = rng.choice([0x82] * 10 + [0x02, 0x80, 0x81, 0x88, 0x89, 0x8A, 0xF2, 0x83])
        length = len(payload)
        if length < 126:
            header = bytes([first, 0x80 | length])
        elif length < 65536:
            header = bytes([first, 0x80 | 126]) + length.to_bytes(2, "big")
        else:
            header = bytes([first, 0x80 | 127]) + length.to_bytes(8, "big")
        mask = rng.randbytes(4)
        masked = bytes(byte ^ mask[i & 3] for i, byte in enumerate(payload))
        frame = header + mask + masked
        return frame if rng.random() < 0.9 else self.streams.mutated(frame)


@pytest.mark.timeout(SECONDS + 120)
def test_a_live_broker_survives_whatever_is_thrown_at_it(tmp_path: Path) -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")  # shown if the test fails
    with MortalBroker(tmp_path, CONFIG) as broker:
        witness = Witness(broker)
        end = time.monotonic() + SECONDS
        throwers = [Thrower(broker, seed + number, end) for number in range(THROWERS)]
        for thrower in throwers:
            thrower.start()
        while time.monotonic() < end:
            witness.look()
            time.sleep(0.05)  # a look now and then: the processor belongs to the others
        for thrower in throwers:
            thrower.join(30.0)
            assert thrower.failure is None, thrower.failure
        witness.look()
        witness.testify(most=96 * MIB)
        assert sum(thrower.thrown for thrower in throwers) > 10 * SECONDS
        broker.stop()  # status 0, no traceback
        broker.start()  # and what it kept of all this can be read
        Witness(broker).look()
        broker.stop()
        assert "CRITICAL" not in broker.errors
