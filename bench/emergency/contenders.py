"""The brokers of this bench: Mosquitto, and Headgate with each way to say that it is urgent."""

from enum import StrEnum
from typing import Any

from bench import configured
from bench.brokers import MOSQUITTO_SETTINGS, Broker
from bench.emergency.crowd import Form
from bench.emergency.experiment import LINK, SLOW, Situation

BASELINE = "mosquitto"

IN_FLIGHT, QUEUED = 20, 100
"""Limits of Mosquitto 1.4.13, the paper's broker, for each client."""


class Contender(StrEnum):
    """A broker and how its publishers speak."""

    MOSQUITTO = BASELINE
    TYPES = "types"
    PREFIXES = "prefixes"

    @property
    def form(self) -> Form:
        """How an emergency is announced."""
        return Form.PLAIN if self is Contender.MOSQUITTO else Form(self.value)


def broker(contender: Contender, situation: Situation, near: str | None) -> Broker:
    """Listens on loopback, and on the near side of the link if there is one."""
    addresses = ["127.0.0.1"] if near is None else ["127.0.0.1", near]
    short = situation is Situation.OVERFLOW
    if contender is Contender.MOSQUITTO:
        limits = ("max_queued_messages", "max_inflight_messages")
        settings = [line for line in MOSQUITTO_SETTINGS if not line.startswith(limits)]
        queued, flying = (QUEUED, IN_FLIGHT) if short else (0, 0)
        settings += [f"max_queued_messages {queued}", f"max_inflight_messages {flying}"]
        return configured.mosquitto(BASELINE, addresses, settings)
    chosen: dict[str, Any] = {}
    if situation in SLOW:
        chosen["links"] = [{"name": "site", "clients": ["app-*"], "rate": round(LINK.rate)}]
    flying = IN_FLIGHT if short else 65535
    chosen["limits"] = {"queued_messages": QUEUED if short else 0, "inflight": flying}
    return configured.headgate(str(contender), addresses, chosen)
