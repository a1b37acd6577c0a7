"""Journals for tests of everything that reads them: kept in memory, counted, tampered with."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from adapters.memory_journal import MemoryStore
from domain import canonical, inputs, model_attempt, permission, request, session, tool
from domain.decider import EndRequest
from domain.envelope import Stored, genesis, link
from domain.errors import ModelFailed
from domain.ports import Journal, JournalReader, LeaseRow, Receipt, SessionRow, Snapshot
from domain.values import Priority, Verdict
from minutebook.testing.keeping import batches, keep
from minutebook.testing.scenario import (
    LOOK,
    PAY,
    PUT,
    SETTINGS,
    Commit,
    Scenario,
    Writing,
    accepted,
    created,
    evaluated,
    in_call,
    responded,
    running,
    scheduled,
    started,
)

#: A text in which everything is that a terminal must not be given.
HOSTILE = "\x1b[31mred\x1b]0;title\x07 \u202eturned\u202c \u200bhidden\u2066 \x9b2J \x00 [bold]markup[/bold]"


@asynccontextmanager
async def kept(*scenarios: Scenario) -> AsyncIterator[Journal]:
    """A journal in memory that holds these sessions."""
    async with MemoryStore().open() as journal:
        for scenario in scenarios:
            await keep(journal, scenario)
        yield journal


def session_of(*commits: Commit, session_id: str = "s-test") -> Scenario:
    """A session with these commits."""
    return Scenario(session_id).given(*commits)


BEGUN: tuple[Commit, ...] = (created(), accepted(), started())


def lost_attempt(session_id: str = "s-lost") -> Scenario:
    """A request was sent and nothing is known of its end."""
    return session_of(*BEGUN, session_id=session_id)


def lost_payment(session_id: str = "s-pay") -> Scenario:
    """A call that is not idempotent was started and nothing is known of its end."""
    return session_of(
        *BEGUN, responded(PAY), [scheduled(0, PAY), evaluated(0), running(0)], session_id=session_id
    )


def asking(session_id: str = "s-ask", summary: str = "pay 5 cents?") -> Scenario:
    """A call waits for a person."""
    question = [scheduled(0, PAY), evaluated(0, Verdict.ASK), *in_call(0, permission.Ask(summary))]
    return session_of(*BEGUN, responded(PAY), question, session_id=session_id)


def suspended(session_id: str = "s-wait") -> Scenario:
    """A call waits for an answer."""
    return session_of(
        *BEGUN,
        responded(PUT),
        [scheduled(0, PUT), evaluated(0), running(0)],
        in_call(0, tool.Suspend({"need": "a code"}, {"type": "string"})),
        session_id=session_id,
    )


def three_calls(session_id: str = "s-three") -> Scenario:
    """One call may run again, one waits for a person, one has not been looked at; an input is queued."""
    return session_of(
        *BEGUN,
        responded(LOOK, PAY, PUT, text="on it"),
        [scheduled(0, LOOK), scheduled(1, PAY), scheduled(2, PUT)],
        [evaluated(0), running(0)],
        [evaluated(1, Verdict.ASK), *in_call(1, permission.Ask("pay 5 cents?"))],
        inputs.AcceptInput("i-2", "and then this", Priority.LATER, 2),
        session_id=session_id,
    )


def unsettled(session_id: str = "s-left") -> Scenario:
    """A request was abandoned over a started payment."""
    return lost_payment(session_id).given(
        [EndRequest("abandoned", request.Interrupt("abandoned", evidence="ticket 4"))]
    )


def lost_hooks(session_id: str = "s-hooks") -> Scenario:
    """A hook had begun with the input of a request, and nothing is known of its end."""
    begun: list[Writing] = [
        inputs.ApplyInput("i-1", Priority.NEXT, 1),
        request.StartRequest(),
        inputs.BeginPreparation(("i-1",), ("hook",)),
    ]
    return session_of(created(), accepted(), begun, session_id=session_id)


def foreign(session_id: str = "s-foreign") -> Scenario:
    """A request was accepted under settings that the journal does not hold."""
    changed = SETTINGS.changed({"model": "another"})
    return session_of(created(), accepted(settings=changed), session_id=session_id)


def retryable(session_id: str = "s-again") -> Scenario:
    """An attempt failed, and another one is due: a turn that can be rolled over."""
    failed = model_attempt.Fail(ModelFailed("overloaded", "try later", retryable=True))
    return session_of(*BEGUN, failed, session_id=session_id)


def failed_attempt(session_id: str = "s-failed") -> Scenario:
    """The only attempt failed for good, so that the request has to fail."""
    return session_of(*BEGUN, model_attempt.Reconcile("failed", "the provider's log"), session_id=session_id)


@functools.cache
def long(events: int, session_id: str = "s-long", *, per_commit: int = 20) -> Scenario:
    """A session of about that many events. It is shared: add nothing to it."""
    scenario = session_of(created(), session_id=session_id)
    while len(scenario.events) < events:
        number = len(scenario.events)
        scenario.given([session.Note("filler", f"note {number + i}") for i in range(per_commit)])
    return scenario


Alter = Callable[[Stored], Stored | None]


@dataclass
class Altered:
    """A reader that shows another one's rows changed, and counts what it is asked for.

    Args:
        alter: gives the row to show, or None to leave it out.
        row: gives the session row to show.
        snapshots: gives the snapshot to show.
    """

    reader: JournalReader
    alter: Alter = lambda row: row
    row: Callable[[SessionRow], SessionRow] = lambda row: row
    snapshots: Callable[[Snapshot], Snapshot | None] = lambda kept: kept
    rows_read: int = 0
    snapshots_read: int = 0
    asked: list[tuple[int, int | None]] = field(default_factory=list)
    largest_page: int = 0

    @property
    def name(self) -> str:
        return "altered"

    async def session(self, session_id: str) -> SessionRow | None:
        found = await self.reader.session(session_id)
        return self.row(found) if found else None

    async def sessions(self, *, after: str = "", limit: int = 100) -> Sequence[SessionRow]:
        return [self.row(row) for row in await self.reader.sessions(after=after, limit=limit)]

    async def read(
        self, session_id: str, *, after: int = 0, upto: int | None = None, limit: int = 256
    ) -> Sequence[Stored]:
        self.asked.append((after, upto))
        self.largest_page = max(self.largest_page, limit)
        rows = await self.reader.read(session_id, after=after, upto=upto, limit=limit)
        shown = [row for row in map(self.alter, rows) if row is not None]
        self.rows_read += len(shown)
        return shown

    async def snapshot(self, session_id: str, *, upto: int | None = None) -> Snapshot | None:
        self.snapshots_read += 1
        found = await self.reader.snapshot(session_id, upto=upto)
        return self.snapshots(found) if found else None

    async def blob(self, digest: str) -> bytes | None:
        return await self.reader.blob(digest)

    async def command(self, session_id: str, command_id: str) -> tuple[bytes, Receipt] | None:
        return await self.reader.command(session_id, command_id)

    async def commands(
        self, session_id: str, command_ids: Sequence[str]
    ) -> Mapping[str, tuple[bytes, Receipt]]:
        found = {each: await self.command(session_id, each) for each in command_ids}
        return {each: kept for each, kept in found.items() if kept is not None}

    async def lease_lives(self, lease: LeaseRow) -> bool:
        return await self.reader.lease_lives(lease)


def at(sequence: int, change: Callable[[Stored], Stored | None]) -> Alter:
    """Change one row and leave the others."""
    return lambda row: change(row) if row.sequence == sequence else row


def flipped(data: bytes, position: int = -2) -> bytes:
    """The same bytes but one bit."""
    changed = bytearray(data)
    changed[position] ^= 1
    return bytes(changed)


def with_payload(payload: bytes) -> Callable[[Stored], Stored]:
    """A row with other content, everything else as it was."""
    return lambda row: replace(row, payload=payload)


def resealed(rows: Sequence[Stored], sequence: int, topic: str | None = None, **fields: Any) -> list[Stored]:
    """The rows with fields of one envelope changed and the chain made again behind it.

    Args:
        fields: of the envelope's own JSON; `topic`: of the row.
    """
    made, head = [], genesis(rows[0].session_id)
    for row in rows:
        if row.sequence == sequence:
            envelope = canonical.encode({**orjson.loads(row.envelope), **fields})
            row = replace(row, envelope=envelope, topic=topic or row.topic)
        head = link(head, row.envelope)
        made.append(replace(row, head=head))
    return made


@asynccontextmanager
async def kept_rows(scenario: Scenario, rows: Sequence[Stored]) -> AsyncIterator[Journal]:
    """A journal in memory that holds these rows, in the commits of a scenario of the same length."""
    async with MemoryStore().open() as journal:
        head = genesis(rows[0].session_id)
        for batch in batches(scenario.entries):
            events = tuple(rows[event.sequence - 1] for event in batch.events)
            await journal.commit(replace(batch, events=events, expected_head=head, snapshot=None))
            head = events[-1].head
        yield journal
