"""Segments: when they are published, what a reader sees, what goes when."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.contract.records import POLICIES, SCHEMAS
from headgate.server.recorder.frames import Frame
from headgate.server.recorder.places import STALE, ObjectStore, Place, place_of
from headgate.server.recorder.segments import Segments
from headgate.server.recorder.settings import Settings
from headgate.server.recorder.tables import ARROW_SCHEMAS, events

from .reading import records, segments

NOON = 1_700_000_000.0


def settings(folder: Path | str, **changes: float) -> Settings:
    values = {"segment_size": 1 << 30, "segment_age": 60.0, "keep": 0.0, "keep_size": 0, **changes}
    return Settings(place=str(folder), broker="run-1", **values)  # type: ignore[arg-type]


def opened(folder: Path | str, **changes: float) -> Segments:
    return Segments(place_of(str(folder)), settings(folder, **changes))


def add(into: Segments, first: int, rows: int, now: float = NOON, size: int = 10) -> None:
    """Policy events whose document has `size` bytes that do not compress."""
    policies = [
        (now, "start", "", True, "", first + row, None, os.urandom(size // 2).hex())
        for row in range(rows)
    ]
    frame = Frame(kind=POLICIES.kind, first=first, rows=rows, events=policies)
    into.add(POLICIES.kind, events(frame, "run-1"), now)


@pytest.mark.parametrize(
    "place", [lambda path: place_of(str(path)), lambda path: ObjectStore(f"file://{path}")]
)
def test_a_segment_is_published_when_it_is_old_enough(
    tmp_path: Path, place: Callable[[Path], Place]
) -> None:
    opening = Segments(place(tmp_path), settings(tmp_path))
    add(opening, 0, 3)
    assert opening.tick(NOON + 59) == pytest.approx(1.0)
    assert segments(tmp_path, "policies") == []
    opening.tick(NOON + 60)
    (file,) = segments(tmp_path, "policies")
    assert place(tmp_path).has(str(file.relative_to(tmp_path)))
    assert [one.size for one in place(tmp_path).segments()] == [file.stat().st_size]
    assert [row["version"] for row in records(tmp_path, "policies")] == [0, 1, 2]


def test_a_segment_is_published_when_it_is_large_enough(tmp_path: Path) -> None:
    opening = opened(tmp_path, segment_size=1 << 20)
    for batch in range(40):
        add(opening, batch * 10, 10, size=500_000)
    # Five million bytes each, written in row groups of 64 MiB.
    sizes = [file.stat().st_size for file in segments(tmp_path, "policies")]
    assert len(sizes) == 2
    opening.close()
    assert len(records(tmp_path, "policies")) == 400


def test_half_a_segment_is_not_seen(tmp_path: Path) -> None:
    opening = opened(tmp_path)
    add(opening, 0, 3)
    assert segments(tmp_path, "policies") == []
    assert len(list(tmp_path.rglob(".*.parquet"))) == 1
    opening.close()
    assert len(segments(tmp_path, "policies")) == 1
    assert list(tmp_path.rglob(".*.parquet")) == []


def test_what_a_crash_left_half_written_goes_when_it_has_no_writer(tmp_path: Path) -> None:
    add(opened(tmp_path), 0, 3)
    (half,) = tmp_path.rglob(".*.parquet")
    opened(tmp_path)
    assert half.exists()
    os.utime(half, (0, time.time() - STALE - 1))
    opened(tmp_path)
    assert not half.exists()


def test_segments_lie_by_the_date_of_their_beginning(tmp_path: Path) -> None:
    opening = opened(tmp_path)
    add(opening, 0, 1, 86399.0)
    opening.tick(86500.0)
    add(opening, 1, 1, 86500.0)
    opening.close()
    assert [file.parent.name for file in segments(tmp_path, "policies")] == [
        "date=1970-01-01",
        "date=1970-01-02",
    ]


def test_the_oldest_go_when_there_are_too_many_bytes(tmp_path: Path) -> None:
    opening = opened(tmp_path, keep_size=120_000)
    for number in range(6):
        add(opening, number, 1, NOON + number, size=100_000)
        opening.roll("policies")
    opening.tick(NOON)
    assert [row["version"] for row in records(tmp_path, "policies")] == [4, 5]
    # Another run of the broker counts what it finds.
    opened(tmp_path, keep_size=60_000).tick(NOON)
    assert [row["version"] for row in records(tmp_path, "policies")] == [5]


@pytest.mark.parametrize("guaranteed", [True, False])
def test_what_publishers_were_promised_goes_by_age_alone(tmp_path: Path, guaranteed: bool) -> None:
    opening = opened(tmp_path, keep_size=120_000, keep=3600.0, guaranteed=guaranteed)
    captured = "captures/date=2023-11-14/20231114T221320-run-1-000001.parquet"
    payload = pa.array([os.urandom(200_000)], pa.binary())
    columns = [
        payload if field.name == "payload" else pa.nulls(1, field.type)
        for field in ARROW_SCHEMAS["captures"]
    ]
    table = pa.table(columns, schema=ARROW_SCHEMAS["captures"])
    opening.publish(captured, lambda segment: segment.add(table))
    for number in range(3):
        add(opening, number, 1, NOON + number, size=100_000)
        opening.roll("policies")
    opening.tick(time.time())
    assert [row["version"] for row in records(tmp_path, "policies")] == [1, 2]
    assert (tmp_path / captured).exists() == guaranteed
    opening.tick(time.time() + 3700)
    assert not (tmp_path / captured).exists()


def test_the_old_go_when_their_time_has_come(tmp_path: Path) -> None:
    opening = opened(tmp_path, keep=3600.0)
    add(opening, 0, 1)
    opening.close()
    opening.tick(time.time() + 3000)
    assert len(records(tmp_path, "policies")) == 1
    opening.tick(time.time() + 3700)
    assert segments(tmp_path, "policies") == []
    assert list((tmp_path / "policies").iterdir()) == []


def test_a_segment_tells_its_kind_version_and_what_its_fields_mean(tmp_path: Path) -> None:
    opening = opened(tmp_path)
    add(opening, 0, 1)
    opening.close()
    (file,) = segments(tmp_path, "policies")
    found = pq.read_schema(file)
    assert found.metadata[b"headgate.kind"] == b"policies"
    assert found.metadata[b"headgate.version"] == str(POLICIES.version).encode()
    meanings = [field.metadata[b"meaning"].decode() for field in found]
    assert meanings == [field.meaning for field in SCHEMAS["policies"].fields]
