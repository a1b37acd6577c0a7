"""Golden journals: what was written once is read for ever, byte for byte."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from domain import catalogue
from domain.canonical import decode
from domain.catalogue import CATALOGUE
from domain.envelope import Recorded, Stored, check_link, genesis, seal
from domain.lifecycle import advance
from domain.next_steps import next_steps
from domain.state import State
from tests.unit import golden_leases, golden_lookup, golden_rollover, golden_session, golden_settings

FILES = sorted((Path(__file__).parents[1] / "golden").glob("format-*/*.json"))
#: The head of the file of format 1, written down a second time.
HEAD = "03b8da259ceb2bf393d844b60540cb3dcaa9c76dc2c776bf1b1ddae2abb274e6"


def load(file: Path) -> tuple[dict[str, Any], list[Stored]]:
    """A golden journal: its document and its rows."""
    document = json.loads(file.read_text())
    rows = [
        Stored(
            document["session_id"],
            row["sequence"],
            row["topic"],
            row["envelope"].encode(),
            row["payload"].encode(),
            bytes.fromhex(row["salt"]),
            bytes.fromhex(row["head"]),
        )
        for row in document["rows"]
    ]
    return document, rows


def replayed(rows: list[Stored]) -> list[tuple[Recorded, State]]:
    """Every event with the state after it."""
    state, head, told = State(rows[0].session_id), genesis(rows[0].session_id), []
    for row in rows:
        check_link(row, state.sequence, head)
        event = catalogue.open_stored(row)
        state, head = advance(state, event), row.head
        told.append((event, state))
    return told


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_it_replays(file: Path) -> None:
    document, rows = load(file)
    told = replayed(rows)
    assert [e.sequence for e, _ in told] == list(range(1, len(rows) + 1))
    plans = [
        [state.sequence, *([s.action.value, s.who.value, s.subject, s.reason] for s in next_steps(state))]
        for _, state in told
        if state.command.is_whole
    ]
    assert plans == document["plans"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_what_is_read_is_written_again_byte_for_byte(file: Path) -> None:
    """True of every format whose events were never raised to a newer version."""
    _, rows = load(file)
    head = genesis(rows[0].session_id)
    for row, (event, _) in zip(rows, replayed(rows), strict=True):
        payload = catalogue.encode(event.data)
        assert payload == row.payload
        assert seal(event, payload, row.salt or b"", head) == row
        head = row.head


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_anybody_can_prove_the_chain(file: Path) -> None:
    """The published digests, written down once more with a hash function and nothing of ours."""
    document = json.loads(file.read_text())

    def sha(data: bytes) -> bytes:
        return hashlib.sha256(data).digest()

    head = sha(b"minutebook/journal/1\x00" + document["session_id"].encode())
    for row in document["rows"]:
        envelope = row["envelope"].encode()
        content = bytes.fromhex(row["salt"]) + row["payload"].encode()
        stated = json.loads(envelope)["payload"]
        assert stated["commitment"] == sha(b"minutebook/payload/1\x00" + content).hex()
        assert stated["size_bytes"] == len(row["payload"].encode())
        head = sha(b"\x01" + head + sha(b"\x00" + envelope))
        assert row["head"] == head.hex()


@pytest.mark.parametrize(
    "behind",
    [golden_session, golden_settings, golden_lookup, golden_leases, golden_rollover],
    ids=lambda behind: behind.SESSION,
)
def test_the_session_behind_it_is_still_written_the_same_way(behind: Any) -> None:
    assert golden_session.written(behind.session()) == behind.FILE.read_text()


def test_every_type_and_every_field_is_in_a_golden_journal() -> None:
    fields: dict[str, set[str]] = {}
    for file in FILES:
        for row in load(file)[1]:
            fields.setdefault(row.topic, set()).update(decode(row.payload or b"{}"))
    missing = {
        topic: left
        for cls in CATALOGUE.values()
        if (left := cls.model_fields.keys() - fields.get(topic := f"{cls.type}@{cls.version}", set()))
    }
    assert missing == {}


def test_its_head_is_the_one_that_was_published() -> None:
    """A reader of this file can compare it with the head that is named elsewhere."""
    _, rows = load(golden_session.FILE)
    assert rows[-1].head.hex() == HEAD
