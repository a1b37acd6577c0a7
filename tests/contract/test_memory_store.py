"""The memory store keeps the store contract, on both event loops."""

from __future__ import annotations

import pytest

from adapters.memory_journal import MemoryStore
from domain.ports import Clock, StoreDescription
from minutebook.testing.clock_contract import HostClockContract
from minutebook.testing.store_contract import StoreContract


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
class TestMemoryStore(HostClockContract, StoreContract):
    def make_store(self, clock: Clock) -> StoreDescription:
        return MemoryStore(clock=clock)
