"""CONNACK promises a session only when the journal has it; what follows CONNECT keeps its order."""

from __future__ import annotations

import pytest
from durability.peer import Subscriber

from core.stage import Stage
from headgate.wire.packets import Disconnect, Pingreq, Pingresp, Suback, Subscribe, Version
from headgate.wire.packets import SubscriptionOptions as Options


class Listener(Subscriber):
    """Says much at once and remembers the order of the answers."""

    def __init__(self, expiry: int) -> None:
        super().__init__("client", Version.V5, expiry=expiry)
        self.heard: list[str] = []

    def _take(self, packet: object) -> None:
        self.heard.append(type(packet).__name__)
        super()._take(packet)  # type: ignore[arg-type]


@pytest.mark.parametrize("expiry", [0, 3600])
def test_answers_come_in_order_and_those_of_a_lasting_session_after_the_commit(expiry: int) -> None:
    stage = Stage()
    client = Listener(expiry)
    wire = stage.connect(client)
    client.send(Subscribe(1, [("a", Options(1))]))
    client.send(Pingreq())
    stage.turn()
    in_order = ["Connack", Suback.__name__, Pingresp.__name__]
    if expiry:
        # PINGRESP does not wait for a commit, but nothing comes before CONNACK [MQTT-3.2.0-1].
        assert client.heard == []
        assert wire.channel.session is not None
        assert stage.broker.sessions["client"].flows
        stage.commit()
        in_order = ["Connack", Pingresp.__name__, Suback.__name__]
    assert client.heard == in_order


def test_a_session_without_connack_may_be_lost_and_one_with_it_may_not() -> None:
    stage = Stage()
    client = Listener(3600)
    stage.connect(client)
    stage.turn()
    stage.crash()
    assert "client" not in stage.broker.sessions
    stage.connect(client)
    stage.turn()
    stage.commit()
    assert client.connected
    stage.crash()
    assert "client" in stage.broker.sessions


def test_a_clean_start_is_certain_before_it_is_confirmed() -> None:
    stage = Stage()
    client = Listener(3600)
    stage.connect(client)
    stage.turn()
    stage.commit()
    stage.lose(client)
    client.expiry = 0
    client.heard.clear()
    stage.connect(client, clean=True)
    stage.turn()
    assert client.heard == []
    stage.commit()
    assert client.heard == ["Connack"]
    stage.crash()
    assert "client" not in stage.broker.sessions


def test_who_leaves_before_the_commit_is_told_nothing() -> None:
    stage = Stage()
    client = Listener(3600)
    stage.connect(client)
    client.send(Disconnect())
    stage.turn()
    stage.commit()
    assert client.heard == []
    assert "client" in stage.broker.sessions
    assert not stage.broker.held
