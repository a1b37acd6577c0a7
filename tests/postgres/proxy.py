"""A TCP proxy in front of PostgreSQL that knows where a statement begins and ends, and cuts there.

It reads the protocol's frames as far as it needs: which text a round of messages carries
out, when the server has carried it out, when it has committed. A statement is one implicit
transaction: it commits when the server gets the Sync that ends the round. Threads, no loop:
the stores under test run on any.
"""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType
from typing import BinaryIO, Final
from urllib.parse import urlsplit, urlunsplit

from minutebook.testing.postgres_cluster import HOST, Cluster
from tests.store.waiting import PATIENCE_S

_NO_ENCRYPTION: Final = (80877103, 80877104)  # what a client asks first; the answer is no
_IN_A_ROUND: Final = b"PBDEC"  # the frames after which a client goes on without waiting
_FLUSH: Final = b"H\x00\x00\x00\x04"


class Place(StrEnum):
    """Where a connection breaks, counted from one statement."""

    BEFORE = "before the statement reaches the server"
    MIDDLE = "in the middle of the statement"
    CARRIED_OUT = "after it was carried out, before its commit is asked for"
    SENT = "after the server got it, before it answers"
    COMMITTED = "after it committed, the answer thrown away"
    LATE = "the answer comes after the client gave up"
    TERMINATED = "pg_terminate_backend during it"
    RESTARTED = "immediate stop and restart during it"
    HELD = "held back until somebody lets it go"
    LEFT_BEHIND = "its connection breaks, it is held back until somebody lets it go"


@dataclass(slots=True, eq=False)
class Cut:
    """One break that was asked for.

    Args:
        statement: what the statement's text contains.
        skip: how many such statements go through before.
        reached: set when the statement is there.
        done: set when the break is complete and the server has decided.
        go_on: for a statement that is held: set it to let the server have it.
        answered: of one that was held: whether there was a server process left to answer it.
    """

    place: Place
    statement: str
    skip: int = 0
    reached: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    answered: bool = False

    def wait(self) -> None:
        """Return once it is complete."""
        assert self.done.wait(PATIENCE_S), f"never came to: {self.place}"


class Proxy:
    """`with Proxy(cluster, url) as proxy:` connect to `proxy.url`; it passes everything until it is told."""

    def __init__(self, cluster: Cluster, url: str) -> None:
        self.cluster, self.texts = cluster, list[str]()
        self.flowing = threading.Event()
        self.flowing.set()
        self._behind = urlsplit(url)
        self._refusing = False
        self.refused = 0
        self._cut: Cut | None = None
        self._lines: set[_Line] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server((HOST, 0), backlog=64)
        self._accepting = threading.Thread(target=self._accept, name="proxy", daemon=True)

    def __enter__(self) -> Proxy:
        self._accepting.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join()
        self.thaw()
        for line in self.lose():
            line.join()

    @property
    def url(self) -> str:
        """The database's address through the proxy."""
        user, _, _ = self._behind.netloc.rpartition("@")
        return urlunsplit(self._behind._replace(netloc=f"{user}@{HOST}:{self._listener.getsockname()[1]}"))

    # --- what it is told ------------------------------------------------------------

    def arm(self, place: Place, statement: str, skip: int = 0) -> Cut:
        """Break at a statement that contains a text; one break at a time, and it happens once."""
        with self._lock:
            self._cut = Cut(place, statement, skip)
            return self._cut

    def disarm(self) -> None:
        """Break nothing; a statement that is held is let go."""
        with self._lock:
            cut, self._cut = self._cut, None
        if cut is not None:
            cut.go_on.set()

    def refuse(self) -> None:
        """The database is gone: every connection breaks, new ones are closed at once."""
        self._refusing = True
        self.lose()

    def accept(self) -> None:
        """The database is back."""
        self._refusing = False

    def lose(self) -> list[_Line]:
        """Break every connection there is."""
        with self._lock:
            lines = list(self._lines)
        for line in lines:
            line.close()
        return lines

    def freeze(self) -> None:
        """Pass nothing on, in both directions, and let nobody notice."""
        self.flowing.clear()

    def thaw(self) -> None:
        """Pass on again what was held up."""
        self.flowing.set()

    # --- for the lines ----------------------------------------------------------------

    def due(self, text: str) -> Cut | None:
        """The break that a statement with this text is for."""
        with self._lock:
            self.texts.append(text)
            cut = self._cut
            if cut is None or cut.statement not in text:
                return None
            cut.skip -= 1
            if cut.skip >= 0:
                return None
            self._cut = None
        return cut

    def behind(self) -> socket.socket:
        """A connection to the server."""
        assert self._behind.hostname is not None
        return socket.create_connection((self._behind.hostname, self._behind.port or 5432))

    def ended(self, line: _Line) -> None:
        """A line that is over."""
        with self._lock:
            self._lines.discard(line)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._refusing:
                client.close()
                self.refused += 1
                continue
            line = _Line(self, client)
            with self._lock:
                self._lines.add(line)
            line.start()


