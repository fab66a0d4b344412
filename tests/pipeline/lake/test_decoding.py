"""From captured messages to measurements and quarantine, on small frames."""

from __future__ import annotations

import re
from datetime import UTC, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.testing import assertDataFrameEqual, assertSchemaEqual

from headgate.errors import ConfigurationError
from headgate.pipeline.lake import decoding
from headgate.pipeline.lake.formats import Rule, rule_of
from headgate.pipeline.lake.identity import SEEN, intervals, merged, unseen
from headgate.pipeline.lake.registry import Entry, pattern_of, rank_of, registry_frame
from headgate.pipeline.lake.schemas import QUARANTINE, SILVER
from headgate.wire.topics import matches

from .captured import NOON, Capture, capture, field, frame, metric, payload

Row = dict[str, Any]


def decode(
    spark: SparkSession,
    captures: list[Capture],
    rules: tuple[Rule, ...] = (),
    entries: tuple[Entry, ...] = (),
    known: DataFrame | None = None,
) -> tuple[dict[int, list[Row]], dict[int, str], DataFrame]:
    """Measurements and reasons by the message's number, and all of it."""
    some = frame(spark, captures)
    before = decoding.nothing_known(spark) if known is None else known
    present = decoding.formats_of(some, rules)
    messages = decoding.decoded(some, rules, before, present).persist()
    silver = decoding.measured(messages, registry_frame(spark, entries))
    bad = decoding.quarantined(messages)
    rows: dict[int, list[Row]] = {}
    for row in silver.sort("sequence", "part").collect():
        rows.setdefault(row["sequence"], []).append(row.asDict())
    reasons = {row["sequence"]: row["reason"] for row in bad.collect()}
    # Each message is in one of them, and in no more.
    assert sorted([*rows, *reasons]) == sorted(one["sequence"] for one in captures)
    assertSchemaEqual(silver.schema, schema(spark, SILVER), ignoreNullable=True)
    assertSchemaEqual(bad.schema, schema(spark, QUARANTINE), ignoreNullable=True)
    return rows, reasons, messages


def schema(spark: SparkSession, ddl: str) -> Any:
    return spark.createDataFrame([], ddl).schema


def brief(rows: list[Row]) -> list[tuple[str, Any]]:
    return [
        (row["name"], next((row[k] for k in ("value", "text", "flag") if row[k] is not None), None))
        for row in rows
    ]


GOOD: list[tuple[str | bytes, str, list[tuple[str | None, Any]]]] = [
    ("21.5", "text", [("value", 21.5)]),
    (" -3e2 ", "text", [("value", -300.0)]),
    ("true", "text", [("value", True)]),
    ("ON", "text", [("value", "ON")]),
    ("21.5 C", "text", [("value", "21.5 C")]),
    ("1,2", "text", [("value", "1,2")]),
    ("NaN", "text", [("value", "NaN")]),
    ('"on"', "text", [("value", "on")]),
    ("null", "text", [("value", None)]),
    ("", "empty", [(None, None)]),
    ("{}", "json", [(None, None)]),
    ('{"value": 21.5, "unit": "C"}', "json", [("value", 21.5)]),
    (
        '{"t": 1, "h": {"now": 2, "max": {"v": 3}}}',
        "json",
        [("t", 1), ("h.now", 2), ("h.max.v", 3)],
    ),
    ('{"t": {"value": 5, "unit": "C", "site": "a"}}', "json", [("t.site", "a"), ("t", 5)]),
    ("[1, [true]]", "json", [("0", 1), ("1.0", True)]),
    ('{"a":{"b":{"c":{"d":{"e":{"f":1}}}}}}', "json", [("a.b.c.d.e.f", 1)]),
    (bytes.fromhex("a2617401616ff5"), "cbor", [("t", 1), ("o", True)]),
    (bytes.fromhex("d9d9f7fb3ff199999999999a"), "cbor", [("value", 1.1)]),
]

FORM = "Sparkplug: the topic is not spBv1.0/GROUP/TYPE/NODE or …/NODE/DEVICE"

BAD: list[tuple[str | bytes, dict[str, Any], str]] = [
    ('{"a": 1', {}, "JSON: Input data was truncated"),
    ('{"a": 1} x', {}, "JSON: trailing characters (byte 10)"),
    ("ON", {"content_type": "application/json"}, "JSON: invalid character (byte 0)"),
    (b"\xff\xfe", {"content_type": "application/json"}, "JSON: invalid character (byte 0)"),
    (b"\xff\xfe", {"content_type": "text/plain"}, "not UTF-8"),
    (b"\xff\xfe", {}, "bytes of no format that is known"),
    (b"a\x00b", {}, "bytes of no format that is known"),
    (b"\xa1\x61", {}, "CBOR: ends after 2 bytes, in the middle"),
    ("21.5", {"content_type": "application/cbor"}, "CBOR: 3 bytes after the end of the first item"),
    (b"\x08\x96", {"topic": "spBv1.0/g/NDATA/n"}, "Protocol Buffers: a number does not end"),
    ("1", {"topic": "spBv1.0/g/NDATA"}, FORM),
]  # fmt: skip


