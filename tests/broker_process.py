"""A real broker in a process of its own, for tests that speak to it over sockets."""

from __future__ import annotations

import re
import select
import signal
import subprocess
import sysconfig
import time
from pathlib import Path
from typing import Protocol

COMMAND = Path(sysconfig.get_path("scripts")) / "headgate"
PATIENCE = 30.0
"""Seconds to start or to stop; generous, because the machine may be busy."""


class BrokerProcess:
    """`headgate serve` on a free port of loopback, with its data in `folder`.

    `config` is YAML text; listeners and data_dir are filled in where it does not name them. The
    same object starts again, with the same data, after `stop` or `kill`.
    """

    def __init__(self, folder: Path, config: str = "") -> None:
        self.folder = folder
        self.addresses: dict[str, str] = {}
        """Listener type to address, such as tcp to 127.0.0.1:40123."""
        self.text = config
        """What `write_config` was last given."""
        self._config = folder / "headgate.yaml"
        self._errors = folder / "stderr.txt"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.write_config(config)

    def write_config(self, config: str) -> None:
        """Change the configuration file; SIGHUP or a restart makes the broker read it."""
        self.text = config
        lines = [config]
        if "listeners:" not in config:
            lines.insert(0, 'listeners: [{type: tcp, address: "127.0.0.1:0"}]')
        if "data_dir:" not in config:
            lines.insert(0, f"data_dir: {self.folder / 'data'}")
        self._config.write_text("\n".join(lines) + "\n")

    def start(self) -> None:
        """Start, and wait until every listener accepts connections."""
        assert self._process is None, "the broker runs already"
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [COMMAND, "serve", "--config", self._config], stdout=subprocess.PIPE, stderr=errors
            )
        line = self._read_line()
        assert "ready" in line, f"the broker did not start: {line!r}\n{self.errors}"
        self.addresses = dict(re.findall(r"(\w+)://([^\s,]+)", line))

    def _read_line(self) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], PATIENCE)[0]:
            self.kill()
            return ""
        return self._process.stdout.readline().decode()

    @property
    def port(self) -> int:
        """Port of the plain TCP listener."""
        return int(self.addresses["tcp"].rpartition(":")[2])

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker does not run"
        return self._process.pid

    @property
    def errors(self) -> str:
        """All that it wrote to standard error so far."""
        return self._errors.read_text(errors="replace")

    def reload(self) -> None:
        """Have it read its configuration again, and wait until it said that it did."""
        said = self.errors.count("configuration")
        self._signal(signal.SIGHUP)
        deadline = time.monotonic() + PATIENCE
        while self.errors.count("configuration") == said:
            assert time.monotonic() < deadline, f"no word of a new configuration\n{self.errors}"
            time.sleep(0.01)

    def stop(self) -> None:
        """SIGTERM: a clean end has status 0 and leaves no traceback."""
        status = self._end(signal.SIGTERM)
        assert status == 0, f"the broker ended with status {status}\n{self.errors}"
        assert "Traceback" not in self.errors, self.errors

    def kill(self) -> None:
        """SIGKILL: what a crash would leave behind."""
        self._end(signal.SIGKILL)

    def stop_if_running(self) -> None:
        """For the end of a test that may have stopped it already."""
        if self._process is not None:
            self.stop()

    def _end(self, number: signal.Signals) -> int:
        process = self._process
        assert process is not None, "the broker does not run"
        self._process = None
        process.send_signal(number)
        try:
            _, _ = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise AssertionError(f"the broker did not stop\n{self.errors}") from None
        return process.returncode

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "the broker does not run"
        self._process.send_signal(number)


class StartBroker(Protocol):
    """The fixture `start_broker`."""

    def __call__(self, config: str = "") -> BrokerProcess: ...
