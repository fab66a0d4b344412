"""A broker process that dies, and one that is looked at from outside."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from types import TracebackType

from broker_process import COMMAND, PATIENCE, BrokerProcess

PAGE = os.sysconf("SC_PAGE_SIZE")


class MortalBroker(BrokerProcess):
    """A context manager: whatever still runs at its end is killed."""

    def __enter__(self) -> MortalBroker:
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
            print(f"--- the broker's stderr\n{self.errors}")

    @property
    def running(self) -> bool:
        return self._process is not None

    # Signals

    def spawn(self) -> None:
        """Start and do not wait: only to be killed."""
        command: list[str | Path] = [COMMAND, "serve", "--config", self.folder / "headgate.yaml"]
        with (self.folder / "stderr.txt").open("ab") as errors:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)

    def terminate(self) -> None:
        """SIGTERM, without waiting."""
        self._signal(signal.SIGTERM)

    def wait(self) -> int:
        """Wait for the end that was asked for; returns the exit status."""
        process, self._process = self._process, None
        assert process is not None
        try:
            process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise AssertionError(f"the broker did not end\n{self.errors}") from None
        return process.returncode

    # From outside

    def port_of(self, kind: str) -> int:
        """Port of the listener of a type: tcp, tls, ws, wss."""
        return int(self.addresses[kind].rpartition(":")[2])

    def resident(self) -> int:
        """Bytes of memory in use (RSS)."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE

    def descriptors(self) -> int:
        """Open files and sockets."""
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))
