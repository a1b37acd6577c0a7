"""Whatever an operator writes down: on record as it was written, or refused with nothing written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from adapters.memory_journal import MemoryStore
from adapters.sqlite_store import SqliteStore
from adapters.system import SystemClock, SystemIds
from domain import catalogue
from domain.errors import MinutebookError
from domain.model_ports import Block, DeclaredCall, Response
from domain.values import Stop
from minutebook.testing.keeping import keep
from minutebook.testing.scenario import SETTINGS, Scenario, accepted, created
from recovery.coordinator import RecoveryCoordinator
from recovery.reading import load
from tests.corpus.sessions import Refusal, typed
from tests.corpus.texts import TEXTS, all_in_one
from tests.corpus.values import BAD_IDS, Make, giving, plain_values
from tests.journals import asking, lost_attempt, lost_payment, session_of, suspended, unsettled
from tests.property.values import same

pytestmark = pytest.mark.anyio

VALUES = plain_values()
Decide = Callable[[RecoveryCoordinator, Any], Awaitable[Any]]
#: How a place for free text is filled: where the session stands, what is decided.
TEXT_PLACES: dict[str, tuple[Callable[[str], Scenario], Decide]] = {
    "reason of an abandon": (lost_attempt, lambda c, t: c.abandon_request(reason=t)),
    "evidence of an abandon": (lost_attempt, lambda c, t: c.abandon_request(reason="r", evidence=t)),
    "evidence about a model": (
        lost_attempt,
        lambda c, t: c.reconcile_model_outcome("r1.t1.a1", outcome="lost", evidence=t),
    ),
    "message of a model": (
        lost_attempt,
        lambda c, t: c.reconcile_model_outcome("r1.t1.a1", outcome="failed", evidence="e", message=t),
    ),
    "text of a response": (
        lost_attempt,
        lambda c, t: c.reconcile_model_outcome(
            "r1.t1.a1", outcome="completed", evidence="e", response=_response(t)
        ),
    ),
    "evidence about a call": (
        lost_payment,
        lambda c, t: c.reconcile_tool_outcome("r1.t1.a1.c0", outcome="failed", evidence=t),
    ),
    "output of a call": (
        lost_payment,
        lambda c, t: c.reconcile_tool_outcome("r1.t1.a1.c0", outcome="completed", evidence="e", output=t),
    ),
    "output of an unsettled call": (
        unsettled,
        lambda c, t: c.reconcile_tool_outcome("r1.t1.a1.c0", outcome="completed", evidence="e", output=t),
    ),
    "message of a denial": (asking, lambda c, t: c.resolve_permission("r1.t1.a1.c0", "deny", message=t)),
    "evidence about a request": (
        lambda session_id: session_of(
            created(), accepted(settings=SETTINGS.changed({"model": "another"})), session_id=session_id
        ),
        lambda c, t: c.reconcile_request_outcome("failed", evidence=t, message=t),
    ),
}
VALUE_PLACES: dict[str, tuple[Callable[[str], Scenario], Decide]] = {
    "value of a call": (
        lost_payment,
        lambda c, v: c.reconcile_tool_outcome("r1.t1.a1.c0", outcome="completed", evidence="e", value=v),
    ),
    "answer to a suspension": (suspended, lambda c, v: c.answer_suspension("r1.t1.a1.c0", v)),
    "updated input": (
        asking,
        lambda c, v: c.resolve_permission("r1.t1.a1.c0", "allow", updated_input={"value": v}),
    ),
}


def _response(text: str) -> Response:
    blocks = (Block("text", text, text), Block("opaque", text, f"{text}/x"))
    return Response(blocks, (DeclaredCall(text, text, text),), Stop.TOOL_CALLS, {}, {text: text})


@asynccontextmanager
async def both(directory: Path, scenarios: Sequence[Scenario]) -> AsyncIterator[list[Any]]:
    """Journals in memory and in a file that hold the same sessions."""
    async with AsyncExitStack() as stack:
        journals = []
        for store in (MemoryStore(), SqliteStore(directory / "journal.db")):
            journals.append(await stack.enter_async_context(store.open()))
            for scenario in scenarios:
                await keep(journals[-1], scenario)
        yield journals


async def decided(journal: Any, session_id: str, decide: Decide, value: Any) -> Any:
    """What one decision wrote: types and payloads; or its refusal, with nothing written."""
    before = await load(journal, session_id)
    async with RecoveryCoordinator.open(
        journal, session_id, clock=SystemClock(), ids=SystemIds()
    ) as coordinator:
        outcome = await typed(decide(coordinator, value))
    after = await load(journal, session_id, use_snapshot=False)
    assert after.problem is None
    if isinstance(outcome, Refusal):
        assert after.state.sequence == before.state.sequence
        return outcome
    rows = await journal.read(session_id, after=before.state.sequence)
    return [(event.type, event.data) for event in map(catalogue.open_stored, rows)]


async def _in_both(
    directory: Path, made: Callable[[str], Scenario], decide: Decide, values: Sequence[Make]
) -> list[Any]:
    sessions = [made(f"s-{at}") for at in range(len(values))]
    found = []
    async with both(directory, sessions) as journals:
        for at, make in enumerate(values):
            outcomes = [await decided(journal, f"s-{at}", decide, make()) for journal in journals]
            assert repr(outcomes[0]) == repr(outcomes[1])
            found.append(outcomes[0])
    return found


#: All texts in one place; in every other place a few, and the rest in one.
SOME = {name: TEXTS[name] for name in ("empty", "space", "only NUL", "low surrogate")}
SOME["everything"] = all_in_one()
MOST_PLACES = [(place, SOME) for place in TEXT_PLACES] + [("evidence about a call", TEXTS)]


@pytest.mark.parametrize(
    ("place", "texts"), MOST_PLACES, ids=[f"{place}: {len(texts)}" for place, texts in MOST_PLACES]
)
async def test_any_text_of_a_decision_is_on_record_as_it_was_written(
    tmp_path: Path, place: str, texts: dict[str, str]
) -> None:
    made, decide = TEXT_PLACES[place]
    outcomes = await _in_both(tmp_path, made, decide, [giving(text) for text in texts.values()])
    for (name, text), outcome in zip(texts.items(), outcomes, strict=True):
        if isinstance(outcome, Refusal):
            assert name in ("empty", "space"), f"{name}: {outcome}"
        elif text.strip():
            assert any(_holds(data.model_dump(), text) for _, data in outcome), name


def _holds(value: Any, text: str) -> bool:
    if isinstance(value, dict):
        return any(_holds(item, text) for item in value.values())
    if isinstance(value, list):
        return any(_holds(item, text) for item in value)
    return isinstance(value, str) and text in value


#: All values in one place, every fifth in the others.
VALUES_IN = {place: list(VALUES)[:: 1 if place == "value of a call" else 5] for place in VALUE_PLACES}


@pytest.mark.parametrize("place", VALUE_PLACES)
async def test_any_value_of_a_decision_is_on_record_or_refused(tmp_path: Path, place: str) -> None:
    names = VALUES_IN[place]
    made, decide = VALUE_PLACES[place]
    outcomes = await _in_both(tmp_path, made, decide, [VALUES[name] for name in names])
    for name, outcome in zip(names, outcomes, strict=True):
        refused = isinstance(outcome, Refusal)
        beyond = name.startswith(("float: NaN", "float: Inf", "float: -Inf", "integer: 5000"))
        assert refused or not beyond, name
        if name.startswith(("text: ", "object: ", "bytes: ")):
            assert not refused, f"{name}: {outcome}"
            assert any(same_inside(data.model_dump(), VALUES[name]()) for _, data in outcome), name


def same_inside(value: Any, wanted: Any) -> bool:
    """Whether a payload holds a value somewhere, to the last detail."""
    if same(value, wanted):
        return True
    if isinstance(value, dict):
        return any(same_inside(item, wanted) for item in value.values())
    return isinstance(value, list) and any(same_inside(item, wanted) for item in value)


async def test_ids_of_decisions_are_parsed_and_subjects_looked_up(tmp_path: Path) -> None:
    scenario = lost_payment()
    async with both(tmp_path, [scenario]) as journals:
        for journal in journals:
            async with RecoveryCoordinator.open(
                journal, "s-pay", clock=SystemClock(), ids=SystemIds()
            ) as coordinator:
                for name, id_ in BAD_IDS.items():
                    if id_ is not None:
                        await _refused(name, coordinator.abandon_request(reason="r", command_id=id_))
                    await _refused(
                        name, coordinator.reconcile_tool_outcome(id_, outcome="failed", evidence="e")
                    )
                for text in TEXTS.values():
                    await _refused(text, coordinator.resolve_permission(text, text))
                    await _refused(text, coordinator.reconcile_request_outcome(text, evidence="e"))
            assert await journal.read("s-pay") == scenario.rows()


async def _refused(name: str, decision: Awaitable[Any]) -> None:
    with pytest.raises(MinutebookError) as refused:
        await decision
    assert str(refused.value).isprintable(), name
