"""One connection to PostgreSQL, and the shortest way to ask something over it again and again.

Imported by the PostgreSQL modules. A statement is prepared once on a connection; then only its
values travel, as bytes that the server reads as they are. The driver's own way to do so looks
at every value and its type each time, which more than doubles the work of a commit here.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer

_PLACE: Final = re.compile(rb"%\((\w+)\)s")
_ANSWERED: Final = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK)
_LONG: Final = struct.Struct(">q").pack
_LENGTH: Final = struct.Struct(">i").pack
_NULL: Final = _LENGTH(-1)
#: An array begins with: dimensions, whether it may hold NULL, type and number of its values, first place.
_ARRAY: Final = struct.Struct(">iiIii").pack
_TEXT_TYPE, _BYTEA_TYPE = 25, 17
_SERVER_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)

Row = dict[str, Any]
Value = str | int | bytes | datetime | None


class _Prepared(NamedTuple):
    """What a statement is called on a connection, and which values it takes in which order."""

    name: bytes
    places: tuple[str, ...]


class Connection(psycopg.Connection[Row]):
    """The driver's connection, which knows what is prepared on it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._known: dict[bytes, _Prepared] = {}

    def ask(self, statement: bytes, values: Mapping[str, Value]) -> list[Row]:
        """The rows that a statement gives; one trip to the server, and one more the first time.

        Args:
            statement: with `%(name)s` where a value belongs. The server has to see from the place of
                each one of which type it is: a cast says so where nothing else does.
            values: by name; more than there are places for do no harm.

        Raises:
            psycopg.Error: the server's error, or that the line is gone.
        """
        known = self._known.get(statement) or self._prepare(statement)
        sent: list[Any] = [_encoded(values[place]) for place in known.places]
        formats = [pq.Format.BINARY] * len(sent)
        result = self._checked(self.pgconn.exec_prepared(known.name, sent, formats, pq.Format.BINARY))
        rows = Transformer(self)
        rows.set_pgresult(result)
        names = [(result.fname(n) or b"").decode() for n in range(result.nfields)]
        return rows.load_rows(0, result.ntuples, lambda row: dict(zip(names, row, strict=True)))

    def _prepare(self, statement: bytes) -> _Prepared:
        numbered, places = _numbered(statement)
        known = _Prepared(b"minutebook_%d" % len(self._known), places)
        self._checked(self.pgconn.prepare(known.name, numbered))
        self._known[statement] = known
        return known

    def _checked(self, result: pq.abc.PGresult) -> pq.abc.PGresult:
        if result.status in _ANSWERED:
            return result
        if self.pgconn.status != pq.ConnStatus.OK:
            # The result says only that the line is gone; what the server said before is told here.
            raise psycopg.OperationalError(self.pgconn.error_message.decode(errors="replace"))
        raise psycopg.errors.error_from_result(result)


def texts(values: Sequence[str]) -> bytes:
    """Texts as one value of the type `text[]`."""
    return _array(_TEXT_TYPE, [value.encode() for value in values])


def byteas(values: Sequence[bytes | None]) -> bytes:
    """Bytes as one value of the type `bytea[]`."""
    return _array(_BYTEA_TYPE, values)


def _array(kind: int, values: Sequence[bytes | None]) -> bytes:
    parts = [_ARRAY(1, 1, kind, len(values), 1)]
    for value in values:
        parts += (_NULL,) if value is None else (_LENGTH(len(value)), value)
    return b"".join(parts)


def _encoded(value: Value) -> bytes | None:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, int):
        return _LONG(value)
    if isinstance(value, datetime):
        return _LONG((value - _SERVER_EPOCH) // timedelta(microseconds=1))
    return value


@functools.lru_cache(maxsize=256)
def _numbered(statement: bytes) -> tuple[bytes, tuple[str, ...]]:
    """A statement with `$1`, `$2` for its places, and whose places they are."""
    places = list(dict.fromkeys(_PLACE.findall(statement)))
    numbered = _PLACE.sub(lambda found: b"$%d" % (places.index(found[1]) + 1), statement)
    return numbered, tuple(place.decode() for place in places)
