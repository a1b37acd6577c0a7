"""A session's rows page by page, each proved to follow from the one before it.

For everything that reads a journal from its beginning: replay, timeline, export.
What is wrong ends the pages and is left in `problem`; nothing is ever skipped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from domain import catalogue
from domain.envelope import Stored
from domain.errors import Corrupt, InvalidOptions
from domain.ports import JournalReader
from recovery.chain import ChainCheck
from recovery.problem import Blocked, problem_of
from recovery.reading import find_row

#: Rows of a page: about a megabyte; fewer would be mostly waiting for the reading thread.
PAGE: Final = 1024

#: Every `type@version` that this library can decode.
KNOWN_TOPICS: Final = frozenset(
    f"{cls.type}@{version}" for cls in catalogue.CATALOGUE.values() for version in range(1, cls.version + 1)
)


class Pages:
    """`async for rows in Pages(reader, session_id)`; afterwards `problem` says why it ended early.

    Args:
        upto: the last sequence to read; None for all.
        known_types: whether an event of an unknown type ends the pages too.
        page: how many rows a page has at most.

    Guarantees: holds one page; `chain` stands at the last row that was given out.
    """

    def __init__(
        self,
        reader: JournalReader,
        session_id: str,
        *,
        upto: int | None = None,
        known_types: bool = True,
        page: int = PAGE,
    ) -> None:
        self._reader, self._upto, self._known_types, self._limit = reader, upto, known_types, page
        self.chain = ChainCheck(session_id)
        self.problem: Blocked | None = None

    async def __aiter__(self) -> AsyncIterator[list[Stored]]:
        """The rows.

        Raises:
            SessionNotFound, InvalidOptions, StoreFailure.
        """
        row, problem = await find_row(self._reader, self.chain.session_id)
        if self._upto is not None and not 1 <= self._upto <= row.sequence:
            raise InvalidOptions("a sequence", f"1 to {row.sequence}", self._upto)
        last = self._upto or row.sequence
        while self.problem is None and self.chain.sequence < last:
            rows = await self._page(last)
            if rows:
                yield rows
        if self.problem is None and self._upto is None:
            self.problem = problem or self._end(row.head, row.sequence)

    async def _page(self, last: int) -> list[Stored]:
        after = self.chain.sequence
        try:
            rows = await self._reader.read(self.chain.session_id, after=after, upto=last, limit=self._limit)
        except Corrupt as e:  # one row of the page is no row: those before it are good
            bad = problem_of(e, None, after + 1)
            rows = await self._before(bad.sequence)
            return self._fitting(rows, bad)
        if not rows:
            self.problem = Blocked("sequence", after + 1, f"events up to {last}", "none")
        return self._fitting(list(rows), None)

    async def _before(self, sequence: int) -> list[Stored]:
        after = self.chain.sequence
        if sequence <= after + 1:
            return []
        return list(
            await self._reader.read(self.chain.session_id, after=after, upto=sequence - 1, limit=self._limit)
        )

    def _fitting(self, rows: list[Stored], otherwise: Blocked | None) -> list[Stored]:
        for position, row in enumerate(rows):
            if self._known_types and row.topic not in KNOWN_TOPICS:
                self.problem = unknown_type(row)
                return rows[:position]
            try:
                self.chain.follow(row)
            except Corrupt as e:
                self.problem = problem_of(e, row, self.chain.sequence + 1)
                return rows[:position]
        self.problem = self.problem or otherwise
        return rows

    def _end(self, head: bytes, sequence: int) -> Blocked | None:
        chain = self.chain
        if chain.head != head:
            return Blocked("head", sequence, f"the session row's {head.hex()}", chain.head.hex())
        if not chain.is_whole:
            expected = f"{chain.size} events of command {chain.command_id}"
            return Blocked("cut", sequence + 1, expected, f"{chain.index + 1} of them")
        return None


def unknown_type(row: Stored) -> Blocked:
    """The problem of a row whose type or version is not of this library."""
    known = "a type of this version's catalogue"
    return Blocked("event type", row.sequence, known, row.topic, newer=True)