class _Line:
    """One client and its connection to the server: a thread for each direction."""

    def __init__(self, proxy: Proxy, client: socket.socket) -> None:
        self._proxy, self._client = proxy, client
        self._server: socket.socket | None = None
        self._process_id = 0
        self._prepared: dict[bytes, str] = {}
        # What the server says is given to the client while `passing`, and watched for a frame of these types.
        self._passing, self._awaited, self._seen, self._came = True, b"", threading.Event(), False
        self._upwards = threading.Thread(target=self._run, name="proxy, to the server", daemon=True)
        self._downwards = threading.Thread(target=self._answer, name="proxy, to the client", daemon=True)

    def start(self) -> None:
        """Begin to pass on."""
        self._upwards.start()

    def join(self) -> None:
        """Wait for its end."""
        self._upwards.join(PATIENCE_S)
        assert not self._upwards.is_alive(), "a connection of the proxy did not end"

    def close(self) -> None:
        """End both connections."""
        for end in (self._client, self._server):
            with suppress(OSError):
                if end is not None:
                    end.shutdown(socket.SHUT_RDWR)

    # --- to the server ----------------------------------------------------------------

    def _run(self) -> None:
        try:
            with suppress(OSError, EOFError):
                self._serve()
        finally:
            self.close()
            if self._downwards.ident is not None:
                self._downwards.join()
            for end in (self._client, self._server):
                if end is not None:
                    end.close()
            self._proxy.ended(self)

    def _serve(self) -> None:
        with self._client.makefile("rb") as reader:
            first = self._greeting(reader)
            self._server = self._proxy.behind()
            for end in (self._client, self._server):  # or each small frame waits for the other side's answer
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._server.sendall(first)
            self._downwards.start()
            while True:
                frames = _round(reader)
                self._proxy.flowing.wait()
                text = self._text(frames)
                cut = self._proxy.due(text) if text else None
                if cut is not None:
                    self._break(cut, frames)
                    return
                self._send(b"".join(frames))

    def _greeting(self, reader: BinaryIO) -> bytes:
        while True:
            length, code = struct.unpack("!ii", _exactly(reader, 8))
            rest = _exactly(reader, length - 8)
            self._proxy.flowing.wait()
            if code not in _NO_ENCRYPTION:
                return struct.pack("!ii", length, code) + rest
            self._client.sendall(b"N")

    def _text(self, frames: list[bytes]) -> str:
        """The text that a round carries out; empty if it carries out nothing."""
        text = ""
        for frame in frames:
            match frame[:1]:
                case b"P":
                    name, sql, _ = frame[5:].split(b"\0", 2)
                    self._prepared[name] = sql.decode()
                case b"B":
                    text += self._prepared.get(frame[5:].split(b"\0", 2)[1], "")
                case b"Q":
                    text += frame[5:-1].decode()
        return text

    def _send(self, data: bytes) -> None:
        assert self._server is not None
        self._server.sendall(data)

    # --- breaking ---------------------------------------------------------------------

    def _break(self, cut: Cut, frames: list[bytes]) -> None:
        cut.reached.set()
        try:
            self._break_at(cut, frames)
        finally:
            self.close()
            cut.done.set()

    def _break_at(self, cut: Cut, frames: list[bytes]) -> None:
        data, cluster = b"".join(frames), self._proxy.cluster
        match cut.place:
            case Place.MIDDLE:
                self._send(data[: len(data) // 2])
            case Place.CARRIED_OUT:
                self._send_and_await(b"".join(frames[:-1]) + _FLUSH, b"CE", passing=False)
            case Place.SENT:
                self._passing = False
                self._send(data)
            case Place.COMMITTED:
                self._send_and_await(data, b"Z", passing=False)
            case Place.LATE:
                self._send_and_await(data, b"Z", passing=False)
                cut.done.set()
                while self._client.recv(4096):
                    pass
            case Place.TERMINATED:
                self._send_and_await(b"".join(frames[:-1]) + _FLUSH, b"CE", passing=True)
                cluster.execute("SELECT pg_terminate_backend(%s)", (self._process_id,))
                self._downwards.join(PATIENCE_S)
            case Place.RESTARTED:
                self._passing = False
                self._send(data)
                cluster.restart("immediate")
            case Place.HELD | Place.LEFT_BEHIND:
                if cut.place is Place.LEFT_BEHIND:
                    self._client.shutdown(socket.SHUT_RDWR)
                assert cut.go_on.wait(PATIENCE_S), "a statement was held and never let go"
                with suppress(OSError):  # a server process that was ended leaves nobody to send it to
                    self._send_and_await(data, b"Z", passing=False)
                cut.answered = self._came

    def _send_and_await(self, data: bytes, types: bytes, *, passing: bool) -> None:
        self._passing, self._awaited = passing, types
        self._send(data)
        assert self._seen.wait(PATIENCE_S), f"the server never sent any of {types!r}"

    # --- to the client ----------------------------------------------------------------

    def _answer(self) -> None:
        try:
            with suppress(OSError, EOFError):
                self._pass_answers()
        finally:
            self._seen.set()
            self.close()

    def _pass_answers(self) -> None:
        assert self._server is not None
        with self._server.makefile("rb") as reader:
            while True:
                frame = _frame(reader)
                self._proxy.flowing.wait()
                if frame[:1] == b"K":
                    self._process_id = struct.unpack("!i", frame[5:9])[0]
                # Before it is passed on: what the client says next may be waited for with the same type.
                awaited = frame[:1] in self._awaited
                if self._passing:
                    self._client.sendall(frame)
                if awaited:
                    self._came = True
                    self._seen.set()


def _round(reader: BinaryIO) -> list[bytes]:
    """The frames up to where a client waits for an answer."""
    frames = [_frame(reader)]
    while frames[-1][:1] in _IN_A_ROUND:
        frames.append(_frame(reader))
    return frames


def _frame(reader: BinaryIO) -> bytes:
    head = _exactly(reader, 5)
    return head + _exactly(reader, struct.unpack("!i", head[1:])[0] - 4)


def _exactly(reader: BinaryIO, count: int) -> bytes:
    found = reader.read(count)
    if len(found) < count:
        raise EOFError
    return found
