"""Putting a scenario into a store: what its commits would have written there.

For tests of everything that reads journals. The salts follow from the sequences,
so that the same scenario gives the same bytes each time.
"""

from __future__ import annotations

from collections.abc import Iterable

from domain.entry import Entry, to_batch
from domain.envelope import genesis
from domain.ports import Batch, Journal, Receipt
from minutebook.testing.scenario import Scenario, salt


def batches(entries: Iterable[Entry], owner_id: str = "local") -> Iterable[Batch]:
    """The batch of each finished entry, each following from the one before.

    Args:
        entries: all of a session, from its first.
    """
    head: bytes | None = None
    for entry in entries:
        salts = (salt(event.session_id, event.sequence) for event in entry.events)
        head = head or genesis(entry.state.session_id)
        arguments = {"command_id": entry.command_id}
        batch = to_batch(entry, head, salts.__next__, owner_id, "scenario", arguments)
        head = batch.events[-1].head
        yield batch


async def keep(journal: Journal, scenario: Scenario, owner_id: str = "local") -> Receipt | None:
    """Commit a scenario; those of its commits that are in the store already are left alone."""
    receipt = None
    for batch in batches(scenario.entries, owner_id):
        receipt = await journal.commit(batch)
    return receipt
