"""Journals in which every text that somebody else chose is hostile, as files that a stranger hands over.

Nothing here asks a store whether it would take such rows: an export is written line by line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson

from domain import canonical, catalogue, export
from domain.envelope import SALT_BYTES, Stored, commitment, genesis, link, open_envelope
from domain.errors import Corrupt
from domain.ports import CommitStatus, Listing, Receipt, SessionRow
from minutebook.testing.scenario import EPOCH
from tests.corpus.texts import all_in_one

#: Every hostile text in one, and short enough that nothing cuts it off.
HOSTILE: Final = all_in_one()
SHORT: Final = "\x1b[2J\x1b]52;c;QQ==\x07\u202e\u200b\x9b31m\ud800\0\r\n\u2028[bold]x[/]\U000e0041"


def poisoned_payloads(rows: Sequence[Stored]) -> Iterator[list[Stored]]:
    """For each row a journal in which that row's texts are hostile, as far as its type allows."""
    for at, row in enumerate(rows):
        payload = _poisoned_payload(row)
        if payload != row.payload:
            yield _sealed([*rows[:at], replace(row, payload=payload), *rows[at + 1 :]])


def poisoned_envelopes(rows: Sequence[Stored]) -> Iterator[list[Stored]]:
    """For each text of an envelope, and all of them, a journal in which it is hostile everywhere."""
    places: list[tuple[str, ...]] = [
        ("type",),
        ("aggregate", "id"),
        ("request_id",),
        ("turn_id",),
        ("model_attempt_id",),
        ("tool_id",),
        ("command", "id"),
        ("actor", "id"),
        ("recorded_by", "worker_id"),
        ("recorded_by", "lease_id"),
    ]
    for place in places:
        yield _sealed([_poisoned_envelope(row, [place]) for row in rows])
    yield _sealed([_poisoned_envelope(row, places[1:]) for row in rows])


def _poisoned_payload(row: Stored) -> bytes | None:
    """The payload with each text hostile that may be; one that its type refuses stays as it was."""
    if row.payload is None:
        return None
    event = open_envelope(row)
    value = canonical.decode(row.payload)
    for path in list(_texts(value)):
        changed = _put(value, path, SHORT if path[-1] in ("id", "name", "kind") else HOSTILE)
        try:
            catalogue.decode(event.type, event.version, canonical.encode(changed), row.sequence)
        except Corrupt:
            continue
        value = changed
    return canonical.encode(value)


def _texts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, str) and path:
        yield path
    if isinstance(value, dict):
        for key in value:
            yield from _texts(value[key], (*path, key))
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, (*path, index))


def _put(value: Any, path: tuple[Any, ...], text: str) -> Any:
    if not path:
        return text
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = _put(copy[path[0]], path[1:], text)
    return copy


def _poisoned_envelope(row: Stored, places: Sequence[tuple[str, ...]]) -> Stored:
    envelope = orjson.loads(row.envelope)
    for first, *rest in places:
        holder, key = (envelope[first], rest[0]) if rest else (envelope, first)
        if holder is not None and isinstance(holder[key], str):
            holder[key] = f"{holder[key]}{SHORT}"
    topic = f"{envelope['type']}@{envelope['version']}"
    return replace(row, envelope=canonical.encode(envelope), topic=topic)


def _sealed(rows: Sequence[Stored]) -> list[Stored]:
    """Rows whose chain and commitments are right for what they hold."""
    sealed, head = [], genesis(rows[0].session_id)
    for row in rows:
        salt = row.salt or bytes(SALT_BYTES)
        if row.payload is not None:
            envelope = canonical.decode(row.envelope)
            digest = commitment(salt, row.payload).hex()
            envelope["payload"] |= {"commitment": digest, "size_bytes": len(row.payload)}
            row = replace(row, envelope=canonical.encode(envelope), salt=salt)
        head = link(head, row.envelope)
        sealed.append(replace(row, head=head))
    return sealed


def export_of(rows: Sequence[Stored], **header: Any) -> bytes:
    """An export of these rows as it would have been written, whole up to its trailer.

    Args:
        header: fields of its first line to replace.
    """
    session_id = rows[0].session_id
    row = SessionRow(session_id, "local", 0, b"", EPOCH, EPOCH, Listing("open", "none"))
    lines = [orjson.dumps({**orjson.loads(export.header(row)), **header}) + b"\n"]
    first, head = 1, rows[-1].head
    for stored in rows:
        lines.append(_line(stored))
        command = canonical.decode(stored.envelope)["command"]
        if command["index"] == command["size"] - 1:
            receipt = Receipt(CommitStatus.COMMITTED, first, stored.sequence, stored.head)
            lines.append(export.command(_plain(command["id"]), bytes(32), receipt))
            first = stored.sequence + 1
    body = b"".join(lines)
    return body + export.trailer(_plain(header.get("session_id", session_id)), len(rows), len(body), head)


def _line(stored: Stored) -> bytes:
    return export.event(replace(stored, topic=_plain(stored.topic)))


def _plain(text: str) -> str:
    """A text as JSON Lines can carry it."""
    return text.encode("utf-8", "replace").decode()
