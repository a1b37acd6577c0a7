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
from minutebook.testing.scenario import SETTINGS, Commit, Scenario, created, recorded
from tests.unit.domain_cases import Case

FIRST = Fence("worker-1", "lease-1", 1)
SECOND = Fence("worker-2", "lease-2", 2)
RESUME = Resume(SETTINGS.digest(), {})
NOTE = Note("test", "anything")


HELD: tuple[Commit, ...] = (created(), AcquireLease(1000))
FREE: tuple[Commit, ...] = (*HELD, CompleteHandoff("none"))


def case(
    rule: str,
    given: tuple[Commit, ...],
    refused: Commit,
    allowed: Commit,
    by: Fence = FIRST,
    allowed_by: Fence = FIRST,
    then_given: tuple[Commit, ...] | None = None,
) -> Case:
    """A case that the first holder writes, but for what another one does."""
    return Case(rule, given, refused, allowed, then_given, FIRST, by, allowed_by)


CASES = [
    Case("a lease is acquired by a worker that has one", (created(),), AcquireLease(1), NOTE),
    case("every new lease has a higher token", HELD, AcquireLease(1), AcquireLease(1), allowed_by=SECOND),
    *(
        case("a new holder says so first", HELD, NOTE, NOTE, by=other)
        for other in (SECOND, Fence("worker-1", "lease-2", 1), Fence("worker-2", "lease-1", 1))
    ),
    *(
        case(
            "nothing is written under a lease that was released",
            FREE,
            late,
            AcquireLease(1),
            allowed_by=SECOND,
        )
        for late in (NOTE, ReleaseLease("handoff"), CompleteHandoff("none"), CloseSession("user"))
    ),
    case(
        "a lease is released that is held",
        (created(),),
        ReleaseLease("handoff"),
        ReleaseLease("handoff"),
        then_given=HELD,
    ),
    case(
        "a handoff is by the holder of the lease",
        (created(),),
        CompleteHandoff("none"),
        CompleteHandoff("none"),
        then_given=HELD,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{n} {case}" for n, case in enumerate(CASES)])
def test_a_rule(case: Case) -> None:
    case.refuse()
    case.allow()


def held() -> Scenario:
    """A session whose first holder is on record."""
    return Scenario("s-test", FIRST).given(created(), AcquireLease(1000))


def test_the_holder_is_on_record() -> None:
    scenario = held()
    assert scenario.state.lease == LeaseState("worker-1", "lease-1", 1, 2)
    scenario.when(NOTE).then(ev.NoticeRecorded)


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


def test_a_handoff_and_the_release_are_one_commit_and_the_last_of_this_holder() -> None:
    scenario = held()
    scenario.when(recorded(ev.HandoffCompleted(next_action="none"))).refused("goes on with lease_released")
    scenario.when(CompleteHandoff("none")).then(
        ev.HandoffCompleted(next_action="none"), ev.LeaseReleased(reason="handoff")
    )
    assert scenario.state.lease == LeaseState("worker-1", "lease-1", 1, 2, held=False)
    scenario.fence = SECOND
    scenario.when([AcquireLease(1000, "worker-1", 1, "released"), RESUME]).then(
        ev.LeaseAcquired, ev.SessionResumed
    )


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
