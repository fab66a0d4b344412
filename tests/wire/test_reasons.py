"""Reason codes: what MQTT 3 says instead."""

from __future__ import annotations

import pytest

from headgate.wire.packets import PacketType
from headgate.wire.reasons import ALLOWED, Reason, connack_v3


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        (Reason.SUCCESS, 0),
        (Reason.UNSUPPORTED_PROTOCOL_VERSION, 1),
        (Reason.CLIENT_IDENTIFIER_NOT_VALID, 2),
        (Reason.SERVER_UNAVAILABLE, 3),
        (Reason.SERVER_BUSY, 3),
        (Reason.QUOTA_EXCEEDED, 3),
        (Reason.BAD_USER_NAME_OR_PASSWORD, 4),
        (Reason.NOT_AUTHORIZED, 5),
        (Reason.BANNED, 5),
        (Reason.BAD_AUTHENTICATION_METHOD, 5),
    ],
)
def test_connack_of_mqtt_3(reason: Reason, code: int) -> None:
    assert connack_v3(reason) == code


def test_every_refusal_is_a_refusal_in_mqtt_3() -> None:
    refusals = [code for code in ALLOWED[PacketType.CONNACK] if code >= 0x80]
    assert all(1 <= connack_v3(code) <= 5 for code in refusals)


def test_return_code_stands_for_itself() -> None:
    assert [connack_v3(code) for code in range(6)] == list(range(6))


def test_every_reason_has_a_place() -> None:
    """And no place has a number without a name."""
    assert set().union(*ALLOWED.values()) == set(Reason)
