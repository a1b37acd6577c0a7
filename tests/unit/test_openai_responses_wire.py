"""The Responses encoder: what a body says, and what servers refuse is never written."""

from __future__ import annotations

import base64
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.errors import InvalidOptions
from domain.model_ports import Block, Parameters, ToolSpec
from domain.values import ThinkingSettings
from minutebook.testing.wire_rules.openai_responses import check
from projections.openai_responses_wire import API, encode_item, request_body
from projections.transcript import CallItem, Exchange, UserItem
from projections.wire_order import call_mark, in_order, without_last_marks

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
LOOSE = {"type": "object", "properties": {"city": {"type": "string"}}}
HELLO = encode_item(UserItem(1, "i1", "hello"), "openai")


def body(items: list[bytes] | None = None, **given: Any) -> dict[str, Any]:
    tools = given.pop("tools", ())
    store = given.pop("store", False)
    parameters = Parameters(given.pop("model", "gpt-4o"), **given)
    parsed: dict[str, Any] = orjson.loads(request_body(items or [HELLO], tools, parameters, store=store))
    check(parsed)
    return parsed


def item(kind: str, **fields: Any) -> Block:
    return Block("opaque", orjson.dumps({"type": kind, **fields}).decode(), f"{API}/item")


def call(number: int = 0, arguments: str = "{}", **fields: Any) -> CallItem:
    made = {"tool_id": f"t{number}", "wire_id": f"w{number}", "provider_call_id": "", "name": "look"}
    return CallItem(**(made | {"arguments": arguments, "outcome": "completed", "output": "seen"} | fields))


def exchange(blocks: list[Block], calls: list[CallItem], **fields: Any) -> list[dict[str, Any]]:
    """The input items of one exchange."""
    made: dict[str, Any] = {"provider": "openai", "api": API, "stop": "end"} | fields
    one = Exchange(2, "r1.t1", "r1.t1.a1", model="m", blocks=tuple(blocks), calls=tuple(calls), **made)
    encoded = encode_item(one, "openai")
    parsed: list[dict[str, Any]] = orjson.loads(b"[%b]" % encoded)
    for model in ("m", "gpt-4o"):
        body([HELLO, encoded], model=model)
    return parsed


# --- the body --------------------------------------------------------------------------------


def test_a_body_says_what_it_must_and_no_more() -> None:
    assert body() == {
        "model": "gpt-4o",
        "store": False,
        "input": [{"role": "user", "content": "hello"}],
        "stream": True,
    }


def test_parameters_have_their_places() -> None:
    sent = body(
        system_prompt="Be brief.",
        temperature=0.5,
        max_output_tokens=100,
        thinking=ThinkingSettings(effort="low"),
        output_schema=SCHEMA,
        tools=[ToolSpec("a", "A.", LOOSE), ToolSpec("b", "B.", SCHEMA)],
    )
    assert (sent["instructions"], sent["temperature"], sent["max_output_tokens"]) == ("Be brief.", 0.5, 100)
    assert sent["reasoning"] == {"effort": "low", "summary": "auto"}
    format_ = {"type": "json_schema", "name": "output", "schema": SCHEMA, "strict": True}
    assert sent["text"] == {"format": format_}
    assert [(tool["name"], tool["strict"]) for tool in sent["tools"]] == [("a", False), ("b", True)]


@pytest.mark.parametrize(
    ("budget", "effort", "expected"),
    [
        (None, None, None),
        (1024, None, "low"),
        (4096, None, "low"),
        (4097, None, "medium"),
        (16_385, None, "high"),
        (1024, "xhigh", "xhigh"),
    ],
)
def test_a_budget_becomes_an_effort(budget: int | None, effort: str | None, expected: str | None) -> None:
    reasoning = body(thinking=ThinkingSettings(budget, effort))["reasoning"]
    assert (reasoning.get("effort"), reasoning["summary"]) == (expected, "auto")


@pytest.mark.parametrize(
    ("model", "reasons"),
    [
        ("gpt-5", True),
        ("gpt-5.5-2026-04-23", True),
        ("openai.gpt-5.6-luna", True),
        ("openai/o3-mini", True),
        ("codex-mini-latest", True),
        ("gpt-5-chat-latest", False),
        ("gpt-4o", False),
        ("deepseek-v4-flash", False),
        ("local-model", False),
        ("foo3", False),
    ],
)
def test_encrypted_reasoning_is_asked_of_models_that_reason(model: str, reasons: bool) -> None:
    assert ("include" in body(model=model)) is reasons


