"""The calls of an answer: which piece belongs to which call, at servers that differ."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from adapters.answer_stream import AnswerStream
from adapters.joined_text import JoinedText
from adapters.openai_chat_accumulator import ChatAccumulator
from adapters.openai_chat_calls import CallCollector
from domain.limits import MAX_CALLS_PER_RESPONSE
from domain.model_ports import Block, CallInput, DeclaredCall, Response, Signal
from domain.values import Stop
from minutebook.testing.chat_replies import delta_chunk as delta
from minutebook.testing.chat_replies import stream_reply


def entry(
    index: int | None = 0, call_id: str | None = None, name: str | None = None, arguments: Any = None
) -> dict[str, Any]:
    return {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}


def read(*chunks: dict[str, Any]) -> tuple[list[Signal], AnswerStream]:
    answer = AnswerStream(ChatAccumulator())
    return answer.feed(stream_reply(chunks).body), answer


def response(*chunks: dict[str, Any]) -> Response:
    _, answer = read(*chunks)
    assert answer.finished, answer.failure
    return answer.response(None)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param(
            [entry(0, "c1", "f", ""), entry(0, None, None, '{"a"'), entry(0, None, None, ":1}")],
            [("c1", "f", '{"a":1}')],
            id="by index",
        ),
        pytest.param(
            [
                entry(0, "c1", "f", "{"),
                entry(1, "c2", "g", "{"),
                entry(0, arguments="}"),
                entry(1, arguments="}"),
            ],
            [("c1", "f", "{}"), ("c2", "g", "{}")],
            id="interleaved",
        ),
        pytest.param(
            [entry(0, "c1", "f", None), entry(0, "", "", '{"a":1}')],
            [("c1", "f", '{"a":1}')],
            id="null and empty do not overwrite",
        ),
        pytest.param(
            [entry(None, "c1", "f", '{"a":1}'), entry(None, "c2", "g", "{}")],
            [("c1", "f", '{"a":1}'), ("c2", "g", "{}")],
            id="whole calls without index",
        ),
        pytest.param(
            [entry(None, "c1", "f", '{"a":'), entry(None, None, None, "1}")],
            [("c1", "f", '{"a":1}')],
            id="pieces without index",
        ),
        pytest.param(
            [entry(0, "", "f", '{"a":1}'), entry(0, "", "f", '{"a":2}')],
            [("", "f", '{"a":1}'), ("", "f", '{"a":2}')],
            id="whole calls, all index 0, no id",
        ),
        pytest.param(
            [entry(0, "c1", "f", ""), entry(0, "c2", "g", "{}")],
            [("c1", "f", ""), ("c2", "g", "{}")],
            id="same index, other id and name",
        ),
        pytest.param(
            [entry(0, "id-1", "f", "{"), entry(0, "id-2", None, "}")],
            [("id-1", "f", "{}")],
            id="a new id in every piece",
        ),
        pytest.param(
            [entry(0, "c1", "f", "{"), entry(0, "c1", "f", "}"), entry(0, "c1", "f", "")],
            [("c1", "f", "{}")],
            id="name repeated in every piece",
        ),
        pytest.param(
            [entry(0, "", "f", "{}"), entry(0, "", "f", " \n"), entry(0, "", "f", "{}")],
            [("", "f", "{} \n"), ("", "f", "{}")],
            id="white space behind a whole call",
        ),
        pytest.param([entry(0, "c1", "f", {"a": 1})], [("c1", "f", '{"a":1}')], id="arguments as an object"),
        pytest.param([entry(0, "c1", "f", None)], [("c1", "f", "")], id="no arguments at all"),
        pytest.param([entry(0, None, None, "{}")], [("", "", "{}")], id="neither id nor name"),
    ],
)
def test_pieces_of_calls_find_their_call(entries: list[Any], expected: list[tuple[str, str, str]]) -> None:
    chunks = [delta(tool_calls=[one]) for one in entries]
    signals, answer = read(*chunks, delta("tool_calls"))
    found = answer.response(None)
    assert [(c.provider_call_id, c.name, c.arguments) for c in found.calls] == expected
    shown: dict[int, str] = {}
    for signal in signals:
        assert isinstance(signal, CallInput)
        shown[signal.index] = shown.get(signal.index, "") + signal.text
    assert shown == {i: arguments for i, (_, _, arguments) in enumerate(expected) if arguments}


def test_pieces_are_not_joined_for_each_new_piece() -> None:
    collector, joins = CallCollector(), 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal joins
        joins += event == "call" and frame.f_code is JoinedText.text.__code__

    sys.setprofile(count)
    try:
        for piece in ('{"x":"', *["word "] * 500, '"}'):
            collector.add(entry(0, "c1", "f", piece))
    finally:
        sys.setprofile(None)
    assert len(collector.declared()[0].arguments) == 2508
    assert joins == 0


def test_p56_one_id_for_two_calls_is_two_calls() -> None:
    both = [entry(None, "call_0", "a", "{}"), entry(None, "call_0", "b", "{}")]
    indexed = [entry(0, "call_0", "a", "{}"), entry(1, "call_0", "b", "{}")]
    for entries in (both, indexed):
        found = response(delta("tool_calls", tool_calls=entries))
        assert found.calls == (DeclaredCall("call_0", "a", "{}"), DeclaredCall("call_0", "b", "{}"))


def test_p58_cut_off_arguments_are_kept_as_they_are() -> None:
    cut = '{"path":"a","content":"x'
    found = response(delta(tool_calls=[entry(0, "c1", "Write", cut)]), delta("length"))
    assert (found.calls[0].arguments, found.stop) == (cut, Stop.LENGTH)


def test_a_signature_of_a_call_is_kept_beside_it() -> None:
    call = entry(0, "", "f", "{}") | {"extra_content": {"google": {"thought_signature": "x"}}}
    found = response(delta("tool_calls", tool_calls=[entry(1, "c", "g", "{}"), call]))
    assert found.blocks == (
        Block(
            "opaque",
            '{"google":{"thought_signature":"x"}}',
            "openai-chat/tool_calls/1/extra_content",
        ),
    )


@pytest.mark.parametrize("junk", [None, 7, "x", {}, [None], [7], [{"function": "f"}], [{"index": "0"}]])
def test_junk_in_place_of_calls_breaks_nothing(junk: Any) -> None:
    assert response(delta("stop", content="x", tool_calls=junk)).blocks == (Block("text", "x"),)


def test_a_response_has_so_many_calls_and_no_more() -> None:
    entries = [entry(i, f"c{i}", "f", "{}") for i in range(MAX_CALLS_PER_RESPONSE + 1)]
    assert len(response(delta("tool_calls", tool_calls=entries[:-1])).calls) == MAX_CALLS_PER_RESPONSE
    failure = read(delta(tool_calls=entries))[1].failure
    assert failure is not None
    assert (failure.kind, failure.retryable) == ("too_many_calls", False)
