"""A model state that lives the life of a session of ours: events and steps, translated.

The model knows calls by index, inputs by number and a policy by a counter. Where
it knows less than we do, the translation says so in a comment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from domain.arguments import parse_arguments
from domain.envelope import Draft, Recorded
from domain.errors import ArgumentsRefused
from domain.events import ResponseKept
from domain.lifecycle import advance
from domain.next_steps import Action, Step, Who, evaluating, preparing, stop
from domain.request import Preparation
from domain.state import State
from domain.values import CUT_STOPS, Interrupt, SideEffect, Stop
from minutebook.testing.world import World

CLASSES = {SideEffect.PURE: "P", SideEffect.IDEMPOTENT: "I", SideEffect.NON_IDEMPOTENT: "N"}
SAME_NAME = {
    *("session_created", "session_closed", "request_started", "abort_requested", "model_request_started"),
    *("input_preparation_started", "compaction_started", "compaction_completed", "compaction_failed"),
}
#: What they do to the policy is carried over by `_patch`.
WITHOUT_MEANING = {
    *("notice_recorded", "settings_changed", "model_changed", "max_turns_changed", "session_resumed"),
    *("default_context_changed", "permission_mode_changed", "permission_rule_set"),
    *("permission_granted", "permission_grant_revoked", "thinking_changed"),
}
OF_A_CALL = {
    *("tool_scheduled", "tool_started", "tool_completed", "tool_failed", "tool_cancelled"),
    *("tool_outcome_unknown", "tool_suspended", "tool_resumed"),
    *("permission_requested", "permission_cancelled"),
}
OTHER_NAME = {
    Action.NEXT_ATTEMPT: "start_attempt",
    Action.PREPARE_INPUT: "prepare_inputs",
    Action.CONTINUE_REQUEST: "start_turn",
}

Event = tuple[Any, ...]
Item = tuple[Any, ...]


@dataclass(frozen=True)
class Model:
    """The model's modules."""

    model: Any
    rules: Any
    step: Any
    explore: Any

    @property
    def repairs(self) -> Any:
        """All of its switches on."""
        return self.explore.FIX


