"""Records in an object store: over HTTP, with uploads in parts."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from broker_process import StartBroker
from conformance.client import Client
from object_store import object_store
from pyarrow import fs

from headgate.errors import StorageError
from headgate.server.recorder.places import ObjectStore
from headgate.server.recorder.rows import GROUP
from headgate.server.recorder.segments import Segment, Segments
from headgate.wire.packets import Version

from .reading import Row, until
from .test_segments import NOON, add, settings

CONFIG = """
recorder:
  url: "s3://site/live"
  segment_age: 300ms
  captures: [{topics: "kept/#", capture: guaranteed}]
"""


@pytest.fixture(scope="module", autouse=True)
def store() -> Iterator[None]:
    with object_store():
        yield


def reader() -> fs.FileSystem:
    return fs.FileSystem.from_uri("s3://site")[0]


def names(place: str, kind: str) -> list[str]:
    """Segments as any reader finds them."""
    selector = fs.FileSelector(f"site/{place}/{kind}", recursive=True, allow_not_found=True)
    return [one.path for one in reader().get_file_info(selector) if one.is_file]


def records(place: str, kind: str) -> list[Row]:
    files = names(place, kind)
    rows: list[Row] = ds.dataset(files, filesystem=reader()).to_table().to_pylist()
    return rows


def test_a_broker_records_there(start_broker: StartBroker) -> None:
    broker = start_broker(CONFIG)
    client, subscriber = Client(broker.port, Version.V5), Client(broker.port, Version.V5)
    client.connect("c")
    subscriber.connect("s")
    subscriber.subscribe("kept/#")
    for number in range(20):
        client.publish("kept/a", b"%d" % number, qos=1)
        subscriber.take()
    until(lambda: len(names("live", "captures")) > 0, "captures are uploaded")
    client.close()
    subscriber.close()
    broker.stop()
    until(lambda: len(records("live", "captures")) == 20, "every capture is there")
    assert {row["payload"] for row in records("live", "captures")} == {
        b"%d" % number for number in range(20)
    }
    until(lambda: len(names("live", "messages")) > 0, "messages are uploaded")
    sent = [row for row in records("live", "messages") if row["outcome"] == "sent"]
    assert sum(row["messages"] for row in sent) == 20
    assert {row["event"] for row in records("live", "connections")} >= {"connected", "parted"}


def test_a_segment_is_there_when_it_is_whole_and_goes_when_it_is_old() -> None:
    opening = Segments(ObjectStore("s3://site/small"), settings("s3://site/small"))
    add(opening, 0, 3, size=100_000)
    assert names("small", "policies") == []
    opening.tick(NOON + 60)
    assert len(names("small", "policies")) == 1
    add(opening, 3, 1, NOON + 100)
    opening.close()
    assert [row["version"] for row in records("small", "policies")] == [0, 1, 2, 3]
    # Another run of the broker finds what is there, and removes what is too much.
    few = settings("s3://site/small", keep_size=50_000)
    Segments(ObjectStore("s3://site/small"), few).tick(NOON + 200)
    assert [row["version"] for row in records("small", "policies")] == [3]


def test_what_is_given_up_is_never_seen() -> None:
    opening = Segments(ObjectStore("s3://site/half"), settings("s3://site/half"))
    path = "policies/date=2026-11-17/one.parquet"
    add(other := Segments(ObjectStore("s3://site/other"), settings("s3://site/other")), 0, 3)
    other.close()
    (file,) = names("other", "policies")
    table = pq.read_table(file, filesystem=reader(), partitioning=None)

    def fill(segment: Segment) -> None:
        segment.add(table.take(pa.array([0] * GROUP)))  # a row group: the store gets it at once
        raise StorageError("the spool is damaged")

    with pytest.raises(StorageError):
        opening.publish(path, fill)
    assert names("half", "policies") == []
    opening.publish(path, lambda segment: segment.add(table))
    assert len(records("half", "policies")) == 3


def test_a_store_without_the_bucket_is_told_and_the_encoder_ends_all_the_same(
    start_broker: StartBroker,
) -> None:
    broker = start_broker(CONFIG.replace("site/live", "nowhere/live"))
    client = Client(broker.port, Version.V5)
    client.connect("c")
    until(lambda: "bucket does not exist" in broker.errors, "the broker says so")
    client.close()
    broker.stop()
