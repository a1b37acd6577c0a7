"""The reading half of the journal port over an exported file (`domain.export`).

Opening reads the file once and notes where its lines begin. The first line that is
not whole ends its session: the lines before it are good, the place and the kind
of the damage are named, and nothing after it is used.
"""

from __future__ import annotations

import hashlib
import re
from array import array
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import BinaryIO, Final, TypeVar

import anyio
import anyio.to_thread

from domain import export
from domain.envelope import Stored, genesis
from domain.errors import Corrupt, NewerFormat, NotAJournal
from domain.limits import MAX_BLOB_BYTES
from domain.ports import Blob, LeaseRow, Receipt, SessionRow, Snapshot

T = TypeVar("T")

#: The longest line that an export has: a blob in base64, and room.
MAX_LINE_BYTES: Final = MAX_BLOB_BYTES * 4 // 3 + 4096
_NULS: Final = re.compile(rb"\x00+")


@dataclass(frozen=True, slots=True)
class Damage:
    """Where and how a file stops being an export. Offsets in bytes, `end` exclusive; lines from 1."""

    start: int
    end: int
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.what} (bytes {self.start} to {self.end - 1}, line {self.line})"


@dataclass(slots=True)
class _Section:
    """One session: its row, and where its lines begin."""

    row: SessionRow
    start: int
    events: array[int] = field(default_factory=lambda: array("q"))
    commands: dict[str, int] = field(default_factory=dict)
    damage: Damage | None = None


