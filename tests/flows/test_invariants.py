"""Random clients, policies and links, with the invariants checked after every step."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headgate.config import Configuration, Overflow, Urgency
from headgate.config.limits import Limits
from headgate.contract import Discipline, LinkSpec, PolicyRule
from headgate.core.snapshots import Snapshots
from headgate.wire.packets import (
    Properties,
    Publish,
    Unsubscribe,
    Version,
)

from .invariants import check, check_idle
from .scene import Client, Scene, SlowJournal, claimed, lasting

NAMES = ["app-0", "app-1", "app-2", "free"]
TOPICS = ["a", "b/c", "d"]
FILTERS = ["a", "b/+", "#", "d", "$share/g/d", "$share/g/#"]
WHO = st.sampled_from(NAMES)

rules = st.builds(
    lambda topic, settings: {**({"topic": topic} if topic else {}), **settings},
    st.sampled_from(["", "a", "b/#", "#"]),
    st.fixed_dictionaries(
        {"priority": st.integers(0, 15)},
        optional={
            "drop": st.sampled_from([0.0, 0.5, 1.0]),
            "lifetime": st.sampled_from([0.0, 0.01, 1.0]),
            "capacity": st.integers(0, 4),
            "join": st.sampled_from([0.0, 0.5, 1.0]),
        },
    ),
)


def configuration(
    discipline: Discipline, rate: int, limits: Limits, overflow: Overflow
) -> Configuration:
    link = LinkSpec(
        name="shared",
        clients=("app-*",),
        rate=rate,
        discipline=discipline,
        shares={3: 0.2, 9: 0.1} if discipline is Discipline.STRICT_MIN else {},
        weights={3: 4.0} if discipline is Discipline.DRR else {},
    )
    return Configuration(
        links=(link,),
        limits=limits,
        overflow=overflow,
        urgency=Urgency(rate=0, raise_grant=True),
        policy=(PolicyRule(topic="a", priority=0),),
    )


configurations = st.builds(
    configuration,
    st.sampled_from(Discipline),
    st.sampled_from([10_000, 1_000_000]),
    st.builds(
        Limits,
        queued_messages=st.sampled_from([3, 1000]),
        queued_bytes=st.sampled_from([500, 1_000_000]),
        memory=st.sampled_from([1000, 10_000_000]),
        inflight=st.sampled_from([1, 3, 1000]),
    ),
    st.sampled_from(Overflow),
)


class Flows(RuleBasedStateMachine):
    scene: Scene

    @initialize(config=configurations, journaled=st.booleans())
    def begin(self, config: Configuration, journaled: bool) -> None:
        self.scene = Scene(config, journal=SlowJournal() if journaled else None)
        self.snapshots = Snapshots(self.scene.broker, 3600.0, self.scene.now)
        self.version = 0
        self.packet_id = 0
        self.clients: dict[str, Client] = {}
        self.publisher = self.scene.connect("publisher")
        for name in NAMES:
            self.connect(name, lasts=True, receive_maximum=None, version=Version.V5)
            self.subscribe(name, "#", 2)

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "scene"):
            check(self.scene.broker)

    def present(self, name: str) -> Client | None:
        client = self.clients.get(name)
        return client if client is not None and client.open else None

    # Coming and going

    @rule(
        name=WHO,
        lasts=st.booleans(),
        receive_maximum=st.sampled_from([None, 1, 2]),
        version=st.sampled_from([Version.V5, Version.V311]),
    )
    def connect(
        self, name: str, lasts: bool, receive_maximum: int | None, version: Version
    ) -> None:
        properties = lasting(3600 if lasts else 0, receive_maximum=receive_maximum)
        self.clients[name] = self.scene.connect(
            name, version, clean_start=False, properties=properties
        )

    @rule(name=WHO, politely=st.booleans())
    def part(self, name: str, politely: bool) -> None:
        client = self.present(name)
        if client is not None:
            if politely:
                client.leave()
            else:
                client.drop()

    @rule(name=WHO, topic_filter=st.sampled_from(FILTERS), qos=st.integers(0, 2))
    def subscribe(self, name: str, topic_filter: str, qos: int) -> None:
        client = self.present(name)
        if client is not None:
            client.subscribe(topic_filter, qos)

    @rule(name=WHO, topic_filter=st.sampled_from(FILTERS))
    def unsubscribe(self, name: str, topic_filter: str) -> None:
        client = self.present(name)
        if client is not None:
            client.say(Unsubscribe(client.next_id(), [topic_filter]))
            self.scene.turn()

    # Messages

    @rule(
        topic=st.sampled_from(TOPICS),
        rank=st.sampled_from(["", "", "urgent", "critical"]),
        qos=st.integers(0, 2),
        count=st.integers(1, 20),
        size=st.sampled_from([1, 50, 400]),
        retain=st.sampled_from([False, False, True]),
        expiry=st.sampled_from([None, None, 1]),
    )
    def publish(
        self,
        topic: str,
        rank: str,
        qos: int,
        count: int,
        size: int,
        retain: bool,
        expiry: int | None,
    ) -> None:
        for _ in range(count):
            properties = claimed(rank) if rank else Properties()
            properties.message_expiry = expiry
            self.packet_id = self.packet_id % 60_000 + 1
            self.publisher.say(
                Publish(
                    topic,
                    bytes(size),
                    qos,
                    retain,
                    packet_id=self.packet_id if qos else 0,
                    properties=properties,
                )
            )
        self.scene.turn()

    @rule(name=WHO, room=st.sampled_from([None, 0, 0, 100, 1000]))
    def read(self, name: str, room: int | None) -> None:
        client = self.present(name)
        if client is not None:
            client.room = room
            client.flush()
            self.scene.turn()

    @rule(name=WHO, acknowledges=st.booleans())
    def acknowledge(self, name: str, acknowledges: bool) -> None:
        client = self.present(name)
        if client is not None:
            client.catch_up(acknowledges)
            self.scene.turn()

    # Time and change

    @rule(seconds=st.sampled_from([0.0, 0.001, 0.02, 0.5, 3.0]))
    def time(self, seconds: float) -> None:
        self.scene.advance(seconds)

    @rule()
    def commit(self) -> None:
        self.scene.commit()

    @rule(some=st.lists(rules, max_size=4))
    def policy(self, some: list[dict[str, object]]) -> None:
        self.version += 1
        payload = json.dumps({"version": self.version, "rules": some}).encode()
        self.publisher.say(Publish("$CONTROL/headgate/policy", payload))
        self.scene.turn()
        assert self.scene.broker.enforcer.policy.version == self.version

    @rule(config=configurations)
    def reconfigure(self, config: Configuration) -> None:
        before = self.scene.broker
        tight = config.limits
        if any(
            session.queued_messages > tight.queued_messages
            or session.queued_size > tight.queued_bytes
            for session in before.sessions.values()
        ):
            return  # what waits already may stay: the limits hold for what comes
        before.reconfigure(config, self.scene.now)
        self.scene.turn()

    @rule()
    def snapshot(self) -> None:
        """What waits has a reason; and to look changes nothing else."""
        for flow in self.snapshots.take(self.scene.now).flows:
            assert bool(flow.waiting) == bool(flow.waits_for)

    def teardown(self) -> None:
        if not hasattr(self, "scene"):
            return
        scene = self.scene
        for name in NAMES:
            self.connect(name, lasts=True, receive_maximum=None, version=Version.V5)
        for _ in range(1000):  # with a window of 1 each message takes a commit or two
            scene.commit()
            scene.advance(100.0)
            if not any(s.inflight or s.waiting for s in scene.broker.sessions.values()):
                break
        check_idle(scene.broker)


TestFlows = Flows.TestCase
TestFlows.settings = settings(
    max_examples=80,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
