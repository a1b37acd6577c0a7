"""How quickly a journal's rows can be read and decoded by the engines alone."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import orjson

from adapters.sqlite_driver import sqlite
from bench.conversations import Place
from bench.journals import SESSION
from bench.workload import Metrics
from domain.catalogue import CATALOGUE

Row = tuple[str, bytes, bytes, bytes]


def probe(place: Place, *, journal: str) -> Metrics:
    """Events in a second over one session: bare rows, decoded, hashed, validated."""
    rows = _Rows(place.journals[journal])
    return {
        "read_per_s": rows.rate(lambda _: None),
        "loads_per_s": rows.rate(_loads),
        "chain_per_s": rows.rate(_Chain().add),
        "pydantic_per_s": rows.rate(_validate),
        "events": rows.count,
    }


class _Rows:
    def __init__(self, file: str) -> None:
        self._file = file
        self.count = 0

    def rate(self, action: Callable[[Row], object]) -> float:
        start, self.count = time.perf_counter(), 0
        for row in self._all():
            action(row)
            self.count += 1
        return self.count / (time.perf_counter() - start)

    def _all(self) -> Iterator[Row]:
        connection = sqlite.connect(f"file:{self._file}?mode=ro", uri=True)
        query = (
            "SELECT topic, state, payload, salt FROM minutebook_events "
            "WHERE originator_id = ? ORDER BY originator_version"
        )
        yield from connection.execute(query, (SESSION,))
        connection.close()


def _loads(row: Row) -> tuple[Any, Any]:
    return orjson.loads(row[1]), orjson.loads(row[2])


class _Chain:
    """Decoded, and hashed as a journal's proof needs it: content, leaf and head."""

    def __init__(self) -> None:
        self._head = bytes(32)

    def add(self, row: Row) -> None:
        _loads(row)
        hashlib.sha256(row[3] + row[2]).digest()
        leaf = hashlib.sha256(row[1]).digest()
        self._head = hashlib.sha256(self._head + leaf).digest()


def _validate(row: Row) -> object:
    orjson.loads(row[1])
    return CATALOGUE[row[0].partition("@")[0]].model_validate_json(row[2])
