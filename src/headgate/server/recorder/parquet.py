"""A Parquet file from columns: pages, row groups and what the footer says of them."""

from __future__ import annotations

import base64
from typing import Protocol

import pyarrow as pa

from headgate.server.recorder.columns import Column, Encoding, Physical
from headgate.server.recorder.thrift import (
    BINARY,
    I32,
    STRUCT,
    Fields,
    Value,
    binary,
    flag,
    i32,
    i64,
    several,
    struct,
)

MAGIC = b"PAR1"
SMALL = 256
"""Bytes of a page that are not worth being compressed."""

PLAIN, SNAPPY = 0, 1
CODEC = pa.Codec("snappy")

DATA_PAGE, DICTIONARY_PAGE = 0, 2
OPTIONAL = 1
EMPTY = struct({})

PHYSICAL = {
    pa.string(): Physical.BYTE_ARRAY,
    pa.int64(): Physical.INT64,
    pa.float64(): Physical.DOUBLE,
    pa.bool_(): Physical.BOOLEAN,
    pa.timestamp("us", tz="UTC"): Physical.INT64,
}


class Sink(Protocol):
    """What is written to."""

    def write(self, data: bytes) -> object: ...


class ParquetFile:
    """Writes row groups of one schema, then the footer."""

    def __init__(self, sink: Sink, schema: pa.Schema, author: str) -> None:
        self._sink = sink
        self._schema = schema
        self._author = author
        self._groups: list[Value] = []
        self._rows = 0
        self._size = 0
        self._write(MAGIC)

    def write_group(self, columns: list[Column], rows: int) -> None:
        """One row group; the columns are in the schema's order."""
        begin = self._size
        chunks = []
        raw = 0
        for field, column in zip(self._schema, columns, strict=True):
            assert PHYSICAL[field.type] == column.physical
            chunk, size = self._write_chunk(field.name, column, rows)
            chunks.append(chunk)
            raw += size
        self._rows += rows
        group: Fields = {
            1: several(STRUCT, chunks),
            2: i64(raw),
            3: i64(rows),
            5: i64(begin),
            6: i64(self._size - begin),
        }
        self._groups.append(struct(group))

    def close(self) -> None:
        """Write the footer. The sink stays open."""
        elements = [element(field) for field in self._schema]
        root = struct({4: binary(b"schema"), 5: i32(len(elements))})
        told = base64.b64encode(self._schema.serialize().to_pybytes())
        notes = {**(self._schema.metadata or {}), b"ARROW:schema": told}
        by_type = struct({1: EMPTY})
        fields: Fields = {
            1: i32(2),
            2: several(STRUCT, [root, *elements]),
            3: i64(self._rows),
            4: several(STRUCT, self._groups),
            5: several(
                STRUCT,
                [struct({1: binary(key), 2: binary(value)}) for key, value in notes.items()],
            ),
            6: binary(self._author.encode()),
            # Without it nobody trusts the smallest and largest values.
            7: several(STRUCT, [by_type] * len(elements)),
        }
        _, footer = struct(fields)
        self._write(footer + len(footer).to_bytes(4, "little") + MAGIC)

    def _write(self, data: bytes) -> None:
        self._sink.write(data)
        self._size += len(data)

    def _write_chunk(self, name: str, column: Column, rows: int) -> tuple[Value, int]:
        """A dictionary, if there is one, and one page of values."""
        codec = PLAIN if len(column.data) + len(column.dictionary) < SMALL else SNAPPY
        begin = self._size
        raw = 0
        encodings = {int(Encoding.RLE), int(column.encoding)}
        if column.entries:
            encodings.add(int(Encoding.PLAIN))
            about = struct({1: i32(column.entries), 2: i32(Encoding.PLAIN)})
            raw += self._write_page(DICTIONARY_PAGE, column.dictionary, codec, about)
        data_begin = self._size
        levels = i32(Encoding.RLE)
        about = struct({1: i32(rows), 2: i32(column.encoding), 3: levels, 4: levels})
        raw += self._write_page(DATA_PAGE, column.data, codec, about)
        extremes = None
        if column.low is not None and column.high is not None:
            extremes = struct({3: i64(column.nulls), 5: binary(column.high), 6: binary(column.low)})
        meta: Fields = {
            1: i32(column.physical),
            2: several(I32, map(i32, sorted(encodings))),
            3: several(BINARY, [binary(name.encode())]),
            4: i32(codec),
            5: i64(rows),
            6: i64(raw),
            7: i64(self._size - begin),
            9: i64(data_begin),
            11: i64(begin) if column.entries else None,
            12: extremes,
        }
        return struct({2: i64(0), 3: struct(meta)}), raw

    def _write_page(self, kind: int, data: bytes, codec: int, about: Value) -> int:
        """Returns how long the page would be if it were not compressed."""
        stored = data if codec == PLAIN else CODEC.compress(data, asbytes=True)
        place = 5 if kind == DATA_PAGE else 7
        _, header = struct({1: i32(kind), 2: i32(len(data)), 3: i32(len(stored)), place: about})
        self._write(header + stored if codec == PLAIN else header)
        if codec != PLAIN:
            self._write(stored)
        return len(header) + len(data)


def element(field: pa.Field) -> Value:
    """What the footer says of a column."""
    converted = logical = None
    if field.type == pa.string():
        converted, logical = i32(0), struct({1: EMPTY})
    elif pa.types.is_timestamp(field.type):
        micros = struct({2: EMPTY})
        converted, logical = i32(10), struct({8: struct({1: flag(True), 2: micros})})
    return struct(
        {
            1: i32(PHYSICAL[field.type]),
            3: i32(OPTIONAL),
            4: binary(field.name.encode()),
            6: converted,
            10: logical,
        }
    )
