"""Looking at a journal in a process that has nothing but the file.

Functions for the fork server, beside those of the application. They open the
journal to read only, and tell what they find.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import anyio

from adapters.sqlite_reader import SqliteJournalReader, open_reader
from domain import catalogue
from domain.envelope import Recorded
from domain.errors import NotAJournal, SessionNotFound
from domain.lifecycle import fold
from domain.state import State
from minutebook.testing.crash import Tell, Witness
from recovery.plan import RecoveryPlan, plan_of
from recovery.reading import Loaded, load
from tests.crash import oracle
from tests.crash.invariants import Evidence, conversation, violations
from tests.crash.killers import label


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
    (action and subject of each item), `kind`, `unsettled` effects, `holder` and `story`.
    """

    async def look() -> None:
        seen = Witness(witness).lines()
        try:
            async with open_reader(journal) as reader:
                events = await _events(reader, session_id)
                wrong = violations(Evidence(events, seen, said), finished=finished)
                plan = await _plan(reader, session_id, events, wrong)
        except NotAJournal:  # killed before there was one: then nothing may have happened either
            events, plan = [], None
            wrong = violations(Evidence(events, seen, said), finished=finished)
        tell(
            wrong=wrong,
            commits=_commits(events),
            plan=[(i.action, i.subject) for i in plan.items] if plan else [],
            kind=plan.kind if plan else "",
            unsettled=[effect.tool_id for effect in plan.unsettled_effects] if plan else [],
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
    except SessionNotFound:
        if events:
            wrong.append("journal: it has events and no session")
        return None
    wrong += await _wrong_with(reader, loaded, events)
    plan = plan_of(loaded)
    found = [(item.action, item.subject) for item in plan.items]
    wanted = oracle.expected(events)
    if not _says(found, wanted):
        wrong.append(f"plan: after {events[-1].type} it says {found}, the table says {wanted}")
    if plan_of(loaded) != plan:
        wrong.append("plan: asked again, it is another one")
    return plan


async def _wrong_with(reader: SqliteJournalReader, loaded: Loaded, events: list[Recorded]) -> list[str]:
    """I6: every link holds, and folding all of it gives what folding from a snapshot gives."""
    session_id = loaded.state.session_id
    whole = await load(reader, session_id, use_snapshot=False) if loaded.snapshot_sequence else loaded
    wrong = [f"journal: {note}" for note in loaded.notes]
    if loaded.problem is not None or whole.problem is not None:
        wrong.append(f"journal: {loaded.problem or whole.problem}")
    if whole.verified != (1, len(events)):
        wrong.append(f"journal: verified {whole.verified}, it has {len(events)} events")
    if not loaded.state == whole.state == fold(State(session_id), events):
        wrong.append("journal: folded again, it stands elsewhere")
    return wrong


def _says(found: list[tuple[str, str]], wanted: list[tuple[str, str]]) -> bool:
    """Whether a plan is the oracle's; that nothing comes next is about nothing."""
    return found == wanted or ([a for a, _ in found] == ["none"] == [a for a, _ in wanted])
