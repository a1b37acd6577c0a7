"""T4 and M1: what a piece of an answer costs on its way to readers, and what a long session holds."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Final

import anyio.lowlevel
import orjson

import minutebook as mb
from bench.chat_calls import RawChat, body_fields
from bench.conversations import Place
from bench.floor import Sqlite
from bench.measure import resident_kib
from bench.ours.talking import OfflineProvider, Ours, config
from bench.workload import PROMPT, Metrics, model_name
from domain.model_ports import Signal

READERS: Final = 8
WARM_UP: Final = 3
TIMES: Final = 10


class OneByOne(OfflineProvider):
    """Pieces with a turn of the event loop between them, as from a network."""

    async def send(self, body: bytes, *, attempt_id: str) -> AsyncIterator[Signal]:
        """As its parent, slower."""
        async for signal in super().send(body, attempt_id=attempt_id):
            yield signal
            await anyio.lowlevel.checkpoint()


def fan_out(place: Place, *, pieces: int) -> Metrics:
    """Microseconds for each piece: one reader, each further one, and a bare loop over HTTP."""
    one = asyncio.run(_fanned(pieces, 1))
    many = asyncio.run(_fanned(pieces, READERS))
    bare = asyncio.run(_bare_pieces(place.url, pieces))
    return {"one_us": one, "further_us": (many - one) / (READERS - 1), "bare_us": bare}


async def _fanned(pieces: int, readers: int) -> float:
    async with mb.create_session(config(OneByOne(pieces, tools=0))) as session:
        await session.run("warm up")
        gc.collect()  # or its turn comes in the middle, and is counted as the pieces' time
        start, after = time.perf_counter(), session.cursor
        await session.send(PROMPT)
        further = [_until_answered(session, after) for _ in range(readers - 1)]
        await asyncio.gather(_streamed(session), *further)
        return (time.perf_counter() - start) / pieces * 1e6


async def _streamed(session: mb.Session) -> int:
    seen = 0
    async for event in session.stream():
        seen += isinstance(event, mb.ContentDelta)
    return seen


async def _until_answered(session: mb.Session, after: mb.Cursor) -> None:
    async for event in session.events(after=after):
        if event.type == "request_completed":
            return


async def _bare_pieces(url: str, pieces: int) -> float:
    chat = RawChat(url)
    body = orjson.dumps(
        {**body_fields(0, [{"role": "user", "content": PROMPT}]), "model": model_name(0, pieces)}
    )
    for _ in range(2):  # the first one opens the connection
        start = time.perf_counter()
        async for line in chat.lines(body):
            orjson.loads(line)
        took = time.perf_counter() - start
    await chat.close()
    return took / pieces * 1e6


def first_piece(place: Place) -> Metrics:
    """Milliseconds from sending to the first piece of the answer: ours, and one commit and one call."""
    return asyncio.run(_first_piece(place))


async def _first_piece(place: Place) -> Metrics:
    ours = Ours()
    await ours.open("sqlite", place.directory, place.url)
    settings = config(ours.provider(), tools=0)
    async with mb.create_session(settings, store=mb.sqlite(place.directory / "j.db")) as session:
        laps = [await _first_of_ours(session) for _ in range(WARM_UP + TIMES)]
    floor, chat = Sqlite(place.directory / "floor.db"), RawChat(place.url)
    bare = [await _first_of_floor(floor, chat) for _ in range(WARM_UP + TIMES)]
    floor.close()
    await chat.close()
    return {"ms": sum(laps[WARM_UP:]) / TIMES, "bare_ms": sum(bare[WARM_UP:]) / TIMES}


async def _first_of_ours(session: mb.Session) -> float:
    start, found = time.perf_counter(), 0.0
    await session.send(PROMPT)
    async for event in session.stream():
        if isinstance(event, mb.ContentDelta) and not found:
            found = time.perf_counter() - start
    return found * 1e3


async def _first_of_floor(floor: Sqlite, chat: RawChat) -> float:
    start, found = time.perf_counter(), 0.0
    message = {"role": "user", "content": PROMPT}
    await floor.commit("s", [{"type": "accepted", "data": message}, {"type": "started", "data": 0}])
    async with aclosing(chat.lines(orjson.dumps(body_fields(0, [message])))) as lines:
        async for line in lines:
            if b'"piece' in line and not found:
                found = time.perf_counter() - start
    return found * 1e3


def memory(place: Place, *, requests: int) -> Metrics:
    """What a session holds late over what it held at a tenth of its length, and KiB for each request."""
    return asyncio.run(_memory(place, requests))


async def _memory(place: Place, requests: int) -> Metrics:
    store = mb.sqlite(place.directory / "journal.db")
    async with mb.create_session(config(OfflineProvider(pieces=20)), store=store) as session:
        early = 0.0
        for number in range(requests):
            await session.run(PROMPT)
            if number == requests // 10:
                early = resident_kib()
        late = resident_kib()
    return {"late_over_early": late / early, "kib_per_request": (late - early) / (requests * 0.9)}
