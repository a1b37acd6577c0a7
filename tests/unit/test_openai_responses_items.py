"""Which item an event is about, at servers that leave out or change what says so."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.openai_responses_accumulator import ResponsesAccumulator
from adapters.openai_responses_items import MAX_ITEMS
from domain.errors import ModelFailed
from domain.model_ports import CallInput, DeclaredCall, Response, Signal, Text, Thinking
from minutebook.testing.responses_replies import output_items, response_events

CALLS = [("c0", "a", '{"n":0}'), ("c1", "b", '{"n":1}')]


def events(**options: Any) -> list[dict[str, Any]]:
    output = output_items("hello", [DeclaredCall(*call) for call in CALLS], reasoning="hm")
    return response_events(output, **options)


def read(chunks: list[dict[str, Any]]) -> tuple[Response, list[Signal]]:
    accumulator = ResponsesAccumulator()
    signals = [signal for chunk in chunks for signal in accumulator.add(chunk)]
    assert accumulator.finished
    return accumulator.response(), signals


def without(chunks: list[dict[str, Any]], *fields: str) -> list[dict[str, Any]]:
    return [{k: v for k, v in chunk.items() if k not in fields} for chunk in chunks]


def rotated(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Another id in every event."""
    found = []
    for number, chunk in enumerate(chunks):
        changed = dict(chunk)
        if "item_id" in chunk:
            changed["item_id"] = f"id-{number}"
        if "item" in chunk:
            changed["item"] = {**chunk["item"], "id": f"id-{number}"}
        found.append(changed)
    return found


def always_zero(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**chunk, "output_index": 0} if "output_index" in chunk else chunk for chunk in chunks]


def finals_only(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [chunk for chunk in chunks if not chunk["type"].endswith((".delta", ".added"))]


@pytest.mark.parametrize(
    "change",
    [
        lambda chunks: chunks,
        lambda chunks: without(chunks, "sequence_number"),
        lambda chunks: without(chunks, "output_index", "content_index", "summary_index", "sequence_number"),
        lambda chunks: without(chunks, "item_id"),
        lambda chunks: without(chunks, "output_index", "item_id"),
        rotated,
        lambda chunks: without(rotated(chunks), "output_index"),
        always_zero,
        finals_only,
        lambda chunks: without(finals_only(chunks), "output_index"),
        lambda chunks: chunks[-1:],
        lambda chunks: [chunk for chunk in chunks if "done" not in chunk["type"]],
    ],
    ids=range(12),
)
def test_the_answer_is_the_same_whatever_names_its_items(change: Any) -> None:
    response, signals = read(change(events()))
    texts = [block.text for block in response.blocks if block.kind == "text"]
    assert texts == ["hello"]
    assert [(c.provider_call_id, c.name, c.arguments) for c in response.calls] == CALLS
    assert [b.kind for b in response.blocks] == ["opaque", "text"]
    shown = "".join(s.text for s in signals if isinstance(s, Text))
    thought = "".join(s.text for s in signals if isinstance(s, Thinking))
    assert (shown, thought) == ("hello", "hm")
    inputs: dict[int, str] = {}
    for signal in signals:
        if isinstance(signal, CallInput):
            inputs[signal.index] = inputs.get(signal.index, "") + signal.text
    assert list(inputs.items()) == [(0, '{"n":0}'), (1, '{"n":1}')]


def test_items_that_run_beside_each_other_do_not_mix() -> None:
    made = events()
    about = {n: [e for e in made if e.get("output_index") == n] for n in range(4)}
    mixed: list[dict[str, Any]] = []
    while any(about.values()):
        mixed += [about[n].pop(0) for n in range(4) if about[n]]
    response, _ = read([made[0], *mixed, made[-1]])
    assert [(c.provider_call_id, c.name, c.arguments) for c in response.calls] == CALLS


def test_the_whole_arguments_count_where_pieces_disagree() -> None:
    made = events()
    for chunk in made:
        if chunk["type"] == "response.function_call_arguments.delta":
            chunk["delta"] = "?"
    response, _ = read(made)
    assert [call.arguments for call in response.calls] == ['{"n":0}', '{"n":1}']


def test_arguments_may_come_as_an_object() -> None:
    made = finals_only(events())
    for chunk in made:
        if chunk.get("item", {}).get("type") == "function_call":
            chunk["item"] = {**chunk["item"], "arguments": {"n": 7}}
    response, _ = read(made)
    assert [call.arguments for call in response.calls] == ['{"n":7}', '{"n":7}']


def test_events_of_no_known_kind_are_passed_over() -> None:
    odd: list[dict[str, Any]] = [
        {"type": "response.web_search_call.searching", "output_index": 9},
        {"type": "response.output_text.annotation.added", "output_index": 1},
        {"type": "keepalive"},
        {},
        {"type": "response.output_item.done"},
    ]
    made = events()
    with_odd = [*made[:2], *odd[:4], *made[2:]]
    assert read(with_odd) == read(made)


def test_a_text_cut_within_a_character_is_whole_again() -> None:
    pieces = [{"type": "response.output_text.delta", "delta": half} for half in ("a\ud83d", "\ude00", "!")]
    begun = {"type": "response.output_item.added", "item": {"type": "message", "content": []}}
    ended = {"type": "response.completed", "response": {"status": "completed"}}
    response, signals = read([begun, *pieces, ended])
    assert [block.text for block in response.blocks] == ["a\U0001f600!"]
    assert signals == [Text("a"), Text("\U0001f600"), Text("!")]


def test_nothing_counts_before_the_end() -> None:
    accumulator = ResponsesAccumulator()
    for chunk in events()[:-1]:
        accumulator.add(chunk)
    accumulator.done()
    assert not accumulator.finished


def test_an_end_without_anything_is_no_answer() -> None:
    accumulator = ResponsesAccumulator()
    accumulator.add({"type": "response.completed", "response": {}})
    with pytest.raises(ModelFailed, match="empty_response"):
        accumulator.response()


def test_an_answer_has_so_many_items_and_no_more() -> None:
    accumulator = ResponsesAccumulator()
    done = {"type": "response.output_item.done", "item": {"type": "message", "content": []}}
    for _ in range(MAX_ITEMS):
        accumulator.add(done)
    with pytest.raises(ModelFailed, match="response_too_large"):
        accumulator.add(done)
