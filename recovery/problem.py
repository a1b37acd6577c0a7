"""What keeps a journal from being read on: the first bad place, what was expected and what was found.

Imported by everything of `recovery` that reads. A problem is a value, because a
journal that cannot be read is an answer and not a failure of the reader.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from domain.envelope import Recorded, Stored
from domain.errors import Corrupt, JournalBlocked, Rejected, RuleViolated
from domain.lifecycle import advance
from domain.preview import preview
from domain.state import State

#: What folding data of a stranger may raise besides the domain's own errors.
_UNFOLDABLE: Final = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    AssertionError,
    RecursionError,
)
#: What a reader of journals has to expect from one row.
BAD_ROW: Final = (Corrupt, Rejected, *_UNFOLDABLE)


@dataclass(frozen=True, slots=True)
class Blocked:
    """The first thing that is wrong.

    Args:
        check: a stable word: sequence, chain, payload, envelope, event type, event version,
            rule, head, cut, command, snapshot, owner, lease, stored value, missing blob, damaged blob.
        sequence: where; 0 where no event is meant.
        newer: whether a newer version of this library may be able to read it.
    """

    check: str
    sequence: int
    expected: str
    found: str
    newer: bool = False

    def __str__(self) -> str:
        return f"{self.check} at sequence {self.sequence}: expected {self.expected}, found {self.found}"

    def to_plain(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "check": self.check,
            "sequence": self.sequence,
            "expected": self.expected,
            "found": self.found,
            "newer": self.newer,
        }


def problem_of(error: Exception, row: Stored | None, sequence: int) -> Blocked:
    """The problem that an error of reading or folding stands for.

    Args:
        row: the row it happened at, if it was read.
        sequence: that row's place in the journal.
    """
    topic = row.topic if row is not None else "an event"
    if isinstance(error, Corrupt):
        newer = isinstance(error, JournalBlocked) and error.where in ("event type", "event version")
        return Blocked(error.where, error.sequence or sequence, error.expected, error.actual, newer)
    if isinstance(error, RuleViolated):
        return Blocked("rule", error.sequence or sequence, error.rule, topic)
    return Blocked("rule", sequence, "an event that can be folded", f"{topic}: {preview(str(error), 160)}")


def fold_row(state: State, event: Recorded) -> State:
    """`advance`, with every way to fail turned into one of `BAD_ROW`."""
    try:
        return advance(state, event)
    except _UNFOLDABLE as e:
        raise RuleViolated(
            f"an event that can be folded ({preview(str(e), 120)})", event.type, event.sequence
        ) from e
