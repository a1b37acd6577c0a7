"""How users got hurt by thinking, paused turns and cut calls, with the real adapter in a real session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from domain.errors import InvalidOptions
from domain.model_ports import DeclaredCall
from domain.values import PermissionMode, Stop
from minutebook.provider_config import ProviderConfig
from minutebook.testing.anthropic_replies import (
    error_event,
    events_reply,
    made_blocks,
    message_events,
    message_reply,
)
from minutebook.testing.fake_server import FakeServer, Reply
from minutebook.testing.scripted import ScriptedProvider, call, reply
from minutebook.testing.wire_rules import anthropic as rules
from tests.session.harness import Hands, Place, data
from tests.wire.anthropic_place import connected, provider_at

pytestmark = pytest.mark.anyio

BOTH = pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
YOLO: dict[str, Any] = {"permission_mode": PermissionMode.YOLO}
LOOK = DeclaredCall("toolu_1", "look", '{"what":"x"}')
THOUGHT = {"type": "thinking", "thinking": "é 😀", "signature": "abc=="}
TEXT = {"type": "text", "text": "done"}
USE = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"n": 1.0}]}


def call_block(call_id: str = "toolu_1", **changes: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "look", "input": {"what": "x"}} | changes


def sent(server: FakeServer) -> list[dict[str, Any]]:
    """The messages of the last request; every request is held against the strict rules."""
    for request in server.requests:
        rules.check(request.parsed)
    messages: list[dict[str, Any]] = server.requests[-1].parsed["messages"]
    return messages


def said(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The model's blocks."""
    return [block for m in messages if m["role"] == "assistant" for block in m["content"]]


async def talk(place: Place, hands: Hands, *replies: Reply, contents: Sequence[str] = ("hello",)) -> Any:
    """A session that answers each content; returns (results, messages of the last request)."""
    async with connected(replies) as (provider, server):
        async with place.create(provider, tools=hands.tools(), **YOLO) as session:
            results = [await session.run(content) for content in contents]
        assert len(server.requests) == len(replies), "one send for each reply"
        messages = sent(server)
    await place.check()
    return results, messages


# --- P14 -------------------------------------------------------------------------------------

TOGETHER = [USE, call_block(), FOUND]


async def test_p14_a_result_that_arrives_later_stays_with_its_use(place: Place, hands: Hands) -> None:
    (result,), messages = await talk(place, hands, message_reply(blocks=TOGETHER), message_reply("done"))
    assert (result.content, hands.done) == ("done", ["x"])
    assert said(messages) == TOGETHER


async def test_p14_nothing_runs_before_the_message_has_ended(place: Place, hands: Hands) -> None:
    before_the_end = message_events(TOGETHER)[:-1]
    broken = events_reply([*before_the_end, error_event("invalid_request_error")])
    (result,), _ = await talk(place, hands, broken)
    assert (result.status, hands.begun) == ("failed", [])


# --- P48, P49, P52 ----------------------------------------------------------------------------


@BOTH
async def test_p48_signed_thinking_goes_back_as_it_was_after_a_reload(place: Place, hands: Hands) -> None:
    redacted = {"type": "redacted_thinking", "data": "é=="}
    blocks = [THOUGHT, redacted, call_block(caller={"type": "direct"})]
    async with connected([message_reply(blocks=blocks), message_reply("done")] * 2) as (provider, server):
        async with place.create(provider, tools=hands.tools(), **YOLO) as session:
            await session.run("hello")
        assert said(sent(server)) == blocks
        async with place.resume(provider_at(server), tools=hands.tools()) as session:
            await session.run("again")
        messages = sent(server)
    assert said(messages)[:4] == [*blocks, TEXT]
    # The id was used before: the call has another one here, the rest is as it was.
    assert [block | {"id": 0} for block in said(messages)[4:]] == [block | {"id": 0} for block in blocks]


@pytest.mark.parametrize("signature", [None, ""])
async def test_p49_unsigned_thinking_is_not_sent(place: Place, hands: Hands, signature: str | None) -> None:
    unsigned = {"type": "thinking", "thinking": "hm", "signature": signature}
    _, messages = await talk(
        place, hands, message_reply(blocks=[unsigned, call_block()]), message_reply("done")
    )
    assert said(messages) == [call_block()]
    (first, _) = data(await place.events(), "model_request_completed")
    assert "hm" in first.response.blocks[0].text, "it is kept all the same"