def test_payloads_become_measurements_or_have_a_reason(spark: SparkSession) -> None:
    good = [capture(number, one[0]) for number, one in enumerate(GOOD)]
    bad = [capture(100 + number, one[0], **one[1]) for number, one in enumerate(BAD)]
    rows, reasons, _ = decode(spark, good + bad)
    for number, (data, kind, expected) in enumerate(GOOD):
        assert sorted(brief(rows[number]), key=repr) == sorted(expected, key=repr), data
        assert {row["format"] for row in rows[number]} == {kind}, data
    assert reasons == {100 + number: reason for number, (_, _, reason) in enumerate(BAD)}


def test_times_units_and_qualities_are_the_payloads_own(spark: SparkSession) -> None:
    noon = NOON.timestamp()
    told = [
        f'{{"value": 1, "ts": {noon - 5}, "uom": "C", "quality": "good"}}',
        f'{{"value": 1, "ts": {int(noon * 1e3) - 5000}}}',
        f'{{"value": 1, "timestamp": {int(noon * 1e9) - 5_000_000_000}}}',
        '{"value": 1, "time": "2026-11-17T12:59:55+01:00"}',
        f'{{"t": {{"value": 1, "ts": {noon - 5}}}, "ts": {noon - 9}, "h": 2}}',
        f'{{"value": 1, "ts": {noon + 3600}}}',  # its clock is wrong
        '{"value": 1, "ts": 12}',  # no time at all: a measurement
        '{"time": "12:30"}',
    ]
    rows, reasons, _ = decode(spark, [capture(number, one) for number, one in enumerate(told)])
    assert not reasons
    early = NOON - timedelta(seconds=5)
    for number in range(4):
        (row,) = rows[number]
        assert row["time"].astimezone(UTC) == early, told[number]
        assert row["stamped"] == row["time"]
    assert (rows[0][0]["unit"], rows[0][0]["quality"]) == ("C", "good")
    times = {row["name"]: row["time"].astimezone(UTC) for row in rows[4]}
    assert times == {"t": early, "h": NOON - timedelta(seconds=9)}
    (wrong,) = rows[5]
    assert wrong["time"].astimezone(UTC) == NOON
    assert wrong["stamped"].astimezone(UTC) == NOON + timedelta(hours=1)
    assert sorted(brief(rows[6])) == [("ts", 12.0), ("value", 1.0)]
    assert brief(rows[7]) == [("time", "12:30")]


def test_the_format_is_what_a_rule_the_publisher_or_the_topic_says(spark: SparkSession) -> None:
    rules = (rule_of("plant/#=cbor"), rule_of("+/raw=text"))
    rows, reasons, _ = decode(
        spark,
        [
            capture(0, b"\x18\x2a", topic="plant/a"),
            capture(1, "{not json", topic="hall/raw"),
            capture(2, '{"a": 1}', content_type="text/plain; charset=utf-8"),
            capture(3, b"\x18\x2a", content_type="application/senml+cbor"),
            capture(4, '{"online": true}', topic="spBv1.0/STATE/host"),
        ],
        rules,
    )
    assert not reasons
    assert [brief(rows[number]) for number in range(5)] == [
        [("value", 42.0)],
        [("value", "{not json")],
        [("value", '{"a": 1}')],
        [("value", 42.0)],
        [("online", True)],
    ]


@pytest.mark.parametrize("text", ["plant/#", "plant/#=xml", "a#=cbor"])
def test_a_rule_that_is_none_is_told(text: str) -> None:
    with pytest.raises(ConfigurationError):
        rule_of(text)


# Sparkplug across steps


