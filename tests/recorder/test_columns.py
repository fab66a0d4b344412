"""Our own Parquet pages: what goes in comes out of readers that know nothing of us."""

from __future__ import annotations

from io import BytesIO
from itertools import pairwise
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate.core.tape import ROWS
from headgate.server.recorder import columns, thrift
from headgate.server.recorder.parquet import ParquetFile
from headgate.server.recorder.rows import GROUP, MessageWriter, Part, Room
from headgate.server.recorder.tables import ARROW_SCHEMAS

from .blocks import block


def written(field: pa.Field, *groups: tuple[columns.Column, int]) -> pq.ParquetFile:
    sink = BytesIO()
    file = ParquetFile(sink, pa.schema([field]), "headgate version 0")
    for column, rows in groups:
        file.write_group([column], rows)
    file.close()
    return pq.ParquetFile(sink)


@pytest.mark.parametrize("rows", [1, 2, 7, 128, 129, 130, 1000])
@pytest.mark.parametrize("step", [1, 100, 40_000, 1 << 31, 1 << 40])
def test_whole_numbers_come_back(rows: int, step: int) -> None:
    rng = np.random.default_rng(rows)
    values = np.cumsum(rng.integers(-step, step, rows, endpoint=True)) + 1_700_000_000_000_000
    file = written(pa.field("n", pa.int64()), (columns.wholes(values, bounds=True), rows))
    assert file.read()["n"].to_numpy().tolist() == values.tolist()
    known = file.metadata.row_group(0).column(0).statistics
    assert (known.min, known.max, known.null_count) == (values.min(), values.max(), 0)


def test_what_rises_evenly_takes_no_room() -> None:
    column = columns.wholes(np.arange(5, 100_005))
    file = written(pa.field("n", pa.int64()), (column, 100_000))
    assert file.read()["n"].to_pylist() == list(range(5, 100_005))
    assert len(column.data) < 5000


@pytest.mark.parametrize("names", [1, 2, 256, 257, 65536, 65537])
def test_texts_come_back_however_many_there_are(names: int) -> None:
    words = pa.array([f"ä/{number}" if number % 7 else "" for number in range(names)])
    numbers = np.random.default_rng(1).integers(0, names, 1001)
    file = written(pa.field("t", pa.string()), (columns.texts(words, numbers, 1001, True), 1001))
    assert file.read()["t"].to_pylist() == [words[number].as_py() for number in numbers]
    known = file.metadata.row_group(0).column(0).statistics
    assert (known.min, known.max) == (min(words.to_pylist()), max(words.to_pylist()))


def test_names_that_are_part_of_an_array_are_that_part() -> None:
    words = pa.array(["one", "two", "three"]).slice(1, 1)
    file = written(pa.field("t", pa.string()), (columns.texts(words, None, 9), 9))
    assert file.read()["t"].to_pylist() == ["two"] * 9


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_reals_are_null_where_they_say_nothing(share: float) -> None:
    rng = np.random.default_rng(2)
    values, valid = rng.random(1003), rng.random(1003) < share
    file = written(pa.field("r", pa.float64()), (columns.reals(values, valid), 1003))
    expected = [value if there else None for value, there in zip(values, valid, strict=True)]
    assert file.read()["r"].to_pylist() == expected


def test_flags_and_constants_come_back_from_several_groups() -> None:
    flags = np.random.default_rng(3).random(77) < 0.5
    file = written(
        pa.field("f", pa.bool_()), (columns.flags(flags), 77), (columns.flags(~flags), 77)
    )
    assert file.read()["f"].to_pylist() == [*flags.tolist(), *(~flags).tolist()]
    ones = written(pa.field("n", pa.int64()), (columns.constant(-7, 1000), 1000))
    assert ones.read()["n"].to_pylist() == [-7] * 1000
    halves = written(pa.field("r", pa.float64()), (columns.constant(0.5, 3), 3))
    assert halves.read()["r"].to_pylist() == [0.5] * 3


def test_a_struct_may_skip_more_fields_than_fit_into_half_a_byte() -> None:
    # The specification's long form: the type, then the number in zigzag.
    _, written = thrift.struct({1: thrift.i32(1), 20: thrift.i32(-1)})
    assert written == bytes([0x15, 2, 5, 40, 1, 0])


def test_records_of_many_blocks_are_what_their_rows_said() -> None:
    """Blocks that number flows and topics each in its own way, over several row groups."""
    rng = Random(5)
    sink, room = BytesIO(), Room()
    writer = MessageWriter(sink, "run-1", room)
    expected: list[tuple[object, ...]] = []
    first = 0
    while first <= GROUP + ROWS:
        size = rng.choice([1, 500, ROWS])
        frame, rows = block(rng, first, size)
        writer.add(Part(frame, rows))
        for number, row in enumerate(rows.tolist()):
            at, arrived, since, flow, topic, count, length, looks, _ = row
            sent = looks & 0xFF != 1
            expected.append(
                (
                    first + number,
                    *frame.flows[flow],
                    frame.topics[topic].decode(),
                    count,
                    length,
                    ["urgent", "critical", "normal"][looks >> 16 & 3],
                    looks >> 24 & 3,
                    bool(looks & 0x08000000),
                    ["sent", "acknowledged", "dropped", "cut"][looks & 0xFF],
                    (at - arrived) * 1e3 if sent else None,
                    None if sent else (at - since) * 1e3,
                )
            )
        first += size
    writer.close()
    table = pq.read_table(sink)
    assert table.schema.equals(ARROW_SCHEMAS["messages"], check_metadata=True)
    flow = ["client", "filter", "application", "category", "link", "priority"]
    looks = ["class", "qos", "retained", "outcome", "waited_ms", "acknowledged_ms"]
    names = ["sequence", *flow, "topic", "messages", "bytes", *looks]
    found = list(zip(*(table[name].to_pylist() for name in names), strict=True))
    assert found == expected
    assert set(table["broker"].to_pylist()) == {"run-1"}
    assert set(table["weight"].to_pylist()) == {1.0}
    reasons = set(zip(table["outcome"].to_pylist(), table["reason"].to_pylist(), strict=True))
    assert {("sent", ""), ("dropped", "rate")} <= reasons
    moments = table["at"].to_pylist()
    assert all(before <= after for before, after in pairwise(moments))
    assert pq.ParquetFile(sink).num_row_groups == 2
