"""Who decides while the world changes."""

import json
import os
import signal
from enum import StrEnum
from pathlib import Path
from typing import Any

from bench import configured
from bench.brokers import Broker
from bench.congestion.contenders import applications
from bench.congestion.workload import Workload
from bench.dynamic.scenario import Story
from bench.target import Target

LINK = "applications"


class Planning(StrEnum):
    """Nobody, or the controller, which may look ahead."""

    MOSQUITTO = "mosquitto"
    OFF = "off"
    REACTIVE = "reactive"
    PROACTIVE = "proactive"


COMPARED = (Planning.OFF, Planning.REACTIVE, Planning.PROACTIVE)


def broker(planning: Planning, story: Story, workload: Workload, near: str) -> Broker:
    """Listens on loopback for the devices, and on the link's near side for the applications."""
    addresses = ("127.0.0.1", near)
    if planning is Planning.MOSQUITTO:
        return configured.mosquitto(planning, addresses)
    return configured.headgate(planning, addresses, settings(planning, story, workload))


def settings(
    planning: Planning, story: Story, workload: Workload, moment: float = 0.0
) -> dict[str, Any]:
    """What the operator writes; the link as it is at a moment."""
    shown = applications(workload)
    for about in shown.values():
        about["weight"] = story.asked[about["category"]].weight
    planner: dict[str, Any] = {"mode": "off"}
    if planning is not Planning.OFF:
        planner = {"mode": "auto", "proactive": planning is Planning.PROACTIVE}
    return {
        "applications": shown,
        "links": [{"name": LINK, "clients": list(shown), "rate": round(story.rate(moment))}],
        "planner": planner,
        "snapshot_interval": "1s",
    }


def tell(target: Target, rate: float) -> None:
    """Say how fast the link is now, as an operator would: in the file, and SIGHUP."""
    if target.directory is None or target.pid is None:
        return
    file = target.directory / "headgate.yaml"
    if not file.exists():
        return  # Mosquitto knows of no links
    config = json.loads(file.read_text())
    config["links"][0]["rate"] = round(rate)
    fresh = Path(f"{file}.new")
    fresh.write_text(json.dumps(config, indent=1))
    fresh.replace(file)
    os.kill(target.pid, signal.SIGHUP)
