"""Sessions with a real model, end to end, over each dialect that its server speaks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import orjson
import pytest

import minutebook as mb
from minutebook.testing import ForkServer, journal_of
from tests.local_model.conftest import LONG_S, LocalModel

pytestmark = pytest.mark.anyio

DIALECTS = ["chat", "responses", "messages"]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "big": {"type": "boolean"}},
    "required": ["city", "big"],
    "additionalProperties": False,
}


@pytest.fixture(params=DIALECTS)
def dialect(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def config(
    model: LocalModel, dialect: str, provider: dict[str, Any] | None = None, **options: Any
) -> mb.SessionConfig:
    given = {"model": "smollm2", "max_output_tokens": 16, **options}
    return mb.SessionConfig(model.provider(dialect, **(provider or {})), **given)


async def told(session: mb.Session) -> tuple[str, mb.StreamEvent]:
    """The text of the live pieces of a request, and its end."""
    text, last = "", None
    with anyio.fail_after(LONG_S):
        async for event in session.stream():
            text += event.delta if isinstance(event, mb.ContentDelta) else ""
            last = event
    assert last is not None
    return text, last


async def test_a_conversation_is_streamed_counted_and_on_record(
    model: LocalModel, dialect: str, tmp_path: Path
) -> None:
    store = mb.sqlite(tmp_path / "journal.db")
    async with mb.create_session(config(model, dialect), store=store, session_id="s1") as session:
        for question in ("Say hello.", "Say it again."):
            await session.send(question)
            text, last = await told(session)
            assert isinstance(last, mb.Result)
            assert text
            assert last.content == text
            assert last.usage["input_tokens"] > 0
            assert 0 < last.usage["output_tokens"] <= 16
        assert len(session.messages) == 4
    events = await journal_of(store)
    assert [event.type for event in events].count("model_request_completed") == 2
    async with mb.resume_session("s1", config(model, dialect), store=store) as session:
        assert (await session.run("And once more.")).status == "completed"
        assert len(session.messages) == 6


async def test_a_request_that_is_aborted_frees_the_model(model: LocalModel, dialect: str) -> None:
    async with mb.create_session(config(model, dialect, max_output_tokens=800)) as session:
        await session.send("Tell me a very long story about a lighthouse.")
        async for event in session.stream():
            if isinstance(event, mb.ContentDelta):
                await session.abort()
                break
        with anyio.fail_after(LONG_S):
            while await anyio.to_thread.run_sync(model.is_busy):
                await anyio.lowlevel.checkpoint()
        assert (await journal_of(session))[-1].type == "request_interrupted"
        await session.change(max_output_tokens=8)
        assert (await session.run("Say hello.")).status == "completed"


async def test_what_does_not_fit_the_model_s_context_fails_and_the_session_goes_on(
    model: LocalModel, dialect: str
) -> None:
    too_long = config(model, dialect, system_prompt="Remember this. " * 600)
    async with mb.create_session(too_long) as session:
        failed = await session.run("Say hello.")
        assert (failed.status, failed.error_code) == ("failed", "context_length_exceeded")
        await session.change(system_prompt="Be brief.")
        assert (await session.run("Say hello.")).status == "completed"
        events = await journal_of(session)
    assert [event.type for event in events].count("model_request_failed") == 1  # it is not tried again


async def test_the_same_seed_says_the_same(model: LocalModel, dialect: str) -> None:
    said = set()
    for _ in range(2):
        fixed = config(model, dialect, {"extra": {"seed": 7}}, temperature=0.0, max_output_tokens=24)
        async with mb.create_session(fixed) as session:
            said.add((await session.run("Name three colours.")).content)
    assert len(said) == 1


async def test_an_answer_is_forced_into_a_schema(model: LocalModel) -> None:
    """Over chat completions only: this server reads the schema in no other dialect."""
    able = {"structured_output": True}
    forced = config(model, "chat", able, output_schema=SCHEMA, max_output_tokens=60, temperature=0.0)
    async with mb.create_session(forced) as session:
        result = await session.run("Which city is the capital of France?")
    assert result.status == "completed"
    assert orjson.loads(result.content).keys() == {"city", "big"}


async def test_a_process_that_is_killed_while_the_model_speaks_is_gone_on_with(
    model: LocalModel, dialect: str, tmp_path: Path
) -> None:
    path = tmp_path / "journal.db"
    kind = "anthropic" if dialect == "messages" else "openai-compatible"
    url = model.url if dialect == "messages" else f"{model.url}/v1"
    provider = {"type": kind, "base_url": url, "api_key": "none"}
    provider |= {} if dialect == "messages" else {"api": dialect}
    with ForkServer(Path(__file__).with_name("child.py"), silence_s=LONG_S) as processes:
        child = processes.start("ask", journal=str(path), **provider)
        child.wait_for("delta")
        child.kill()
        assert child.ended().returncode == -9
    again = config(model, dialect, on_lost_attempt=mb.OnLostAttempt.RETRY)
    async with mb.resume_session("s1", again, store=mb.sqlite(path)) as session:
        _, last = await told(session)
        assert isinstance(last, mb.Result)
    events = [event.type for event in await journal_of(path)]
    assert (events.count("model_request_started"), events.count("model_request_completed")) == (2, 1)