class _Scan:
    """Reads a file once, line by line."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file, self._name = file, name
        self.sections: dict[str, _Section] = {}
        self.blobs: dict[str, int] = {}
        self._open: _Section | None = None
        self._offset, self._line = 0, 0

    def run(self) -> None:
        """Raises NotAJournal or NewerFormat where the file begins with something else."""
        while line := self._file.readline(MAX_LINE_BYTES):
            self._line += 1
            try:
                self._take(line)
            except (ValueError, KeyError, TypeError) as e:
                self._end(_damage(line, self._offset, self._line, e))
                return
            self._offset += len(line)
        if self._open is not None:
            self._end(
                Damage(
                    self._offset, self._offset + 1, self._line + 1, "the end of the file, without a trailer"
                )
            )
        if not self.sections:
            self._end(Damage(0, 1, 1, "an empty file"))

    def _take(self, line: bytes) -> None:
        if not line.endswith(b"\n"):
            raise ValueError("a line without an end")
        section = self._open
        found = export.parse(line[:-1], section.row.session_id if section else "")
        if isinstance(found, export.Header):
            self._begin(found)
            return
        if section is None:
            raise ValueError("a line outside every session")
        match found:
            case Stored():
                self._event(section, found)
            case export.CommandLine():
                section.commands[found.command_id] = self._offset
            case Blob():
                self.blobs[found.digest] = self._offset
            case export.MissingBlob():
                pass  # it is missing here as it was there
            case export.Trailer():
                self._close(section, found)

    def _begin(self, header: export.Header) -> None:
        if header.version > export.VERSION:
            raise NewerFormat(self._name, f"expected export format {export.VERSION}, found {header.version}")
        session_id = header.row.session_id
        if self._open is not None or session_id in self.sections:
            raise ValueError("the beginning of a session before the end of another, or a second time")
        row = replace(header.row, head=genesis(session_id))
        self._open = self.sections[session_id] = _Section(row, self._offset)

    def _event(self, section: _Section, row: Stored) -> None:
        if row.sequence != section.row.sequence + 1:
            raise ValueError(f"event {row.sequence} where {section.row.sequence + 1} follows")
        section.events.append(self._offset)
        section.row = replace(section.row, sequence=row.sequence, head=row.head)

    def _close(self, section: _Section, trailer: export.Trailer) -> None:
        row, size = section.row, self._offset - section.start
        stated = (trailer.session_id, trailer.events, trailer.size_bytes, trailer.head)
        if stated != (row.session_id, row.sequence, size, row.head):
            raise ValueError(
                f"a trailer that states {trailer.events} events in {trailer.size_bytes} bytes "
                f"after {row.sequence} in {size}, or another head"
            )
        self._open = None

    def _end(self, damage: Damage) -> None:
        if not self.sections:
            raise NotAJournal(self._name, f"expected an export of a journal, found {damage}")
        section = self._open or list(self.sections.values())[-1]
        section.damage = section.damage or damage


def _damage(line: bytes, offset: int, number: int, error: Exception) -> Damage:
    """The most telling name for what is wrong with a line."""
    nuls = _NULS.search(line)
    if nuls is not None:
        start, end = offset + nuls.start(), offset + nuls.end()
        return Damage(start, end, number, f"{end - start} NUL bytes")
    end = offset + len(line)
    try:
        line.decode()
    except UnicodeDecodeError as e:
        return Damage(
            offset + e.start, end, number, "bytes that are no UTF-8, cut or changed inside a character"
        )
    if not line.endswith(b"\n"):
        return Damage(offset, end, number, "a line that was cut")
    return Damage(offset, end, number, f"no line of an export: {error}")


class JsonLinesReader:
    """`domain.ports.JournalReader` over an export. Made by `open_export`."""

    def __init__(self, path: str, file: BinaryIO, scan: _Scan, owner_id: str | None) -> None:
        self._path, self._file, self._owner_id = path, file, owner_id
        self._sections, self._blobs = dict(sorted(scan.sections.items())), scan.blobs
        self._ids = list(self._sections)
        self._one_at_a_time = anyio.Lock()

    @property
    def name(self) -> str:
        """What to call this store in a message."""
        return f"export:{self._path}"

    async def session(self, session_id: str) -> SessionRow | None:
        """One session's row, or None.

        Raises:
            Corrupt: its part of the file is damaged; says where, and which event is the last good one.
        """
        section = self._section(session_id)
        if section is None:
            return None
        if section.damage is not None:
            good = section.row.sequence
            found = f"{section.damage}; events up to {good} are good"
            raise _export_damaged(found, good + 1)
        return section.row if section.row.sequence else None

    async def sessions(self, *, after: str = "", limit: int = 100) -> Sequence[SessionRow]:
        """Session rows by id, those after `after`; of a damaged one as far as it is good."""
        later = islice(self._ids, bisect_right(self._ids, after), None)
        sections = (self._section(session_id) for session_id in later)
        return [section.row for section in islice(filter(None, sections), limit)]

    async def read(
        self, session_id: str, *, after: int = 0, upto: int | None = None, limit: int = 256
    ) -> Sequence[Stored]:
        """Rows with `after < sequence <= upto`, in order, at most `limit`."""
        section = self._section(session_id)
        if section is None:
            return []
        offsets = section.events[max(after, 0) : upto][:limit]
        return await self._in_thread(lambda: [self._event(session_id, offset) for offset in offsets])

    async def snapshot(self, session_id: str, *, upto: int | None = None) -> Snapshot | None:
        """None: an export holds events, and is folded from the first."""
        return None

    async def blob(self, digest: str) -> bytes | None:
        """A blob's bytes, or None. Raises Corrupt if they are not those of the digest."""
        offset = self._blobs.get(digest)
        if offset is None:
            return None
        found = await self._in_thread(lambda: self._parsed(offset, ""))
        if not isinstance(found, Blob) or hashlib.sha256(found.data).hexdigest() != digest:
            raise Corrupt("blob", f"bytes with the digest {digest}", "others")
        return found.data

    async def command(self, session_id: str, command_id: str) -> tuple[bytes, Receipt] | None:
        """The fingerprint and receipt of a command that is in the export, or None."""
        return (await self.commands(session_id, [command_id])).get(command_id)

    async def commands(
        self, session_id: str, command_ids: Sequence[str]
    ) -> Mapping[str, tuple[bytes, Receipt]]:
        """What `command` gives, for many commands at once; those that are there."""
        section = self._section(session_id)
        if section is None:
            return {}
        kept = section.commands
        offsets = {each: kept[each] for each in command_ids if each in kept}
        return await self._in_thread(
            lambda: {each: self._command(session_id, offset) for each, offset in offsets.items()}
        )

    async def lease_lives(self, lease: LeaseRow) -> bool:
        """False: an export holds no lease."""
        return False

    def _section(self, session_id: str) -> _Section | None:
        section = self._sections.get(session_id)
        if section is None or self._owner_id not in (None, section.row.owner_id):
            return None
        return section

    def _event(self, session_id: str, offset: int) -> Stored:
        found = self._parsed(offset, session_id)
        if not isinstance(found, Stored):
            raise _export_damaged("a file that changed while it was read", None)
        return found

    def _command(self, session_id: str, offset: int) -> tuple[bytes, Receipt]:
        found = self._parsed(offset, session_id)
        if not isinstance(found, export.CommandLine):
            raise _export_damaged("a file that changed while it was read", None)
        return found.fingerprint, found.receipt

    def _parsed(self, offset: int, session_id: str) -> export.Line:
        self._file.seek(offset)
        line = self._file.readline(MAX_LINE_BYTES)
        try:
            return export.parse(line.removesuffix(b"\n"), session_id)
        except (ValueError, KeyError, TypeError) as e:
            raise _export_damaged("a file that changed while it was read", None) from e

    async def _in_thread(self, read: Callable[[], T]) -> T:
        async with self._one_at_a_time:
            return await anyio.to_thread.run_sync(read)


def _export_damaged(found: str, sequence: int | None) -> Corrupt:
    error = Corrupt("export", "whole lines up to a trailer that agrees with them", "", sequence)
    error.actual = found
    error.args = (f"{error.where} at sequence {sequence}: expected {error.expected}, got {found}",)
    return error


@asynccontextmanager
async def open_export(path: str, *, owner_id: str | None = None) -> AsyncIterator[JsonLinesReader]:
    """Open an exported file to look at it.

    Args:
        owner_id: whose sessions to show; None: everybody's.

    Raises:
        NotAJournal: missing, or not an export.
        NewerFormat: a newer version of this library wrote it.
    """
    name = f"export:{path}"
    try:
        file = await anyio.to_thread.run_sync(lambda: open(path, "rb"))  # noqa: SIM115  # closed below
    except OSError as e:
        raise NotAJournal(name, f"expected a file to read, got: {e.strerror}") from e
    with file:
        scan = _Scan(file, name)
        await anyio.to_thread.run_sync(scan.run)
        yield JsonLinesReader(path, file, scan, owner_id)
