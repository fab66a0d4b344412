"""Topic names and filters: MQTT 5 §4.7 and §4.8.2."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.errors import ProtocolViolation
from headgate.wire.topics import covers, matches, parse_shared, validate_filter, validate_topic

from .strategies import bounded, filters, shared_filters, topics

LEGAL_TOPICS = ["a", "/", "//", "a/b", "/a", "a/", "a b", "$SYS/x", "$share/g/a", "é", "t" * 65_535]


@pytest.mark.parametrize("topic", LEGAL_TOPICS, ids=lambda topic: topic[:12])
def test_topic_is_legal(topic: str) -> None:
    validate_topic(topic)


@pytest.mark.parametrize(
    ("topic", "complaint"),
    [
        pytest.param("", "empty", id="MQTT-4.7.3-1"),
        pytest.param("a\0b", "U\\+0000", id="MQTT-4.7.3-2"),
        pytest.param("t" * 65_536, "65536 bytes", id="MQTT-4.7.3-3"),
        pytest.param("é" * 32_768, "65536 bytes", id="MQTT-4.7.3-3 in bytes, not characters"),
        pytest.param("a/+", "wildcard", id="MQTT-3.3.2-2 +"),
        pytest.param("a/#", "wildcard", id="MQTT-3.3.2-2 #"),
        pytest.param("a+b", "wildcard", id="MQTT-3.3.2-2 inside a level"),
        pytest.param("\ud800", "not Unicode", id="MQTT-1.5.4-1"),
    ],
)
def test_topic_is_refused(topic: str, complaint: str) -> None:
    with pytest.raises(ProtocolViolation, match=complaint) as caught:
        validate_topic(topic)
    assert caught.value.reason == 0x90


@pytest.mark.parametrize(
    "topic_filter",
    [
        *["#", "+", "/", "a", "a/#", "+/#", "/#", "+/a/+", "/+", "+/", "a//b", "$SYS/#", "$share"],
        *[
            "$share/g/a",
            "$share/g/#",
            "$share/g//a",
            "$share/g/+/b",
            "$share/g h/$SYS/#",
            "f" * 65_535,
        ],
    ],
    ids=lambda topic_filter: topic_filter[:20],
)
def test_filter_is_legal(topic_filter: str) -> None:
    validate_filter(topic_filter)


@pytest.mark.parametrize(
    ("clause", "topic_filter"),
    [
        ("MQTT-4.7.3-1", ""),
        ("MQTT-4.7.3-2", "a\0"),
        ("MQTT-4.7.3-3", "f" * 65_536),
        ("MQTT-4.7.1-1", "a#"),
        ("MQTT-4.7.1-1", "a/#/b"),
        ("MQTT-4.7.1-1", "#/"),
        ("MQTT-4.7.1-1", "a/b#"),
        ("MQTT-4.7.1-1", "##"),
        ("MQTT-4.7.1-2", "a+"),
        ("MQTT-4.7.1-2", "a/+b/c"),
        ("MQTT-4.7.1-2", "++"),
        ("MQTT-4.7.1-2", "+#"),
        ("MQTT-4.8.2-1", "$share//a"),
        ("MQTT-4.8.2-1", "$share/+/a"),
        ("MQTT-4.8.2-1", "$share/g#/a"),
        ("MQTT-4.8.2-1", "$share/"),
        ("MQTT-4.8.2-2", "$share/g"),
        ("MQTT-4.8.2-2", "$share/g/"),
        ("MQTT-4.8.2-2", "$share/g/a#"),
        ("MQTT-4.8.2-2", "$share/g/+a"),
        ("MQTT-4.8.2-1", "$share/#"),
    ],
    ids=lambda value: value[:20].replace("\0", "NUL"),
)
def test_filter_is_refused(clause: str, topic_filter: str) -> None:
    with pytest.raises(ProtocolViolation) as caught:
        validate_filter(topic_filter)
    assert caught.value.reason == 0x8F


@bounded
@given(topics(), filters(), shared_filters())
def test_strategies_give_legal_names(topic: str, plain: str, shared: str) -> None:
    """Other tests rely on it."""
    validate_topic(topic)
    validate_filter(plain)
    validate_filter(shared)


@pytest.mark.parametrize(
    ("topic_filter", "parsed"),
    [
        ("a/b", (None, "a/b")),
        ("$share", (None, "$share")),
        ("$SYS/share/g/a", (None, "$SYS/share/g/a")),
        ("$share/g/a/#", ("g", "a/#")),
        ("$share/g//a", ("g", "/a")),
        ("$share/g/$share/h/a", ("g", "$share/h/a")),
    ],
)
def test_shared_filter_has_a_group_and_a_plain_filter(
    topic_filter: str, parsed: tuple[str | None, str]
) -> None:
    assert parse_shared(topic_filter) == parsed


# The examples of §4.7.1.2, §4.7.1.3, §4.7.2 and §4.7.3.
MATCHING = """
sport/tennis/player1/# | sport/tennis/player1 | yes
sport/tennis/player1/# | sport/tennis/player1/ranking | yes
sport/tennis/player1/# | sport/tennis/player1/score/wimbledon | yes
sport/tennis/player1/# | sport/tennis/player2 | no
sport/tennis/player1/# | sport/tennis/player12 | no
sport/# | sport | yes
# | a | yes
# | / | yes
sport/tennis/+ | sport/tennis/player1 | yes
sport/tennis/+ | sport/tennis/player2 | yes
sport/tennis/+ | sport/tennis/player1/ranking | no
sport/tennis/+ | sport/tennis | no
sport/+ | sport | no
sport/+ | sport/ | yes
+ | finance | yes
+ | /finance | no
+/+ | /finance | yes
/+ | /finance | yes
+/tennis/# | sport/tennis | yes
sport/+/player1 | sport/tennis/player1 | yes
# | $SYS | no
# | $SYS/a | no
+/monitor/Clients | $SYS/monitor/Clients | no
+/# | $SYS | no
$SYS/# | $SYS | yes
$SYS/# | $SYS/monitor/Clients | yes
$SYS/monitor/+ | $SYS/monitor/Clients | yes
a/# | a/$b | yes
a/+ | a/$b | yes
/# | /$b | yes
+ | a$ | yes
ACCOUNTS | Accounts | no
Accounts payable | Accounts payable | yes
/finance | finance | no
a/b | a/b/ | no
a//b | a/b | no
a/+/b | a//b | yes
a/#  | b | no
"""


@pytest.mark.parametrize(
    ("topic_filter", "topic", "expected"),
    [[part.strip() for part in line.split("|")] for line in MATCHING.strip().splitlines()],
)
def test_filter_matches_as_the_specification_says(
    topic_filter: str, topic: str, expected: str
) -> None:
    assert matches(topic_filter, topic) == (expected == "yes")


COVERING = """
# | a | yes
# | a/# | yes
# | # | yes
# | + | yes
# | +/# | yes
+/# | # | yes
+/# | + | yes
+/# | a/b/# | yes
+/+ | # | no
+/+/# | # | no
+ | # | no
# | $SYS | no
# | $SYS/# | no
+/a | $SYS/a | no
$SYS/# | $SYS | yes
$SYS/# | $SYS/+ | yes
$SYS/# | # | no
$SYS/# | +/a | no
$SYS | + | no
a/# | a | yes
a/# | a/+/# | yes
a/# | a/# | yes
a/# | # | no
a/# | +/b | no
a/+/# | a/# | no
a/+ | a/# | no
a/+ | a | no
a/+ | a/+ | yes
a/+ | a/b | yes
a/+ | a/$b | yes
a/+ | a/b/c | no
a/b | a/+ | no
a/b | a/b | yes
a/b | a/b/# | no
+/b | a/b | yes
+/b | /b | yes
/# | / | yes
/# | # | no
"""


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [[part.strip() for part in line.split("|")] for line in COVERING.strip().splitlines()],
)
def test_filter_covers(wide: str, narrow: str, expected: str) -> None:
    assert covers(wide, narrow) == (expected == "yes")


@settings(bounded, max_examples=400)
@given(filters(), filters(), topics())
def test_covering_is_sound(wide: str, narrow: str, topic: str) -> None:
    """What access lists rest on: nothing slips through."""
    if covers(wide, narrow) and matches(narrow, topic):
        assert matches(wide, topic)


LEVELS = ["a", "$s", "", "+"]
FEW_FILTERS = [
    "/".join(levels)
    for size in (1, 2, 3)
    for levels in product(LEVELS, repeat=size)
    if "/".join(levels)
]
FEW_FILTERS += [f"{f}/#" for f in FEW_FILTERS if f.count("/") < 2] + ["#"]
# One level more than any filter has, and one word that no filter has.
ALL_TOPICS = [
    "/".join(levels)
    for size in (1, 2, 3, 4)
    for levels in product(["a", "$s", "", "z"], repeat=size)
    if "/".join(levels)
]


def test_covering_is_exact_for_all_small_filters() -> None:
    """Not only sound: true whenever every topic of the narrow one is in the wide one."""
    matched = {f: {t for t in ALL_TOPICS if matches(f, t)} for f in FEW_FILTERS}
    for wide, narrow in product(FEW_FILTERS, repeat=2):
        assert covers(wide, narrow) == (matched[narrow] <= matched[wide]), (wide, narrow)


@bounded
@given(filters(), filters(), filters())
def test_covering_is_a_preorder(a: str, b: str, c: str) -> None:
    assert covers(a, a)
    if covers(a, b) and covers(b, c):
        assert covers(a, c)


@bounded
@given(topics(), topics())
def test_topic_is_a_filter_for_itself_alone(one: str, other: str) -> None:
    assert matches(one, other) == (one == other)
    assert covers(one, other) == (one == other)


@bounded
@given(filters(), topics())
def test_covering_a_topic_is_matching_it(wide: str, topic: str) -> None:
    assert covers(wide, topic) == matches(wide, topic)


@bounded
@given(st.text(max_size=12))
def test_any_text_is_judged(text: str) -> None:
    """Configuration files hold anything; the only answer is a `ProtocolViolation`."""
    for validate in (validate_topic, validate_filter):
        try:
            validate(text)
        except ProtocolViolation as error:
            assert error.reason in (0x8F, 0x90)
