"""A session that holds every event type, told by commands alone; the golden journals are made of it.

    python tests/golden/story.py tests/golden/format-1

A released format's file is never written again.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from domain import compaction, decider, inputs, model_attempt, permission, request, session, tool, turn
from domain import events as ev
from domain.canonical import digest
from domain.envelope import Recorded, Stored
from domain.errors import ModelFailed
from domain.lifecycle import advance
from domain.next_steps import next_steps
from domain.state import State
from domain.values import Priority, Verdict
from minutebook.testing.scenario import (
    LOOK,
    PAY,
    PUT,
    SETTINGS,
    Called,
    Scenario,
    attempt,
    created,
    evaluated,
    in_call,
    recorded,
    responded,
    running,
    scheduled,
)
from projections.transcript import Transcript

CHANGES = {
    "model": "model-2",
    "permission_mode": "autoEdit",
    "max_turns": 9,
    "context": {"environment": {"LANG": "C"}, "metadata": {"é": 2**70}},
    "temperature": 0.5,
}
BROKEN = Called("pay", "[1]")


def story() -> Scenario:
    """The whole session."""
    told = Scenario("golden-1").given(created(tools={"look": "d" * 64}), session.Change(CHANGES))
    told.given(
        session.SetRule("rule-1", "tool", "pay", Verdict.ASK),
        session.Grant("grant-1", "category", "files"),
        session.Revoke("grant-1", "no longer"),
        session.Note("late_result", "a\x00b \ud83d \u202e", {"big": -(2**64), "$mb": "int"}),
    )
    _first_request(told)
    _compactions(told)
    _aborted_request(told)
    _failed_and_superseded(told)
    told.given(session.Resume(told.state.session.settings_digest, {"look": "e" * 64}))  # type: ignore[union-attr]  # it exists
    return told.given(decider.CloseSession("user"))


def _accept(told: Scenario, number: int) -> list[decider.Command]:
    assert told.state.session is not None
    settings = told.state.session.settings
    assert settings != SETTINGS
    return [
        inputs.AcceptInput(f"i-{number}", f"question {number}", Priority.NEXT, number),
        request.AcceptRequest(f"i-{number}", settings, settings.context, settings.max_turns),
    ]


def _begin(told: Scenario, number: int) -> None:
    assert told.state.request is not None
    told.given(
        _accept_started(number),
        inputs.BeginPreparation((f"i-{number}",), ("hook",)),
        inputs.FinishPreparation((f"i-{number}",), {f"i-{number}": "prepared"}),
    )
    told.given([turn.StartTurn(1, told.state.request.settings_digest), attempt()])


def _accept_started(number: int) -> list[decider.Command]:
    return [inputs.ApplyInput(f"i-{number}", Priority.NEXT, 1), request.StartRequest()]


def _first_request(told: Scenario) -> None:
    told.given(_accept(told, 1))
    _begin(told, 1)
    told.given(
        model_attempt.Fail(ModelFailed("rate_limited", "later", retryable=True, retry_after_s=1.5)),
        attempt(),
        model_attempt.Abandon("detached"),
        attempt(),
        responded(LOOK, PAY, PAY, PUT, BROKEN, LOOK, text="I will look."),
        [scheduled(0, LOOK), scheduled(1, PAY), scheduled(2, PAY), scheduled(3, PUT), scheduled(5, LOOK)],
        decider.Reject(4, "malformed", "expected one JSON object"),
        [evaluated(0), evaluated(3), evaluated(5), evaluated(1, Verdict.ASK), evaluated(2, Verdict.ASK)],
        in_call(1, permission.Ask("pay(cents=5)")) + in_call(2, permission.Ask("pay(cents=5)")),
        in_call(1, permission.Resolve(Verdict.ALLOW, {"cents": 6}, digest({"cents": 6}), "less is fine")),
        in_call(2, permission.Withdraw("steering"), tool.Cancel("steering")),
        evaluated(1),
        [running(0), running(1), running(3), running(5)],
        in_call(0, tool.Complete({"output": "seen", "value": {"at": [1, 2.5, None]}})),
        in_call(3, tool.LoseSight("timeout")),
        in_call(5, tool.Suspend({"which": "one"}, {"type": "string"})),
        in_call(5, tool.Answer("this one")),
        in_call(5, tool.Fail("ValueError", "no such thing")),
        running(3),
        in_call(3, tool.Complete({"output": "put"})),
        in_call(1, tool.Reconcile("completed", "the bank's statement", "paid")),
        turn.CompleteTurn(6, "tool_calls"),
    )
    _second_turn(told)


def _second_turn(told: Scenario) -> None:
    assert told.state.request is not None
    settings_digest = told.state.request.settings_digest
    told.given(
        [turn.StartTurn(2, settings_digest), attempt()],
        model_attempt.Reconcile("lost", "the worker is gone"),
        inputs.AcceptInput("i-2", "and quickly", Priority.NOW, 2, target_request_id="r1"),
        turn.AbortTurn("steering", "i-2"),
        [inputs.ApplyInput("i-2", Priority.NOW, 3), inputs.FinishPreparation(("i-2",))],
        [turn.StartTurn(3, settings_digest), attempt()],
        responded(text="Done."),
        turn.CompleteTurn(0, "end"),
        [inputs.AcceptInput("i-3", [{"type": "text", "text": "later"}], Priority.LATER, 3)],
        inputs.CancelInput("i-3", "user"),
        request.Complete("Done.", {"input_tokens": 6}),
    )


def _compactions(told: Scenario) -> None:
    thread = {"aggregate_id": "golden-1"}
    told.given(
        recorded(ev.CompactionStarted(compaction_id="k1", trigger="manual"), **thread),
        compaction.FailCompaction("k1", "process_restart"),
        recorded(ev.CompactionStarted(compaction_id="k2", trigger="manual"), **thread),
        recorded(ev.CompactionCompleted(compaction_id="k2", summary="short", upto_sequence=9), **thread),
    )


def _aborted_request(told: Scenario) -> None:
    told.given(_accept(told, 4))
    _begin(told, 4)
    told.given(
        responded(PAY),
        scheduled(0, PAY),
        evaluated(0),
        running(0),
        request.RequestAbort("user"),
        decider.EndRequest("abort", request.Interrupt("user")),
    )
    (left,) = told.state.unsettled
    told.given(decider.SettleEffect(left.tool_id, tool.Reconcile("failed", "the bank says no")))


def _failed_and_superseded(told: Scenario) -> None:
    told.given(
        _accept(told, 5),
        decider.EndRequest("error", request.Fail("MAX_TURNS", "enough")),
        _accept(told, 6),
    )
    told.given([decider.EndRequest("superseded", request.Supersede("rollover")), *_accept(told, 7)])
    told.given(decider.EndRequest("abandoned", request.Interrupt("abandoned", evidence="operator")))


def line(row: Stored) -> str:
    """A row as one line of a golden file; bytes in base64."""
    assert row.payload is not None and row.salt is not None
    kept = {"topic": row.topic, "sequence": row.sequence}
    stored = {"envelope": row.envelope, "payload": row.payload, "salt": row.salt, "head": row.head}
    return json.dumps(kept | {name: base64.b64encode(data).decode() for name, data in stored.items()})


def projected(events: Iterable[Recorded]) -> str:
    """What the journal looks like to people, as text: the conversation and the final plan."""
    transcript, state = Transcript(), State("golden-1")
    for event in events:
        transcript.apply(event)
        state = advance(state, event)
    plan = [[step.action.value, step.who.value, step.subject] for step in next_steps(state)]
    conversation = [asdict(item) for item in transcript.items]
    return json.dumps({"conversation": conversation, "plan": plan}, indent=1, sort_keys=True) + "\n"


def main(folder: Path) -> None:
    """Write the golden files of the present format."""
    told = story()
    text = "".join(line(row) + "\n" for row in told.rows())
    (folder / "story.jsonl").write_text(text, encoding="utf-8")
    (folder / "story.projected.json").write_text(projected(told.events), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
