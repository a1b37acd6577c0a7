"""Rebuilding what a session looked like, from its journal alone.

No model, no tool, no socket: every answer is the recorded one, found by its
attempt. Reading is `recovery.pages`, the read models are in `projections`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import Enum
from typing import Any, Final

from domain.ports import JournalReader
from projections import interactions, pending_inputs, session_view, transcript, usage
from projections.interactions import Interactions
from projections.pending_inputs import PendingInputs
from projections.projector import Folding, Projection
from projections.session_view import SessionView
from projections.transcript import Exchange, Transcript
from projections.usage import Usage
from recovery.pages import Pages
from recovery.problem import BAD_ROW, Blocked, problem_of

FORMAT: Final = "minutebook.replay/1"


@dataclass(slots=True)
class Replay:
    """A session as of `sequence`; `problem` where the journal could not be followed further."""

    session_id: str
    sequence: int = 0
    head: bytes = b""
    problem: Blocked | None = None
    transcript: Transcript = field(default_factory=Transcript)
    pending_inputs: PendingInputs = field(default_factory=PendingInputs)
    interactions: Interactions = field(default_factory=Interactions)
    usage: Usage = field(default_factory=Usage)
    session: SessionView = field(default_factory=SessionView)

    @property
    def foldings(self) -> list[Folding]:
        """Which read model folds what."""
        return [
            Folding(transcript.TYPES, self.transcript),
            Folding(pending_inputs.TYPES, self.pending_inputs),
            Folding(interactions.TYPES, self.interactions),
            Folding(usage.TYPES, self.usage),
            Folding(session_view.TYPES, self.session),
        ]

    def to_json(self) -> dict[str, Any]:
        """As a document of plain values; `format` names its version."""
        return {
            "format": FORMAT,
            "session_id": self.session_id,
            "sequence": self.sequence,
            "head": self.head.hex(),
            "problem": self.problem.to_plain() if self.problem else None,
            "session": plain(self.session.facts),
            "transcript": [
                {"kind": "exchange" if isinstance(item, Exchange) else "user", **plain(item)}
                for item in self.transcript.items
            ],
            "pending_inputs": plain(self.pending_inputs.items),
            "permissions": plain(self.interactions.permissions),
            "suspensions": plain(self.interactions.suspensions),
            "usage": {
                "attempts": plain(self.usage.attempts),
                "requests": plain(self.usage.requests),
                "session": plain(self.usage.session),
            },
        }


async def replay(reader: JournalReader, session_id: str, *, upto: int | None = None) -> Replay:
    """Rebuild a session up to a sequence, or wholly.

    Raises:
        SessionNotFound, InvalidOptions, StoreFailure.

    Guarantees: every row is proved to follow from the one before it; reading stops
        at the first that does not, or that cannot be decoded.
    """
    made = Replay(session_id)
    projection = Projection(made.foldings)
    pages = Pages(reader, session_id, upto=upto)
    async for rows in pages:
        for row in rows:
            try:
                projection.apply(row)
            except BAD_ROW as e:
                made.problem = problem_of(e, row, row.sequence)
                return made
            made.sequence, made.head = row.sequence, row.head
    made.problem = pages.problem
    return made


def plain(value: Any) -> Any:
    """A read model's values as plain ones: times as ISO text, vocabularies as their words."""
    match value:
        case Enum():
            return value.value
        case datetime():
            return value.isoformat()
        case Mapping():
            return {key: plain(item) for key, item in value.items()}
        case list() | tuple():
            return [plain(item) for item in value]
    return plain(asdict(value)) if hasattr(value, "__dataclass_fields__") else value
