"""Every recording that is there, known to other tests or not, through the adapter of its dialect.

Nothing here knows what a recording holds. It ends in one of two ways, however it is
cut into pieces; a part of it never completes to anything else; what it asks for is
never made up; and the request after it is one that servers take.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import orjson
import pytest

from adapters.model_failures import KINDS
from domain.model_ports import Response
from domain.values import CUT_STOPS
from minutebook.testing.attempts import Attempted, attempt
from minutebook.testing.chat_replies import recorded_reply
from minutebook.testing.fake_server import Cut, Faults, Reply
from tests.wire.rounds import DIALECTS, Recording, Rounds, exchanges, rounds

pytestmark = pytest.mark.anyio

#: In pieces, cut, and whole: as often as each recording is tried.
SPLITS, CUTS = 3, 10


@dataclass(frozen=True)
class Outcome:
    """What an attempt came to, without how it came in."""

    text: str
    thinking: str
    inputs: dict[int, str]
    response: Response | None
    failure: str | None


def outcome(found: Attempted) -> Outcome:
    failure = found.failure.kind if found.failure is not None else None
    return Outcome(found.text, found.thinking, found.inputs, found.response, failure)


@pytest.fixture(scope="session")
def recordings(wire_dir: Path) -> dict[str, Recording]:
    """Every recorded answer of a dialect that we speak, by the name of its file."""
    found = {
        path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(wire_dir.glob("*.json"))
    }
    return {name: recorded for name, recorded in found.items() if recorded.get("api") in DIALECTS}


def test_there_are_recordings(recordings: dict[str, Recording]) -> None:
    assert recordings


@pytest.mark.parametrize("api", DIALECTS)
async def test_it_ends_in_one_of_two_ways(api: str, recordings: dict[str, Recording]) -> None:
    for name, recorded in _of(api, recordings):
        async with rounds([recorded]) as talk:
            found = await talk.next()
            path = talk.server.requests[0].path
        assert path.startswith(recorded["request"]["path"]) or _is_lookup(recorded), name
        _check(name, found)


def _check(name: str, found: Attempted) -> None:
    if found.failure is not None:
        assert found.failure.kind in KINDS, name
        assert found.failure.bytes_sent, name
        assert not (found.failure.retryable and found.pieces), name
        return
    response = found.response
    assert response is not None
    kept = "".join(block.text for block in response.blocks if block.kind == "text")
    assert found.text == kept, f"{name}: what was shown is not what is kept"
    for index, call in enumerate(response.calls):
        assert found.inputs.get(index, "") == call.arguments, f"{name}: call {index}"
    assert all(type(count) is int and count >= 0 for count in response.usage.values()), name


@pytest.mark.parametrize("api", DIALECTS)
async def test_however_it_arrives_it_is_the_same(api: str, recordings: dict[str, Recording]) -> None:
    for name, recorded in _of(api, recordings):
        whole = recorded_reply(recorded)
        luck, size = random.Random(name), max(1, len(whole.body))
        places = [tuple(luck.randrange(size) for _ in range(luck.randint(1, 40))) for _ in range(SPLITS)]
        faults = [Faults(), Faults(piece_bytes=max(7, size // 4000)), *(Faults(splits=at) for at in places)]
        found = [outcome(one) for one in await _sent(recorded, [_with(whole, fault) for fault in faults])]
        assert found == [found[0]] * len(found), name


@pytest.mark.parametrize("cut", [Cut.CLEAN, Cut.RESET])
@pytest.mark.parametrize("api", DIALECTS)
async def test_a_part_of_it_completes_to_nothing_else(
    api: str, cut: Cut, recordings: dict[str, Recording]
) -> None:
    for name, recorded in _of(api, recordings):
        whole = recorded_reply(recorded)
        luck = random.Random(name)
        places = sorted(luck.randrange(max(1, len(whole.body))) for _ in range(CUTS))
        replies = [whole, *(_with(whole, Faults(cut_after=place, cut=cut)) for place in places)]
        complete, *parts = [outcome(found) for found in await _sent(recorded, replies)]
        for place, part in zip(places, parts, strict=True):
            where = f"{name} cut after {place} bytes"
            assert complete.text.startswith(part.text), where
            if part.response is not None:  # its marker had come
                assert part.response.calls == _calls(complete), where
                assert part.text == complete.text, where
            else:
                assert part.failure in KINDS, where


@pytest.mark.parametrize("api", DIALECTS)
async def test_what_can_run_was_said(api: str, recordings: dict[str, Recording]) -> None:
    for name, recorded in _of(api, recordings):
        [found] = await _sent(recorded, [recorded_reply(recorded)])
        response = found.response
        if response is None or response.stop in CUT_STOPS:
            continue
        said = json.dumps(recorded["response"].get("sse") or recorded["response"].get("body"))
        for call in response.calls:
            assert call.name in said, name
            assert call.provider_call_id in said, name


async def test_conversations_go_on_from_step_to_step(recordings: dict[str, Recording]) -> None:
    for steps in _conversations(recordings):
        async with rounds(steps) as talk:
            for step in steps:
                found = await talk.next()
                failing = step["response"]["status"] >= 400 or "error" in _said(step)
                assert found.response is not None or failing
                _check_said_next(talk)


def _check_said_next(talk: Rounds) -> None:
    """What we say next is what servers take, holds every call with its result, and every text."""
    said = orjson.dumps(talk.body()).decode()
    for exchange in exchanges(talk.items):
        for call in exchange.calls:
            assert said.count(orjson.dumps(call.wire_id).decode()) == 2, "a call and its result"
        if exchange.text.strip():
            assert orjson.dumps(exchange.text).decode()[1:-1][:40] in said


# --- helpers --------------------------------------------------------------------------


def _of(api: str, recordings: dict[str, Recording]) -> list[tuple[str, Recording]]:
    return [(name, recorded) for name, recorded in recordings.items() if recorded["api"] == api]


def _is_lookup(recorded: Recording) -> bool:
    """A stored response that was asked for again: no answer to a request like ours, and read like one."""
    return bool(recorded["request"]["method"] == "GET")


def _with(whole: Reply, faults: Faults) -> Reply:
    return Reply(whole.body, whole.status, whole.headers, faults)


async def _sent(recorded: Recording, replies: Sequence[Reply]) -> list[Attempted]:
    async with rounds([recorded], replies) as talk:
        return [await attempt(talk.provider) for _ in replies]


def _calls(found: Outcome) -> Any:
    return found.response.calls if found.response is not None else None


def _said(recorded: Recording) -> str:
    return str(recorded["response"].get("sse", ""))


def _conversations(recordings: dict[str, Recording]) -> Iterator[list[Recording]]:
    """The steps of each conversation, in order."""
    steps = [
        (*name.rpartition("-step"), recorded) for name, recorded in recordings.items() if "-step" in name
    ]
    for _, group in groupby(
        sorted(steps, key=lambda step: (step[0], int(step[2]))), key=lambda step: step[0]
    ):
        found = [step[3] for step in group]
        if not any(_is_lookup(recorded) for recorded in found):
            yield found
