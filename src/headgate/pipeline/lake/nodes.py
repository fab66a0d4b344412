"""Sparkplug B messages, node by node: what an alias means was said when its device was born.

A message of data names metrics by aliases only, and the birth certificate that explains them may be
hours older. So a node's messages are read in the order of their arrival, with what was known of it
before; what is known after them is handed on to the next step. Births define the metrics of their
node or device; a node's birth ends those of all its devices (specification 3.0, §6.4.17).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

import pyarrow as pa

from headgate.pipeline.lake import sparkplug
from headgate.pipeline.lake.undecodable import UndecodableError
from headgate.pipeline.lake.values import ARROW_MEASUREMENTS, Measurement, measurement

NAMESPACE = "spBv1.0"
WORDS = ("NBIRTH", "NDATA", "NCMD", "NDEATH", "DBIRTH", "DDATA", "DCMD", "DDEATH")


@dataclass(slots=True)
class Definitions:
    """What a birth certificate said of a node or device."""

    born: datetime
    metrics: dict[str, tuple[int | None, str | None]] = field(default_factory=dict)
    """Data type and unit by name."""
    names: dict[int, str] = field(default_factory=dict)
    """By alias."""


@dataclass(slots=True)
class Node:
    """What is known of a node; its own definitions are under the empty name, its devices' under
    theirs."""

    devices: dict[str, Definitions] = field(default_factory=dict)

    def dumped(self) -> str:
        return json.dumps(
            {
                device: [
                    known.born.isoformat(),
                    [
                        [name, alias, *known.metrics[name]]
                        for alias, name in (
                            *((alias, name) for alias, name in known.names.items()),
                            *((None, n) for n in known.metrics if n not in known.names.values()),
                        )
                    ],
                ]
                for device, known in self.devices.items()
            }
        )

    @classmethod
    def loaded(cls, text: str | None) -> Node:
        node = cls()
        for device, (born, metrics) in json.loads(text or "{}").items():
            known = Definitions(datetime.fromisoformat(born))
            for name, alias, datatype, unit in metrics:
                known.metrics[name] = (datatype, unit)
                if alias is not None:
                    known.names[alias] = name
            node.devices[device] = known
        return node

    def read(self, topic: str, at: datetime, data: bytes) -> list[Measurement]:
        """The measurements of a message; a birth changes what is known."""
        word, device = parts(topic)
        payload = sparkplug.decode(data)
        if word in ("NBIRTH", "DBIRTH"):
            known = definitions(payload, at)
            self.learn(word, device, known)
        else:
            known = self.devices.get(device) or Definitions(at)
        return [row for metric in payload.metrics for row in rows(metric, payload, known, at, word)]

    def learn(self, word: str, device: str, known: Definitions) -> None:
        older = self.devices.get(device)
        if older is not None and older.born > known.born:
            return  # it comes late: a newer one is known already
        if word == "NBIRTH":
            self.devices = {
                name: one for name, one in self.devices.items() if one.born > known.born
            }
        self.devices[device] = known


def parts(topic: str) -> tuple[str, str]:
    """Message type, and the device or nothing."""
    levels = topic.split("/")
    wanted = 5 if levels[2:3] and levels[2].startswith("D") else 4
    if len(levels) != wanted or levels[0] != NAMESPACE or levels[2] not in WORDS:
        raise UndecodableError(
            f"Sparkplug: the topic is not {NAMESPACE}/GROUP/TYPE/NODE or …/NODE/DEVICE"
        )
    return levels[2], levels[4] if wanted == 5 else ""


def definitions(payload: sparkplug.Payload, at: datetime) -> Definitions:
    found = Definitions(at)
    for metric in payload.metrics:
        if metric.name is None:
            raise UndecodableError("Sparkplug: a birth certificate has a metric without a name")
        found.metrics[metric.name] = (metric.datatype, metric.unit)
        if metric.alias is not None:
            if metric.alias in found.names:
                raise UndecodableError(f"Sparkplug: alias {metric.alias} is given to two metrics")
            found.names[metric.alias] = metric.name
    return found


def rows(
    metric: sparkplug.Metric,
    payload: sparkplug.Payload,
    known: Definitions,
    at: datetime,
    word: str,
) -> Iterator[Measurement]:
    name = metric.name or name_of(metric.alias, known, at)
    datatype, unit = known.metrics.get(name, (None, None))
    milliseconds = payload.stamp_ms if metric.stamp_ms is None else metric.stamp_ms
    quality = metric.quality or ("stale" if word in ("NDEATH", "DDEATH") else None)
    for added, value in sparkplug.measured(metric, metric.datatype or datatype):
        yield measurement(name + added, value, stamp(milliseconds), metric.unit or unit, quality)


def name_of(alias: int | None, known: Definitions, at: datetime) -> str:
    if alias is None:
        raise UndecodableError("Sparkplug: a metric has neither name nor alias")
    if alias not in known.names:
        raise UndecodableError(f"Sparkplug: alias {alias} is in no birth certificate that was seen")
    if at < known.born:
        raise UndecodableError(f"Sparkplug: alias {alias} is from before the birth that is known")
    return known.names[alias]


def stamp(milliseconds: int | None) -> datetime | None:
    if milliseconds is None or not 0 <= milliseconds <= sparkplug.LAST_MS:
        return None
    return sparkplug.EPOCH + timedelta(milliseconds=milliseconds)


# For Spark


def resolved(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Messages, sorted by `node` and arrival, with their `measurements` or a `reason`.

    A row with `known` and no message goes before a node's messages: what was known of it. One comes
    after them: what is known now.
    """
    node, name, schema = Node(), None, None
    for batch in batches:
        schema = with_results(batch.schema)
        out: list[dict[str, Any]] = []
        for current, some in groupby(batch.to_pylist(), key=lambda message: message["node"]):
            if current != name:
                if name is not None:
                    out.append({"node": name, "known": node.dumped()})
                node, name = Node(), current
            for message in some:
                if message["known"] is not None:
                    node = Node.loaded(message["known"])
                else:
                    out.append({**message, **attempt(node, message)})
        yield pa.RecordBatch.from_pylist(out, schema=schema)
    if schema is not None and name is not None:
        yield pa.RecordBatch.from_pylist([{"node": name, "known": node.dumped()}], schema=schema)


def with_results(schema: pa.Schema) -> pa.Schema:
    return schema.append(pa.field("measurements", ARROW_MEASUREMENTS)).append(
        pa.field("reason", pa.string())
    )


def attempt(node: Node, message: dict[str, Any]) -> dict[str, Any]:
    try:
        found = node.read(message["topic"], message["at"], message["payload"])
        return {"measurements": found, "reason": None}
    except UndecodableError as error:
        return {"measurements": None, "reason": str(error)}