async def test_p52_old_signatures_are_there_when_everything_is_sent_again(place: Place, hands: Hands) -> None:
    thoughts = [THOUGHT | {"thinking": f"thought {n}", "signature": f"sig{n}=="} for n in range(5)]
    replies = [message_reply(blocks=[thought, TEXT]) for thought in thoughts]
    async with connected([*replies, message_reply("last")]) as (provider, server):
        async with place.create(provider) as session:
            for n in range(3):
                await session.run(f"question {n}")
        for n in range(3, 6):
            async with place.resume(provider_at(server)) as session:
                await session.run(f"question {n}")
        messages = sent(server)
    assert said(messages) == [block for thought in thoughts for block in (thought, TEXT)]


# --- P54, P55 --------------------------------------------------------------------------------

EMPTY_TEXT = {"type": "text", "text": ""}


@pytest.mark.parametrize("blocks", [[], [THOUGHT], [EMPTY_TEXT], [{"type": "text", "text": " \n"}]])
async def test_p54_an_empty_answer_does_not_spoil_the_session(
    place: Place, hands: Hands, blocks: list[dict[str, Any]]
) -> None:
    replies = [message_reply(blocks=blocks), message_reply("better")]
    (first, second), messages = await talk(place, hands, *replies, contents=["hello", "again"])
    assert (first.status, second.content) == ("completed", "better")
    assert [m["role"] for m in messages] == ["user", "user"]
    kept = data(await place.events(), "model_request_completed")[0].response
    assert not [block for block in kept.blocks if not block.text]


async def test_p54_an_empty_text_before_a_call_is_left_out(place: Place, hands: Hands) -> None:
    blocks = [THOUGHT, EMPTY_TEXT, call_block()]
    _, messages = await talk(place, hands, message_reply(blocks=blocks), message_reply("done"))
    assert said(messages) == [THOUGHT, call_block()]


FOREIGN = ["call_" + "x" * 94 + "a", "call_" + "x" * 94 + "b", "call_1|fc_2", "functions.x:3", ""]


async def test_p55_foreign_ids_are_mapped_for_a_call_and_its_result(place: Place, hands: Hands) -> None:
    calls = [call("look", {"what": str(n)}, call_id) for n, call_id in enumerate(FOREIGN)]
    async with place.create([reply("", *calls), reply("done")], tools=hands.tools()) as session:
        await session.run("hello")
    async with connected([message_reply("mine")]) as (provider, server):
        async with place.resume(provider, tools=hands.tools()) as session:
            await session.run("and you?")
        messages = sent(server)
    ids = [block["id"] for block in said(messages) if block["type"] == "tool_use"]
    assert len(set(ids)) == len(FOREIGN)
    results = [b for m in messages for b in m["content"] if b["type"] == "tool_result"]
    assert [result["tool_use_id"] for result in results] == ids
    assert [result["content"] for result in results] == [f"did {n}" for n in range(len(FOREIGN))]


# --- P58, P61 --------------------------------------------------------------------------------

CUT = '{"path":"a","content":"x'


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("arguments", [CUT, "", '{"what":"x"}'])
async def test_p58_a_call_in_a_cut_message_is_kept_and_not_run(
    place: Place, hands: Hands, closed: bool, arguments: str
) -> None:
    events = message_events([call_block(input=arguments)], stop="max_tokens")
    cut = events_reply([e for e in events if closed or e["type"] != "content_block_stop"])
    (result,), messages = await talk(place, hands, cut, message_reply("I see"))
    assert (result.content, hands.begun) == ("I see", [])
    kept = data(await place.events(), "model_request_completed")[0].response
    assert [c.arguments for c in kept.calls] == [arguments]
    expected = {CUT: {"_malformed": CUT}, "": {}}.get(arguments, {"what": "x"})
    assert said(messages)[0]["input"] == expected
    assert messages[-1]["content"][0]["is_error"] is True


