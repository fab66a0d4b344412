"""The devices: one process, one connection each, packets encoded once, stamped when sent.

An open loop: what a broker does with one message never delays the next. How late the driver itself
was is part of the result.
"""

import gc
import select
import struct
import time
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from bench import packets
from bench.client import SCRATCH, Client
from bench.congestion.workload import Device

STAMP = struct.Struct("<qI")
"""What each payload begins with: nanoseconds of the monotonic clock, number of the message."""

SNAPSHOTS = "$SYS/headgate/snapshot"
_LEAD = 0.05
_SETTLING = 0.2


@dataclass
class Published:
    """What was sent, in order."""

    device: "array[int]" = field(default_factory=lambda: array("H"))
    time: "array[int]" = field(default_factory=lambda: array("q"))
    late: "array[int]" = field(default_factory=lambda: array("q"))
    """Nanoseconds between the moment that was due and the one at which it was sent."""
    start: int = 0
    snapshots: list[bytes] = field(default_factory=list)
    waited: float = 0.0


class Observer(Client):
    """Gathers the broker's own account, where it gives one."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address, client_id="observer")
        self.subscribe([SNAPSHOTS], 0)
        self.socket.setblocking(False)
        self._stream = bytearray()

    def readable(self) -> None:
        """Only keep it: it is read when there is time."""
        self._stream += memoryview(SCRATCH)[: self.receive(SCRATCH)]

    def payloads(self) -> list[bytes]:
        """Of every whole PUBLISH."""
        found = []
        data, at = bytes(self._stream), 0
        while at + 5 < len(data):
            body, length, shift = at + 1, 0, 0
            while True:
                length |= (data[body] & 127) << shift
                shift += 7
                body += 1
                if data[body - 1] < 128:
                    break
            end = body + length
            if end > len(data):
                break
            found.append(data[body + 2 + int.from_bytes(data[body : body + 2], "big") : end])
            at = end
        return found


def publish(
    address: tuple[str, int],
    devices: Sequence[Device],
    moments: Iterable[tuple[float, int]],
) -> Published:
    """Send each message at its moment, at QoS 0."""
    clients = [Client(address, client_id=f"device-{device.topic}") for device in devices]
    observer = Observer(address)
    frames = [bytearray(packets.publish(d.topic, b"x" * d.size)) for d in devices]
    offsets = [len(frame) - device.size for frame, device in zip(frames, devices, strict=True)]
    numbers = [0] * len(devices)
    sends = [client.socket.sendall for client in clients]
    published = Published()
    clock = time.monotonic_ns
    gc.collect()
    gc.disable()
    try:
        published.start = clock() + int(_LEAD * 1e9)
        for moment, device in moments:
            due = published.start + int(moment * 1e9)
            _wait_until(due, observer, published)
            now = clock()
            STAMP.pack_into(frames[device], offsets[device], now, numbers[device])
            sends[device](frames[device])
            numbers[device] += 1
            published.device.append(device)
            published.time.append(now)
            published.late.append(now - due)
        _wait_until(clock() + int(_SETTLING * 1e9), observer, published)
    finally:
        gc.enable()
        for client in (*clients, observer):
            client.close()
    published.snapshots = observer.payloads()
    return published


def _wait_until(due: int, observer: Observer, published: Published) -> None:
    """Sleep with `select`, which counts in microseconds where epoll counts in milliseconds."""
    while (left := due - time.monotonic_ns()) > 0:
        begin = time.perf_counter()
        ready, _, _ = select.select([observer.socket], [], [], left / 1e9)
        published.waited += time.perf_counter() - begin
        if ready:
            observer.readable()
