"""Settings, models and providers as real servers get them: the chat adapter over a socket."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

import minutebook as mb
from domain.errors import CapabilityUnsupported
from minutebook.testing.chat_replies import chat_reply
from minutebook.testing.fake_server import FakeServer, serve

pytestmark = pytest.mark.anyio


class Count(BaseModel):
    n: int
    why: str = "because"


def at(server: FakeServer, name: str, type: str = "openai") -> mb.ProviderConfig:
    return mb.ProviderConfig(type=type, id=name, base_url=server.url, api_key="sk-test-key-of-nobody")


def bodies(server: FakeServer) -> list[dict[str, Any]]:
    return [request.parsed for request in server.requests]


async def test_each_server_gets_what_it_is_asked_for_and_the_answer_is_a_value() -> None:
    here_says, there_says = chat_reply('{"n": 1, "why": "x"}'), chat_reply("no number")
    async with serve([here_says]) as here, serve([there_says]) as there:
        config = mb.SessionConfig(
            provider=at(here, "here"),
            providers={"there": at(there, "there")},
            model="quick",
            models=[mb.ModelInfo("gpt-small", "Small", "here"), mb.ModelInfo("gpt-large", "Large", "there")],
            aliases={"quick": "gpt-small", "best": "gpt-large"},
            thinking=mb.Thinking(effort="low"),
            output_schema=Count,
            budget=mb.Budget(max_tokens=1000, max_cost=1, rates={"input": 1, "output": 2}),
        )
        async with mb.create_session(config) as session:
            first = await session.run("how many?")
            await session.model.switch("best")
            await session.set_thinking(mb.Thinking(effort="high"))
            second = await session.run("and now?")
            assert session.usage.cost is not None
            assert session.usage.cost > 0
            assert session.usage.session().tokens["total_tokens"] < 1000
    assert (first.parsed, first.output_error) == (Count(n=1, why="x"), None)
    assert second.parsed is None
    assert second.output_error
    (asked_here,), (asked_there,) = bodies(here), bodies(there)
    assert (asked_here["model"], asked_there["model"]) == ("gpt-small", "gpt-large")
    assert (asked_here["reasoning_effort"], asked_there["reasoning_effort"]) == ("low", "high")
    for asked in (asked_here, asked_there):
        form = asked["response_format"]["json_schema"]
        assert form["strict"] is True
        assert form["schema"]["required"] == ["n", "why"]
    assert [m["content"] for m in asked_there["messages"]] == [
        "how many?",
        '{"n": 1, "why": "x"}',
        "and now?",
    ]


async def test_a_server_without_structured_output_is_told_in_words() -> None:
    async with serve([chat_reply('```json\n{"n": 1}\n```')]) as server:
        plain = at(server, "plain", "deepseek")
        options: dict[str, Any] = {"provider": plain, "model": "m", "output_schema": Count}
        with pytest.raises(CapabilityUnsupported, match="output_schema"):
            async with mb.create_session(mb.SessionConfig(**options)):
                pytest.fail("it was opened")
        assert server.requests == []
        result = await mb.prompt("how many?", mb.SessionConfig(**options, output_fallback="instruct"))
    assert result.parsed == Count(n=1)
    (asked,) = bodies(server)
    assert "response_format" not in asked
    assert '"required":["n","why"]' in asked["messages"][0]["content"]
