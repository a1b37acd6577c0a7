"""What the engine says about one journal file: for `minutebook doctor`. Nothing is changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from adapters import sqlite_files, sqlite_rows, sqlite_schema
from adapters.sqlite_driver import sqlite
from adapters.sqlite_errors import read_error
from adapters.sqlite_view import SqliteView
from domain import catalogue
from domain.references import MARKS, blob_digests

TIMEOUT_S: Final = 15.0
#: Where SQLite's header says how the file is written; 2: with a WAL.
_FORMAT_BYTE: Final = 18
_WAL: Final = 2

_WITH_BLOBS: Final = "SELECT topic, originator_version, payload FROM minutebook_events WHERE " + " OR ".join(
    f"(topic LIKE '{type_}@%' AND instr(payload, '{mark.decode()}') > 0)" for type_, mark in MARKS.items()
)


@dataclass(frozen=True, slots=True)
class Survey:
    """One file's facts; the fields are those of `minutebook.doctor.JournalFacts`."""

    format_version: int
    current_version: int
    journal_mode: str
    integrity: tuple[str, ...]
    orphaned_blobs: tuple[str, ...]


def survey(path: str | os.PathLike[str]) -> Survey:
    """Read a journal's facts. Blocks.

    Raises:
        NotAJournal, NewerFormat, Corrupt, StoreFailure: it could not be read.
    """
    real = sqlite_files.resolved(path)
    view = SqliteView(real, TIMEOUT_S)
    try:
        mode = _journal_mode(real)
        return view.look(lambda connection: _survey(connection, mode))
    except sqlite.Error as e:
        raise read_error(sqlite_files.store_name(real), e) from e
    finally:
        view.let_go()


def _survey(connection: sqlite.Connection, mode: str) -> Survey:
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    damage = tuple(sqlite_rows.find_damage(connection))
    kept = {row[0] for row in connection.execute("SELECT digest FROM minutebook_blobs")}
    for digest in _referred_to(connection) if kept else ():
        kept.discard(digest)
    return Survey(version, sqlite_schema.FORMAT_VERSION, mode, damage, tuple(sorted(kept)))


def _referred_to(connection: sqlite.Connection) -> Iterator[str]:
    for topic, sequence, payload in connection.execute(_WITH_BLOBS):
        type_, _, number = topic.partition("@")
        yield from blob_digests(catalogue.decode(type_, int(number), payload, sequence))


def _journal_mode(path: str) -> str:
    # The connection would say what it was opened with; the file says how it is written.
    with open(path, "rb") as file:
        header = file.read(_FORMAT_BYTE + 1)
    return "wal" if header[_FORMAT_BYTE:] == bytes([_WAL]) else "delete"
