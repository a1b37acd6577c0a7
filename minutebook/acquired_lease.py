"""A session's lease in the hands of somebody who does not drive the session.

Made by `minutebook.compose.acquire_lease`. Nothing is written to the journal for it: the
next worker's `lease_acquired` carries a higher token, and that is all that shows.
"""

from __future__ import annotations

from domain.envelope import Fence
from domain.errors import MinutebookError
from domain.ports import HeldLease
from minutebook.lease_config import LeaseSnapshot


class AcquiredLease:
    """A lease that is ours, and is renewed until the block ends or it is lost."""

    def __init__(self, held: HeldLease) -> None:
        self._held = held

    @property
    def snapshot(self) -> LeaseSnapshot:
        """The lease as last renewed."""
        return LeaseSnapshot.of(self._held.row)

    @property
    def fence(self) -> Fence:
        """The lease's id and token, for systems that refuse who was overtaken."""
        return self._held.fence

    def check(self) -> None:
        """Return if the session is ours at this moment; asks no store. For before each step.

        Raises:
            LeaseLost: it is not, or nobody can say so any more. Begin nothing further.
        """
        self._held.check()

    async def lost(self) -> MinutebookError:
        """Return the reason once the lease is lost. To be awaited beside the work, and cancelled with it."""
        return await self._held.lost()
