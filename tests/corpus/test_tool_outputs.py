"""Whatever a tool returns: kept in a normal form with a note, or replaced by a sentence; never a failure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from domain import canonical
from domain.values import ToolKind
from minutebook.session import Session
from minutebook.testing.scripted import Attempt, call, reply
from minutebook.tool_definition import tool
from minutebook.tool_result import ToolOutput, normalise
from tests.corpus.sessions import in_both
from tests.corpus.texts import TEXTS
from tests.corpus.values import MANY, Make, groups, tool_outputs
from tests.property.values import same

OUTPUTS = tool_outputs()


def test_the_corpus_is_as_large_as_it_says() -> None:
    assert len(OUTPUTS) >= 120


def asking_for(names: list[str]) -> list[Attempt]:
    """A model that calls `produce` once for each name, one after the other."""
    return [*(reply("", call("produce", {"which": name})) for name in names), reply("done")]


async def run(session: Session) -> str:
    """One request."""
    return (await session.run("hello", input_id="i-1")).content


@pytest.mark.anyio
@pytest.mark.parametrize("names", groups(OUTPUTS), ids=lambda names: f"from {names[0]}")
async def test_any_result_is_kept_or_named_and_is_the_same_everywhere(
    tmp_path: Path, names: list[str]
) -> None:
    runs = []

    @tool(kind=ToolKind.READ_ONLY)
    async def produce(which: str) -> Any:
        runs.append(which)
        return OUTPUTS[which]()

    came = await in_both(tmp_path, run, asking_for(names), [produce])
    assert came.outcome == "done"
    assert runs == [*names, *names], "once for each store"
    for name, kept in zip(names, came.data("tool_completed"), strict=True):
        _check(name, kept)


def _check(name: str, kept: Any) -> None:
    assert kept.output, name
    kept.output.encode()  # the model is sent UTF-8
    canonical.encode(kept.value)
    returned = OUTPUTS[name]()
    if not same(kept.value, returned) and kept.output != returned:
        assert kept.notes, f"{name}: what is kept is not what was returned, and no note says so"
    if name.startswith(("text: ", "object: ")) and not kept.blobs:
        whole = same(kept.value, returned) or kept.output == returned
        assert whole, f"{name}: plain values are kept as they are"


@pytest.mark.anyio
@pytest.mark.parametrize("names", groups(TEXTS, 60), ids=lambda names: f"from {names[0]}")
async def test_any_failure_of_a_tool_is_on_record_and_told(tmp_path: Path, names: list[str]) -> None:
    @tool(kind=ToolKind.READ_ONLY)
    async def produce(which: str) -> str:
        raise LookupError(TEXTS[which])

    came = await in_both(tmp_path, run, asking_for(names), [produce])
    assert came.outcome == "done"
    for name, failed in zip(names, came.data("tool_failed"), strict=True):
        kept = canonical.encode(failed.model_dump())
        assert b"LookupError" in kept, name
        failed.message.encode()


@pytest.mark.parametrize("make", MANY.values(), ids=MANY.keys())
def test_too_many_values_are_given_up_in_time(make: Make) -> None:
    kept = normalise(make())
    assert kept.notes
    assert len(canonical.encode(kept.value)) < 1000


@pytest.mark.parametrize("make", OUTPUTS.values(), ids=OUTPUTS.keys())
def test_what_goes_with_a_result_never_turns_it_into_a_failure(make: Make) -> None:
    value = make()
    kept = normalise(ToolOutput("the result", display=value, messages=[value]))
    assert (kept.output_text, kept.value) == ("the result", "the result")
    canonical.encode([kept.display, list(kept.messages), list(kept.notes)])
