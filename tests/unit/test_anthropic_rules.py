"""The strict rules of the messages dialect refuse what servers refuse, one thing at a time."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from minutebook.testing.wire_rules import CHECKS
from minutebook.testing.wire_rules import anthropic as rules

TEXT = {"type": "text", "text": "hello"}
THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "Write", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "done"}
USE = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
TOOL = {"name": "Write", "input_schema": {"type": "object"}}
IMAGE: dict[str, Any] = {
    "type": "image",
    "source": {"type": "base64", "media_type": "image/png", "data": "eA=="},
}
FILE: dict[str, Any] = {
    "type": "document",
    "source": {"type": "text", "media_type": "text/plain", "data": "x"},
}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def model(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


ASKED = user(TEXT)
LOOP = [ASKED, model(THOUGHT, TEXT, CALL), user(RESULT)]


def body(*messages: Any, **fields: Any) -> dict[str, Any]:
    return deepcopy({"model": "m", "max_tokens": 4096, "messages": list(messages), "stream": True, **fields})


ENABLED = {"type": "enabled", "budget_tokens": 1024}

ACCEPTED = [
    body(ASKED),
    body({"role": "user", "content": "hello"}),
    body(*LOOP, tools=[TOOL, {"type": "web_search_20250305", "name": "web_search"}], thinking=ENABLED),
    body(ASKED, user(TEXT), model(TEXT), model(TEXT)),  # combined by the server
    body(*LOOP[:2], user(RESULT, TEXT)),
    body(*LOOP, user(TEXT)),
    body(*LOOP, model(CALL | {"id": "toolu_2"}), user(RESULT | {"tool_use_id": "toolu_2"}), thinking=ENABLED),
    body(ASKED, model(USE, FOUND, TEXT), ASKED),
    body(ASKED, model(TEXT, USE)),  # a paused turn
    body(ASKED, model(TEXT, USE), model(FOUND, TEXT), ASKED),
    body(ASKED, model(USE, CALL), user(RESULT), model(FOUND, TEXT)),
    body(ASKED, model(THOUGHT | {"thinking": ""}, TEXT), ASKED),
    body(ASKED, model({"type": "redacted_thinking", "data": "x"}, TEXT), ASKED),
    body(ASKED, model({"type": "compaction", "content": None}, {"type": "something_new"}, TEXT), ASKED),
    body(user(IMAGE, FILE), thinking={"type": "adaptive"}, output_config={"effort": "max"}),
    body(*LOOP[:2], user(RESULT | {"content": [TEXT, IMAGE], "is_error": True})),
    body(
        ASKED,
        system="be brief",
        temperature=0.5,
        output_config={"format": {"type": "json_schema", "schema": {}}},
    ),
]


@pytest.mark.parametrize("sent", ACCEPTED, ids=range(len(ACCEPTED)))
def test_what_servers_take_is_accepted(sent: dict[str, Any]) -> None:
    CHECKS["anthropic-messages"](sent)


REFUSED = {
    "no messages": body(),
    "the model first": body(model(TEXT), ASKED),
    "another role": body({"role": "system", "content": "x"}),
    "no content": body(user()),
    "more than role and content": body(ASKED | {"name": "x"}),
    "empty text": body(user({"type": "text", "text": ""})),
    "white space": body(user({"type": "text", "text": " \n"})),
    "white space as content": body({"role": "user", "content": " "}),
    "an empty answer": body(ASKED, model(), ASKED),
    "no type": body(user({"text": "x"})),
    "thinking of the user": body(user(THOUGHT)),
    "an image of the model": body(ASKED, model(IMAGE), ASKED),
    "a result of the model": body(*LOOP[:2], model(RESULT)),
    "no answer": body(*LOOP[:2]),
    "no answer in the next message": body(*LOOP[:2], user(TEXT), user(RESULT)),
    "the model goes on before the answer": body(*LOOP[:2], model(TEXT), user(RESULT)),
    "results behind text": body(*LOOP[:2], user(TEXT, RESULT)),
    "a result twice": body(*LOOP[:2], user(RESULT, RESULT)),
    "a result of no call": body(user(RESULT)),
    "half of the results": body(ASKED, model(CALL, CALL | {"id": "toolu_2"}), user(RESULT)),
    "an id twice": body(*LOOP, model(CALL), user(RESULT)),
    "an id of other letters": body(
        ASKED, model(CALL | {"id": "call:1"}), user(RESULT | {"tool_use_id": "call:1"})
    ),
    "no id": body(ASKED, model(CALL | {"id": ""}), user(RESULT | {"tool_use_id": ""})),
    "a name of other letters": body(ASKED, model(CALL | {"name": "a.b"}), user(RESULT)),
    "a long name": body(ASKED, model(CALL | {"name": "a" * 65}), user(RESULT)),
    "input that is text": body(ASKED, model(CALL | {"input": "{}"}), user(RESULT)),
    "an empty text in a result": body(*LOOP[:2], user(RESULT | {"content": [{"type": "text", "text": ""}]})),
    "a call in a result": body(*LOOP[:2], user(RESULT | {"content": [CALL]})),
    "is_error that is text": body(*LOOP[:2], user(RESULT | {"is_error": "no"})),
    "no signature": body(ASKED, model(THOUGHT | {"signature": ""}, TEXT), ASKED),
    "thinking that is no text": body(ASKED, model(THOUGHT | {"thinking": None}, TEXT), ASKED),
    "redacted without data": body(ASKED, model({"type": "redacted_thinking", "data": ""}, TEXT), ASKED),
    "thinking at the end": body(ASKED, model(TEXT, THOUGHT), ASKED),
    "thinking alone": body(ASKED, model(THOUGHT), ASKED),
    "thinking not first": body(ASKED, model(TEXT, THOUGHT, CALL), user(RESULT), thinking=ENABLED),
    "no thinking": body(ASKED, model(CALL), user(RESULT), thinking=ENABLED),
    "no thinking in what goes on": body(ASKED, model(TEXT), thinking=ENABLED),
    "a use without a result": body(ASKED, model(USE, TEXT), ASKED),
    "a use of another id": body(ASKED, model(USE | {"id": "toolu_1"}, FOUND), ASKED),
    "a use twice": body(ASKED, model(USE, FOUND, USE, FOUND), ASKED),
    "a result before its use": body(ASKED, model(FOUND, USE), ASKED),
    "a result of a use twice": body(ASKED, model(USE, FOUND, FOUND), ASKED),
    "a use whose input is text": body(ASKED, model(USE | {"input": ""}, FOUND), ASKED),
    "white space to go on from": body(ASKED, model({"type": "text", "text": "a "})),
    "an image of another type": body(
        user(IMAGE | {"source": IMAGE["source"] | {"media_type": "image/tiff"}})
    ),
    "an image without bytes": body(user(IMAGE | {"source": IMAGE["source"] | {"data": ""}})),
    "a document without text": body(user(FILE | {"source": FILE["source"] | {"data": ""}})),
    "a document of another type": body(user(FILE | {"source": FILE["source"] | {"media_type": "text/csv"}})),
    "no source": body(user({"type": "image"})),
    "an unknown field": body(ASKED, n=2),
    "no model": body(ASKED, model=""),
    "no limit": body(ASKED, max_tokens=None),
    "an empty system prompt": body(ASKED, system=""),
    "a small budget": body(ASKED, thinking={"type": "enabled", "budget_tokens": 1023}),
    "no budget": body(ASKED, thinking={"type": "enabled"}),
    "a budget above the limit": body(ASKED, thinking={"type": "enabled", "budget_tokens": 4096}),
    "a budget of adaptive thinking": body(ASKED, thinking=ENABLED | {"type": "adaptive"}),
    "a kind of thinking": body(ASKED, thinking={"type": "hard"}),
    "a temperature with thinking": body(ASKED, thinking=ENABLED, temperature=0.5),
    "a high temperature": body(ASKED, temperature=1.5),
    "an unknown effort": body(ASKED, output_config={"effort": "extreme"}),
    "an unknown output": body(ASKED, output_config={"format": {"type": "json_object"}}),
    "a tool without a schema": body(ASKED, tools=[{"name": "Write"}]),
    "a schema of no object": body(ASKED, tools=[TOOL | {"input_schema": {"type": "string"}}]),
    "a tool's name": body(ASKED, tools=[TOOL | {"name": "a.b"}]),
    "a tool twice": body(ASKED, tools=[TOOL, TOOL]),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_servers_refuse_is_refused(what: str) -> None:
    with pytest.raises(AssertionError, match=r"expected .+, got"):
        rules.check(REFUSED[what])


@pytest.mark.parametrize("signed", [{}, {"c2ln": "hm, changed"}])
def test_thinking_has_to_be_what_was_signed(signed: dict[str, str]) -> None:
    rules.check(body(*LOOP), signed={"c2ln": "hm"})
    with pytest.raises(AssertionError, match="exactly as it was signed"):
        rules.check(body(*LOOP), signed=signed)
