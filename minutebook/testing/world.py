"""What a session may meet: the answers of models, tools and people, and their whims.

Pure. A `World` bounds what may happen, so that everything it allows can be
listed; `whims` lists what may happen at any time, besides the plan. What the
plan asks for is in `minutebook.testing.moves`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from domain import budget, ids, inputs, request, rollover, session, tool
from domain import events as ev
from domain.budget import Limits, SetBudget
from domain.decider import CloseSession, EndRequest, SettleEffect
from domain.model_ports import Response
from domain.next_steps import NOTHING
from domain.settings import Settings
from domain.state import State
from domain.values import Effective, OnLostAttempt, PermissionMode, Priority, Verdict
from minutebook.testing.scenario import LOOK, PAY, PUT, SETTINGS, Called, Writing, recorded, response


@dataclass(frozen=True, slots=True)
class World:
    """What may happen to a session.

    Args:
        responses: what a model may answer.
        tools: the tools by name; a call of any other name is rejected when it comes to it.
        verdicts: what the policy may say of a call.
        segments: how often one call may suspend.
        unsure: tools may end with an unknown outcome.
        updates: a person may allow a call with another input.
        hooks: inputs may need a preparation of their own.
        max_turns: of every request.
        inputs: how many inputs are ever sent.
        sends: priorities of inputs that are sent while a request is active.
        changes: how often the permission policy is changed.
        compacts: history may be summarised between turns.
        on_lost_attempt: the recorded policy.
        budgets: what the session may be given to spend, the first one at its beginning and any
            of them at any time; none: no limit ever.
    """

    responses: tuple[Response, ...] = (response(), response(LOOK, PUT), response(PAY))
    tools: tuple[Called, ...] = (LOOK, PUT, PAY)
    verdicts: tuple[Verdict, ...] = (Verdict.ALLOW, Verdict.DENY, Verdict.ASK)
    segments: int = 1
    unsure: bool = True
    updates: bool = True
    hooks: bool = True
    max_turns: int = 3
    inputs: int = 4
    sends: tuple[Priority, ...] = (Priority.NOW, Priority.NEXT, Priority.LATER)
    changes: int = 2
    compacts: bool = True
    on_lost_attempt: OnLostAttempt = OnLostAttempt.ASK
    budgets: tuple[Limits | None, ...] = ()

    def tool(self, name: str) -> Called | None:
        """The tool of that name."""
        return next((t for t in self.tools if t.name == name), None)

    def settings(self) -> Settings:
        """The settings of its sessions."""
        return SETTINGS.changed({"on_lost_attempt": self.on_lost_attempt, "max_turns": self.max_turns})


@dataclass(frozen=True, slots=True)
class Move:
    """One thing that may happen: what is appended, and what is in flight afterwards."""

    label: str
    writings: tuple[Writing, ...]
    in_flight: frozenset[str]


Wishes = Iterator[tuple[str, tuple[Writing, ...]]]


def whims(state: State, in_flight: frozenset[str], world: World) -> Iterator[Move]:
    """Everything that may happen besides the plan: sends, aborts, changes of policy, closing."""
    if state.session is None:
        first = tuple(SetBudget(limits) for limits in world.budgets[:1])
        yield Move("create", (session.Create("local", world.settings(), {}), *first), in_flight)
        return
    for label, writings in _wishes(state, world):
        yield Move(label, writings, NOTHING if label in ("abandon", "roll over") else in_flight)
    may_ask = world.compacts and not state.spending.is_spent
    if may_ask and state.compaction is None and _may_compact(state):
        yield _compact(state, in_flight)


def _wishes(state: State, world: World) -> Wishes:
    assert state.session is not None
    for effect in state.unsettled:
        yield "settle", (SettleEffect(effect.tool_id, tool.Reconcile("completed", "the host looked")),)
    if state.session.status is session.Status.CLOSED:
        return
    yield from _sends(state, world)
    yield from _policies(state, world)
    yield from _changes()
    yield from _budgets(state, world)
    for item in state.waiting_inputs():
        yield "cancel input", (inputs.CancelInput(item.input_id, "user"),)
    if state.request is None and state.compaction is None:
        yield "close", (CloseSession("user"),)
    if state.request is not None and not state.request.aborting:
        yield "abort", (request.RequestAbort("user"),)
        yield "abandon", (EndRequest("abandoned", request.Interrupt("abandoned", evidence="asked")),)
        if not state.spending.is_spent and not rollover.crossed(state):
            yield "roll over", (*_roll_over(state, world),)


def _roll_over(state: State, world: World) -> Iterator[Writing]:
    assert state.session is not None
    assert state.request is not None
    old, ordinal = state.request, state.queue.accepted + 1
    supersede = request.Supersede("host", "asked", ids.request(state.requests + 1), old.unprepared)
    yield EndRequest("superseded", supersede)
    yield inputs.AcceptInput(f"i-{ordinal}", "go on", Priority.NEXT, ordinal)
    yield request.AcceptRequest(
        f"i-{ordinal}", state.session.settings, old.context, world.max_turns, old.request_id
    )


def _budgets(state: State, world: World) -> Wishes:
    for limits in world.budgets:
        command = SetBudget(limits)
        if not budget.after(state.spending, budget.decide(command)).is_spent:
            yield "budget", (command,)


def _changes() -> Wishes:
    yield "note", (session.Note("remark", "nothing changed", {"odd": "\ud800"}),)
    yield "model", (session.Change({"model": "another-model"}, Effective.NEXT_TURN),)
    elsewhere = {"model": "a-third-model", "provider_name": "elsewhere", "context_window": 1000}
    yield "provider", (session.Change(elsewhere),)
    yield "thinking", (session.Change({"thinking": {"budget_tokens": 5}}, Effective.NEXT_TURN),)
    yield "no thinking", (session.Change({"thinking": None}),)
    yield "settings", (session.Change({"temperature": 0.5, "max_turns": 2, "context": {"a": 1}}),)


def _may_compact(state: State) -> bool:
    assert state.session is not None
    closed = state.session.status is session.Status.CLOSED
    aborting = state.request is not None and state.request.aborting
    return not closed and not aborting and state.active_turn is None


def _compact(state: State, in_flight: frozenset[str]) -> Move:
    """No command begins a compaction yet, so its drafts are made by hand."""
    name = f"c-{state.sequence + 1}"
    begun = recorded(ev.CompactionStarted(compaction_id=name, trigger="size"), aggregate_id=name)
    sent = ev.ModelRequestStarted(
        purpose="compaction",
        number=1,
        provider="scripted",
        api="openai-chat",
        model="test-model",
        request_digest="0" * 64,
        request_bytes=2,
    )
    attempt = recorded(sent, model_attempt_id=ids.attempt(name, 1))
    return Move("compact", (begun, attempt), in_flight | {name})


def _sends(state: State, world: World) -> Wishes:
    ordinal = state.queue.accepted + 1
    input_id = f"i-{ordinal}"
    if ordinal > world.inputs:
        return
    if state.request is not None:
        for priority in world.sends:
            aim = None if priority is Priority.LATER else state.request.request_id
            yield f"send {priority}", (inputs.AcceptInput(input_id, "more", priority, ordinal, aim),)
    elif not state.queue.pending:
        assert state.session is not None
        accept = inputs.AcceptInput(input_id, "hello", Priority.NEXT, ordinal)
        begin = request.AcceptRequest(input_id, state.session.settings, {}, world.max_turns)
        yield "send", (accept,) if state.spending.is_spent else (accept, begin)


def _policies(state: State, world: World) -> Wishes:
    assert state.session is not None
    current = state.session
    number = len(current.rules) + len(current.grants) + current.revocations
    if number >= world.changes:
        return
    plan = current.settings.permission_mode is PermissionMode.PLAN
    mode = PermissionMode.DEFAULT if plan else PermissionMode.PLAN
    yield "mode", (session.Change({"permission_mode": mode}),)
    yield "rule", (session.SetRule(f"rule-{number}", "tool", "look", Verdict.ALLOW),)
    yield "grant", (session.Grant(f"grant-{number}", "tool", "put", "process"),)
    for grant in current.grants:
        yield "revoke", (session.Revoke(grant.grant_id),)
    yield "resume", (session.Resume(current.settings_digest, {"look": f"{number}"}),)
