"""Makes a golden journal file and what has to be read from it, for ever:

    python -m tests.golden.making tests/golden/format-N/file

Run once, by the first version of a format, and never again: the times, the salts and
the leases in the file are those of that day.
"""

from __future__ import annotations

import hashlib
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import anyio
import orjson

import minutebook as mb
from adapters.sqlite_store import SqliteStore
from adapters.system import this_process
from domain.envelope import Fence
from domain.ports import Holder, Journal, JournalReader
from minutebook.testing.keeping import batches, keep
from minutebook.testing.scenario import Scenario
from minutebook.testing.scripted import ScriptedProvider, call, reply
from recovery.exporting import export_session
from recovery.plan import plan_of
from recovery.reading import load
from recovery.replaying import replay
from tests.corpus.journals import several
from tests.media import png
from tests.unit import golden_leases
from tests.unit.golden_session import session as every_field

JOURNAL = "journal.sqlite"
EXPECTED = "expected.json"


@mb.tool(kind=mb.ToolKind.READ_ONLY, side_effect=mb.SideEffect.PURE)
def look(what: str) -> str:
    """Looks."""
    return f"seen {what}"


@mb.tool
def pay(cents: int) -> str:
    """Needs somebody's leave."""
    return f"paid {cents}"


def config(*script: Any) -> mb.SessionConfig:
    """A session with two tools and these answers."""
    return mb.SessionConfig(provider=ScriptedProvider(list(script)), model="a-model", tools=[look, pay])


async def make(path: Path) -> None:
    """A file with sessions of every kind: made event by event, lived, left with a question, held."""
    store = SqliteStore(path, journal_mode="truncate")
    async with store.open() as journal:
        for scenario in several():
            await keep(journal, scenario)
    async with store.open(owner_id="owner") as journal:
        await keep_leased(journal, every_field(), "owner")
        await keep_leased(journal, golden_leases.session(), "owner")
    lived = config(reply("", call("look", {"what": "far off"})), reply("I have seen it."))
    async with mb.create_session(lived, store=store, session_id="lived") as session:
        await session.run(["look", mb.ImagePart(png(3, 2), "image/png")])
    async with mb.resume_session("lived", config(), store=store):
        pass  # a second holder, who says what became of the first
    asked = config(reply("", call("pay", {"cents": 3})))
    async with mb.create_session(asked, store=store, session_id="asked") as session:
        await session.send("pay", input_id="i-1")
        async for told in session.stream():
            if isinstance(told, mb.InteractionOpened):
                break
    us = this_process()
    left = Holder("worker-9", "lease-9", us.boot_id, us.process_id, us.process_started)
    async with store.open() as journal:  # taken, and never given back: it runs out by itself
        await journal.leases.acquire("lived", left, 1)
        await journal.leases.acquire("never-begun", left, 1)


async def keep_leased(journal: Journal, scenario: Scenario, owner_id: str) -> None:
    """A scenario of several workers, each with the lease that its events name."""
    session_id, fence = scenario.state.session_id, None
    for batch in batches(scenario.entries, owner_id):
        if batch.fence is not None and batch.fence != fence:
            if fence is not None:
                await journal.leases.release(session_id, fence)
            fence = await _taken(journal, session_id, batch.fence)
        await journal.commit(batch)
    if fence is not None:
        await journal.leases.release(session_id, fence)


async def _taken(journal: Journal, session_id: str, fence: Fence) -> Fence:
    """Take the lease; where its token is not the next, somebody had it in between and wrote nothing."""
    passing, ours = Holder("passing", "lease-x"), Holder(fence.worker_id, fence.lease_id)
    row = await journal.session(session_id)
    token = row.lease.token if row is not None and row.lease is not None else 0
    for between in range(token + 1, fence.token):
        await journal.leases.acquire(session_id, passing, 60_000)
        await journal.leases.release(session_id, Fence("passing", "lease-x", between))
    assert (await journal.leases.acquire(session_id, ours, 60_000)).token == fence.token
    return fence


async def expectation(reader: JournalReader) -> bytes:
    """Everything that a journal's sessions are read as, in bytes that can be compared."""
    told = [await _told(reader, row.session_id) for row in await reader.sessions()]
    return orjson.dumps(told, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n"


async def _told(reader: JournalReader, session_id: str) -> dict[str, Any]:
    loaded = await load(reader, session_id)
    plan = plan_of(loaded)
    export = BytesIO()
    await export_session(reader, session_id, export.write)
    # Payloads may hold what JSON has no text for; their digests say as much.
    replayed = orjson.dumps((await replay(reader, session_id)).to_json(), default=repr, option=_OPTIONS)
    return {
        "session_id": session_id,
        "owner_id": loaded.row.owner_id,
        "sequence": loaded.row.sequence,
        "head": loaded.row.head.hex(),
        "listing": [loaded.row.listing.status, loaded.row.listing.next_action],
        "plan": [[item.action, item.subject] for item in plan.items],
        "export_sha256": hashlib.sha256(export.getvalue()).hexdigest(),
        "replay_sha256": hashlib.sha256(replayed).hexdigest(),
    }


_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS


async def main(directory: Path) -> None:
    """Make both files in a new directory."""
    from adapters.sqlite_reader import open_reader

    await make(directory / JOURNAL)
    async with open_reader(directory / JOURNAL) as reader:
        await anyio.Path(directory / EXPECTED).write_bytes(await expectation(reader))


if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir(parents=True)
    anyio.run(main, place)
