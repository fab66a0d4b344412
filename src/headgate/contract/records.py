"""What the broker records, as data: kinds of records, their fields, and what each means.

The recorder writes by it and the jobs read by it (docs/records.md). A schema only ever grows: a
field is added with the version that brings it, and never removed or given another type. Whoever
reads an older segment finds null in the fields that it does not have.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Type(StrEnum):
    """The types of fields, under the names that Spark has for them."""

    TEXT = "string"
    WHOLE = "bigint"
    REAL = "double"
    FLAG = "boolean"
    TIME = "timestamp"
    """A moment: microseconds since the epoch, UTC."""
    BYTES = "binary"


class Field(NamedTuple):
    name: str
    type: Type
    meaning: str
    since: int = 1
    """The version of the schema that brought it."""


class Schema(NamedTuple):
    kind: str
    """The folder in which segments of this kind lie."""
    version: int
    fields: tuple[Field, ...]


class Outcome(StrEnum):
    """What became of a message in a flow."""

    SENT = "sent"
    """The kernel has it."""
    ACKNOWLEDGED = "acknowledged"
    """The client confirmed it; QoS 1 and 2, and always after `sent`."""
    DROPPED = "dropped"
    CUT = "cut"
    """The connection ended before the kernel took it."""


class Rank(StrEnum):
    """The class of a message."""

    URGENT = "urgent"
    CRITICAL = "critical"
    NORMAL = "normal"


class Coming(StrEnum):
    """What happened to a client, or to the broker as a whole."""

    CONNECTED = "connected"
    PARTED = "parted"
    ENDED = "session-ended"
    STARTED = "broker-started"
    STOPPED = "broker-stopped"


WHERE = (
    Field("broker", Type.TEXT, "the run of the broker: unique, new at each start"),
    Field("sequence", Type.WHOLE, "number of the record among those of its kind and run"),
    Field("at", Type.TIME, "when it happened"),
)
"""What every record begins with. (broker, sequence) tells records apart, and copies of one not."""

MESSAGES = Schema(
    "messages",
    1,
    (
        *WHERE,
        Field("arrived", Type.TIME, "when the message reached the broker"),
        Field("client", Type.TEXT, "the subscriber's client id"),
        Field("filter", Type.TEXT, "its subscription; with `client`, the flow"),
        Field("application", Type.TEXT, "the flow's application; empty if it belongs to none"),
        Field("category", Type.TEXT, "the flow's category"),
        Field("link", Type.TEXT, "the link it shares; empty if none"),
        Field("priority", Type.WHOLE, "the flow's priority at that time, 0 is the highest"),
        Field("topic", Type.TEXT, "the message's topic"),
        Field("class", Type.TEXT, "`urgent`, `critical` or `normal`"),
        Field("qos", Type.WHOLE, "the QoS at which it was, or would have been, delivered"),
        Field("retained", Type.FLAG, "sent because it was retained, when somebody subscribed"),
        Field("outcome", Type.TEXT, "`sent`, `acknowledged`, `dropped` or `cut`"),
        Field("reason", Type.TEXT, "why it was dropped; empty for other outcomes"),
        Field("messages", Type.WHOLE, "how many messages the record stands for: a run has several"),
        Field("bytes", Type.WHOLE, "bytes of their packets; what was dropped has no packet header"),
        Field("waited_ms", Type.REAL, "from arrival to `at`; null for `acknowledged`"),
        Field("acknowledged_ms", Type.REAL, "from sending to `at`; null for other outcomes"),
        Field("weight", Type.REAL, "records that this one stands for: 100 if 1 of 100 is kept"),
    ),
)

CONNECTIONS = Schema(
    "connections",
    1,
    (
        *WHERE,
        Field(
            "event",
            Type.TEXT,
            "`connected`, `parted`, `session-ended`, `broker-started`, `broker-stopped`",
        ),
        Field("client", Type.TEXT, "the client id; empty for the broker's own events"),
        Field("user", Type.TEXT, "its user name; empty if it has none"),
        Field("address", Type.TEXT, "the address it came from"),
        Field("link", Type.TEXT, "the link it shares; empty if none"),
        Field(
            "reason",
            Type.TEXT,
            "why it parted: `disconnect`, `lost`, `silent`, `taken-over`, `shutdown`, `dismissed`",
        ),
        Field("protocol", Type.WHOLE, "MQTT's protocol level: 3, 4 or 5"),
        Field("present", Type.FLAG, "it found a session from before"),
        Field("expiry_s", Type.WHOLE, "seconds that its session outlives the connection"),
    ),
)

POLICIES = Schema(
    "policies",
    1,
    (
        *WHERE,
        Field("command", Type.TEXT, "the control topic; `start` for what was in force at start"),
        Field("client", Type.TEXT, "who commanded it; empty at start"),
        Field("accepted", Type.FLAG, "it was obeyed"),
        Field("reason", Type.TEXT, "why not; empty if it was"),
        Field("version", Type.WHOLE, "the policy's version; null if the command was no policy"),
        Field("flows", Type.WHOLE, "flows that were settled anew; null if none"),
        Field("document", Type.TEXT, "the command as it came, in JSON"),
    ),
)

PLANS = Schema(
    "plans",
    1,
    (
        *WHERE,
        Field("client", Type.TEXT, "the controller's client id"),
        Field(
            "event",
            Type.TEXT,
            "`applied`, `advised`, `kept`, `confirmed`, `missed`, `rolled back`, `refused`, "
            "`learned`, `drifted` or `failed`",
        ),
        Field("why", Type.TEXT, "what the controller saw that led to it"),
        Field("version", Type.WHOLE, "the policy's version after it"),
        Field("rules", Type.WHOLE, "rules of the plan; 0 if there is none"),
        Field("seconds", Type.REAL, "from what was seen to the decision"),
        Field("document", Type.TEXT, "all that `headgate history` has of it, in JSON"),
    ),
)

CAPTURES = Schema(
    "captures",
    1,
    (
        Field("broker", Type.TEXT, "the run of the broker that took the message"),
        Field("sequence", Type.WHOLE, "number of the message among those captured in that run"),
        Field("at", Type.TIME, "when it reached the broker"),
        Field("client", Type.TEXT, "the publisher's client id"),
        Field("user", Type.TEXT, "its user name; empty if it has none"),
        Field("topic", Type.TEXT, "the plain topic, also of urgent and critical messages"),
        Field("class", Type.TEXT, "`urgent`, `critical` or `normal`"),
        Field("qos", Type.WHOLE, "the QoS at which it was published"),
        Field("retain", Type.FLAG, "it was published to be retained"),
        Field("duplicate", Type.FLAG, "the publisher said that it may have sent it before (DUP)"),
        Field("payload", Type.BYTES, "as published; may be empty"),
        Field("payload_format", Type.WHOLE, "1 if the publisher says UTF-8, 0 if bytes, or null"),
        Field("content_type", Type.TEXT, "MQTT 5's content type; null if none"),
        Field("response_topic", Type.TEXT, "where an answer is wanted; null if nowhere"),
        Field("correlation", Type.BYTES, "what the answer is to carry; null if nothing"),
        Field("expiry_s", Type.WHOLE, "seconds that it is of interest; null if for ever"),
        Field("properties", Type.TEXT, 'user properties: `[["name", "value"], …]`; null if none'),
    ),
)
"""(broker, sequence) tells messages apart: one that was recorded twice has it twice."""

SCHEMAS = {schema.kind: schema for schema in (MESSAGES, CONNECTIONS, POLICIES, PLANS, CAPTURES)}
