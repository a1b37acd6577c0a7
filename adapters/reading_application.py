"""The eventsourcing library's application and mapper, as far as they read a journal.

Imported by the recorders. A topic is text from a database: it is looked at and never
resolved to Python code.
"""

from __future__ import annotations

from typing import Any, NoReturn

from eventsourcing.application import Application
from eventsourcing.persistence import JSONTranscoder, Mapper, StoredEvent
from eventsourcing.utils import Environment, EnvType

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


class ReadingApplication(Application[str]):
    """The library's application around a journal; for reading and for projections.

    What is made of it says how a journal is reached (`construct_factory`).
    """

    name = "minutebook"

    def construct_env(self, name: str, env: EnvType | None = None) -> Environment:
        """An empty environment: the process's own is never looked at."""
        return Environment(name, {})

    def construct_mapper(self) -> EnvelopeMapper:
        """The mapper that reads envelopes."""
        return EnvelopeMapper()

    def save(self, *objs: Any, **kwargs: Any) -> NoReturn:
        """Refused: there is one way to write."""
        raise refusal()

    def take_snapshot(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: snapshots are written with the commit that crosses the boundary."""
        raise refusal()


def refusal() -> StoreUnsupported:
    """What every other way to write is answered with."""
    return StoreUnsupported(
        "eventsourcing application",
        "expected events through Journal.commit; there is no other way to write a journal",
    )
