"""A process of subscribers that writes down who received what and when.

`ip netns exec NAME python -m bench.receivers` puts all of them behind a link. The first line on its
standard input says what to do (`Order`); it answers `ready` when every subscription is granted. On
`finish LIMIT SILENCE` it goes on until nothing arrives for SILENCE seconds, for LIMIT seconds at
most, writes its receipts to a file and ends.
"""

import contextlib
import gc
import json
import os
import select
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import packets
from bench.brokers import REPOSITORY
from bench.campaign import raise_descriptor_limit
from bench.client import SCRATCH, BrokerError, Client, PacketClient
from bench.network import hurry
from bench.target import Target

HEAD = 12
"""Bytes of each payload that are kept; shorter ones are filled with zeros."""

START_LIMIT = 60.0
_SOCKET_TURNS = 64


@dataclass(frozen=True)
class Subscriber:
    """A client to be."""

    client_id: str
    filters: Sequence[str]
    qos: int = 0
    sink: bool = False
    """Takes what comes and writes nothing down."""
    payload: int = 0
    """If all payloads have one size and the filter is a topic: read them in runs, much faster."""


@dataclass(frozen=True)
class Receipts:
    """What arrived, in order of arrival at the process."""

    flows: list[tuple[str, str]]
    """Client and topic, by number."""
    flow: "array[int]"
    heads: bytes
    time: "array[int]"
    """Nanoseconds of the machine's monotonic clock, which namespaces share."""
    qos: "array[int]"
    sunk: int
    """Bytes that sinks took."""
    complete: bool
    """Nothing more came for as long as was asked: what is missing was lost."""

    def head(self, number: int) -> bytes:
        """What the payload of a message began with."""
        return self.heads[number * HEAD : (number + 1) * HEAD]

    def write(self, path: Path) -> None:
        """Keep for the process that asked."""
        about = {"flows": self.flows, "count": len(self.flow), "sunk": self.sunk}
        about["complete"] = self.complete
        with path.open("wb") as file:
            file.write(json.dumps(about).encode() + b"\n")
            file.writelines((self.flow.tobytes(), self.time.tobytes(), self.qos.tobytes()))
            file.write(self.heads)

    @classmethod
    def read(cls, path: Path) -> "Receipts":
        """What such a process wrote."""
        with path.open("rb") as file:
            about = json.loads(file.readline())
            columns = [array(code) for code in "HqB"]
            for column in columns:
                column.fromfile(file, about["count"])
            flow, moment, qos = columns
            flows = [(client, topic) for client, topic in about["flows"]]
            return cls(flows, flow, file.read(), moment, qos, about["sunk"], about["complete"])


class Process:
    """Such a process, seen from the one that starts it."""

    def __init__(self, process: "subprocess.Popen[str]", file: Path) -> None:
        self._process = process
        self._file = file
        self.pid = process.pid
        self.target = Target(("", 0), process.pid)
        self.target.find_processes()

    def finish(self, limit: float, silence: float) -> Receipts:
        """Wait for what is under way; what all of them received."""
        try:
            self._process.communicate(f"finish {limit} {silence}\n", timeout=limit + 60)
        except subprocess.TimeoutExpired:
            raise BrokerError("the subscribers' process does not end") from None
        if self._process.returncode:
            raise BrokerError("the subscribers' process failed: a broker closed its connection?")
        return Receipts.read(self._file)


