"""What is captured: payload, properties and all that was said with it, and what is not captured."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from broker_process import StartBroker
from conformance.client import Client

from headgate.config import InvalidConfigurationError, parse
from headgate.core.journal import Captured
from headgate.errors import StorageError
from headgate.server.recorder.captures import Unloader, segment_name
from headgate.server.recorder.places import ObjectStore
from headgate.server.recorder.segments import Segments
from headgate.server.store.spool import Mark, Settings, Spool
from headgate.wire.packets import Properties, Publish, Version, Will

from .reading import records, segments
from .test_live import enter
from .test_segments import opened, settings

CONFIG = """
auth: {local_roles: [admin]}
recorder:
  folder: records
  messages: 0
  segment_age: 1h
  captures:
    - {topics: ["plant/#", "lab/+/x"], capture: guaranteed}
    - {topics: note/#}
"""


@pytest.fixture
def clients() -> Iterator[list[Client]]:
    opened: list[Client] = []
    yield opened
    for client in opened:
        client.close()


def test_payload_and_properties_are_captured_as_published(
    start_broker: StartBroker, clients: list[Client]
) -> None:
    broker = start_broker(CONFIG)
    client = enter(clients, broker, "p")
    client.publish(
        "plant/a",
        b"\x00\xff",
        qos=1,
        retain=True,
        properties=Properties(
            payload_format=0,
            message_expiry=60,
            content_type="application/cbor",
            response_topic="answers",
            correlation_data=b"\x01\x02",
            user_properties=[("b", "2"), ("a", "1"), ("b", "3")],
        ),
    )
    client.publish("$urgent/plant/b", b"fire", qos=2)
    client.publish("elsewhere", b"no", qos=1)
    client.publish("note/c", b"zero", qos=0)
    client.publish("note/c", b"one", qos=1)
    broker.stop()

    first, urgent, *noted = records(broker.folder / "records", "captures")
    assert (first["client"], first["user"], first["topic"]) == ("p", "", "plant/a")
    assert (first["payload"], first["qos"], first["retain"]) == (b"\x00\xff", 1, True)
    assert (first["payload_format"], first["content_type"]) == (0, "application/cbor")
    assert (first["response_topic"], first["correlation"]) == ("answers", b"\x01\x02")
    assert first["expiry_s"] == 60
    assert json.loads(first["properties"]) == [["b", "2"], ["a", "1"], ["b", "3"]]
    assert (urgent["topic"], urgent["class"], urgent["qos"]) == ("plant/b", "urgent", 2)
    assert urgent["content_type"] is urgent["properties"] is urgent["expiry_s"] is None
    assert [(row["topic"], row["payload"], row["qos"]) for row in noted] == [
        ("note/c", b"zero", 0),
        ("note/c", b"one", 1),
    ]
    assert len({row["broker"] for row in (first, urgent, *noted)}) == 1
    assert [row["sequence"] for row in (first, urgent, *noted)] == [0, 1, 2, 3]


def test_runs_wills_and_duplicates_are_captured_and_what_the_broker_says_is_not(
    start_broker: StartBroker, clients: list[Client]
) -> None:
    broker = start_broker("sys_interval: 100ms\n" + CONFIG.replace("plant/#", "#"))
    run = Client(broker.port, Version.V311)
    clients.append(run)
    run.connect("run", will=Will("gone", b"lost", qos=1))
    # Contiguous packets of one topic travel as one piece; on record they are three.
    run.send(*(Publish("many", b"%d" % number) for number in range(3)))
    run.send(Publish("once", b"again", qos=1, dup=True, packet_id=7))
    run.receive()  # PUBACK
    listener = enter(clients, broker, "l")
    listener.subscribe("$SYS/broker/version")
    listener.take()
    watcher = enter(clients, broker, "w")
    watcher.subscribe("gone")
    run.close()
    watcher.take()
    broker.stop()
    found = records(broker.folder / "records", "captures")
    assert [(row["client"], row["topic"], row["payload"]) for row in found] == [
        ("run", "many", b"0"),
        ("run", "many", b"1"),
        ("run", "many", b"2"),
        ("run", "once", b"again"),
        ("run", "gone", b"lost"),
    ]
    assert [row["duplicate"] for row in found] == [False, False, False, True, False]


@pytest.mark.parametrize(
    ("text", "where", "said"),
    [
        ("captures: [{topics: 'a/#/b'}]", "captures[0].topics", "topic filter"),
        ("captures: [{topics: ['$SYS/#']}]", "captures[0].topics[0]", "begin with $"),
        ("captures: [{topics: a, capture: always}]", "captures[0].capture", "guaranteed"),
        ("captures: [{capture: guaranteed}]", "captures[0].topics", "missing"),
    ],
)
def test_mistakes_in_captures_are_told(text: str, where: str, said: str) -> None:
    with pytest.raises(InvalidConfigurationError) as caught:
        parse(f"recorder: {{{text}}}")
    (mistake,) = caught.value.mistakes
    assert f"recorder.{where}".startswith(mistake.key)
    assert said in mistake.message


def test_nothing_is_guaranteed_without_durability() -> None:
    captures = "recorder: {captures: [{topics: a, capture: guaranteed}]}"
    with pytest.raises(InvalidConfigurationError, match="durability: none"):
        parse(f"durability: none\n{captures}")
    assert parse(captures).recorder is not None


# The spool by itself


def message(number: int, payload: bytes = b"x") -> Captured:
    return Captured(number, 1.7e9, "c", "", b"t", 2, 1, False, False, payload, b"", -1)


def spool(folder: Path, **changes: object) -> Spool:
    settings = Settings(folder / "captures", "20231114T221320-run", True, 1 << 20, 60.0, 0)
    return Spool(settings._replace(**changes))  # type: ignore[arg-type]


def unload(folder: Path, into: Segments | None = None) -> list[int]:
    """The sequence numbers that a reader finds once the encoder is done."""
    unloader = Unloader(str(folder / "captures"), into or opened(folder / "records"))
    unloader.close()
    return [row["sequence"] for row in records(folder / "records", "captures")]


def left(folder: Path, ending: str) -> list[Path]:
    return sorted((folder / "captures").glob(f"*.{ending}"))


def test_what_lies_behind_the_mark_was_never_acknowledged(tmp_path: Path) -> None:
    one = spool(tmp_path)
    one.recover(None)
    mark = one.append([message(0), message(1)], [])
    one.append([], [message(2)])
    one.append([message(3)], [])
    one.append([], [message(4)])
    one.abandon()
    again = spool(tmp_path)
    again.recover(mark)
    # What is not guaranteed needs no mark, but what follows the cut is gone.
    assert unload(tmp_path) == [0, 1, 2]
    assert left(tmp_path, "*") == []


def test_a_file_that_was_never_marked_has_only_what_is_not_guaranteed(tmp_path: Path) -> None:
    one = spool(tmp_path)
    one.recover(None)
    mark = one.append([message(0)], [])
    one.seal()
    one.append([message(1)], [])
    one.abandon()
    spool(tmp_path).recover(mark)
    assert unload(tmp_path) == [0]


@pytest.mark.parametrize("cut", [1, 9, 15, 25])
def test_a_torn_write_is_cut_off(tmp_path: Path, cut: int) -> None:
    one = spool(tmp_path)
    one.recover(None)
    mark = one.append([message(0)], [])
    length = msgspec.msgpack.decode(mark or b"", type=Mark).length
    one.append([message(1)], [])
    one.abandon()
    (file,) = left(tmp_path, "open")
    os.truncate(file, length + cut)
    spool(tmp_path).recover(mark)
    assert unload(tmp_path) == [0]


def test_a_segment_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    """An encoder was killed between the segment and the end of its file."""
    one = spool(tmp_path)
    one.recover(None)
    one.append([message(0)], [])
    one.seal()
    (file,) = left(tmp_path, "spool")
    copy = file.read_bytes()
    assert unload(tmp_path) == [0]
    before = segments(tmp_path / "records", "captures")[0].stat()
    file.write_bytes(copy)
    assert unload(tmp_path) == [0]
    assert segments(tmp_path / "records", "captures")[0].stat().st_ino == before.st_ino
    assert not file.exists()


def test_a_damaged_file_is_put_aside_and_others_go_on(tmp_path: Path) -> None:
    one = spool(tmp_path)
    one.recover(None)
    for number in range(2):
        one.append([message(number)], [])
        one.seal()
    first = left(tmp_path, "spool")[0]
    first.write_bytes(first.read_bytes()[:-3] + b"\0\0\0")
    assert unload(tmp_path) == [1]
    assert left(tmp_path, "damaged") == [first.with_suffix(".damaged")]


def test_a_place_that_refuses_leaves_everything_in_the_spool(tmp_path: Path) -> None:
    one = spool(tmp_path)
    one.recover(None)
    one.append([message(0)], [])
    one.seal()
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "captures").write_text("in the way")
    assert unload_in_vain(tmp_path)
    (tmp_path / "records" / "captures").unlink()
    assert unload(tmp_path) == [0]


def unload_in_vain(folder: Path) -> list[Path]:
    Unloader(str(folder / "captures"), opened(folder / "records")).close()
    return left(folder, "spool")


def test_an_object_store_is_a_place_too(tmp_path: Path) -> None:
    one = spool(tmp_path)
    one.recover(None)
    one.append([message(0)], [])
    one.seal()
    url = f"file://{tmp_path / 'records'}"
    assert unload(tmp_path, Segments(ObjectStore(url), settings(url))) == [0]
    assert left(tmp_path, "*") == []


def test_files_are_completed_by_size_and_by_age(tmp_path: Path) -> None:
    one = spool(tmp_path, file_size=1000)
    one.recover(None)
    one.append([], [message(0)])
    one.seal_if_due(0.0)
    assert left(tmp_path, "spool") == []
    one.append([], [message(1, bytes(1000))])
    one.seal_if_due(0.0)
    assert len(left(tmp_path, "spool")) == 1
    one.append([], [message(2)])
    one.seal_if_due(4e9)
    assert len(left(tmp_path, "spool")) == 2
    assert unload(tmp_path) == [0, 1, 2]


def test_a_disk_that_fails_is_not_asked_again(tmp_path: Path) -> None:
    one = spool(tmp_path)
    one.recover(None)
    one.append([message(0)], [])
    os.close(one._file)  # what the kernel says of a descriptor it does not know stands for EIO
    with pytest.raises(StorageError):
        one.append([message(1)], [])


def test_a_segment_lies_by_the_day_of_its_file() -> None:
    stem = "20261118T005321-20261117T214412-5b3c1f0a-000001"
    assert segment_name(stem) == f"captures/date=2026-11-18/{stem}.parquet"
