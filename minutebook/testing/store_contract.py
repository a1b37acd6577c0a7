"""What every store of journals must do, as tests to be subclassed.

A store passes when a subclass of `StoreContract` that makes it passes:

    class TestMyStore(StoreContract):
        pytestmark = pytest.mark.anyio

        def make_store(self, clock):
            return MyStore(clock=clock)

`make_store` is called once for each test and has to give an empty store. One that outlives
its process passes `DurableContract` as well, which has two more methods to write. The
suite knows nothing of engines; faults and processes are tested by each adapter.
"""

from __future__ import annotations

from minutebook.testing.cancellation_contract import CancellationContract
from minutebook.testing.commit_contract import CommitContract
from minutebook.testing.durable_contract import DurableContract
from minutebook.testing.handle_contract import HandleContract
from minutebook.testing.hostile_contract import HostileContract
from minutebook.testing.lease_contract import LeaseContract
from minutebook.testing.read_contract import ReadContract
from minutebook.testing.subscription_contract import SubscriptionContract


class StoreContract(
    CommitContract,
    ReadContract,
    LeaseContract,
    SubscriptionContract,
    HandleContract,
    CancellationContract,
    HostileContract,
):
    """The whole suite; `make_store` is the only method to write."""

    async def test_a_durable_store_is_tested_as_one(self) -> None:
        assert isinstance(self, DurableContract) or not self.store.durable, "subclass DurableContract too"
