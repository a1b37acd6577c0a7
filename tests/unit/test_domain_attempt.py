"""ModelAttempt and compaction: one attempt at a time, each ended once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from domain import events as ev
from domain import model_attempt
from domain.compaction import FailCompaction
from domain.decider import CloseSession, Reject, StartAttempt
from domain.errors import ModelFailed
from domain.limits import MAX_ATTEMPTS_PER_TURN, MAX_CALLS_PER_RESPONSE
from domain.model_attempt import Abandon, AttemptState, Fail, Finish, Reconcile
from domain.session import Note
from domain.turn import CompleteTurn
from domain.values import OnLostAttempt, Stop
from minutebook.testing.scenario import (
    LOOK,
    PAY,
    SETTINGS,
    Commit,
    Writing,
    accepted,
    attempt,
    created,
    forged,
    given,
    recorded,
    responded,
    response,
    started,
)
from tests.unit.domain_cases import (
    FINAL,
    START,
    TURN,
    Case,
    Direct,
    answered,
    compaction_attempt,
    compaction_begun,
    table,
)

TRY_LATER = Fail(ModelFailed("overloaded", "try later", retryable=True))
NEVER = Fail(ModelFailed("bad_request", "no", retryable=False))
LOST = Reconcile("lost", "nobody answered")
AGAIN = attempt()
RETRY = (*TURN, TRY_LATER)
COMPACTING = (created(), [compaction_begun(), compaction_attempt()])
#: Every attempt that a turn may have, each ended.
USED_UP = (*TURN, *[step for _ in range(MAX_ATTEMPTS_PER_TURN - 1) for step in (TRY_LATER, AGAIN)], TRY_LATER)
RUNNING = AttemptState("r1.t1.a1", 1, model_attempt.Status.STARTED, 8, 8)


def first(number: int) -> Direct:
    """An attempt's beginning, without what the session knows."""
    return Direct(AGAIN, lambda event: model_attempt.first(event, "r1.t1", number))


CASES = [
    Case("attempts are numbered", RETRY, forged(AGAIN, data={"number": 3}), AGAIN),
    Case("attempt ids are derived", RETRY, forged(AGAIN, model_attempt_id="r1.t1.a9"), AGAIN),
    Case("an attempt ends once", (*RETRY,), TRY_LATER, TRY_LATER, TURN),
    Case("an attempt ends once", answered(), Abandon("abort"), Abandon("abort"), TURN),
    Case(
        "the end names the active attempt",
        TURN,
        forged(TRY_LATER, model_attempt_id="r1.t1.a9"),
        TRY_LATER,
    ),
    Case(
        "only a completed outcome brings a response",
        TURN,
        Reconcile("lost", "asked", response()),
        Reconcile("completed", "asked", response()),
    ),
    Case("only a completed outcome brings a response", TURN, Reconcile("completed", "asked"), LOST),
    Case("an attempt within a turn is for the turn", RETRY, forged(AGAIN, data={"purpose": "compaction"}), AGAIN),
    Case("a further attempt only after one that failed, was aborted or lost", TURN, AGAIN, AGAIN, RETRY),
    Case("a further attempt only after one that failed, was aborted or lost", answered(), AGAIN, AGAIN, RETRY),
    Case("the last attempt's failure may be retried", (*TURN, NEVER), AGAIN, AGAIN, RETRY),
    Case("the last attempt's failure may be retried", (*TURN, Reconcile("failed", "asked")), AGAIN, AGAIN, RETRY),
    Case("at most 4 attempts in a turn", USED_UP, AGAIN, AGAIN, USED_UP[:-2]),
    Case(
        "at most 60 calls in a response",
        TURN,
        responded(*[LOOK] * (MAX_CALLS_PER_RESPONSE + 1)),
        responded(*[LOOK] * MAX_CALLS_PER_RESPONSE),
    ),
    Case("the turn is active", FINAL, AGAIN, AGAIN, RETRY),
    Case("the turn is active", TURN, forged(TRY_LATER, turn_id="r1.t2"), TRY_LATER),
    Case(
        "an attempt is active",
        (*TURN[:-1], started_without_attempt()),
        recorded(
            ev.ModelRequestAborted(reason="abort"),
            request_id="r1",
            turn_id="r1.t1",
            model_attempt_id="r1.t1.a1",
        ),
        AGAIN,
    ),
    Case(
        "no attempt is active",
        TURN,
        Direct(TRY_LATER, lambda event: model_attempt.first(event, "r1.t1", 1)),
        Direct(AGAIN, lambda event: model_attempt.first(event, "r1.t1", 2)),
        RETRY,
    ),
    Case(
        "one attempt at a time",
        RETRY,
        Direct(AGAIN, lambda event: model_attempt.evolve(replace(RUNNING, attempt_id="r1.t1.a2"), event)),
        Direct(TRY_LATER, lambda event: model_attempt.evolve(RUNNING, event)),
        TURN,
    ),
]