def test_what_is_stored_can_be_found_by_its_attempt() -> None:
    assert "metadata" not in body(attempt_key="s1/r1.t1.a1")
    sent = body(attempt_key="s1/r1.t1.a1", store=True, extra={"metadata": {"team": "x"}})
    assert sent["store"] is True
    assert sent["metadata"] == {"minutebook_attempt": "s1/r1.t1.a1", "team": "x"}
    sent = body(attempt_key="s1/r1.t1.a1", store=True, extra={"metadata": {"minutebook_attempt": "x"}})
    assert sent["metadata"] == {"minutebook_attempt": "s1/r1.t1.a1"}, "the key is ours"


def test_a_blank_system_prompt_is_none() -> None:
    assert "instructions" not in body(system_prompt=" \n")
    assert body(system_prompt="Be brief.")["instructions"] == "Be brief."


def test_extra_fields_are_added_merged_or_take_others_out() -> None:
    sent = body(
        extra={"store": None, "truncation": "auto", "text": {"verbosity": "low"}}, output_schema=SCHEMA
    )
    assert "store" not in sent
    assert (sent["truncation"], sent["text"]["verbosity"]) == ("auto", "low")
    assert sent["text"]["format"]["strict"] is True


@pytest.mark.parametrize("field", ["input", "model", "stream", "tools", "previous_response_id"])
def test_fields_of_ours_are_not_free(field: str) -> None:
    with pytest.raises(InvalidOptions, match="extra"):
        body(extra={field: "x"})


# --- inputs -----------------------------------------------------------------------------------


def test_media_go_as_data_urls() -> None:
    png, pdf = b"\x89PNG", b"%PDF-1"
    content: list[dict[str, Any]] = [
        {"type": "text", "text": "look"},
        {"type": "image", "media_type": "image/png", "blob": "d1", "size": 4},
        {"type": "file", "media_type": "application/pdf", "blob": "d2", "size": 6, "filename": "a.pdf"},
        {"type": "image", "media_type": "image/png", "blob": "gone", "size": 9},
    ]
    encoded = encode_item(UserItem(1, "i1", content, {"d1": png, "d2": pdf}), "openai")
    [sent] = body([encoded])["input"]
    text, image, file, left_out = sent["content"]
    assert text == {"type": "input_text", "text": "look"}
    assert image["image_url"] == "data:image/png;base64," + base64.b64encode(png).decode()
    assert file == {
        "type": "input_file",
        "filename": "a.pdf",
        "file_data": "data:application/pdf;base64," + base64.b64encode(pdf).decode(),
    }
    assert left_out["type"] == "input_text"
    assert "not sent again" in left_out["text"]


def test_an_empty_input_says_so() -> None:
    assert body([encode_item(UserItem(1, "i1", ""), "openai")])["input"][0]["content"] == "(empty message)"


# --- exchanges ----------------------------------------------------------------------------------

THOUGHT = {"id": "rs_1", "summary": [], "encrypted_content": "gAAA", "status": "completed"}


