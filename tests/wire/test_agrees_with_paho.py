"""Our tables and bytes against those of an implementation that we did not write."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from paho.mqtt.client import topic_matches_sub
from paho.mqtt.packettypes import PacketTypes as PahoTypes
from paho.mqtt.properties import Properties as PahoProperties
from paho.mqtt.reasoncodes import ReasonCode as PahoReason

from headgate.wire.fields import MAXIMUM_VARINT
from headgate.wire.packets import PacketType
from headgate.wire.properties import TABLE, WILL, encode_properties
from headgate.wire.reasons import ALLOWED, Reason
from headgate.wire.topics import matches

from .strategies import bounded, filters, properties, topics

THEIR_NAMES = {number: name for name, number in PahoProperties(1).names.items()}
# Table 3-1 has "payload format invalid" in CONNACK, for the will's payload; Paho forgot it.
MISSING_THERE = {PacketType.CONNACK: {0x99}}
PLACES = [*sorted({place for row in TABLE for place in row.places})]


def theirs(where: int) -> int:
    return PahoTypes.WILLMESSAGE if where == WILL else where


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_property_has_the_same_places(row) -> None:  # type: ignore[no-untyped-def]
    _, places = PahoProperties(1).properties[row.identifier]
    assert {theirs(where) for where in row.places} == set(places)


def test_no_property_is_missing() -> None:
    assert {row.identifier for row in TABLE} == set(PahoProperties(1).properties)


@bounded
@given(st.data(), st.sampled_from(PLACES))
def test_paho_reads_our_properties(data: st.DataObject, where: int) -> None:
    props = data.draw(properties(where))
    # Paho refuses a maximum that no packet can reach; the specification allows it.
    assume((props.maximum_packet_size or 0) <= MAXIMUM_VARINT)
    raw = encode_properties(props, where)
    read, length = PahoProperties(theirs(where)).unpack(raw)
    assert length == len(raw)
    for row in TABLE:
        ours = getattr(props, row.name)
        their_value = getattr(read, THEIR_NAMES[row.identifier].replace(" ", ""), None)
        assert their_value == (None if ours == [] else ours)


def test_reason_codes_have_the_same_places() -> None:
    names = PahoReason(PacketType.CONNACK).names
    for kind, codes in ALLOWED.items():
        known = {
            code
            for code, places in names.items()
            if any(kind in list_ for list_ in places.values())
        }
        assert codes == known | MISSING_THERE.get(kind, set()), kind.name
    assert {int(code) for code in Reason} == set(names)


@bounded
@given(filters(), topics())
def test_filters_match_the_same_topics(topic_filter: str, topic: str) -> None:
    assert matches(topic_filter, topic) == topic_matches_sub(topic_filter, topic)
