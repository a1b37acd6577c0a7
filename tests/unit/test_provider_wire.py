"""The OpenAI chat dialect's encoder: what goes out, and what must never go out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.errors import InvalidOptions, ValueRefused
from domain.model_ports import Block, Parameters, ToolSpec
from projections.openai_chat_body import Server
from projections.openai_chat_wire import encode_item, request_body
from projections.transcript import CallItem, Exchange, Item, UserItem
from projections.wire_calls import EMPTY_INPUT, EMPTY_OUTPUT, wire_arguments, wire_call_id

HERE = "openai-compatible"


def a_call(**changes: Any) -> CallItem:
    call = CallItem("t", "call_1", "call_1", "Write", '{"path":"a"}', "completed", "written")
    return replace(call, **changes)


def an_exchange(*calls: CallItem, text: str = "", blocks: tuple[Block, ...] = (), **changes: Any) -> Exchange:
    shown = (Block("text", text),) if text else ()
    exchange = Exchange(2, "r1.t1", "r1.t1.a1", HERE, "openai-chat", "m", (*blocks, *shown), calls, "end")
    return replace(exchange, **changes)


def messages(*items: Any, provider: str = HERE) -> list[dict[str, Any]]:
    encoded = b",".join(data for item in items if (data := encode_item(item, provider)))
    parsed: list[dict[str, Any]] = orjson.loads(b"[" + encoded + b"]")
    return parsed


def opaque(field: str, text: str) -> Block:
    return Block("opaque", text, f"openai-chat/{field}")


# --- items --------------------------------------------------------------------------


def test_an_input_is_a_user_message() -> None:
    assert messages(UserItem(1, "i", "hello")) == [{"role": "user", "content": "hello"}]


def test_parts_of_an_input_go_out_as_they_are() -> None:
    parts: list[dict[str, Any]] = [
        {"type": "text", "text": "see"},
        {"type": "image_url", "image_url": {"url": "data:,x"}},
    ]
    assert messages(UserItem(1, "i", parts)) == [{"role": "user", "content": parts}]


@pytest.mark.parametrize("content", ["", []])
def test_an_empty_input_gets_a_placeholder(content: Any) -> None:
    assert messages(UserItem(1, "i", content)) == [{"role": "user", "content": EMPTY_INPUT}]


def test_an_exchange_is_a_call_message_and_at_once_all_of_its_results() -> None:
    first, second = a_call(wire_id="c1", output="one"), a_call(wire_id="c2", output="two", name="Read")
    assistant, *results = messages(an_exchange(first, second, text="working"))
    assert assistant["content"] == "working"
    assert [(call["id"], call["function"]["name"]) for call in assistant["tool_calls"]] == [
        ("c1", "Write"),
        ("c2", "Read"),
    ]
    assert results == [
        {"role": "tool", "tool_call_id": "c1", "content": "one"},
        {"role": "tool", "tool_call_id": "c2", "content": "two"},
    ]


def test_text_of_several_blocks_is_one_content() -> None:
    exchange = an_exchange(text="b", blocks=(Block("text", "a"), opaque("reasoning", "hm")))
    assert messages(exchange) == [{"role": "assistant", "content": "ab"}]


@pytest.mark.parametrize("text", ["", " ", "\n\t"])
@pytest.mark.parametrize("blocks", [(), (opaque("reasoning_content", "only thoughts"),)])
def test_p54_an_exchange_without_text_and_calls_is_no_message(text: str, blocks: tuple[Block, ...]) -> None:
    assert encode_item(an_exchange(text=text, blocks=blocks), HERE) == b""


@pytest.mark.parametrize("output", ["", "  \n"])
def test_p54_an_empty_result_gets_a_placeholder(output: str) -> None:
    assistant, result = messages(an_exchange(a_call(output=output)))
    assert assistant["content"] is None
    assert result["content"] == EMPTY_OUTPUT


def test_bytes_of_an_item_depend_on_nothing_else() -> None:
    items: list[Item] = [UserItem(1, "i", "one"), an_exchange(a_call()), UserItem(3, "j", "two")]
    alone = [encode_item(item, HERE) for item in items]
    assert [encode_item(item, HERE) for item in reversed(items)] == alone[::-1]


# --- what is only for the provider it came from ----------------------------------------


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (opaque("reasoning_content", "because"), {"reasoning_content": "because"}),
        (
            opaque("reasoning_details", '[{"signature":"é=="}]'),
            {"reasoning_details": [{"signature": "é=="}]},
        ),
        (
            opaque("extra_content", '{"google":{"thought_signature":"x"}}'),
            {"extra_content": {"google": {"thought_signature": "x"}}},
        ),
        (opaque("reasoning", "shown only"), {}),
        (Block("opaque", "x", "anthropic/thinking"), {}),
    ],
)
def test_p48_provider_material_goes_back_within_a_tool_loop(block: Block, expected: dict[str, Any]) -> None:
    assistant = messages(an_exchange(a_call(), blocks=(block,)))[0]
    assert {key: assistant[key] for key in assistant.keys() - {"role", "content", "tool_calls"}} == expected


def test_signature_of_one_call_goes_back_on_that_call() -> None:
    block = opaque("tool_calls/1/extra_content", '{"google":{"thought_signature":"x"}}')
    assistant = messages(an_exchange(a_call(wire_id="a"), a_call(wire_id="b"), blocks=(block,)))[0]
    extras = [call.get("extra_content") for call in assistant["tool_calls"]]
    assert extras == [None, {"google": {"thought_signature": "x"}}]


def test_provider_material_stays_out_without_calls() -> None:
    exchange = an_exchange(text="done", blocks=(opaque("reasoning_content", "because"),))
    assert messages(exchange) == [{"role": "assistant", "content": "done"}]


@pytest.mark.parametrize("changes", [{"provider": "openai"}, {"api": "anthropic"}])
def test_p50_material_of_another_provider_stays_out(changes: dict[str, str]) -> None:
    block = opaque("reasoning_content", "because")
    assert "reasoning_content" not in messages(an_exchange(a_call(), blocks=(block,), **changes))[0]


# --- ids, names, arguments ----------------------------------------------------------------

FOREIGN_IDS = ["call_" + "x" * 94, "call_1|fc_2", "functions.x:3", "r1.t1.a1.c0", "", "é", "\ud800", "x" * 41]


@pytest.mark.parametrize("call_id", FOREIGN_IDS)
def test_p55_a_foreign_id_is_replaced_alike_on_both_sides(call_id: str) -> None:
    assistant, result = messages(an_exchange(a_call(wire_id=call_id)))
    wire_id = assistant["tool_calls"][0]["id"]
    assert wire_id == result["tool_call_id"]
    assert wire_id != call_id
    assert len(wire_id) <= 40
    assert wire_id.replace("_", "").isalnum()


@pytest.mark.parametrize("call_id", ["call_1", "call_" + "x" * 35, "A-b_9"])
def test_p55_an_id_that_fits_stays(call_id: str) -> None:
    assert wire_call_id(call_id) == call_id


def test_p55_ids_that_begin_alike_stay_apart() -> None:
    start = "call_" + "x" * 64
    assert wire_call_id(start + "a") != wire_call_id(start + "b")


@given(st.sets(st.text(), min_size=2))
def test_p55_no_two_ids_become_one(ids: set[str]) -> None:
    assert len({wire_call_id(call_id) for call_id in ids}) == len(ids)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("Write", "Write"), ("functions.x:3", "functions_x_3"), ("", "unnamed_tool"), ("é" * 80, "_" * 64)],
)
def test_a_name_that_servers_refuse_is_rewritten(name: str, expected: str) -> None:
    assert messages(an_exchange(a_call(name=name)))[0]["tool_calls"][0]["function"]["name"] == expected


MALFORMED = [
    "null",
    '["x"]',
    '"ls"',
    '{"a":NaN}',
    '"{\\"a\\":1}"',
    '{"path":"a","content":"x',
    "{",
    "[" * 5000,
]


@pytest.mark.parametrize("arguments", MALFORMED)
def test_p58_p60_malformed_arguments_go_out_as_an_object_that_shows_them(arguments: str) -> None:
    sent = orjson.loads(wire_arguments(arguments))
    assert arguments.startswith(sent["_malformed"].removesuffix("..."))
    assert len(sent["_malformed"]) <= 203


@pytest.mark.parametrize("arguments", ["", " ", "\n"])
def test_p60_no_arguments_are_an_empty_object(arguments: str) -> None:
    assert wire_arguments(arguments) == "{}"


@pytest.mark.parametrize("arguments", ["{}", '{"a": 1}', '{"a":1,"a":2}', ' {"é":"\\u00e9"} '])
def test_arguments_that_are_an_object_go_out_as_they_came(arguments: str) -> None:
    assert wire_arguments(arguments) == arguments


def test_an_escape_of_half_a_character_is_replaced_and_the_rest_kept() -> None:
    assert orjson.loads(wire_arguments('{"a":"x\\ud83d","b":2}')) == {"a": "x\ufffd", "b": 2}


@given(st.text())
def test_arguments_are_always_the_text_of_an_object(arguments: str) -> None:
    assert isinstance(orjson.loads(wire_arguments(arguments)), dict)


@given(st.text(alphabet=st.characters(min_codepoint=0xD7F0, max_codepoint=0xE010)))
def test_lone_surrogates_never_leave(text: str) -> None:
    items: list[Item] = [
        UserItem(1, "i", text),
        an_exchange(a_call(output=text, name=text, arguments=text), text=text),
    ]
    parameters = Parameters(text, text)
    body = request_body([encode_item(item, HERE) for item in items], [], parameters)
    assert "\ufffd" in body.decode() or not any("\ud800" <= c <= "\udfff" for c in text)


def test_an_input_that_json_cannot_carry_is_refused_by_name() -> None:
    with pytest.raises(ValueRefused, match="input") as refused:
        encode_item(UserItem(1, "i", [{"type": "x", "n": 2**70}]), HERE)
    assert refused.value.path == "input"


# --- the body -----------------------------------------------------------------------------


def body(
    items: tuple[bytes, ...] = (), tools: tuple[ToolSpec, ...] = (), **parameters: Any
) -> dict[str, Any]:
    parsed: dict[str, Any] = orjson.loads(request_body(items, tools, Parameters("m", **parameters)))
    return parsed


def test_a_body_has_what_a_stream_needs_and_nothing_that_was_not_given() -> None:
    assert body() == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [],
    }


def test_a_body_has_what_was_given() -> None:
    tool = ToolSpec("Write", "writes", {"type": "object"})
    sent = body(
        tools=(tool,), system_prompt="be kind", temperature=0.0, max_output_tokens=9, extra={"seed": 1}
    )
    assert sent["messages"] == [{"role": "system", "content": "be kind"}]
    assert (sent["temperature"], sent["max_tokens"], sent["seed"]) == (0.0, 9, 1)
    assert sent["tools"] == [
        {
            "type": "function",
            "function": {"name": "Write", "description": "writes", "parameters": {"type": "object"}},
        }
    ]


def test_the_output_limit_has_the_name_that_the_server_knows() -> None:
    parameters = Parameters("m", max_output_tokens=9)
    sent = orjson.loads(request_body([], [], parameters, Server("max_completion_tokens")))
    assert (sent["max_completion_tokens"], "max_tokens" in sent) == (9, False)


def test_none_in_extra_takes_a_field_out() -> None:
    assert "stream_options" not in body(extra={"stream_options": None})


@pytest.mark.parametrize("field", ["model", "messages", "stream", "tools", "n"])
def test_fields_of_the_dialect_are_not_free(field: str) -> None:
    with pytest.raises(InvalidOptions, match=field):
        body(extra={field: 1})


def test_items_are_spliced_and_never_looked_at() -> None:
    # Not JSON: whoever encoded or parsed an item a second time could not get past it.
    items = [b"<%d>" % i for i in range(1000)]
    sent = request_body(items, [], Parameters("m", "s"))
    assert b'{"role":"system","content":"s"},' + b",".join(items) + b"]}" in sent


def test_items_without_messages_leave_no_gap() -> None:
    first, second = (encode_item(UserItem(1, "i", text), HERE) for text in "ab")
    assert [message["content"] for message in body((first, b"", second, b""))["messages"]] == ["a", "b"]
