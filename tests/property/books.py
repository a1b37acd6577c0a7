"""What a session's events come to, kept in a few dicts as they arrive: the model beside several workers.

It reads types, ids and fences. None of our folds has a part in it; what the plan has to be is
the recovery table, written by hand once more in `tests/crash/oracle.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from domain.envelope import Recorded
from tests.crash import oracle
from tests.crash.invariants import ENDS, identity

INPUT_ENDS = ("input_applied", "input_cancelled")
BEGINS = ("tool_started", "model_request_started")


@dataclass(slots=True)
class Books:
    """Everything that has to hold of a journal's events, as far as they were read.

    `wrong` has a sentence for each that does not.
    """

    events: list[Recorded] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    place: oracle.Place = field(default_factory=oracle.Place)
    accepted: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    begun: set[str] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)
    #: Calls that were started and have no end: whether they are pure.
    open_calls: dict[str, bool] = field(default_factory=dict)
    unsettled: set[str] = field(default_factory=set)
    ended: dict[tuple[str, str], int] = field(default_factory=dict)
    token: int = 0

    @property
    def frontier(self) -> str:
        """The first thing that comes next."""
        return self.plan[0][0]

    @property
    def plan(self) -> list[oracle.Item]:
        """What the plan has to be."""
        return oracle.items(self.place)

    def read(self, events: Sequence[Recorded]) -> None:
        """Take in what the journal has grown by."""
        for event in events:
            self.events.append(event)
            if event.sequence != len(self.events):
                self.wrong.append(f"{event.sequence} is the event at {len(self.events)}")
            self._writer(event)
            self._input(event)
            self._ends(event)
            self._call(event)
            oracle.read(self.place, event)

    def lacks(self, input_id: str) -> bool:
        """Whether an input came in, and was neither applied nor cancelled."""
        return self.accepted[input_id] > self.left[input_id]

    def _writer(self, event: Recorded) -> None:
        """I8: a lease's token rises with each holder, and nobody writes after the next one."""
        token = event.recorded_by.token if event.recorded_by is not None else 0
        if event.type == "lease_acquired":
            right, self.token = token > self.token, token
        else:
            right = token == self.token or event.type == "session_created"
        if not right:
            self.wrong.append(f"{event.sequence} {event.type} has the token {token}, after {self.token}")

    def _input(self, event: Recorded) -> None:
        """I1, its journal's half: an input comes in once and leaves once."""
        if event.type == "input_accepted":
            self.accepted[event.data.input_id] += 1
        elif event.type in INPUT_ENDS:
            self.left[event.data.input_id] += 1
        else:
            return
        if self.accepted[event.data.input_id] != 1 or self.left[event.data.input_id] > 1:
            self.wrong.append(
                f"{event.sequence} {event.type} of {event.data.input_id} comes twice, or too early"
            )

    def _ends(self, event: Recorded) -> None:
        """I7: each request, turn, attempt and call ends once, and nothing of it follows."""
        for kind, types in ENDS.items():
            own = kind, identity(event, kind)
            if event.data.aggregate in _OF[kind] and own in self.ended:
                self.wrong.append(
                    f"{event.sequence} {event.type} follows the end of {own} at {self.ended[own]}"
                )
            if event.type in types:
                self.ended[own] = event.sequence

    def _call(self, event: Recorded) -> None:
        """Which effects nobody knows the outcome of."""
        call = event.tool_id or ""
        if event.type == "tool_scheduled":
            self.names[call] = event.data.name
        elif event.type == "tool_started":
            self.open_calls[call] = event.data.side_effect == "pure"
        elif event.type in ENDS["call"]:
            self.open_calls.pop(call, None)
            self.unsettled.discard(call)
        elif event.type in ENDS["request"]:
            self.unsettled |= {each for each, pure in self.open_calls.items() if not pure}
            self.open_calls.clear()
        if event.type in BEGINS:
            self.begun.add(call or event.model_attempt_id or "")


#: Whose events are about a thing of this kind, and nothing within it.
_OF = {
    "request": ("request",),
    "turn": ("turn",),
    "attempt": ("model_attempt",),
    "call": ("tool", "permission"),
}
