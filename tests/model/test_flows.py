"""From scenario and policy to flows and settings: who is behind what, and which rule counts."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from headgate.contract import Application, FlowSelector, LinkSpec, Policy, PolicyRule
from headgate.model import Client, FlowTable, Scenario, Topic
from headgate.model.flows import DEFAULT_PRIORITY

SCENARIO = Scenario(
    topics=(
        Topic(name="floor1/smoke", rate=1.0),
        Topic(name="floor1/heat", rate=2.0),
        Topic(name="floor2/smoke", rate=3.0),
        Topic(name="$SYS/uptime", rate=1.0),
    ),
    applications=(
        Application(name="alarm", clients=("alarm-*",), category="RT"),
        Application(name="reports", clients=("*",), category="AN"),
    ),
    clients=(
        Client(name="alarm-1", subscriptions=("+/smoke", "floor1/#")),
        Client(name="desk", subscriptions=("#", "floor9/none")),
        Client(name="night", subscriptions=("$share/shift/floor1/heat",), application="alarm"),
    ),
    links=(
        LinkSpec(name="radio", clients=("alarm-*",), rate=1000),
        LinkSpec(name="wire", clients=("desk",), rate=None),
    ),
)
TABLE = FlowTable(SCENARIO)


def test_applications_and_links_are_found_by_globs_in_order() -> None:
    found = [(flow.client, flow.application, flow.category, flow.link) for flow in TABLE.flows]
    assert found == [
        ("alarm-1", "alarm", "RT", 0),
        ("alarm-1", "alarm", "RT", 0),
        ("desk", "reports", "AN", 1),
        ("desk", "reports", "AN", 1),
        ("night", "alarm", "RT", None),
    ]


@pytest.mark.parametrize(
    ("clients", "link"),
    [(("desk", "*"), 0), (("*", "desk"), 0), (("night", "desk"), 1), (("d?sk", "desk"), 0)],
    ids=str,
)
def test_the_first_link_wins_whether_it_names_a_client_or_has_a_glob(
    clients: tuple[str, str], link: int
) -> None:
    links = tuple(LinkSpec(name=f"l{n}", clients=(glob,)) for n, glob in enumerate(clients))
    table = FlowTable(msgspec.structs.replace(SCENARIO, links=links))
    assert {flow.link for flow in table.flows if flow.client == "desk"} == {link}


def test_filters_match_topics_as_mqtt_says() -> None:
    streams = {
        number: [
            SCENARIO.topics[topic].name
            for flow, topic in zip(TABLE.stream_flow, TABLE.stream_topic, strict=True)
            if flow == number
        ]
        for number in range(len(TABLE))
    }
    assert streams == {
        0: ["floor1/smoke", "floor2/smoke"],
        1: ["floor1/smoke", "floor1/heat"],
        2: ["floor1/smoke", "floor1/heat", "floor2/smoke"],  # not $SYS [MQTT-4.7.2-1]
        3: [],
        4: ["floor1/heat"],
    }


def test_without_rules_every_flow_has_the_defaults() -> None:
    settings = TABLE.settings(None)
    assert list(settings.priority) == [DEFAULT_PRIORITY] * 5
    assert not settings.drop.any()
    assert settings.join.all()
    assert np.isinf(settings.lifetime).all()


def test_each_setting_comes_from_the_last_rule_that_has_it() -> None:
    policy = Policy(
        rules=(
            PolicyRule(priority=9, drop=0.5),
            PolicyRule(category="RT", priority=1),
            PolicyRule(application="alarm", drop=0.1),
            PolicyRule(topic="floor1/#", lifetime=4.0),
            PolicyRule(category="RT", topic="floor1/#", join=0.3),
            PolicyRule(flow=FlowSelector(client="desk", filter="#"), capacity=7),
            PolicyRule(flow=FlowSelector(client="nobody", filter="#"), priority=0),
        )
    )
    settings = TABLE.settings(policy)
    assert list(settings.priority) == [1, 1, 9, 9, 1]
    assert list(settings.drop) == [0.1, 0.1, 0.5, 0.5, 0.1]
    # A rule's filter must cover the subscription's: `#` is wider than `floor1/#`.
    assert list(np.isfinite(settings.lifetime)) == [False, True, False, False, True]
    assert settings.join == pytest.approx([1, 0.3, 1, 1, 0.3])
    assert list(settings.capacity) == [-1, -1, 7, -1, -1]
