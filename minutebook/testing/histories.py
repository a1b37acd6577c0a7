"""Hypothesis strategies: legal histories of sessions.

    @given(histories())
    def test_something(history: Walk) -> None:
        for events in history.commits: ...

A history is built only by carrying out what the plan asks for and by the whims
of a `World`, all of it through the deciders and the rules. Nothing here knows
what a legal journal is. Needs the `testing` extra.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hypothesis import strategies as st

from domain.entry import Entry
from domain.errors import RuleViolated
from domain.model_ports import Response
from domain.next_steps import NOTHING, Action, next_steps
from domain.state import State
from domain.values import Interrupt, OnLostAttempt, SideEffect, Stop, Verdict
from minutebook.testing.moves import carry, landings
from minutebook.testing.scenario import Called, Scenario, response, write
from minutebook.testing.world import Move, World, whims

_VERDICTS = (
    (Verdict.ALLOW, Verdict.DENY, Verdict.ASK),
    (Verdict.ASK, Verdict.ALLOW, Verdict.DENY),
    (Verdict.ASK,),
    (Verdict.ALLOW,),
)
_WAITS = frozenset({Action.AWAIT, Action.INTERRUPT})
#: Of twenty moves most are the plan's; these are the others, and their rank among the twenty.
_WHIM, _LANDING, _CRASH = 15, 18, 19
_ENDS = frozenset({"close", "abort", "abandon", "cancel input"})


class Walk(Scenario):
    """A session that moves: a scenario, and what its process has in flight.

    `moments` are the states it was in between commits, each with what was in flight then.
    """

    def __init__(self, world: World, session_id: str = "s-walk") -> None:
        super().__init__(session_id)
        self.world = world
        self.in_flight = NOTHING
        self.moments: list[tuple[State, frozenset[str]]] = []
        self._open: Entry | None = None

    def __repr__(self) -> str:
        commits = [" ".join(event.type for event in commit) for commit in self.commits]
        return f"Walk({' | '.join(commits)}; in flight: {sorted(self.in_flight)})"

    @property
    def preview(self) -> State:
        """The state with the moves that are not committed yet."""
        return self._open.state if self._open is not None else self.state

    def planned(self) -> list[Move]:
        """What the plan asks for, in every way it can turn out."""
        steps = next_steps(self.preview, self.in_flight)
        return [move for step in steps for move in carry(self.preview, step, self.in_flight, self.world)]

    def wished(self) -> list[Move]:
        """What may happen besides."""
        return list(whims(self.preview, self.in_flight, self.world))

    def landing(self) -> list[Move]:
        """How what is in flight may end."""
        return list(landings(self.preview, self.in_flight, self.world))

    def take(self, move: Move) -> None:
        """Add a move to the open commit, beginning one if there is none."""
        entry = self._open or self.begin()
        for writing in move.writings:
            write(entry, writing)
        self._open = entry if entry.events else None
        self.in_flight = move.in_flight

    def commit(self) -> None:
        """Make the moves since the last commit durable."""
        if self._open is not None:
            self._open.finish()
            self.record(self._open)
            self._open = None
        self.moments.append((self.state, self.in_flight))

    def crash(self) -> None:
        """Lose what is not committed, and everything in flight."""
        self._open = None
        self.in_flight = NOTHING

    def go_on(self, move: Move) -> None:
        """Take a move as a commit of its own."""
        self.commit()
        self.take(move)
        self.commit()


def calls() -> st.SearchStrategy[Called]:
    """A call of a tool of any class; some with arguments that do not parse, some of no tool."""
    return st.builds(
        _called,
        st.sampled_from(SideEffect),
        st.sampled_from(Interrupt),
        st.sampled_from((*["good"] * 8, "torn", "gone")),
    )


def _called(side_effect: SideEffect, interrupt: Interrupt, kind: str) -> Called:
    name = f"{kind}-{side_effect}-{interrupt}"
    return Called(name, '{"a":' if kind == "torn" else '{"a":1}', side_effect, interrupt)


def responses() -> st.SearchStrategy[Response]:
    """A model's answer: up to three calls, ended in any way."""
    return st.builds(
        _response, st.lists(calls(), max_size=3), st.sampled_from((*[Stop.TOOL_CALLS] * 6, *Stop))
    )


def _response(called: list[Called], stop: Stop) -> Response:
    return response(*called, stop=stop)


def tools_of(answers: Iterable[Response]) -> tuple[Called, ...]:
    """The tools that `responses()` call and that exist."""
    names = {call.name for answer in answers for call in answer.calls}
    every = [_called(s, i, k) for s in SideEffect for i in Interrupt for k in ("good", "torn")]
    return tuple(called for called in every if called.name in names)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Worlds with up to three different answers of the model."""
    answers = draw(st.lists(responses(), min_size=1, max_size=3))
    return World(
        responses=tuple(answers),
        tools=tools_of(answers),
        verdicts=draw(st.sampled_from(_VERDICTS)),
        on_lost_attempt=draw(st.sampled_from(OnLostAttempt)),
    )


@st.composite
def histories(draw: st.DrawFn, world: st.SearchStrategy[World] | None = None, max_moves: int = 60) -> Walk:
    """Sessions after up to `max_moves` moves, crashes among them.

    Args:
        world: what may happen; any of `worlds()` unless given.
        max_moves: the longest history, in moves.
    """
    walk = Walk(draw(world if world is not None else worlds()))
    walk.go_on(walk.wished()[0])
    chance = st.integers(0, _CRASH)
    few, many = st.lists(chance, max_size=12), st.lists(chance, min_size=max_moves // 2, max_size=max_moves)
    for drawn in draw(st.one_of(few, many)):
        _move(draw, walk, drawn)
    walk.commit()
    return walk


def _move(draw: st.DrawFn, walk: Walk, chance: int) -> None:
    if chance == _CRASH:
        walk.crash()
    elif chance == _LANDING:
        walk.commit()
        _one_of(draw, walk, list(_possible(walk, walk.landing())))
    elif chance >= _WHIM:
        walk.commit()
        _one_of(draw, walk, _weighed(draw, walk.wished()))
    else:
        _planned(draw, walk)


def _planned(draw: st.DrawFn, walk: Walk) -> None:
    if any(step.action in _WAITS for step in next_steps(walk.preview, walk.in_flight)):
        walk.commit()  # what is waited for began only once it was durable
    choices = walk.planned()
    if not choices:
        walk.commit()
        sends = [move for move in walk.wished() if move.label.startswith("send")]
        _one_of(draw, walk, sends or _weighed(draw, walk.wished()))
        return
    if draw(st.integers(0, 2)) == 0:  # the first outcome is the one that goes on furthest
        choices = choices[:1]
    walk.take(draw(st.sampled_from(choices)))
    if draw(st.booleans()):
        walk.commit()


def _one_of(draw: st.DrawFn, walk: Walk, moves: list[Move]) -> None:
    if moves:
        walk.go_on(draw(st.sampled_from(moves)))


def _weighed(draw: st.DrawFn, moves: list[Move]) -> list[Move]:
    """The moves, most often sends, seldom those that end something."""
    sends = [move for move in moves if move.label.startswith("send")]
    lasting = [move for move in moves if move.label not in _ENDS]
    chance = draw(st.integers(0, 7))
    if chance < 4 and sends:
        return sends
    return moves if chance > 5 else lasting


def _possible(walk: Walk, moves: list[Move]) -> Iterator[Move]:
    """The moves that are not too late by now."""
    for move in moves:
        try:
            walk.compose(move.writings)
        except RuleViolated:
            continue
        yield move
