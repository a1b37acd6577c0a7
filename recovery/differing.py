"""What changed in a session between two points of its journal, as its read models show it.

Reads the session once, from its beginning, and keeps what may still change, not what
was said: of a change its first words are kept, and no more than `MAX_LISTED` of them.
Printing is `recovery.report_difference`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from domain.envelope import Stored
from domain.errors import InvalidOptions
from domain.ports import JournalReader
from projections import interactions, pending_inputs, session_view, transcript, usage
from projections.interactions import Interactions
from projections.pending_inputs import PendingInputs
from projections.projector import Folding, Projection
from projections.session_view import SessionFacts, SessionView
from projections.transcript import Exchange, Item, Transcript, UserItem
from projections.usage import Sum, Usage, total
from projections.wire_parts import readable
from recovery.escape import brief
from recovery.pages import PAGE, Pages
from recovery.plan import RecoveryPlan, plan_of
from recovery.problem import BAD_ROW, Blocked, problem_of
from recovery.reading import load
from recovery.replaying import plain

FORMAT: Final = "minutebook.difference/1"
#: Changed items of the conversation that are told; others are counted.
MAX_LISTED: Final = 1000
_FORGOTTEN: Final = UserItem(0, "", "")


@dataclass(frozen=True, slots=True)
class CallChange:
    """A call that came, or whose outcome is another one. `before`: None if it is new."""

    tool_id: str
    name: str
    before: str | None
    after: str


@dataclass(frozen=True, slots=True)
class ItemChange:
    """An item of the conversation that came, went or is not what it was.

    Args:
        change: added, changed or removed.
        kind: user or exchange; `name` is then the input's id or the attempt's.
        text: its first words.
    """

    change: str
    kind: str
    sequence: int
    name: str
    text: str
    calls: tuple[CallChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Point:
    """What the bounded read models say at one point, and what the plan was."""

    sequence: int
    facts: SessionFacts = field(default_factory=SessionFacts)
    pending_inputs: tuple[str, ...] = ()
    interactions: tuple[str, ...] = ()
    usage: Sum = field(default_factory=Sum)
    plan: RecoveryPlan | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """What changed between two points.

    Args:
        events: how many of each type there are after the first point, up to the second.
        items: of the conversation; `left_out` more were added.
        problem: where the journal could not be followed; what is told is as of before it.
    """

    session_id: str
    before: Point
    after: Point
    events: dict[str, int]
    items: tuple[ItemChange, ...]
    left_out: int
    problem: Blocked | None

    @property
    def facts(self) -> dict[str, tuple[Any, Any]]:
        """The facts of the session that are not what they were: before, after."""
        old, new = plain(self.before.facts), plain(self.after.facts)
        return {name: (old[name], new[name]) for name in new if old[name] != new[name]}

    def to_json(self) -> dict[str, Any]:
        """As a document of plain values; `format` names its version."""
        old, new = self.before, self.after
        return {
            "format": FORMAT,
            "session_id": self.session_id,
            "from": old.sequence,
            "to": new.sequence,
            "problem": self.problem.to_plain() if self.problem else None,
            "events": self.events,
            "session": {name: {"before": a, "after": b} for name, (a, b) in self.facts.items()},
            "transcript": {"items": [asdict(item) for item in self.items], "left_out": self.left_out},
            "pending_inputs": _came_and_went(old.pending_inputs, new.pending_inputs),
            "interactions": _came_and_went(old.interactions, new.interactions),
            "usage": {"before": asdict(old.usage), "after": asdict(new.usage)},
            "plan": {
                "before": old.plan.to_json() if old.plan else None,
                "after": new.plan.to_json() if new.plan else None,
            },
        }


def _came_and_went(old: tuple[str, ...], new: tuple[str, ...]) -> dict[str, list[str]]:
    return {"came": [name for name in new if name not in old], "went": [n for n in old if n not in new]}


async def difference(
    reader: JournalReader, session_id: str, first: int, last: int, *, page: int = PAGE
) -> Difference:
    """What changed after the event `first`, up to the event `last`.

    Args:
        page: how many rows are read, and held, at once.

    Raises:
        SessionNotFound, StoreFailure.
        InvalidOptions: there are no such events, or `last` is before `first`.

    Guarantees: every row is proved to follow from the one before it; memory does not
        grow with what was said.
    """
    if last < first:
        raise InvalidOptions("--to", f"{first} or later, as --from says", last)
    views = _Views(session_id)
    before = Point(0)
    pages = Pages(reader, session_id, upto=last, page=page)
    problem = None
    async for rows in pages:
        for row in rows:
            try:
                views.apply(row)
            except BAD_ROW as e:
                problem = problem_of(e, row, row.sequence)
                break
            if row.sequence > first:
                views.count(row.topic)
            elif row.sequence == first:
                before = await _with_plan(reader, views)
                views.conversation.mark()
        views.forget()
        if problem is not None:
            break
    problem = problem or pages.problem
    after = await _with_plan(reader, views) if problem is None else views.point()
    conversation = views.conversation
    return Difference(
        session_id, before, after, views.events, conversation.changes, conversation.left_out, problem
    )


async def _with_plan(reader: JournalReader, views: _Views) -> Point:
    loaded = await load(reader, views.session_id, upto=views.sequence)
    return replace(views.point(), plan=plan_of(loaded, journal=reader.name))


class _Views:
    """The read models, and how many events of each type came after the first point."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.conversation, self.usage, self.session = _Conversation(), _Usage(), SessionView()
        self.inputs, self.interactions = PendingInputs(), Interactions()
        self.events: dict[str, int] = {}
        self.sequence = 0
        self._projection = Projection(
            [
                Folding(transcript.TYPES, self.conversation),
                Folding(pending_inputs.TYPES, self.inputs),
                Folding(interactions.TYPES, self.interactions),
                Folding(usage.TYPES, self.usage),
                Folding(session_view.TYPES, self.session),
            ]
        )

    def apply(self, row: Stored) -> None:
        self._projection.apply(row)
        self.sequence = row.sequence

    def point(self) -> Point:
        """What they say now."""
        asked, waiting = self.interactions.permissions, self.interactions.suspensions
        return Point(
            self.sequence,
            self.session.facts,
            tuple(item.input_id for item in self.inputs.items),
            (*(each.tool_id for each in asked), *(each.tool_id for each in waiting)),
            self.usage.session,
        )

    def count(self, topic: str) -> None:
        type_ = topic.partition("@")[0]
        self.events[type_] = self.events.get(type_, 0) + 1

    def forget(self) -> None:
        self.conversation.forget()
        self.usage.forget()


