"""What a payload is: by what its publisher says, by a rule for its topic, or by its looks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf

from headgate.errors import ConfigurationError, ProtocolViolation
from headgate.pipeline.lake.registry import pattern_of
from headgate.wire.topics import validate_filter


class Format(StrEnum):
    JSON = "json"
    TEXT = "text"
    """A number, true or false, or else text."""
    CBOR = "cbor"
    SPARKPLUG = "sparkplug"
    BINARY = "binary"
    """None that is known."""
    EMPTY = "empty"
    """No payload: nothing is measured, though a retained message may have been removed."""


CHOICES = (Format.JSON, Format.TEXT, Format.CBOR, Format.SPARKPLUG)


@dataclass(frozen=True)
class Rule:
    """Topics whose format is known."""

    filter: str
    format: Format


def rule_of(text: str) -> Rule:
    """`plant/#=cbor`."""
    topic_filter, equals, name = text.rpartition("=")
    if not equals or name not in CHOICES:
        raise ConfigurationError(
            f"expected FILTER=FORMAT such as 'plant/#=cbor', with {', '.join(CHOICES)}; "
            f"found {text!r}"
        )
    try:
        validate_filter(topic_filter)
    except ProtocolViolation as error:
        raise ConfigurationError(str(error)) from error
    return Rule(topic_filter, Format(name))


def recognised(captures: DataFrame, rules: Iterable[Rule]) -> DataFrame:
    """Captures with their `format`. The first rule that matches counts, then the publisher's word,
    then the topic, then the first bytes."""
    return captures.withColumn("format", format_of(tuple(rules)))


def format_of(rules: tuple[Rule, ...]) -> Column:
    chosen = sf.when(sf.length("payload") == 0, Format.EMPTY.value)
    for rule in rules:
        chosen = chosen.when(sf.col("topic").rlike(pattern_of(rule.filter)), rule.format.value)
    said = sf.lower(sf.trim(sf.split_part(sf.col("content_type"), sf.lit(";"), sf.lit(1))))
    head = sf.hex(sf.substring("payload", 1, 3))
    return (
        chosen.when(said.rlike(r"^application/(.+\+)?json$|^text/json$"), Format.JSON.value)
        .when(said.rlike(r"^application/(.+\+)?cbor$"), Format.CBOR.value)
        .when(said.startswith("text/"), Format.TEXT.value)
        .when(sf.col("topic").rlike("^spBv1\\.0/STATE/"), Format.JSON.value)
        .when(sf.col("topic").startswith("spBv1.0/"), Format.SPARKPLUG.value)
        # Maps and arrays of CBOR begin as no UTF-8 does (RFC 3629 §3); or it says what it is.
        .when(head.between("80", "BFFFFF") | (head == "D9D9F7"), Format.CBOR.value)
        .when(~sf.is_valid_utf8(sf.col("payload").cast("string")), Format.BINARY.value)
        # No text has control characters, but for those that separate.
        .when(sf.col("payload").cast("string").rlike(r"[\x00-\x08\x0E-\x1F]"), Format.BINARY.value)
        .when(sf.col("payload").cast("string").rlike(r"^\s*[\[{]"), Format.JSON.value)
        .otherwise(Format.TEXT.value)
    )
