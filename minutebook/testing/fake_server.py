"""A loopback HTTP server that answers like an OpenAI-compatible one, and breaks as told.

For tests of the real provider adapters over a real socket, and for demos without a
model. Runs on asyncio and trio. It knows no dialect: a reply is a status, headers
and bytes (`chat_replies` makes those). Must never import an adapter or an SDK.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from itertools import pairwise
from typing import Any, Final

import anyio
import orjson
from anyio.abc import SocketAttribute, SocketStream
from anyio.from_thread import start_blocking_portal
from anyio.streams.buffered import BufferedByteReceiveStream

_MAX_HEAD_BYTES: Final = 64 * 1024
_READER_ENDED: Final = (
    anyio.EndOfStream,
    anyio.IncompleteRead,
    anyio.DelimiterNotFound,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    OSError,
)
_LINGER_NONE: Final = struct.pack("ii", 1, 0)


class Cut(StrEnum):
    """How a reply that is cut ends."""

    CLEAN = "clean"  # looks finished to HTTP: what a proxy does that gives up
    CLOSE = "close"  # the connection closes in the middle of the message
    RESET = "reset"  # the connection is reset


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong with a reply. Places count bytes of the body.

    Args:
        splits: places at which the body is cut into separate writes.
        piece_bytes: size of the writes, in place of `splits`.
        cut_after: stop after this many bytes of the body, in the way of `cut`.
        stall_after: after this many bytes send nothing more and keep the connection open.
        drop_request: read the request, then end the connection without an answer, in the way of `cut`.
        delay_s: wait before the answer begins.
    """

    splits: tuple[int, ...] = ()
    piece_bytes: int | None = None
    cut_after: int | None = None
    cut: Cut = Cut.CLEAN
    stall_after: int | None = None
    drop_request: bool = False
    delay_s: float = 0.0


NO_FAULTS: Final = Faults()


@dataclass(frozen=True, slots=True)
class Reply:
    """One HTTP answer. Header pairs go out as they are."""

    body: bytes = b""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = (("content-type", "text/event-stream"),)
    faults: Faults = NO_FAULTS


@dataclass(frozen=True, slots=True)
class Received:
    """One request that the server got; header names in lower case."""

    number: int
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def parsed(self) -> Any:
        """The body as plain values."""
        return orjson.loads(self.body)


#: Replies in order (the last one again when they run out), or chosen by looking at the request.
Replies = Iterable[Reply] | Callable[[Received], Reply]


@dataclass(slots=True, eq=False)
class FakeServer:
    """A running server: `url` to talk to, `requests` it got, in order.

    `connections` counts those that were opened, `dropped` replies whose reader went away.
    """

    replies: Replies
    port: int = 0
    requests: list[Received] = field(default_factory=list)
    connections: int = 0
    dropped: int = 0
    _in_order: list[Reply] = field(default_factory=list)
    _gone: anyio.Event = field(default_factory=anyio.Event)

    def __post_init__(self) -> None:
        if not callable(self.replies):
            self._in_order = list(self.replies)

    @property
    def url(self) -> str:
        """The base URL for an OpenAI-compatible client."""
        return f"http://127.0.0.1:{self.port}/v1"

    async def reader_gone(self) -> None:
        """Return once a reply could not be finished because its reader went away."""
        await self._gone.wait()

    async def serve_connection(self, stream: SocketStream) -> None:
        """Answer the requests of one connection until either side ends it."""
        self.connections += 1
        reader = BufferedByteReceiveStream(stream)
        with suppress(*_READER_ENDED):
            async with stream:
                while await self._serve_request(stream, reader):
                    pass

    async def _serve_request(self, stream: SocketStream, reader: BufferedByteReceiveStream) -> bool:
        request = await _read_request(reader, len(self.requests))
        self.requests.append(request)
        reply = self.replies(request) if callable(self.replies) else self._next(request.number)
        return await self._answer(stream, reader, reply)

    def _next(self, number: int) -> Reply:
        return self._in_order[min(number, len(self._in_order) - 1)]

    async def _answer(self, stream: SocketStream, reader: BufferedByteReceiveStream, reply: Reply) -> bool:
        faults = reply.faults
        await anyio.sleep(faults.delay_s)
        if faults.drop_request:
            return await _end(stream, faults.cut)
        await stream.send(_head(reply))
        for piece in _pieces(reply):
            await stream.send(b"%x\r\n%b\r\n" % (len(piece), piece))
        if faults.stall_after is not None:
            await self._wait_until_gone(reader)
            return False
        if faults.cut_after is not None and faults.cut is not Cut.CLEAN:
            return await _end(stream, faults.cut)
        await stream.send(b"0\r\n\r\n")
        return True

    async def _wait_until_gone(self, reader: BufferedByteReceiveStream) -> None:
        try:
            await reader.receive()
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            self.dropped += 1
            self._gone.set()


@asynccontextmanager
async def serve(replies: Replies) -> AsyncIterator[FakeServer]:
    """Run a server on a free loopback port for the length of the block."""
    server = FakeServer(replies)
    async with await anyio.create_tcp_listener(local_host="127.0.0.1") as listener:
        server.port = listener.extra(SocketAttribute.local_port)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(listener.serve, server.serve_connection)
            yield server
            tasks.cancel_scope.cancel()


@contextmanager
def serve_in_thread(replies: Replies) -> Iterator[FakeServer]:
    """Run a server in a thread of its own: for synchronous code and child processes."""
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(serve(replies)) as server:
        yield server


# --- HTTP/1.1, as little as is needed ---------------------------------------------------


async def _read_request(reader: BufferedByteReceiveStream, number: int) -> Received:
    head = await reader.receive_until(b"\r\n\r\n", _MAX_HEAD_BYTES)
    first, *lines = head.decode("latin-1").split("\r\n")
    method, _, rest = first.partition(" ")
    path = rest.partition(" ")[0]
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    size = int(headers.get("content-length", "0"))
    return Received(number, method, path, headers, await reader.receive_exactly(size) if size else b"")


def _head(reply: Reply) -> bytes:
    lines = [f"HTTP/1.1 {reply.status} {_phrase(reply.status)}", "transfer-encoding: chunked"]
    lines += [f"{name}: {value}" for name, value in reply.headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _phrase(status: int) -> str:
    with suppress(ValueError):
        return HTTPStatus(status).phrase
    return "Unlisted"


def _pieces(reply: Reply) -> Iterator[bytes]:
    faults, body = reply.faults, reply.body
    ends = [place for place in (faults.cut_after, faults.stall_after) if place is not None]
    body = body[: min(ends, default=len(body))]
    for start, end in pairwise(_places(faults, len(body))):
        yield body[start:end]


def _places(faults: Faults, size: int) -> Sequence[int]:
    step = faults.piece_bytes
    inner = range(step, size, step) if step else faults.splits
    return sorted({0, size, *(place for place in inner if 0 < place < size)})


async def _end(stream: SocketStream, cut: Cut) -> bool:
    if cut is Cut.RESET:
        raw = stream.extra(SocketAttribute.raw_socket)
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NONE)
    await stream.aclose()
    return False
