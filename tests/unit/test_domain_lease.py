"""Leases on record: who holds the session, one after the other."""

from __future__ import annotations

import pytest

from domain import events as ev
from domain.decider import CloseSession
from domain.envelope import Fence
from domain.errors import RuleViolated
from domain.inputs import AcceptInput
from domain.lease import AcquireLease, CompleteHandoff, LeaseState, ReleaseLease
from domain.session import Note, Resume
from domain.values import Priority
from minutebook.testing.scenario import SETTINGS, Scenario, created, recorded

FIRST = Fence("worker-1", "lease-1", 1)
SECOND = Fence("worker-2", "lease-2", 2)
RESUME = Resume(SETTINGS.digest(), {})
NOTE = Note("test", "anything")


def held() -> Scenario:
    """A session whose first holder is on record."""
    return Scenario("s-test", FIRST).given(created(), AcquireLease(1000))


def test_the_holder_is_on_record() -> None:
    scenario = held()
    assert scenario.state.lease == LeaseState("worker-1", "lease-1", 1, 2)
    scenario.when(NOTE).then(ev.NoticeRecorded)


def test_a_lease_is_acquired_by_a_worker_that_has_one() -> None:
    Scenario().given(created()).when(AcquireLease(1000)).refused("by a worker that has one")


@pytest.mark.parametrize(
    "fence", [SECOND, Fence("worker-1", "lease-2", 1), Fence("worker-2", "lease-1", 1)], ids=str
)
def test_a_new_holder_says_so_first(fence: Fence) -> None:
    scenario = held()
    scenario.fence = fence
    scenario.when(NOTE).refused("a new holder says so first")


def test_the_holder_can_not_write_without_its_fence() -> None:
    scenario = held()
    scenario.fence = None
    scenario.when(NOTE).refused("the fencing token never falls")


def test_a_new_holder_has_a_higher_token() -> None:
    scenario = held()
    scenario.fence = Fence("worker-2", "lease-2", 1)
    scenario.when(AcquireLease(1000)).refused("a higher token")
    scenario.fence = Fence("worker-2", "lease-2", 7)
    scenario.when([AcquireLease(1000, "worker-1", 1, "died"), RESUME]).then(
        ev.LeaseAcquired(ttl_ms=1000, former_worker_id="worker-1", former_token=1, former_end="died"),
        ev.SessionResumed,
    )
    assert scenario.state.lease == LeaseState("worker-2", "lease-2", 7, 3)


def test_the_former_holder_writes_no_more() -> None:
    scenario = held()
    scenario.fence = SECOND
    scenario.given([AcquireLease(1000), RESUME])
    scenario.fence = FIRST
    scenario.when(NOTE).refused("the fencing token never falls")


def test_a_handoff_and_the_release_are_one_commit_and_the_last_of_this_holder() -> None:
    scenario = held()
    scenario.when(recorded(ev.HandoffCompleted(next_action="none"))).refused("goes on with lease_released")
    scenario.when(CompleteHandoff("none")).then(
        ev.HandoffCompleted(next_action="none"), ev.LeaseReleased(reason="handoff")
    )
    assert scenario.state.lease == LeaseState("worker-1", "lease-1", 1, 2, held=False)
    for more in (NOTE, ReleaseLease("handoff"), CompleteHandoff("none"), CloseSession("user")):
        scenario.when(more).refused("under a lease that was released")
    scenario.fence = SECOND
    scenario.when([AcquireLease(1000, "worker-1", 1, "released"), RESUME]).then(
        ev.LeaseAcquired, ev.SessionResumed
    )


@pytest.mark.parametrize("command", [ReleaseLease("handoff"), CompleteHandoff("none")], ids=str)
def test_nothing_is_given_back_that_is_not_on_record(command: ReleaseLease | CompleteHandoff) -> None:
    scenario = Scenario("s-test", FIRST).given(created())
    scenario.when(command).refused("held" if isinstance(command, ReleaseLease) else "the holder of the lease")


def test_closing_gives_the_lease_back_in_the_same_commit() -> None:
    scenario = held().given(AcceptInput("i-1", "never", Priority.LATER, 1))
    scenario.when(ReleaseLease("closed")).refused("goes on with session_closed")
    scenario.when(CloseSession("user")).then(
        ev.InputCancelled, ev.LeaseReleased(reason="closed"), ev.SessionClosed
    )


def test_a_session_without_a_lease_on_record_closes_as_before() -> None:
    Scenario("s-test", FIRST).given(created()).when(CloseSession("user")).then(ev.SessionClosed)


def test_a_closed_session_can_be_held_to_settle_what_is_left() -> None:
    scenario = held().given(CloseSession("user"))
    scenario.fence = SECOND
    scenario.when(NOTE).refused("a new holder says so first")
    scenario.when(AcquireLease(1000, "worker-1", 1, "released")).then(ev.LeaseAcquired)
    scenario.when(NOTE).refused("the session is open")


def test_no_handoff_of_a_closed_session() -> None:
    scenario = held().given(CloseSession("user"))
    scenario.fence = SECOND
    scenario.given(AcquireLease(1000))
    with pytest.raises(RuleViolated, match="the session is open"):
        scenario.given(CompleteHandoff("none"))
