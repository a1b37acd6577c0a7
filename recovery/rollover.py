"""Rollovers: an operator ends a request as superseded and has a new one accepted, in one commit.

Two choices like those in `recovery.decisions`, and `filled`, which reads from the
journal what the successor takes over. The rules are in `domain.rollover`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from domain import budget, catalogue, ids, inputs, request, rollover
from domain import events as ev
from domain.decider import Command, EndRequest
from domain.errors import Corrupt, InvalidOptions, RecoveryRejected, UnsafeRollover, UnsettledEffectsFull
from domain.limits import MAX_TURNS, MAX_UNSETTLED_EFFECTS
from domain.next_steps import Action, Who, next_steps
from domain.ports import JournalReader
from domain.references import media_parts
from domain.state import CallState, State
from domain.tool import TERMINAL, Status
from domain.values import Priority, SideEffect
from recovery.decisions import Choice, check_evidence, rejected

Content = str | list[dict[str, Any]]

#: What the model is told where a turn was rolled over and nobody said anything else.
CONTINUE: Final = (
    "Go on with the request above from where it stopped. What became of each call is recorded with it; "
    "a call that was not carried out may be made again."
)
#: Where a request may be rolled over: nothing of it was seen by a model since its inputs came.
_BEFORE_A_TURN: Final = frozenset(
    {Action.RESUME_REQUEST, Action.PREPARE_INPUT, Action.RECONCILE_REQUEST_INPUTS, Action.APPLY_INPUT}
)


@dataclass(frozen=True, slots=True)
class Successor:
    """What the new request begins with; read from the journal by `filled`."""

    input_id: str
    content: Content
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RequestRollover:
    """Begin again with inputs whose preparation is unclear, or that nothing has been done about.

    Args:
        applied_input_ids: those that were applied and that no turn has seen, as the plan states
            them; none where the request was only accepted.
        content: the final content; None: that of the inputs, one after the other.
        max_turns: of the new request; None: those that are left.
    """

    kind: ClassVar[str] = "prepare_request_recovery"

    applied_input_ids: tuple[str, ...]
    evidence: str
    content: Content | None = None
    max_turns: int | None = None
    successor: Successor | None = None

    def check(self, state: State) -> None:
        """Raises RecoveryRejected unless the plan stands before a turn with exactly these inputs."""
        check_evidence(self.evidence)
        _check_content(self.content)
        active = state.request
        unprepared = active.unprepared if active is not None else ()
        (step, *_) = next_steps(state)
        before_a_turn = step.action in _BEFORE_A_TURN
        if active is None or not before_a_turn or not (unprepared or step.action is Action.RESUME_REQUEST):
            raise rejected(state, self.kind)
        if self.applied_input_ids != unprepared:
            raise RecoveryRejected(
                self.kind,
                f"expected the applied inputs {list(unprepared)}, got {list(self.applied_input_ids)}. "
                "Look at the plan again; nothing was written.",
            )
        _check_room(state, self.kind)

    def decide(self, state: State) -> tuple[Command, ...]:
        """Raises as `check`, and InvalidOptions where no turn is left."""
        self.check(state)
        return _commands(state, self, "request_recovery", self.applied_input_ids)

    @property
    def replaces(self) -> tuple[str, ...]:
        """The inputs that the successor's own stands for."""
        return self.applied_input_ids

    @property
    def arguments(self) -> dict[str, Any]:
        """What the decision's fingerprint is made of."""
        return {"applied_input_ids": list(self.applied_input_ids), **_arguments(self)}


@dataclass(frozen=True, slots=True)
class TurnRollover:
    """Give up the open turn and go on in a new request.

    Args:
        content: what the new request's input says; None: that the model is to go on.
        max_turns: of the new request; None: those that are left, this one included.
    """

    kind: ClassVar[str] = "prepare_turn_recovery"

    evidence: str
    content: Content | None = None
    max_turns: int | None = None
    successor: Successor | None = None

    def check(self, state: State) -> None:
        """Raises RecoveryRejected unless the plan resumes a turn, UnsafeRollover over a crossed call."""
        check_evidence(self.evidence)
        _check_content(self.content)
        crossed = rollover.crossed(state)
        if crossed:
            raise UnsafeRollover(self.kind, _unsafe(state, crossed))
        by_itself = all(step.who is Who.AUTOMATIC for step in next_steps(state))
        lost = next_steps(state)[0].action is Action.RECONCILE_MODEL_OUTCOME
        sealed = state.request is not None and state.request.aborting
        if state.active_turn is None or sealed or lost or not by_itself:
            raise rejected(state, self.kind)
        _check_room(state, self.kind)

    def decide(self, state: State) -> tuple[Command, ...]:
        """Raises as `check`, and InvalidOptions where no turn is left."""
        self.check(state)
        return _commands(state, self, "turn_recovery", ())

    @property
    def replaces(self) -> tuple[str, ...]:
        """None: what a turn has seen stays in the conversation."""
        return ()

    @property
    def arguments(self) -> dict[str, Any]:
        """What the decision's fingerprint is made of."""
        return _arguments(self)


Rollover = RequestRollover | TurnRollover


def _arguments(choice: Rollover) -> dict[str, Any]:
    return {"evidence": choice.evidence, "content": choice.content, "max_turns": choice.max_turns}


def possible(state: State) -> Rollover | None:
    """The rollover that a state allows, if any, as an operator would name it."""
    waiting = state.request.unprepared if state.request is not None else ()
    for choice in (TurnRollover("..."), RequestRollover(waiting, "...")):
        try:
            choice.check(state)
        except (RecoveryRejected, UnsettledEffectsFull):
            continue
        return choice
    return None


# --- what is checked ----------------------------------------------------------------------


