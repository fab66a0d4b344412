"""SUBSCRIBE and UNSUBSCRIBE: a subscription is a flow (MQTT 5 §3.8, §3.10)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headgate.core import bounds, parting
from headgate.core.channel import Channel
from headgate.core.connecting import claims_of
from headgate.core.flows import Flow, identifier_property
from headgate.core.journal import StoredSubscription
from headgate.core.session import Session
from headgate.errors import ProtocolViolation
from headgate.wire.codec import encode
from headgate.wire.packets import (
    Suback,
    Subscribe,
    SubscriptionOptions,
    Unsuback,
    Unsubscribe,
    Version,
)
from headgate.wire.reasons import Reason
from headgate.wire.topics import parse_shared, validate_filter

if TYPE_CHECKING:
    from headgate.core.broker import Broker


SLICE = 32
"""Filters that are dealt with in one go: a packet may have thousands, and others wait."""


def subscribe(broker: Broker, channel: Channel, packet: Subscribe) -> Iterator[None]:
    """Answer each filter by itself, in order [MQTT-3.9.3-1], then send what was retained."""
    session = channel.session
    assert session is not None
    identifiers = packet.properties.subscription_identifiers
    identifier = identifiers[0] if identifiers else 0
    reasons: list[int] = []
    fresh: list[Flow] = []
    kept = broker.pool.kept
    claims = claims_of(broker, session, packet.properties)
    for number, (topic_filter, options) in enumerate(packet.filters, 1):
        reason = refusal(broker, session, topic_filter, options)
        if reason is None:
            known = topic_filter in session.flows
            flow = install(broker, session, topic_filter, options, identifier, claims)
            if wants_retained(flow, known):
                fresh.append(flow)
                broker.replays.prepare(flow)
            record(broker, flow)
            reason = options.qos
            broker.hooks.on_subscribe(session, topic_filter, options.qos)
        else:
            broker.counters.subscriptions_refused += 1
            if channel.version < Version.V5:
                reason = 0x80
        reasons.append(reason)
        if number % SLICE == 0:
            yield
    position = broker.pool.kept if broker.pool.kept != kept else 0
    channel.acknowledge(
        encode(Suback(packet.packet_id, reasons), Version(channel.version)), position
    )
    for flow in fresh:
        broker.replays.begin(flow, channel.heard)


def refusal(
    broker: Broker, session: Session, topic_filter: str, options: SubscriptionOptions
) -> int | None:
    """Why a filter is refused; None if it is not."""
    try:
        validate_filter(topic_filter)
        group, plain = parse_shared(topic_filter)
    except ProtocolViolation as error:
        return error.reason
    if group is not None and options.no_local:  # [MQTT-3.8.3-4]
        raise ProtocolViolation("a shared subscription with no-local")
    if plain.count("/") >= broker.depth:
        return Reason.TOPIC_FILTER_INVALID
    reason = bounds.judge_filter(broker, session, topic_filter)
    if reason is not None:
        return reason
    if not broker.gatekeeper.may_subscribe(session.identity, session.client_id, plain):
        return Reason.NOT_AUTHORIZED
    return None


def install(
    broker: Broker,
    session: Session,
    topic_filter: str,
    options: SubscriptionOptions,
    identifier: int,
    claims: list[tuple[str, str]],
) -> Flow:
    """Make the flow of a subscription, or change the one there is [MQTT-3.8.4-3]."""
    flow = session.flows.get(topic_filter)
    if flow is None:
        flow = Flow(session, topic_filter, options.qos)
        flow.salt = broker.rng.getrandbits(64)
        flow.group, plain = parse_shared(topic_filter)
        flow.topic_filter = plain.encode()
        session.flows[topic_filter] = flow
        session.stand_for(bounds.flow_size(topic_filter))
        broker.router.add(flow.topic_filter, flow.group, flow)
    flow.qos = options.qos
    flow.no_local = options.no_local
    flow.retain_as_published = options.retain_as_published
    flow.retain_handling = options.retain_handling
    flow.identifier = identifier
    flow.identifier_property = identifier_property(identifier)
    broker.settle(flow, claims)
    return flow


def record(broker: Broker, flow: Flow) -> None:
    """Have the journal keep a subscription of a session that survives."""
    session = flow.session
    if session.journal is not None:
        replaying = flow.replay is not None and flow.qos > 0
        if replaying:
            flow.replay.recorded = True
        session.journal.save_subscription(
            StoredSubscription(
                session.client_id,
                flow.filter,
                flow.qos,
                flow.no_local,
                flow.retain_as_published,
                flow.retain_handling,
                flow.identifier,
                tuple(flow.claims),
                replaying,
            )
        )
        broker.pool.kept = session.journal.position


def wants_retained(flow: Flow, known: bool) -> bool:
    """Does a SUBSCRIBE ask for what is retained (§3.8.3.1)? Never if it is shared (§4.8.2)."""
    if flow.group is not None or flow.retain_handling == 2:
        return False
    return flow.retain_handling == 0 or not known


def unsubscribe(broker: Broker, channel: Channel, packet: Unsubscribe) -> Iterator[None]:
    """End subscriptions; one answer for each filter [MQTT-3.11.3-1]."""
    session = channel.session
    assert session is not None
    reasons: list[int] = []
    for number, topic_filter in enumerate(packet.filters, 1):
        if topic_filter in session.flows:
            parting.remove_flow(broker, session, topic_filter)
            if session.journal is not None:
                session.journal.drop_subscription(session.client_id, topic_filter)
                broker.pool.kept = session.journal.position
            broker.hooks.on_unsubscribe(session, topic_filter)
            reasons.append(Reason.SUCCESS)
        else:
            reasons.append(Reason.NO_SUBSCRIPTION_EXISTED)
        if number % SLICE == 0:
            yield
    channel.acknowledge(
        encode(Unsuback(packet.packet_id, reasons), Version(channel.version)),
        channel.recorded(session),
    )
