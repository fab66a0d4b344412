"""Brokers that listen on loopback and on the near side of a slow link, with settings of a bench."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import brokers
from bench.brokers import MOSQUITTO_SETTINGS, Broker


def mosquitto(
    name: str, addresses: Sequence[str], settings: Sequence[str] = MOSQUITTO_SETTINGS
) -> Broker:
    """Mosquitto with a listener at each address."""
    plain = brokers.mosquitto()
    assert plain.command is not None
    program = plain.command

    def command(port: int, directory: Path) -> list[str]:
        line = program(port, directory)  # also writes the file that is replaced here
        listeners = [f"listener {port} {address}" for address in addresses]
        Path(line[-1]).write_text("\n".join((*listeners, *settings, "")))
        return line

    return Broker(name, plain.version, command)


def everything() -> Broker:
    """Headgate with applications, priorities and a link for all clients, and no congestion.

    Beside plain Headgate it shows what the scheduler costs where there is nothing to schedule.
    """
    settings = {
        "applications": {
            "all": {"clients": ["*"], "category": "RT"},
            "others": {"users": ["*"], "category": "AN"},
        },
        "links": [{"name": "site", "clients": ["*"], "rate": "auto", "discipline": "strict"}],
        "policy": [
            {"priority": 5},
            {"category": "RT", "priority": 0},
            {"category": "AN", "priority": 3, "drop": 0.05},
        ],
    }
    return headgate("configured", ["127.0.0.1"], settings)


def headgate(name: str, addresses: Sequence[str], settings: Mapping[str, Any]) -> Broker:
    """Headgate with a listener at each address and what else its configuration says."""
    plain = brokers.headgate()
    assert plain.command is not None
    program = plain.command

    def command(port: int, directory: Path) -> list[str]:
        file = directory / "headgate.yaml"
        config = {
            "listeners": [{"type": "tcp", "address": f"{a}:{port}"} for a in addresses],
            "data_dir": str(directory / "data"),
            "auth": {"allow_anonymous": True},
            **settings,
        }
        file.write_text(json.dumps(config, indent=1))  # JSON is YAML
        return [program(port, directory)[0], "serve", "--config", str(file)]

    plans = settings.get("planner", {}).get("mode", "off") != "off"
    return Broker(name, plain.version, command, plans=plans)
