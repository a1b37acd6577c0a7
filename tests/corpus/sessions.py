"""One use of a session, made in each store and held against what has to be the same.

Whatever somebody gives a session: it is taken or refused with a typed error, the same
in memory and in a file; the session goes on; read again, and read from the files as a
kill would leave them, the conversation is the same.
"""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapters.memory_journal import MemoryStore
from adapters.sqlite_reader import open_reader
from adapters.sqlite_store import SqliteStore
from domain.envelope import Recorded
from domain.errors import MinutebookError
from minutebook.session import Session
from minutebook.testing.faulty_store import FaultyStore
from minutebook.testing.scripted import Attempt, ScriptedProvider, Sent, reply
from minutebook.tool_definition import ToolDefinition
from recovery.replaying import replay
from tests.session.harness import Place

#: What a use of a session gives: anything that two stores can be compared by.
Use = Callable[[Session], Awaitable[Any]]
#: Attempts in order, or what is answered whatever is asked: then the last answer has to be "on".
Script = Sequence[Attempt] | Callable[[Sent], Attempt]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A typed refusal: its class and its stable code; the text is checked where it is made."""

    kind: str
    code: str


@dataclass(frozen=True, slots=True)
class Came:
    """What came of a use: its outcome and the journal, the same in every store."""

    outcome: Any
    events: list[Recorded]

    def data(self, type_: str) -> list[Any]:
        """The payloads of one type."""
        return [event.data for event in self.events if event.type == type_]


async def typed(use: Awaitable[Any]) -> Any:
    """What a use gives, or its refusal. An error that is not ours goes through and fails the test."""
    try:
        return await use
    except MinutebookError as e:
        refused = e
    assert str(refused).isprintable(), "a message that a terminal could take for commands"
    assert len(str(refused)) < 2000, "a message that holds the whole value"
    return Refusal(type(refused).__name__, refused.code)


async def in_both(
    directory: Path, use: Use, script: Script = (), tools: Sequence[ToolDefinition] = ()
) -> Came:
    """Use a session in memory and in a file.

    Args:
        script: what the model answers; one more answer is added, for a last request.

    Raises:
        AssertionError: the stores differ, the session did not go on, or it reads differently.
    """
    in_memory = await _in_one(Place(FaultyStore(MemoryStore())), None, use, script, tools)
    file = directory / "journal.db"
    in_file = await _in_one(Place(FaultyStore(SqliteStore(file))), file, use, script, tools)
    assert in_memory.outcome == in_file.outcome
    kept = [[(event.type, event.data) for event in came.events] for came in (in_memory, in_file)]
    assert repr(kept[0]) == repr(kept[1])  # NaN would not be equal to itself, a repr is
    return in_file


async def _in_one(
    place: Place,
    file: Path | None,
    use: Use,
    script: Script,
    tools: Sequence[ToolDefinition],
) -> Came:
    provider = ScriptedProvider(script if callable(script) else [*script, reply("on")])
    async with place.create(provider, tools=tools) as session:
        outcome = await typed(use(session))
        assert (await session.run("and on", input_id="i-last")).content == "on"
        before, image = session.messages, _image(file)
    async with place.resume([], tools=tools) as session:
        assert session.messages == before
    killed = await place.killed_after(len(place.store.batches))
    async with killed.resume([], tools=tools) as session:
        assert session.messages == before
    if image is not None:
        await _check_image(image, place)
    await place.check()
    return Came(outcome, await place.events())


def _image(file: Path | None) -> Path | None:
    """The files as they are while the session is open: what a kill would leave."""
    if file is None:
        return None
    image = file.parent / "image"
    image.mkdir(mode=0o700)
    for each in file.parent.glob(f"{file.name}*"):
        shutil.copy(each, image)
    return image / file.name


async def _check_image(image: Path, place: Place) -> None:
    async with open_reader(image) as reader, place.reader() as whole:
        found = await replay(reader, "s1")
        assert found.problem is None
        again = await replay(whole, "s1", upto=found.sequence)
    assert found.to_json() == again.to_json()
    assert found.transcript.items
