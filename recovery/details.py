"""Reading what a plan points at: queued contents, questions with their inputs, suspensions.

For display only; the plan is made without it. At most a few rows for each open
thing, most of them in the tail that was read already.
"""

from __future__ import annotations

from collections.abc import Iterator

from domain import catalogue
from domain.envelope import Recorded, claimed_commitment, commitment
from domain.errors import Corrupt
from domain.permission import Decision
from domain.ports import JournalReader
from domain.state import State
from domain.tool import Status as Tool
from recovery.facts import Details
from recovery.problem import BAD_ROW
from recovery.reading import Loaded


async def read_details(reader: JournalReader, loaded: Loaded) -> Details:
    """Read the content of everything open.

    Raises:
        StoreFailure: the store cannot be read.

    Guarantees: what cannot be decoded is named in `notes` and left out.
    """
    known = {event.sequence: event for event in loaded.tail}
    details = Details()
    notes: list[str] = []
    for sequence in sorted(set(_wanted(loaded.state))):
        try:
            event = known.get(sequence) or await _read(reader, loaded.state.session_id, sequence)
        except BAD_ROW as e:
            notes.append(f"The content of event {sequence} cannot be shown: {e}.")
            continue
        details.inputs.apply(event)
        details.interactions.apply(event)
    return Details(details.inputs, details.interactions, tuple(notes))


def _wanted(state: State) -> Iterator[int]:
    for item in state.queue.pending:
        yield item.sequence
    for call in state.calls:
        asked, scheduled = call.permission, call.tool
        if scheduled is None or asked is None:
            continue
        if asked.decision is Decision.PENDING:
            yield from (scheduled.scheduled_sequence, asked.sequence)
        if scheduled.status is Tool.SUSPENDED:
            yield from (scheduled.scheduled_sequence, scheduled.sequence)


async def _read(reader: JournalReader, session_id: str, sequence: int) -> Recorded:
    rows = await reader.read(session_id, after=sequence - 1, upto=sequence, limit=1)
    if not rows:
        raise Corrupt("sequence", str(sequence), "nothing", sequence)
    row = rows[0]
    if row.payload is None or row.salt is None:
        raise Corrupt("payload", "a payload", "nothing", sequence)
    if commitment(row.salt, row.payload) != claimed_commitment(row):
        raise Corrupt("payload", "the content the envelope commits to", row.payload, sequence)
    return catalogue.open_stored(row)
