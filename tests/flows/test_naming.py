"""Whose flow it is: by the configuration, by the client's own word, by the control channel."""

from __future__ import annotations

import json

import pytest

from headgate.config import Configuration
from headgate.contract import Application, Category, Claim, PolicyRule, Requirement
from headgate.core.applications import Applications, Membership
from headgate.wire.packets import Properties

from .scene import Client, Gate, Scene, lasting

CONFIG = Configuration(
    applications=(
        Application(name="alarm", clients=("alarm-*",), category="RT"),
        Application(name="cameras", users=("cam-?", "film"), category="video"),
        Application(name="exact", clients=("tram-7",), requirement=Requirement(loss=0.1)),
        Application(name="nobody", category="ST", requirement=Requirement(loss=0.3)),
        Application(name="late", clients=("alarm-1", "late-*")),
    ),
    categories=(Category(name="video", requirement=Requirement(loss=0.2)),),
    default_category="rest",
)


def named(scene: Scene, client_id: str, user: str | None = None, **claims: str) -> Membership:
    """The membership of a new client's flow; `claims` stand in its CONNECT."""
    client = scene.connect(client_id, username=user, properties=claiming(**claims))
    client.subscribe("t")
    return member(client)


def member(client: Client, topic_filter: str = "t") -> Membership:
    membership = client.flow(topic_filter).membership
    assert isinstance(membership, Membership)
    return membership


def claiming(**claims: str) -> Properties:
    pairs = [(name.replace("_", "-"), value) for name, value in claims.items()]
    return Properties(user_properties=pairs)


@pytest.mark.parametrize(
    ("client_id", "user", "application", "category", "loss"),
    [
        ("alarm-9", None, "alarm", "RT", 1.0),
        ("alarm-1", None, "alarm", "RT", 1.0),  # the first that matches, in the file's order
        ("late-1", None, "late", "rest", 1.0),
        ("x", "cam-3", "cameras", "video", 0.2),
        ("x", "film", "cameras", "video", 0.2),
        ("x", "cam-33", "", "rest", 1.0),
        ("tram-7", None, "exact", "rest", 0.1),
        ("tram-77", None, "", "rest", 1.0),
        ("ALARM-1", None, "", "rest", 1.0),  # case matters
        ("alarm-2", "film", "alarm", "RT", 1.0),
        ("tram-7", "film", "cameras", "video", 0.2),
        ("nobody", None, "", "rest", 1.0),  # an application without globs takes none
    ],
)
def test_by_the_configuration(
    client_id: str, user: str | None, application: str, category: str, loss: float
) -> None:
    found = named(Scene(CONFIG), client_id, user)
    assert (found.application, found.category, found.loss) == (application, category, loss)


def test_by_connect() -> None:
    found = named(Scene(CONFIG), "x", application="nobody", max_loss="0.05", max_response_ms="20.5")
    assert (found.application, found.category) == ("nobody", "ST")
    assert (found.loss, found.claim) == (0.05, Claim(response_ms=20.5, loss=0.05))


def test_a_claim_goes_before_a_glob() -> None:
    found = named(Scene(CONFIG), "alarm-1", application="nobody", category="EM")
    assert (found.application, found.category, found.loss) == ("nobody", "EM", 0.3)


def test_an_application_that_nobody_configured() -> None:
    found = named(Scene(CONFIG), "x", application="mine")
    assert (found.application, found.category, found.loss) == ("mine", "rest", 1.0)


@pytest.mark.parametrize("text", ["", "nan", "inf", "-1", "1.5", "much", "1e400"])
def test_a_claim_that_is_no_number_counts_for_nothing(text: str) -> None:
    found = named(
        Scene(CONFIG), "tram-7", max_loss=text, max_response_ms=text if text != "1.5" else "0"
    )
    assert found.loss == 0.1
    assert found.claim is None


def test_a_name_that_no_rule_could_select_counts_for_nothing() -> None:
    assert named(Scene(CONFIG), "x", application="a" * 128).application == "a" * 128
    assert named(Scene(CONFIG), "x", application="a" * 129).application == ""


def test_by_subscribe_for_those_flows_alone_and_above_connect() -> None:
    scene = Scene(CONFIG)
    client = scene.connect("x", properties=claiming(category="A", application="mine"))
    client.subscribe("t", 0, claiming(category="B"))
    client.subscribe("u")
    assert (member(client, "t").category, member(client, "t").application) == ("B", "mine")
    assert member(client, "u").category == "A"
    client.subscribe("t")  # the subscription is replaced, and with it what was said
    assert member(client, "t").category == "A"


