"""Policies on their way through `$CONTROL`."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.contract import FlowSelector, Policy, PolicyRule
from headgate.errors import ConfigurationError

names = st.text(min_size=1, max_size=20)
fractions = st.floats(0, 1)
rules = st.builds(
    PolicyRule,
    application=st.none() | names,
    category=st.none() | names,
    topic=st.none() | st.just("a/#"),
    flow=st.none() | st.builds(FlowSelector, client=names, filter=st.just("a/+")),
    priority=st.integers(0, 15),
    drop=st.none() | fractions,
    join=st.none() | fractions,
    lifetime=st.none() | st.floats(0, 1e6),
    capacity=st.none() | st.integers(0, 10**6),
)


@given(st.integers(0, 10**15), st.lists(rules, max_size=5))
def test_a_policy_arrives_as_it_was_sent(version: int, entries: list[PolicyRule]) -> None:
    policy = Policy(version=version, rules=tuple(entries))
    assert Policy.from_json(policy.to_json()) == policy


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "truncated"),
        (b"\xff", "malformed"),
        (b"[]", "Expected `object`"),
        (b'{"version":-1}', ">= 0"),
        (b'{"rules":[{"priorty":1}]}', "unknown field `priorty`"),
        (b'{"rules":[{"priority":16}]}', "<= 15"),
        (b'{"rules":[{"drop":1.01}]}', "<= 1"),
        (b'{"rules":[{"lifetime":-1}]}', ">= 0"),
        (b'{"rules":[{"drop":"0.5"}]}', "Expected `float"),
        (b'{"rules":[{"flow":{"client":"a"},"drop":0}]}', "missing required field `filter`"),
        (b'{"rules":[{"drop":0},{"topic":"a"}]}', "rules[1]: sets nothing"),
    ],
)
def test_an_invalid_one_is_refused_with_the_reason(data: bytes, words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Policy.from_json(data)
    assert words in str(caught.value)


@given(st.binary(max_size=100))
def test_any_bytes_are_a_policy_or_a_configuration_error(data: bytes) -> None:
    try:
        Policy.from_json(data)
    except ConfigurationError as error:
        assert str(error)


def test_ten_thousand_rules_are_read_in_a_moment() -> None:
    policy = Policy(
        version=1,
        rules=tuple(
            PolicyRule(flow=FlowSelector(client=f"c{n}", filter="a/b/#"), priority=1, drop=0.1)
            for n in range(10_000)
        ),
    )
    data = policy.to_json()
    start = time.process_time()
    Policy.from_json(data)
    # About 15 ms; the bound is generous because the machine is shared.
    assert time.process_time() - start < 0.5