def test_reasoning_goes_back_as_the_same_strings_without_its_id() -> None:
    text = {"summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "gAAA\u00e9=="}
    sent = exchange([item("reasoning", id="rs_1", status="completed", **text), Block("text", "so")], [])
    assert sent[0] == {"type": "reasoning", **text}
    content = [{"type": "reasoning_text", "text": "because"}]
    sent = exchange([item("reasoning", id="rs_1", content=content, encrypted_content=None)], [call()])
    assert sent[0] == {"type": "reasoning", "summary": [], "content": content}


def test_reasoning_without_its_follower_is_left_out() -> None:
    alone = item("reasoning", **THOUGHT)
    pending = item("mcp_approval_request", id="mcpr_1")
    assert exchange([alone], []) == []
    assert exchange([alone, alone], []) == []
    assert exchange([alone, pending, Block("text", "so")], []) == exchange([Block("text", "so")], [])
    assert [i["type"] for i in exchange([alone, alone, Block("text", "so")], [])] == [
        "reasoning",
        "reasoning",
        "message",
    ]


def test_what_is_opaque_stays_with_its_provider() -> None:
    blocks = [item("reasoning", **THOUGHT), item("web_search_call", id="ws_1"), Block("text", "so")]
    assert len(exchange(blocks, [])) == 3
    for elsewhere in ({"provider": "deepseek"}, {"api": "anthropic-messages"}):
        assert [i["type"] for i in exchange(blocks, [], **elsewhere)] == ["message"]


@pytest.mark.parametrize(
    ("wrote", "reads", "kept"),
    [
        ("gpt-5.5", "gpt-5.5", True),
        ("gpt-5", "gpt-5-mini-2025-08-07", True),
        ("gpt-5", "openai/gpt-5.6", True),
        ("gpt-5", "o3", False),
        ("gpt-5", "gpt-4o", False),
        ("gpt-5", "gpt-5-chat-latest", False),
        ("deepseek-v4-flash", "deepseek-v4-pro", True),
        ("deepseek-v4-flash", "gpt-5", False),
    ],
)
def test_reasoning_stays_with_the_models_that_can_read_it(wrote: str, reads: str, kept: bool) -> None:
    blocks = (item("reasoning", **THOUGHT), Block("text", "so"))
    one = Exchange(2, "r1.t1", "r1.t1.a1", "openai", API, wrote, blocks, (call(),), "end")
    sent = body([HELLO, encode_item(one, "openai")], model=reads)["input"]
    assert [i.get("type") for i in sent[1:]] == ["reasoning"] * kept + [
        "message",
        "function_call",
        "function_call_output",
    ]


def test_phases_and_refusals_are_kept() -> None:
    blocks = [
        Block("text", "first", f"{API}/message/commentary"),
        Block("text", "no", f"{API}/refusal"),
        Block("text", "last", f"{API}/message"),
    ]
    first, refusal, last = exchange(blocks, [])
    assert first["phase"] == "commentary"
    assert refusal["content"] == [{"type": "refusal", "refusal": "no"}]
    assert "phase" not in last


def test_calls_of_one_run_come_before_their_outputs() -> None:
    sent = exchange([Block("text", "x")], [call(0), call(1, '{"a":1}', output="")])
    assert [(i["type"], i.get("call_id")) for i in sent] == [
        ("message", None),
        ("function_call", "w0"),
        ("function_call", "w1"),
        ("function_call_output", "w0"),
        ("function_call_output", "w1"),
    ]
    assert sent[-1]["output"] == "(no output)"


@pytest.mark.parametrize(
    ("arguments", "sent"), [("", "{}"), ('{"a": 1}', '{"a": 1}'), ("[1]", '{"_malformed":"[1]"}')]
)
def test_arguments_are_the_text_of_an_object(arguments: str, sent: str) -> None:
    assert exchange([], [call(0, arguments)])[0]["arguments"] == sent


def test_free_form_input_goes_back_as_it_came() -> None:
    mark = call_mark(API, 0, "custom_tool_call")
    wrapped, raw = exchange([mark], [call(0, '{"input":"SELECT 1"}')]), exchange([mark], [call(0, "SELECT")])
    assert (wrapped[0]["type"], wrapped[0]["input"], raw[0]["input"]) == (
        "custom_tool_call",
        "SELECT 1",
        "SELECT",
    )
    assert wrapped[1]["type"] == "custom_tool_call_output"


# --- any exchange at all ---------------------------------------------------------------------------

TEXTS = st.text(max_size=8)
BLOCKS = st.one_of(
    st.builds(lambda text: Block("text", text), TEXTS),
    st.builds(lambda text: Block("text", text, f"{API}/message/final_answer"), TEXTS),
    st.builds(lambda text: Block("text", text, f"{API}/refusal"), TEXTS),
    st.builds(
        lambda kind, secret: item(kind, id="x", summary=[], encrypted_content=secret),
        st.sampled_from(["reasoning", "reasoning", "mcp_call", "computer_call", "mcp_approval_request"]),
        st.sampled_from(["gAAA", None]),
    ),
    st.builds(
        lambda n, kind: call_mark(API, n, kind), st.integers(0, 5), st.sampled_from(["", "custom_tool_call"])
    ),
)
CALLS = st.lists(st.tuples(TEXTS, TEXTS, TEXTS), max_size=4)


@given(st.lists(BLOCKS, max_size=8), CALLS, st.sampled_from(["openai", "deepseek"]))
def test_any_exchange_is_accepted(blocks: list[Block], calls: list[Any], provider: str) -> None:
    made = [call(n, args, name=name, output=out) for n, (args, name, out) in enumerate(calls)]
    sent = exchange(blocks, made, provider=provider)
    asked = [i["call_id"] for i in sent if i["type"] in ("function_call", "custom_tool_call")]
    assert sorted(asked) == sorted(c.wire_id for c in made), "each call once"


@given(st.lists(BLOCKS, max_size=8), st.integers(0, 4))
def test_marks_that_say_nothing_can_be_left_out(blocks: list[Block], count: int) -> None:
    """A response as an accumulator makes it: calls numbered in their order."""
    plain = [block for block in blocks if not block.format.startswith(f"{API}/calls/")]
    marks = [call_mark(API, n) for n in range(count)]
    paired = [block for two in zip(plain, marks, strict=False) for block in two]
    both = paired + plain[count:] + marks[len(plain) :]
    calls = [call(n) for n in range(count)]

    def order(given: Any) -> list[Any]:
        return [c or b for b, c in in_order(given, calls)]

    assert order(both) == order(without_last_marks(both))
