"""What a session is put together from (see `minutebook.opening`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from domain.ports import Journal
from minutebook.answers import Answers
from minutebook.book import Book
from minutebook.conversation import Conversation
from minutebook.feed import Feed
from minutebook.flights import Flights
from minutebook.following import View
from minutebook.loop import Loop
from minutebook.models import Providers
from projections.transcript import Transcript
from projections.usage import Usage
from recovery.plan import RecoveryPlan


@dataclass(slots=True)
class Parts:
    """The pieces. `shown` and `usage` hold what is durable only; `start` begins the loop, once.

    `is_durable`: whether the journal outlives this process.
    """

    journal: Journal
    is_durable: bool
    book: Book
    conversation: Conversation
    shown: View[Transcript]
    usage: View[Usage]
    providers: Providers
    feed: Feed
    flights: Flights
    loop: Loop
    answers: Answers
    plan: Callable[[], RecoveryPlan]
    start: Callable[[], None]
