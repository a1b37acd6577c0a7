"""The messages dialect's encoder: what goes out, and what must never go out."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.errors import InvalidOptions, ValueRefused
from domain.model_ports import Block, Parameters, ToolSpec
from domain.values import Stop, ThinkingSettings
from minutebook.testing.wire_rules import anthropic as rules
from projections.anthropic_parameters import DEFAULT_MAX_TOKENS
from projections.anthropic_wire import API, ENDING, INCOMPLETE, TEXT_FIELDS, encode_item, request_body
from projections.transcript import CallItem, Exchange, Item, UserItem
from projections.wire_calls import EMPTY_INPUT, EMPTY_OUTPUT
from projections.wire_order import call_mark

HERE = "anthropic"
ASKED = UserItem(1, "i", "hello")
THOUGHT = '{"type":"thinking","thinking":"hm","signature":"c2ln"}'
USE = '{"type":"server_tool_use","id":"srvtoolu_1","name":"web_search","input":{"q":1}}'
FOUND = '{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[]}'


def a_call(**changes: Any) -> CallItem:
    return replace(
        CallItem("t", "toolu_1", "toolu_1", "Write", '{"path":"a"}', "completed", "written"), **changes
    )


def text(content: str) -> Block:
    return Block("text", content)


def opaque(content: str, kind: str = "") -> Block:
    return Block("opaque", content, f"{API}/{kind or orjson.loads(content)['type']}")


def an_exchange(*parts: Block | CallItem, **changes: Any) -> Exchange:
    calls = tuple(part for part in parts if isinstance(part, CallItem))
    blocks = tuple(part for part in parts if isinstance(part, Block))
    stop = Stop.TOOL_CALLS if calls else Stop.END
    exchange = Exchange(2, "r1.t1", "r1.t1.a1", HERE, API, "m", blocks, calls, stop)
    return replace(exchange, **changes)


def body(*items: Item, tools: tuple[ToolSpec, ...] = (), parameters: Parameters = Parameters("m")) -> Any:  # noqa: B008 - frozen
    encoded = [encode_item(item, HERE) for item in items]
    return orjson.loads(request_body(encoded, tools, parameters))


def messages(*items: Item) -> list[dict[str, Any]]:
    """The messages of a request that the strict rules accept."""
    sent = body(*items)
    rules.check(sent)
    found: list[dict[str, Any]] = sent["messages"]
    return found


def answer(*parts: Block | CallItem, **changes: Any) -> list[dict[str, Any]]:
    """The blocks of an answer that the user goes on from."""
    found = messages(ASKED, an_exchange(*parts, **changes), UserItem(9, "j", "go on"))
    return [block for message in found if message["role"] == "assistant" for block in message["content"]]


# --- inputs -------------------------------------------------------------------------


def test_an_input_is_a_user_message() -> None:
    assert messages(ASKED) == [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]


@pytest.mark.parametrize("content", ["", " \n", [], [{"type": "text", "text": "\t"}]])
def test_p54_an_empty_input_gets_a_placeholder(content: Any) -> None:
    assert messages(UserItem(1, "i", content))[0]["content"] == [{"type": "text", "text": EMPTY_INPUT}]


def test_two_inputs_are_two_messages_which_the_api_combines() -> None:
    assert [m["role"] for m in messages(ASKED, UserItem(2, "j", "and"))] == ["user", "user"]


def media(kind: str, media_type: str, data: bytes, filename: str = "") -> UserItem:
    part = {"type": kind, "media_type": media_type, "blob": "d", "size": len(data), "filename": filename}
    return UserItem(1, "i", [{"type": "text", "text": "see"}, part], media={"d": data})


MEDIA = [
    (
        media("image", "image/png", b"\x89PNG"),
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}},
    ),
    (
        media("file", "application/pdf", b"%PDF", "a.pdf"),
        {
            "type": "document",
            "title": "a.pdf",
            "source": {
                "type": "base64",
                "media_type": "application/pdf",
                "data": base64.b64encode(b"%PDF").decode(),
            },
        },
    ),
    (
        media("file", "text/csv", "é;1".encode()),
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "é;1"}},
    ),
    (
        media("file", "application/zip", b"\xff\xfe", "a.zip"),
        {"type": "text", "text": "[file a.zip, application/zip: this model's API does not take it]"},
    ),
    (
        media("image", "image/tiff", b"II*", "a.tif"),
        {"type": "text", "text": "[image a.tif, image/tiff: this model's API does not take it]"},
    ),
]


@pytest.mark.parametrize(("item", "expected"), MEDIA, ids=range(len(MEDIA)))
def test_images_and_files_go_out_as_the_api_has_them(item: UserItem, expected: dict[str, Any]) -> None:
    assert messages(item)[0]["content"] == [{"type": "text", "text": "see"}, expected]


# --- exchanges ------------------------------------------------------------------------


def test_calls_are_answered_at_once_and_errors_are_marked() -> None:
    outcomes = ["completed", "failed", "cancelled", "rejected", "unknown"]
    calls = [a_call(wire_id=f"toolu_{n}", outcome=o, output=o) for n, o in enumerate(outcomes)]
    _, said, results = messages(ASKED, an_exchange(text("working"), *calls))
    assert said["content"][0] == {"type": "text", "text": "working"}
    assert [(r["tool_use_id"], r["content"], r.get("is_error")) for r in results["content"]] == [
        (f"toolu_{n}", outcome, None if outcome == "completed" else True)
        for n, outcome in enumerate(outcomes)
    ]


def test_order_between_thinking_text_and_calls_is_kept() -> None:
    first, second = a_call(wire_id="toolu_1"), a_call(wire_id="toolu_2")
    blocks = (opaque(THOUGHT), call_mark(API, 0, '{"caller":{"type":"direct"}}'), text("then"))
    said = answer(*blocks, first, second)
    assert [block["type"] for block in said] == ["thinking", "tool_use", "text", "tool_use"]
    assert said[1]["caller"] == {"type": "direct"}
    assert "caller" not in said[3]


@pytest.mark.parametrize("content", ["", " ", "\n\t"])
def test_p54_empty_text_is_no_block_and_no_message(content: str) -> None:
    assert encode_item(an_exchange(text(content)), HERE) == b""
    assert [block["type"] for block in answer(text(content), a_call())] == ["tool_use"]


def test_p54_thinking_alone_is_no_message() -> None:
    assert encode_item(an_exchange(opaque(THOUGHT)), HERE) == b""
    assert answer(text("a"), opaque(THOUGHT)) == [{"type": "text", "text": "a"}]


@pytest.mark.parametrize("output", ["", " \n"])
def test_p54_an_empty_result_gets_a_placeholder(output: str) -> None:
    assert messages(ASKED, an_exchange(a_call(output=output)))[2]["content"][0]["content"] == EMPTY_OUTPUT


UNSIGNED = [
    '{"type":"thinking","thinking":"hm"}',
    '{"type":"thinking","thinking":"hm","signature":""}',
    '{"type":"thinking","thinking":"hm","signature":null}',
    '{"type":"redacted_thinking","data":""}',
]


@pytest.mark.parametrize("block", UNSIGNED)
def test_p49_unsigned_thinking_is_not_sent(block: str) -> None:
    assert [found["type"] for found in answer(opaque(block), text("a"), a_call())] == ["text", "tool_use"]


def test_thinking_that_is_not_shown_goes_back_for_its_signature() -> None:
    block = '{"type":"thinking","thinking":"","signature":"c2ln"}'
    assert answer(opaque(block), text("a"))[0] == orjson.loads(block)


NOT_SENT = [
    Block("opaque", "{", f"{API}/thinking"),
    Block("opaque", "[]", f"{API}/thinking"),
    Block("opaque", '{"type":"x","n":NaN}', f"{API}/x"),
    Block("opaque", '{"type":"thinking","thinking":"hm","signature":"c2ln"}', f"{INCOMPLETE}thinking"),
    Block("opaque", '{"stop_reason":"refusal"}', ENDING),
    Block("opaque", '{"type":"reasoning"}', "openai-responses/item"),
]


@pytest.mark.parametrize("block", NOT_SENT, ids=range(len(NOT_SENT)))
def test_what_cannot_go_back_stays_out(block: Block) -> None:
    assert answer(block, text("a")) == [{"type": "text", "text": "a"}]


MINE = (
    opaque(THOUGHT),
    opaque(USE),
    opaque(FOUND),
    text("a"),
    Block("opaque", '{"citations":[1]}', TEXT_FIELDS),
)


@pytest.mark.parametrize("changes", [{}, {"provider": "other"}, {"api": "openai-chat"}])
def test_p50_material_of_another_provider_stays_out(changes: dict[str, str]) -> None:
    said = answer(*MINE, call_mark(API, 0, '{"caller":1}'), a_call(), **changes)
    assert ("c2ln" in repr(said)) == (not changes)
    assert [block["type"] for block in said][-2:] == ["text", "tool_use"]
    assert ("citations" in said[-2], "caller" in said[-1]) == (not changes, not changes)


EXACT = [
    '{"type":"web_search_tool_result","tool_use_id":"srvtoolu_1","content":[{"n":1.0,"e":1E5,"big":123456789012345678901234567890}]}',
    '{"type":"thinking","thinking":"\\ud83d é 😀 \\u00e9","signature":"abc=="}',
    '{ "type" : "something_new" , "x" : [ 1 , 2.50 ] }',
]


@pytest.mark.parametrize("block", EXACT, ids=range(len(EXACT)))
def test_p48_a_block_goes_back_as_the_text_that_it_was(block: str) -> None:
    sent = encode_item(an_exchange(opaque(USE), opaque(block, "x"), text("a")), HERE)
    assert block.encode() in sent


def test_line_ends_between_the_tokens_of_a_block_become_spaces() -> None:
    sent = encode_item(an_exchange(opaque('{"type":\n"x"}', "x"), text("a")), HERE)
    assert b'{"type": "x"}' in sent


# --- uses of the provider's tools ------------------------------------------------------------


def test_a_use_that_nobody_answered_is_not_sent_where_nobody_can_any_more() -> None:
    for stop in (Stop.END, Stop.LENGTH, Stop.REFUSAL):
        assert answer(text("a"), opaque(USE), stop=stop) == [{"type": "text", "text": "a"}]
    assert [b["type"] for b in answer(text("a"), opaque(USE), a_call(), stop=Stop.LENGTH)] == [
        "text",
        "tool_use",
    ]


def test_p14_a_use_may_be_answered_after_a_call_of_ours() -> None:
    later = an_exchange(opaque(FOUND), text("b"))
    found = messages(ASKED, an_exchange(opaque(USE), a_call()), later)
    assert [[b["type"] for b in m["content"]] for m in found] == [
        ["text"],
        ["server_tool_use", "tool_use"],
        ["tool_result"],
        ["web_search_tool_result", "text"],
    ]


def test_p14_a_result_that_came_behind_a_call_stays_with_its_use() -> None:
    said = answer(opaque(USE), call_mark(API, 0), opaque(FOUND), a_call())
    assert [block["type"] for block in said] == ["server_tool_use", "tool_use", "web_search_tool_result"]


PAUSED = an_exchange(text("a"), opaque(THOUGHT), opaque(USE), stop=Stop.PAUSE)
GOES_ON = an_exchange(opaque(FOUND), text("b"), sequence=3)


def test_p61_a_paused_turn_is_sent_back_whole_and_goes_on() -> None:
    both: list[list[Item]] = [[ASKED, PAUSED], [ASKED, PAUSED, GOES_ON, UserItem(9, "j", "more")]]
    for items in both:
        assert [b["type"] for b in messages(*items)[1]["content"]] == ["text", "thinking", "server_tool_use"]


@pytest.mark.parametrize("after", [UserItem(9, "j", "stop"), an_exchange(text("other"), provider="other")])
def test_p61_a_paused_turn_that_does_not_go_on_loses_its_open_use(after: Item) -> None:
    last = UserItem(10, "k", "and now")
    assert messages(ASKED, PAUSED, after, last)[1]["content"] == [{"type": "text", "text": "a"}]


def test_p61_a_paused_turn_that_was_only_an_open_use_is_no_message() -> None:
    paused = an_exchange(opaque(USE), stop=Stop.PAUSE)
    assert [m["role"] for m in messages(ASKED, paused, UserItem(9, "j", "stop"))] == ["user", "user"]
    assert [b["type"] for b in messages(ASKED, paused)[1]["content"]] == ["server_tool_use"]


WITHIN = '"caller":{"type":"code_execution_20260120","tool_id":"srvtoolu_1"}'


def test_p61_what_an_open_use_called_for_goes_with_it() -> None:
    use, found = (block.replace("srvtoolu_1", "srvtoolu_2") for block in (USE, FOUND))
    inner = opaque(use[:-1] + f",{WITHIN}}}")
    paused = an_exchange(text("a"), opaque(USE), inner, opaque(found), text("b"), stop=Stop.PAUSE)
    assert [b["type"] for b in messages(ASKED, paused, UserItem(9, "j", "stop"))[1]["content"]] == [
        "text"
    ] * 2
    assert len(messages(ASKED, paused)[1]["content"]) == 5


def test_p14_a_call_from_an_open_use_is_kept_where_the_user_speaks() -> None:
    asks = an_exchange(opaque(USE), call_mark(API, 0, f"{{{WITHIN}}}"), a_call())
    assert messages(ASKED, asks)[1]["content"][1]["caller"]["tool_id"] == "srvtoolu_1"
    _, said, results, _ = messages(ASKED, asks, UserItem(9, "j", "stop"))
    assert [sorted(block) for block in said["content"]] == [["id", "input", "name", "type"]]
    assert results["content"][0]["tool_use_id"] == "toolu_1"


@pytest.mark.parametrize("provider", [HERE, "other"])
def test_a_paused_turn_does_not_end_with_white_space(provider: str) -> None:
    blocks = (text("a \n"), text("b \n"), Block("opaque", '{"citations":[1]}', TEXT_FIELDS))
    said = messages(ASKED, an_exchange(*blocks, opaque(THOUGHT), stop=Stop.PAUSE, provider=provider))[1]
    assert [block["text"] for block in said["content"]] == ["a \n", "b"]


# --- ids, names, arguments ----------------------------------------------------------------


@pytest.mark.parametrize("call_id", ["call_" + "x" * 94, "call_1|fc_2", "functions.x:3", "", "é"])
def test_p55_a_foreign_id_is_mapped_the_same_for_call_and_result(call_id: str) -> None:
    _, said, results = messages(ASKED, an_exchange(a_call(wire_id=call_id)))
    assert said["content"][0]["id"] == results["content"][0]["tool_use_id"] != call_id


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", {}),
        (" ", {}),
        ('{"a": 1.0,\n"b": 2}', {"a": 1.0, "b": 2}),
        ('{"path":"a","content":"x', {"_malformed": '{"path":"a","content":"x'}),
        ("[1]", {"_malformed": "[1]"}),
        ('{"a":"\\ud83d"}', {"a": "\ufffd"}),
    ],
)
def test_p58_input_is_always_an_object(arguments: str, expected: dict[str, Any]) -> None:
    assert answer(a_call(arguments=arguments))[0]["input"] == expected


@pytest.mark.parametrize("name", ["a.b", "ä" * 80, ""])
def test_a_name_is_always_plain(name: str) -> None:
    answer(a_call(name=name))


@pytest.mark.parametrize("material", ["{", "[]", "{}", ""])
def test_material_of_a_call_that_is_no_object_is_left_out(material: str) -> None:
    said = answer(call_mark(API, 0, material), a_call())
    assert said[0].keys() == {"type", "id", "name", "input"}


# --- the rest of the body ---------------------------------------------------------------


def test_a_body_says_what_is_asked_for() -> None:
    tool = ToolSpec("Write", "writes", {"type": "object"})
    schema = {"type": "object", "additionalProperties": False}
    asked = Parameters(
        "m",
        system_prompt="be brief",
        temperature=1.0,
        max_output_tokens=2000,
        extra={
            "tools": [{"type": "web_search_20250305", "name": "web_search"}],
            "metadata": {"user_id": "u"},
        },
        thinking=ThinkingSettings(1024, "low"),
        output_schema=schema,
    )
    sent = body(ASKED, tools=(tool,), parameters=asked)
    rules.check(sent)
    assert {name: value for name, value in sent.items() if name != "messages"} == {
        "model": "m",
        "system": "be brief",
        "max_tokens": 2000,
        "temperature": 1.0,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": schema}},
        "tools": [
            {"name": "Write", "description": "writes", "input_schema": {"type": "object"}},
            {"type": "web_search_20250305", "name": "web_search"},
        ],
        "metadata": {"user_id": "u"},
        "stream": True,
    }


def test_what_is_not_asked_for_is_left_out() -> None:
    sent = body(ASKED, parameters=Parameters("m", system_prompt=" \n"))
    assert sent.keys() == {"model", "max_tokens", "stream", "messages"}
    assert sent["max_tokens"] == DEFAULT_MAX_TOKENS


@pytest.mark.parametrize(
    ("thinking", "expected", "limit"),
    [
        (ThinkingSettings(), {"type": "adaptive"}, DEFAULT_MAX_TOKENS),
        (ThinkingSettings(effort="max"), {"type": "adaptive"}, DEFAULT_MAX_TOKENS),
        (ThinkingSettings(2048), {"type": "enabled", "budget_tokens": 2048}, DEFAULT_MAX_TOKENS + 2048),
    ],
)
def test_thinking_is_asked_for(thinking: ThinkingSettings, expected: dict[str, Any], limit: int) -> None:
    sent = body(ASKED, parameters=Parameters("m", thinking=thinking))
    rules.check(sent)
    assert (sent["thinking"], sent["max_tokens"]) == (expected, limit)


def test_a_turn_that_began_without_thinking_goes_on_without() -> None:
    asked = Parameters("m", thinking=ThinkingSettings(2048))
    foreign = an_exchange(opaque(THOUGHT), a_call(), provider="other")
    cases: list[tuple[list[Item], bool]] = [
        ([ASKED, foreign], False),
        ([ASKED, foreign, UserItem(9, "j", "go on")], True),
        ([ASKED, an_exchange(opaque(THOUGHT), a_call()), an_exchange(a_call(wire_id="toolu_2"))], True),
        ([ASKED, an_exchange(opaque('{"type":"redacted_thinking","data":"x"}'), a_call())], True),
    ]
    for items, enabled in cases:
        sent = body(*items, parameters=asked)
        rules.check(sent)
        assert ("thinking" in sent) == enabled


BAD = [
    (Parameters("m", thinking=ThinkingSettings(1023)), "thinking.budget"),
    (Parameters("m", thinking=ThinkingSettings(2048), max_output_tokens=2048), "thinking.budget"),
    (Parameters("m", extra={"messages": []}), "extra"),
    (Parameters("m", extra={"system": "x"}), "extra"),
    (Parameters("m", extra={"tools": {}, "model": "n"}), "extra"),
    (Parameters("m", extra={"tools": "all"}), "extra"),
]


@pytest.mark.parametrize(("parameters", "option"), BAD, ids=range(len(BAD)))
def test_options_that_contradict_are_refused_before_anything_is_sent(
    parameters: Parameters, option: str
) -> None:
    with pytest.raises(InvalidOptions, match=option):
        body(ASKED, parameters=parameters)


def test_a_schema_that_json_cannot_carry_is_refused() -> None:
    with pytest.raises(ValueRefused):
        body(ASKED, tools=(ToolSpec("Write", "", {"x": 1 << 70}),))


def test_extra_may_take_a_field_out_or_set_the_output_config() -> None:
    extra = {"max_tokens": None, "output_config": {"effort": "high"}}
    sent = body(ASKED, parameters=Parameters("m", extra=extra, output_schema={"type": "object"}))
    assert "max_tokens" not in sent
    assert sent["output_config"].keys() == {"effort", "format"}


# --- any history --------------------------------------------------------------------------

_TEXTS = st.sampled_from(["", " ", "a", "a \n", "\ud83d", "é"])
_BLOCKS = st.one_of(
    _TEXTS.map(text),
    st.sampled_from([opaque(THOUGHT), opaque(UNSIGNED[0]), *NOT_SENT, call_mark(API, 0), call_mark(API, 5)]),
)


@st.composite
def exchanges(draw: st.DrawFn, number: int) -> Exchange:
    ids = [f"toolu_{number}_{n}" for n in range(draw(st.integers(0, 2)))]
    calls = [a_call(wire_id=i, arguments=draw(_TEXTS), output=draw(_TEXTS)) for i in ids]
    blocks = draw(st.lists(_BLOCKS, max_size=5))
    stop = draw(st.sampled_from([Stop.TOOL_CALLS, Stop.LENGTH, Stop.REFUSAL] if calls else [*Stop]))
    for n in draw(st.permutations(range(draw(st.integers(0, 3))))):
        use = f"srvtoolu_{number}_{n}"
        at = draw(st.integers(0, len(blocks)))
        blocks.insert(at, opaque(USE.replace("srvtoolu_1", use)))
        if draw(st.booleans()):
            blocks.insert(draw(st.integers(at + 1, len(blocks))), opaque(FOUND.replace("srvtoolu_1", use)))
    return an_exchange(*blocks, *calls, stop=stop, provider=draw(st.sampled_from([HERE, "other"])))


@st.composite
def histories(draw: st.DrawFn) -> list[Item]:
    items: list[Item] = [ASKED]
    for number in range(draw(st.integers(1, 4))):
        items.append(draw(exchanges(number)))
        if draw(st.booleans()) or number == 3:
            items.append(UserItem(9, "j", draw(_TEXTS)))
    final = items[-1]
    paused = isinstance(final, Exchange) and (final.stop == Stop.PAUSE or final.calls)
    return items if paused else [*items, UserItem(9, "j", "last")]


@given(histories())
def test_any_history_is_one_that_servers_take(items: list[Item]) -> None:
    rules.check(body(*items), signed={"c2ln": "hm"})


# --- families of models -----------------------------------------------------------------


def for_model(model: str, *items: Item) -> list[dict[str, Any]]:
    parameters = Parameters(model, thinking=ThinkingSettings(budget_tokens=2048))
    sent = body(*items, parameters=parameters)
    rules.check(sent)
    found: list[dict[str, Any]] = sent["messages"]
    return found


@pytest.mark.parametrize("thought", [THOUGHT, '{"type":"redacted_thinking","data":"eA=="}'])
def test_thinking_goes_back_to_its_family_of_models_only(thought: str) -> None:
    began = an_exchange(opaque(thought), text("so"), a_call(), model="claude-opus-5")
    kinds = [block["type"] for block in for_model("claude-sonnet-6", ASKED, began)[1]["content"]]
    assert kinds == [orjson.loads(thought)["type"], "text", "tool_use"]
    kinds = [block["type"] for block in for_model("minimax-m3", ASKED, began)[1]["content"]]
    assert kinds == ["text", "tool_use"]


def test_what_the_provider_ran_itself_goes_to_every_family_of_models() -> None:
    said = an_exchange(opaque(THOUGHT), opaque(USE), opaque(FOUND), text("so"), model="claude-opus-5")
    kinds = [block["type"] for block in for_model("minimax-m3", ASKED, said, ASKED)[1]["content"]]
    assert kinds == ["server_tool_use", "web_search_tool_result", "text"]


def test_a_pause_of_one_family_is_settled_in_the_form_for_another() -> None:
    paused = an_exchange(opaque(THOUGHT), text("so"), opaque(USE), model="claude-opus-5", stop=Stop.PAUSE)
    kinds = [block["type"] for block in for_model("minimax-m3", ASKED, paused, ASKED)[1]["content"]]
    assert kinds == ["text"]
