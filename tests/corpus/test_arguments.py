"""Whatever a model sends as arguments: the tool gets exactly that value, or the model is told why not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from domain.arguments import parse_arguments
from domain.errors import ArgumentsRefused
from domain.values import ToolKind
from minutebook.session import Session
from minutebook.testing.scripted import call, reply
from minutebook.tool_definition import tool
from tests.corpus.sessions import in_both
from tests.corpus.texts import TEXTS
from tests.corpus.values import RAW_ARGUMENTS, groups
from tests.property.values import same


@pytest.mark.anyio
@pytest.mark.parametrize("names", groups(RAW_ARGUMENTS), ids=lambda names: f"from {names[0]}")
async def test_any_argument_text_runs_as_it_says_or_is_told_to_the_model(
    tmp_path: Path, names: list[str]
) -> None:
    got: list[Any] = []

    @tool(kind=ToolKind.READ_ONLY)
    async def take(value: Any = "nothing was sent") -> int:
        got.append(value)
        return len(got)

    async def use(session: Session) -> str:
        return (await session.run("hello", input_id="i-1")).content

    script = [reply("", call("take", RAW_ARGUMENTS[name][0])) for name in names]
    # What a call returns is the number of runs so far, so the two stores get one answer each.
    came = await in_both(tmp_path, _counted(use, got), [*script, reply("done")], [take])
    assert came.outcome == "done"
    expected = [_value(RAW_ARGUMENTS[name][0]) for name in names if RAW_ARGUMENTS[name][1]]
    assert len(got) == len(expected)
    for value, wanted in zip(got, expected, strict=True):
        assert same(value, wanted)
    rejected = [event.tool_id for event in came.events if event.type == "tool_rejected"]
    assert rejected == [f"r1.t{at}.a1.c0" for at, name in enumerate(names, 1) if not RAW_ARGUMENTS[name][1]]


def _counted(use: Any, got: list[Any]) -> Any:
    async def counted(session: Session) -> Any:
        got.clear()
        return await use(session)

    return counted


def _value(raw: str) -> Any:
    return json.loads(raw or "{}").get("value", "nothing was sent")


@pytest.mark.parametrize("name", RAW_ARGUMENTS)
def test_a_refusal_is_short_and_printable(name: str) -> None:
    raw, runs = RAW_ARGUMENTS[name]
    message = ""
    try:
        parse_arguments(raw)
    except ArgumentsRefused as refused:
        message = str(refused)
    assert not (message and runs)
    assert message.isprintable()
    assert len(message) < 1000


@pytest.mark.anyio
@pytest.mark.parametrize("names", groups(TEXTS, 60), ids=lambda names: f"from {names[0]}")
async def test_any_tool_name_is_refused_as_a_sentence_and_the_session_goes_on(
    tmp_path: Path, names: list[str]
) -> None:
    async def use(session: Session) -> str:
        return (await session.run("hello", input_id="i-1")).content

    script = [reply("", call(TEXTS[name], {"value": 1}, call_id=TEXTS[name])) for name in names]
    came = await in_both(tmp_path, use, [*script, reply("done")])
    assert came.outcome == "done"
    rejected = came.data("tool_rejected")
    assert len(rejected) == len(names)
    for event in rejected:
        event.message.encode()
        assert len(event.message) < 1000


@pytest.mark.anyio
async def test_hostile_call_ids_never_meet(tmp_path: Path) -> None:
    """Ids of the provider that are empty, the same, or long: each call is told its own result."""
    ids = ["", "", "x", "x", *TEXTS.values(), "y" * 10_000, "y" * 10_001]

    @tool(kind=ToolKind.READ_ONLY)
    async def echo(value: int) -> int:
        return value

    async def use(session: Session) -> list[str]:
        await session.run("hello", input_id="i-1")
        exchanges = [item for item in session.messages if hasattr(item, "calls")]
        wire_ids = [call.wire_id for item in exchanges for call in item.calls]
        assert len(set(wire_ids)) == len(ids)
        return [call.output for item in exchanges for call in item.calls]

    script = [
        reply("", *(call("echo", {"value": at}, call_id=ids[at]) for at in group)) for group in _tens(ids)
    ]
    came = await in_both(tmp_path, use, [*script, reply("done")], [echo])
    assert came.outcome == [str(at) for at in range(len(ids))]


def _tens(ids: list[str]) -> list[list[int]]:
    numbers = list(range(len(ids)))
    return [numbers[at : at + 10] for at in range(0, len(numbers), 10)]
