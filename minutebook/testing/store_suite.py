"""What the parts of the store contract share: how a test gets a store."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import ClassVar, Final

import pytest

from domain.cursor import Cursor
from domain.ports import Clock, Journal, StoreDescription
from minutebook.testing.batches import OWNER
from minutebook.testing.clock import ManualClock

SESSION: Final = "session-1"
START: Final = Cursor.start(SESSION)


class StoreSuite:
    """One store for each test, with a clock that the test moves."""

    #: Never reached by a store that answers; a test that reaches it has found a call left asleep.
    patience_s: ClassVar[float] = 20.0
    #: The smallest step that matters: a lease is live this long before its end. Larger (a second)
    #: where the store's clock is an engine's own and goes on by itself.
    tick_s: ClassVar[float] = 0.001
    clock: ManualClock
    store: StoreDescription

    def make_store(self, clock: Clock) -> StoreDescription:
        """An empty store whose leases run out by `clock`."""
        raise NotImplementedError("a store's suite says how to make the store: define make_store(clock)")

    @pytest.fixture(autouse=True)
    def store_under_test(self, store_place: object) -> None:
        """Make the store. `store_place` may be overridden by a fixture that says where."""
        self.clock = ManualClock()
        self.store = self.make_store(self.clock)

    @pytest.fixture
    def store_place(self) -> object:
        """Overridden where a store needs a place."""
        return None

    def opened(self, owner_id: str = OWNER) -> AbstractAsyncContextManager[Journal]:
        """The store, opened for an owner."""
        return self.store.open(owner_id=owner_id)

    async def pass_time(self, seconds: float) -> None:
        """Let time pass for the store's leases. Overridden where the engine has a clock of its own."""
        self.clock.advance(seconds)

    async def store_time(self) -> datetime:
        """What the store's clock shows, aware UTC. Overridden as `pass_time` is."""
        return self.clock.now()
