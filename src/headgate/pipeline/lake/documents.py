"""JSON, taken apart by Spark itself: one measurement for each value, however deep it lies.

`{"value": 21.5, "unit": "C", "ts": …}` is one reading with its unit and time; in other objects each
member is a measurement of its own, named by its path. docs/lake.md has the mapping.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as sf

DEPTH = 5
"""Levels that are taken apart; what lies deeper stays JSON, as text."""

STAMPS = ("ts", "time", "timestamp", "datetime")
UNITS = ("unit", "units", "uom")
QUALITIES = ("quality", "status")
READING = "value"

FIRST_S, LAST_S = 946_684_800, 4_102_444_800
"""From 2000 to 2100: what a time stamp can be; in s, ms, µs or ns these do not overlap."""

NUMBER = r"^\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*$"


def parsed(text: Column) -> Column:
    """A variant, or null if the text is not exactly one JSON document.

    Spark passes over what follows the first one; as an element before another it cannot.
    """
    wrapped = sf.try_parse_json(sf.concat(sf.lit("["), text, sf.lit(",null]")))
    elements = as_type(wrapped, "array<variant>")
    return sf.when(sf.size(elements) == 2, sf.get(elements, sf.lit(0)))


def measurements(document: Column) -> Column:
    """Of a variant: an array of name, stamp, value, text, flag, unit and quality."""
    root = sf.array(
        sf.struct(
            sf.lit(None).cast("string").alias("path"),
            document.alias("v"),
            sf.lit(None).cast("timestamp").alias("stamp"),
            sf.lit(None).cast("string").alias("unit"),
            sf.lit(None).cast("string").alias("quality"),
        )
    )
    leaves = reduce(lambda level, _: sf.flatten(sf.transform(level, parts)), range(DEPTH), root)
    return sf.transform(leaves, leaf)


def parts(x: Column) -> Column:
    """The members or elements of what has some, or else the thing itself."""
    members = as_type(x["v"], "map<string,variant>")
    elements = as_type(x["v"], "array<variant>")
    return (
        sf.when(members.isNotNull(), bound(members, lambda m: of_object(x, m)))
        .when(
            elements.isNotNull(),
            sf.transform(
                elements,
                lambda element, index: part(
                    sf.concat_ws(".", x["path"], index.cast("string")),
                    element,
                    x["stamp"],
                    x["unit"],
                    x["quality"],
                ),
            ),
        )
        .otherwise(sf.array(x))
    )


def of_object(x: Column, m: Column) -> Column:
    told = sf.struct(
        sf.array_contains(sf.map_keys(m), READING).alias("reading"),
        sf.coalesce(*(stamp_of(sf.try_element_at(m, sf.lit(k))) for k in STAMPS), x["stamp"]).alias(
            "stamp"
        ),
        sf.coalesce(*(text_of(m, key) for key in UNITS)).alias("unit"),
        sf.coalesce(*(text_of(m, key) for key in QUALITIES)).alias("quality"),
    )

    def with_told(t: Column) -> Column:
        def is_measured(entry: Column) -> Column:
            is_stamp = entry["key"].isin(*STAMPS) & stamp_of(entry["value"]).isNotNull()
            describes = t["reading"] & entry["key"].isin(*UNITS, *QUALITIES)
            return ~(is_stamp | describes)

        def child(entry: Column) -> Column:
            reading = t["reading"] & (entry["key"] == READING)
            return part(
                sf.when(reading, x["path"]).otherwise(sf.concat_ws(".", x["path"], entry["key"])),
                entry["value"],
                t["stamp"],
                sf.when(reading, t["unit"]),
                sf.when(reading, t["quality"]),
            )

        return sf.transform(sf.filter(sf.map_entries(m), is_measured), child)

    return bound(told, with_told)


def part(path: Column, v: Column, stamp: Column, unit: Column, quality: Column) -> Column:
    return sf.struct(
        path.alias("path"),
        v.alias("v"),
        stamp.alias("stamp"),
        unit.alias("unit"),
        quality.alias("quality"),
    )


def leaf(x: Column) -> Column:
    """A measurement of what cannot be taken apart any more."""
    kind = sf.schema_of_variant(x["v"])
    container = kind.startswith("OBJECT") | kind.startswith("ARRAY")
    return sf.struct(
        sf.coalesce(x["path"], sf.lit(READING)).alias("name"),
        x["stamp"].alias("stamp"),
        sf.when(numeric(kind), as_type(x["v"], "double")).alias("value"),
        sf.when((kind == "STRING") | container, as_type(x["v"], "string")).alias("text"),
        sf.when(kind == "BOOLEAN", as_type(x["v"], "boolean")).alias("flag"),
        x["unit"].alias("unit"),
        x["quality"].alias("quality"),
    )


def numeric(kind: Column) -> Column:
    return kind.isin("BIGINT", "DOUBLE", "FLOAT") | kind.startswith("DECIMAL")


def stamp_of(v: Column) -> Column:
    """A moment, if it can be one: ISO 8601, or a number since 1970 in a unit that fits."""
    kind = sf.schema_of_variant(v)
    number = as_type(v, "double")
    moment = sf.lit(None).cast("double")
    for scale in (1e9, 1e6, 1e3, 1.0):
        moment = sf.when(number.between(FIRST_S * scale, LAST_S * scale), number / scale).otherwise(
            moment
        )
    text = as_type(v, "string")
    iso = sf.when(text.rlike(r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}"), text.try_cast("timestamp"))
    return sf.when(numeric(kind), sf.timestamp_micros((moment * 1e6).cast("bigint"))).when(
        kind == "STRING", iso
    )


def text_of(members: Column, key: str) -> Column:
    return as_type(sf.try_element_at(members, sf.lit(key)), "string")


def as_type(v: Column, name: str) -> Column:
    return sf.try_variant_get(v, "$", name)


def bound(value: Column, body: Callable[[Column], Column]) -> Column:
    """`body` of a value that is computed once, however often it is used there."""
    return sf.get(sf.transform(sf.array(value), body), sf.lit(0))


def plain(text: Column) -> Column:
    """The one measurement of a text: a number, true or false, or the text as it is."""
    number = sf.when(text.rlike(NUMBER), sf.trim(text).try_cast("double"))
    word = sf.lower(sf.trim(text))
    flag = sf.when(word.isin("true", "false"), word == "true")
    return sf.array(
        sf.struct(
            sf.lit(READING).alias("name"),
            sf.lit(None).cast("timestamp").alias("stamp"),
            number.alias("value"),
            sf.when(number.isNull() & flag.isNull(), text).alias("text"),
            flag.alias("flag"),
            sf.lit(None).cast("string").alias("unit"),
            sf.lit(None).cast("string").alias("quality"),
        )
    )
