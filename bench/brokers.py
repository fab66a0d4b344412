"""Brokers to measure: each started afresh, alone, on a free port, in a directory of its own."""

import contextlib
import importlib.metadata
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from bench import packets
from bench.target import Target

REPOSITORY = Path(__file__).resolve().parent.parent
START_LIMIT = 30.0

# Every limit that would make Mosquitto drop or hold back is lifted, and nothing is logged or
# stored: this is Mosquitto at its fastest.
MOSQUITTO_SETTINGS = (
    "allow_anonymous true",
    "persistence false",
    "max_queued_messages 0",
    "max_inflight_messages 0",
    "set_tcp_nodelay true",
    "log_type none",
)


class BenchError(Exception):
    """Something the user can put right; the text says how."""


@dataclass(frozen=True)
class Broker:
    """A broker that can be started, or one that runs already (`address`)."""

    name: str
    version: str
    command: Callable[[int, Path], list[str]] | None = None
    address: tuple[str, int] | None = None
    plans: bool = False
    """It has a controller beside it, which takes a while to start."""

    @contextlib.contextmanager
    def running(self) -> Iterator[Target]:
        """Start it, wait until it answers a CONNECT (and is steered), stop it afterwards."""
        if self.command is None:
            assert self.address is not None
            _await_answer(self.address, None)
            yield Target(self.address)
            return
        with tempfile.TemporaryDirectory(prefix=f"bench-{self.name}-") as name:
            directory = Path(name)
            directory.chmod(0o755)  # Mosquitto gives up root before it reads
            port = _free_port()
            log = directory / "output"
            with log.open("wb") as output:
                process = subprocess.Popen(
                    self.command(port, directory),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    cwd=REPOSITORY,
                )
            try:
                try:
                    _await_answer(("127.0.0.1", port), process)
                    if self.plans:
                        _await_controller(("127.0.0.1", port))
                except BenchError as error:
                    said = log.read_text(errors="replace").strip().rpartition("\n")[2]
                    raise BenchError(f"{self.name}: {error} Last words: {said}") from None
                yield Target(("127.0.0.1", port), process.pid, directory)
            finally:
                _stop(process)


def mosquitto() -> Broker:
    """Debian's Mosquitto."""
    path = ensure_mosquitto()
    said = subprocess.run([path, "-h"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"version (\S+)", said)

    def command(port: int, directory: Path) -> list[str]:
        config = directory / "mosquitto.conf"
        config.write_text("\n".join((f"listener {port} 127.0.0.1", *MOSQUITTO_SETTINGS, "")))
        return [path, "-c", str(config)]

    return Broker("mosquitto", found[1] if found else "unknown", command)


def find_mosquitto() -> str:
    """Path of mosquitto, empty if it is not installed."""
    search = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
    return shutil.which("mosquitto", path=search) or ""


def ensure_mosquitto() -> str:
    """Path of mosquitto; installs Debian's package if it is missing, and says so."""
    if path := find_mosquitto():
        return path
    apt = shutil.which("apt-get")
    if apt is None or os.geteuid() != 0:
        raise BenchError(
            "mosquitto is not installed. Install it (on Debian: apt-get install mosquitto, as "
            "root), or measure without it: --brokers headgate"
        )
    print("mosquitto is not installed: installing Debian's package with apt-get", file=sys.stderr)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = [apt, "install", "-y", "-q", "--no-install-recommends", "mosquitto"]
    for step in ([apt, "update", "-q"], install):  # a stale list of packages may still do
        done = subprocess.run(step, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"apt-get could not install mosquitto: {done.stderr.strip()[-400:]}")
    if path := find_mosquitto():
        return path
    raise BenchError("apt-get installed mosquitto, but the program is not in PATH or /usr/sbin")


def headgate() -> Broker:
    """Headgate as it is installed in this environment, with its defaults."""
    candidates = (Path(sys.executable).parent / "headgate", REPOSITORY / ".venv/bin/headgate")
    program = next((path for path in candidates if path.exists()), None)
    if program is None:
        raise BenchError("headgate is not installed in this environment: run `make install` first")

    def command(port: int, directory: Path) -> list[str]:
        options = ["--host", "127.0.0.1", "--port", str(port), "--data-dir", str(directory)]
        return [str(program), "serve", *options]

    version = importlib.metadata.version("headgate")
    return Broker("headgate", f"{version} ({_commit()})", command)


def relay() -> Broker:
    """The bare relay that shows what the driver itself can do."""

    def command(port: int, _: Path) -> list[str]:
        return [sys.executable, "-m", "bench.relay", str(port)]

    return Broker("relay", "bare", command)


def named(text: str) -> Broker:
    """`name=host:port` of a running broker, or `name=command` with {port} and {dir}."""
    name, equals, what = text.partition("=")
    if not equals or not name or not what:
        raise BenchError(f"--broker {text}: expected name=host:port or name=command {{port}}")
    if found := re.fullmatch(r"([\w.\-]+):(\d+)", what):
        return Broker(name, "running", address=(found[1], int(found[2])))
    if "{port}" not in what:
        raise BenchError(f"--broker {name}: the command must contain {{port}} (and may {{dir}})")

    def command(port: int, directory: Path) -> list[str]:
        # `env` takes leading VARIABLE=value words, as a shell would.
        return ["env", *shlex.split(what.format(port=port, dir=directory))]

    return Broker(name, what, command)


KNOWN: dict[str, Callable[[], Broker]] = {
    "headgate": headgate,
    "mosquitto": mosquitto,
    "relay": relay,
}


def _commit() -> str:
    git = ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty"]
    done = subprocess.run(git, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "no commit"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _await_answer(address: tuple[str, int], process: subprocess.Popen[bytes] | None) -> None:
    limit = time.monotonic() + START_LIMIT
    while time.monotonic() < limit:
        if process is not None and process.poll() is not None:
            raise BenchError(f"ended with status {process.returncode} before it answered.")
        try:
            with socket.create_connection(address, 1.0) as probe:
                probe.sendall(packets.connect("bench-ready"))
                if probe.recv(16) == packets.CONNACK_ACCEPTED:
                    probe.sendall(packets.DISCONNECT)
                    return
        except OSError:
            time.sleep(0.02)
    raise BenchError(f"did not accept a client on port {address[1]} in {START_LIMIT:.0f} s.")


def _await_controller(address: tuple[str, int]) -> None:
    """Until somebody holds the lease: a controller asks for it again every one and a half seconds,
    and the broker's answers are for all to see."""
    heard = bytearray()
    with socket.create_connection(address, START_LIMIT) as watcher:
        watcher.sendall(packets.connect("bench-watcher"))
        watcher.sendall(packets.subscribe(["$SYS/headgate/control"], 0))
        limit = time.monotonic() + START_LIMIT
        while not (b"headgate/lease" in heard and b'"ok":true' in heard):
            watcher.settimeout(max(0.01, limit - time.monotonic()))
            try:
                part = watcher.recv(4096)
            except TimeoutError:
                part = b""
            if not part:
                raise BenchError(f"no controller within {START_LIMIT:g} s.")
            heard += part


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    # What it started and left behind is in its own process group.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
