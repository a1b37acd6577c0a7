"""Whatever a model says: on record as it came, shown to the next request in a form that servers take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from domain.model_ports import Block, Response, Text, Thinking
from domain.values import Stop
from minutebook.session import Session
from minutebook.testing.scripted import Attempt, ScriptedProvider, Sent, fail, reply
from tests.corpus.sessions import in_both
from tests.corpus.texts import TEXTS, all_in_one
from tests.session.harness import Place

pytestmark = pytest.mark.anyio

#: Opaque material that claims to be the dialect's own, and is then sent back.
FORMATS = ("openai-chat/reasoning_content", "openai-chat/reasoning_details", "openai-chat/extra_content", "")
COUNTS = {"zero": 0, "negative": -5, "2^53": 2**53, "2^63": 2**63, "2^64": 2**64, "huge": 10**30}


def said(text: str) -> Attempt:
    """An answer with a text wherever a model has one to choose."""
    blocks = [Block("opaque", text, form) for form in (*FORMATS, text)]
    response = Response(
        (*blocks, Block("text", text), Block("text", "done", text)),
        (),
        Stop.END,
        {"input_tokens": 1},
        {"model": text, "request_id": text, text: text},
    )
    return [Thinking(text), Text(text), response]


async def test_any_text_of_a_model_is_on_record_as_it_came(tmp_path: Path) -> None:
    async def use(session: Session) -> list[str]:
        return [
            (await session.run("go", input_id=f"i-{at}")).content.removesuffix("done")
            for at in range(len(TEXTS))
        ]

    came = await in_both(tmp_path, use, [said(text) for text in TEXTS.values()])
    assert came.outcome == list(TEXTS.values())
    for text, completed in zip(TEXTS.values(), came.data("model_request_completed"), strict=False):
        kept = completed.response
        assert [block.text for block in kept.blocks] == [text] * 6 + ["done"]
        assert [block.format for block in kept.blocks[:5]] == [*FORMATS, text]
        assert kept.provider_ids == {"model": text, "request_id": text, text: text}


async def test_what_is_sent_back_is_a_body_that_a_server_takes(tmp_path: Path) -> None:
    answers = [*map(said, TEXTS.values()), reply("on")]
    provider = ScriptedProvider(lambda sent: answers[min(sent.number, len(answers) - 1)])
    async with Place().create(provider) as session:
        for _ in answers:
            await session.run("go")
    last = provider.sent[-1]
    last.body.decode()
    assert len(last.messages) == 2 * len(answers) - 1
    assert orjson.loads(last.body)["messages"] == last.messages


@pytest.mark.parametrize("count", COUNTS.values(), ids=COUNTS.keys())
async def test_any_count_of_tokens_is_added_up_or_the_attempt_fails(tmp_path: Path, count: int) -> None:
    usage = {"input_tokens": count, "output_tokens": count, "\x1b[2J": count}

    async def use(session: Session) -> list[Any]:
        return [(await session.run("go", input_id=f"i-{at}")).status for at in range(2)]

    came = await in_both(tmp_path, use, [reply("a", usage=usage), reply("b", usage=usage)])
    assert came.outcome == ["completed", "completed"]


async def test_any_failure_of_a_provider_is_on_record(tmp_path: Path) -> None:
    async def use(session: Session) -> list[Any]:
        return [
            (await session.run("go", input_id=f"i-{at}")).error_code is not None for at in range(len(TEXTS))
        ]

    came = await in_both(tmp_path, use, [fail(text, retryable=False) for text in TEXTS.values()])
    assert all(came.outcome)


@pytest.mark.parametrize("pieces", [1, 100_000])
async def test_a_long_answer_is_whole_however_it_comes(pieces: int) -> None:
    text = ("all of it " + all_in_one()) * 50
    size = -(-len(text) // pieces)
    steps = [Text(text[at : at + size]) for at in range(0, len(text), size)]
    whole = Response((Block("text", text),), (), Stop.END, {}, {})

    def answer(_: Sent) -> Attempt:
        return [*steps, whole]

    async with Place().create(ScriptedProvider(answer)) as session:
        assert (await session.run("go")).content == text


async def test_hundreds_of_thousands_of_blocks_end_the_attempt_and_not_the_session() -> None:
    """More than an event holds: the attempt fails and says so, and the next request runs."""
    blocks = tuple(Block("opaque", "x", "y") for _ in range(200_000))
    many = Response(blocks, (), Stop.END, {}, {})
    async with Place().create([[many], reply("on")]) as session:
        result = await session.run("go")
        assert (result.status, result.error_code) == ("failed", "response_too_large")
        assert (await session.run("go")).content == "on"
