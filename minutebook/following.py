"""What follows a session's journal: told of each commit after it, and without a say in it.

Imported by the book, which tells, and by whoever keeps something up to date. A follower that
fails is *stale*: it is told nothing more, and says so to whoever asks it. What was committed
stays committed, and the session goes on. What the loop itself decides by is no follower.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from domain.envelope import Recorded
from domain.errors import StaleView
from projections.projector import Projector

log = logging.getLogger("minutebook")

Model = TypeVar("Model", bound=Projector)


class Follower(Protocol):
    """Somebody who is told of each commit once it is durable."""

    def take(self, events: Sequence[Recorded]) -> None:
        """Take a commit's events, in order."""

    def fail(self, stale: StaleView) -> None:
        """Taking them failed; nothing more comes."""


class View(Generic[Model]):
    """A read model of what is durable, or the news that it is stale."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._stale: StaleView | None = None

    @property
    def model(self) -> Model:
        """The model, up to date.

        Raises:
            StaleView: it could not take an event.
        """
        if self._stale is not None:
            raise self._stale.with_traceback(None)
        return self._model

    def take(self, events: Sequence[Recorded]) -> None:
        """Fold them."""
        for event in events:
            self._model.apply(event)

    def fail(self, stale: StaleView) -> None:
        """Give the model out no more: it may have folded a part of a commit."""
        self._stale = stale


def tell(followers: list[Follower], events: Sequence[Recorded]) -> None:
    """Hand durable events to all of them; those that fail are taken off the list."""
    for follower in tuple(followers):
        try:
            follower.take(events)
        except Exception as error:  # a defect of whatever kind: the events are durable all the same
            stale = StaleView(events[0].session_id, events[0].sequence - 1, error)
            log.error("%s", stale, exc_info=error)
            followers.remove(follower)
            follower.fail(stale)
