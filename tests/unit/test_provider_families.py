"""Families of models, and what goes back only within one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from domain.model_ports import Block, Parameters
from projections import anthropic_wire, openai_chat_wire, openai_responses_wire
from projections.openai_chat_body import Server
from projections.openai_chat_wire import encode_item, request_body
from projections.transcript import CallItem, Exchange, UserItem
from projections.wire_families import OfFamily, for_model, model_family

FAMILIES = {
    "claude": ["anthropic/claude-sonnet-4.5", "claude-opus-4-8", "us.anthropic.claude-haiku-4", "Claude-3"],
    "gpt": ["gpt-5.6", "openai/gpt-oss-120b", "openai.gpt-5.6-luna", "gpt4"],
    "glm": ["glm-4.7", "zai-org/GLM-4.7-FP8"],
    "qwen": ["Qwen/Qwen3-32B", "qwen3:8b"],
    "gemini": ["google/gemini-3-flash", "models/gemini-3-pro"],
    "o": ["o3", "o4-mini"],
    "": [""],
    "7": ["7"],
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_a_name_without_vendor_version_and_size(family: str) -> None:
    assert {model_family(model) for model in FAMILIES[family]} == {family}


def test_a_path_that_ends_is_still_a_name() -> None:
    assert model_family("claude/") == "claude"


CALL = CallItem("t", "call_1", "call_1", "look", "{}", "completed", "seen")
SIGNED = Block(
    "opaque", '[{"type":"reasoning.text","text":"hm","signature":"s=="}]', "openai-chat/reasoning_details"
)
PLAINLY = Block("opaque", "hm", "openai-chat/reasoning_content")


def an_exchange(*blocks: Block, model: str = "anthropic/claude-sonnet-4.5", **changes: Any) -> Exchange:
    exchange = Exchange(2, "r1.t1", "r1.t1.a1", "p", "openai-chat", model, blocks, (CALL,), "tool_calls")
    return replace(exchange, **changes)


def assistant(exchange: Exchange, model: str, server: Server | None = None) -> dict[str, Any]:
    given = server or Server()
    items = [encode_item(UserItem(1, "i", "hello"), "p", given), encode_item(exchange, "p", given)]
    messages = orjson.loads(request_body(items, [], Parameters(model), given))["messages"]
    found: dict[str, Any] = messages[1]
    return found


def test_p50_what_one_family_signed_goes_back_to_that_family() -> None:
    sent = assistant(an_exchange(SIGNED), "anthropic/claude-opus-5")
    assert sent["reasoning_details"] == orjson.loads(SIGNED.text)


@pytest.mark.parametrize("block", [SIGNED, PLAINLY])
def test_p50_what_one_family_signed_does_not_go_to_another(block: Block) -> None:
    sent = assistant(an_exchange(block), "google/gemini-3-flash")
    assert sent.keys() == {"role", "content", "tool_calls"}
    assert [call["id"] for call in sent["tool_calls"]] == ["call_1"], "the call itself stays"


def test_p50_it_goes_back_again_once_the_family_does() -> None:
    item = encode_item(an_exchange(SIGNED), "p")
    first, other, again = (b"".join(for_model([item], model)) for model in ("claude-4", "gpt-5", "claude-5"))
    assert first == again != other


def test_an_item_that_holds_nothing_of_a_family_is_plain_bytes() -> None:
    assert type(encode_item(an_exchange(), "p")) is bytes
    assert type(encode_item(an_exchange(SIGNED, provider="q"), "p")) is bytes
    assert isinstance(encode_item(an_exchange(SIGNED), "p"), OfFamily)


THINKER = Server(wants_reasoning=True)


def test_where_reasoning_is_demanded_another_familys_is_replaced_by_none() -> None:
    assert (
        assistant(an_exchange(PLAINLY, model="deepseek-v4"), "deepseek-v5", THINKER)["reasoning_content"]
        == "hm"
    )
    assert assistant(an_exchange(PLAINLY, model="qwen3"), "deepseek-v5", THINKER)["reasoning_content"] == ""


def test_where_reasoning_is_demanded_it_goes_back_with_answers_too() -> None:
    answer = an_exchange(PLAINLY, Block("text", "done"), calls=(), stop="end")
    assert assistant(answer, "claude-4", THINKER)["reasoning_content"] == "hm"
    assert assistant(answer, "claude-4").keys() == {"role", "content"}


def test_items_that_say_nothing_are_left_out() -> None:
    assert for_model([b"", OfFamily.of(b"x", "claude", b""), b"y"], "gpt-5") == [b"y"]


# --- material of foreign journals -----------------------------------------------------------

ENCODERS = {
    "openai-chat": openai_chat_wire.encode_item,
    "openai-responses": openai_responses_wire.encode_item,
    "anthropic-messages": anthropic_wire.encode_item,
}
PLACES = ("reasoning_details", "extra_content", "tool_calls/0/extra_content", "item", "thinking")
NO_MATERIAL = ("not json", "", "[1]", "null", '"x"', "9" * 30, '{"a":NaN}', '"\ud800"')


@pytest.mark.parametrize("api", ENCODERS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("text", NO_MATERIAL)
def test_material_that_is_none_never_keeps_a_request_from_being_made(api: str, place: str, text: str) -> None:
    said = Block("text", "hello")
    exchange = an_exchange(said, Block("opaque", text, f"{api}/{place}"), api=api)
    assert b"hello" in ENCODERS[api](exchange, "p")
