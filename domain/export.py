"""The lines of an exported journal, to bytes and back. Pure; files are `adapters.jsonl_reader`'s.

An export is JSON Lines, one section for each session:

    {"minutebook_export": 1, "session_id": ..., "owner_id": ..., ...}       the session's row
    {"blob": "<sha256>", "data": "<base64>"}                                before the event that refers to it
    {"blob": "<sha256>", "missing": true}                                   the journal did not have it whole
    {"sequence": 1, "topic": "type@1", "envelope": "...", "payload": "...", "salt": "<hex>", "head": "<hex>"}
    {"command": "...", "fingerprint": "<hex>", "first": 1, "last": 1, "head": "<hex>"}   after its last event
    {"trailer": {"session_id": ..., "events": N, "bytes": B, "head": "<hex>"}}

Envelope and payload are the stored bytes as text: what was hashed is what is
there. `bytes` is the length of the section before its trailer. A payload that
was removed is null, and so is its salt.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import orjson

from domain.envelope import Stored
from domain.ports import Blob, CommitStatus, Listing, Receipt, SessionRow

VERSION: Final = 1
HEADER: Final = "minutebook_export"


@dataclass(frozen=True, slots=True)
class Header:
    """The beginning of a section; `row` without the head, which the trailer states."""

    version: int
    row: SessionRow


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command that is in the journal."""

    command_id: str
    fingerprint: bytes
    receipt: Receipt


@dataclass(frozen=True, slots=True)
class Trailer:
    """The end of a section: it is whole if all of this agrees with what came before."""

    session_id: str
    events: int
    size_bytes: int
    head: bytes


@dataclass(frozen=True, slots=True)
class MissingBlob:
    """A blob that an event refers to and that the journal did not have, or had damaged."""

    digest: str


Line = Header | Stored | CommandLine | Blob | MissingBlob | Trailer


def header(row: SessionRow) -> bytes:
    """The line that begins a session's section."""
    return _line(
        {
            HEADER: VERSION,
            "session_id": row.session_id,
            "owner_id": row.owner_id,
            "created_at": row.created_at.isoformat(),
            "updated_at": row.updated_at.isoformat(),
            "status": row.listing.status,
            "next_action": row.listing.next_action,
        }
    )


def event(row: Stored) -> bytes:
    """The line of one event. Raises UnicodeDecodeError if it is none of ours."""
    return _line(
        {
            "sequence": row.sequence,
            "topic": row.topic,
            "envelope": row.envelope.decode(),
            "payload": row.payload.decode() if row.payload is not None else None,
            "salt": row.salt.hex() if row.salt is not None else None,
            "head": row.head.hex(),
        }
    )


def command(command_id: str, fingerprint: bytes, receipt: Receipt) -> bytes:
    """The line of one command."""
    return _line(
        {
            "command": command_id,
            "fingerprint": fingerprint.hex(),
            "first": receipt.first_sequence,
            "last": receipt.last_sequence,
            "head": receipt.head.hex(),
        }
    )


def blob(digest: str, data: bytes) -> bytes:
    """The line of one blob."""
    return _line({"blob": digest, "data": base64.b64encode(data).decode("ascii")})


def missing_blob(digest: str) -> bytes:
    """The line that stands for a blob which the journal does not have whole."""
    return _line({"blob": digest, "missing": True})


def trailer(session_id: str, events: int, size_bytes: int, head: bytes) -> bytes:
    """The line that ends a session's section."""
    inner = {"session_id": session_id, "events": events, "bytes": size_bytes, "head": head.hex()}
    return _line({"trailer": inner})


def parse(line: bytes, session_id: str) -> Line:
    """One line, without its line end.

    Args:
        session_id: whose section it is in.

    Raises:
        ValueError, KeyError, TypeError: it is no line of this format.
    """
    plain = orjson.loads(line)
    if not isinstance(plain, dict):
        raise ValueError("a line is one JSON object")
    if HEADER in plain:
        return _header(plain)
    if "trailer" in plain:
        inner = plain["trailer"]
        head = _hex(inner["head"], 32)
        return Trailer(_text(inner["session_id"]), int(inner["events"]), int(inner["bytes"]), head)
    if "command" in plain:
        return _command(plain)
    if "blob" in plain and "missing" in plain:
        return MissingBlob(_text(plain["blob"]))
    if "blob" in plain:
        return Blob(_text(plain["blob"]), base64.b64decode(plain["data"], validate=True))
    return _event(plain, session_id)


def _header(plain: dict[str, Any]) -> Header:
    row = SessionRow(
        _text(plain["session_id"]),
        _text(plain["owner_id"]),
        0,
        b"",
        datetime.fromisoformat(plain["created_at"]),
        datetime.fromisoformat(plain["updated_at"]),
        Listing(_text(plain["status"]), _text(plain["next_action"])),
    )
    return Header(int(plain[HEADER]), row)


def _command(plain: dict[str, Any]) -> CommandLine:
    head = _hex(plain["head"], 32)
    receipt = Receipt(CommitStatus.COMMITTED, int(plain["first"]), int(plain["last"]), head)
    return CommandLine(_text(plain["command"]), _hex(plain["fingerprint"], 32), receipt)


def _event(plain: dict[str, Any], session_id: str) -> Stored:
    payload, salt = plain["payload"], plain["salt"]
    return Stored(
        session_id,
        int(plain["sequence"]),
        _text(plain["topic"]),
        _text(plain["envelope"]).encode(),
        _text(payload).encode() if payload is not None else None,
        bytes.fromhex(salt) if salt is not None else None,
        _hex(plain["head"], 32),
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, found {type(value).__name__}")
    return value


def _hex(value: Any, size: int) -> bytes:
    found = bytes.fromhex(_text(value))
    if len(found) != size:
        raise ValueError(f"expected {size} bytes, found {len(found)}")
    return found


def _line(value: dict[str, Any]) -> bytes:
    return orjson.dumps(value) + b"\n"
