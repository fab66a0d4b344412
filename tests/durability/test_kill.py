"""The broker is killed at random moments under load, again and again, and loses nothing.

Publishers and subscribers are persistent-session clients that obey the protocol to the letter.
Publishers finish everything in the end, resending what was not acknowledged and never what was. So
if anything acknowledged were lost, a number would be missing at a subscriber; if anything of QoS 2
were sent twice, a number would be there twice.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from headgate.wire.packets import Version

from .peer import LONG, Peer, Publisher, Subscriber, run, turn
from .process import MortalBroker

KILLS = {"fsync": 14, "os": 10}
TOPICS = {"kill/one": 1, "kill/two": 2, "kill/more/one": 1, "kill/more/two": 2}
"""Topic and QoS at which it is published."""


class Newcomers:
    """Clients that make a session, and some that end it: once CONNACK is there, it is so."""

    def __init__(self, broker: MortalBroker, rng: random.Random) -> None:
        self.broker = broker
        self.rng = rng
        self.promised: dict[str, bool] = {}
        """Client id, and whether its session must be there."""
        self.made = 0
        self.peer = self.next()

    def next(self) -> Peer:
        """A new client, or one that comes back for a clean start."""
        kept = [client_id for client_id, present in self.promised.items() if present]
        if kept and self.rng.random() < 0.3:
            # Until CONNACK says so, its session may be there or not.
            client_id = self.rng.choice(kept)
            del self.promised[client_id]
            self.clean = True
        else:
            self.made += 1
            client_id = f"newcomer-{self.made}"
            self.clean = False
        version = self.rng.choice([Version.V5, Version.V311])
        return Peer(client_id, version, expiry=0 if self.clean else LONG)

    def look(self) -> None:
        """Note what was promised; whoever was not answered is forgotten."""
        peer = self.peer
        if peer.connack is not None:
            self.promised[peer.client_id] = not self.clean
        if peer.connack is not None or peer.socket is None:
            peer.abandon()
            self.peer = self.next()
            self.peer.connect(self.broker.port, self.clean)

    def judge(self) -> None:
        assert self.promised
        for client_id, present in self.promised.items():
            peer = Peer(client_id)
            peer.connect(self.broker.port)
            peer.until_connected()
            assert peer.connack is not None
            assert peer.connack.session_present == present, client_id
            peer.abandon()


class Load:
    """Numbered messages on their way, while subscribers come and go."""

    def __init__(self, broker: MortalBroker, rng: random.Random) -> None:
        self.broker = broker
        self.rng = rng
        self.published = dict.fromkeys(TOPICS, 0)
        self.publishers = {
            topic: Publisher(
                f"publisher-{number}", (Version.V5, Version.V311)[number % 2], window=20
            )
            for number, topic in enumerate(TOPICS)
        }
        self.steady = Subscriber("steady", Version.V5)
        self.lazy = Subscriber("lazy", Version.V311)
        self.fickle = Subscriber("fickle", Version.V5)
        """It is away for part of the time."""
        self.lazy.laziness = 0.3
        self.lazy.rng = rng
        self.subscribers = [self.steady, self.lazy, self.fickle]
        self.newcomers = Newcomers(broker, rng)

    @property
    def peers(self) -> list[Peer]:
        return [*self.publishers.values(), *self.subscribers]

    def subscribe(self) -> None:
        for subscriber in self.subscribers:
            subscriber.connect(self.broker.port)
            subscriber.until_connected()
            subscriber.subscribe("kill/#", qos=2)

    def go_on(self, seconds: float) -> None:
        """Publish and receive for a while."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.connect_all()
            for topic, publisher in self.publishers.items():
                while len(publisher.backlog) < 5:
                    number = self.published[topic]
                    self.published[topic] += 1
                    publisher.publish(topic, b"%d" % number, TOPICS[topic])
            if self.rng.random() < 0.02 and self.fickle.connected:
                if self.rng.random() < 0.5:
                    self.fickle.disconnect()
                else:
                    self.fickle.abandon()
            self.newcomers.look()
            turn([*self.peers, self.newcomers.peer], min(left, 0.01))

    def connect_all(self) -> None:
        for peer in self.peers:
            if peer.socket is None and (peer is not self.fickle or self.rng.random() < 0.03):
                peer.connect(self.broker.port)

    def read_last_words(self) -> None:
        """The broker is gone; what it wrote before is still on its way."""
        for peer in [*self.peers, self.newcomers.peer]:
            while peer.socket is not None:
                peer.read()

    def finish(self) -> None:
        """No more kills: everything that was begun comes to its end."""
        for peer in self.peers:
            if peer.socket is None:
                peer.connect(self.broker.port)
        self.lazy.laziness = 0.0
        run(
            self.peers,
            lambda: all(publisher.idle for publisher in self.publishers.values()),
            "the last acknowledgements",
        )
        for topic, publisher in self.publishers.items():
            publisher.publish(topic, b"end", TOPICS[topic])
        run(
            self.peers,
            lambda: all(
                sum(m.payload == b"end" for m in subscriber.messages) >= len(TOPICS)
                for subscriber in self.subscribers
            ),
            "the last messages",
        )

    def judge(self) -> None:
        for publisher in self.publishers.values():
            assert not publisher.refusals
        for subscriber in self.subscribers:
            for topic, qos in TOPICS.items():
                where = f"{topic} at {subscriber.client_id}"
                arrived = subscriber.payloads(topic)
                assert arrived[-1] == b"end", where
                numbers = [int(payload) for payload in arrived if payload != b"end"]
                if qos == 2:
                    assert sorted(set(numbers)) == sorted(numbers), f"twice: {where}"
                # A QoS 1 message may come again, but never for the first time after a later one.
                first = list(dict.fromkeys(numbers))
                assert first == sorted(first), f"out of order: {where}"
                missing = set(range(self.published[topic])) - set(first)
                assert not missing, f"lost: {sorted(missing)[:10]} of {where}"


def kill_somehow(broker: MortalBroker, rng: random.Random) -> None:
    """Mostly in the middle of its work; sometimes while it starts or shuts down."""
    chance = rng.random()
    if chance < 0.15:
        broker.terminate()
        time.sleep(rng.uniform(0.0, 0.05))  # the random moment itself: nothing is waited for
        broker.kill()
    else:
        broker.kill()
        if chance < 0.3:
            broker.spawn()
            time.sleep(rng.uniform(0.0, 0.6))
            broker.kill()


@pytest.mark.parametrize("durability", KILLS)
@pytest.mark.timeout(110)
def test_killed_at_random_moments_it_loses_and_repeats_nothing(
    durability: str, tmp_path: Path
) -> None:
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")  # shown if the test fails
    rng = random.Random(seed)
    with MortalBroker(tmp_path, f"durability: {durability}") as broker:
        load = Load(broker, rng)
        load.subscribe()
        for _ in range(KILLS[durability]):
            load.go_on(rng.uniform(0.05, 0.9))
            kill_somehow(broker, rng)
            load.read_last_words()
            broker.start()
        load.finish()
        load.judge()
        load.newcomers.judge()
        assert sum(load.published.values()) > 20 * KILLS[durability]
        broker.stop()
    print(f"{KILLS[durability]} kills, {sum(load.published.values())} messages")
