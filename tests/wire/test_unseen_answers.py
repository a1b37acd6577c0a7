"""Answers that no recording holds, as servers of the three dialects are known to send them.

Each ends the one way that it may: what was cut runs nothing, what was said twice runs
once, and what is all there is taken however it was put.
"""

from __future__ import annotations

from typing import Any

import pytest

from adapters.providers import make_provider
from domain.model_ports import DeclaredCall
from domain.values import CUT_STOPS, Stop
from minutebook.provider_config import ProviderConfig
from minutebook.testing import responses_replies
from minutebook.testing.attempts import Attempted, attempt
from minutebook.testing.chat_replies import delta_chunk, stream_reply
from minutebook.testing.fake_server import Reply, serve

pytestmark = pytest.mark.anyio

Chunks = list[dict[str, Any]]


async def answered(reply: Reply, api: str | None = None) -> Attempted:
    async with serve([reply]) as server:
        provider = make_provider(ProviderConfig("openai-compatible", server.url, api=api))
        try:
            return await attempt(provider)
        finally:
            await provider.aclose()


# --- chat -----------------------------------------------------------------------------------


def piece(name: str = "", arguments: str = "", call_id: str = "", index: int | None = 0) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": call_id, "function": {"name": name, "arguments": arguments}}
    return delta_chunk(tool_calls=[entry if index is None else {**entry, "index": index}])


A_CALL = piece("pay", '{"x":1}', "c1")

CHAT_CALLS: dict[str, tuple[Chunks, list[tuple[str, str, str]]]] = {
    "a whole call, then the same once more": ([A_CALL, A_CALL], [("c1", "pay", '{"x":1}')]),
    "its pieces, then all of it once more": (
        [piece("pay", '{"x"', "c1"), piece("", ":1}"), A_CALL],
        [("c1", "pay", '{"x":1}')],
    ),
    "the same call without an id is another": (
        [piece("pay", '{"x":1}'), piece("pay", '{"x":1}')],
        [("", "pay", '{"x":1}')] * 2,
    ),
    "other arguments under the same id are another": (
        [A_CALL, piece("pay", '{"x":2}', "c1")],
        [("c1", "pay", '{"x":1}'), ("c1", "pay", '{"x":2}')],
    ),
    "pieces of two calls by turns": (
        [piece("a", "", "x"), piece("b", '{"p"', "y", 1), piece("", '{"q":1}'), piece("", ":2}", index=1)],
        [("x", "a", '{"q":1}'), ("y", "b", '{"p":2}')],
    ),
}


@pytest.mark.parametrize("case", CHAT_CALLS)
async def test_each_call_of_a_chat_answer_is_there_once(case: str) -> None:
    chunks, expected = CHAT_CALLS[case]
    found = await answered(stream_reply([*chunks, delta_chunk("tool_calls")]))
    assert found.response is not None
    calls = [(c.provider_call_id, c.name, c.arguments) for c in found.response.calls]
    assert calls == expected
    assert [text for _, text in sorted(found.inputs.items())] == [arguments for *_, arguments in expected]


@pytest.mark.parametrize("finish", ["MAX_TOKENS", "Length", "time_limit", "MALFORMED_FUNCTION_CALL"])
async def test_calls_run_after_no_reason_that_is_not_known_to_be_whole(finish: str) -> None:
    found = await answered(stream_reply([A_CALL, delta_chunk(finish)]))
    assert found.response is not None
    assert found.response.stop in CUT_STOPS


@pytest.mark.parametrize(("finish", "stop"), [("STOP", Stop.END), ("Tool_Calls", Stop.END), ("?", "unknown")])
async def test_a_text_is_whole_whatever_its_reason_is_called(finish: str, stop: str) -> None:
    found = await answered(stream_reply([delta_chunk(content="hi"), delta_chunk(finish)]))
    assert found.response is not None
    assert (found.text, found.response.stop) == ("hi", stop)


async def test_an_error_beside_a_choice_says_what_went_wrong() -> None:
    choice = {"index": 0, "delta": {}, "finish_reason": "error", "error": {"code": 429, "message": "slow"}}
    found = await answered(stream_reply([{"choices": [choice]}]))
    assert found.failure is not None
    assert (found.failure.kind, "slow" in str(found.failure)) == ("rate_limited", True)


# --- responses --------------------------------------------------------------------------------


