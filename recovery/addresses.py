"""What a command's JOURNAL may be besides a file: the address of a journal on a server.

Imported by the command line. Loads no driver and connects to nothing. An address may
hold a password: whatever is printed goes through `shown`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from domain.errors import StoreUnsupported

DEFAULT_SCHEMA: Final = "minutebook"
_SCHEMES: Final = ("postgresql://", "postgres://")
_DRIVERS: Final = ("psycopg", "psycopg_pool")
#: Behind the address, because libpq knows no parameter for it; as no password can end.
_SCHEMA: Final = re.compile(r"(?s)(.*/[^#@]*)#([^#@/?]*)\Z")

#: Hosts with their ports, and a database. What looks otherwise may be a password in the wrong place.
_HOST: Final = r"(?:\[[0-9A-Fa-f:.]*\]|[^\s:/,@#\[\]]*)(?::\d*)?"
_PLACE: Final = re.compile(rf"{_HOST}(?:,{_HOST})*(?:/[^\s:/@#]*)?")


def is_server(journal: str) -> bool:
    """Whether it is the address of a journal in PostgreSQL."""
    return journal.startswith(_SCHEMES)


def parts(journal: str) -> tuple[str, str]:
    """The URL for the driver, and the PostgreSQL schema that holds the tables.

    `postgresql://host/database#name` names the schema, `minutebook` where nothing does.
    """
    found = _SCHEMA.match(journal)
    return (found[1], found[2]) if found else (journal, DEFAULT_SCHEMA)


def shown(journal: str) -> str:
    """A JOURNAL as it may be printed: a path as it is, an address without user, password and query."""
    scheme, separator, _ = journal.partition("://")
    if not separator:
        return journal
    url, schema = parts(journal)
    head, query, tail = url.partition("?")
    place = head.partition("://")[2].rpartition("@")[2]
    if not _PLACE.fullmatch(place) or (query and "@" in tail):
        place = "..."
    return f"{scheme}://{place}" + (f"#{schema}" if schema != DEFAULT_SCHEMA else "")


@contextmanager
def driver_or_refuse() -> Iterator[None]:
    """Around the import of what needs PostgreSQL's driver.

    Raises:
        StoreUnsupported: the driver is not installed; the message says how to.
    """
    try:
        yield
    except ImportError as e:
        if e.name is not None and e.name.partition(".")[0] not in _DRIVERS:
            raise
        told = "expected psycopg 3, which is not installed: pip install 'minutebook[postgres]'"
        raise StoreUnsupported("PostgreSQL", told) from e