def test_only_if_the_access_rules_allow_it() -> None:
    gate = Gate()
    gate.claimants = lambda client_id, what: client_id == "trusted" and what == "claim"
    scene = Scene(CONFIG, gate=gate)
    assert named(scene, "trusted", category="EM").category == "EM"
    assert named(scene, "stranger", category="EM").category == "rest"
    stranger = scene.connect("stranger-2")
    stranger.subscribe("t", 0, claiming(category="EM", application="alarm"))
    assert member(stranger) == Membership("", "rest", 1.0, None)


def test_other_user_properties_mean_nothing() -> None:
    found = named(Scene(CONFIG), "x", colour="red", class_="urgent")
    assert found == Membership("", "rest", 1.0, None)


def test_a_claim_bounds_the_loss() -> None:
    config = Configuration(policy=(PolicyRule(drop=0.5),))
    scene = Scene(config)
    client = scene.connect("x", properties=claiming(max_loss="0"))
    client.subscribe("t")
    assert client.flow("t").drop_rate == 0.0


def test_claims_of_connect_hold_as_long_as_the_connection() -> None:
    scene = Scene(CONFIG)
    properties = lasting()
    properties.user_properties = [("category", "A")]
    client = scene.connect("x", properties=properties)
    client.subscribe("t", 1)
    client.subscribe("u", 1, claiming(category="B"))
    client.drop()
    back = scene.connect("x", clean_start=False, properties=lasting())
    assert member(back, "t").category == "rest"
    assert member(back, "u").category == "B"


# The control channel


def command(scene: Scene, applications: object) -> None:
    admin = scene.connect("admin")
    admin.publish("$CONTROL/headgate/applications", json.dumps(applications).encode(), 1)


def test_by_the_control_channel_at_once() -> None:
    config = Configuration(
        applications=CONFIG.applications,
        policy=(PolicyRule(application="new", priority=2), PolicyRule(category="EM", drop=0.7)),
    )
    scene = Scene(config)
    client = scene.connect("sensor-1")
    client.subscribe("t")
    assert member(client).application == ""
    command(
        scene,
        [
            {
                "name": "new",
                "clients": ["sensor-*"],
                "category": "EM",
                "requirement": {"loss": 0.25},
            }
        ],
    )
    assert member(client) == Membership("new", "EM", 0.25, None)
    assert (client.flow("t").priority, client.flow("t").drop_rate) == (2, 0.25)
    command(scene, [])
    assert member(client).application == ""
    assert (client.flow("t").priority, client.flow("t").drop_rate) == (7, 0.0)


def test_it_changes_a_configured_one_and_leaves_the_others() -> None:
    scene = Scene(CONFIG)
    alarm, tram = scene.connect("alarm-5"), scene.connect("tram-7")
    alarm.subscribe("t")
    tram.subscribe("t")
    command(scene, [{"name": "alarm", "clients": ["tram-*"], "category": "X"}])
    assert member(alarm).application == ""
    assert (member(tram).application, member(tram).category) == ("alarm", "X")


@pytest.mark.parametrize(
    "applications", ["none", [{"nome": "x"}], [{"name": ""}], {"name": "x"}, [{"name": 7}]]
)
def test_what_cannot_be_read_changes_nothing(applications: object) -> None:
    scene = Scene(CONFIG)
    client = scene.connect("alarm-5")
    client.subscribe("t")
    command(scene, applications)
    assert member(client).application == "alarm"


def test_thousands_of_applications_by_name_cost_no_search() -> None:
    """Names are looked up; only globs are tried one after the other."""
    applications = [
        Application(name=f"app-{number}", clients=(f"client-{number}", f"other-{number}"))
        for number in range(10_000)
    ]
    known = Applications([*applications, Application(name="all", clients=("*",))], [], "rest")
    assert known.of("other-9999", None, []).application == "app-9999"
    assert known.of("client-0", None, []).application == "app-0"
    assert known.of("stranger", None, []).application == "all"


def test_who_is_unknown_gets_the_default_category() -> None:
    assert named(Scene(), "x") == Membership("", "default", 1.0, None)
