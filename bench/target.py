"""What a shape is measured against, how much effort it makes, and what comes out."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Effort:
    """How long and how hard each shape is driven."""

    seconds: float = 1.0
    warm_up: float = 0.3
    drain: float = 20.0  # limit for what is still under way when the time is over
    silence: float = 3.0  # and when nothing at all arrives any more
    window_bytes: int = 4 * 1024 * 1024  # published but not yet delivered, all publishers
    in_flight: int = 1000  # unacknowledged messages of one publisher at QoS 1 and 2
    in_flight_total: int = 4000  # the same over all publishers, times the subscribers of each
    round_trips: int = 3000
    retained: int = 10_000
    idle_connections: int = 10_000


QUICK = Effort(seconds=0.4, warm_up=0.15, round_trips=800, retained=10_000, idle_connections=2000)


@dataclass
class Measurement:
    """The figures of one shape, one broker, one repetition."""

    values: dict[str, float]
    lost: int = 0  # published, never delivered; negative if something arrived twice
    unacknowledged: int = 0
    driver_busy: float | None = None  # share of the time that the driver did not wait
    broker_busy: float | None = None  # CPU time of its processes over elapsed time
    others_busy: float | None = None  # what everything else on the machine used, in cores


@dataclass
class Target:
    """A running broker. Without a process id only its speed can be seen."""

    address: tuple[str, int]
    pid: int | None = None
    directory: Path | None = None
    """What it was given to write in, as long as it runs."""
    _processes: list[int] = field(default_factory=list)

    def find_processes(self) -> None:
        """Remember the broker and all that it started: it leads a session of its own."""
        self._processes = [] if self.pid is None else _session_members(self.pid)

    def cpu_seconds(self) -> float | None:
        """User and system time so far, of all its processes."""
        if not self._processes:
            return None
        return sum(cpu_of(pid) for pid in self._processes)

    def resident_bytes(self) -> int | None:
        """Resident memory of all its processes."""
        if not self._processes:
            return None
        return sum(_resident(pid) for pid in self._processes)


class Stopwatch:
    """Messages, wall time and CPU time between `start` and `stop`."""

    def __init__(
        self, target: Target, delivered: Callable[[], int], waited: Callable[[], float]
    ) -> None:
        self._target = target
        self._delivered = delivered
        self._waited = waited
        target.find_processes()

    def start(self) -> None:
        """Begin the measured part; the warm-up lies before."""
        self._broker_cpu = self._target.cpu_seconds()
        self._driver_waited = self._waited()
        self._driver_cpu = time.process_time()
        self._machine_cpu = machine_cpu_seconds()
        self._messages = self._delivered()
        self._time = time.perf_counter()

    def stop(self) -> Measurement:
        """Rate of delivery, and whose CPU paid for it."""
        elapsed = time.perf_counter() - self._time
        messages = self._delivered() - self._messages
        idle = self._waited() - self._driver_waited
        machine = machine_cpu_seconds() - self._machine_cpu
        driver = time.process_time() - self._driver_cpu
        after = self._target.cpu_seconds()
        measurement = Measurement({"rate": messages / elapsed}, driver_busy=1 - idle / elapsed)
        if after is not None and self._broker_cpu is not None:
            used = after - self._broker_cpu
            measurement.broker_busy = used / elapsed
            measurement.others_busy = max(0.0, machine - driver - used) / elapsed
            if messages:
                measurement.values["cpu"] = used / messages * 1e6
        return measurement


def machine_cpu_seconds() -> float:
    """Time that all cores together spent on anything but idling."""
    # cpu user nice system idle iowait irq softirq steal …: all but idle and iowait is work,
    # and what the hypervisor took away (steal) is work of others.
    with Path("/proc/stat").open() as stat:
        fields = [int(field) for field in stat.readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / _TICKS


def _stat(pid: int) -> list[str]:
    # The command name may contain spaces; the fields after its parenthesis do not.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _session_members(leader: int) -> list[int]:
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = _stat(int(entry.name))
            except OSError:
                continue  # ended meanwhile
            if int(fields[3]) == leader:
                members.append(int(entry.name))
    return members


def cpu_of(pid: int) -> float:
    """User and system time of a process, in seconds.

    From its threads, to the nanosecond, if the kernel counts it so; else in ticks of 10 ms.
    """
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9
    except (OSError, IndexError):
        fields = _stat(pid)
        return (int(fields[11]) + int(fields[12])) / _TICKS


def children(parent: int) -> list[int]:
    """Processes that a process started, also if they lead sessions of their own."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if int(_stat(int(entry.name))[1]) == parent:
                    found.append(int(entry.name))
            except OSError:
                continue  # ended meanwhile
    return found


def _resident(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0
