"""Stopping requests in tests: what is common to stopping them at any moment and over any tool."""

from __future__ import annotations

import anyio

from domain.envelope import Recorded
from minutebook.session import Session
from minutebook.testing.clock import ManualClock
from tests.session import order
from tests.session.harness import LONG_S

#: Not a heartbeat's time, so that a test can tell who waits.
DEADLINE_S = 7.0


def ended_as(events: list[Recorded], request_id: str = "r1") -> str:
    """The type of a request's end."""
    return next(e.type for e in events if e.request_id == request_id and e.type in order.REQUEST_ENDS)


async def abort(session: Session) -> None:
    with anyio.fail_after(LONG_S):
        await session.abort()


async def hung(session: Session, clock: ManualClock, after: str = "abort_requested") -> None:
    """Abort over a tool that does not stop; its time is over after an event."""
    feed = session.events()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(abort, session)
        await clock.awaited(DEADLINE_S)
        while (await anext(feed)).type != after:
            assert session.is_aborting
        clock.advance(DEADLINE_S)