class _Usage(Usage):
    """Usage whose ended attempts are only summed."""

    def __init__(self) -> None:
        super().__init__()
        self._ended = Sum()

    @property
    def session(self) -> Sum:
        return _plus(self._ended, super().session)

    def forget(self) -> None:
        """Sum up the attempts that have ended."""
        ended = [each for each in self.attempts if each.outcome != "open"]
        self._ended = _plus(self._ended, total(ended))
        for each in ended:
            del self._attempts[each.attempt_id]


def _plus(one: Sum, other: Sum) -> Sum:
    names = [*one.tokens, *(name for name in other.tokens if name not in one.tokens)]
    tokens = {name: one.tokens.get(name, 0) + other.tokens.get(name, 0) for name in names}
    return Sum(one.attempts + other.attempts, tokens, one.maybe_billed + other.maybe_billed)


class _Conversation(Transcript):
    """A transcript that holds the items that may still change, and lists those that did since `mark`."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: set[int] = set()
        self._listed: dict[int, ItemChange] = {}
        self._removed: list[ItemChange] = []
        self._before: dict[int, Item] | None = None
        self._old = 0

    @property
    def changes(self) -> tuple[ItemChange, ...]:
        """What changed, in order of the conversation; what went first."""
        return (*self._removed, *(self._listed[position] for position in sorted(self._listed)))

    @property
    def left_out(self) -> int:
        """How many more items were added."""
        added = sum(change.change == "added" for change in self._listed.values())
        return len(self.items) - self._old - added if self._before is not None else 0

    def mark(self) -> None:
        """List what changes from here on."""
        self.forget()
        self._old = len(self.items)
        self._before = {position: self.items[position] for position in self._kept}

    def forget(self) -> None:
        """Let go of the items that cannot change any more."""
        changed = self.take_changed()
        if self._before is not None:
            for position in changed:
                self._list(position)
        self._kept = {p for p in (*self._kept, *changed) if p < len(self.items)}
        for position in self._kept - set(self._may_change()):
            self.items[position] = _FORGOTTEN
            self._kept.discard(position)
        self._wire_ids.clear()  # nothing is sent from here

    def _may_change(self) -> Iterator[int]:
        """Exchanges with a call that is open or unknown; inputs that no model has seen."""
        yield from (position for position, _ in self._open.values())
        for position in range(len(self.items) - 1, -1, -1):
            item = self.items[position]
            if not isinstance(item, UserItem) or item is _FORGOTTEN:
                return
            yield position

    def _replaced(self, input_ids: list[str]) -> None:
        size = len(self.items)
        tail = {position: self.items[position] for position in range(max(size - len(input_ids), 0), size)}
        super()._replaced(input_ids)
        for position in range(len(self.items), size):
            self._listed.pop(position, None)
            if position < self._old:
                self._removed.append(_change("removed", tail[position], None))
        self._old = min(self._old, len(self.items))

    def _list(self, position: int) -> None:
        assert self._before is not None
        before = self._before.get(position) if position < self._old else None
        if position in self._listed or len(self._listed) < MAX_LISTED:
            how = "changed" if position < self._old else "added"
            self._listed[position] = _change(how, self.items[position], before)


def _change(how: str, item: Item, before: Item | None) -> ItemChange:
    if isinstance(item, UserItem):
        return ItemChange(how, "user", item.sequence, item.input_id, brief(readable(item.content)))
    old = {call.tool_id: call.outcome for call in before.calls} if isinstance(before, Exchange) else {}
    calls = tuple(
        CallChange(call.tool_id, brief(call.name), old.get(call.tool_id), call.outcome)
        for call in item.calls
        if old.get(call.tool_id) != call.outcome
    )
    return ItemChange(how, "exchange", item.sequence, item.attempt_id, brief(item.text), calls)
