"""CBOR and Sparkplug B, byte by byte; and bytes that are neither."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.pipeline.lake import cbor, documents, nodes, sparkplug
from headgate.pipeline.lake.formats import Format
from headgate.pipeline.lake.undecodable import UndecodableError
from headgate.pipeline.lake.values import ARROW_MEASUREMENTS, measurements

from .captured import field, metric, payload

AT = datetime(2026, 11, 17, 12, tzinfo=UTC)


# CBOR: the examples of RFC 8949, appendix A


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("00", 0),
        ("1818", 24),
        ("1bffffffffffffffff", 18446744073709551615),
        ("c249010000000000000000", 18446744073709551616),
        ("3bffffffffffffffff", -18446744073709551616),
        ("c349010000000000000000", -18446744073709551617),
        ("3903e7", -1000),
        ("f93c00", 1.0),
        ("f9c400", -4.0),
        ("fa47c35000", 100000.0),
        ("fb3ff199999999999a", 1.1),
        ("f97e00", "NaN"),
        ("f97c00", "Infinity"),
        ("f9fc00", "-Infinity"),
        ("f4", False),
        ("f5", True),
        ("f6", None),
        ("f7", None),
        ("c074323031332d30332d32315432303a30343a30305a", "2013-03-21T20:04:00Z"),
        ("c11a514b67b0", 1363896240),
        ("c48221196ab3", 273.15),
        ("c5822003", 1.5),
        ("4401020304", "01020304"),
        ("6449455446", "IETF"),
        ("62c3bc", "ü"),
        ("80", []),
        ("8301820203820405", [1, [2, 3], [4, 5]]),
        ("a26161016162820203", {"a": 1, "b": [2, 3]}),
        ("a201020304", {"1": 2, "3": 4}),
        ("5f42010243030405ff", "0102030405"),
        ("7f657374726561646d696e67ff", "streaming"),
        ("9f018202039f0405ffff", [1, [2, 3], [4, 5]]),
        ("bf6346756ef563416d7421ff", {"Fun": True, "Amt": -2}),
        ("d9d9f7a1617601", {"v": 1}),
    ],
)
def test_cbor_is_read_as_its_specification_says(data: str, value: Any) -> None:
    found = cbor.decode(bytes.fromhex(data))
    assert found == pytest.approx(value) if isinstance(value, float) else found == value
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("", "in the middle"),
        ("18", "in the middle"),
        ("9bffffffffffffffff00", "in the middle"),
        ("0000", "1 bytes after"),
        ("ff", "a break"),
        ("82ff00", "a break"),
        ("1c", "reserved"),
        ("1f", "begins no item"),
        ("f8ff", "means nothing"),
        ("61ff", "not UTF-8"),
        ("a2616101616102", "twice"),
        ("bf6161ff", "no value"),
        ("5f6161ff", "another kind"),
        ("c201", "no byte string"),
        ("c401", "not a pair"),
        ("81" * 100, "deeper"),
        ("c2590100" + "ff" * 256, "more than 128 bytes"),
    ],
)
def test_cbor_that_is_none_is_refused_with_a_reason(data: str, said: str) -> None:
    with pytest.raises(UndecodableError, match=said):
        cbor.decode(bytes.fromhex(data))


@settings(max_examples=500, deadline=None)
@given(st.binary(max_size=200))
def test_bytes_of_any_kind_are_read_or_refused(data: bytes) -> None:
    """No other exception: one payload must not end the job."""
    for kind in (Format.JSON, Format.CBOR):
        found, reason = documents.attempt(data, kind)
        assert (found is None) != (reason is None)
        pa.array([found], ARROW_MEASUREMENTS)
    for word in ("NBIRTH", "NDATA"):
        node = nodes.Node()
        result = nodes.attempt(node, {"topic": f"spBv1.0/g/{word}/n", "at": AT, "payload": data})
        assert (result["measurements"] is None) != (result["reason"] is None)
        assert nodes.Node.loaded(node.dumped()).dumped() == node.dumped()
        pa.array([result["measurements"]], ARROW_MEASUREMENTS)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_a_message_with_a_bit_turned_is_read_or_refused(data: st.DataObject) -> None:
    good = payload(
        metric("a", 1, 3, field(10, 5), 1_700_000_000_000),
        metric("b", 2, 12, field(15, "text")),
        metric("c", 3, 31, field(16, struct.pack("<2d", 1, 2))),
        metric("d", 4, 32, field(16, b"\x03\0\0\0\xa0")),
        metric("e", 5, 13, field(11, 1_700_000_000_000)),
    )
    position = data.draw(st.integers(0, len(good) - 1))
    bad = bytearray(good)
    bad[position] ^= 1 << data.draw(st.integers(0, 7))
    result = nodes.attempt(
        nodes.Node(), {"topic": "spBv1.0/g/NBIRTH/n", "at": AT, "payload": bytes(bad)}
    )
    assert (result["measurements"] is None) != (result["reason"] is None)
    pa.array([result["measurements"]], ARROW_MEASUREMENTS)


# Documents

DEEP = "[" * 5000 + "]" * 5000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"value": 21.5, "unit": "C"}', {"value": 21.5}),
        ('{"t": 1, "h": {"now": 2, "max": {"v": 3}}}', {"t": 1, "h.now": 2, "h.max.v": 3}),
        ('{"t": {"value": 5, "unit": "C", "site": "a"}}', {"t": 5, "t.site": "a"}),
        ("[1, [true]]", {"0": 1, "1.0": True}),
        ('{"a": null, "b": ""}', {"a": None, "b": ""}),
        ('{"unit": "C"}', {"unit": "C"}),
        ('{"value": {"a": 1}, "b": 2}', {"a": 1, "b": 2}),
        ("{}", {}),
        ("17", {"value": 17}),
        (str(10**400), {"value": float("inf")}),
    ],
)
def test_each_value_of_a_document_is_a_measurement(text: str, expected: dict[str, Any]) -> None:
    rows = measurements(json.loads(text))
    found = {
        row["name"]: next((row[k] for k in ("value", "text", "flag") if row[k] is not None), None)
        for row in rows
    }
    assert found == expected
    assert len(rows) == len(found)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1', "JSON: Input data was truncated"),
        ('{"a": 1} x', "JSON: trailing characters"),
        ('{"a": NaN}', "JSON: invalid character"),
        ("{'a': 1}", "JSON: "),
        ('"\\ud800"', "JSON: "),
        (DEEP, ""),
    ],
)
def test_what_is_no_document_has_a_reason(text: str, said: str) -> None:
    found, reason = documents.attempt(text.encode(), Format.JSON)
    assert found is None
    assert reason is not None
    assert reason.startswith(said)


# Sparkplug


def read(node: nodes.Node, word: str, data: bytes, at: float = 0, device: str = "") -> list[Any]:
    topic = f"spBv1.0/plant/{word}/edge" + (f"/{device}" if device else "")
    rows = node.read(topic, AT + timedelta(seconds=at), data)
    return [
        (row["name"], next((row[k] for k in ("value", "text", "flag") if row[k] is not None), None))
        for row in rows
    ]


BIRTH = payload(
    metric("temperature", 1, 10, b"\x69" + struct.pack("<d", 21.5)),
    metric("steps", 2, 1, field(10, 0xFFFFFFFE)),
    metric("open", 3, 11, field(14, 1)),
)


def test_every_data_type_is_what_it_says() -> None:
    def one(datatype: int, value: bytes) -> Any:
        return read(nodes.Node(), "NBIRTH", payload(metric("m", 1, datatype, value)))

    assert one(1, field(10, 0xFF)) == [("m", -1.0)]
    assert one(2, field(10, 0xFFFF_8000)) == [("m", -32768.0)]
    assert one(3, field(10, 0xFFFF_FFFF)) == [("m", -1.0)]
    assert one(4, field(11, 2**64 - 5)) == [("m", -5.0)]
    assert one(5, field(10, 255)) == [("m", 255.0)]
    assert one(8, field(11, 2**63)) == [("m", 2.0**63)]
    assert one(9, b"\x65" + struct.pack("<f", 0.5)) == [("m", 0.5)]
    assert one(11, field(14, 0)) == [("m", False)]
    assert one(12, field(15, "warm")) == [("m", "warm")]
    assert one(13, field(11, 1_700_000_000_000)) == [("m", "2023-11-14T22:13:20+00:00")]
    assert one(17, field(16, b"\x01\xff")) == [("m", "01ff")]
    assert one(23, field(16, struct.pack("<2h", 1, -2))) == [("m.0", 1.0), ("m.1", -2.0)]
    assert one(32, field(16, b"\x03\0\0\0\xa0")) == [("m.0", True), ("m.1", False), ("m.2", True)]
    assert one(33, field(16, b"a\0b\0")) == [("m.0", "a"), ("m.1", "b")]
    assert one(3, field(7, 1)) == [("m", None)]  # is_null


def test_aliases_mean_what_the_birth_said() -> None:
    node = nodes.Node()
    assert read(node, "NBIRTH", BIRTH) == [("temperature", 21.5), ("steps", -2.0), ("open", True)]
    data = payload(metric(alias=2, value=field(10, 0xFD)), metric(alias=3, value=field(14, 0)))
    assert read(node, "NDATA", data, 1) == [("steps", -3.0), ("open", False)]
    again = nodes.Node.loaded(node.dumped())
    assert read(again, "NDATA", data, 1) == [("steps", -3.0), ("open", False)]


def test_quality_and_unit_come_from_the_properties() -> None:
    properties = b"".join(
        [
            *(field(1, key) for key in ("Quality", "engUnit")),
            field(2, field(1, 3) + field(3, 192)),
            field(2, field(1, 12) + field(8, "°C")),
        ]
    )
    born = payload(metric("t", 1, 3, field(9, properties) + field(10, 4)))
    node = nodes.Node()
    (row,) = node.read("spBv1.0/g/NBIRTH/n", AT, born)
    assert (row["quality"], row["unit"]) == ("good", "°C")
    (row,) = node.read("spBv1.0/g/NDATA/n", AT, payload(metric(alias=1, value=field(10, 5))))
    assert (row["quality"], row["unit"]) == (None, "°C")
    assert row["stamp"] == datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


def test_an_alias_without_a_birth_is_refused() -> None:
    node = nodes.Node()
    data = payload(metric(alias=1, value=field(10, 1)))
    with pytest.raises(UndecodableError, match="in no birth certificate"):
        read(node, "NDATA", data)
    read(node, "NBIRTH", BIRTH, 10)
    with pytest.raises(UndecodableError, match="before the birth"):
        read(node, "NDATA", data, 5)
    with pytest.raises(UndecodableError, match="in no birth certificate"):
        read(node, "DDATA", data, 11, device="pump")
    read(node, "DBIRTH", payload(metric("rpm", 1, 7, field(10, 900))), 12, device="pump")
    assert read(node, "DDATA", data, 13, device="pump") == [("rpm", 1.0)]
    read(node, "NBIRTH", BIRTH, 20)  # the devices have to be born again
    with pytest.raises(UndecodableError, match="in no birth certificate"):
        read(node, "DDATA", data, 21, device="pump")


def test_a_birth_that_comes_late_changes_nothing() -> None:
    node = nodes.Node()
    read(node, "NBIRTH", payload(metric("new", 1, 3, field(10, 1))), 10)
    read(node, "NBIRTH", payload(metric("old", 1, 3, field(10, 1))), 5)
    assert read(node, "NDATA", payload(metric(alias=1, value=field(10, 2))), 11) == [("new", 2.0)]


@pytest.mark.parametrize("topic", ["spBv1.0/g", "spBv1.0/g/NDATA", "spBv1.0/g/X/n", "a/b/NDATA/d"])
def test_a_topic_of_another_form_is_refused(topic: str) -> None:
    with pytest.raises(UndecodableError, match="the topic is not"):
        nodes.Node().read(topic, AT, payload())


def test_sparkplug_fields_of_any_size_are_bounded() -> None:
    with pytest.raises(UndecodableError, match="does not end"):
        sparkplug.decode(b"\x08" + b"\xff" * 11)
    with pytest.raises(UndecodableError, match="middle of a field"):
        sparkplug.decode(b"\x12\xff\xff\xff\xff\x0f")
