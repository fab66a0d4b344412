# ruff: noqa: S608 - the names put into statements are constants of this file.
"""Batches in a SQLite database, one transaction each.

The broker holds all of it in memory and reads the database only at its start, so there is one
connection, no index but the primary keys, and no query but `SELECT *`.

Python's sqlite3 lets go of the interpreter's lock during each step of a statement and must get it
back after each, from a broker thread that is busy and does not like to give it. So the number of
steps is what counts, not the number of rows: rows are inserted many per statement, and what is
dropped is named in one JSON array (docs/decisions/0005-storage.md has the figures).
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import astuple

from headgate.core.journal import (
    Saved,
    StoredDelivery,
    StoredMessage,
    StoredSession,
    StoredSubscription,
    StoredWill,
)
from headgate.errors import StorageError
from headgate.server.store.changes import Changes
from headgate.server.store.lock import DirectoryLock
from headgate.server.store.store import Durability, Store

APPLICATION_ID = 0x48474154  # "HGAT"
SCHEMA_VERSION = 1

_MESSAGE = """
    key INTEGER NOT NULL, topic BLOB NOT NULL, payload BLOB NOT NULL, properties BLOB NOT NULL,
    qos INTEGER NOT NULL, retain INTEGER NOT NULL, rank INTEGER NOT NULL, expires REAL NOT NULL,
    arrived REAL NOT NULL, sender TEXT NOT NULL"""

SCHEMA = f"""
CREATE TABLE session (
    client_id TEXT PRIMARY KEY, user TEXT, expiry INTEGER NOT NULL, ends REAL NOT NULL);
CREATE TABLE subscription (
    client_id TEXT, filter TEXT, qos INTEGER NOT NULL, no_local INTEGER NOT NULL,
    retain_as_published INTEGER NOT NULL, retain_handling INTEGER NOT NULL,
    identifier INTEGER NOT NULL, PRIMARY KEY (client_id, filter));
CREATE TABLE message ({_MESSAGE}, PRIMARY KEY (key));
CREATE TABLE delivery (
    client_id TEXT, sequence INTEGER, message INTEGER NOT NULL, filter TEXT NOT NULL,
    qos INTEGER NOT NULL, packet_id INTEGER NOT NULL, released INTEGER NOT NULL,
    retain INTEGER NOT NULL, PRIMARY KEY (client_id, sequence)) WITHOUT ROWID;
CREATE TABLE received (
    client_id TEXT, packet_id INTEGER, PRIMARY KEY (client_id, packet_id)) WITHOUT ROWID;
CREATE TABLE retained ({_MESSAGE}, PRIMARY KEY (topic));
CREATE TABLE will (
    client_id TEXT PRIMARY KEY, due REAL NOT NULL, delay INTEGER NOT NULL, {_MESSAGE});