@contextlib.contextmanager
def receiving(
    address: tuple[str, int],
    subscribers: Sequence[Subscriber],
    directory: Path,
    prefix: Sequence[str] = (),
) -> Iterator[Process]:
    """Start the process, `prefix` before its command line; ends with the block at the latest."""
    file = directory / "receipts"
    process = subprocess.Popen(
        [*prefix, sys.executable, "-m", "bench.receivers"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=REPOSITORY,
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        order = {
            "address": address,
            "file": str(file),
            "subscribers": [asdict(subscriber) for subscriber in subscribers],
        }
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        ready, _, _ = select.select([process.stdout], [], [], START_LIMIT)
        if not ready or process.stdout.readline() != "ready\n":
            raise BrokerError("the subscribers could not connect and subscribe")
        yield Process(process, file)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


# -- inside the process ------------------------------------------------------------------


class Ledger:
    """The receipts while they grow."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, bytes], int] = {}
        self.flow = array("H")
        self.heads = bytearray()
        self.time = array("q")
        self.qos = array("B")
        self.sunk = 0
        self.later: list[tuple[int, bytes, int, int, int, int]] = []
        """Runs to be written down: flow, bytes, size of each packet, of each payload, QoS, time."""

    def number(self, client: str, topic: bytes) -> int:
        """Of a flow."""
        return self.numbers.setdefault((client, topic), len(self.numbers))

    def _write_down(self) -> None:
        for flow, seen, size, payload, qos, now in self.later:
            for end in range(size, len(seen) + 1, size):
                self.flow.append(flow)
                self.heads += seen[end - payload : end][:HEAD].ljust(HEAD, b"\0")
                self.time.append(now)
                self.qos.append(qos)
        self.later.clear()

    def close(self, complete: bool) -> Receipts:
        """Nothing more is written down."""
        self._write_down()
        flows = [(client, topic.decode()) for client, topic in self.numbers]
        return Receipts(
            flows, self.flow, bytes(self.heads), self.time, self.qos, self.sunk, complete
        )


class RunReceiver(PacketClient):
    """Acknowledges whole runs of messages of one size, and has them written down later."""

    def __init__(self, address: tuple[str, int], about: Subscriber, ledger: Ledger) -> None:
        super().__init__(address, client_id=about.client_id)
        self.subscribe(about.filters, about.qos)
        topic, content = about.filters[0], bytes(about.payload)
        self._ledger = ledger
        self._flow = ledger.number(about.client_id, topic.encode())
        self._payload = about.payload
        self._offset = packets.topic_end(topic, content, 1)
        self.sizes = {packets.PUBREL: 4}
        for qos in range(3):
            self.sizes[packets.publish_head(qos)] = len(packets.publish(topic, content, qos))

    def arrived(self, buffer: bytearray, run: packets.Run) -> bytes | bytearray:
        """Keep the bytes with the time; answer as the quality of service asks."""
        if run.head == packets.PUBREL:
            return packets.answers(buffer, run, 4, 2, packets.PUBCOMP)
        size = self.sizes[run.head]
        qos = run.head >> 1 & 3
        seen = bytes(buffer[run.start : run.start + run.length * size])
        now = time.monotonic_ns()
        self._ledger.later.append((self._flow, seen, size, self._payload, qos, now))
        if not qos:
            return b""
        answer = packets.PUBACK if qos == 1 else packets.PUBREC
        return packets.answers(buffer, run, size, self._offset, answer)


class Receiver(Client):
    """Writes down every message and acknowledges it."""

    def __init__(self, address: tuple[str, int], about: Subscriber, ledger: Ledger) -> None:
        super().__init__(address, client_id=about.client_id)
        self.subscribe(about.filters, about.qos)
        self._name = about.client_id
        self._sink = about.sink
        self._ledger = ledger
        self._rest = bytearray()

    def readable(self) -> None:
        """Take what is there; a message was received when its last byte was."""
        received = self.receive(SCRATCH)
        if self._sink:
            self._ledger.sunk += received
            return
        now = time.monotonic_ns()
        rest = self._rest
        rest += memoryview(SCRATCH)[:received]
        at = 0
        answers = bytearray()
        while (end := _packet_end(rest, at)) > 0:
            answers += self._packet(rest, at, end, now)
            at = end
        if at:
            del rest[:at]
        if answers:
            self.send(answers)

    def _packet(self, data: bytearray, start: int, end: int, now: int) -> bytes:
        first = data[start]
        kind = first >> 4
        if kind == 6:
            return bytes((packets.PUBCOMP, 2)) + data[end - 2 : end]
        if kind != 3:
            raise packets.UnexpectedPacketError(f"a packet 0x{first:02x} was not expected")
        body = start + 2
        while data[body - 1] > 127:
            body += 1
        qos = first >> 1 & 3
        topic_end = body + 2 + (data[body] << 8 | data[body + 1])
        payload = topic_end + (2 if qos else 0)
        ledger = self._ledger
        ledger.flow.append(ledger.number(self._name, bytes(data[body + 2 : topic_end])))
        ledger.heads += data[payload : min(payload + HEAD, end)].ljust(HEAD, b"\0")
        ledger.time.append(now)
        ledger.qos.append(qos)
        if not qos:
            return b""
        answer = packets.PUBACK if qos == 1 else packets.PUBREC
        return bytes((answer, 2)) + data[topic_end:payload]


def _packet_end(data: bytearray, start: int) -> int:
    """Where the packet that begins at `start` ends; 0 if it is not all there."""
    size = len(data)
    length = shift = 0
    for at in range(start + 1, min(start + 5, size)):
        length |= (data[at] & 127) << shift
        shift += 7
        if data[at] < 128:
            end = at + 1 + length
            return end if end <= size else 0
    return 0


def _receiver(address: tuple[str, int], about: Subscriber, ledger: Ledger) -> Client:
    return (RunReceiver if about.payload else Receiver)(address, about, ledger)


def main() -> int:
    """Obey one order."""
    raise_descriptor_limit()
    if os.sched_getscheduler(0) == os.SCHED_RR:
        hurry(2)  # a receipt must not wait for who is measured
    order = json.loads(sys.stdin.readline())
    ledger = Ledger()
    address = (order["address"][0], order["address"][1])
    receivers = [_receiver(address, Subscriber(**about), ledger) for about in order["subscribers"]]
    gc.collect()
    gc.freeze()
    gc.disable()
    epoll = select.epoll()
    by_descriptor = {receiver.socket.fileno(): receiver for receiver in receivers}
    for receiver in receivers:
        receiver.attach(epoll)
    epoll.register(0, select.EPOLLIN)
    print("ready", flush=True)
    limit = silent = float("inf")
    silence = 0.0
    while (now := time.monotonic()) < min(limit, silent):
        heard = False
        for descriptor, event in epoll.poll(0.1, _SOCKET_TURNS):
            if descriptor == 0:
                words = sys.stdin.readline().split()
                if not words:
                    return 1  # whoever ordered this is gone
                limit = now + float(words[1])
                silence = float(words[2])
                silent = now + silence
                epoll.unregister(0)
                continue
            if event & select.EPOLLOUT:
                by_descriptor[descriptor].flush()
            if event & ~select.EPOLLOUT:
                by_descriptor[descriptor].readable()
                heard = True
        if heard and silence:
            silent = time.monotonic() + silence
    ledger.close(complete=silent <= limit).write(Path(order["file"]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