@dataclass
class Twin:
    """The model's state beside ours."""

    model: Model
    world: World
    state: Any = None
    ours: State = field(default_factory=lambda: State("s-walk"))
    inputs: list[str] = field(default_factory=list)
    policies: list[str] = field(default_factory=lambda: [""])

    def __post_init__(self) -> None:
        self.state = self.model.model.State()

    def follow(self, commit: Iterable[Recorded]) -> None:
        """Live through one of our commits, by the model's rules; raises its `Illegal`."""
        translated = []
        for event in commit:
            events = self.translate(event)
            self.ours = advance(self.ours, event)
            translated.append((events, event, self.ours))
        flat = [t for events, _, _ in translated for t in events]
        done = 0
        for events, event, ours in translated:
            for one in events:
                done += 1
                self._check(one, flat[done] if done < len(flat) else None)
                self.state = self.model.model.evolve(self.state, one)
            self._patch(event, ours)
        self.model.rules.commit(self.state, [], self.model.repairs)

    def verdict(self, drafts: Sequence[Draft]) -> str | None:
        """The rule by which the model refuses these drafts as one commit, or None."""
        translated = [one for draft in drafts for one in self.translate(draft)]
        try:
            self.model.rules.commit(self.state, translated, self.model.repairs)
        except self.model.rules.Illegal as refusal:
            return str(refusal)
        except (AttributeError, TypeError, IndexError) as error:  # its events are not checked for sense
            return repr(error)
        return None

    def steps(self, in_flight: frozenset[str]) -> list[Item]:
        """The model's plan, in our reading of what is in flight."""
        fly = frozenset(self._fly(in_flight))
        items = self.model.step.next_step(self.state, fly, self.model.repairs)
        return [self._item(item, in_flight) for item in items]

    # --- events -----------------------------------------------------------------------

    def translate(self, event: Recorded | Draft) -> list[Event]:
        """The model's events for one of ours, which comes next."""
        name, data = event.data.type, event.data
        if event.data.aggregate == "model_attempt" and event.turn_id is None:
            return []  # the model's compaction has no attempt
        if name in SAME_NAME:
            return [(name,)]
        if name in WITHOUT_MEANING:
            return []
        if name in OF_A_CALL:
            return [(name, _index(event))]
        return list(self._with_arguments(name, data, event))

    def _with_arguments(self, name: str, data: Any, event: Recorded | Draft) -> Iterable[Event]:
        match name:
            case "input_accepted":
                yield name, data.priority.value if data.target_request_id else "later"
                if isinstance(event, Recorded):
                    self.inputs.append(data.input_id)
            case "input_applied":
                yield name, self._number(data.input_id)
            case "input_cancelled":
                yield name, self._number(data.input_id), data.reason
            case "input_prepared":  # the model always writes that it began
                if self.ours.request is not None and self.ours.request.preparation is Preparation.DUE:
                    yield ("input_preparation_started",)
                yield (name,)
            case "request_accepted":
                yield name, self._number(data.input_id), data.max_turns
            case "request_completed" | "request_failed" | "request_interrupted":
                yield name, "end"
            case "request_superseded":  # the model does not roll over
                yield "request_interrupted", "end"
            case "turn_started":
                yield name, data.number
            case "turn_completed":
                yield name, data.has_tool_calls
            case "turn_aborted":
                yield name, data.reason
            case _:
                yield from self._of_attempt_or_call(name, data, event)

    def _of_attempt_or_call(self, name: str, data: Any, event: Recorded | Draft) -> Iterable[Event]:
        match name:
            case "model_request_completed":
                yield name, self._response(data.response)
            case "model_request_failed":
                yield name, data.retryable
            case "model_request_aborted":
                yield name, data.reason
            case "model_outcome_reconciled" if data.response is not None:
                yield name, data.outcome, self._response(data.response)
            case "model_outcome_reconciled":
                yield name, data.outcome
            case "tool_rejected":
                yield name, _index(event), data.reason
            case "tool_outcome_reconciled" if any(e.tool_id == event.tool_id for e in self.ours.unsettled):
                yield ("debt_reconciled",)
            case "tool_outcome_reconciled":
                yield name, _index(event), data.outcome
            case "permission_evaluated" | "permission_resolved":
                yield name, _index(event), str(data.verdict)
            case _:
                raise AssertionError(name)

    def _response(self, kept: ResponseKept) -> Item:
        calls = tuple(self._call(call.name, call.arguments) for call in kept.calls)
        if kept.stop is Stop.PAUSE and not calls:
            return calls, "pause"
        # The model knows a pause without calls only; with calls ours runs none of them, like a cut.
        return calls, "cut" if kept.stop in CUT_STOPS else "stop"

    def _call(self, name: str, arguments: str) -> Item:
        found = self.world.tool(name)
        try:
            parse_arguments(arguments)
        except ArgumentsRefused:
            good = False
        else:
            good = True
        if found is None:
            return "N", "B", good
        return CLASSES[found.side_effect], "C" if found.interrupt is Interrupt.CANCEL else "B", good

    def _check(self, one: Event, following: Event | None) -> None:
        self.model.rules.check(self.state, one, self.model.repairs, following)

    def _number(self, input_id: str) -> int:
        return self.inputs.index(input_id) if input_id in self.inputs else len(self.inputs)

    def _patch(self, event: Recorded, ours: State) -> None:
        """What the model has no event for: a policy that is what it was before, an updated input."""
        digest = ours.session.policy_digest if ours.session else ""
        if digest not in self.policies:
            self.policies.append(digest)
        self.state = self.model.model.rep(self.state, policy=self.policies.index(digest))
        if event.type == "permission_resolved" and event.data.updated_digest is not None:
            self.state = self.model.model._tool(self.state, _index(event), ver=-1)

    # --- steps ------------------------------------------------------------------------

    def _fly(self, in_flight: frozenset[str]) -> Iterable[Any]:
        ours = self.ours
        if ours.attempt is not None and ours.attempt.attempt_id in in_flight:
            yield "m"
        if ours.request is not None and preparing(ours.request.request_id) in in_flight:
            yield "h"
        if ours.compaction is not None and ours.compaction.compaction_id in in_flight:
            yield "c"
        for call in ours.calls:
            if call.call_id in in_flight:
                yield call.index
            if stop(call.call_id) in in_flight:
                yield "sig", call.index

    def _item(self, item: Item, in_flight: frozenset[str]) -> Item:
        action, who, argument = item
        attempt = self.ours.attempt
        if action == "interrupt_model" and attempt is not None and stop(attempt.attempt_id) in in_flight:
            return "await_model", "wait", None  # the model's attempt ends as soon as it is told to
        if action == "evaluate" and evaluating(self.ours.calls[argument].call_id) in in_flight:
            return "await_evaluation", "wait", argument  # the model evaluates at once
        if action == "reconcile_model_outcome" and self.world.on_lost_attempt == "retry":
            return action, "auto", None  # the model has no such setting
        return action, who, argument

    def item(self, step: Step, in_flight: frozenset[str]) -> Item:
        """One of our steps, in the model's words."""
        who = {Who.AUTOMATIC: "auto", Who.FLIGHT: "wait", Who.NOBODY: "-", Who.OPERATOR: "host"}
        return (*self._words(step, in_flight), who.get(step.who, str(step.who)))

    def _words(self, step: Step, in_flight: frozenset[str]) -> Item:
        match step.action:
            case Action.START_NEXT_REQUEST | Action.APPLY_INPUT:
                return step.action.value, self._number(step.subject)
            case Action.ABORT_TURN:
                return "abort_turn", step.reason
            case Action.FAIL_REQUEST:
                return "fail_request", "error" if step.reason == "model" else step.reason
            case Action.REJECT_CALL:
                why = "interrupted" if step.reason == "interrupted" else "malformed_or_cut"
                return "reject_call", (step.index, why)
            case Action.CANCEL_TOOL:
                return "cancel_tool", (step.index, step.reason)
            case Action.INTERRUPT | Action.AWAIT:
                return self._in_flight(step, in_flight)
        return OTHER_NAME.get(step.action, step.action.value), step.index

    def _in_flight(self, step: Step, in_flight: frozenset[str]) -> Item:
        verb = step.action.value
        if step.index is not None:
            asked = evaluating(step.subject) in in_flight
            return f"{verb}_{'evaluation' if asked else 'tool'}", step.index
        ours = self.ours
        if ours.compaction is not None and step.subject == ours.compaction.compaction_id:
            return f"{verb}_compaction", None
        if ours.request is not None and step.subject == ours.request.request_id:
            return f"{verb}_inputs", None
        return f"{verb}_model", None


def _index(event: Recorded | Draft) -> int:
    assert event.tool_id is not None
    return int(event.tool_id.rpartition(".c")[2])
