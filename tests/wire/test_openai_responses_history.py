"""What a session sends next, held against what was recorded and against the strict checker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import minutebook as mb
from domain.model_ports import DeclaredCall
from minutebook.testing.chat_replies import recorded_reply
from minutebook.testing.fake_server import Reply
from minutebook.testing.responses_replies import (
    document_reply,
    output_items,
    response_document,
    response_reply,
)
from minutebook.testing.wire_rules.openai_responses import check
from tests.wire.responses_dialect import connected, recordings

pytestmark = pytest.mark.anyio


@mb.tool(kind=mb.ToolKind.READ_ONLY, side_effect=mb.SideEffect.PURE)
def first_tool() -> str:
    """Take the first step."""
    return "first result"


@mb.tool(kind=mb.ToolKind.READ_ONLY, side_effect=mb.SideEffect.PURE)
def second_tool() -> str:
    """Take the second step."""
    return "second result"


@mb.tool(kind=mb.ToolKind.READ_ONLY, side_effect=mb.SideEffect.PURE)
def get_temperature(city: str) -> float:
    """Get the current temperature in a city."""
    assert city == "Tokyo"
    return 21.0


def capital(name: str) -> Any:
    @mb.tool(kind=mb.ToolKind.READ_ONLY, side_effect=mb.SideEffect.PURE)
    def get_capital(country: str) -> str:
        """Get a country's capital."""
        assert country
        return name

    return get_capital


#: Conversations that were recorded from their beginning: the steps, and the tools that were there.
CONVERSATIONS: dict[str, tuple[list[str], list[Any]]] = {
    "bedrock": (
        [f"bedrock-mantle-responses-reused-call-ids-step{n}" for n in (1, 2, 3)],
        [first_tool, second_tool],
    ),
    "deepseek": ([f"deepseek-responses-stream-tool-step{n}" for n in (1, 2)], [get_temperature]),
    "phase": (
        [f"openai-responses-stream-reasoning-tool-phase-step{n}" for n in (1, 2)],
        [capital("Potato City")],
    ),
    "plain": ([f"openai-responses-stream-tool-step{n}" for n in (1, 2)], [capital("Paris")]),
}


@pytest.fixture(scope="module")
def recorded(wire_dir: Path) -> dict[str, Any]:
    return recordings(wire_dir)


def plainly(items: list[dict[str, Any]]) -> list[Any]:
    """Input items without what says nothing: ids of items, statuses, ways to write a text;
    call ids by their order. Recorded requests were made with plain quotation marks."""
    order: dict[str, str] = {}
    found = []
    for item in items:
        kept = {k: v for k, v in item.items() if k not in ("id", "status") and v is not None}
        kept.setdefault("type", "message")
        if "call_id" in kept:
            kept["call_id"] = order.setdefault(kept["call_id"], f"call {len(order)}")
        if isinstance(kept.get("content"), list) and kept["type"] == "message":
            kept["content"] = "".join(part["text"] for part in kept["content"])
        found.append(kept)
    text = json.dumps(found, ensure_ascii=False, sort_keys=True)
    for typographic, plain in (("\u2018", "'"), ("\u2019", "'"), ("\u201c", '\\"'), ("\u201d", '\\"')):
        text = text.replace(typographic, plain)
    read: list[Any] = json.loads(text)
    return read


async def answered(provider: Any, text: str, tools: list[Any], **options: Any) -> mb.Session:
    """A session that has answered one input."""
    config = mb.SessionConfig(provider=provider, model="gpt-5.5", tools=tools, **options)
    async with mb.create_session(config) as session:
        await session.run(text)
    return session


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_the_history_is_rendered_as_it_was_recorded(name: str, recorded: dict[str, Any]) -> None:
    steps, tools = CONVERSATIONS[name]
    bodies = [recorded[step]["request"]["body"] for step in steps]
    replies = [recorded_reply(recorded[step]) for step in steps]
    async with connected(replies) as (provider, server):
        await answered(provider, bodies[0]["input"][0]["content"], tools)
        assert len(server.requests) == len(steps)
        for request, body in zip(server.requests, bodies, strict=True):
            check(request.parsed)
            assert plainly(request.parsed["input"]) == plainly(body["input"])


async def next_request(reply: Reply, tools: list[Any] | None = None) -> dict[str, Any]:
    """The request that follows a first one which got `reply`."""
    async with connected([reply, response_reply("done")]) as (provider, server):
        config = mb.SessionConfig(provider=provider, model="gpt-5.5", tools=tools or [])
        async with mb.create_session(config) as session:
            await session.run("go")
            if len(server.requests) < 2:
                await session.run("go on")
        sent: dict[str, Any] = server.requests[1].parsed
    check(sent)
    return sent


def kinds(body: dict[str, Any]) -> list[str]:
    return [item.get("type") or item["role"] for item in body["input"]]


async def test_every_recorded_answer_can_be_gone_on_from(recorded: dict[str, Any]) -> None:
    rendered = {}
    for name, found in recorded.items():
        if found["response"].get("sse") and "failed" not in name:
            rendered[name] = kinds(await next_request(recorded_reply(found)))
    assert len(rendered) >= 17
    # An approval that nobody can give is not sent back, nor the reasoning that led to it.
    assert rendered["openai-responses-stream-mcp-approval"] == ["user", "mcp_list_tools", "user"]
    # Reasoning that only the server could read is not sent back either.
    assert rendered["openai-responses-stream-id-rotation"] == ["user", "message", "user"]
    assert rendered["openai-responses-stream-custom-tool"] == [
        "user",
        "custom_tool_call",
        "custom_tool_call_output",
    ]


async def test_items_stay_in_the_order_in_which_they_came() -> None:
    thought, said, first = output_items("between", [DeclaredCall("a", "first_tool", "")], reasoning="hm")
    second = {**first, "id": "fc_2", "call_id": "b", "name": "second_tool"}
    last = {**said, "id": "m_2", "content": [{"type": "output_text", "text": "last"}]}
    output = [thought, first, said, {**thought, "id": "rs_2"}, second, last]
    body = await next_request(document_reply(response_document(output)), [first_tool, second_tool])
    assert [*zip(kinds(body), map(what, body["input"]), strict=True)] == [
        ("user", "go"),
        ("reasoning", ""),
        ("function_call", "{}"),
        ("function_call_output", "first result"),
        ("message", "between"),
        ("reasoning", ""),
        ("function_call", "{}"),
        ("function_call_output", "second result"),
        ("message", "last"),
    ]


def what(item: dict[str, Any]) -> str:
    content = item.get("content") or item.get("arguments") or item.get("output") or ""
    return content if isinstance(content, str) else str(content[0]["text"])


async def test_an_incomplete_answer_is_history_like_any_other() -> None:
    cut = response_reply("half a", [DeclaredCall("c", "first_tool", '{"a":')], status="incomplete")
    body = await next_request(cut, [first_tool])
    assert kinds(body) == ["user", "message", "function_call", "function_call_output"]
    assert json.loads(body["input"][2]["arguments"]) == {"_malformed": '{"a":'}


@pytest.mark.parametrize("output", [[{"type": "message", "content": []}], output_items(reasoning="hm")])
async def test_an_answer_of_nothing_leaves_nothing(output: list[dict[str, Any]]) -> None:
    assert kinds(await next_request(document_reply(response_document(output)))) == ["user", "user"]
