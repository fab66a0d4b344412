"""`python -m bench reaction`: from a change to a new policy in force, broker and controller live.

80 subscriptions of four applications behind one link, with snapshots once a second as by default.
Four changes, each from a settled state and at different moments between two snapshots: the link
halves, 50 subscriptions come, the load doubles, and the link falls below what can keep all
requirements. Measured from the moment of the change to the moment at which a client is told of the
first new policy (`$SYS/headgate/policy`), and of the last one before it settles. The goal is two
seconds for the first.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from statistics import median

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

from bench import packets
from bench.brokers import REPOSITORY, BenchError
from bench.client import SCRATCH, Client
from bench.report import machine
from headgate.control.history import Event, History

GOAL = 2.0
LINK = 5_600_000
"""With 50 subscriptions more it is full: none of the changes can be answered with what is in force.
With 6 Mbit/s it was full to 94 %, and whether that needs another policy was a matter of noise."""
TOPICS = 10
PER_TOPIC = 5.0
SIZE = 1000
"""80 subscriptions to 2 topics each way: 80 x 5/s x 1 kB is 3.4 Mbit/s with headers."""
APPLICATIONS = {
    "alarm": "{mean_ms: 40, loss: 0.0}",
    "control": "{mean_ms: 150, loss: 0.1}",
    "telemetry": "{mean_ms: 1000, loss: 0.5}",
    "archive": "{mean_ms: 8000, loss: 0.8}",
}
WEIGHTS = {"alarm": 10, "control": 5, "telemetry": 2, "archive": 1}
SETTLE = 14.0
WATCH = 8.0
PATIENCE = 60.0

CASES = ("link halves", "50 new subscriptions", "load doubles", "requirements conflict")


@dataclass(frozen=True)
class Reaction:
    """One change."""

    case: str
    first: float | None
    """Seconds to the first new policy; None if there was none."""
    settled: float | None
    """Seconds to the last one within the time that was watched."""
    policies: int
    why: str
    """The reason of the last one."""
    planning: float
    """Seconds that it took to make."""


class Site:
    """A broker with its controller, subscribers that take everything, and devices."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "headgate.yaml"
        self.write_config(LINK)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headgate", "serve", "--config", str(self.config)],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=(folder / "log").open("wb"),
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY / "src")},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if "ready" not in line:
            raise BenchError(f"the broker did not start: {(folder / 'log').read_text()[-400:]}")
        self.port = int(line.rsplit(":", 1)[1].split()[0].strip(";,"))
        self.policies: list[tuple[float, int]] = []
        self.watcher = mqtt.Client(CallbackAPIVersion.VERSION2, client_id="watcher")
        self.watcher.on_message = self._told
        self.watcher.on_connect = lambda client, *_: client.subscribe("$SYS/headgate/policy")
        self.watcher.connect("127.0.0.1", self.port)
        self.watcher.loop_start()
        self.device = Client(("127.0.0.1", self.port), client_id="device")
        self.epoll = select.epoll()
        self.clients: dict[int, Client] = {}
        self.load = 1.0
        self._due = time.monotonic()
        self._next = 0
        names = list(APPLICATIONS)
        for number in range(80):
            self.join(f"{names[number % 4]}-{number}", number)

    def write_config(self, rate: int) -> None:
        applications = "\n".join(
            f'  {name}: {{clients: ["{name}-*"], requirement: {asked}, weight: {WEIGHTS[name]}}}'
            for name, asked in APPLICATIONS.items()
        )
        globs = ", ".join(f'"{name}-*"' for name in APPLICATIONS)
        self.config.write_text(
            "listeners: [{type: tcp, address: '127.0.0.1:0'}]\n"
            f"data_dir: {self.folder / 'data'}\n"
            f"applications:\n{applications}\n"
            f"links:\n  - {{name: floor, clients: [{globs}], rate: {rate}}}\n"
            "planner: {mode: auto}\n"
        )

    def _told(self, _client: mqtt.Client, _data: object, message: mqtt.MQTTMessage) -> None:
        self.policies.append((time.monotonic(), json.loads(message.payload)["version"]))

    def join(self, name: str, number: int) -> None:
        client = Client(("127.0.0.1", self.port), client_id=name)
        client.subscribe([f"t{number % TOPICS}"], 0)
        client.socket.setblocking(False)
        self.clients[client.socket.fileno()] = client
        self.epoll.register(client.socket.fileno(), select.EPOLLIN)

    def run(self, seconds: float) -> None:
        """Publish in time, and take what arrives."""
        end = time.monotonic() + seconds
        payload = b"x" * SIZE
        while (now := time.monotonic()) < end:
            if self._due < now - 1:
                self._due = now
            while self._due <= now:
                self.device.socket.sendall(packets.publish(f"t{self._next % TOPICS}", payload))
                self._next += 1
                self._due += 1 / (TOPICS * PER_TOPIC * self.load)
            for number, _ in self.epoll.poll(max(0.0, min(self._due, end) - now)):
                self.clients[number].receive(SCRATCH)

    def reload(self, rate: int) -> None:
        self.write_config(rate)
        os.kill(self.process.pid, signal.SIGHUP)

    def last_change(self) -> tuple[str, float]:
        """Why the last policy was applied, and how long planning took."""
        applied = [r for r in History(self.folder / "data") if r.event is Event.APPLIED]
        return (applied[-1].why, applied[-1].seconds) if applied else ("", 0.0)

    def close(self) -> None:
        self.watcher.disconnect()
        self.watcher.loop_stop()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        for client in self.clients.values():
            client.close()
        self.epoll.close()


