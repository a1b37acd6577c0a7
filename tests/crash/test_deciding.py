"""Decisions of processes that are killed: each is there whole or not at all, and is made once.

A rollover has two halves, the end of one request and the beginning of the next.
Whoever comes after the kill decides the same thing again, with the same command id.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from adapters.sqlite_reader import open_reader
from domain import catalogue, inputs, request
from domain.envelope import Recorded
from domain.values import Priority
from minutebook.testing.crash import NEVER, Ended, every_kill
from minutebook.testing.fork_server import ForkServer
from minutebook.testing.scenario import (
    LOOK,
    PUT,
    Scenario,
    accepted,
    created,
    evaluated,
    responded,
    running,
    scheduled,
)
from recovery.verify import Result, verify
from tests.integration.command_line import write
from tests.journals import BEGUN, session_of

SESSION = "s-kill"
REQUEST = session_of(
    created(),
    accepted(),
    [
        inputs.ApplyInput("i-1", Priority.NEXT, 1),
        request.StartRequest(),
        inputs.BeginPreparation(("i-1",), ("hook",)),
    ],
    session_id=SESSION,
)
TURN = session_of(
    *BEGUN,
    responded(LOOK, PUT),
    [scheduled(0, LOOK), scheduled(1, PUT), evaluated(1), running(1)],
    session_id=SESSION,
)
ROLLED = ["request_superseded", "input_accepted", "request_accepted"]
ACQUIRED = "lease_acquired"
#: What is killed: its session, and all that its one commit appends.
DECISIONS: dict[str, tuple[Scenario, list[str]]] = {
    "request": (REQUEST, [ACQUIRED, *ROLLED]),
    "turn": (TURN, [ACQUIRED, "tool_cancelled", "tool_outcome_unknown", "turn_aborted", *ROLLED]),
}
#: Fewer points mean that some are not reached any more.
FEWEST = 10


@pytest.fixture(scope="module")
def operators() -> Iterator[ForkServer]:
    program = Path(__file__).with_name("deciding.py")
    with ForkServer(program, preload=["minutebook.testing.warm"]) as server:
        yield server


async def _looked_at(path: Path) -> tuple[list[Recorded], Result]:
    async with open_reader(str(path)) as reader:
        rows = await reader.read(SESSION)
        return [catalogue.open_stored(row) for row in rows], (await verify(reader, SESSION)).result


@pytest.mark.parametrize("kind", DECISIONS)
def test_a_killed_decision_is_there_whole_or_not_at_all_and_is_made_once(
    tmp_path: Path, operators: ForkServer, kind: str
) -> None:
    scenario, whole = DECISIONS[kind]

    (tmp_path / "0").mkdir(mode=0o700)
    before = write(tmp_path / "0" / "journal.db", scenario)

    def life(number: int) -> Ended:
        place = tmp_path / f"{number}"
        place.mkdir(mode=0o700)
        path = shutil.copy(before, place)  # with its mode
        return operators.run("decide", path=str(path), session_id=SESSION, kind=kind, kill_at=number)

    points: list[str] = []
    written: set[bool] = set()
    for ended in every_kill(life):
        assert ended.killed is not None
        number, point = ended.killed
        points.append(point)
        path = tmp_path / f"{number}" / "journal.db"
        events, _ = anyio.run(_looked_at, path)
        new = [event.type for event in events[len(scenario.events) :]]
        assert new in ([], whole), f"killed at {point}"
        written.add(bool(new))
        again = operators.run("decide", path=str(path), session_id=SESSION, kind=kind, kill_at=NEVER)
        (status,) = again.completed().told("status")
        assert status == ("replayed" if new else "committed")
        events, result = anyio.run(_looked_at, path)
        assert [event.type for event in events[len(scenario.events) :]] == whole
        assert result is Result.CONSISTENT
        assert again.told("action") == ended.told("action") or not ended.told("action")
    assert written == {False, True}
    assert len(points) >= FEWEST
    assert {"after acquire", "before renew", "before_commit", "after_commit", "before release"} <= {*points}
