"""Goals that are counted, not timed: commits, bytes, rows, encodings, calls. They hold on any machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from adapters.memory_journal import MemoryStore
from adapters.sqlite_store import SqliteStore
from domain.limits import MAX_TAIL_EVENTS
from domain.values import Verdict
from minutebook.interactions import Approve, Interaction
from minutebook.session import Session
from minutebook.testing.faulty_store import FaultyStore
from minutebook.testing.scripted import Attempt, Gate, ScriptedProvider, call, reply
from recovery.reading import load
from tests.session.harness import Hands, Place, asked

pytestmark = pytest.mark.anyio


def looks(*names: str) -> Attempt:
    """A response that looks at some things."""
    return reply("", *(call("look", {"what": name}) for name in names))


async def commits_of(place: Place, hands: Hands, script: list[Attempt], **options: Any) -> int:
    """How many commits somebody waited for in one request, from `send` to its end."""
    async with place.create(script, tools=hands.tools(), **options) as session:
        before = len(place.store.batches)
        result = await session.run("hello")
        assert result.content == "done"
        return len(place.store.batches) - before


# --- G-D1: commits that somebody waits for -----------------------------------------------------


async def test_a_request_without_tools_takes_three_commits() -> None:
    assert await commits_of(Place(), Hands(), [reply("done")]) == 3


@pytest.mark.parametrize("rounds", [1, 2, 3, 7])
@pytest.mark.parametrize("calls", [1, 4])
async def test_a_tool_round_takes_two_more_commits(rounds: int, calls: int) -> None:
    hands, place = Hands(), Place()
    # A gate for each round, so that all of its calls end at one moment.
    names = [[f"{n}.{m}" for m in range(calls)] for n in range(rounds)]
    script = [*(looks(*each) for each in names), reply("done")]
    hands.gates = {name: Gate() for each in names for name in each}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_open_all_together, hands, names)
        assert await commits_of(place, hands, script) == 5 + 2 * (rounds - 1)


async def _open_all_together(hands: Hands, rounds: list[list[str]]) -> None:
    for names in rounds:
        for name in names:
            await hands.gates[name].reached()
        for name in names:
            hands.gates[name].open()


@pytest.mark.parametrize("moments", [1, 2, 3, 5])
async def test_each_further_moment_at_which_tools_end_takes_one_more(moments: int) -> None:
    hands, place = Hands(), Place()
    names = [str(n) for n in range(moments)]
    hands.gates = {name: Gate() for name in names}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_open_one_by_one, place, hands, names)
        assert await commits_of(place, hands, [looks(*names), reply("done")]) == 5 + moments - 1
    assert hands.done == names


async def _open_one_by_one(place: Place, hands: Hands, names: list[str]) -> None:
    for name in names:
        await hands.gates[name].reached()
    for number, name in enumerate(names, 1):
        hands.gates[name].open()
        # A finished result is never held back for a call that still runs.
        while (await place.types()).count("tool_completed") < number:
            await anyio.lowlevel.checkpoint()


@pytest.mark.parametrize("questions", [1, 2, 3])
async def test_each_answer_of_a_person_takes_one_more(questions: int) -> None:
    hands, place = Hands(), Place()
    script = [reply("", *(call("pay", {"what": str(n)}) for n in range(questions))), reply("done")]
    hands.gates = {str(n): Gate() for n in range(questions)}
    async with place.create(script, tools=hands.tools()) as session:
        before = len(place.store.batches)
        await session.send("hello")
        await asked(session)
        for number in range(questions):
            question = session.interactions[0]
            await session.respond(question.id, Approve(), digest=question.digest)
            await hands.gates[str(number)].reached()
        for gate in hands.gates.values():
            gate.open()
        await session.wait_idle()
        assert len(place.store.batches) - before == 5 + questions
    assert len(hands.done) == questions


async def test_a_decision_of_the_application_takes_one_more() -> None:
    async def handler(_: object) -> Verdict:
        return Verdict.ALLOW

    async def confirm(_: Interaction) -> Approve:
        return Approve()

    script = [reply("", call("pay", {"what": "x"})), reply("done")]
    assert await commits_of(Place(), Hands(), script, permission_handler=handler) == 6
    assert await commits_of(Place(), Hands(), script, confirmation_handler=confirm) == 6


# --- G-D2: stored bytes ---------------------------------------------------------------------------


def _answer(sent: Any) -> Attempt:
    if sent.messages[-1]["role"] == "tool":
        return reply("I looked, and this is what I found. " * 8)
    return reply("Let me see. ", call("look", {"what": "the same thing as always"}))


def stored(place: Place) -> list[int]:
    """Envelope and payload bytes of each commit."""
    return [sum(len(r.envelope) + len(r.payload or b"") for r in b.events) for b in place.store.batches]


async def test_what_a_turn_stores_does_not_grow_with_the_history() -> None:
    place, hands, sizes = Place(), Hands(), list[int]()
    async with place.create(ScriptedProvider(_answer), tools=hands.tools()) as session:
        for _ in range(100):  # two turns each
            before = len(place.store.batches)
            await session.run("Look at the same thing as always, please. " * 4)
            sizes.append(sum(stored(place)[before:]))
    early, late = sum(sizes[3:7]), sum(sizes[96:])
    assert late / early <= 1.05


def bytes_in(directory: Path) -> int:
    """The size of all files together."""
    return sum(file.stat().st_size for file in directory.iterdir())


async def test_a_file_is_little_larger_than_what_is_in_it(tmp_path: Path) -> None:
    place, hands = Place(FaultyStore(SqliteStore(tmp_path / "journal.db"))), Hands()
    async with place.create(ScriptedProvider(_answer), tools=hands.tools()) as session:
        for _ in range(100):
            await session.run("Look at the same thing as always, please. " * 4)
    assert bytes_in(tmp_path) <= 1.6 * sum(stored(place))


# --- G-D3: rows read for a plan -------------------------------------------------------------------


async def test_a_plan_reads_one_snapshot_and_a_bounded_tail_of_a_real_session() -> None:
    place = Place()
    async with place.create(ScriptedProvider(lambda _: reply("ok"))) as session:
        for number in range(130):
            await session.run(str(number))
            if number % 10:
                continue
            store = FaultyStore(place.store.inner)
            async with store.open() as journal:
                await load(journal, "s1")
            assert store.snapshots_read == 1
            assert store.rows_read <= MAX_TAIL_EVENTS
    assert len(await place.events()) > 1000


# --- G-D5: what is encoded, and what is walked -----------------------------------------------------


async def test_a_turn_encodes_the_same_whatever_came_before() -> None:
    provider, hands, counts = ScriptedProvider(_answer), Hands(), list[tuple[int, int]]()
    async with Place().create(provider, tools=hands.tools()) as session:
        for _ in range(100):
            before = provider.counts.encoded, provider.counts.bodies
            await session.run("hello")
            counts.append((provider.counts.encoded - before[0], provider.counts.bodies - before[1]))
    assert set(counts[1:]) == {counts[1]}
    assert counts[1] <= (5, 2)


class Calls:
    """Counts calls of functions, of Python and of C, in this thread."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Calls:
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _profile(self, frame: object, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            self.count += 1


async def _calls_of(session: Session, prepare: Callable[[], None]) -> int:
    prepare()
    with Calls() as calls:
        await session.run("hello")
    return calls.count


async def test_a_model_request_does_not_walk_the_history() -> None:
    place = Place(FaultyStore(MemoryStore()))
    provider, hands = ScriptedProvider(lambda _: reply("ok")), Hands()
    async with place.create(provider, tools=hands.tools()) as session:
        few = [await _calls_of(session, provider.sent.clear) for _ in range(20)]
        for _ in range(300):
            await session.run("hello")
        many = [await _calls_of(session, provider.sent.clear) for _ in range(20)]
        assert len(session.messages) > 600
    assert min(many) <= 1.05 * min(few)
