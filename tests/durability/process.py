"""A real broker process: started, killed, stopped, looked at from outside."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

COMMAND = Path(sys.executable).with_name("headgate")
PATIENCE = 30.0
"""Seconds that the process may take for anything, on a machine that is busy with other things."""

READY = re.compile(r"(\w+)://(\S+?)(?:,|\s|$)")
PAGE = os.sysconf("SC_PAGE_SIZE")


class BrokerProcess:
    """`headgate serve` on loopback, with a data directory that outlives it."""

    def __init__(self, folder: Path, config: str | None = None) -> None:
        """`config` is YAML without `data_dir`; it must name its own listeners."""
        self.folder = folder
        self.data_dir = folder / "data"
        self.config = config
        self.stderr_path = folder / "stderr.txt"
        self.addresses: dict[str, str] = {}
        self._child: subprocess.Popen[str] | None = None

    def __enter__(self) -> BrokerProcess:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.running:
            self.kill()
        if kind is not None:
            print(f"--- the broker's stderr\n{self.stderr()}")

    # Life

    def spawn(self) -> None:
        """Start the process and do not wait for it."""
        command = [str(COMMAND), "serve"]
        if self.config is None:
            command += ["--host", "127.0.0.1", "--port", "0", "--data-dir", str(self.data_dir)]
        else:
            source = self.folder / "headgate.yaml"
            source.write_text(f"data_dir: {self.data_dir}\n{self.config}")
            command += ["--config", str(source)]
        with self.stderr_path.open("ab") as stderr:
            self._child = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=stderr, text=True, cwd=self.folder
            )

    def start(self) -> None:
        """Start the process and wait until it accepts connections."""
        self.spawn()
        child = self._running_child()
        assert child.stdout is not None
        deadline = time.monotonic() + PATIENCE
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([child.stdout], [], [], left)[0]:
                self.kill()
                raise AssertionError(f"the broker was not ready in time:\n{self.stderr()}")
            line = child.stdout.readline()
            if not line:
                child.wait()
                raise AssertionError(f"the broker ended ({child.returncode}):\n{self.stderr()}")
            if "ready" in line:
                self.addresses = dict(READY.findall(line))
                return

    def kill(self) -> None:
        """SIGKILL: no time for anything."""
        child = self._running_child()
        child.kill()
        self._reap(child)

    def terminate(self) -> None:
        """SIGTERM, without waiting."""
        self._running_child().send_signal(signal.SIGTERM)

    def stop(self) -> int:
        """SIGTERM and wait; returns the exit status."""
        self.terminate()
        return self.wait()

    def wait(self) -> int:
        """Wait for the end; returns the exit status."""
        return self._reap(self._running_child())

    def _reap(self, child: subprocess.Popen[str]) -> int:
        try:
            status = child.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            raise AssertionError(f"the broker did not end in time:\n{self.stderr()}") from None
        finally:
            assert child.stdout is not None
            child.stdout.close()
            self._child = None
        return status

    def _running_child(self) -> subprocess.Popen[str]:
        assert self._child is not None, "the broker is not running"
        return self._child

    # From outside

    @property
    def running(self) -> bool:
        return self._child is not None

    @property
    def pid(self) -> int:
        return self._running_child().pid

    @property
    def port(self) -> int:
        """Port of the plain TCP listener."""
        return self.port_of("tcp")

    def port_of(self, kind: str) -> int:
        """Port of the listener of a type: tcp, tls, ws, wss."""
        return int(self.addresses[kind].rpartition(":")[2])

    def stderr(self) -> str:
        return self.stderr_path.read_text(errors="replace")

    def resident(self) -> int:
        """Bytes of memory in use (RSS)."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE

    def descriptors(self) -> int:
        """Open files and sockets."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))
