"""What was kept of a recorded message, in the next request: the same blocks in the same order.

The blocks of a recording are put together here by the shortest code that can, apart
from the code under test; where the next request was recorded too, it is the yardstick.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from domain.model_attempt import keep
from domain.model_ports import Block, Parameters, Response
from domain.values import ThinkingSettings
from minutebook.testing.attempts import attempt
from minutebook.testing.chat_replies import recorded_reply
from minutebook.testing.wire_rules import anthropic as rules
from projections.transcript import Item, UserItem
from tests.wire.anthropic_place import HELLO, connected, exchange_of, request
from tests.wire.test_anthropic_recordings import GOLDEN, Answer

pytestmark = pytest.mark.anyio

ANSWERS = [name for name, expected in GOLDEN.items() if isinstance(expected, Answer)]
AGAIN = UserItem(9, "i9", "and now?")


def recorded_blocks(recording: dict[str, Any]) -> list[dict[str, Any]]:
    response = recording["response"]
    if "sse" not in response:
        whole: list[dict[str, Any]] = response["body"]["content"]
        return whole
    blocks: dict[int, dict[str, Any]] = {}
    for line in response["sse"].splitlines():
        event = json.loads(line[5:]) if line.startswith("data:") else {}
        if event.get("type") == "content_block_start":
            blocks[event["index"]] = event["content_block"]
        if event.get("type") == "content_block_delta":
            block, delta = blocks[event["index"]], event["delta"]
            for name, piece in delta.items():
                if name != "type" and piece is not None:
                    block[name] = (block.get(name) or "") + piece
    for block in blocks.values():
        if "partial_json" in block:
            text = block.pop("partial_json")
            block["input"] = json.loads(text) if text.endswith("}") else (text and {"_cut": True}) or {}
    return list(blocks.values())


async def answer_of(recording: dict[str, Any]) -> Response:
    async with connected([recorded_reply(recording)]) as (provider, _):
        response = (await attempt(provider)).response
    assert response is not None
    return response


def reloaded(response: Response) -> Response:
    """The response as it comes back from a journal."""
    kept = type(keep(response)).model_validate_json(keep(response).model_dump_json())
    blocks = tuple(Block(block.kind, block.text, block.format) for block in kept.blocks)
    return Response(blocks, response.calls, response.stop)


def signed(blocks: list[dict[str, Any]]) -> dict[str, str]:
    return {b["signature"]: b["thinking"] for b in blocks if b["type"] == "thinking"}


@pytest.mark.parametrize("name", ANSWERS)
async def test_p48_the_blocks_of_a_recording_go_back_as_they_came(
    name: str, recording: Callable[[str], Any]
) -> None:
    blocks = recorded_blocks(recording(name))
    response = reloaded(await answer_of(recording(name)))
    items: list[Item] = [HELLO, exchange_of(response), *([] if response.stop == "pause" else [AGAIN])]
    async with connected([]) as (provider, _):
        body = request(provider, items)
    rules.check(body, signed=signed(blocks))
    sent = [block for m in body["messages"] if m["role"] == "assistant" for block in m["content"]]
    if name == "anthropic-stream-max-tokens-partial-json":
        assert sent.pop()["input"].keys() == {"_malformed"}
        blocks.pop()
    assert sent == blocks


@pytest.mark.parametrize("name", ["anthropic-stream-pause-turn"])
async def test_p61_a_paused_turn_goes_on_from_exactly_what_came(
    name: str, recording: Callable[[str], Any]
) -> None:
    response = reloaded(await answer_of(recording(name)))
    thinking = Parameters("m", thinking=ThinkingSettings(budget_tokens=4096))
    async with connected([]) as (provider, _):
        goes_on = request(provider, [HELLO, exchange_of(response)], thinking)
        speaks = request(provider, [HELLO, exchange_of(response), AGAIN])
    assert [m["role"] for m in goes_on["messages"]] == ["user", "assistant"]
    assert goes_on["messages"][1]["content"] == recorded_blocks(recording(name))
    assert goes_on["thinking"] == {"type": "enabled", "budget_tokens": 4096}
    # Where the user speaks instead, the search that nobody ended is left out.
    assert speaks["messages"][1]["content"] == recorded_blocks(recording(name))[:-1]


# --- where the next request was recorded too ---------------------------------------------------


def plain(block: dict[str, Any]) -> dict[str, Any]:
    """A block without what may be said or left out at will."""
    said = {k: v for k, v in block.items() if k != "caller" and not (k == "is_error" and v is False)}
    if said["type"] == "tool_result" and isinstance(said.get("content"), list):
        said["content"] = "".join(inner["text"] for inner in said["content"])
    return said


CHAINS = [
    "anthropic-json-parallel-tools-4",
    "anthropic-json-redacted-thinking-replayed",
    "anthropic-stream-thinking-tool-chain",
]


@pytest.mark.parametrize("chain", CHAINS)
async def test_the_next_request_is_the_recorded_one(chain: str, recording: Callable[[str], Any]) -> None:
    response = reloaded(await answer_of(recording(f"{chain}-step1")))
    first, _, last = recorded = recording(f"{chain}-step2")["request"]["body"]["messages"]
    outputs = [plain(block)["content"] for block in last["content"] if block["type"] == "tool_result"]
    asked = UserItem(1, "i1", first["content"][0]["text"])
    more = [] if outputs else [UserItem(3, "i3", last["content"][0]["text"])]
    settings = Parameters("m", thinking=ThinkingSettings(budget_tokens=1024)) if "thinking" in chain else None
    async with connected([]) as (provider, _):
        body = request(provider, [asked, exchange_of(response, *outputs), *more], settings)
    ours = [(m["role"], [plain(block) for block in m["content"]]) for m in body["messages"]]
    assert ours == [(m["role"], [plain(block) for block in m["content"]]) for m in recorded]
