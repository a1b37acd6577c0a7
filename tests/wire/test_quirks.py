"""What servers of the OpenAI dialects do that OpenAI does not: one case per habit.

Each names the recordings that show it. They go over a real socket through the
provider that a configuration makes, and what we say next is held against the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from adapters.model_failures import KINDS
from domain.model_ports import Block, DeclaredCall, Response
from minutebook.testing.attempts import Attempted
from minutebook.testing.wire_rules import CHECKS
from projections.openai_chat_wire import FORMAT_PREFIX
from projections.transcript import Item, UserItem
from tests.wire.rounds import Recording, Rounds, conversation, exchanges, rounds

pytestmark = pytest.mark.anyio

Read = Callable[[str], Recording]


async def taken(recording: Read, *names: str) -> Rounds:
    """The conversation after the named answers, and its server gone."""
    async with rounds([recording(name) for name in names]) as talk:
        for _ in names:
            await talk.next()
        return talk


async def answers(recording: Read, *names: str) -> list[Response]:
    """The answers that the named recordings hold, each of a provider of its own."""
    found = [(await taken(recording, name)).taken[0] for name in names]
    return [_response(one) for one in found]


def _response(found: Attempted) -> Response:
    assert found.response is not None, found.failure
    return found.response


def opaque(response: Response, field: str) -> str:
    """The one opaque block of a field."""
    [text] = [b.text for b in response.blocks if b.format == FORMAT_PREFIX + field]
    return text


def arguments(response: Response) -> list[tuple[str, Any]]:
    """Name and parsed arguments of each call."""
    return [(call.name, orjson.loads(call.arguments)) for call in response.calls]


def events(recorded: Recording) -> list[dict[str, Any]]:
    """The recorded chunks themselves, read without the adapter."""
    lines = recorded["response"]["sse"].splitlines()
    data = [line.removeprefix("data:").strip() for line in lines if line.startswith("data:")]
    return [orjson.loads(text) for text in data if text != "[DONE]"]


def deltas(recorded: Recording) -> list[dict[str, Any]]:
    """The deltas of the first choice."""
    return [c["delta"] for event in events(recorded) for c in event.get("choices", ()) if not c.get("index")]


def with_call(response: Response) -> Response:
    """The same answer, had it also asked for a call: only then does some of it go back."""
    return replace(response, calls=(DeclaredCall("call_1", "look", "{}"),), stop="tool_calls")


# --- ids and calls -------------------------------------------------------------------------


async def test_a_call_without_an_id_gets_one_of_ours(recording: Read) -> None:
    talk = await taken(recording, *(f"gemini-openai-endpoint-tool-empty-id-step{n}" for n in (1, 2)))
    call = exchanges(talk.items)[0].calls[0]
    assert call.provider_call_id == ""
    message, result = talk.server.requests[1].parsed["messages"][1:3]
    assert message["tool_calls"][0]["id"] == result["tool_call_id"] == call.wire_id != ""
    assert talk.taken[1].text == "The current time is Noon."


async def test_two_calls_without_an_id_get_different_ones() -> None:
    answer = Response((), (DeclaredCall("", "look", "{}"), DeclaredCall("", "look", "{}")), "tool_calls")
    async with rounds([_a_recording()]) as talk:
        items = conversation([answer, answer], talk.provider, "m")
    assert len({call.wire_id for exchange in exchanges(items) for call in exchange.calls}) == 4


async def test_an_id_used_again_in_a_later_turn_is_another_call(recording: Read) -> None:
    steps = {n: f"bedrock-mantle-responses-reused-call-ids-step{n}" for n in (1, 3)}
    talk = await taken(recording, steps[1], steps[1], steps[3])
    first, second = (exchange.calls[0] for exchange in exchanges(talk.items)[:2])
    assert first.provider_call_id == second.provider_call_id
    assert first.tool_id != second.tool_id
    assert first.wire_id != second.wire_id
    outputs = [item for item in talk.sent["input"] if item.get("type") == "function_call_output"]
    assert len({output["call_id"] for output in outputs}) == 2
    assert [found.response is not None for found in talk.taken] == [True] * 3


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ollama-chat-stream-tool", ("get_weather", {"location": "San Francisco, CA"})),
        ("xai-chat-stream-tool-whole-no-index", ("weather", {"location": "San Francisco"})),
        ("groq-chat-stream-tool-use-failed-step2", ("get_something_by_name", {"name": "example"})),
    ],
)
async def test_a_whole_call_in_one_chunk(name: str, expected: tuple[str, Any], recording: Read) -> None:
    bringing = [delta for delta in deltas(recording(name)) if delta.get("tool_calls")]
    assert len(bringing) == 1
    [answer] = await answers(recording, name)
    assert arguments(answer) == [expected]
    assert answer.stop == "tool_calls"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("vllm-chat-stream-tool-think-tags", ("get_time", {"timezone": "UTC"})),
        ("mistral-chat-stream-incremental-tool", ("webSearchTool", {"query": "current Berlin weather"})),
    ],
)
async def test_later_pieces_of_a_call_wipe_out_nothing(
    name: str, expected: tuple[str, Any], recording: Read
) -> None:
    pieces = [entry for delta in deltas(recording(name)) for entry in delta.get("tool_calls") or ()]
    assert any(not entry.get("id") and not entry["function"].get("name") for entry in pieces[1:])
    [answer] = await answers(recording, name)
    assert arguments(answer) == [expected]
    assert answer.calls[0].provider_call_id == next(entry["id"] for entry in pieces if entry.get("id"))


async def test_a_call_written_as_text_stays_text(recording: Read) -> None:
    talk = await taken(recording, "ollama-chat-stream-tool-as-text")
    answer = _response(talk.taken[0])
    assert (answer.calls, answer.stop) == ((), "end")
    assert talk.body()["messages"][-1] == {"role": "assistant", "content": talk.taken[0].text}


async def test_thoughts_between_tags_are_text_like_any_other(recording: Read) -> None:
    talk = await taken(recording, "vllm-chat-stream-tool-think-tags")
    found = talk.taken[0]
    assert found.text.startswith("<think>")
    assert "</think>" in found.text
    assert found.thinking == ""
    assert talk.body()["messages"][1]["content"] == found.text


# --- reasoning -----------------------------------------------------------------------------

REASONING_CONTENT = [
    "deepseek-chat-stream-tool",
    "xai-chat-stream-tool-whole-no-index",
    "zai-chat-stream-reasoning",
]


@pytest.mark.parametrize("name", REASONING_CONTENT)
async def test_reasoning_content_is_kept_and_goes_back_with_calls(name: str, recording: Read) -> None:
    wanted = "".join(delta.get("reasoning_content") or "" for delta in deltas(recording(name)))
    talk = await taken(recording, name)
    answer = _response(talk.taken[0])
    assert talk.taken[0].thinking == opaque(answer, "reasoning_content") == wanted != ""
    items = conversation([with_call(answer)], talk.provider, talk.model)
    assert talk.body(*items)["messages"][1]["reasoning_content"] == wanted


@pytest.mark.parametrize("name", ["groq-chat-stream-tool-use-failed-step2", "ollama-chat-json-tool"])
async def test_reasoning_is_kept_and_never_goes_back(name: str, recording: Read) -> None:
    talk = await taken(recording, name)
    answer = _response(talk.taken[0])
    assert answer.calls
    assert talk.taken[0].thinking == opaque(answer, "reasoning") != ""
    assert "reasoning" not in talk.body()["messages"][1]


@pytest.mark.parametrize("name", ["openrouter-chat-stream-reasoning", "snowflake-chat-stream-thinking"])
async def test_signed_details_are_kept_and_go_back_whole_with_calls(name: str, recording: Read) -> None:
    pieces = [d for delta in deltas(recording(name)) for d in delta.get("reasoning_details") or ()]
    signatures = [piece["signature"] for piece in pieces if piece.get("signature")]
    talk = await taken(recording, name)
    answer = _response(talk.taken[0])
    items = conversation([with_call(answer)], talk.provider, talk.model)
    [detail] = talk.body(*items)["messages"][1]["reasoning_details"]
    assert detail["text"] == "".join(piece.get("text", "") for piece in pieces) == talk.taken[0].thinking
    assert detail.get("signature") == (signatures[-1] if signatures else None)
    assert bool(signatures) is name.startswith("openrouter")
    assert talk.body()["messages"][-1].keys() == {"role", "content"}, "without calls it stays here"


async def test_a_thought_signature_goes_back_where_it_came_from(recording: Read) -> None:
    recorded = recording("gemini-openai-endpoint-tool-empty-id-step1")
    wanted = recorded["response"]["body"]["choices"][0]["message"]["extra_content"]
    talk = await taken(recording, *(f"gemini-openai-endpoint-tool-empty-id-step{n}" for n in (1, 2)))
    assert wanted["google"]["thought_signature"]
    assert talk.server.requests[1].parsed["messages"][1]["extra_content"] == wanted


async def test_a_signature_on_one_call_goes_back_on_that_call() -> None:
    block = Block(
        "opaque", '{"google":{"thought_signature":"é=="}}', f"{FORMAT_PREFIX}tool_calls/1/extra_content"
    )
    calls = (DeclaredCall("", "look", "{}"), DeclaredCall("", "look", "{}"))
    async with rounds([_a_recording("google-openai")]) as talk:
        items = conversation([Response((block,), calls, "tool_calls")], talk.provider, talk.model)
        entries = talk.body(*items)["messages"][1]["tool_calls"]
    assert [entry.get("extra_content") for entry in entries] == [
        None,
        {"google": {"thought_signature": "é=="}},
    ]


async def test_deepseek_is_told_what_it_thought_in_every_round(recording: Read) -> None:
    names = [f"deepseek-chat-json-thinking-tools-step{n}" for n in (1, 2, 3)]
    talk = await taken(recording, *names)
    thoughts = [
        recording(name)["response"]["body"]["choices"][0]["message"]["reasoning_content"] for name in names
    ]
    sent = [m for m in talk.sent["messages"] if m["role"] == "assistant"]
    assert [message["reasoning_content"] for message in sent] == thoughts[:2]
    later = [m for m in talk.body()["messages"] if m["role"] == "assistant"]
    assert [message["reasoning_content"] for message in later] == thoughts, "and in later turns"
    usage = _response(talk.taken[2]).usage
    assert (usage["cached_input_tokens"], usage["reasoning_tokens"]) == (896, 25)


async def test_deepseek_gets_empty_thoughts_where_a_call_came_without() -> None:
    async with rounds([_a_recording("deepseek")]) as talk:
        answer = with_call(Response((Block("text", "x"),), (), "end"))
        [exchange] = exchanges(conversation([answer], talk.provider, talk.model))[:1]
        foreign = replace(exchange, provider="openai", api="openai-responses")
        assert talk.body(*_asked(foreign))["messages"][1]["reasoning_content"] == ""


# --- ends, usage, extras ----------------------------------------------------------------


async def test_no_finish_reason_and_no_ids(recording: Read) -> None:
    recorded = recording("snowflake-chat-stream-empty-ids")
    assert not any(choice.get("finish_reason") for e in events(recorded) for choice in e["choices"])
    [answer] = await answers(recording, "snowflake-chat-stream-empty-ids")
    assert (answer.stop, answer.calls) == ("unknown", ())
    assert "response_id" not in answer.provider_ids
    assert [block.kind for block in answer.blocks] == ["text"], "an empty refusal is none"


@pytest.mark.parametrize(
    "name",
    [
        "openai-chat-stream-parallel-tools-legacy",
        "azure-chat-stream-content-filter",
        "vllm-chat-stream-tool-think-tags",
    ],
)
async def test_no_usage_is_no_usage(name: str, recording: Read) -> None:
    assert not any(event.get("usage") for event in events(recording(name)))
    [answer] = await answers(recording, name)
    assert answer.usage == {}


async def test_usage_is_asked_for_unless_the_configuration_takes_that_out() -> None:
    async with rounds([_a_recording()]) as talk:
        assert talk.body()["stream_options"] == {"include_usage": True}


async def test_a_first_chunk_about_the_prompt_only(recording: Read) -> None:
    name = "azure-chat-stream-content-filter"
    first = events(recording(name))[0]
    assert first["choices"] == []
    assert first["prompt_filter_results"]
    talk = await taken(recording, name)
    answer = _response(talk.taken[0])
    assert answer.stop == "end"
    assert answer.provider_ids["response_id"].startswith("chatcmpl-"), "not the empty one of that chunk"
    assert talk.taken[0].text == "".join(delta.get("content") or "" for delta in deltas(recording(name)))


async def test_an_error_inside_a_stream_that_began_well(recording: Read) -> None:
    name = "openrouter-chat-stream-error-midway"
    sse = recording(name)["response"]["sse"]
    assert sse.startswith(": OPENROUTER PROCESSING")
    assert sse.rstrip().endswith("data: [DONE]")
    finishes = [c["finish_reason"] for e in events(recording(name)) for c in e["choices"]]
    assert sum(finish is not None for finish in finishes) > 1, "said more than once"
    found = (await taken(recording, name)).taken[0]
    assert found.response is None, "the marker after an error completes nothing"
    assert found.failure is not None
    assert (found.failure.kind, found.failure.retryable, found.failure.bytes_sent) == (
        "bad_request",
        False,
        True,
    )
    assert "Token limit reached" in str(found.failure)


async def test_an_error_whose_code_is_a_number(recording: Read) -> None:
    name = "openrouter-chat-error-429"
    assert recording(name)["response"]["body"]["error"]["code"] == 429
    failure = (await taken(recording, name)).taken[0].failure
    assert failure is not None
    assert (failure.kind, failure.retryable, failure.status) == ("rate_limited", True, 429)


async def test_a_finish_reason_that_comes_again_changes_nothing(recording: Read) -> None:
    name = "openrouter-chat-stream-reasoning"
    [answer] = await answers(recording, name)
    assert answer.stop == "end"
    assert answer.usage["output_tokens"] == 36


async def test_an_event_that_is_an_error(recording: Read) -> None:
    name = "groq-chat-stream-tool-use-failed-step1"
    assert "event: error" in recording(name)["response"]["sse"]
    assert "failed_generation" in recording(name)["response"]["sse"]
    found = (await taken(recording, name)).taken[0]
    assert found.response is None
    assert found.failure is not None
    assert found.failure.kind == "tool_use_failed"
    assert found.inputs == {}, "nothing of what it generated can run"


@pytest.mark.parametrize(
    ("name", "extra"),
    [
        ("openai-chat-stream-parallel-tools-step1", "obfuscation"),
        ("llamacpp-chat-stream", "timings"),
        ("vllm-chat-stream-usage", "token_ids"),
        ("hf-novita-chat-stream-finish-before-usage", "sla_metrics"),
        ("bedrock-mantle-responses-reused-call-ids-step1", "obfuscation"),
    ],
)
async def test_additional_fields_are_passed_over(name: str, extra: str, recording: Read) -> None:
    assert f'"{extra}"' in recording(name)["response"]["sse"]
    [answer] = await answers(recording, name)
    assert extra not in repr(answer)
    assert answer.usage["input_tokens"] > 0


# --- what servers refuse of a history -------------------------------------------------------

REFUSED = ["deepseek-responses-error-400-interleaved", "openai-responses-error-400-history"]


@pytest.mark.parametrize("name", REFUSED)
async def test_a_history_that_was_refused_is_refused_by_our_rules_too(name: str, recording: Read) -> None:
    body = recording(name)["request"]["body"] | {"stream": True}
    with pytest.raises(AssertionError):
        CHECKS["openai-responses"](body)
    async with rounds([recording(name)]) as talk:
        failure = (await talk.next()).failure
    assert failure is not None
    assert (failure.kind, failure.retryable, failure.status) == ("bad_request", False, 400)


async def test_outputs_come_right_behind_their_calls() -> None:
    thoughts = [Block("text", f"inspect {what}", "openai-responses/message") for what in ("inputs", "views")]
    calls = (DeclaredCall("call-a", "read", '{"path":"a"}'), DeclaredCall("call-b", "view", '{"path":"b"}'))
    between = [thoughts[0], Block("opaque", "", "openai-responses/calls/0"), thoughts[1]]
    async with rounds([_a_recording("deepseek", "responses")]) as talk:
        items = conversation([Response(tuple(between), calls, "tool_calls")], talk.provider, talk.model)
        sent = [item.get("type", item.get("role")) for item in talk.body(*items)["input"]]
    assert sent.index("function_call_output") == sent.index("function_call") + 1
    assert sent.count("function_call_output") == 2


async def test_reasoning_never_stands_without_what_it_led_to(recording: Read) -> None:
    names = [f"openai-responses-stream-reasoning-tool-phase-step{n}" for n in (1, 2)]
    talk = await taken(recording, *names)
    kinds = [item.get("type") for item in talk.server.requests[1].parsed["input"]]
    assert kinds[kinds.index("reasoning") + 1] in ("function_call", "message")
    [first, *_] = exchanges(talk.items)
    alone = replace(first, calls=(), blocks=tuple(block for block in first.blocks if block.kind == "opaque"))
    assert not [item for item in talk.body(*_asked(alone))["input"] if item.get("type") == "reasoning"]


# --- the checker against what servers took ---------------------------------------------------

TAKEN = [
    "deepseek-chat-json-thinking-tools-step3",
    "gemini-openai-endpoint-tool-empty-id-step2",
    "groq-chat-stream-tool-use-failed-step2",
    "openai-chat-stream-parallel-tools-step3",
]


@pytest.mark.parametrize("name", TAKEN)
def test_a_history_that_was_taken_is_taken_by_our_rules_too(name: str, recording: Read) -> None:
    recorded = recording(name)
    assert recorded["response"]["status"] == 200
    messages = [_without_nones(message) for message in recorded["request"]["body"]["messages"]]
    CHECKS["openai-chat"]({"model": "m", "stream": True, "messages": messages})


def test_every_kind_of_failure_that_is_named_here_is_a_known_one() -> None:
    assert {"bad_request", "rate_limited", "tool_use_failed"} <= KINDS.keys()


def _without_nones(message: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in message.items() if value is not None or name == "content"}


def _asked(*exchange: Item) -> Sequence[Item]:
    return [UserItem(1, "i", "hello"), *exchange, UserItem(9, "j", "go on")]


def _a_recording(provider: str = "llamacpp", api: str = "chat") -> Recording:
    """A recording as far as its provider is concerned; nothing is asked of its server."""
    path = "/v1/chat/completions" if api == "chat" else "/responses"
    return {
        "provider": provider,
        "api": api,
        "request": {"path": path, "query": "", "body": {"model": "a-model"}},
        "response": {"status": 200, "headers": {}, "body": {}},
    }
