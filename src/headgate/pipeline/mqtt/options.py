"""The options of format("mqtt"): read once, checked, and told in one sentence when wrong."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from headgate.errors import ConfigurationError, MqttError
from headgate.wire.topics import validate_filter

Given = Mapping[str, str]
"""What the user said; Spark makes names lower case."""

CONNECTION = (
    *("broker", "user", "userEnv", "password", "passwordFile", "passwordEnv"),
    *("ca", "cert", "key", "keepAlive", "timeout"),
)
READING = (*CONNECTION, "topics", "qos", "quiet", "limit", "maxMessages", "clientId")
BATCH = (*READING, "what")
STREAM = (*READING, "spool", "readers", "group", "sessionExpiry", "receiveMaximum", "ship")
WRITING = (*CONNECTION, "topic", "qos", "retain", "inFlight")
SPARKS_OWN = ("path", "checkpointLocation")
"""Spark hands these on to every source or sink."""

LARGEST = 65_535
"""Of a Receive Maximum [MQTT-3.1.2.11.3]."""


@dataclass(frozen=True)
class Broker:
    """Where the broker is, and how to get in. The password is read when it is needed, there where
    the connection is made: a file or variable need not go over the network."""

    host: str
    port: int
    tls: bool = False
    user: str | None = None
    password: str | None = None
    user_env: str | None = None
    password_file: str | None = None
    password_env: str | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    keepalive: int = 60
    timeout: float = 30.0
    """Seconds for the broker to answer."""

    def __str__(self) -> str:
        return f"mqtt{'s' if self.tls else ''}://{self.host}:{self.port}"

    def credentials(self) -> tuple[str | None, str | None]:
        """User and password, from wherever they are."""
        user = environment(self.user_env, "userEnv") if self.user_env else self.user
        if self.password_env:
            return user, environment(self.password_env, "passwordEnv")
        if self.password_file:
            try:
                return user, Path(self.password_file).read_text().rstrip("\r\n")
            except OSError as error:
                raise ConfigurationError(
                    f"option passwordFile: {self.password_file}: {error.strerror}"
                ) from None
        return user, self.password


@dataclass(frozen=True)
class Reading:
    """What to read, and when to stop."""

    topics: tuple[str, ...]
    qos: int
    quiet: float
    """Seconds of silence after which nothing more is expected."""
    limit: float
    """Seconds after which a batch, or availableNow, ends even if there is more."""
    maximum: int | None
    """Messages in one batch at most."""


@dataclass(frozen=True)
class Streaming:
    """How a stream receives."""

    spool: Path
    client: str | None
    readers: int
    group: str | None
    session_expiry: int
    receive_maximum: int
    ship: bool


def broker_of(given: Given) -> Broker:
    text = needed(given, "broker", "mqtt://HOST:1883, or mqtts:// for TLS")
    parts = urlsplit(text if "://" in text else f"mqtt://{text}")
    try:
        port = parts.port
    except ValueError:
        port = None
        parts = parts._replace(scheme="")
    if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname or parts.path.strip("/"):
        raise ConfigurationError(
            f"option broker: expected mqtt://HOST:PORT or mqtts://HOST:PORT, found {text!r}"
        )
    if parts.username or parts.password:
        raise ConfigurationError("option broker: give user and password as options of their own")
    tls = parts.scheme == "mqtts"
    if not tls and (given.get("ca") or given.get("cert")):
        raise ConfigurationError("options ca and cert need TLS: broker must begin with mqtts://")
    if bool(given.get("cert")) != bool(given.get("key")):
        raise ConfigurationError("options cert and key belong together: one of them is missing")
    return Broker(
        parts.hostname,
        port or (8883 if tls else 1883),
        tls,
        given.get("user"),
        given.get("password"),
        given.get("userenv"),
        given.get("passwordfile"),
        given.get("passwordenv"),
        given.get("ca"),
        given.get("cert"),
        given.get("key"),
        whole(given, "keepAlive", 60, 0, LARGEST),
        seconds(given, "timeout", 30.0),
    )


def reading_of(given: Given) -> Reading:
    text = needed(given, "topics", "sensors/#,alarms/+ or a JSON array of filters")
    try:
        topics = json.loads(text) if text.startswith("[") else text.split(",")
        topics = tuple(str(one).strip() for one in topics)
    except json.JSONDecodeError:
        raise ConfigurationError(f"option topics: not a JSON array of filters: {text!r}") from None
    for one in topics:
        try:
            validate_filter(one)
        except MqttError as error:
            raise ConfigurationError(f"option topics: {one!r}: {error}") from None
    maximum = whole(given, "maxMessages", 0, 1, 2**31)
    return Reading(
        topics,
        whole(given, "qos", 1, 0, 1),
        seconds(given, "quiet", 1.0),
        seconds(given, "limit", 60.0),
        maximum or None,
    )


def streaming_of(given: Given, topics: tuple[str, ...]) -> Streaming:
    spool = needed(given, "spool", "a folder that outlives the query").removeprefix("file://")
    if "://" in spool:
        raise ConfigurationError(
            f"option spool: {spool!r} is no folder of a file system, where writes can be made safe"
        )
    readers = whole(given, "readers", 1, 1, 1000)
    group = given.get("group")
    shared = [one for one in topics if one.startswith("$share/")]
    if shared and (group or readers > 1):
        raise ConfigurationError(
            f"option topics: {shared[0]!r} is shared already: with readers or group, name the "
            "filter alone"
        )
    if group is not None and (not group or set(group) & set("/+#")):
        raise ConfigurationError(f"option group: expected a name without / + #, found {group!r}")
    return Streaming(
        Path(spool),
        given.get("clientid"),
        readers,
        group,
        whole(given, "sessionExpiry", 86_400, 1, 2**32 - 1),
        whole(given, "receiveMaximum", LARGEST, 1, LARGEST),
        flag(given, "ship", default=False),
    )


def must_be_known(given: Given, known: tuple[str, ...], use: str) -> None:
    """A misspelt option would be passed over silently."""
    names = {name.lower() for name in (*known, *SPARKS_OWN)}
    unknown = sorted(name for name in given if name.lower() not in names)
    if unknown:
        raise ConfigurationError(
            f"format mqtt has no option {unknown[0]} for {use}: known are {', '.join(known)}"
        )


def needed(given: Given, name: str, such_as: str) -> str:
    value = given.get(name.lower(), "").strip()
    if not value:
        raise ConfigurationError(f"format mqtt needs the option {name}: {such_as}")
    return value


def whole(given: Given, name: str, default: int, low: int, high: int) -> int:
    text = given.get(name.lower())
    if text is None:
        return default
    if not text.strip().isdecimal() or not low <= int(text) <= high:
        raise ConfigurationError(
            f"option {name}: expected a whole number from {low} to {high}, found {text!r}"
        )
    return int(text)


def seconds(given: Given, name: str, default: float) -> float:
    text = given.get(name.lower())
    try:
        value = default if text is None else float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ConfigurationError(f"option {name}: expected seconds above 0, found {text!r}")
    return value


def flag(given: Given, name: str, *, default: bool) -> bool:
    text = given.get(name.lower(), str(default)).strip().lower()
    if text not in ("true", "false"):
        raise ConfigurationError(f"option {name}: expected true or false, found {text!r}")
    return text == "true"


def environment(variable: str, option: str) -> str:
    value = os.environ.get(variable)
    if value is None:
        raise ConfigurationError(f"option {option}: there is no variable {variable} here")
    return value
