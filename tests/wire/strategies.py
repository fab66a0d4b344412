"""Hypothesis strategies for legal MQTT packets, for any test that needs some.

Everything is small, so that a failing example can be read; the limits (65,535 bytes and the like)
have their own tests. `bounded` is how property tests run here: the same examples every time.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st

from headgate.wire.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
    Pingreq,
    Pingresp,
    Properties,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Suback,
    Subscribe,
    SubscriptionOptions,
    Unsuback,
    Unsubscribe,
    Version,
    Will,
)
from headgate.wire.properties import TABLE, WILL
from headgate.wire.reasons import ALLOWED

bounded = settings(derandomize=True, deadline=None, max_examples=100)

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
binaries = st.binary(max_size=8)
packet_ids = st.integers(1, 0xFFFF)
qualities = st.integers(0, 2)
uint16 = st.one_of(st.sampled_from([0, 1, 0xFF, 0x100, 0xFFFF]), st.integers(0, 0xFFFF))
uint32 = st.one_of(st.sampled_from([0, 1, 0xFFFF_FFFF]), st.integers(0, 0xFFFF_FFFF))

_words = st.sampled_from(["a", "b", "", "$SYS", "$a", "é", "long-level"])
_shapes = st.lists(st.one_of(_words, st.just("+")), min_size=1, max_size=4)


@st.composite
def topics(draw: st.DrawFn) -> str:
    """A legal topic name. Few different levels, so that filters often match."""
    name = "/".join(draw(st.lists(_words, min_size=1, max_size=4)))
    return name or "a"


@st.composite
def filters(draw: st.DrawFn) -> str:
    """A legal plain topic filter."""
    levels = draw(_shapes)
    if draw(st.booleans()):
        levels = [*levels[:-1], "#"]
    return "/".join(levels) or "a"


@st.composite
def shared_filters(draw: st.DrawFn) -> str:
    """A legal shared subscription filter."""
    return f"$share/{draw(st.sampled_from(['g', 'group 1', 'é']))}/{draw(filters())}"


_VALUES = {
    "payload_format": st.integers(0, 1),
    "message_expiry": uint32,
    "content_type": texts,
    "response_topic": topics(),
    "correlation_data": binaries,
    "session_expiry": uint32,
    "assigned_client_id": texts,
    "server_keep_alive": uint16,
    "auth_method": texts,
    "auth_data": binaries,
    "request_problem_information": st.booleans(),
    "will_delay": uint32,
    "request_response_information": st.booleans(),
    "response_information": texts,
    "server_reference": texts,
    "reason_string": texts,
    "receive_maximum": uint16.filter(bool),
    "topic_alias_maximum": uint16,
    "topic_alias": uint16.filter(bool),
    "maximum_qos": st.integers(0, 1),
    "retain_available": st.booleans(),
    "maximum_packet_size": uint32.filter(bool),
    "wildcard_subscription_available": st.booleans(),
    "subscription_identifier_available": st.booleans(),
    "shared_subscription_available": st.booleans(),
}
_USER_PROPERTIES = st.lists(st.tuples(texts, texts), max_size=3)
_IDENTIFIER = st.one_of(st.sampled_from([1, 127, 128, 268_435_455]), st.integers(1, 268_435_455))


@st.composite
def properties(draw: st.DrawFn, where: int, version: Version = Version.V5) -> Properties:
    """Some of the properties that may stand in `where` (a packet type or WILL)."""
    props = Properties()
    if version is not Version.V5:
        return props
    allowed = [row.name for row in TABLE if where in row.places]
    for name in draw(st.lists(st.sampled_from(allowed), unique=True, max_size=5)):
        if name == "user_properties":
            props.user_properties = draw(_USER_PROPERTIES)
        elif name == "subscription_identifiers":
            most = 1 if where == PacketType.SUBSCRIBE else 3
            props.subscription_identifiers = draw(st.lists(_IDENTIFIER, max_size=most))
        else:
            setattr(props, name, draw(_VALUES[name]))
    if props.auth_data is not None and props.auth_method is None:
        props.auth_method = draw(texts)
    return props


@st.composite
def wills(draw: st.DrawFn, version: Version) -> Will:
    return Will(
        draw(topics()),
        draw(binaries),
        draw(qualities),
        draw(st.booleans()),
        draw(properties(WILL, version)),
    )


@st.composite
def connects(draw: st.DrawFn, version: Version) -> Connect:
    username = draw(st.none() | texts)
    password = draw(st.none() | binaries)
    if username is None and version is not Version.V5:
        password = None
    return Connect(
        draw(texts),
        version,
        draw(st.booleans()),
        draw(uint16),
        username,
        password,
        draw(st.none() | wills(version)),
        draw(properties(PacketType.CONNECT, version)),
    )


@st.composite
def connacks(draw: st.DrawFn, version: Version) -> Connack:
    codes = sorted(ALLOWED[PacketType.CONNACK]) if version is Version.V5 else range(6)
    reason = draw(st.just(0) | st.sampled_from(codes))
    present = reason == 0 and version is not Version.V31 and draw(st.booleans())
    return Connack(present, reason, draw(properties(PacketType.CONNACK, version)))


@st.composite
def publishes(draw: st.DrawFn, version: Version) -> Publish:
    qos = draw(qualities)
    props = draw(properties(PacketType.PUBLISH, version))
    by_alias = props.topic_alias is not None and draw(st.booleans())
    return Publish(
        "" if by_alias else draw(topics()),
        draw(binaries),
        qos,
        draw(st.booleans()),
        qos > 0 and draw(st.booleans()),
        draw(packet_ids) if qos else 0,
        props,
    )


@st.composite
def acknowledgements(draw: st.DrawFn, version: Version) -> Packet:
    kind, make = draw(
        st.sampled_from(
            [
                (PacketType.PUBACK, Puback),
                (PacketType.PUBREC, Pubrec),
                (PacketType.PUBREL, Pubrel),
                (PacketType.PUBCOMP, Pubcomp),
            ]
        )
    )
    codes = sorted(ALLOWED[kind]) if version is Version.V5 else [0]
    return make(draw(packet_ids), draw(st.sampled_from(codes)), draw(properties(kind, version)))


@st.composite
def subscriptions(draw: st.DrawFn, version: Version) -> tuple[str, SubscriptionOptions]:
    """A filter and its options, as they stand in SUBSCRIBE."""
    options = SubscriptionOptions(draw(qualities))
    if version is not Version.V5:
        return draw(filters() | shared_filters()), options
    topic_filter = draw(filters() | shared_filters())
    return topic_filter, replace(
        options,
        no_local=not topic_filter.startswith("$share/") and draw(st.booleans()),
        retain_as_published=draw(st.booleans()),
        retain_handling=draw(st.integers(0, 2)),
    )


@st.composite
def subscribes(draw: st.DrawFn, version: Version) -> Subscribe:
    return Subscribe(
        draw(packet_ids),
        draw(st.lists(subscriptions(version), min_size=1, max_size=4)),
        draw(properties(PacketType.SUBSCRIBE, version)),
    )


@st.composite
def subacks(draw: st.DrawFn, version: Version) -> Suback:
    codes = sorted(ALLOWED[PacketType.SUBACK]) if version is Version.V5 else [0, 1, 2, 0x80]
    return Suback(
        draw(packet_ids),
        draw(st.lists(st.sampled_from(codes), min_size=1, max_size=4)),
        draw(properties(PacketType.SUBACK, version)),
    )


@st.composite
def unsubscribes(draw: st.DrawFn, version: Version) -> Unsubscribe:
    return Unsubscribe(
        draw(packet_ids),
        draw(st.lists(filters() | shared_filters(), min_size=1, max_size=4)),
        draw(properties(PacketType.UNSUBSCRIBE, version)),
    )


@st.composite
def unsubacks(draw: st.DrawFn, version: Version) -> Unsuback:
    if version is not Version.V5:
        return Unsuback(draw(packet_ids))
    codes = st.sampled_from(sorted(ALLOWED[PacketType.UNSUBACK]))
    return Unsuback(
        draw(packet_ids),
        draw(st.lists(codes, min_size=1, max_size=4)),
        draw(properties(PacketType.UNSUBACK)),
    )


@st.composite
def disconnects(draw: st.DrawFn, version: Version) -> Disconnect:
    if version is not Version.V5:
        return Disconnect()
    codes = sorted(ALLOWED[PacketType.DISCONNECT])
    return Disconnect(draw(st.sampled_from(codes)), draw(properties(PacketType.DISCONNECT)))


@st.composite
def auths(draw: st.DrawFn) -> Auth:
    codes = sorted(ALLOWED[PacketType.AUTH])
    return Auth(draw(st.sampled_from(codes)), draw(properties(PacketType.AUTH)))


def packets(version: Version) -> st.SearchStrategy[Packet]:
    """Any packet that `version` has, from either side."""
    kinds: list[st.SearchStrategy[Packet]] = [
        connects(version),
        connacks(version),
        publishes(version),
        acknowledgements(version),
        subscribes(version),
        subacks(version),
        unsubscribes(version),
        unsubacks(version),
        st.builds(Pingreq),
        st.builds(Pingresp),
        disconnects(version),
    ]
    if version is Version.V5:
        kinds.append(auths())
    return st.one_of(kinds)


versions = st.sampled_from(list(Version))


@st.composite
def conversations(draw: st.DrawFn, max_size: int = 6) -> tuple[Version, list[Packet]]:
    """A version and some of its packets, in no sensible order."""
    version = draw(versions)
    return version, draw(st.lists(packets(version), min_size=1, max_size=max_size))
