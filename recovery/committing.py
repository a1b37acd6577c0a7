"""Committing a batch: an unknown outcome is settled once, and the same bytes are tried once more.

The one rule for it, for live sessions (`minutebook.book`) and for decisions.
"""

from __future__ import annotations

from domain.errors import MinutebookError, OutcomeUnknown
from domain.ports import Batch, Journal, Receipt


async def settled(journal: Journal, batch: Batch) -> Receipt:
    """Commit a batch, however long the store takes to say what became of it.

    Returns the receipt; `reconciled` where the first try turned out to be there.

    Raises:
        OutcomeUnknown: it cannot be settled now, or the store has a defect; the session takes no
            events until it is settled.
        MinutebookError: nothing was written.
    """
    try:
        return await _settled(journal, batch)
    except MinutebookError:
        raise
    except Exception as error:  # a defect of the store must look neither like a commit nor like none
        raise OutcomeUnknown(batch.session_id, f"{type(error).__name__}: {error}") from error


async def _settled(journal: Journal, batch: Batch) -> Receipt:
    try:
        return await journal.commit(batch)
    except OutcomeUnknown:
        return await journal.settle(batch) or await journal.commit(batch)
