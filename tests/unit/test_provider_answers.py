"""Chat answers read from bytes: how servers differ, and how answers end."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.answer_stream import MAX_ANSWER_BYTES, AnswerStream
from adapters.openai_chat_accumulator import ChatAccumulator
from domain.model_ports import Block, Response, Signal, Text, Thinking
from domain.values import Stop
from minutebook.testing.chat_replies import DONE, stream_reply
from minutebook.testing.chat_replies import delta_chunk as delta


def entry(
    index: int | None = 0, call_id: str | None = None, name: str | None = None, arguments: Any = None
) -> dict[str, Any]:
    return {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}


def stream(*chunks: dict[str, Any], done: bool = True) -> bytes:
    return stream_reply(chunks, done=done).body


def read(pieces: Iterable[bytes]) -> tuple[list[Signal], AnswerStream]:
    answer, signals = AnswerStream(ChatAccumulator()), []
    for piece in pieces:
        signals += answer.feed(piece)
        if answer.finished or answer.failure:
            return signals, answer
    return signals + answer.end(), answer


def response(*chunks: dict[str, Any]) -> Response:
    _, answer = read([stream(*chunks)])
    assert answer.finished, answer.failure
    return answer.response("req-1")


def failure_kind(body: bytes) -> str:
    _, answer = read([body])
    assert not answer.finished
    assert answer.failure is not None
    return answer.failure.kind


# --- text, reasoning, usage ----------------------------------------------------------------


def test_text_is_shown_in_pieces_and_kept_whole() -> None:
    signals, answer = read([stream(delta(content="Hel"), delta(content="lo"), delta("stop"))])
    assert signals == [Text("Hel"), Text("lo")]
    assert answer.response(None) == Response((Block("text", "Hello"),), (), Stop.END)


def test_ids_and_usage_come_from_any_chunk() -> None:
    first = delta(content="x") | {"id": "", "model": ""}
    second = delta("stop") | {"id": "chat-1", "model": "m-2024", "usage": None}
    usage = {
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "total_tokens": 10,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    found = response(first, second, {"choices": [], "usage": usage})
    assert found.provider_ids == {"response_id": "chat-1", "model": "m-2024", "request_id": "req-1"}
    assert found.usage == {
        "input_tokens": 7,
        "output_tokens": 3,
        "total_tokens": 10,
        "cached_input_tokens": 4,
        "reasoning_tokens": 2,
    }


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        (None, {}),
        ("many", {}),
        ({"prompt_tokens": -1, "completion_tokens": True, "total_tokens": 2.5}, {}),
        ({"prompt_tokens": 0, "prompt_tokens_details": None}, {"input_tokens": 0}),
        ({"prompt_cache_hit_tokens": 5}, {"cached_input_tokens": 5}),
    ],
)
def test_usage_that_makes_no_sense_is_left_out(usage: Any, expected: dict[str, int]) -> None:
    assert response(delta("stop", content="x") | {"usage": usage}).usage == expected


def test_cumulative_usage_is_not_added_up() -> None:
    chunks = [delta(content="x") | {"usage": {"completion_tokens": n}} for n in (1, 2, 3)]
    assert response(*chunks, delta("stop")).usage == {"output_tokens": 3}


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_is_shown_and_kept_as_it_came(field: str) -> None:
    be: dict[str, Any] = {field: "be"}
    cause: dict[str, Any] = {field: "cause"}
    chunks = [delta(**be), delta(**cause), delta("stop", content="x")]
    signals, answer = read([stream(*chunks)])
    assert signals == [Thinking("be"), Thinking("cause"), Text("x")]
    assert answer.response(None).blocks[0] == Block("opaque", "because", f"openai-chat/{field}")


def test_reasoning_repeated_in_three_fields_is_shown_once() -> None:
    details = [{"type": "reasoning.text", "text": "hm"}]
    signals, answer = read(
        [stream(delta("stop", reasoning="hm", reasoning_content="hm", reasoning_details=details))]
    )
    assert signals == [Thinking("hm")]
    assert len(answer.response(None).blocks) == 3


def test_reasoning_details_in_pieces_become_one_item_with_its_signature() -> None:
    def detail(**fields: Any) -> dict[str, Any]:
        return delta(reasoning_details=[{"type": "reasoning.text", "index": 0, **fields}])

    found = response(
        detail(text="", signature=""), detail(text="a"), detail(text="é"), detail(signature="s==")
    )
    assert orjson.loads(found.blocks[0].text) == [
        {"type": "reasoning.text", "index": 0, "text": "aé", "signature": "s=="}
    ]


def test_reasoning_details_that_come_whole_stay_apart() -> None:
    items = [
        {"type": "reasoning.encrypted", "index": 0, "data": "one"},
        {"type": "reasoning.encrypted", "index": 0, "data": "two"},
        {"type": "reasoning.summary", "index": 1, "summary": "s"},
    ]
    found = response(*(delta(reasoning_details=[item]) for item in items), delta("stop"))
    assert orjson.loads(found.blocks[0].text) == items


def test_provider_material_in_two_chunks_is_merged() -> None:
    found = response(
        delta(extra_content={"google": {"thought": True}}),
        delta("stop", extra_content={"google": {"thought_signature": "x"}}),
    )
    assert orjson.loads(found.blocks[0].text) == {"google": {"thought": True, "thought_signature": "x"}}


def test_halves_of_a_character_find_each_other() -> None:
    body = b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n'
    body += b'data: {"choices":[{"delta":{"content":"\\ude00b"}}]}\n\n'
    signals, answer = read([body + DONE])
    assert signals == [Text("a"), Text("\U0001f600b")]
    assert answer.response(None).blocks == (Block("text", "a\U0001f600b"),)


def test_a_half_that_stays_alone_is_kept_and_not_shown() -> None:
    signals, answer = read([b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n' + DONE])
    assert signals == [Text("a")]
    assert answer.response(None).blocks == (Block("text", "a\ud83d"),)


def test_content_in_parts_is_its_text() -> None:
    parts = [
        {"type": "thinking", "thinking": []},
        {"type": "text", "text": "a"},
        {"type": "text", "text": "b"},
    ]
    assert response(delta("stop", content=parts)).blocks == (Block("text", "ab"),)


def test_p54_pieces_without_text_are_nothing() -> None:
    signals, answer = read([stream(delta(content=""), delta(content=None, refusal=""), delta("stop"))])
    assert signals == []
    assert answer.response(None).blocks == ()


def test_of_several_choices_the_first_counts() -> None:
    found = response(delta(content="a"), delta(index=1, content="b"), delta("stop"), delta("length", index=1))
    assert (found.blocks, found.stop) == ((Block("text", "a"),), Stop.END)


# --- why it ended ---------------------------------------------------------------------------

CALLS: dict[str, Any] = {"tool_calls": [entry(0, "c", "f", "{}")]}


@pytest.mark.parametrize(
    ("finish", "fields", "stop"),
    [
        ("stop", {}, Stop.END),
        ("stop", CALLS, Stop.TOOL_CALLS),
        ("tool_calls", CALLS, Stop.TOOL_CALLS),
        ("tool_calls", {}, Stop.END),
        ("length", CALLS, Stop.LENGTH),
        ("content_filter", {}, Stop.REFUSAL),
        ("stop", {"refusal": "I will not"}, Stop.REFUSAL),
        ("something new", {}, Stop.UNKNOWN),
        (None, CALLS, Stop.UNKNOWN),
        ("", {}, Stop.UNKNOWN),
    ],
)
def test_reasons_in_one_vocabulary(finish: str | None, fields: dict[str, Any], stop: Stop) -> None:
    assert response(delta(finish, **fields)).stop is stop


def test_a_cut_that_was_reported_once_is_not_taken_back() -> None:
    assert response(delta("length", **CALLS), delta("stop"), delta(None)).stop is Stop.LENGTH


def test_a_refusal_is_visible_text() -> None:
    signals, answer = read([stream(delta(refusal="I will "), delta("stop", refusal="not"))])
    assert signals == [Text("I will "), Text("not")]
    assert answer.response(None).blocks == (Block("text", "I will not", "openai-chat/refusal"),)


@pytest.mark.parametrize(
    ("finish", "kind"),
    [
        ("insufficient_system_resource", "overloaded"),
        ("network_error", "server_error"),
        ("error", "provider_error"),
    ],
)
def test_a_server_that_gave_up_did_not_answer(finish: str, kind: str) -> None:
    _, answer = read([stream(delta(content="half"), delta(finish))])
    with pytest.raises(Exception, match=rf"^{kind}: "):
        answer.response(None)


@pytest.mark.parametrize("chunks", [[], [{"choices": []}], [{"ping": 1}], [delta("stop", index=1)]])
def test_a_marker_without_an_answer_is_no_answer(chunks: list[Any]) -> None:
    _, answer = read([stream(*chunks)])
    assert answer.finished
    with pytest.raises(Exception, match=r"^empty_response: "):
        answer.response(None)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "stream_cut"),
        (b"\n \n", "stream_cut"),
        (stream(delta("stop", content="x"), done=False), "stream_cut"),
        (stream(delta("stop"), done=False) + b"data: [DONE", "stream_cut"),
        (b'{"choices":[{"message":{"content":"x"}', "stream_cut"),
        (b"<!doctype html><p>Sign in", "unexpected_content"),
        (b"\xef\xbb\xbf <html>", "unexpected_content"),
        (b"data: {oops}\n\n", "invalid_response"),
        (b"data: 7\n\n", "invalid_response"),
        (b"data: []\n\n", "invalid_response"),
        (b"data: \xff\xfe\n\n", "invalid_response"),
        (b"data: " + b"[" * 200_000 + b"\n\n", "invalid_response"),
        (stream({"error": {"code": 429, "message": "slow down"}}), "rate_limited"),
        (stream({"error": "broken"}), "provider_error"),
        (b'event: error\ndata: {"message":"busy","type":"overloaded_error"}\n\n', "overloaded"),
        (b'{"error":{"code":"insufficient_quota"}}', "quota_exceeded"),
        (b'[{"error":{"code":503,"status":"UNAVAILABLE"}}]', "overloaded"),
        (
            b'data: {"object":"error","message":"maximum context length is 5","code":400}\n\n',
            "context_length_exceeded",
        ),
    ],
    ids=range(18),
)
def test_bytes_that_are_no_answer(body: bytes, kind: str) -> None:
    assert failure_kind(body) == kind


def test_an_answer_has_so_many_bytes_and_no_more() -> None:
    answer = AnswerStream(ChatAccumulator())
    piece = b":" * (1024 * 1024)
    for _ in range(MAX_ANSWER_BYTES // len(piece)):
        answer.feed(piece)
        assert answer.failure is None
    answer.feed(b":")
    assert answer.failure is not None
    assert answer.failure.kind == "response_too_large"


def test_text_before_an_error_is_handed_out_first() -> None:
    signals, answer = read([stream(delta(content="half"), {"error": {"message": "boom"}})])
    assert signals == [Text("half")]
    assert answer.failure is not None


def test_numbers_that_json_does_not_know_break_nothing() -> None:
    body = b'data: {"choices":[{"delta":{"content":"x"},"logprobs":NaN,"finish_reason":"stop"}]}\n\n'
    _, answer = read([body + DONE])
    assert answer.response(None).blocks == (Block("text", "x"),)


# --- cuts ---------------------------------------------------------------------------------

WHOLE = [
    stream(
        delta(content="héllo \U0001f600"),
        delta(reasoning_content="hm"),
        delta(tool_calls=[entry(0, "c", "f", '{"é":1}')]),
        delta("tool_calls"),
    ),
    b"\xef\xbb\xbf: ping\r\n\r\n" + stream(delta("stop", content="x")).replace(b"\n", b"\r\n"),
    orjson.dumps({"choices": [{"message": {"content": "é", "tool_calls": [entry(0, "c", "f", "{}")]}}]}),
    stream(delta(content="x"), {"error": {"code": 502}}),
]


@given(st.sampled_from(WHOLE), st.lists(st.integers(0, 700)))
def test_cuts_between_reads_change_nothing(body: bytes, cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(body)]
    signals, answer = read([body[a:b] for a, b in pairwise(places)])
    whole_signals, whole = read([body])
    assert signals == whole_signals
    assert answer.finished == whole.finished
    if whole.failure is None:
        assert answer.response(None) == whole.response(None)
    else:
        assert answer.failure is not None
        assert (answer.failure.kind, answer.failure.message) == (whole.failure.kind, whole.failure.message)


@pytest.mark.parametrize("body", WHOLE[:3], ids=["stream", "stream with CRLF", "document"])
def test_an_answer_cut_anywhere_is_not_finished(body: bytes) -> None:
    marked = body.find(b"[DONE]") + len(b"[DONE]") if b"[DONE]" in body else len(body)
    for end in range(len(body)):
        _, answer = read([body[:end]])
        assert answer.finished == (end >= marked), end
        assert answer.finished or answer.failure is not None


def test_the_digest_is_over_what_arrived() -> None:
    answer = AnswerStream(ChatAccumulator())
    assert answer.digest() is None
    answer.feed(b"data: ")
    answer.feed(b"x")
    assert answer.digest() == hashlib.sha256(b"data: x").hexdigest()
