"""What happens to files and journals: cuts, flipped bits, scattered bytes, rows moved, forged, spliced.

Generators only, each the same every time; what readers have to say about a damage is
in the suites. Offsets in bytes.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from domain import canonical
from domain.envelope import SALT_BYTES, Stored, commitment, genesis, link

#: Steps that share no factor with a page, so that all places of a page come up.
ODD_STEP: Final = 97
PAGE_BYTES: Final = 4096


def cuts(data: bytes, step: int = 1) -> Iterator[bytes]:
    """The data cut at every `step`-th byte, the whole left out."""
    for size in range(0, len(data), step):
        yield data[:size]


def flips(data: bytes, step: int = 1, *, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """The data with one bit flipped: every `step`-th bit, with the number of that bit."""
    for bit in range(start, 8 * len(data), step):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        yield bit, bytes(changed)


def scattered(data: bytes, count: int, seed: int) -> Iterator[bytes]:
    """The data damaged in some way `count` times: bytes, runs, pages zeroed, moved, left out, cut."""
    source = random.Random(seed)
    ways = (_bytes, _run, _zeroed, _moved, _left_out, _swapped_pages)
    for number in range(count):
        yield ways[number % len(ways)](bytearray(data), source)


def _bytes(data: bytearray, source: random.Random) -> bytes:
    for _ in range(source.randint(2, 32)):
        data[source.randrange(len(data))] = source.randrange(256)
    return bytes(data)


def _run(data: bytearray, source: random.Random) -> bytes:
    at = source.randrange(len(data))
    run = source.randbytes(source.randint(2, 200))[: len(data) - at]
    data[at : at + len(run)] = run
    return bytes(data)


def _zeroed(data: bytearray, source: random.Random) -> bytes:
    at = source.randrange(len(data))
    size = min(source.choice((16, 512, PAGE_BYTES)), len(data) - at)
    data[at : at + size] = bytes(size)
    return bytes(data)


def _moved(data: bytearray, source: random.Random) -> bytes:
    size = source.randint(2, 600)
    one, other = (source.randrange(max(1, len(data) - size)) for _ in range(2))
    data[other : other + size] = data[one : one + size]
    return bytes(data)


def _left_out(data: bytearray, source: random.Random) -> bytes:
    at = source.randrange(len(data))
    del data[at : at + source.randint(1, 700)]
    return bytes(data)


def _swapped_pages(data: bytearray, source: random.Random) -> bytes:
    pages = len(data) // PAGE_BYTES
    one, other = (PAGE_BYTES * source.randrange(max(1, pages)) for _ in range(2))
    first, second = bytes(data[one : one + PAGE_BYTES]), bytes(data[other : other + PAGE_BYTES])
    data[other : other + len(first)], data[one : one + len(second)] = first, second
    return bytes(data)


# --- rows ---------------------------------------------------------------------------------

Rows = list[Stored]


@dataclass(frozen=True, slots=True)
class RowDamage:
    """One way to change a journal at an index, or not to: then it gives None.

    `resealed`: whoever did it made the chain again, so that only the rules, or a head
    from outside, can tell.
    """

    name: str
    apply: Callable[[Rows, int], Rows | None]
    resealed: bool = False


def _dropped(rows: Rows, at: int) -> Rows | None:
    return [*rows[:at], *rows[at + 1 :]] if at < len(rows) - 1 else None


def _twice(rows: Rows, at: int) -> Rows:
    return [*rows[: at + 1], *rows[at:]]


def _swapped(rows: Rows, at: int) -> Rows | None:
    return [*rows[:at], rows[at + 1], rows[at], *rows[at + 2 :]] if at + 1 < len(rows) else None


def _renumbered(rows: Rows, at: int) -> Rows | None:
    """The row of another place under this one's sequence."""
    other = rows[at - 1] if at else rows[-1]
    if other is rows[at]:
        return None
    return _with(rows, at, replace(other, sequence=rows[at].sequence))


def _same_sequence_again(rows: Rows, at: int) -> Rows | None:
    """Two different rows of one sequence."""
    if at + 1 >= len(rows):
        return None
    return [*rows[: at + 1], replace(rows[at + 1], sequence=rows[at].sequence), *rows[at + 1 :]]


def _flipped(field: str) -> Callable[[Rows, int], Rows | None]:
    def flip(rows: Rows, at: int) -> Rows | None:
        value = bytearray(getattr(rows[at], field) or b"")
        if not value:
            return None
        value[at % len(value)] ^= 1 << at % 8
        changes: dict[str, Any] = {field: bytes(value)}
        return _with(rows, at, replace(rows[at], **changes))

    return flip


