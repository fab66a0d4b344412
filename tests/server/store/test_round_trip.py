"""What was saved comes back after a restart, field by field; what was dropped does not."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import astuple, replace

from headgate.core.journal import Journal, Saved, StoredSession
from headgate.server.store import Store

from .broker import Opens
from .samples import DELIVERY, MESSAGE, SESSION, SUBSCRIPTION, WILL, delivery, message


def restarted(open_store: Opens, path: Path) -> Saved:
    store = open_store(path)
    saved = store.load()
    store.close()
    return saved


def started(open_store: Opens, path: Path) -> Store:
    store = open_store(path)
    store.load()
    return store


def test_a_new_directory_is_made_and_holds_nothing(open_store: Opens, tmp_path: Path) -> None:
    assert restarted(open_store, tmp_path / "not" / "there") == Saved()


def test_a_store_is_a_journal(open_store: Opens, tmp_path: Path) -> None:
    store = open_store(tmp_path)
    journal: Journal = store
    assert (journal.position, journal.durable) == (0, 0)
    store.close()


@pytest.mark.parametrize("sample", [MESSAGE, SESSION, SUBSCRIPTION, WILL, DELIVERY])
def test_the_samples_would_show_a_field_that_is_forgotten(sample: msgspec.Struct) -> None:
    for field in msgspec.structs.fields(sample):
        assert field.default is msgspec.NODEFAULT or getattr(sample, field.name) != field.default


def test_everything_survives_with_its_values_and_types(open_store: Opens, tmp_path: Path) -> None:
    store = started(open_store, tmp_path)
    nobody = StoredSession("other", None, 0xFFFFFFFF, 0.0)
    store.save_session(SESSION)
    store.save_session(nobody)
    store.save_subscription(SUBSCRIPTION)
    store.save_message(MESSAGE)
    store.save_delivery(DELIVERY)
    store.save_received("app", 65535)
    store.save_retained(MESSAGE)
    store.save_will(WILL)
    store.save_value("policy", b"\x00\xff")
    assert store.position == 9
    store.close()

    saved = restarted(open_store, tmp_path)

    assert saved.sessions == [SESSION, nobody]
    assert saved.subscriptions == [SUBSCRIPTION]
    assert saved.messages == [MESSAGE]
    assert saved.deliveries == [DELIVERY]
    assert saved.received == [("app", 65535)]
    assert saved.retained == [MESSAGE]
    assert saved.wills == [WILL]
    assert saved.values == {"policy": b"\x00\xff"}
    # 1 == True, so equality does not see a type that was lost on the way.
    pairs = [(saved.messages[0], MESSAGE), (saved.deliveries[0], DELIVERY)]
    pairs += [(saved.subscriptions[0], SUBSCRIPTION), (saved.sessions[0], SESSION)]
    for loaded, original in pairs:
        assert list(map(type, astuple(loaded))) == list(map(type, astuple(original)))


def test_what_is_saved_again_replaces(open_store: Opens, tmp_path: Path) -> None:
    store = started(open_store, tmp_path)
    store.save_session(SESSION)
    store.save_subscription(SUBSCRIPTION)
    store.save_retained(MESSAGE)
    store.save_will(WILL)
    store.save_value("policy", b"old")
    store.close()

    store = started(open_store, tmp_path)
    store.save_session(replace(SESSION, ends=0.0))
    store.save_subscription(replace(SUBSCRIPTION, qos=0))
    store.save_retained(replace(MESSAGE, payload=b"new"))
    store.save_will(replace(WILL, due=0.0))
    store.save_value("policy", b"new")
    store.close()

    saved = restarted(open_store, tmp_path)
    assert saved.sessions == [replace(SESSION, ends=0.0)]
    assert saved.subscriptions == [replace(SUBSCRIPTION, qos=0)]
    assert saved.retained == [replace(MESSAGE, payload=b"new")]
    assert saved.wills == [replace(WILL, due=0.0)]
    assert saved.values == {"policy": b"new"}


def test_what_is_dropped_later_is_gone(open_store: Opens, tmp_path: Path) -> None:
    store = started(open_store, tmp_path)
    store.save_session(SESSION)
    store.save_subscription(SUBSCRIPTION)
    store.save_message(MESSAGE)
    store.save_delivery(DELIVERY)
    store.save_received("app", 7)
    store.save_retained(MESSAGE)
    store.save_will(WILL)
    store.close()

    store = started(open_store, tmp_path)
    store.drop_subscription("app", SUBSCRIPTION.filter)
    store.drop_message(MESSAGE.key)
    store.drop_delivery("app", DELIVERY.sequence)
    store.drop_received("app", 7)
    store.drop_retained(MESSAGE.topic)
    store.drop_will("app")
    store.close()

    saved = restarted(open_store, tmp_path)
    assert saved == Saved(sessions=[SESSION], last_key=saved.last_key)


def test_a_dropped_session_takes_all_of_its_own_and_nothing_else(
    open_store: Opens, tmp_path: Path
) -> None:
    store = started(open_store, tmp_path)
    for client_id in ("app", "other"):
        store.save_session(replace(SESSION, client_id=client_id))
        store.save_subscription(replace(SUBSCRIPTION, client_id=client_id))
        store.save_delivery(delivery(client_id, 1))
        store.save_received(client_id, 7)
        store.save_will(replace(WILL, client_id=client_id))
    store.close()

    store = started(open_store, tmp_path)
    store.save_delivery(delivery("app", 2))
    store.drop_session("app")
    store.save_session(replace(SESSION, expiry=1))  # the same client comes back with a clean start
    store.close()

    saved = restarted(open_store, tmp_path)
    assert sorted(saved.sessions, key=lambda session: session.client_id) == [
        replace(SESSION, expiry=1),
        replace(SESSION, client_id="other"),
    ]
    assert saved.subscriptions == [replace(SUBSCRIPTION, client_id="other")]
    assert saved.deliveries == [delivery("other", 1)]
    assert saved.received == [("other", 7)]
    assert saved.wills == [replace(WILL, client_id="other")]


def test_progress_of_a_stored_delivery_is_kept(open_store: Opens, tmp_path: Path) -> None:
    store = started(open_store, tmp_path)
    for sequence in (1, 2, 3):
        store.save_delivery(delivery("app", sequence))
    store.close()

    store = started(open_store, tmp_path)
    store.assign_packet_id("app", 1, 11)
    store.assign_packet_id("app", 2, 12)
    store.release_delivery("app", 2)
    store.close()
    store = started(open_store, tmp_path)
    store.release_delivery("app", 1)
    store.close()

    assert restarted(open_store, tmp_path).deliveries == [
        delivery("app", 1, packet_id=11, released=True),
        delivery("app", 2, packet_id=12, released=True),
        delivery("app", 3),
    ]


def test_messages_and_deliveries_come_back_in_order(open_store: Opens, tmp_path: Path) -> None:
    store = started(open_store, tmp_path)
    for key in (3, 1, 2, 300, 299):
        store.save_message(message(key))
        store.save_delivery(delivery("app", key))
    store.close()

    saved = restarted(open_store, tmp_path)
    assert [stored.key for stored in saved.messages] == [1, 2, 3, 299, 300]
    assert [stored.sequence for stored in saved.deliveries] == [1, 2, 3, 299, 300]


def test_a_key_is_not_given_again_even_if_its_message_was_never_written(
    open_store: Opens, tmp_path: Path
) -> None:
    store = started(open_store, tmp_path)
    store.save_message(message(900_000))
    store.drop_message(900_000)
    store.close()
    assert restarted(open_store, tmp_path).last_key >= 900_000

    store = started(open_store, tmp_path)
    store.save_retained(message(2_000_000))
    store.drop_retained(MESSAGE.topic)
    store.save_will(replace(WILL, message=message(3_000_000)))
    store.close()
    assert restarted(open_store, tmp_path).last_key >= 3_000_000
