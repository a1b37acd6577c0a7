"""What the eventsourcing library is given to read a journal's rows with.

Imported by the recorders. A topic is text from a database: it is looked at and never
resolved to Python code.
"""

from __future__ import annotations

from typing import Any, NoReturn

from eventsourcing.persistence import JSONTranscoder, Mapper, StoredEvent

from domain.envelope import Recorded, Stored, open_envelope
from domain.errors import StoreUnsupported


class EnvelopeMapper(Mapper[str]):
    """Reads envelopes. A topic is looked at as text and never resolved to Python code."""

    def __init__(self) -> None:
        super().__init__(JSONTranscoder())

    def to_domain_event(self, stored_event: StoredEvent) -> Recorded:
        """The event without its content."""
        session_id, sequence = str(stored_event.originator_id), stored_event.originator_version
        return open_envelope(
            Stored(session_id, sequence, stored_event.topic, stored_event.state, None, None, b"")
        )

    def to_stored_event(self, domain_event: Any) -> NoReturn:
        """Refused: events are stamped and sealed before they come to a store."""
        raise refusal()


def refusal() -> StoreUnsupported:
    """What every other way to write is answered with."""
    return StoreUnsupported(
        "eventsourcing application",
        "expected events through Journal.commit; there is no other way to write a journal",
    )
