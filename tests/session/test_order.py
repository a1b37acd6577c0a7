"""The order contract's own check: it finds what it looks for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from domain.envelope import Recorded
from minutebook.interactions import Approve
from minutebook.testing.scripted import Gate, call, reply
from tests.session import order
from tests.session.harness import Hands, Place, asked

pytestmark = pytest.mark.anyio

Chunks = list[list[Recorded]]


def numbered(chunks: Chunks) -> list[Recorded]:
    """Events as if each chunk had been one commit."""
    return [
        replace(event, command_id=f"c{number}", command_index=index, command_size=len(chunk))
        for number, chunk in enumerate(chunks)
        for index, event in enumerate(chunk)
    ]


def split_before(chunks: Chunks, type_: str) -> Chunks:
    """One more commit begins at the first event of a type."""
    number, at = next(
        (n, i) for n, chunk in enumerate(chunks) for i, e in enumerate(chunk) if e.type == type_
    )
    chunk = chunks[number]
    return [*chunks[:number], chunk[:at], chunk[at:], *chunks[number + 1 :]]


def joined_with_next(chunks: Chunks, type_: str) -> Chunks:
    """The commit that holds the first event of a type goes on into the next one."""
    number = next(n for n, chunk in enumerate(chunks) if type_ in order.types(chunk))
    return [*chunks[:number], chunks[number] + chunks[number + 1], *chunks[number + 2 :]]


BROKEN: dict[str, tuple[Callable[[Chunks, str], Chunks], str, str]] = {
    "applied alone": (split_before, "request_started", "2:"),
    "attempt not durable before its end": (joined_with_next, "model_request_started", "5:"),
    "question not with its evaluation": (split_before, "permission_requested", "8:"),
    "run not durable before its end": (joined_with_next, "tool_started", "9:"),
    "end in the commit of the abort": (joined_with_next, "abort_requested", "11:"),
    "turn ends before its request": (split_before, "request_interrupted", "11:"),
}


async def journal(place: Place, hands: Hands) -> list[Recorded]:
    """A question, an answer, a tool round, and an abort."""
    gate = Gate()
    script = [reply("", call("pay", {"what": "rent"})), [gate, *reply("never")]]
    async with place.create(script, tools=hands.tools()) as session:
        await session.send("hello")
        question = await asked(session)
        await session.respond(question.id, Approve(), digest=question.digest)
        await gate.reached()
        await session.abort()
    return await place.events()


@pytest.mark.parametrize(("change", "type_", "rule"), BROKEN.values(), ids=BROKEN.keys())
async def test_commits_that_are_cut_otherwise_are_found(
    place: Place, hands: Hands, change: Callable[[Chunks, str], Chunks], type_: str, rule: str
) -> None:
    chunks = [list(commit) for commit in order.commits(await journal(place, hands))]
    order.check(numbered(chunks))
    with pytest.raises(AssertionError, match=rule):
        order.check(numbered(change(chunks, type_)))


@pytest.mark.parametrize("type_", ["input_accepted", "tool_scheduled", "model_request_completed"])
async def test_what_has_no_beginning_is_found(place: Place, hands: Hands, type_: str) -> None:
    events = await journal(place, hands)
    left = [event for event in events if event.type != type_]
    with pytest.raises(AssertionError, match=r"\d+:"):
        order.check(_renumbered(left))


def _renumbered(events: Sequence[Recorded]) -> list[Recorded]:
    moved = [replace(event, sequence=number) for number, event in enumerate(events, 1)]
    return numbered([list(commit) for commit in order.commits(moved)])
