"""Feeding a journal's rows to read models, decoding only what somebody folds.

A read model is a class with `apply(event)`, and a set of the types it folds
beside it. It is rebuilt by feeding it the rows again. Checking the rows (chain,
rules) is the reader's business and does not belong here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from domain import catalogue
from domain.envelope import Recorded, Stored


class Projector(Protocol):
    """A read model that is brought up to date one event at a time."""

    def apply(self, event: Recorded) -> None:
        """Fold one event; those of other types are passed over."""


@dataclass(frozen=True, slots=True)
class Folding:
    """A projector with the event types it wants to see."""

    types: frozenset[str]
    projector: Projector


class Projection:
    """Projectors that are fed together.

    Args:
        foldings: who folds what; those of one type are served in this order.

    Guarantees: payloads of types that nobody folds are not decoded.
    """

    def __init__(self, foldings: Sequence[Folding]) -> None:
        self._by_type: dict[str, list[Callable[[Recorded], None]]] = {}
        for folding in foldings:
            for type_ in folding.types:
                self._by_type.setdefault(type_, []).append(folding.projector.apply)

    def apply(self, row: Stored) -> None:
        """Hand one row to the projectors that fold its type.

        Raises:
            JournalBlocked, Corrupt: somebody folds it and it cannot be decoded.
        """
        wanted = self._by_type.get(row.topic.rpartition("@")[0])
        if wanted:
            event = catalogue.open_stored(row)
            for apply in wanted:
                apply(event)


def project(foldings: Sequence[Folding], rows: Iterable[Stored]) -> None:
    """Feed rows of one session, by sequence. Raises as `Projection.apply` does."""
    projection = Projection(foldings)
    for row in rows:
        projection.apply(row)
