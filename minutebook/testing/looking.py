"""Reading a journal in a test: its events, proved; its model attempts, to be played again.

    events = await journal_of(session)
    provider = await replay_of("journal.db", "order-17")

Nothing here writes.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from domain import catalogue
from domain import events as ev
from domain.envelope import Recorded
from domain.errors import InvalidOptions, ModelFailed, SessionNotFound
from domain.model_ports import Block, DeclaredCall, Response
from domain.ports import JournalReader, StoreDescription
from minutebook.session import Session
from minutebook.testing.replay import ReplayProvider
from recovery.stores import open_reader
from recovery.verify import Result, verify

PAGE = 256

#: An open session, a store, or the path of a journal file or of an export.
Source = Session | StoreDescription | str | os.PathLike[str]


async def journal_of(source: Source, session_id: str | None = None) -> list[Recorded]:
    """Every event of a session, decoded, after the whole of it was verified.

    Args:
        session_id: may be left out for a `Session`, and where the journal has only one.

    Raises:
        AssertionError: the journal is not what its rules allow; says what is wrong first.
        SessionNotFound, InvalidOptions: no such session, or several to choose from.
    """
    async with _reader(source) as reader:
        session_id = await _session(reader, source, session_id)
        found = await verify(reader, session_id)
        assert found.result is Result.CONSISTENT, f"{session_id}: {found.problems[0]}"
        return await _events(reader, session_id)


async def replay_of(source: Source, session_id: str | None = None) -> ReplayProvider:
    """A provider that answers as a recorded session's model did, attempt by attempt.

    A new session that is given the same inputs takes the same way. What a session asks
    beyond the recording fails with ReplayMiss; so does an attempt whose end is not on record.

    Args:
        session_id: as for `journal_of`.

    Raises:
        AssertionError, SessionNotFound, InvalidOptions: as for `journal_of`.
    """
    ends: dict[str, Response | ModelFailed] = {}
    for event in await journal_of(source, session_id):
        end = _end(event)
        if end is not None and event.model_attempt_id is not None:
            ends[event.model_attempt_id] = end
    return ReplayProvider(ends)


@asynccontextmanager
async def _reader(source: Source) -> AsyncIterator[JournalReader]:
    if isinstance(source, Session):
        yield source._parts.journal
    elif isinstance(source, str | os.PathLike):
        async with open_reader(os.fspath(source)) as reader:
            yield reader
    else:
        async with source.open() as journal:
            yield journal


async def _session(reader: JournalReader, source: Source, session_id: str | None) -> str:
    if isinstance(source, Session):
        return source.id
    if session_id is not None:
        return session_id
    rows = await reader.sessions(limit=2)
    if not rows:
        raise SessionNotFound("(any)", reader.name)
    if len(rows) > 1:
        raise InvalidOptions("session_id", "the id of one: the journal has several sessions", None)
    return rows[0].session_id


async def _events(reader: JournalReader, session_id: str) -> list[Recorded]:
    events: list[Recorded] = []
    while rows := await reader.read(session_id, after=len(events), limit=PAGE):
        events += [catalogue.open_stored(row) for row in rows]
    return events


def _end(event: Recorded) -> Response | ModelFailed | None:
    match event.data:
        case ev.ModelRequestCompleted() as completed:
            return _response(completed.response)
        case ev.ModelOutcomeReconciled(response=ev.ResponseKept() as kept):
            return _response(kept)
        case ev.ModelRequestFailed() as failed:
            return ModelFailed(
                failed.error_code,
                failed.message,
                retryable=failed.retryable,
                bytes_sent=failed.bytes_sent,
                retry_after_s=failed.retry_after_s,
                received_digest=failed.received_digest,
            )
    return None


def _response(kept: ev.ResponseKept) -> Response:
    return Response(
        tuple(Block(block.kind, block.text, block.format) for block in kept.blocks),
        _calls(kept.calls),
        kept.stop,
        dict(kept.usage),
        dict(kept.provider_ids),
    )


def _calls(kept: Sequence[ev.CallDeclared]) -> tuple[DeclaredCall, ...]:
    return tuple(DeclaredCall(call.provider_call_id, call.name, call.arguments) for call in kept)
