"""Which sessions of a store a worker can go on with at this moment: a query, to be asked again and again.

Imported by users, through `minutebook`. It reads; nothing here takes a lease or
opens a session, so what it gives is a hint, and `resume_session` decides.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from domain.next_steps import MAY_GO_ON, Action
from domain.ports import Journal, SessionRow, StoreDescription
from recovery.plan import Kind, plan_of
from recovery.reading import load

PAGE: Final = 100
_ACTIONS: Final = frozenset(action.value for action in MAY_GO_ON)


async def due_sessions(
    store: StoreDescription, *, owner_id: str = "local", look_up: bool = False
) -> list[str]:
    """The ids of sessions with work that nobody does: something comes next that needs no person, and
    no live worker holds the session.

    A worker asks again and again (`docs/operations.md`, "Workers"). Whether a session is held is
    judged by the store's clock, as taking it would be: a worker that was killed on this host does
    not count, one that is silent does until its lease runs out.

    Args:
        store: `sqlite(path)`, `postgres(url)` or `memory()`.
        look_up: also sessions with a lost model attempt that their provider may know about. Ask so
            where the workers' providers can look responses up (`ProviderConfig.store`).

    Returns:
        Ids in order. A session that somebody took or ended since then is no surprise: resuming it
        raises LeaseConflict or SessionClosed.

    Raises:
        StoreReadFailed, StoreTimeout: the store cannot be asked now. Ask again later.
        StoreFailure: it is no journal of ours, or none yet and cannot be made.
    """
    async with store.open(owner_id=owner_id) as journal:
        return [row.session_id async for row in _free(journal) if await _goes_on(journal, row, look_up)]


async def _free(journal: Journal) -> AsyncIterator[SessionRow]:
    after = ""
    while rows := await journal.leases.free(_ACTIONS, after=after, limit=PAGE):
        for row in rows:
            yield row
        after = rows[-1].session_id


async def _goes_on(journal: Journal, row: SessionRow, look_up: bool) -> bool:
    """Of a lost attempt the journal has to say whether it may be asked again: the row does not."""
    if row.listing.next_action != Action.RECONCILE_MODEL_OUTCOME:
        return True
    plan = plan_of(await load(journal, row.session_id))
    return plan.kind is Kind.AUTOMATIC or (look_up and any(item.word == "findable" for item in plan.items))
