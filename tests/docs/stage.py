"""Runs a page from top to bottom as a reader would: files, configuration, commands, programs."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from broker_process import COMMAND, BrokerProcess

from docs.pages import Block

PATIENCE = 300.0
PORTS = ("1883", "8883", "8083", "9883")
"""The ports that pages speak of: each run has free ones in their place."""
CLIENTS = ("mosquitto_pub", "mosquitto_sub", "mosquitto_rr")
PROGRAMS = (*CLIENTS, "curl", "openssl")
"""What a machine may not have: commands with them are left out there."""
EXPECTED = re.compile(r"#\s*→ *(.*)$")


class Stage:
    """One page's world: a folder, free ports, and a broker that starts when it is needed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.configuration = ""
        self.left_out: list[str] = []
        """Commands that this machine cannot run."""
        self._broker: BrokerProcess | None = None
        self._brokers = 0
        self._ports = dict(zip(PORTS, free_ports(len(PORTS)), strict=True))
        self._environment = {
            **os.environ,
            "PATH": f"{self._shims()}:{COMMAND.parent}:{os.environ['PATH']}",
            "PYTHONPATH": f"{folder}:{os.environ.get('PYTHONPATH', '')}",
        }

    def perform(self, block: Block) -> None:
        """Do what a reader does with a block."""
        if block.remark.startswith("file: "):
            (self.folder / block.remark.removeprefix("file: ")).write_text(block.text)
        elif block.remark == "broker":
            self.close()
            self.configuration = block.text
        elif block.language == "sh":
            self._run_shell(block)
        elif block.language == "python":
            self._run_python(block)

    def close(self) -> None:
        """End the broker, if there is one; it must end in peace."""
        if self._broker is not None:
            broker, self._broker = self._broker, None
            broker.stop()

    def _run_shell(self, block: Block) -> None:
        for line in block.text.splitlines():
            command, expected = split(line)
            if not command or command.startswith("make "):
                continue  # what `make` does is looked at elsewhere: it would call these tests
            if missing := [name for name in PROGRAMS if name in command and not shutil.which(name)]:
                self.left_out.append(f"{command} ({missing[0]} is not installed)")
                continue
            if any(name in command for name in (*CLIENTS, "curl")):
                self._start_broker()
            done = self._run(["bash", "-o", "pipefail", "-c", self._translated(command)])
            said = f"{block}: {command}\n{done.stdout}{done.stderr}"
            assert done.returncode == 0, said
            assert in_order(expected.split(), done.stdout), said

    def _run_python(self, block: Block) -> None:
        if any(port in block.text for port in PORTS):
            self._start_broker()
        program = self.folder / "program.py"
        program.write_text(self._translated(block.text))
        done = self._run([sys.executable, str(program)])
        said = f"{block}\n{done.stdout}{done.stderr}"
        assert done.returncode == 0, said
        for line in block.text.splitlines():
            if found := EXPECTED.search(line):
                assert found[1].strip() in done.stdout, said

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def _start_broker(self) -> None:
        if self._broker is not None:
            return
        configuration = self._translated(self.configuration)
        if "listeners:" not in configuration:
            port = self._ports["1883"]
            configuration += f'\nlisteners: [{{type: tcp, address: "127.0.0.1:{port}"}}]\n'
        self._brokers += 1
        if "data_dir:" not in configuration:
            configuration += f"data_dir: data-{self._brokers}\n"
        broker = BrokerProcess(self.folder, configuration)
        with ExitStack() as undo:
            before = os.environ.get("PYTHONPATH")
            os.environ["PYTHONPATH"] = self._environment["PYTHONPATH"]
            undo.callback(restore, "PYTHONPATH", before)
            broker.start()
        self._broker = broker

    def _translated(self, text: str) -> str:
        for port, free in self._ports.items():
            text = re.sub(rf"\b{port}\b", str(free), text)
        return text

    def _shims(self) -> Path:
        """Mosquitto's clients with another default port: pages speak of 1883."""
        shims = self.folder / "shims"
        shims.mkdir()
        for client in CLIENTS:
            real = shutil.which(client)
            if real is not None:
                shim = shims / client
                shim.write_text(f'#!/bin/sh\nexec {real} -p {self._ports["1883"]} "$@"\n')
                shim.chmod(0o755)
        return shims


def restore(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def split(line: str) -> tuple[str, str]:
    """A line's command, and what it must print."""
    expected = EXPECTED.search(line)
    command = re.sub(r"\s{2,}#.*$", "", line).strip()
    return command, expected[1] if expected else ""


def in_order(words: list[str], text: str) -> bool:
    """Do the words occur one after the other?"""
    position = 0
    for word in words:
        position = text.find(word, position)
        if position < 0:
            return False
    return True


def free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
