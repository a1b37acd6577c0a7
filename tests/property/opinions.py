"""Several stores asked the same thing, one after the other, and what they say compared.

Stores are kept for a whole run; each example has an owner and session ids of its own in them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from anyio.from_thread import BlockingPortal, start_blocking_portal

from domain.cursor import Cursor
from domain.envelope import Stored
from domain.errors import MinutebookError
from domain.ports import Journal, LeaseRow, Receipt, StoreDescription
from minutebook.testing.clock import ManualClock
from tests.property.store_model import Answer

Ask = Callable[[Journal], Awaitable[Any]]
#: Never reached; a store that reaches it has left a caller asleep.
PATIENCE_S = 20


@dataclass(eq=False)
class Voice:
    """One store that is asked."""

    name: str
    description: StoreDescription
    journals: dict[str, Journal] = field(default_factory=dict)
    heard: dict[str, AsyncIterator[Stored]] = field(default_factory=dict)


class Opinions:
    """The stores of a run. `ask` gives what all of them said, if that was one thing."""

    def __init__(self, portal: BlockingPortal, voices: Sequence[Voice], clock: ManualClock) -> None:
        self._portal = portal
        self._handles = ExitStack()
        self.voices = voices
        self.clock = clock

    def open(self, owners: tuple[str, ...]) -> None:
        """A handle of every store for every owner, in place of those before."""
        self.close()
        for voice in self.voices:
            for owner in owners:
                opening = voice.description.open(owner_id=owner)
                voice.journals[owner] = self._enter(opening)

    def close(self) -> None:
        """Close the handles; what listens through them ends."""
        self._handles.close()
        for voice in self.voices:
            voice.heard.clear()

    def _enter(self, opening: Any) -> Any:
        within: AbstractContextManager[Any] = self._portal.wrap_async_context_manager(opening)
        return self._handles.enter_context(within)

    def ask(self, owner: str, call: Ask) -> Answer:
        """What every store answers; AssertionError if they do not agree."""
        return self._agreed(self._portal.call(self._asked, owner, call))

    def listen(self, owner: str, session_id: str, after: Cursor) -> None:
        """Begin to listen through every store."""
        self._portal.call(self._listen, owner, session_id, after)

    def hear(self, session_id: str, count: int) -> Answer:
        """The next rows that every store's listener hears."""
        return self._agreed(self._portal.call(self._hear, session_id, count))

    async def _asked(self, owner: str, call: Ask) -> list[Any]:
        return [await outcome(call(voice.journals[owner])) for voice in self.voices]

    async def _listen(self, owner: str, session_id: str, after: Cursor) -> None:
        for voice in self.voices:
            voice.heard[session_id] = voice.journals[owner].subscribe(session_id, after=after)

    async def _hear(self, session_id: str, count: int) -> list[Any]:
        return [await outcome(take(voice.heard[session_id], count)) for voice in self.voices]

    def _agreed(self, answers: list[Any]) -> Answer:
        told = [_told(voice, answer) for voice, answer in zip(self.voices, answers, strict=True)]
        for voice, other in zip(self.voices[1:], told[1:], strict=True):
            assert told[0] == other, f"{self.voices[0].name} says {told[0]}\n{voice.name} says {other}"
        return reduced(answers[0])


def _told(voice: Voice, answer: Any) -> Any:
    """All of an answer but the name of the store."""
    if isinstance(answer, MinutebookError):
        name = next(iter(voice.journals.values())).name
        return type(answer), answer.code, str(answer).replace(name, "the store", 1)
    return list(answer) if isinstance(answer, list | tuple) else answer


async def outcome(call: Awaitable[Any]) -> Any:
    """A call's answer, its refusal being one."""
    try:
        with anyio.fail_after(PATIENCE_S):
            return await call
    except MinutebookError as refusal:
        return refusal


async def take(rows: AsyncIterator[Stored], count: int) -> list[Stored]:
    """The next rows of a subscription."""
    return [await anext(rows) for _ in range(count)]


def reduced(answer: Any) -> Answer:
    """An answer in the model's words."""
    match answer:
        case Receipt():
            return ("receipt", str(answer.status), answer.first_sequence, answer.last_sequence, answer.head)
        case LeaseRow():
            return ("lease", answer.token, answer.lease_id, answer.holder_id)
        case MinutebookError():
            return ("error", answer.code)
    return ("value", _plain(answer))


def _plain(answer: Any) -> Any:
    """Rows of sessions without their times; the rest as it is."""
    if isinstance(answer, list | tuple):
        return [_plain(each) for each in answer]
    lease = getattr(answer, "lease", None)
    if hasattr(answer, "listing"):
        shown = (answer.listing.status, answer.listing.next_action)
        held = reduced(lease)[1:] if lease is not None else None
        return (answer.session_id, answer.owner_id, answer.sequence, answer.head, shown, held)
    return answer


@contextmanager
def asked(voices: Sequence[Voice], clock: ManualClock) -> Iterator[Opinions]:
    """Stores that stay open for a run, in an event loop of their own."""
    with start_blocking_portal() as portal, ExitStack() as kept:
        for voice in voices:
            kept.enter_context(portal.wrap_async_context_manager(voice.description.open(owner_id="keeper")))
        opinions = Opinions(portal, voices, clock)
        kept.callback(opinions.close)
        yield opinions