def _half_redacted(rows: Rows, at: int) -> Rows:
    return _with(rows, at, replace(rows[at], salt=None))


def _other_topic(rows: Rows, at: int) -> Rows:
    return _with(rows, at, replace(rows[at], topic="os:system@1"))


def _from_elsewhere(other: Rows) -> Callable[[Rows, int], Rows | None]:
    """A row of another session in place of this one's."""

    def splice(rows: Rows, at: int) -> Rows | None:
        if at >= len(other) or other[at].envelope == rows[at].envelope:
            return None
        foreign = replace(other[at], session_id=rows[at].session_id, sequence=rows[at].sequence)
        return _with(rows, at, foreign)

    return splice


def _with(rows: Rows, at: int, row: Stored) -> Rows:
    return [*rows[:at], row, *rows[at + 1 :]]


def plain_damages(other: Sequence[Stored]) -> list[RowDamage]:
    """What an accident does, or somebody who does not know about the chain.

    Args:
        other: rows of another session, to splice in.
    """
    return [
        RowDamage("dropped", _dropped),
        RowDamage("twice", _twice),
        RowDamage("swapped", _swapped),
        RowDamage("renumbered", _renumbered),
        RowDamage("the same sequence again", _same_sequence_again),
        RowDamage("from another session", _from_elsewhere(list(other))),
        RowDamage("a flip in the envelope", _flipped("envelope")),
        RowDamage("a flip in the payload", _flipped("payload")),
        RowDamage("a flip in the salt", _flipped("salt")),
        RowDamage("a flip in the head", _flipped("head")),
        RowDamage("half redacted", _half_redacted),
        RowDamage("another topic", _other_topic),
    ]


def forgeries() -> list[RowDamage]:
    """What somebody does who knows the format and makes the chain again behind it."""
    return [
        RowDamage("unknown type", _envelope(lambda e: {**e, "type": "os:system"}), resealed=True),
        RowDamage("future version", _envelope(lambda e: {**e, "version": 99}), resealed=True),
        RowDamage("unknown envelope field", _envelope(lambda e: {**e, "lc": 2}), resealed=True),
        RowDamage("no actor", _envelope(lambda e: {k: v for k, v in e.items() if k != "actor"}), True),
        RowDamage("another session", _envelope(lambda e: {**e, "session_id": "s-other"}), True),
        RowDamage("a cause to come", _envelope(lambda e: {**e, "causation": e["sequence"]}), True),
        RowDamage("rewound token", _rewound, resealed=True),
        RowDamage("unknown payload field", _payload(lambda p: {**p, "__class__": "os.system"}), True),
        RowDamage("payload of a constructor", _payload(lambda p: {"lc": 2, "type": "constructor"}), True),
        RowDamage("no payload", _payload(lambda p: []), resealed=True),
        RowDamage("a part of a command", _envelope(_longer_command), resealed=True),
    ]


def _longer_command(envelope: dict[str, Any]) -> dict[str, Any]:
    return {**envelope, "command": {**envelope["command"], "size": envelope["command"]["size"] + 1}}


def _rewound(rows: Rows, at: int) -> Rows | None:
    fence = orjson.loads(rows[at].envelope)["recorded_by"]
    before = orjson.loads(rows[at - 1].envelope)["recorded_by"] if at else None
    if fence is None or before is None:
        return None
    return _envelope(lambda e: {**e, "recorded_by": {**fence, "token": before["token"] - 1}})(rows, at)


def _envelope(change: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[Rows, int], Rows]:
    def forge(rows: Rows, at: int) -> Rows:
        changed = change(orjson.loads(rows[at].envelope))
        topic = f"{changed['type']}@{changed['version']}"
        row = replace(rows[at], envelope=canonical.encode(changed), topic=topic)
        return chained(_with(rows, at, row))

    return forge


def _payload(change: Callable[[Any], Any]) -> Callable[[Rows, int], Rows | None]:
    def forge(rows: Rows, at: int) -> Rows | None:
        row = rows[at]
        if row.payload is None:
            return None
        payload, salt = canonical.encode(change(canonical.decode(row.payload))), row.salt or bytes(SALT_BYTES)
        envelope = orjson.loads(row.envelope)
        envelope["payload"] |= {"commitment": commitment(salt, payload).hex(), "size_bytes": len(payload)}
        changed = replace(row, payload=payload, salt=salt, envelope=canonical.encode(envelope))
        return chained(_with(rows, at, changed))

    return forge


def chained(rows: Rows) -> Rows:
    """The rows with heads that follow from each other, whatever they hold."""
    made, head = [], genesis(rows[0].session_id)
    for row in rows:
        head = link(head, row.envelope)
        made.append(replace(row, head=head))
    return made