def _check_content(content: Content | None) -> None:
    if content is not None and not content:
        raise InvalidOptions("content", "a text or parts, or nothing to take over what was said", content)


def _check_room(state: State, kind: str) -> None:
    assert state.request is not None
    if state.request.settings is None:
        raise rejected(state, kind)
    if state.spending.is_spent:
        used = budget.told(state.spending)
        raise RecoveryRejected(kind, f"the session has used {used}; no request starts. Nothing was written.")
    count = len(state.unsettled) + sum(_becomes_unsettled(call) for call in state.calls)
    if count >= MAX_UNSETTLED_EFFECTS:
        raise UnsettledEffectsFull(count, MAX_UNSETTLED_EFFECTS)


def _becomes_unsettled(call: CallState) -> bool:
    running = call.tool
    if running is None or running.status not in (Status.STARTED, Status.UNKNOWN):
        return False
    return running.status is Status.UNKNOWN or running.side_effect is not SideEffect.PURE


def _unsafe(state: State, crossed: tuple[CallState, ...]) -> str:
    open_ = [c for c in crossed if c.tool is not None and c.tool.status not in TERMINAL]
    names = ", ".join(f"{c.call_id} ({c.name}, {c.tool.status if c.tool else ''})" for c in crossed)
    first = f"settle {open_[0].call_id} with reconcile_tool_outcome; then " if open_ else ""
    assert state.turn is not None
    return (
        f"{names} must not run twice, and a new request might do it again. The way on: {first}"
        f"complete_turn {state.turn.turn_id} (resume the session), or abandon_request. Nothing was written."
    )


# --- what is appended ---------------------------------------------------------------------


def _commands(state: State, choice: Rollover, reason: str, replaced: tuple[str, ...]) -> tuple[Command, ...]:
    assert state.request is not None and state.session is not None and choice.successor is not None
    active, successor = state.request, choice.successor
    end = request.Supersede(reason, choice.evidence, ids.request(state.requests + 1), replaced)
    accepted = inputs.AcceptInput(
        successor.input_id,
        successor.content,
        Priority.NEXT,
        state.queue.accepted + 1,
        metadata=successor.metadata,
    )
    begun = request.AcceptRequest(
        successor.input_id,
        state.session.settings,
        active.context,
        _max_turns(state, choice.max_turns),
        active.request_id,
    )
    return EndRequest("superseded", end), accepted, begun


def _max_turns(state: State, given: int | None) -> int:
    left = rollover.turns_left(state)
    if given is None and left >= 1:
        return left
    if given is None or not 1 <= given <= MAX_TURNS:
        told = f"1 to {MAX_TURNS}; of the request {max(left, 0)} are left"
        raise InvalidOptions("max_turns", told, left if given is None else given)
    return given


# --- what is taken over -------------------------------------------------------------------


async def filled(choice: Choice, reader: JournalReader, state: State, new_id: Callable[[str], str]) -> Choice:
    """A rollover with what its successor begins with; any other choice as it is.

    Args:
        reader: holds the journal that `state` was folded from.
        new_id: gives the successor's input an id.

    Raises:
        RecoveryRejected, InvalidOptions: as the choice's `check`.
        InvalidOptions: the content names a blob that the store does not hold.
        Corrupt: an input is not where the journal says.
    """
    if not isinstance(choice, RequestRollover | TurnRollover):
        return choice
    choice.check(state)
    accepted = await _accepted(reader, state)
    content = choice.content or _taken_over(choice, state, accepted)
    for part in media_parts(content):
        if await reader.blob(part["blob"]) is None:
            raise InvalidOptions("content", "parts whose blobs are in the store", part["blob"])
    assert state.request is not None
    own = accepted[state.request.input_id]
    return replace(choice, successor=Successor(new_id("i"), content, own.metadata))


def _taken_over(choice: Rollover, state: State, accepted: Mapping[str, ev.InputAccepted]) -> Content:
    if isinstance(choice, TurnRollover):
        return CONTINUE
    assert state.request is not None
    wanted = choice.replaces or (state.request.input_id,)
    return _joined([accepted[input_id].content for input_id in wanted])


def _joined(contents: list[Content]) -> Content:
    if all(isinstance(content, str) for content in contents):
        return "\n\n".join(str(content) for content in contents)
    return [part for content in contents for part in _parts(content)]


def _parts(content: Content) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


async def _accepted(reader: JournalReader, state: State) -> dict[str, ev.InputAccepted]:
    """The request's own input and those that no turn has seen, as they were accepted."""
    assert state.request is not None
    active = state.request
    queued = state.queue.find(active.input_id)
    if queued is not None:
        return {active.input_id: await _input_at(reader, state, queued.sequence)}
    missing = {active.input_id, *active.unprepared}
    found: dict[str, ev.InputAccepted] = {}
    after = active.accepted_sequence
    while missing and (rows := await reader.read(state.session_id, after=after, upto=state.sequence)):
        for row in rows:
            if row.topic.partition("@")[0] != ev.InputApplied.type:
                continue
            event = catalogue.open_stored(row)
            if event.data.input_id in missing and event.causation is not None:
                missing.discard(event.data.input_id)
                found[event.data.input_id] = await _input_at(reader, state, event.causation)
        after = rows[-1].sequence
    if missing:
        raise Corrupt("events", f"the inputs {sorted(missing)} of {active.request_id}", "none", after)
    return found


async def _input_at(reader: JournalReader, state: State, sequence: int) -> ev.InputAccepted:
    rows = await reader.read(state.session_id, after=sequence - 1, upto=sequence, limit=1)
    data = catalogue.open_stored(rows[0]).data if rows else None
    if not isinstance(data, ev.InputAccepted):
        raise Corrupt("event", "the input that was accepted there", rows and rows[0].topic, sequence)
    return data
