"""Any legal journal, cut at any commit, is a history that every dialect's servers take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from domain.model_ports import Parameters, ToolSpec
from domain.values import ThinkingSettings
from minutebook.testing.wire_rules import CHECKS
from projections.transcript import Exchange, Item
from tests.property.dialogues import SPEAKERS, Dialogue, Reader, Speaker, dialogues
from tests.property.examples import share

TOOLS = [ToolSpec("look", "looks", {"type": "object", "properties": {}})]
SCHEMA = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}

_asked: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    system_prompt=st.sampled_from((None, "", " ", "be kind", "\ud800")),
    max_output_tokens=st.sampled_from((None, 4096)),
    thinking=st.sampled_from(
        (None, ThinkingSettings(), ThinkingSettings(2048), ThinkingSettings(effort="high"))
    ),
    output_schema=st.sampled_from((None, SCHEMA)),
)


def bodies(
    commits: Dialogue, speaker: Speaker, asked: dict[str, Any]
) -> Iterator[tuple[list[Item], dict[str, Any]]]:
    """After each commit: the conversation, and the request that would go out."""
    reader = Reader()
    encoded: dict[int, tuple[Item, bytes]] = {}
    for commit in commits:
        items = reader.take(commit)
        for item in items:
            if id(item) not in encoded:  # the item is kept beside, so that its id stays its own
                encoded[id(item)] = (item, speaker.encode(item))
        parts = [encoded[id(item)][1] for item in items]
        if any(parts):
            yield items, orjson.loads(speaker.body(parts, TOOLS, Parameters(speaker.model, **asked)))


@share(25)
@given(dialogues(), _asked)
def test_r2_any_cut_is_a_history_that_servers_take(commits: Dialogue, asked: dict[str, Any]) -> None:
    for speaker in SPEAKERS.values():
        for _, body in bodies(commits, speaker, asked):
            CHECKS[speaker.api](body)


@share(25)
@given(dialogues())
def test_p04_no_call_is_ever_left_out(commits: Dialogue) -> None:
    for speaker in SPEAKERS.values():
        for items, body in bodies(commits, speaker, {}):
            calls = [call for item in items if isinstance(item, Exchange) for call in item.calls]
            assert len(list(_results(body))) == len(calls)


@share(25)
@given(dialogues())
def test_p48_p50_material_goes_back_unchanged_and_only_to_where_it_came_from(commits: Dialogue) -> None:
    for speaker in SPEAKERS.values():
        for items, body in bodies(commits, speaker, {}):
            received, wanted = _received(items, speaker)
            sent = {text for text in _texts(body) if "token-of-" in text}
            assert sent <= received
            assert wanted <= sent


def _received(items: Sequence[Item], speaker: Speaker) -> tuple[set[str], set[str]]:
    """Strings that the speaker may get back, and those of them that it has to get."""
    may, has_to = set[str](), set[str]()
    for item in items:
        if not isinstance(item, Exchange) or not speaker.knows(_speaker_of(item)):
            continue
        for block in item.blocks:
            texts = {text for text in _texts(_parsed(block.text)) if "token-of-" in text}
            may |= texts if block.kind == "opaque" else set()
            has_to |= texts if item.calls and block.format in _REQUIRED else set()
    return may, has_to


#: Without these a server refuses the answer to its calls.
_REQUIRED = {
    "openai-chat/reasoning_content",
    "openai-chat/reasoning_details",
    "openai-chat/extra_content",
    "openai-chat/tool_calls/0/extra_content",
}


def _speaker_of(item: Exchange) -> Speaker:
    return Speaker(item.provider, item.api, item.model)


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text


def _texts(value: Any) -> Iterator[str]:
    """Every string within a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)


def _results(body: dict[str, Any]) -> Iterator[Any]:
    """The results of calls, in whatever way the dialect writes them."""
    for item in body.get("input", ()):
        if str(item.get("type")).endswith("_call_output"):
            yield item
    for message in body.get("messages", ()):
        if message["role"] == "tool":
            yield message
        parts = message["content"] if isinstance(message["content"], list) else ()
        yield from (part for part in parts if part["type"] == "tool_result")
