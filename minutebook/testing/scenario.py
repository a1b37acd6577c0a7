"""`given(...).when(...).then(...)`: rules and plans as short sentences.

    given(created(), accepted("hi")).when(request.StartRequest()).refused("directly after its own input")

`given` takes commands, each list of them one commit; `when` one more commit;
`then` names what it must have appended. Words for what a whole runtime appends,
such as `started()` and `responded(...)`, are below.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from domain import decider, inputs, model_attempt, permission, request, session, tool, turn
from domain.decider import Command
from domain.entry import Entry
from domain.envelope import SALT_BYTES, Draft, Fence, Recorded, Stored, genesis
from domain.errors import Rejected
from domain.events import Payload
from domain.model_ports import Block, DeclaredCall, Response
from domain.next_steps import NOTHING, Step, next_steps
from domain.settings import Settings
from domain.state import State
from domain.values import Interrupt, Priority, SideEffect, Stop, ToolKind, Verdict

EPOCH: Final = datetime(2026, 1, 1, tzinfo=UTC)
SETTINGS: Final = Settings(model="test-model", provider={"type": "scripted"})

#: What a faulty writer would append, or what has no command (yet): see `forged`, `recorded`.
Drafts = Callable[[State], Iterable[Draft]]
Writing = Command | Drafts
Commit = Writing | Iterable[Writing]


class Scenario:
    """A session built by commands alone: no store, no clock, no loop.

    `events` are all of its events, `commits` the same by commit, `entries` the
    commits as they were composed; `fence` is stamped on what comes next.
    """

    def __init__(self, session_id: str = "s-test", fence: Fence | None = None) -> None:
        self.state = State(session_id)
        self.fence = fence
        self.events: list[Recorded] = []
        self.entries: list[Entry] = []

    @property
    def commits(self) -> list[list[Recorded]]:
        """The events of each commit."""
        return [entry.events for entry in self.entries]

    def given(self, *commits: Commit) -> Scenario:
        """Carry out commits that must be allowed."""
        for commit in commits:
            self._commit(commit)
        return self

    def when(self, commit: Commit) -> Outcome:
        """Try one more commit."""
        try:
            return Outcome(self, self._commit(commit), None)
        except Rejected as error:
            return Outcome(self, [], error)

    def plan(self, in_flight: frozenset[str] = NOTHING) -> tuple[Step, ...]:
        """What comes next."""
        return next_steps(self.state, in_flight)

    def actions(self, in_flight: frozenset[str] = NOTHING) -> list[str]:
        """The actions of what comes next."""
        return [step.action.value for step in self.plan(in_flight)]

    def begin(self) -> Entry:
        """An empty entry for the next commit."""
        number = len(self.entries) + 1
        return Entry(self.state, f"cmd-{number}", EPOCH + timedelta(seconds=number - 1), self.fence)

    def compose(self, commit: Commit) -> Entry:
        """The next commit, finished and not carried out. Raises what the rules raise."""
        entry = self.begin()
        for writing in _writings(commit):
            write(entry, writing)
        entry.finish()
        return entry

    def record(self, entry: Entry) -> None:
        """Carry out a finished entry."""
        self.state = entry.state
        self.entries.append(entry)
        self.events += entry.events

    def rows(self) -> list[Stored]:
        """All events as a store would keep them; the salts follow from the sequences."""
        rows: list[Stored] = []
        head = genesis(self.state.session_id)
        for entry in self.entries:
            salts = (salt(event.session_id, event.sequence) for event in entry.events)
            rows += entry.sealed(head, salts.__next__)
            head = rows[-1].head
        return rows

    def _commit(self, commit: Commit) -> list[Recorded]:
        entry = self.compose(commit)
        self.record(entry)
        return entry.events


class Outcome:
    """What became of a `when`."""

    def __init__(self, scenario: Scenario, events: list[Recorded], error: Rejected | None) -> None:
        self.scenario, self.events, self.error = scenario, events, error

    def then(self, *expected: str | type[Payload] | Payload) -> Scenario:
        """It appended exactly these: type names, payload classes or whole payloads."""
        assert self.error is None, self.error
        found: list[Any] = []
        for event, wanted in zip(self.events, expected, strict=False):
            found.append(_as(event, wanted))
        found += [event.type for event in self.events[len(expected) :]]
        assert found == list(expected), f"expected {list(expected)}, got {found}"
        return self.scenario

    def refused(self, rule: str) -> Scenario:
        """It was refused, by a rule whose text contains `rule`, and nothing changed."""
        assert self.error is not None, f"allowed: {[e.type for e in self.events]}"
        assert rule in str(self.error), f"refused, but by another rule: {self.error}"
        return self.scenario


def _writings(commit: Commit) -> list[Writing]:
    return list(commit) if isinstance(commit, list | tuple) else [cast(Writing, commit)]


def write(entry: Entry, writing: Writing) -> None:
    """Add a command, or drafts that have none, to an entry. Raises what the rules raise."""
    if callable(writing):
        for draft in writing(entry.state):
            entry.append(draft)
    else:
        entry.add(writing)


def _as(event: Recorded, wanted: str | type[Payload] | Payload) -> Any:
    if isinstance(wanted, str):
        return event.type
    return type(event.data) if isinstance(wanted, type) else event.data


def salt(session_id: str, sequence: int) -> bytes:
    """A salt that anybody can make again; for tests only."""
    return hashlib.sha256(f"{session_id}/{sequence}".encode()).digest()[:SALT_BYTES]


def given(*commits: Commit) -> Scenario:
    """Begin a scenario."""
    return Scenario().given(*commits)


# --- drafts that no decider makes -------------------------------------------------------


def forged(writing: Writing, *, data: Mapping[str, Any] | None = None, **changes: Any) -> Drafts:
    """The drafts of a command, falsified: what a faulty writer would append.

    Args:
        data: fields of the payload to replace, not validated again.
        changes: fields of the draft to replace (`turn_id`, `causation`, ...).
    """

    def drafts(state: State) -> Iterable[Draft]:
        for draft in writing(state) if callable(writing) else decider.handle(state, writing):
            yield replace(draft, data=draft.data.model_copy(update=dict(data or {})), **changes)

    return drafts


def recorded(payload: Payload, **ids: Any) -> Drafts:
    """A payload that no command makes, with the ids given (`turn_id`, `aggregate_id`, ...)."""
    return lambda state: [decider.draft(state, payload, decider.HOST, **ids)]


# --- commits of a whole runtime ---------------------------------------------------------


def created(settings: Settings = SETTINGS, tools: dict[str, str] | None = None) -> Commit:
    """The commit that makes the session."""
    return [session.Create("local", settings, tools or {})]


def accepted(
    content: str = "hello",
    *,
    ordinal: int = 1,
    input_id: str | None = None,
    settings: Settings = SETTINGS,
    max_turns: int | None = None,
) -> Commit:
    """An idle send: the input and its request, one commit."""
    input_id = input_id or f"i-{ordinal}"
    return [
        inputs.AcceptInput(input_id, content, Priority.NEXT, ordinal),
        request.AcceptRequest(input_id, settings, {}, max_turns or settings.max_turns),
    ]


def started(ordinal: int = 1, *, settings: Settings = SETTINGS) -> Commit:
    """The request starts, its input is prepared, its first turn begins."""
    input_id = f"i-{ordinal}"
    return [
        inputs.ApplyInput(input_id, Priority.NEXT, 1),
        request.StartRequest(),
        inputs.FinishPreparation((input_id,)),
        turn.StartTurn(1, settings.digest()),
        attempt(),
    ]


def attempt() -> decider.StartAttempt:
    """The turn's next model attempt."""
    return decider.StartAttempt("scripted", "openai-chat", "test-model", "0" * 64, 2)


