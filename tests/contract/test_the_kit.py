"""The contract suite's own check: each wrong store is noticed by the test that is about its mistake."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import anyio
import pytest

from adapters.memory_journal import MemoryStore
from domain.cursor import Cursor
from domain.errors import MinutebookError
from domain.ports import Clock, StoreDescription
from minutebook.testing.clock import ManualClock
from minutebook.testing.store_contract import StoreContract
from minutebook.testing.subscription_contract import ELSEWHERE
from tests.contract import wrong_stores as stores
from tests.contract.wrong_stores import wrong

Make = Callable[[Clock], StoreDescription]

#: What is wrong, which test of the contract notices it, and for which of its cases.
WRONG: list[tuple[Make, str, dict[str, Any]]] = [
    (
        partial(wrong, stores.TearsBatches),
        "test_a_cancelled_commit_is_there_or_not_and_settling_says_which",
        {},
    ),
    (
        partial(wrong, stores.CommitsLate),
        "test_a_cancelled_commit_that_was_settled_can_not_come_later",
        {},
    ),
    (
        partial(wrong, stores.ComparesTheHeadFirst),
        "test_the_same_command_again_is_replayed_wherever_the_head_is",
        {},
    ),
    (
        partial(wrong, stores.ForgetsTheFingerprint),
        "test_a_command_id_used_for_something_else_is_a_conflict",
        {},
    ),
    (partial(wrong, stores.SaysCommittedTwice), "test_one_command_through_two_handles_is_there_once", {}),
    (partial(wrong, stores.KeepsBlobsOfRefusedCommits), "test_a_refused_commit_changes_nothing_at_all", {}),
    (partial(wrong, stores.WritesWithoutFence), "test_a_leased_session_is_written_with_its_fence_only", {}),
    (
        partial(wrong, stores.ChecksTheFenceOutside),
        "test_a_writer_whose_lease_ran_out_is_refused_though_nobody_took_over",
        {},
    ),
    (partial(wrong, stores.ReusesTokens), "test_tokens_rise_through_every_change_of_hands", {}),
    (partial(wrong, stores.SettlesByLooking), "test_settling_a_batch_that_is_there", {}),
    (partial(wrong, stores.ReadsOneMore), "test_pages_of_rows_join_without_a_hole", {}),
    (partial(wrong, stores.ListsWithoutOrder), "test_sessions_come_by_id_and_in_pages", {}),
    (partial(wrong, stores.ListsByACollation), "test_pages_of_sessions_join_without_a_hole", {}),
    (
        partial(wrong, stores.GivesTheLatestSnapshot),
        "test_the_latest_snapshot_at_or_before_a_sequence",
        {},
    ),
    (partial(wrong, stores.FindsTheFirstCommandOnly), "test_many_commands_at_once", {}),
    (
        partial(wrong, stores.EndsSubscriptions),
        "test_what_is_there_comes_first_and_then_what_is_committed",
        {},
    ),
    (partial(wrong, stores.SkipsWhatComesMeanwhile), "test_a_slow_subscriber_loses_nothing", {}),
    (
        partial(wrong, stores.GoesBySequence),
        "test_a_place_that_the_journal_does_not_have_is_refused",
        {"there": Cursor("session-1", 2, ELSEWHERE)},
    ),
    (partial(wrong, stores.CutsText), "test_any_bytes_are_kept", {}),
    (
        partial(wrong, stores.StaysOpen),
        "test_a_closed_handle_refuses_every_call_and_does_nothing",
        {},
    ),
    (partial(wrong, stores.FoldsIds), "test_ids_are_told_apart_to_the_letter", {}),
    (partial(wrong, stores.TrimsIds), "test_nothing_is_written_under_a_hostile_id", {}),
    (
        lambda clock: stores.Ownerless(MemoryStore(clock=clock), stores.RightJournal),
        "test_another_owner_sees_nothing_of_a_session",
        {},
    ),
    (
        lambda clock: stores.Separate(MemoryStore(clock=clock), stores.RightJournal),
        "test_what_one_handle_commits_another_has_at_once",
        {},
    ),
    (
        partial(wrong, stores.SaysEveryLeaseHolds),
        "test_a_journal_says_whether_a_lease_holds_by_the_store_s_clock",
        {},
    ),
    (
        lambda clock: MemoryStore(clock=stores.StoppedClock(clock)),
        "test_a_lease_that_ran_out_is_taken_over_with_the_next_token",
        {},
    ),
    (
        lambda clock: stores.WrongStore(MemoryStore(clock=clock), stores.RightJournal, durable=True),
        "test_a_durable_store_is_tested_as_one",
        {},
    ),
]


class Impatient(StoreContract):
    #: Enough for memory, and a wrong store may leave somebody waiting for ever.
    patience_s: ClassVar[float] = 1.0


def held_against(make: Make, test: str, case: dict[str, Any]) -> None:
    """Run one test of the contract, as pytest would."""
    suite = Impatient()
    suite.clock = ManualClock()
    suite.store = make(suite.clock)
    anyio.run(partial(getattr(suite, test), **case))


def name(value: object) -> str | None:
    return value if isinstance(value, str) else ""


@pytest.mark.parametrize(("make", "test", "case"), WRONG, ids=name)
def test_a_wrong_store_is_noticed(make: Make, test: str, case: dict[str, Any]) -> None:
    with pytest.raises((Exception, pytest.fail.Exception)) as noticed:
        held_against(make, test, case)
    told = noticed.value
    while isinstance(told, BaseExceptionGroup):  # from a task group
        told = told.exceptions[0]
    # Not a mistake of the wrong store's own: it works, and does the wrong thing.
    assert isinstance(told, AssertionError | MinutebookError | TimeoutError | StopAsyncIteration) or (
        type(told) is pytest.fail.Exception
    ), repr(told)


@pytest.mark.parametrize(("test", "case"), [(test, case) for _, test, case in WRONG], ids=name)
def test_the_right_one_passes(test: str, case: dict[str, Any]) -> None:
    held_against(partial(wrong, stores.RightJournal), test, case)


def test_a_suite_without_a_store_says_what_to_do() -> None:
    with pytest.raises(NotImplementedError, match="make_store"):
        StoreContract().make_store(ManualClock())