def event(what: str, index: int | None = None, **more: Any) -> dict[str, Any]:
    return {"type": f"response.{what}", **({} if index is None else {"output_index": index}), **more}


def ended(*output: dict[str, Any], event_status: str = "completed", **fields: Any) -> dict[str, Any]:
    response = {"id": "resp_1", "status": event_status, "output": list(output), **fields}
    return event(event_status, response=response)


def a_call(arguments: str = '{"x":1}', status: str = "completed", **more: Any) -> dict[str, Any]:
    named = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "pay"}
    return {**named, "arguments": arguments, "status": status, **more}


MESSAGE = {"type": "message", "id": "m_1", "content": [{"type": "output_text", "text": "hi"}]}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "e=="}
THE_CALL = DeclaredCall("c1", "pay", '{"x":1}')
BEGUN = event("output_item.added", 1, item=a_call("", "in_progress"))

TAKEN: dict[str, Chunks] = {
    "all of it in the last event": [ended(MESSAGE, a_call())],
    "the list in another order than the events": [
        BEGUN,
        event("output_text.delta", 0, item_id="m_1", delta="hi"),
        ended(MESSAGE, a_call()),
    ],
    "the list leaves out what came before": [
        event("output_item.done", 0, item=MESSAGE),
        BEGUN,
        event("function_call_arguments.delta", 1, delta='{"x"'),
        ended(a_call(id="another")),
    ],
    "the whole arguments in an event only": [
        event("output_text.done", 0, text="hi"),
        BEGUN,
        event("function_call_arguments.done", 1, arguments='{"x":1}'),
        ended(),
    ],
    "every item twice": [
        *(event("output_item.done", 0, item=MESSAGE), event("output_item.done", 0, item=MESSAGE)),
        *(event("output_item.done", 1, item=a_call()), event("output_item.done", 1, item=a_call())),
        ended(MESSAGE, a_call()),
    ],
    "no list at all": [
        event("output_item.done", 0, item=MESSAGE),
        event("output_item.done", 1, item=a_call()),
        event("completed"),
    ],
}


@pytest.mark.parametrize("case", TAKEN)
async def test_an_answer_is_taken_however_it_was_told(case: str) -> None:
    found = await answered(responses_replies.events_reply(TAKEN[case]), "responses")
    assert found.response is not None
    assert (found.text, found.response.calls, found.response.stop) == ("hi", (THE_CALL,), Stop.TOOL_CALLS)
    assert list(found.inputs.values()) == ['{"x":1}']


async def test_reasoning_that_the_list_leaves_out_stays_before_its_call() -> None:
    told = [event("output_item.done", 0, item=THOUGHT), BEGUN, ended(a_call())]
    found = await answered(responses_replies.events_reply(told), "responses")
    assert found.response is not None
    assert found.response.calls == (THE_CALL,)
    assert ["e==" in block.text for block in found.response.blocks] == [True]


CUT: dict[str, Chunks] = {
    "the event says completed, the response incomplete": [
        event("completed", response={"status": "incomplete", "output": [a_call()]})
    ],
    "the call says incomplete": [ended(a_call("{}", "incomplete"))],
    "one of two calls says incomplete": [ended(a_call(), a_call("{}", "incomplete", call_id="c2"))],
    "the response is incomplete": [ended(a_call(), event_status="incomplete")],
}


@pytest.mark.parametrize("case", CUT)
async def test_nothing_of_a_cut_response_runs(case: str) -> None:
    found = await answered(responses_replies.events_reply(CUT[case]), "responses")
    assert found.response is not None
    assert found.response.stop in CUT_STOPS


FAILED: dict[str, tuple[Chunks, str]] = {
    "the event says completed, the response failed": (
        [event("completed", response={"status": "failed", "error": {"code": "server_error"}})],
        "server_error",
    ),
    "arguments of a call that never came": (
        [event("function_call_arguments.done", 0, arguments="{}"), ended()],
        "invalid_response",
    ),
    "a call that never ended": ([BEGUN, ended()], "invalid_response"),
    "an end without an answer": ([ended()], "empty_response"),
}


@pytest.mark.parametrize("case", FAILED)
async def test_what_is_no_answer_fails(case: str) -> None:
    told, kind = FAILED[case]
    found = await answered(responses_replies.events_reply(told), "responses")
    assert found.failure is not None
    assert found.failure.kind == kind
