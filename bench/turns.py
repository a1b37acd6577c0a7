"""A relay on loopback that counts how often a client speaks and waits: round trips, as the wire has them.

It stands between a client and a PostgreSQL server, and knows nothing of either.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Final
from urllib.parse import urlsplit, urlunsplit

_CHUNK: Final = 65536


class Turns:
    """`with Turns(url, mark) as turns:` connect to `turns.url`; then `turns.between(one, other)`.

    One round trip is everything that a connection's client sends until the server answers, in however
    many packets. What a server says unasked is none.

    Args:
        mark: what is counted are the connections on which these bytes are ever sent, from their beginning.
    """

    def __init__(self, url: str, mark: bytes) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        user, _, _ = parts.netloc.rpartition("@")
        here = f"{user}@127.0.0.1:{self._listener.getsockname()[1]}"
        #: The server's address by way of this relay.
        self.url = urlunsplit(parts._replace(netloc=here))
        self._mark = mark
        self._conversations: list[_Conversation] = []
        self._sockets: list[socket.socket] = []

    def so_far(self) -> dict[int, int]:
        """A moment to count from, or to."""
        return {id(each): each.turns for each in self._conversations}

    def between(self, one: dict[int, int], other: dict[int, int]) -> tuple[int, int]:
        """Round trips from one moment to another: what is counted, and those on other connections."""
        counted = beside = 0
        for each in self._conversations:
            turns = other.get(id(each), 0) - one.get(id(each), 0)
            counted, beside = (counted + turns, beside) if each.marked else (counted, beside + turns)
        return counted, beside

    def __enter__(self) -> Turns:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A socket that another thread waits for is only shut down: that thread closes it.
        for each in (self._listener, *self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with self._listener, suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._sockets += (client, server)
                self._conversations.append(_Conversation(client, server, self._mark))
                self._conversations[-1].start()


class _Conversation:
    """One connection: a thread for each direction, and whose turn it was last."""

    def __init__(self, client: socket.socket, server: socket.socket, aside: bytes) -> None:
        self._client, self._server, self._mark = client, server, aside
        self._client_spoke_last = False
        self.turns, self.marked = 0, False

    def start(self) -> None:
        for source, target in ((self._client, self._server), (self._server, self._client)):
            threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with source, suppress(OSError):
            while data := source.recv(_CHUNK):
                asks = source is self._client
                if asks:
                    self.turns += not self._client_spoke_last
                    self.marked = self.marked or self._mark in data
                self._client_spoke_last = asks
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
