"""How users got hurt by results that were too odd, too large, or copied again and again."""

from __future__ import annotations

import hashlib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from adapters.memory_journal import MemoryStore
from adapters.sqlite_store import SqliteStore
from domain.limits import MAX_TAIL_EVENTS
from domain.ports import StoreDescription
from domain.values import ToolKind
from minutebook.testing.faulty_store import FaultyStore
from minutebook.testing.scripted import ScriptedProvider, call, reply
from minutebook.tool_definition import tool
from recovery.reading import load
from tests.session.harness import Hands, Place, data

pytestmark = pytest.mark.anyio


VALUES = {
    "NUL": "a\0b",
    "lone surrogate": "\ud83d",
    "key with NUL": {"\0": 1},
    "key with a surrogate": {"\udc00": [1]},
    "split emoji": "\U0001f600".encode("utf-16", "surrogatepass").decode("utf-16")[:1] + "\ude00",
    "wide text as bytes": b"W\0s\0l\0",
    "bytes": bytes(range(256)),
    "huge number": 2**70,
    "decimal": Decimal("1.10"),
    "set": {"a"},
    "tuple": (1, 2),
    "infinite": float("inf"),
    "an object": {"a": [{"b": object()}]},
    "deep": [[[[[[[[[[1]]]]]]]]]],
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
async def test_p69_p70_p72_any_result_is_kept_or_says_where_not_and_in_the_same_bytes_everywhere(
    tmp_path: Path, value: Any
) -> None:
    @tool(kind=ToolKind.READ_ONLY)
    async def make() -> Any:
        return value

    payloads = []
    stores: list[StoreDescription] = [MemoryStore(), SqliteStore(tmp_path / "journal.db")]
    for inner in stores:
        place = Place(FaultyStore(inner))
        async with place.create([reply("", call("make")), reply("done")], tools=[make]) as session:
            assert (await session.run("hello")).content == "done"
            before = session.messages
        async with place.reader() as reader:
            rows = await reader.read("s1")
        payloads.append([row.payload for row in rows if row.topic == "tool_completed@1"])
        (kept,) = data(await place.events(), "tool_completed")
        async with place.resume([]) as session:
            assert session.messages == before
        await place.check()
    assert payloads[0] == payloads[1]
    if isinstance(value, dict) and "a" in value:
        assert "$.a[0].b" in kept.output
    if isinstance(value, str | bytes):
        assert kept.value == value or kept.output == value
    if value == 2**70:
        assert kept.value == 2**70


@pytest.mark.parametrize("size", [200_000, 1_100_000, 5_000_000, 12_000_000])
async def test_p83_p107_a_result_of_any_size_is_kept_whole_and_told_in_part(
    any_place: Place, size: int
) -> None:
    output = "the beginning " + "x" * size + " and the last line matters"
    runs = []

    @tool(kind=ToolKind.READ_ONLY)
    async def dump() -> str:
        runs.append(1)
        return output

    provider = ScriptedProvider([reply("", call("dump")), reply("done")])
    async with any_place.create(provider, tools=[dump]) as session:
        assert (await session.run("hello")).content == "done"
    assert len(runs) == 1
    (kept,) = data(await any_place.events(), "tool_completed")
    told = provider.sent[1].messages[-1]["content"]
    assert told.startswith("the beginning")
    assert "the last line matters" in told
    assert len(provider.sent[1].body) < 400_000
    assert (kept.raw_digest, kept.original_bytes) == (
        hashlib.sha256(output.encode()).hexdigest(),
        len(output),
    )
    if kept.blobs:
        async with any_place.reader() as reader:
            assert await reader.blob(kept.blobs[0]) == output.encode()
    else:
        assert kept.output == output


async def test_p82_events_never_hold_the_history(place: Place, hands: Hands) -> None:
    provider = ScriptedProvider(lambda _: reply("ok " * 50))
    async with place.create(provider) as session:
        for _ in range(150):
            await session.run("hello " * 50)
    sizes = [len(row.payload or b"") for batch in place.store.batches for row in batch.events]
    assert max(sizes) < 2000
    snapshots = [batch.snapshot for batch in place.store.batches if batch.snapshot is not None]
    assert len(snapshots) > 5
    assert max(len(snapshot.state) for snapshot in snapshots) < 4000
    store = FaultyStore(place.store.inner)
    async with store.open() as journal:
        loaded = await load(journal, "s1")
    assert loaded.rows_read == store.rows_read <= MAX_TAIL_EVENTS
