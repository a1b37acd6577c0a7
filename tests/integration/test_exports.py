"""Exports: what is written comes back, and every kind of damage is found and named."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from adapters.jsonl_reader import JsonLinesReader, open_export
from adapters.memory_journal import MemoryStore
from adapters.system import SystemIds
from domain import tool
from domain.envelope import Fence
from domain.errors import JournalBlocked, NewerFormat, NotAJournal
from domain.ports import Blob, Holder, Journal
from minutebook.testing.keeping import batches
from minutebook.testing.scenario import Scenario, in_call
from recovery.exporting import check_import, export_session, import_session
from recovery.reading import Loaded, load
from recovery.replaying import replay
from recovery.verify import Result, verify
from tests.journals import asking, kept, long, lost_payment, three_calls

pytestmark = pytest.mark.anyio


async def exported(path: Path, *scenarios: Scenario) -> Path:
    async with kept(*scenarios) as journal:
        with path.open("wb") as file:
            for scenario in scenarios:
                await export_session(journal, scenario.state.session_id, file.write)
    return path


@pytest.fixture
async def export(tmp_path: Path) -> Path:
    """The lost payment, exported."""
    return await exported(tmp_path / "e.jsonl", lost_payment())


@asynccontextmanager
async def reading(path: Path) -> AsyncIterator[JsonLinesReader]:
    async with open_export(str(path)) as reader:
        yield reader


# --- there and back -----------------------------------------------------------------------


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_an_export_reads_like_the_journal(tmp_path: Path) -> None:
    scenario = three_calls()
    path = await exported(tmp_path / "e.jsonl", scenario)
    async with kept(scenario) as journal, reading(path) as reader:
        assert await reader.read("s-three") == await journal.read("s-three")
        assert await reader.read("s-three", after=3, upto=9, limit=4) == scenario.rows()[3:7]
        original, copy = await journal.session("s-three"), await reader.session("s-three")
        assert original is not None
        assert copy is not None
        assert (copy.sequence, copy.head, copy.owner_id) == (original.sequence, original.head, "local")
        assert await reader.command("s-three", "cmd-3") == await journal.command("s-three", "cmd-3")
        assert (await verify(reader, "s-three")).result is Result.CONSISTENT
        assert (await load(reader, "s-three")).state == scenario.state


async def test_several_sessions_are_in_one_file(tmp_path: Path) -> None:
    path = await exported(tmp_path / "e.jsonl", asking(), lost_payment())
    async with reading(path) as reader:
        assert [row.session_id for row in await reader.sessions()] == ["s-ask", "s-pay"]
        assert [row.session_id for row in await reader.sessions(after="s-ask")] == ["s-pay"]
        assert await reader.session("s-none") is None
        for session_id in ("s-ask", "s-pay"):
            assert (await verify(reader, session_id)).result is Result.CONSISTENT


async def test_an_export_of_one_owner_shows_nobody_elses(tmp_path: Path) -> None:
    path = await exported(tmp_path / "e.jsonl", asking())
    async with open_export(str(path), owner_id="mallory") as reader:
        assert await reader.sessions() == []
        assert await reader.session("s-ask") is None
        assert await reader.read("s-ask") == []


async def test_imported_sessions_have_the_same_bytes_and_heads(tmp_path: Path) -> None:
    scenarios = (long(300), three_calls())
    path = await exported(tmp_path / "e.jsonl", *scenarios)
    async with reading(path) as reader, MemoryStore().open() as journal:
        for scenario in scenarios:
            row = await check_import(reader, scenario.state.session_id)
            await import_session(reader, row, journal, SystemIds())
            again = await load(journal, scenario.state.session_id)
            assert (again.state, again.problem) == (scenario.state, None)
            assert again.head == scenario.rows()[-1].head
            assert (
                await verify(journal, scenario.state.session_id)
            ).snapshots == scenario.state.sequence // 128
        await _same_commands(reader, journal, scenarios[1])


async def _same_commands(reader: JsonLinesReader, journal: Journal, scenario: Scenario) -> None:
    for entry in scenario.entries:
        session_id = scenario.state.session_id
        assert await reader.command(session_id, entry.command_id) == await journal.command(
            session_id, entry.command_id
        )


async def test_an_import_goes_on_with_the_token_of_the_events(tmp_path: Path) -> None:
    """Otherwise the first lease in the new store would be older than the events."""
    async with MemoryStore().open() as journal:
        holder = Holder("w", "l-1")
        for number in range(3):
            lease = await journal.leases.acquire("s-pay", Holder("w", f"l-{number}"), 60_000)
            fence = Fence("w", f"l-{number}", lease.token)
            if number < 2:
                await journal.leases.release("s-pay", fence)
        scenario = lost_payment()
        for entry in scenario.entries:
            entry.events = [replace(event, recorded_by=fence) for event in entry.events]
        for batch in batches(scenario.entries):
            await journal.commit(replace(batch, fence=fence))
        path = tmp_path / "e.jsonl"
        with path.open("wb") as file:
            await export_session(journal, "s-pay", file.write)
    async with reading(path) as reader, MemoryStore().open() as other:
        row = await check_import(reader, "s-pay")
        await import_session(reader, row, other, SystemIds())
        assert await import_session(reader, row, other, SystemIds()) == 0  # nor is it counted up again
        assert (await other.leases.acquire("s-pay", holder, 1000)).token == 4
        assert (await verify(other, "s-pay")).token == 3


# --- damage -------------------------------------------------------------------------------


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def content(path: Path) -> bytes:
    return path.read_bytes()


def put(path: Path, data: bytes) -> None:
    path.write_bytes(data)


async def damaged(path: Path, data: bytes) -> Loaded:
    put(path, data)
    async with reading(path) as reader:
        return await load(reader, "s-pay")


async def test_a_torn_tail_is_named_and_the_good_part_is_kept(export: Path) -> None:
    data = content(export)
    cut = len(b"".join(lines(export)[:9])) + 40
    found = await damaged(export, data[:cut])
    assert found.problem is not None
    assert found.problem.check == "export"
    last = found.state.sequence
    assert f"a line that was cut (bytes {cut - 40} to {cut - 1}, line 10)" in found.problem.found
    assert f"events up to {found.verified[1]} are good" in found.problem.found
    assert 0 < last <= found.verified[1]


@pytest.mark.parametrize("keep", [3, 7, 10])
async def test_a_file_without_its_end_is_not_whole(export: Path, keep: int) -> None:
    found = await damaged(export, b"".join(lines(export)[:keep]))
    assert found.problem is not None
    assert "the end of the file, without a trailer" in found.problem.found


async def test_every_cut_is_found(export: Path) -> None:
    data = content(export)
    first = len(lines(export)[0])
    for size in range(first, len(data), 97):
        assert (await damaged(export, data[:size])).problem is not None, size
    assert (await damaged(export, data)).problem is None


async def test_a_record_glued_to_a_stub_is_named(export: Path) -> None:
    """P62: the next record follows a torn one on the same line."""
    parts = lines(export)
    glued = b"".join([*parts[:6], parts[6][:11], *parts[7:]])
    found = await damaged(export, glued)
    assert found.problem is not None
    assert "line 7" in found.problem.found
    assert "no line of an export" in found.problem.found


async def test_a_block_of_nul_bytes_is_named_with_its_range(export: Path) -> None:
    """P63: valid lines, 512 NUL bytes, valid lines."""
    parts = lines(export)
    start = len(b"".join(parts[:6]))
    found = await damaged(export, b"".join([*parts[:6], b"\0" * 512, *parts[6:]]))
    assert found.problem is not None
    assert f"512 NUL bytes (bytes {start} to {start + 511}, line 7)" in found.problem.found


async def test_a_file_cut_inside_a_character_is_named(export: Path) -> None:
    """P64: the last bytes are e2 82."""
    parts = lines(export)
    start = len(b"".join(parts[:6]))
    found = await damaged(export, b"".join(parts[:6]) + parts[6][:20] + b"\xe2\x82")
    assert found.problem is not None
    assert f"cut or changed inside a character (bytes {start + 20} to" in found.problem.found
    assert found.verified[1] >= 3


async def test_every_bit_of_an_event_counts(export: Path) -> None:
    data = content(export)
    start = len(b"".join(lines(export)[:6]))
    end = start + len(lines(export)[6])
    for position in range(start, end, 7):
        changed = bytearray(data)
        changed[position] ^= 4
        found = await damaged(export, bytes(changed))
        assert found.problem is not None, (position, bytes(changed[start:end]))


Splice = Callable[[Sequence[bytes]], list[bytes]]
SPLICES: dict[str, Splice] = {
    "a line left out": lambda p: [*p[:6], *p[7:]],
    "a line twice": lambda p: [*p[:7], p[6], *p[7:]],
    "two lines swapped": lambda p: [*p[:6], p[7], p[6], *p[8:]],
    "the beginning twice": lambda p: [p[0], *p],
    "no beginning of events": lambda p: [p[0], *p[2:]],
    "a line of prose": lambda p: [*p[:6], b"hello\n", *p[6:]],
    "an empty line": lambda p: [*p[:6], b"\n", *p[6:]],
    "a list": lambda p: [*p[:6], b"[]\n", *p[6:]],
    "another trailer": lambda p: [*p[:-1], p[-1].replace(b'"events":12', b'"events":11')],
    "something after the end": lambda p: [*p, p[1]],
}


@pytest.mark.parametrize("name", SPLICES)
async def test_a_splice_is_found(export: Path, name: str) -> None:
    found = await damaged(export, b"".join(SPLICES[name](lines(export))))
    assert found.problem is not None
    assert found.problem.check == "export"
    assert "line" in found.problem.found


async def test_an_event_of_another_session_breaks_the_chain(tmp_path: Path, export: Path) -> None:
    other = await exported(tmp_path / "o.jsonl", lost_payment("s-other"))
    parts, foreign = lines(export), lines(other)
    events = [i for i, line in enumerate(parts) if b'"sequence":' in line[:15]]
    parts[events[6]] = foreign[events[6]]
    data = b"".join(parts[:-1])
    trailer = orjson.loads(parts[-1])
    trailer["trailer"]["bytes"] = len(data)
    found = await damaged(export, data + orjson.dumps(trailer) + b"\n")
    assert found.problem is not None
    assert (found.problem.check, found.problem.sequence) == ("chain", 7)


async def test_a_damaged_export_is_broken_and_its_replay_stops(export: Path) -> None:
    data = content(export)
    put(export, data[:-10])
    async with reading(export) as reader:
        found = await verify(reader, "s-pay")
        shown = await replay(reader, "s-pay")
        with pytest.raises(JournalBlocked):
            await check_import(reader, "s-pay")
    assert (found.result, found.events) == (Result.BROKEN, 12)
    assert (shown.sequence, shown.problem is None) == (12, False)


async def test_what_is_no_export_is_refused(tmp_path: Path) -> None:
    for name, data in {"empty": b"", "prose": b"hello\n", "binary": b"SQLite format 3\0" * 50}.items():
        path = tmp_path / f"{name}.jsonl"
        put(path, data)
        with pytest.raises(NotAJournal):
            async with reading(path):
                raise AssertionError(name)
    with pytest.raises(NotAJournal):
        async with reading(tmp_path / "missing.jsonl"):
            raise AssertionError("missing")


async def test_a_newer_export_is_refused_as_such(export: Path) -> None:
    put(export, content(export).replace(b'{"minutebook_export":1', b'{"minutebook_export":2'))
    with pytest.raises(NewerFormat):
        async with reading(export):
            raise AssertionError("it was opened")


async def test_blobs_travel_with_the_events_that_refer_to_them(tmp_path: Path) -> None:
    scenario, blob = _with_blob()
    path = tmp_path / "e.jsonl"
    async with MemoryStore().open() as journal:
        for batch in batches(scenario.entries):
            await journal.commit(replace(batch, blobs=(blob,)))
        with path.open("wb") as file:
            await export_session(journal, "s-pay", file.write)
    async with reading(path) as reader, MemoryStore().open() as other:
        assert await reader.blob(blob.digest) == blob.data
        assert await reader.blob("0" * 64) is None
        await import_session(reader, await check_import(reader, "s-pay"), other, SystemIds())
        assert await other.blob(blob.digest) == blob.data


def _with_blob() -> tuple[Scenario, Blob]:
    data = b"a long output\x00\xff" * 100
    blob = Blob(hashlib.sha256(data).hexdigest(), data)
    fields: dict[str, Any] = {"output": "a long output...", "blobs": [blob.digest]}
    return lost_payment().given(in_call(0, tool.Complete(fields))), blob
