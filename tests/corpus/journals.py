"""Journals to damage: small golden exports, a file with everything in it, a busy one of 200 events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path

from adapters.sqlite_store import SqliteStore
from domain import inputs, session
from domain.envelope import Stored, open_envelope
from domain.ports import LeaseRow, Receipt, SessionRow, Snapshot
from domain.values import Priority
from minutebook.testing.keeping import keep
from minutebook.testing.scenario import Commit, Scenario, accepted, created
from minutebook.testing.scripted import call, reply
from recovery.exporting import export_session
from tests.corpus.texts import TEXTS, all_in_one
from tests.journals import BEGUN, kept, lost_payment, session_of
from tests.session.harness import Hands, Place

#: Small enough that every single bit of their exports can be flipped.
GOLDEN: dict[str, Scenario] = {
    "only created": session_of(created(), session_id="s-new"),
    "hostile note": session_of(created(), session.Note("n", all_in_one()[:400]), session_id="s-note"),
    "waiting input": session_of(
        created(), accepted("hello"), inputs.AcceptInput("i-2", "\u2028\ud800", Priority.LATER, 2)
    ),
}


async def exported(*scenarios: Scenario) -> bytes:
    """Sessions as one export."""
    file = BytesIO()
    async with kept(*scenarios) as journal:
        for scenario in scenarios:
            await export_session(journal, scenario.state.session_id, file.write)
    return file.getvalue()


async def kept_in_file(path: Path, *scenarios: Scenario) -> Path:
    """A journal file that holds these sessions, in one file: nothing beside it."""
    async with SqliteStore(path, journal_mode="truncate").open() as journal:
        for scenario in scenarios:
            await keep(journal, scenario)
    return path


def several() -> list[Scenario]:
    """Sessions of every kind of row: snapshots, commands, odd texts, an open call."""
    texts: Commit = [session.Note(name, text) for name, text in TEXTS.items()]
    filled = session_of(created(), texts, session_id="s-texts")
    notes: list[Commit] = [[session.Note("filler", f"note {n}") for n in range(44)] for _ in range(3)]
    long = session_of(*BEGUN, *notes, session_id="s-long")
    return [lost_payment(), filled, long]


@dataclass(frozen=True, slots=True)
class Busy:
    """A session as a store keeps it: its rows, and what is beside them."""

    rows: list[Stored]
    row: SessionRow
    commands: dict[str, tuple[bytes, Receipt]]


async def busy(events: int = 200) -> Busy:
    """A session with calls and inputs, written by two workers one after the other."""
    place, hands = Place(), Hands()
    script = [step for _ in range(40) for step in (reply("", call("look", {"what": "x"})), reply("done"))]
    async with place.create(script, tools=hands.tools()) as opened:
        while opened.head_sequence < events // 2:
            await opened.run("look at it")
    async with place.resume(script, tools=hands.tools()) as opened:
        while opened.head_sequence < events:
            await opened.run("look again")
    return await _busy(place, events + 100)


async def _busy(place: Place, limit: int) -> Busy:
    async with place.reader() as reader:
        rows, row = await reader.read("s1", limit=limit), await reader.session("s1")
        assert row is not None
        commands = {}
        for stored in rows:
            name = open_envelope(stored).command_id
            found = await reader.command("s1", name)
            assert found is not None
            commands[name] = found
    return Busy([*rows], row, commands)


@dataclass(frozen=True, slots=True)
class RowsReader:
    """A `JournalReader` that shows rows as they are, by their place and not by what they say.

    What is beside them is that of the journal they were taken from.
    """

    rows: Sequence[Stored]
    beside: Busy
    name: str = "rows"

    async def session(self, session_id: str) -> SessionRow | None:
        return replace(self.beside.row, sequence=len(self.rows), head=self.rows[-1].head)

    async def sessions(self, *, after: str = "", limit: int = 100) -> Sequence[SessionRow]:
        return []

    async def read(
        self, session_id: str, *, after: int = 0, upto: int | None = None, limit: int = 256
    ) -> Sequence[Stored]:
        return self.rows[after:upto][:limit]

    async def snapshot(self, session_id: str, *, upto: int | None = None) -> Snapshot | None:
        return None

    async def blob(self, digest: str) -> bytes | None:
        return None

    async def command(self, session_id: str, command_id: str) -> tuple[bytes, Receipt] | None:
        return self.beside.commands.get(command_id)

    async def commands(
        self, session_id: str, command_ids: Sequence[str]
    ) -> Mapping[str, tuple[bytes, Receipt]]:
        kept = self.beside.commands
        return {each: kept[each] for each in command_ids if each in kept}

    async def lease_lives(self, lease: LeaseRow) -> bool:
        return False
