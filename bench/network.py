"""A network namespace behind a slow link: the only place where congestion can be had honestly.

    broker ── near ═══ veth, shaped by tbf towards the namespace ═══ far ── clients in the namespace

Only the way to the clients is slow; what they send back is not. The addresses are of 198.18.0.0/15,
which RFC 2544 sets aside for benchmarks. Nothing else on the machine is touched, and everything is
removed in the end, whatever happens.
"""

import contextlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.brokers import BenchError

MEGABIT = 2**20
"""PlanEMQX's Mbit/s: Table I adds up only with it. Said as `Mibit`."""

UNITS = {"": MEGABIT, "Mibit": MEGABIT, "Mbit": 10**6}
"""What a rate is counted in: the paper's unit, or an operator's and `tc`'s."""

SEGMENT = 1448
"""Payload of a TCP segment on Ethernet, with time stamps."""
HEADERS = 66
"""Ethernet, IPv4 and TCP headers with time stamps: tbf counts whole frames."""

_PREFIX = "bench-"


def on_wire(size: int) -> int:
    """Bytes that tbf counts for one packet of MQTT that is written by itself."""
    return size + HEADERS * -(-size // SEGMENT)


def rate(text: str) -> float:
    """Bits per second of `10Mbit` (10^7), `10Mibit` (10 × 2^20) or `10` (the paper's: the same)."""
    number = text.rstrip("Mibt")
    unit = text[len(number) :]
    try:
        found = float(number) * UNITS[unit]
    except (ValueError, KeyError):
        found = math.nan
    if not 0 < found < math.inf:
        raise BenchError(f"a rate of {text}: expected one such as 10Mbit (10^7 bit/s) or 10Mibit")
    return found


def spoken(rate: float) -> str:
    """A rate in the unit in which it is round."""
    in_paper = rate / MEGABIT
    if math.isclose(in_paper, round(in_paper, 3), rel_tol=1e-9):
        return f"{in_paper:g} Mibit/s"
    return f"{rate / 1e6:g} Mbit/s"


@dataclass(frozen=True)
class Line:
    """A link as `tc tbf` makes it."""

    rate: float
    """Bits per second."""
    burst: int = 1600
    """Bytes that may pass at once after a silence: one frame, as on a line that sends one after
    the other. A deeper bucket lets short messages pass in no time, which no line does."""
    limit_ms: float = 1000.0
    """Queue before the link, in time of the link. Deep, so that TCP loses no frame to it: loss
    would add retransmissions to the response times of a broker that leaves its queue here."""
    congestion_control: str = ""
    """Of the connections over it; empty is the machine's own."""

    @property
    def limit(self) -> int:
        """Bytes."""
        return max(4 * 1600, round(self.rate / 8 * self.limit_ms / 1e3))


class Namespace:
    """A namespace and the link to it."""

    def __init__(self, name: str, device: str, near: str, far: str) -> None:
        self.name = name
        self.device = device
        self.near = near
        """Address of the broker's side."""
        self.far = far

    def inside(self, command: Sequence[str]) -> list[str]:
        """The command line that runs `command` in the namespace."""
        return ["ip", "netns", "exec", self.name, *command]

    def shape(self, line: Line | None) -> None:
        """Make the link what `line` says; None is as fast as the machine."""
        cc = line.congestion_control if line else ""
        network = self.near.rpartition(".")[0] + f".{int(self.near.rpartition('.')[2]) - 1}/30"
        route = ["ip", "route", "replace", network, "dev", self.device, "src", self.near]
        _run([*route, "congctl", cc] if cc else route)
        with contextlib.suppress(BenchError):  # there may be none yet
            _run(["tc", "qdisc", "del", "dev", self.device, "root"])
        if line is not None:
            shape = ["rate", f"{line.rate:.0f}bit", "burst", str(line.burst)]
            queue = ["limit", str(line.limit)]
            _run(["tc", "qdisc", "add", "dev", self.device, "root", "tbf", *shape, *queue])

    def change(self, line: Line) -> None:
        """Make the link faster or slower; what waits before it stays."""
        shape = ["rate", f"{line.rate:.0f}bit", "burst", str(line.burst)]
        queue = ["limit", str(line.limit)]
        _run(["tc", "qdisc", "change", "dev", self.device, "root", "tbf", *shape, *queue])

    def statistics(self) -> dict[str, int]:
        """What passed the link so far, and what waits before it."""
        shown: list[dict[str, Any]] = json.loads(
            _run(["tc", "-s", "-j", "qdisc", "show", "dev", self.device])
        )
        root = next(entry for entry in shown if entry.get("root"))
        return {key: int(root[key]) for key in ("bytes", "packets", "drops", "backlog")}


def congestion_control(line: Line) -> str:
    """What the connections over a line use."""
    default = Path("/proc/sys/net/ipv4/tcp_congestion_control")
    return line.congestion_control or default.read_text().strip()


def missing() -> str:
    """Why there can be no namespace here; empty if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root (sudo)"
    absent = [tool for tool in ("ip", "tc") if shutil.which(tool) is None]
    if absent:
        return f"{' and '.join(absent)} not found (on Debian: apt-get install iproute2)"
    return ""


@contextlib.contextmanager
def namespace() -> Iterator[Namespace]:
    """Make a namespace with a link to it, unshaped; removed afterwards."""
    if why := missing():
        raise BenchError(f"clients behind a slow link live in a network namespace: {why}")
    _remove_left_over()
    number = os.getpid()
    name, device, peer = f"{_PREFIX}{number}", f"bench{number}n", f"bench{number}f"
    near, far = _free_addresses()
    with ended_by_signals():
        try:
            _run(["ip", "netns", "add", name])
            _run(["ip", "link", "add", device, "type", "veth", "peer", "name", peer, "netns", name])
            _run(["ip", "address", "add", f"{near}/30", "dev", device])
            _run(["ip", "link", "set", device, "up"])
            _run(["ip", "-n", name, "address", "add", f"{far}/30", "dev", peer])
            _run(["ip", "-n", name, "link", "set", peer, "up"])
            _run(["ip", "-n", name, "link", "set", "lo", "up"])
            made = Namespace(name, device, near, far)
            made.shape(Line(100e6))  # fails here, with a sentence, where the kernel has no tbf
            made.shape(None)
            yield made
        finally:
            _remove(name, device)


def hurry(priority: int = 1, process: int = 0) -> None:
    """Let a process (this one) and all that it starts go before other work on the machine.

    Response times of milliseconds cannot be measured where anybody's compiler delays the driver by
    ten. Brokers, publishers and subscribers all inherit it: they compete with each other alone.
    """
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(process, os.SCHED_RR, os.sched_param(priority))


def favour(process: int) -> None:
    """Give a process, and the session that it leads, most of the processor's time.

    For measurements that use all of it. In a hurry they would now and then stand still for 50 ms,
    when the kernel protects other work from those that are.
    """
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, process, -20)
        with contextlib.suppress(FileNotFoundError):  # sessions are not scheduled as groups here
            Path(f"/proc/{process}/autogroup").write_text("-20")


@contextlib.contextmanager
def a_core_for(process: int) -> Iterator[None]:
    """Let a process have one core for itself, and this one with all that it starts the others."""
    before = os.sched_getaffinity(0)
    first, *others = sorted(before)
    if others:
        os.sched_setaffinity(process, {first})
        os.sched_setaffinity(0, others)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind the stack, so that what was made is removed."""

    def leave(number: int, _: object) -> None:
        sys.exit(128 + number)

    before = {number: signal.signal(number, leave) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _remove(name: str, device: str) -> None:
    for command in (["ip", "link", "del", device], ["ip", "netns", "del", name]):
        subprocess.run(command, capture_output=True, check=False)


def _remove_left_over() -> None:
    """Of runs that were killed and could not tidy up: their process is no more."""
    shown = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False)
    for line in shown.stdout.splitlines():
        name = line.split()[0]
        number = name.removeprefix(_PREFIX)
        if name.startswith(_PREFIX) and number.isdigit() and not Path("/proc", number).exists():
            _remove(name, f"bench{number}n")


def _free_addresses() -> tuple[str, str]:
    used = _run(["ip", "-4", "address", "show"])
    for block in range(os.getpid() % 4096, 2 * 4096):
        base = (block % 4096) * 4
        prefix = f"198.18.{base >> 8}"
        near, far = f"{prefix}.{(base & 255) + 1}", f"{prefix}.{(base & 255) + 2}"
        if f"{near}/" not in used:
            return near, far
    raise BenchError("no address of 198.18.0.0/18 is free")


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip() or f"status {done.returncode}"
        raise BenchError(f"{' '.join(command)}: {said}")
    return done.stdout
