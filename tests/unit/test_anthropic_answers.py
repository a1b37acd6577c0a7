"""Events of a message, put together: exactly what came, and never more than came."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.answer_stream import AnswerStream
from adapters.anthropic_accumulator import MessageAccumulator, read_event
from adapters.anthropic_usage import counts
from domain.model_ports import Block, CallInput, DeclaredCall, Response, Signal, Text, Thinking
from domain.values import CUT_STOPS, Stop
from minutebook.testing.anthropic_replies import events_reply, message_events, message_reply
from projections.raw_json import elements, exact_json, is_object, joined, members
from projections.wire_order import marked_call

CALL = {"type": "tool_use", "id": "toolu_1", "name": "Write", "input": '{"path":"a"}'}
TEXT = {"type": "text", "text": "hello"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}


def read(body: bytes) -> tuple[list[Signal], AnswerStream]:
    stream = AnswerStream(MessageAccumulator(), parse=read_event)
    signals = stream.feed(body)
    return (signals if stream.finished or stream.failure else signals + stream.end()), stream


def response(body: bytes) -> Response:
    _, stream = read(body)
    assert stream.failure is None, stream.failure
    return stream.response("req_1")


def of_events(events: list[dict[str, Any]]) -> Response:
    return response(events_reply(events).body)


def of_blocks(*blocks: dict[str, Any], stop: str | None = None) -> Response:
    return response(message_reply(blocks=blocks, stop=stop).body)


def raw_stream(start: str, *deltas: str) -> bytes:
    """A message of one block, its beginning and its pieces given as JSON text."""
    lines = ['{"type":"message_start","message":{"id":"msg_1"}}']
    lines.append(f'{{"type":"content_block_start","index":0,"content_block":{start}}}')
    lines += [f'{{"type":"content_block_delta","index":0,"delta":{delta}}}' for delta in deltas]
    lines += ['{"type":"content_block_stop","index":0}', '{"type":"message_stop"}']
    lines.insert(-1, '{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":null}')
    return "".join(f"data: {line}\n\n" for line in lines).encode()


# --- order and exactness ------------------------------------------------------------------


def test_the_place_of_each_call_is_kept() -> None:
    other = CALL | {"id": "toolu_2"}
    found = of_blocks(THOUGHT, CALL, TEXT, other)
    assert [block.kind for block in found.blocks] == ["opaque", "opaque", "text"]
    assert marked_call(found.blocks[1]) == 0
    assert [call.provider_call_id for call in found.calls] == ["toolu_1", "toolu_2"]


def test_calls_at_the_end_need_no_mark() -> None:
    assert of_blocks(TEXT, CALL).blocks == (Block("text", "hello"),)


def test_further_members_of_a_call_are_kept_with_it() -> None:
    (mark,) = of_blocks(CALL | {"caller": {"type": "direct"}, "toolset_name": None}).blocks
    assert (mark.text, marked_call(mark)) == ('{"caller":{"type":"direct"}}', 0)


THOUGHTS = ["plain", "é 😀 \u2028", '"\\', "a\ud83d", "\udc00b"]


@pytest.mark.parametrize("thought", THOUGHTS, ids=range(len(THOUGHTS)))
@pytest.mark.parametrize("pieces", [1, 9])
def test_p48_thinking_is_kept_as_the_string_it_was(thought: str, pieces: int) -> None:
    cut = thought if pieces > 1 else [thought]
    deltas = [json.dumps({"type": "thinking_delta", "thinking": piece}) for piece in cut]
    sign = json.dumps({"type": "signature_delta", "signature": f"{thought}=="})
    body = raw_stream('{"type":"thinking","thinking":"","signature":""}', *deltas, sign)
    (block,) = response(body).blocks
    assert json.loads(block.text) == {"type": "thinking", "thinking": thought, "signature": f"{thought}=="}


def test_p48_halves_of_a_character_find_each_other() -> None:
    halves = [json.dumps({"type": "thinking_delta", "thinking": half}) for half in ("a\ud83d", "\ude00")]
    signals, stream = read(raw_stream('{"type":"thinking","thinking":""}', *halves))
    assert signals == [Thinking("a"), Thinking("😀")]
    assert json.loads(stream.response(None).blocks[0].text)["thinking"] == "a😀"


@pytest.mark.parametrize("pieces", [["c2", "ln"], ["c2ln", "c2ln"], ["", "c2ln"]])
def test_p49_a_signature_may_come_in_pieces_or_twice(pieces: list[str]) -> None:
    deltas = [json.dumps({"type": "signature_delta", "signature": piece}) for piece in pieces]
    (block,) = response(raw_stream('{"type":"thinking","thinking":"hm","signature":""}', *deltas)).blocks
    assert json.loads(block.text)["signature"] == "c2ln"


EXACT = [
    '{"type":"web_search_tool_result","tool_use_id":"w","content":[{"n":1.0,"e":1E5,"m":0.10,"i":9007199254740993}]}',
    '{"type":"redacted_thinking","data":"é\\u00e9\\/=="}',
    '{"type":"something_new","x":[1,2.50],"y":null,"z":123456789012345678901234567890}',
    '{"z":1,"type":"server_tool_use","id":"w","name":"n","input":{"half":"\\ud83d"}}',
]


@pytest.mark.parametrize("block", EXACT, ids=range(len(EXACT)))
def test_p48_a_whole_block_is_kept_as_its_text(block: str) -> None:
    (kept,) = response(raw_stream(block)).blocks
    assert (kept.kind, kept.text) == ("opaque", block)
    assert kept.format == f"anthropic-messages/{json.loads(block)['type']}"
    document = f'{{"type":"message","id":"m","content":[{block}],"stop_reason":"end_turn"}}'
    assert response(document.encode()).blocks == (kept,)


def test_input_of_a_provider_s_tool_is_kept_as_the_text_it_was() -> None:
    pieces = [json.dumps({"type": "input_json_delta", "partial_json": p}) for p in ("", '{"n": 1', ".0}")]
    (kept,) = response(
        raw_stream('{"type":"server_tool_use","id":"w","name":"n","input":{}}', *pieces)
    ).blocks
    assert kept.text == '{"type":"server_tool_use","id":"w","name":"n","input":{"n": 1.0}}'
    (empty,) = response(raw_stream('{"type":"server_tool_use","id":"w","input":{}}', pieces[0])).blocks
    assert empty.text.endswith('"input":{}}')


def test_citations_stay_with_their_text() -> None:
    cited = ['{"type":"char_location","n":1.0}', '{"type":"char_location","n":2}']
    deltas = [f'{{"type":"citations_delta","citation":{one}}}' for one in cited]
    deltas.insert(1, '{"type":"text_delta","text":"so"}')
    found = response(raw_stream('{"type":"text","text":"","citations":[]}', *deltas)).blocks
    assert found == (
        Block("text", "so"),
        Block("opaque", f'{{"citations":[{cited[0]},{cited[1]}]}}', "anthropic-messages/text/fields"),
    )


def test_pieces_nobody_knows_extend_what_they_name() -> None:
    deltas = ['{"type":"new_delta","s":"b","n":2.50,"o":null}', '{"type":"new_delta","s":"c"}']
    (kept,) = response(raw_stream('{"type":"new","s":"a","n":1,"o":0}', *deltas)).blocks
    assert kept.text == '{"type":"new","s":"abc","n":2.50,"o":0}'
    (thought,) = response(
        raw_stream('{"type":"thinking","thinking":"hm"}', '{"type":"new_delta","x":1}')
    ).blocks
    assert json.loads(thought.text)["x"] == 1


@pytest.mark.parametrize("kind", ["a/b", "X Y", "é", "a" * 65])
def test_a_kind_that_is_no_word_is_kept_without_its_name(kind: str) -> None:
    (kept,) = response(raw_stream(json.dumps({"type": kind}))).blocks
    assert kept.format == "anthropic-messages/incomplete/unknown"  # never sent back: it could be anything


def test_p54_an_empty_text_is_not_kept() -> None:
    assert of_blocks({"type": "text", "text": ""}).blocks == ()


# --- calls ------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "{}", '{"a":1}', '{"a": 1.0}'])
def test_arguments_are_the_text_that_came(text: str) -> None:
    assert of_blocks(CALL | {"input": text}).calls == (DeclaredCall("toolu_1", "Write", text),)


def test_arguments_may_come_whole_with_the_beginning() -> None:
    start = '{"type":"tool_use","id":"toolu_1","name":"Write","input":{"n": 1.0}}'
    body = raw_stream(start).replace(b"end_turn", b"tool_use")
    signals, stream = read(body)
    assert signals == [CallInput(0, '{"n": 1.0}')]
    assert stream.response(None).calls[0].arguments == '{"n": 1.0}'


REASONS = [
    "end_turn",
    "stop_sequence",
    "max_tokens",
    "model_context_window_exceeded",
    "pause_turn",
    "refusal",
    "x",
]


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("ends", [True, False])
def test_calls_run_only_where_the_model_stopped_for_them(reason: str, ends: bool) -> None:
    events = message_events([CALL], stop=reason)
    found = of_events([e for e in events if ends or e["type"] != "content_block_stop"])
    assert found.stop in CUT_STOPS
    assert len(found.calls) == 1


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("end_turn", Stop.END),
        ("tool_use", Stop.END),
        ("stop_sequence", Stop.END),
        ("max_tokens", Stop.LENGTH),
        ("model_context_window_exceeded", Stop.LENGTH),
        ("pause_turn", Stop.PAUSE),
        ("refusal", Stop.REFUSAL),
        ("something_new", Stop.UNKNOWN),
    ],
)
def test_p61_every_reason_has_its_word(reason: str, stop: Stop) -> None:
    found = of_blocks(TEXT, stop=reason)
    assert found.stop == stop
    said = [block for block in found.blocks if block.format == "anthropic-messages/message/ending"]
    plain = reason in ("end_turn", "tool_use", "max_tokens", "pause_turn")
    assert [json.loads(block.text)["stop_reason"] for block in said] == ([] if plain else [reason])


def test_p61_why_the_model_refused_is_kept() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "because"}
    events = message_events([])
    events[-2]["delta"] |= {"stop_reason": "refusal", "stop_details": details}
    (kept,) = of_events(events).blocks
    assert json.loads(kept.text) == {"stop_reason": "refusal", "stop_details": details}


def test_what_was_cut_is_kept_and_marked_as_such() -> None:
    use = {"type": "server_tool_use", "id": "w", "name": "n", "input": '{"q":'}
    events = message_events([THOUGHT | {"signature": ""}, use], stop="max_tokens")
    open_ended = [e for e in events if e["type"] != "content_block_stop"]
    formats = [block.format for block in of_events(open_ended).blocks]
    prefix = "anthropic-messages/incomplete"
    assert formats == [f"{prefix}/thinking", f"{prefix}/server_tool_use"]


# --- what is shown, and where the bytes were cut -----------------------------------------------


def test_what_is_shown_is_what_is_kept() -> None:
    signals, stream = read(
        message_reply("hello", [DeclaredCall("toolu_1", "W", '{"a":1}')], thinking="hm").body
    )
    assert "".join(s.text for s in signals if isinstance(s, Text)) == "hello"
    assert "".join(s.text for s in signals if isinstance(s, Thinking)) == "hm"
    assert "".join(s.text for s in signals if isinstance(s, CallInput)) == '{"a":1}'
    assert stream.response("req_1").provider_ids == {
        "response_id": "msg_fake",
        "model": "fake-model",
        "request_id": "req_1",
    }


@given(st.lists(st.integers(0, 5000), max_size=20))
def test_where_the_bytes_are_cut_changes_nothing(places: list[int]) -> None:
    body = message_reply(blocks=[THOUGHT, TEXT, CALL | {"caller": {"type": "direct"}}]).body
    stream = AnswerStream(MessageAccumulator(), parse=read_event)
    ends = sorted({0, len(body), *(place % len(body) for place in places)})
    for start, end in pairwise(ends):
        stream.feed(body[start:end])
    assert stream.response(None) == replace_id(response(body))


def replace_id(found: Response) -> Response:
    ids = {name: value for name, value in found.provider_ids.items() if name != "request_id"}
    return Response(found.blocks, found.calls, found.stop, found.usage, ids)


# --- counts -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({}, {}),
        ({"input_tokens": None, "output_tokens": "3"}, {}),
        ({"output_tokens": 3}, {"output_tokens": 3}),
        (
            {
                "input_tokens": 10,
                "cache_read_input_tokens": 100,
                "cache_creation_input_tokens": 1000,
                "output_tokens": 5,
                "output_tokens_details": {"thinking_tokens": 2},
                "server_tool_use": {"web_search_requests": 3, "web_fetch_requests": 0, "x": 1},
            },
            {
                "input_tokens": 1110,
                "cached_input_tokens": 100,
                "cache_write_tokens": 1000,
                "output_tokens": 5,
                "total_tokens": 1115,
                "reasoning_tokens": 2,
                "web_search_requests": 3,
            },
        ),
        (
            {
                "input_tokens": 1,
                "output_tokens": 2,
                "iterations": [
                    {"type": "compaction", "input_tokens": 10, "output_tokens": 20},
                    {"type": "message", "input_tokens": 1, "output_tokens": 2},
                ],
            },
            {
                "input_tokens": 11,
                "output_tokens": 22,
                "total_tokens": 33,
                "cached_input_tokens": 0,
                "cache_write_tokens": 0,
            },
        ),
        (
            {"input_tokens": 1, "output_tokens": 2, "iterations": [None]},
            {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
        ),
    ],
    ids=range(6),
)
def test_counts_have_the_names_that_every_provider_s_have(
    usage: dict[str, Any], expected: dict[str, int]
) -> None:
    assert counts(usage) == expected


def test_counts_are_cumulative_and_not_added() -> None:
    events = message_events([TEXT])
    events.insert(-1, events[-2] | {"usage": {"output_tokens": 7, "input_tokens": None}})
    assert of_events(events).usage == {"input_tokens": 10, "output_tokens": 7, "total_tokens": 17}


# --- JSON taken apart -----------------------------------------------------------------------

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), _JSON, max_size=4), st.sampled_from([None, 1]))
def test_an_object_taken_apart_and_joined_is_the_same(value: dict[str, Any], indent: int | None) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=bool(indent))
    parts = members(text)
    assert {name: json.loads(part) for name, part in parts.items()} == value
    assert all(part in text for part in parts.values())
    assert json.loads(joined(parts)) == value


@given(st.lists(_JSON, max_size=4), st.sampled_from([None, 1]))
def test_an_array_taken_apart_is_the_same(value: list[Any], indent: int | None) -> None:
    parts = elements(json.dumps(value, indent=indent))
    assert [json.loads(part) for part in parts] == value


@given(st.text(st.characters(exclude_categories=[])))
def test_any_string_is_written_so_that_it_comes_back(value: str) -> None:
    assert json.loads(exact_json(value)) == value


@pytest.mark.parametrize("text", ["", "[", "1", '{"a"', '{"a":1,}', "[1]", '{"n":NaN}', "[" * 100_000])
def test_what_is_no_object_is_told(text: str) -> None:
    assert not is_object(text)


def test_orjson_agrees_on_what_it_can_read() -> None:
    assert orjson.loads(exact_json("é\u2028")) == "é\u2028"