@dataclass(frozen=True, slots=True)
class Called:
    """A call as a scripted model makes it, and what its tool declares."""

    name: str
    arguments: str = "{}"
    side_effect: SideEffect = SideEffect.NON_IDEMPOTENT
    interrupt: Interrupt = Interrupt.BLOCK
    kind: ToolKind = ToolKind.EXECUTE


LOOK: Final = Called("look", '{"at":1}', SideEffect.PURE, Interrupt.CANCEL, ToolKind.READ_ONLY)
PUT: Final = Called("put", '{"k":"v"}', SideEffect.IDEMPOTENT, Interrupt.BLOCK, ToolKind.WRITE)
PAY: Final = Called("pay", '{"cents":5}')


def response(*calls: Called, stop: Stop | None = None, text: str = "") -> Response:
    """A finished response with these calls; without a stop it ends as its calls say."""
    return Response(
        (Block("text", text),) if text else (),
        tuple(DeclaredCall(f"call_{i}", c.name, c.arguments) for i, c in enumerate(calls)),
        stop or (Stop.TOOL_CALLS if calls else Stop.END),
        {"input_tokens": 3, "output_tokens": 2},
    )


def responded(*calls: Called, stop: Stop | None = None, text: str = "") -> Command:
    """The active attempt brings `response(...)`."""
    return model_attempt.Finish(response(*calls, stop=stop, text=text))


def scheduled(index: int, called: Called) -> Command:
    """The call at `index` will be carried out, by the tool that `called` declares."""
    return decider.Schedule(
        index, called.arguments, "d" * 64, called.side_effect, called.kind, called.interrupt
    )


def evaluated(index: int, verdict: Verdict = Verdict.ALLOW) -> Drafts:
    """The present policy's verdict on the call at `index`."""

    def drafts(state: State) -> Iterable[Draft]:
        policy = state.session.policy_digest if state.session else ""
        evaluate = permission.Evaluate(verdict, "rule", policy)
        return decider.handle(state, decider.OnCall(index, evaluate))

    return drafts


def running(index: int) -> Drafts:
    """The call at `index` is started, once more if it was before, with the input it is about."""

    def drafts(state: State) -> Iterable[Draft]:
        call = state.calls[index]
        digest = call.permission.input_digest if call.permission else ""
        return decider.handle(state, decider.OnCall(index, tool.Start(digest, f"key-{call.call_id}")))

    return drafts


def in_call(index: int, *commands: tool.Command | permission.Command) -> list[Writing]:
    """Commands about the call at `index`."""
    return [decider.OnCall(index, command) for command in commands]
