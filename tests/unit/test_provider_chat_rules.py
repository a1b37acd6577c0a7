"""The checker of the chat dialect refuses what servers refuse: one fault at a time in a body that is fine."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from minutebook.testing.wire_rules import CHECKS

check = CHECKS["openai-chat"]

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}}
DOCUMENT = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,cGRm"}}
FINE: dict[str, Any] = {
    "model": "m",
    "stream": True,
    "max_tokens": 5,
    "reasoning_effort": "high",
    "tools": [{"type": "function", "function": {"name": "look", "description": "", "parameters": {}}}],
    "response_format": {
        "type": "json_schema",
        "json_schema": {"name": "o", "schema": {"type": "object"}, "strict": False},
    },
    "messages": [
        {"role": "system", "content": "be kind"},
        {"role": "user", "content": [{"type": "text", "text": "see"}, PICTURE, DOCUMENT]},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "",
            "reasoning_details": [{"signature": "s"}],
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}},
                {"id": "b", "type": "function", "function": {"name": "look", "arguments": '{"a":1}'}},
            ],
        },
        {"role": "tool", "tool_call_id": "b", "content": "2"},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "assistant", "content": "done"},
        {"role": "user", "content": "go on"},
    ],
}

Change = Callable[[dict[str, Any]], object]


def call(body: dict[str, Any], index: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = body["messages"][2]["tool_calls"][index]
    return found


def message(number: int, **changes: Any) -> Change:
    return lambda body: body["messages"][number].update(changes)


def within(**changes: Any) -> Change:
    return lambda body: body.update(changes)


def called(**changes: Any) -> Change:
    return lambda body: call(body)["function"].update(changes)


def ask_both(body: dict[str, Any]) -> None:
    del body["reasoning_effort"]
    body["reasoning"] = {"effort": "high", "max_tokens": 1}


FAULTS: dict[str, Change] = {
    "no model": within(model=""),
    "not streamed": within(stream=False),
    "several choices": within(n=1),
    "a field that says nothing": within(temperature=None),
    "two limits": within(max_completion_tokens=5),
    "no tools": within(tools=[]),
    "a tool twice": lambda body: body["tools"].append(body["tools"][0]),
    "a tool's name": lambda body: body["tools"][0]["function"].update(name="a b"),
    "a tool without a schema": lambda body: body["tools"][0]["function"].update(parameters=None),
    "any object as output": within(response_format={"type": "json_object"}),
    "an output of no name": lambda body: body["response_format"]["json_schema"].update(name=""),
    "an output of no object": lambda body: body["response_format"]["json_schema"].update(schema={}),
    "an output said to be strict": lambda body: body["response_format"]["json_schema"].update(strict=True),
    "an effort beside reasoning": within(reasoning={"effort": "high"}),
    "effort and budget": ask_both,
    "an effort of nothing": within(thinking={"type": "disabled"}),
    "an effort that is no word": within(reasoning_effort="HIGH!"),
    "no messages": within(messages=[]),
    "an unknown role": message(5, role="model"),
    "a field of another role": message(6, tool_calls=[]),
    "a late system message": lambda body: body["messages"].append({"role": "system", "content": "x"}),
    "an empty input": message(6, content=" \n"),
    "no parts": message(6, content=[]),
    "an empty part": message(6, content=[{"type": "text", "text": ""}]),
    "an unknown part": message(6, content=[{"type": "input_text", "text": "x"}]),
    "a picture elsewhere": message(
        6, content=[{"type": "image_url", "image_url": {"url": "http://h/x.png"}}]
    ),
    "a picture that is none": message(
        6, content=[{"type": "image_url", "image_url": {"url": "data:text/plain;base64,cG5n"}}]
    ),
    "a picture without bytes": message(
        6, content=[{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}]
    ),
    "broken bytes": message(
        6, content=[{"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5"}}]
    ),
    "an empty answer": message(5, content=""),
    "an answer of blanks": message(5, content=" "),
    "an empty list of calls": message(5, tool_calls=[]),
    "an empty list of details": message(2, reasoning_details=[]),
    "reasoning that is no text": message(2, reasoning_content=None),
    "a foreign id": lambda body: call(body).update(id="call|1"),
    "a long id": lambda body: call(body).update(id="x" * 41),
    "an id twice": lambda body: call(body).update(id="b"),
    "a call of another kind": lambda body: call(body).update(type="custom"),
    "more in a call": lambda body: call(body).update(index=0),
    "a foreign name": called(name="functions.look:3"),
    "no name": called(name=""),
    "no arguments": called(arguments=""),
    "arguments that are no object": called(arguments="[1]"),
    "half of the arguments": called(arguments='{"a":'),
    "a missing result": lambda body: body["messages"].pop(3),
    "a late result": lambda body: body["messages"].insert(5, body["messages"].pop(3)),
    "a second result": lambda body: body["messages"].insert(3, body["messages"][3]),
    "a result of nothing": message(4, tool_call_id="c"),
    "an empty result": message(3, content=""),
    "a result of blanks": message(3, content="\n"),
    "an id again in a later turn": lambda body: body["messages"].extend(copy.deepcopy(body["messages"][2:5])),
    "calls at the end": lambda body: body["messages"].append(
        {**body["messages"][2], "tool_calls": [{**call(body), "id": "c"}]}
    ),
}


def test_a_body_that_is_fine_is_taken() -> None:
    check(FINE)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_refused(fault: str) -> None:
    body = copy.deepcopy(FINE)
    FAULTS[fault](body)
    with pytest.raises((AssertionError, ValueError)):
        check(body)
