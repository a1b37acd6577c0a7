"""The session behind the golden journal: every event type, every optional field, odd values.

What it writes is kept in `tests/golden/` for ever. Nobody changes this file once
its format is released: a later format gets a session and a directory of its own.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from domain import decider, ids, model_attempt, request, tool, turn
from domain import events as ev
from domain.canonical import digest
from domain.compaction import FailCompaction
from domain.decider import CloseSession, EndRequest, OnCall, Reject, Schedule, SettleEffect, StartAttempt
from domain.envelope import Fence
from domain.errors import ModelFailed
from domain.inputs import AcceptInput, ApplyInput, BeginPreparation, CancelInput, FinishPreparation
from domain.model_ports import Block, Response
from domain.next_steps import next_steps
from domain.permission import Ask, Evaluate, Resolve
from domain.session import Change, Create, Grant, Note, Resume, Revoke, SetRule
from domain.settings import Settings
from domain.state import State
from domain.values import Effective, Priority, SideEffect, Stop, Verdict
from minutebook.testing.scenario import (
    LOOK,
    PAY,
    PUT,
    Called,
    Commit,
    Drafts,
    Scenario,
    Writing,
    evaluated,
    forged,
    recorded,
    response,
    running,
    scheduled,
)

FILE = Path(__file__).parents[1] / "golden" / "format-1" / "every-field.json"
SESSION = "every-field"
SETTINGS = Settings(
    model="a-model",
    provider={"type": "scripted", "base_url": "http://localhost:1/v1"},
    system_prompt="Be brief. \ud800",
    temperature=0.5,
    max_output_tokens=1000,
    max_turns=5,
    context={"environment": {"LANG": "C"}, "metadata": {"big": 2**70, "raw": b"\x00\xff", "$mb": "int"}},
)
CHANGES = [{"hook": "mask", "before": "a" * 64, "after": "b" * 64}]
UPDATED = {"cents": 3, "to": "\u00e9\u2028"}
TORN = Called("look", '{"at":')
FIRST_FENCE = Fence("worker-1", "lease-1", 1)
SECOND_FENCE = Fence("worker-2", "lease-2", 2)


def session() -> Scenario:
    """The whole session, by two workers."""
    scenario = Scenario(SESSION, FIRST_FENCE)
    scenario.given(*_settings(), *_first_request(), *_second_request())
    scenario.fence = SECOND_FENCE
    return scenario.given(*_third_request(scenario), *_rest())


def _settings() -> list[Commit]:
    return [
        Create("owner", SETTINGS, {"look": "d" * 64, "pay": "e" * 64}),
        Change({"temperature": 1.0, "max_output_tokens": None}, Effective.NEXT_TURN),
        Change({"model": "a-third-model"}, Effective.NEXT_REQUEST),
        [
            Change(
                {"model": "another-model", "max_turns": 6, "context": {"a": [1, 1.0, -0.0]}},
                Effective.NEXT_TURN,
            ),
            Change({"permission_mode": "autoEdit"}),
        ],
        [
            SetRule("rule-1", "tool", "pay", Verdict.ASK),
            SetRule("rule-2", "category", "files", Verdict.DENY),
            SetRule("rule-2", "category", "files", None),
        ],
        [
            Grant("grant-1", "tool", "look", "forever", "2027-01-01T00:00:00Z"),
            Grant("grant-2", "tool", "put", "process"),
        ],
        Revoke("grant-1", "changed my mind"),
        Note("remark", "text with \x00 and \u202e", {"nested": [{"\udfff": None}]}),
    ]


def _first_request() -> list[Commit]:
    content = [{"type": "text", "text": "pay it"}, {"type": "image", "blob": "f" * 64}]
    first = AcceptInput("i-1", content, Priority.NEXT, 1, max_turns=4, metadata={"from": "cli"})
    return [
        [first, _accept("i-1", 4)],
        [
            ApplyInput("i-1", Priority.NEXT, 1),
            request.StartRequest(),
            forged(BeginPreparation(("i-1",), ("mask",)), data={"attachments": ["f" * 64]}),
        ],
        [
            forged(FinishPreparation(("i-1",), {"i-1": "pay **"}, "by the host"), data={"changes": CHANGES}),
            _turn(1),
            _attempt(),
        ],
        model_attempt.Fail(
            ModelFailed(
                "rate_limited", "slow down", retryable=True, retry_after_s=1.5, received_digest="a" * 64
            )
        ),
        _attempt(),
        model_attempt.Finish(_answer(LOOK, PUT, PAY, TORN, PAY)),
        [
            _schedule(0, LOOK),
            _schedule(1, PUT),
            _schedule(2, PAY),
            Reject(3, "malformed", "the arguments end too early"),
            _schedule(4, PAY),
        ],
        [evaluated(0), evaluated(1), evaluated(2, Verdict.ASK), _asked(2), evaluated(4, Verdict.DENY)],
        [OnCall(4, tool.Cancel("permission_denied")), running(0), _started_narrowed()],
        OnCall(2, Resolve(Verdict.ALLOW, UPDATED, digest(UPDATED), "only three")),
        [_confirmed(2), _started_with_updated_input()],
        [OnCall(0, _result()), OnCall(1, tool.Fail("OSError", ""))],
        OnCall(2, tool.Suspend({"question": "which account?"}, {"type": "object"})),
        OnCall(2, tool.Answer({"account": 7})),
        running(2),
        OnCall(2, tool.LoseSight("the connection broke")),
        OnCall(2, tool.Reconcile("completed", "the bank's statement", "paid", {"cents": 3})),
        [turn.CompleteTurn(5, "tool_calls"), AcceptInput("i-2", "stop that", Priority.NOW, 2, "r1")],
    ]


def _second_request() -> list[Commit]:
    """The first goes on, is steered, compacts and is completed."""
    name = "compaction-1"
    return [
        [ApplyInput("i-2", Priority.NOW, 2), FinishPreparation(("i-2",)), _turn(2), _attempt()],
        AcceptInput("i-3", "again", Priority.NOW, 3, "r1", Priority.NOW),
        [model_attempt.Abandon("steering"), turn.AbortTurn("steering", "i-3")],
        [ApplyInput("i-3", Priority.NOW, 3), FinishPreparation(("i-3",))],
        [
            recorded(ev.CompactionStarted(compaction_id=name, trigger="size"), aggregate_id=name),
            _compaction_attempt(name, 1),
        ],
        [
            model_attempt.Finish(_answer()),
            recorded(
                ev.CompactionCompleted(compaction_id=name, summary="short", upto_sequence=9),
                aggregate_id=name,
            ),
        ],
        [_turn(3), _attempt()],
        model_attempt.Reconcile("completed", "the provider's log", _answer(stop=Stop.PAUSE), "found"),
        [turn.CompleteTurn(0, "pause"), _turn(4), _attempt()],
        model_attempt.Finish(_answer()),
        [turn.CompleteTurn(0, "end"), request.Complete("done", {"input_tokens": 9}, "read by hand")],
    ]


def _third_request(scenario: Scenario) -> list[Commit]:
    """Another worker: requests that fail, are aborted and are rolled over."""
    assert scenario.state.session is not None
    resume = Resume(scenario.state.session.settings_digest, {"look": "d" * 64})
    return [
        [resume, AcceptInput("i-4", "more", Priority.LATER, 4)],
        _accept("i-4", 5),
        [*_begun("i-4"), _turn(1), _attempt()],
        model_attempt.Fail(ModelFailed("bad_request", "no", bytes_sent=False)),
        EndRequest("error", request.Fail("bad_request", "no", "the log")),
        [AcceptInput("i-5", "and this", Priority.NEXT, 5), _accept("i-5", 5)],
        [*_begun("i-5"), _turn(1), _attempt()],
        model_attempt.Finish(_answer(PAY, PAY)),
        [
            _schedule(0, PAY),
            _schedule(1, PAY),
            evaluated(0),
            evaluated(1, Verdict.ASK),
            _asked(1),
            running(0),
        ],
        request.RequestAbort("nobody waits for it"),
        EndRequest("abort", request.Interrupt("user", "i-5", "the button")),
        SettleEffect("r3.t1.a1.c0", tool.Reconcile("cancelled", "never arrived")),
        [AcceptInput("i-6", "last", Priority.NEXT, 6), _accept("i-6", 5)],
        [
            EndRequest("superseded", request.Supersede("host", "rolled over")),
            AcceptInput("i-7", "really last", Priority.NEXT, 7),
            _accept("i-7", 5),
        ],
    ]


def _rest() -> list[Commit]:
    name = "compaction-2"
    return [
        EndRequest("abandoned", request.Interrupt("abandoned", evidence="nobody waits for it")),
        recorded(ev.CompactionStarted(compaction_id=name, trigger="asked"), aggregate_id=name),
        FailCompaction(name, "process_restart"),
        [AcceptInput("i-8", "never mind", Priority.NEXT, 8), CancelInput("i-8", "user")],
        AcceptInput("i-9", "too late", Priority.LATER, 9),
        CloseSession("retired"),
    ]


# --- words --------------------------------------------------------------------------------


def _accept(input_id: str, max_turns: int) -> Drafts:
    def drafts(state: State) -> Any:
        assert state.session is not None
        accept = request.AcceptRequest(input_id, state.session.settings, {"a": [1]}, max_turns)
        return decider.handle(state, accept)

    return drafts


def _turn(number: int) -> Drafts:
    def drafts(state: State) -> Any:
        assert state.request is not None
        return decider.handle(state, turn.StartTurn(number, state.request.settings_digest))

    return drafts


def _begun(input_id: str) -> list[Writing]:
    return [ApplyInput(input_id, Priority.NEXT, 1), request.StartRequest(), FinishPreparation((input_id,))]


def _attempt() -> StartAttempt:
    return StartAttempt(
        "scripted", "openai-chat", "a-model", "b" * 64, 99, "c" * 64, {"temperature": 0.5}, True
    )


def _compaction_attempt(name: str, number: int) -> Drafts:
    sent = ev.ModelRequestStarted(
        purpose="compaction",
        number=number,
        provider="scripted",
        api="openai-chat",
        model="a-model",
        streaming=False,
        request_digest="b" * 64,
        request_bytes=7,
    )
    return recorded(sent, model_attempt_id=ids.attempt(name, number))


def _answer(*calls: Called, stop: Stop | None = None) -> Response:
    blocks = (Block("text", "Hm \U0001f600"), Block("opaque", '{"sig":"x"}', "openai-chat"))
    return replace(response(*calls, stop=stop), blocks=blocks, provider_ids={"response_id": "resp-1"})


def _schedule(index: int, called: Called) -> Schedule:
    made = scheduled(index, called)
    assert isinstance(made, Schedule)
    return replace(made, category="files", destructive=called is PAY)


def _asked(index: int) -> OnCall:
    return OnCall(index, Ask("pay(cents=5)", "2026-02-01T00:00:00Z"))


def _confirmed(index: int) -> Drafts:
    def drafts(state: State) -> Any:
        assert state.session is not None
        confirm = Evaluate(
            Verdict.ALLOW, "person", state.session.policy_digest, "rule-1", ("asked", "allowed")
        )
        return decider.handle(state, OnCall(index, confirm))

    return drafts


def _started_with_updated_input() -> OnCall:
    return OnCall(2, tool.Start(digest(UPDATED), "key-r1.t1.a2.c2", UPDATED))


def _started_narrowed() -> OnCall:
    narrowed = tool.Start(digest({"k": "v"}), "key-r1.t1.a2.c1", None, SideEffect.PURE, "a dry run")
    return OnCall(1, narrowed)


def _result() -> tool.Complete:
    return tool.Complete(
        {
            "output": "it is there",
            "value": {"found": True, "size": 2**64},
            "display": ["a", "b"],
            "messages": [{"role": "tool"}],
            "notes": ["cut"],
            "blobs": ["f" * 64],
            "raw_digest": "f" * 64,
            "original_bytes": 10**7,
            "kept": "cut",
        }
    )


# --- its file -------------------------------------------------------------------------------


def written(scenario: Scenario) -> str:
    """The golden journal as text: rows as they are stored, and the plan after each commit."""
    rows = [
        {
            "sequence": row.sequence,
            "topic": row.topic,
            "envelope": row.envelope.decode(),
            "payload": (row.payload or b"").decode(),
            "salt": (row.salt or b"").hex(),
            "head": row.head.hex(),
        }
        for row in scenario.rows()
    ]
    document = {"format": 1, "session_id": scenario.state.session_id, "plans": plans(scenario), "rows": rows}
    return json.dumps(document, indent=1, ensure_ascii=True) + "\n"


def plans(scenario: Scenario) -> list[list[Any]]:
    """[sequence, [action, who, subject, reason] ...] after each commit."""
    return [
        [entry.state.sequence, *([s.action, s.who, s.subject, s.reason] for s in next_steps(entry.state))]
        for entry in scenario.entries
    ]
