"""What a PostgreSQL server says about itself and a journal: for `minutebook doctor`. Nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from adapters import postgres_schema
from adapters.postgres_address import address, checked_schema
from adapters.postgres_connections import Opening, check_journal, connect
from adapters.postgres_driver import Connection
from adapters.postgres_errors import read_error
from domain import catalogue
from domain.references import MARKS, blob_digests, may_refer

TIMEOUT_S: Final = 15.0
#: What keeps an acknowledged commit: (a setting, the value it must not have).
_DURABLE: Final = (("fsync", "off"), ("full_page_writes", "off"), ("synchronous_commit", "off"))
_SERVER: Final = (
    "SELECT current_setting('server_version') AS version, pg_is_in_recovery() AS standby, "
    "current_setting('fsync') AS fsync, current_setting('full_page_writes') AS full_page_writes, "
    "current_setting('synchronous_commit') AS synchronous_commit, "
    "clock_timestamp() AS now"
)
_WITH_BLOBS: Final = (
    "SELECT topic, originator_version, payload FROM {s}.minutebook_events "
    "WHERE split_part(topic, '@', 1) = ANY(%s) AND payload IS NOT NULL"
)
_BLOBS: Final = "SELECT digest FROM {s}.minutebook_blobs"


@dataclass(frozen=True, slots=True)
class ServerSurvey:
    """Facts; the fields are those of `minutebook.doctor.ServerFacts`."""

    name: str
    version: str
    format_version: int
    standby: bool
    not_durable: tuple[str, ...]
    clock_ahead_s: float
    orphaned_blobs: tuple[str, ...]


def survey(url: str, *, schema: str) -> ServerSurvey:
    """Read a journal's facts. Blocks.

    Raises:
        InvalidOptions, NotAJournal, NewerFormat, StoreFailure: it could not be read.
    """
    opening = Opening(address(url), checked_schema(schema), TIMEOUT_S, writes=False, standby_will_do=True)
    try:
        connection = connect(opening)
        try:
            check_journal(connection, opening)
            return _survey(connection, opening)
        finally:
            connection.close()
    except Exception as e:
        raise read_error(opening.name, e) from (e.__cause__ or e)


def _survey(connection: Connection, opening: Opening) -> ServerSurvey:
    asked = datetime.now(UTC)
    found: dict[str, Any] = connection.execute(_SERVER).fetchone() or {}
    return ServerSurvey(
        name=opening.name,
        version=found["version"],
        format_version=postgres_schema.FORMAT_VERSION,
        standby=found["standby"],
        not_durable=tuple(f"{name}={value}" for name, value in _DURABLE if found[name] == value),
        clock_ahead_s=(found["now"] - asked).total_seconds(),
        orphaned_blobs=tuple(_orphans(connection, opening.schema)),
    )


def _orphans(connection: Connection, schema: str) -> list[str]:
    kept = {row["digest"] for row in connection.execute(_BLOBS.format(s=schema).encode())}
    for digest in _referred_to(connection, schema) if kept else ():
        kept.discard(digest)
    return sorted(kept)


def _referred_to(connection: Connection, schema: str) -> Iterator[str]:
    rows = connection.execute(_WITH_BLOBS.format(s=schema).encode(), (list(MARKS),))
    for row in rows:
        if may_refer(row["topic"], row["payload"]):
            type_, _, number = row["topic"].partition("@")
            event = catalogue.decode(type_, int(number), row["payload"], row["originator_version"])
            yield from blob_digests(event)