def measure(case: str, folder: Path, phase: float) -> Reaction:
    """One change, on a broker of its own, `phase` of a second after a snapshot."""
    site = Site(folder)
    try:
        deadline = time.monotonic() + PATIENCE
        while not any(version for _, version in site.policies):
            site.run(0.2)
            if time.monotonic() > deadline:
                log = (folder / "log").read_text()[-400:]
                raise BenchError(f"no policy within {PATIENCE:g} s: {log}")
        site.run(SETTLE + phase)
        before = len(site.policies)
        began = time.monotonic()
        if case == "link halves":
            site.reload(LINK // 2)
        elif case == "requirements conflict":
            site.reload(LINK // 10)
        elif case == "load doubles":
            site.load = 2.0
        else:
            names = list(APPLICATIONS)
            for number in range(80, 130):
                site.join(f"{names[number % 4]}-{number}", number)
        site.run(WATCH)
        new = [moment - began for moment, _ in site.policies[before:]]
        return Reaction(
            case, min(new, default=None), max(new, default=None), len(new), *site.last_change()
        )
    finally:
        site.close()


def register(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("reaction", help="from a change to a new policy in force")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--save", action="store_true", help="keep the result in bench/results")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    found: list[Reaction] = []
    for number in range(options.repetitions):
        for case in CASES:
            with tempfile.TemporaryDirectory(prefix="bench-reaction-") as folder:
                found.append(measure(case, Path(folder), number / options.repetitions))
            last = found[-1]
            told = "none" if last.first is None else f"{last.first:.2f} s"
            print(f"{case}: {told} ({last.why})", file=sys.stderr)
    print(f"{'change':<24}{'first policy s':>16}{'largest':>10}{'settled s':>11}  goal {GOAL:g} s")
    for case in CASES:
        runs = [r for r in found if r.case == case]
        firsts = [r.first for r in runs if r.first is not None]
        settled = [r.settled for r in runs if r.settled is not None]
        if len(firsts) < len(runs):
            print(f"{case:<24}{'none':>16}")
            continue
        mark = "✓" if max(firsts) < GOAL else "✗"
        print(
            f"{case:<24}{median(firsts):>16.2f}{max(firsts):>10.2f}{median(settled):>11.2f}  {mark}"
        )
    report = {
        "date": date.today().isoformat(),
        "machine": machine(),
        "goal_s": GOAL,
        "subscriptions": 80,
        "runs": [asdict(r) for r in found],
    }
    files = [options.json] if options.json is not None else []
    if options.save:
        files.append(REPOSITORY / "bench" / "results" / f"{report['date']}-reaction.json")
    for file in files:
        file.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
        print(f"written: {file}", file=sys.stderr)
    return 0
