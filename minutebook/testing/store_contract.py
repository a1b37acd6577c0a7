"""What every store of journals must do, as tests to be subclassed.

A store passes when a subclass of `StoreContract` that makes it passes:

    class TestMyStore(StoreContract):
        pytestmark = pytest.mark.anyio

        def make_store(self, clock):
            return MyStore(clock=clock)

`make_store` is called once for each test and has to give an empty store. The
suite knows nothing of engines; faults and processes are tested by each adapter.
"""

from __future__ import annotations

from minutebook.testing.commit_contract import CommitContract
from minutebook.testing.lease_contract import LeaseContract
from minutebook.testing.read_contract import ReadContract
from minutebook.testing.subscription_contract import SubscriptionContract


class StoreContract(CommitContract, ReadContract, LeaseContract, SubscriptionContract):
    """The whole suite; `make_store` is the only method to write."""
