"""Journals of every released format replay for ever: same bytes, same chain, same look."""

from __future__ import annotations

import base64
import hashlib
import json
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from domain import catalogue
from domain.envelope import Stored, check_link, genesis

HERE = Path(__file__).parent
STORY = runpy.run_path(str(HERE / "story.py"))
FORMATS = sorted(HERE.glob("format-*"))
PRESENT = HERE / "format-1"


def lines(folder: Path) -> list[dict[str, Any]]:
    text = (folder / "story.jsonl").read_text(encoding="utf-8")
    return [json.loads(each) for each in text.splitlines()]


def rows(folder: Path) -> Iterator[Stored]:
    for kept in lines(folder):
        stored = {name: base64.b64decode(kept[name]) for name in ("envelope", "payload", "salt", "head")}
        yield Stored("golden-1", kept["sequence"], kept["topic"], **stored)


def test_there_is_a_golden_journal_of_the_present_format() -> None:
    assert PRESENT in FORMATS


def test_the_present_format_is_written_byte_for_byte() -> None:
    written = [STORY["line"](row) for row in STORY["story"]().rows()]
    assert written == (PRESENT / "story.jsonl").read_text(encoding="utf-8").splitlines()


def test_the_story_holds_every_type_of_the_catalogue() -> None:
    assert {row.topic.partition("@")[0] for row in rows(PRESENT)} == set(catalogue.CATALOGUE)


@pytest.mark.parametrize("folder", FORMATS, ids=lambda folder: folder.name)
def test_every_format_replays_and_looks_as_it_did(folder: Path) -> None:
    sequence, head = 0, genesis("golden-1")
    events = []
    for row in rows(folder):
        check_link(row, sequence, head)
        events.append(catalogue.open_stored(row))
        sequence, head = row.sequence, row.head
    assert STORY["projected"](events) == (folder / "story.projected.json").read_text(encoding="utf-8")


@pytest.mark.parametrize("folder", FORMATS, ids=lambda folder: folder.name)
def test_the_chain_is_what_its_description_says(folder: Path) -> None:
    """Written from docs/adr/0011 alone; nothing of ours is called."""
    head = hashlib.sha256(b"minutebook/journal/1\x00" + b"golden-1").digest()
    for number, kept in enumerate(lines(folder), 1):
        envelope, payload, salt = (base64.b64decode(kept[n]) for n in ("envelope", "payload", "salt"))
        stated = json.loads(envelope)
        commitment = hashlib.sha256(b"minutebook/payload/1\x00" + salt + payload).hexdigest()
        assert (stated["sequence"], stated["payload"]["commitment"]) == (number, commitment)
        head = hashlib.sha256(b"\x01" + head + hashlib.sha256(b"\x00" + envelope).digest()).digest()
        assert base64.b64decode(kept["head"]) == head
