"""What a new holder says of the one before it: by the clock that decided."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from domain.lease import AcquireLease, LeaseState
from domain.ports import LeaseRow
from domain.state import State
from domain.taking_over import announcement, is_due
from minutebook.testing.scenario import EPOCH

TTL_MS = 10_000
#: Taken at the beginning for 10 seconds, on the boot that knows itself as 100 seconds old then.
FORMER = LeaseRow(
    1, "l-1", "worker-1", EPOCH, EPOCH, EPOCH + timedelta(seconds=10), "boot-1", 7, "1", runs_out=110.0
)


def taken(seconds: float, boot: float | None, boot_id: str | None = "boot-1", token: int = 2) -> LeaseRow:
    """The lease as it was taken then, by the wall clock and by the boot's."""
    at = EPOCH + timedelta(seconds=seconds)
    runs_out = None if boot is None else boot + TTL_MS / 1000
    return LeaseRow(
        token, "l-2", "worker-2", at, at, at + timedelta(seconds=10), boot_id, 8, "2", runs_out=runs_out
    )


@pytest.mark.parametrize(
    ("lease", "end"),
    [
        (taken(1, 101), "died"),
        (taken(11, 111), "ran_out"),
        (taken(3600, 101), "died"),  # the wall clock was set forward meanwhile
        (taken(-3600, 111), "ran_out"),  # and back
        (taken(11, 5, "boot-2"), "ran_out"),  # another host: its boot's clock says nothing
        (taken(1, 500, "boot-2"), "died"),
        (taken(11, None), "ran_out"),
        (taken(1, None, None), "died"),
    ],
)
def test_a_holder_died_or_was_silent_for_too_long(lease: LeaseRow, end: str) -> None:
    assert announcement(FORMER, lease, TTL_MS) == AcquireLease(TTL_MS, "worker-1", 1, end)  # type: ignore[arg-type]  # one of the words


def test_a_lease_that_was_given_back_is_said_so() -> None:
    free = replace(FORMER, lease_id=None)
    assert announcement(free, taken(1, 101), TTL_MS).former_end == "released"


def test_the_first_holder_names_nobody() -> None:
    assert announcement(None, taken(1, 101, token=1), TTL_MS) == AcquireLease(TTL_MS)


def test_who_came_and_went_unseen_is_named_by_the_token_alone() -> None:
    unseen = AcquireLease(TTL_MS, former_token=4)
    assert announcement(FORMER, taken(1, 101, token=5), TTL_MS) == unseen
    assert announcement(None, taken(1, 101, token=5), TTL_MS) == unseen


def test_a_holder_is_named_once() -> None:
    lease = taken(1, 101)
    assert is_due(State("s"), lease)
    assert is_due(State("s", lease=LeaseState("worker-1", "l-1", 1, 5)), lease)
    assert not is_due(State("s", lease=LeaseState("worker-2", "l-2", 2, 9)), lease)