CREATE TABLE value (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE reserved (last_key INTEGER NOT NULL);
INSERT INTO reserved VALUES (0);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
"""

ROWS_PER_STATEMENT = 1000
"""Times the widest table's columns: well below SQLite's 32,766 parameters."""
CHECKPOINT_PAGES = 2000
"""Size of the write-ahead log at which the writer moves it into the database: 8 MB."""
SHRINK_PAGES = 16384
"""A database with this many unused pages (64 MB) that are most of it is shrunk at the start."""


class SqliteFile:
    """The database `path`, alone in its directory's lock."""

    def __init__(self, path: Path, durability: Durability) -> None:
        self._path = path
        self._lock = DirectoryLock(path.parent)
        try:
            self._database = _open(path, durability)
        except BaseException:
            self._lock.release()
            raise

    def load(self) -> Saved:
        try:
            return _read(self._database)
        except (sqlite3.Error, TypeError, ValueError) as error:
            raise StorageError(
                f"{self._path} is damaged: {error}; restore a copy or move it away to start empty"
            ) from error

    def apply(self, changes: Changes) -> None:
        database = self._database
        try:
            database.execute("BEGIN IMMEDIATE")
            _drop(database, changes)
            _progress(database, changes)
            _save(database, changes)
            database.execute("COMMIT")
        except sqlite3.Error as error:
            with contextlib.suppress(sqlite3.Error):
                database.execute("ROLLBACK")
            raise StorageError(f"{self._path} could not be written: {error}") from error

    def close(self) -> None:
        # Closing moves the write-ahead log into the database. If that fails, the log stays.
        with contextlib.suppress(sqlite3.Error):
            self._database.close()
        self._lock.release()


def _open(path: Path, durability: Durability) -> sqlite3.Connection:
    database = None
    try:
        database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        _check(path, database)
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("PRAGMA journal_mode = WAL")
        # NORMAL syncs at checkpoints only: a power cut then takes the newest commits, never the
        # database. OFF would be no faster between checkpoints and could lose it all.
        mode = "FULL" if durability == "fsync" else "NORMAL"
        database.execute(f"PRAGMA synchronous = {mode}")
        database.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
        _shrink(database)
    except BaseException as error:
        if database is not None:
            database.close()
        if isinstance(error, sqlite3.Error):
            raise StorageError(f"{path} cannot be opened as a database: {error}") from error
        raise
    return database


def _check(path: Path, database: sqlite3.Connection) -> None:
    """Is it ours and of our version? An empty file becomes so."""
    (application,) = database.execute("PRAGMA application_id").fetchone()
    (version,) = database.execute("PRAGMA user_version").fetchone()
    (tables,) = database.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not (application or version or tables):
        database.executescript(f"BEGIN; {SCHEMA} COMMIT;")
    elif application != APPLICATION_ID:
        raise StorageError(f"{path} is a database of another program, not of Headgate")
    elif version > SCHEMA_VERSION:
        raise StorageError(
            f"{path} was written by a newer Headgate (schema {version}; this one knows"
            f" {SCHEMA_VERSION}): use that version or newer"
        )


def _shrink(database: sqlite3.Connection) -> None:
    """Pages that became free are used again; after a past peak, most of the file may be free."""
    (unused,) = database.execute("PRAGMA freelist_count").fetchone()
    (pages,) = database.execute("PRAGMA page_count").fetchone()
    if unused > SHRINK_PAGES and unused > pages // 2:
        database.execute("VACUUM")


def _drop(database: sqlite3.Connection, changes: Changes) -> None:
    if changes.dropped_sessions:
        clients = _json(list(changes.dropped_sessions))
        for table in ("session", "subscription", "delivery", "received", "will"):
            database.execute(
                f"DELETE FROM {table} WHERE client_id IN (SELECT value FROM json_each(?))",
                (clients,),
            )
    _drop_pairs(database, "delivery", "sequence", changes.dropped_deliveries)
    _drop_pairs(database, "subscription", "filter", changes.dropped_subscriptions)
    _drop_pairs(database, "received", "packet_id", changes.dropped_received)
    if changes.dropped_messages:
        database.execute(
            "DELETE FROM message WHERE key IN (SELECT value FROM json_each(?))",
            (_json(changes.dropped_messages),),
        )
    if changes.dropped_wills:
        database.execute(
            "DELETE FROM will WHERE client_id IN (SELECT value FROM json_each(?))",
            (_json(list(changes.dropped_wills)),),
        )
    if changes.dropped_retained:
        # Topics are bytes, which JSON has no word for.
        database.executemany(
            "DELETE FROM retained WHERE topic = ?", ((topic,) for topic in changes.dropped_retained)
        )


def _drop_pairs(
    database: sqlite3.Connection,
    table: str,
    column: str,
    by_client: dict[str, list[int]] | dict[str, set[int]] | dict[str, set[str]],
) -> None:
    pairs = [(client_id, key) for client_id, keys in by_client.items() for key in keys]
    if pairs:
        database.execute(
            f"DELETE FROM {table} WHERE (client_id, {column}) IN ("
            "SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?))",
            (_json(pairs),),
        )


def _progress(database: sqlite3.Connection, changes: Changes) -> None:
    rows = [
        (client_id, sequence, progress.packet_id, progress.released)
        for client_id, stored in changes.progress.items()
        for sequence, progress in stored.items()
    ]
    if rows:
        database.execute(
            """
            UPDATE delivery
            SET packet_id = coalesce(new.packet_id, delivery.packet_id),
                released = max(new.released, delivery.released)
            FROM (
                SELECT json_extract(value, '$[0]') AS client_id,
                    json_extract(value, '$[1]') AS sequence,
                    json_extract(value, '$[2]') AS packet_id,
                    json_extract(value, '$[3]') AS released
                FROM json_each(?)) AS new
            WHERE delivery.client_id = new.client_id AND delivery.sequence = new.sequence
            """,
            (_json(rows),),
        )


def _save(database: sqlite3.Connection, changes: Changes) -> None:
    if changes.reserved_key:
        database.execute("UPDATE reserved SET last_key = max(last_key, ?)", (changes.reserved_key,))
    _insert(database, "session", map(astuple, changes.saved_sessions.values()))
    _insert(database, "subscription", _rows(changes.saved_subscriptions))
    _insert(database, "message", map(astuple, changes.saved_messages.values()))
    _insert(database, "delivery", _rows(changes.saved_deliveries))
    _insert(
        database,
        "received",
        (
            (client, packet)
            for client, packets in changes.saved_received.items()
            for packet in packets
        ),
    )
    _insert(database, "retained", map(astuple, changes.saved_retained.values()))
    _insert(
        database,
        "will",
        (
            (will.client_id, will.due, will.delay, *astuple(will.message))
            for will in changes.saved_wills.values()
        ),
    )
    _insert(database, "value", changes.saved_values.items())


def _insert(database: sqlite3.Connection, table: str, rows: Iterable[Sequence[object]]) -> None:
    rows = list(rows)
    for start in range(0, len(rows), ROWS_PER_STATEMENT):
        some = rows[start : start + ROWS_PER_STATEMENT]
        row = f"({','.join('?' * len(some[0]))})"
        database.execute(
            f"INSERT OR REPLACE INTO {table} VALUES {','.join([row] * len(some))}",
            list(chain.from_iterable(some)),
        )


def _rows(
    by_client: dict[str, dict[int, StoredDelivery]] | dict[str, dict[str, StoredSubscription]],
) -> Iterable[Sequence[object]]:
    return map(astuple, chain.from_iterable(of_one.values() for of_one in by_client.values()))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _read(database: sqlite3.Connection) -> Saved:
    select = database.execute
    return Saved(
        sessions=[StoredSession(*row) for row in select("SELECT * FROM session ORDER BY rowid")],
        subscriptions=[
            StoredSubscription(
                client_id, topic_filter, qos, bool(no_local), bool(as_published), handling, number
            )
            for client_id, topic_filter, qos, no_local, as_published, handling, number in select(
                "SELECT * FROM subscription ORDER BY rowid"
            )
        ],
        messages=[_message(row) for row in select("SELECT * FROM message ORDER BY key")],
        deliveries=[
            StoredDelivery(
                client_id,
                sequence,
                message,
                topic_filter,
                qos,
                packet,
                bool(released),
                bool(retain),
            )
            for client_id, sequence, message, topic_filter, qos, packet, released, retain in select(
                "SELECT * FROM delivery ORDER BY client_id, sequence"
            )
        ],
        received=list(select("SELECT * FROM received")),
        retained=[_message(row) for row in select("SELECT * FROM retained ORDER BY rowid")],
        wills=[
            StoredWill(client_id, due, _message(message), delay)
            for client_id, due, delay, *message in select("SELECT * FROM will ORDER BY rowid")
        ],
        values=dict(select("SELECT * FROM value")),
        last_key=select("SELECT last_key FROM reserved").fetchone()[0],
    )


def _message(row: Sequence[Any]) -> StoredMessage:
    key, topic, payload, properties, qos, retain, rank, expires, arrived, sender = row
    return StoredMessage(
        key, topic, payload, properties, qos, bool(retain), rank, expires, arrived, sender
    )


class SqliteStore(Store):
    """A store in the SQLite database `path`."""

    def __init__(
        self,
        path: Path,
        durability: Durability,
        post: Callable[[Callable[[], None]], None],
        on_commit: Callable[[int], None],
        on_failure: Callable[[Exception], None],
    ) -> None:
        super().__init__(SqliteFile(path, durability), durability, post, on_commit, on_failure)