def test_aliases_are_known_from_one_step_to_the_next(spark: SparkSession) -> None:
    def message(number: int, at: float, word: str, node: str, *metrics: bytes) -> Capture:
        return capture(number, payload(*metrics), at, topic=f"spBv1.0/g/{word}/{node}")

    value = field(10, 7)
    births = [
        message(number, number, "NBIRTH", f"n{number}", metric(f"m{number}", 1, 3, value))
        for number in range(10)
    ]
    early = message(20, -1, "NDATA", "n3", metric(alias=1, value=value))
    rows, reasons, messages = decode(spark, [*births, early])
    assert brief(rows[3]) == [("m3", 7.0)]
    assert reasons == {20: "Sparkplug: alias 1 is in no birth certificate that was seen"}
    before = decoding.known_nodes(messages, decoding.nothing_known(spark))
    known = spark.createDataFrame(before.collect(), decoding.KNOWN)
    data = [
        message(30 + number, 30, "NDATA", f"n{number}", metric(alias=1, value=value))
        for number in range(11)
    ]
    rows, reasons, messages = decode(spark, data, known=known)
    assert [brief(rows[30 + number]) for number in range(10)] == [
        [(f"m{number}", 7.0)] for number in range(10)
    ]
    assert list(reasons) == [40]  # n10 was never born
    assert decoding.known_nodes(messages, known).count() == 11


# The registry


def test_the_most_specific_entry_counts(spark: SparkSession) -> None:
    entries = (
        Entry("#", owner="site"),
        Entry("hall/#", place="hall", owner="facility"),
        Entry("hall/+", sensor="any", place="hall"),
        Entry("hall/t", sensor="T1", unit="K", place="door", owner="ops", period_s=10.0),
        Entry("hall/t", name="battery", sensor="T1 battery", unit="V"),
    )
    rows, _, _ = decode(
        spark,
        [
            capture(0, '{"value": 1, "battery": 3}', topic="hall/t"),
            capture(1, '{"value": 1, "unit": "C"}', topic="hall/t"),
            capture(2, "1", topic="hall/x"),
            capture(3, "1", topic="hall/x/y"),
            capture(4, "1", topic="hall"),
            capture(5, "1", topic="garden"),
            capture(6, "1", topic="$SYS/x"),
        ],
        entries=entries,
    )
    found = {
        (number, row["name"]): (row["sensor"], row["unit"], row["place"], row["owner"])
        for number, some in rows.items()
        for row in some
    }
    assert found == {
        (0, "value"): ("T1", "K", "door", "ops"),
        (0, "battery"): ("T1 battery", "V", None, None),
        (1, "value"): ("T1", "C", "door", "ops"),
        (2, "value"): ("any", None, "hall", None),
        (3, "value"): ("hall/x/y", None, "hall", "facility"),
        (4, "value"): ("hall", None, "hall", "facility"),
        (5, "value"): ("garden", None, None, "site"),
        (6, "value"): ("$SYS/x", None, None, None),
    }
    assert rows[0][0]["period_s"] == 10.0


def test_patterns_match_as_the_broker_does() -> None:
    topics = [
        "a",
        "a/b",
        "a/b/c",
        "/",
        "/a",
        "a/",
        "$SYS",
        "$SYS/a",
        "a.b",
        "a|b/c",
        "a\nb",
        "a\n",
        "x",
    ]
    filters = [
        *topics,
        "#",
        "+",
        "+/+",
        "a/#",
        "a/+",
        "+/b",
        "+/b/#",
        "/#",
        "$SYS/#",
        "+/a",
        "a/+/c",
    ]
    for one in filters:
        for topic in topics:
            assert bool(re.search(pattern_of(one), topic)) == matches(one, topic), (one, topic)


def test_specific_comes_before_general() -> None:
    filters = ["a/b/c", "a/b/+", "a/b/#", "a/+/c", "a/#", "+/b/c", "#"]
    assert sorted(filters, key=lambda one: rank_of(Entry(one))) == filters


# Each message once


def test_what_was_seen_is_a_few_intervals(spark: SparkSession) -> None:
    numbers = [(broker, number) for broker in ("a", "b") for number in (1, 2, 3, 7, 8, 20)]
    some = spark.createDataFrame(numbers, "broker string, sequence bigint")
    seen = intervals(some)
    each = [(1, 3), (7, 8), (20, 20)]
    expected = [(broker, *one) for broker in ("a", "b") for one in each]
    assertDataFrameEqual(seen, spark.createDataFrame(expected, SEEN))
    more = spark.createDataFrame([("a", 4, 6), ("a", 21, 30), ("c", 0, 0), ("a", 2, 3)], SEEN)
    expected = [("a", 1, 8), ("a", 20, 30), ("c", 0, 0), *(("b", *one) for one in each)]
    assertDataFrameEqual(merged(seen, more), spark.createDataFrame(expected, SEEN))
    arriving = spark.createDataFrame(
        [("a", 3), ("a", 4), ("a", 4), ("b", 9), ("d", 1)], some.schema
    )
    assertDataFrameEqual(
        unseen(arriving, seen),
        spark.createDataFrame([("a", 4), ("b", 9), ("d", 1)], some.schema),
    )
