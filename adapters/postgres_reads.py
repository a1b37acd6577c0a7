"""The reading half of the journal port over PostgreSQL.

Imported by the journal and by the reader that only looks. Nothing here runs SQL:
calls are handed to threads, so that no server can hold up an event loop.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

from adapters import lease_rules, postgres_rows
from adapters.lease_rules import Instant
from adapters.postgres_connections import Opening
from adapters.postgres_driver import Connection
from adapters.system import holder_is_dead
from domain.envelope import Stored
from domain.ports import LeaseRow, Receipt, SessionRow, Snapshot

T = TypeVar("T")


class PostgresReads(ABC):
    """`domain.ports.JournalReader`; whoever inherits says how to `look`.

    Args:
        owner_id: whose sessions to show; None: everybody's.
    """

    def __init__(self, opening: Opening, owner_id: str | None) -> None:
        self._opening = opening
        self._schema = opening.schema
        self._owner_id = owner_id

    @property
    def name(self) -> str:
        """What to call this store in a message."""
        return self._opening.name

    @abstractmethod
    async def look(self, read: Callable[[Connection], T]) -> T:
        """Have a reading thread do something."""

    async def session(self, session_id: str) -> SessionRow | None:
        """One session's row, or None. Raises Corrupt if it contradicts the last event."""
        schema, owner = self._schema, self._owner_id
        return await self.look(lambda c: postgres_rows.find_session(c, schema, owner, session_id))

    async def sessions(self, *, after: str = "", limit: int = 100) -> Sequence[SessionRow]:
        """Session rows by id, those after `after`."""
        schema, owner = self._schema, self._owner_id
        return await self.look(lambda c: postgres_rows.list_sessions(c, schema, owner, after, limit))

    async def read(
        self, session_id: str, *, after: int = 0, upto: int | None = None, limit: int = 256
    ) -> Sequence[Stored]:
        """Rows with `after < sequence <= upto`, in order, at most `limit`."""
        schema, owner = self._schema, self._owner_id
        return await self.look(
            lambda c: postgres_rows.read_events(c, schema, owner, session_id, after, upto, limit)
        )

    async def snapshot(self, session_id: str, *, upto: int | None = None) -> Snapshot | None:
        """The latest snapshot at or before `upto`."""
        schema, owner = self._schema, self._owner_id
        return await self.look(lambda c: postgres_rows.find_snapshot(c, schema, owner, session_id, upto))

    async def blob(self, digest: str) -> bytes | None:
        """A blob's bytes, or None."""
        return await self.look(lambda c: postgres_rows.find_blob(c, self._schema, digest))

    async def blobs(self, *, after: str = "", limit: int = 1000) -> Sequence[str]:
        """The digests of blobs, those after `after`."""
        return await self.look(lambda c: postgres_rows.list_blobs(c, self._schema, after, limit))

    def now(self) -> datetime | None:
        """A test's clock; None: the database's own."""
        return None

    async def lease_lives(self, lease: LeaseRow) -> bool:
        """Whether a lease holds now, by the database's clock."""
        at = Instant(await self.look(lambda c: postgres_rows.now(c, self.now())))
        return lease_rules.lives(lease, at, holder_is_dead)

    async def command(self, session_id: str, command_id: str) -> tuple[bytes, Receipt] | None:
        """The fingerprint and receipt of a command that is in the journal, or None."""
        return (await self.commands(session_id, [command_id])).get(command_id)

    async def commands(
        self, session_id: str, command_ids: Sequence[str]
    ) -> Mapping[str, tuple[bytes, Receipt]]:
        """What `command` gives, for many commands at once; those that are there."""
        schema, owner = self._schema, self._owner_id
        return await self.look(
            lambda c: postgres_rows.find_commands(c, schema, owner, session_id, command_ids)
        )