async def test_p58_a_finished_call_that_does_not_parse_is_told_and_not_run(
    place: Place, hands: Hands
) -> None:
    broken = message_reply(blocks=[call_block(input=CUT)])
    (result,), messages = await talk(place, hands, broken, message_reply("I see"))
    assert (result.content, hands.begun) == ("I see", [])
    assert messages[-1]["content"][0]["is_error"] is True


@BOTH
async def test_p61_a_paused_turn_goes_on_from_what_came(place: Place, hands: Hands) -> None:
    partial: list[dict[str, Any]] = [THOUGHT, {"type": "text", "text": "searching"}, USE]
    replies = [message_reply(blocks=partial, stop="pause_turn"), message_reply(blocks=[FOUND, TEXT])]
    (result,), messages = await talk(place, hands, *replies)
    assert (result.status, result.content) == ("completed", "done")
    assert [m["role"] for m in messages] == ["user", "assistant"]
    assert said(messages) == partial


async def test_p61_what_came_of_a_paused_turn_stays_together(place: Place, hands: Hands) -> None:
    replies = [
        message_reply(blocks=[USE], stop="pause_turn"),
        message_reply(blocks=[FOUND, TEXT]),
        message_reply("bye"),
    ]
    (_, result), messages = await talk(place, hands, *replies, contents=["hello", "and now?"])
    assert result.content == "bye"
    assert said(messages) == [USE, FOUND, TEXT]


async def test_p61_a_refusal_ends_the_request(place: Place, hands: Hands) -> None:
    events = message_events([], stop="refusal")
    events[-2]["delta"]["stop_details"] = {"type": "refusal", "category": "cyber"}
    (result, after), messages = await talk(
        place, hands, events_reply(events), message_reply("ok"), contents=["hello", "something else"]
    )
    assert (result.status, result.content, after.content) == ("completed", "", "ok")
    assert [m["role"] for m in messages] == ["user", "user"]
    kept = data(await place.events(), "model_request_completed")[0].response
    assert kept.stop == Stop.REFUSAL
    assert "cyber" in kept.blocks[0].text


# --- other providers -------------------------------------------------------------------------


async def test_p50_thinking_is_not_sent_to_another_provider_and_is_there_again_later(
    place: Place, hands: Hands
) -> None:
    blocks = [*made_blocks("working", [LOOK], thinking="secret thought")]
    async with connected([message_reply(blocks=blocks), message_reply("done"), message_reply("back")]) as (
        provider,
        server,
    ):
        async with place.create(provider, tools=hands.tools(), **YOLO) as session:
            await session.run("hello")
        other = ScriptedProvider([reply("other here")])
        async with place.resume(other, tools=hands.tools()) as session:
            await session.run("who are you?")
        async with place.resume(provider_at(server), tools=hands.tools()) as session:
            await session.run("and now?")
        messages = sent(server)
    assert b"secret thought" not in other.sent[0].body
    assert said(messages)[0]["thinking"] == "secret thought"
    assert [block.get("text") for block in said(messages)] == [None, "working", None, "done", "other here"]


@pytest.mark.parametrize(
    "extra", [{}, {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, {"mcp_servers": [{}]}]
)
async def test_an_attempt_says_whether_the_provider_may_have_run_tools(
    place: Place, hands: Hands, extra: dict[str, Any]
) -> None:
    """Only then a lost attempt is nobody's to repeat: it may have acted."""
    async with connected([message_reply("done")], extra=extra) as (provider, server):
        async with place.create(provider, tools=hands.tools()) as session:
            await session.run("hello")
        tools = server.requests[0].parsed["tools"]
    assert [tool["name"] for tool in tools] == ["look", "put", "pay"] + ["web_search"] * ("tools" in extra)
    (started,) = data(await place.events(), "model_request_started")
    assert started.provider_run_tools == bool(extra)


def test_the_providers_own_tools_are_named_in_its_configuration() -> None:
    tools = [{"type": "web_search_20250305", "name": "web_search"}]
    assert ProviderConfig("anthropic", api_key="k", extra={"tools": tools}).extra == {"tools": tools}
    for kind, name in (("openai", "tools"), ("anthropic", "messages"), ("anthropic", "system")):
        with pytest.raises(InvalidOptions, match="extra"):
            ProviderConfig(kind, api_key="k", extra={name: tools})
