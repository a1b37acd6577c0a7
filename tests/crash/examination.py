"""Looking at a journal in a process that has nothing but the file.

Functions for the fork server, beside those of the application. They open the
journal to read only, and tell what they find.
"""

from __future__ import annotations

from dataclasses import asdict
from itertools import groupby
from typing import Any

import anyio

from adapters.sqlite_reader import SqliteJournalReader, open_reader
from domain import catalogue
from domain.envelope import Recorded
from domain.errors import SessionNotFound
from minutebook.testing.crash import Tell, Witness
from recovery.plan import RecoveryPlan, plan_of
from recovery.reading import Loaded, load
from tests.crash import oracle
from tests.crash.killers import label
from tests.crash.invariants import Evidence, conversation, violations


def examine(
    tell: Tell,
    journal: str,
    witness: str,
    session_id: str,
    said: list[dict[str, Any]],
    finished: bool,
) -> None:
    """Hold the journal against its witnesses and its plan against the oracle.

    Tells `wrong` (sentences), `commits` (type and id of each event of each), `plan`
    (action and subject of each item), `kind`, `holder` and `story`.
    """

    async def look() -> None:
        async with open_reader(journal) as reader:
            events = await _events(reader, session_id)
            life = Evidence(events, Witness(witness).lines(), said)
            wrong = violations(life, finished=finished)
            plan = await _plan(reader, session_id, events, wrong)
        tell(
            wrong=wrong,
            commits=_commits(events),
            plan=[(i.action, i.subject) for i in plan.items] if plan else [],
            kind=plan.kind if plan else "",
            holder=plan.lease.holder if plan and plan.lease else None,
            story=conversation(events),
        )

    anyio.run(look)


async def _events(reader: SqliteJournalReader, session_id: str) -> list[Recorded]:
    events: list[Recorded] = []
    while rows := await reader.read(session_id, after=len(events)):
        events += [catalogue.open_stored(row) for row in rows]
    return events


def _commits(events: list[Recorded]) -> list[list[str]]:
    commits = groupby(events, lambda event: event.command_id)
    return [[label(e) for e in commit] for _, commit in commits]


async def _plan(
    reader: SqliteJournalReader, session_id: str, events: list[Recorded], wrong: list[str]
) -> RecoveryPlan | None:
    """The plan from the file alone; what is wrong with it is added to `wrong`."""
    try:
        loaded = await load(reader, session_id)
        again = await load(reader, session_id, use_snapshot=False)
    except SessionNotFound:
        if events:
            wrong.append("journal: it has events and no session")
        return None
    wrong += _wrong_with(loaded, again, events)
    plan = plan_of(loaded)
    found = [(item.action, item.subject) for item in plan.items]
    wanted = oracle.expected(events)
    if not _says(found, wanted):
        wrong.append(f"plan: after {events[-1].type} it says {found}, the table says {wanted}")
    if asdict(plan_of(again))["items"] != asdict(plan)["items"]:
        wrong.append("plan: read again, it is another one")
    return plan


def _wrong_with(loaded: Loaded, again: Loaded, events: list[Recorded]) -> list[str]:
    """I6: every link holds, and folding all of it gives what folding from a snapshot gives."""
    wrong = []
    if loaded.problem is not None or again.problem is not None:
        wrong.append(f"journal: {loaded.problem or again.problem}")
    if again.verified != (1, len(events)):
        wrong.append(f"journal: verified {again.verified}, it has {len(events)} events")
    if (loaded.state, loaded.head) != (again.state, again.head):
        wrong.append("journal: folded again, it stands elsewhere")
    return wrong + [f"journal: {note}" for note in loaded.notes]


def _says(found: list[tuple[str, str]], wanted: list[tuple[str, str]]) -> bool:
    """Whether a plan is the oracle's; that nothing comes next is about nothing."""
    return found == wanted or ([a for a, _ in found] == ["none"] == [a for a, _ in wanted])
