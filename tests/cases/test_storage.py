"""How users got hurt by what was stored, or was not: values, sizes, versions, two writers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

import minutebook as mb
from domain.catalogue import CATALOGUE
from domain.cursor import Cursor
from domain.entry import Entry, to_batch
from domain.envelope import Draft, Recorded, check_link, genesis
from domain.errors import CursorMismatch, HeadConflict, MinutebookError, RuleViolated
from domain.lifecycle import fold
from domain.ports import Batch, CommitStatus
from domain.session import Note
from domain.state import State
from domain.values import Priority
from minutebook.testing.faulty_store import Fault
from minutebook.testing.scripted import Gate, ScriptedProvider, call, reply
from projections.transcript import Exchange
from recovery.plan import Kind, RecoveryRequired
from tests.session import order
from tests.session.harness import Hands, Place, approving, asked, data, drained

pytestmark = pytest.mark.anyio

ROUND = [reply("", call("look", {"what": "x"})), reply("done")]


# --- history ------------------------------------------------------------------------------------


async def test_p03_no_prefix_of_a_journal_renders_a_call_without_its_result(
    place: Place, hands: Hands
) -> None:
    calls = [call("look", {"what": "a"}), call("pay", {"what": "b"}), call("look", "{")]
    async with place.create([reply("hm", *calls), reply("done")], tools=hands.tools()) as session:
        await session.send("hello")
        await drained(approving(session))
    for commits in range(1, len(place.store.batches) + 1):
        left, provider = await place.killed_after(commits), ScriptedProvider(lambda _: reply("ok"))
        try:
            async with left.resume(provider, tools=hands.tools()) as session:
                await session.abort()
                await session.run("go on")
        except RecoveryRequired:
            async with left.coordinator() as coordinator:
                await coordinator.abandon_request(reason="start again")
            async with left.resume(provider, tools=hands.tools()) as session:
                await session.run("go on")
        await left.check()  # every body that was sent is held against the rules of the wire


async def test_p24_a_second_start_is_refused_and_names_its_sequence(place: Place, hands: Hands) -> None:
    async with place.create(ROUND, tools=hands.tools()) as session:
        await session.run("hello")
    events = await place.events()
    started = next(event for event in events if event.type == "tool_started")
    before = [event for event in events if event.sequence < started.sequence]
    state = fold(State("s1"), [*before, started])
    for again in ("tool_started", "tool_scheduled", "model_request_completed"):
        entry = Entry(state, "again", started.recorded_at, started.recorded_by)
        repeated = next(event for event in events if event.type == again)
        with pytest.raises(RuleViolated) as refused:
            entry.append(_draft_of(repeated))
        assert refused.value.sequence == started.sequence + 1


def _draft_of(event: Any) -> Draft:
    ids = (event.request_id, event.turn_id, event.model_attempt_id, event.tool_id)
    return Draft(event.data, event.aggregate_id, *ids, None, event.actor)


# --- failures of the store ------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.WRITE_FAILED, Fault.TIMEOUT, Fault.LOST_ABSENT, Fault.DEFECT])
async def test_p26_a_tool_that_ran_and_was_not_recorded_is_somebody_s_decision(
    place: Place, hands: Hands, fault: Fault
) -> None:
    hands.gates["rent"] = Gate()
    async with place.create([reply("", call("pay", {"what": "rent"}))], tools=hands.tools()) as session:
        await session.send("hello")
        question = await asked(session)
        await session.respond(question.id, mb.Approve(), digest=question.digest)
        await hands.gates["rent"].reached()
        place.store.faults = {len(place.store.batches) + 1: fault}
        hands.gates["rent"].open()
        with pytest.raises(MinutebookError):
            await session.wait_idle()
    assert hands.done == ["rent"]
    assert (await place.types())[-1] == "tool_started"
    with pytest.raises(RecoveryRequired) as required:
        await place.resume([], tools=hands.tools()).__aenter__()
    assert [item.action for item in required.value.plan.items] == ["reconcile_tool_outcomes"]


async def test_p28_a_consumer_that_fails_does_not_make_a_commit_fail(place: Place, hands: Hands) -> None:
    async def fails(feed: Any) -> None:
        with pytest.raises(ZeroDivisionError):
            await _divide(feed)

    async with place.create(ROUND, tools=hands.tools()) as session, anyio.create_task_group() as tasks:
        tasks.start_soon(fails, session.events(after=Cursor.start(session.id)))
        result = await session.run("hello")
    assert result.status == "completed"
    assert len(place.store.batches) == 6


async def _divide(feed: Any) -> None:
    async for event in feed:
        _ = event.sequence / 0


@pytest.mark.parametrize("fault", list(Fault))
async def test_p106_what_cannot_be_written_is_never_dropped(place: Place, fault: Fault) -> None:
    """Whatever fails, the journal is what everybody was told, and a new worker goes on from there."""
    told: list[Any] = []
    place.store.faults = dict.fromkeys(range(4, 9), fault)
    try:
        async with place.create([reply("done")]) as session:
            await session.send("hello")
            told = await place.told(session.stream())
    except MinutebookError:
        pass
    place.store.faults = {}
    assert ("request_completed" in await place.types()) or not any(e.type == "result" for e in told)
    try:
        async with place.resume([reply("done")]) as session:
            await session.wait_idle()
    except RecoveryRequired:
        async with place.coordinator() as coordinator:
            await coordinator.reconcile_model_outcome("r1.t1.a1", outcome="lost", evidence="none")
        async with place.resume([reply("done")]) as session:
            await session.wait_idle()
    assert (await place.types()).count("request_completed") == 1


# --- several at once -------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [3, 10])
async def test_p66_of_records_made_at_the_same_time_none_is_missing(
    place: Place, hands: Hands, count: int
) -> None:
    def answer(sent: Any) -> Any:
        if sent.messages[-1]["role"] == "tool":
            return reply("done")
        return reply("", *(call("look", {"what": str(n)}) for n in range(count)))

    rounds = 50 if count == 3 else 5
    async with place.create(ScriptedProvider(answer), tools=hands.tools()) as session:
        for _ in range(rounds):
            await session.run("hello")
    ended = [event.tool_id for event in await place.events() if event.type == "tool_completed"]
    assert len(ended) == len(set(ended)) == count * rounds


async def test_p67_of_two_writers_one_wins_each_sequence(any_place: Place) -> None:
    """Somebody writes under our very lease: the loser is told, and stops."""
    async with any_place.create([reply("done")]) as session:
        await session.run("hello")
        events = await any_place.events()
        async with any_place.store.inner.open() as journal:
            row = await journal.session("s1")
            assert row is not None
            _, batch = _remarks(fold(State("s1"), events), row.head, events[-1], "theirs", 1)
            await journal.commit(batch)
        with pytest.raises(HeadConflict):
            await session.send("more")
        with pytest.raises(MinutebookError):
            await session.send("more")
    types = await any_place.types()
    assert types[-1] == "notice_recorded"
    async with any_place.resume([reply("done")]) as session:
        assert (await session.run("more")).content == "done"


async def test_p101_a_reader_s_place_is_a_sequence_of_the_journal(any_place: Place) -> None:
    """However far behind it is, whatever it leaves out, whatever was repeated or refused meanwhile."""
    async with any_place.create([reply("done")]) as session:
        await session.run("hello")
        await _noted(any_place, commits=25, each=100)
    async with any_place.resume([reply("more")]) as session:
        fifth = Cursor.after((await session.recorded())[4])
        feed, rows = session.events(after=fifth), session.journal_rows(after=fifth)
        fed, stored = [await _next(feed)], [await anext(rows)]
        notes = session.events(after=Cursor.start(session.id))
        await session.run("more")
        while fed[-1].sequence < session.head_sequence:
            fed.append(await _next(feed))
            stored.append(await anext(rows))
        only = [await _next(notes) for _ in range(session.head_sequence)]
        events = await any_place.events()
        assert len(events) > 2500
        assert [event.sequence for event in events] == list(range(1, len(events) + 1))
        assert fed == events[5:]
        assert [row.sequence for row in stored] == [event.sequence for event in fed]
        places = [event.sequence for event in only if event.type == "notice_recorded"]
        assert places == [event.sequence for event in events if event.type == "notice_recorded"]
        beyond = replace(session.cursor, sequence=len(events) + 1)
        for views in (session.events, session.journal_rows):
            with pytest.raises(CursorMismatch):
                await anext(views(after=beyond))


async def _next(feed: Any) -> Recorded:
    """The next event that is durable."""
    while not isinstance(event := await anext(feed), Recorded):
        pass
    return event


async def _noted(place: Place, commits: int, each: int) -> None:
    """Many remarks under the lease of the session; every commit is repeated, and another one refused."""
    events = await place.events()
    state, last = fold(State("s1"), events), events[-1]
    async with place.store.inner.open() as journal:
        row = await journal.session("s1")
        assert row is not None
        head = row.head
        for number in range(commits):
            noted, batch = _remarks(state, head, last, f"noted-{number}", each)
            _, late = _remarks(state, head, last, f"refused-{number}", 1)
            receipt = await journal.commit(batch)
            again = await journal.commit(batch)
            assert (again.status, again.last_sequence) == (CommitStatus.REPLAYED, receipt.last_sequence)
            with pytest.raises(HeadConflict):
                await journal.commit(late)
            state, head = noted, receipt.head


def _remarks(state: State, head: bytes, like: Recorded, name: str, count: int) -> tuple[State, Batch]:
    """A commit of remarks, and the state after it."""
    entry = Entry(state, name, like.recorded_at, like.recorded_by)
    for _ in range(count):
        entry.add(Note("remark", "we were here"))
    entry.finish()
    return entry.state, to_batch(entry, head, lambda: b"s" * 32, "local", "note", {})


@pytest.mark.parametrize("count", [2, 5, 32])
async def test_p86_inputs_at_the_same_moment_are_queued_and_no_error(place: Place, count: int) -> None:
    receipts = []
    gate = Gate()
    provider = ScriptedProvider(lambda sent: [gate, *reply(str(sent.number))])
    async with place.create(provider) as session:

        async def send(number: int) -> None:
            receipts.append(await session.send(str(number)))

        async with anyio.create_task_group() as tasks:
            for number in range(count):
                tasks.start_soon(send, number)
        gate.open()
        await session.wait_idle()
    assert sorted(receipt.status for receipt in receipts) == ["queued"] * (count - 1) + ["started"]
    accepted = data(await place.events(), "input_accepted")
    assert [event.ordinal for event in accepted] == list(range(1, count + 1))
    assert (await place.types()).count("request_completed") == count


@pytest.mark.parametrize("words", [["L1"], ["L1", "N1"], ["L1", "N1", "L2", "N2"]])
async def test_p100_what_is_sent_while_a_call_runs_waits_its_turn_and_says_so(
    place: Place, hands: Hands, words: list[str]
) -> None:
    """As far as it exists: whatever its priority, an input waits as `later`, in order of acceptance."""
    hands.gates["x"] = Gate()
    provider = ScriptedProvider(
        lambda sent: ROUND[0] if sent.number == 0 else reply(sent.messages[-1]["content"])
    )
    async with place.create(provider, tools=hands.tools()) as session:
        await session.send("hello")
        await hands.gates["x"].reached()
        receipts = []
        for word in words:
            priority = Priority.NOW if word[0] == "N" else Priority.LATER
            receipts.append(await session.send(word, priority=priority))
        hands.gates["x"].open()
        contents = [(await place.told(session.stream()))[-1].content for _ in range(len(words) + 1)]
    assert contents[1:] == words
    assert [r.downgraded_from for r in receipts] == [Priority.NOW if w[0] == "N" else None for w in words]
    assert all(receipt.status == "queued" and receipt.priority is Priority.LATER for receipt in receipts)
    assert hands.done == ["x"]


# --- formats ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("type_", [*sorted(CATALOGUE), "app.Old", "os.system", "subagent_registered"])
async def test_p73_p81_what_is_newer_or_unknown_is_named_and_not_touched(type_: str) -> None:
    place = Place()
    async with place.create([reply("done")]) as session:
        await session.run("hello")
    await place.append_raw(type_, 99, b'{"kind":"a"}')
    async with place.reader() as reader:
        before = [row async for row in _rows(reader)]
        with pytest.raises(RecoveryRequired) as required:
            await place.resume([]).__aenter__()
        assert [row async for row in _rows(reader)] == before
    plan = required.value.plan
    assert plan.kind is Kind.BLOCKED
    assert plan.problem is not None
    assert plan.problem.sequence == before[-1].sequence
    assert type_ in plan.problem.found
    if type_ in CATALOGUE:
        assert f"{type_}@1" in plan.problem.expected
        assert f"{type_}@99" in plan.problem.found


async def _rows(reader: Any) -> Any:
    for row in await reader.read("s1"):
        yield row


CANARY = "canary-7f3a"


SECRETS: dict[str, dict[str, Any]] = {
    "key": {"api_key": CANARY},
    "header": {"headers": {"x-secret": CANARY}},
    "address": {"base_url": f"http://user:{CANARY}@127.0.0.1:9/v1?key={CANARY}"},
}


@pytest.mark.parametrize("options", SECRETS.values(), ids=SECRETS.keys())
async def test_p84_no_secret_of_the_configuration_is_in_a_journal(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    known = {"type": "openai-compatible", "base_url": "http://127.0.0.1:9/v1", "api_key": "k"}
    config = mb.SessionConfig(provider=mb.ProviderConfig(**{**known, **options}), model="m")
    store = mb.sqlite(tmp_path / "journal.db")
    async with mb.create_session(config, store=store, session_id="s1") as session:
        await session.send("hello")
        await session.abort()
        assert CANARY not in repr(session)
    assert CANARY not in repr(config)
    for file in _files(tmp_path):
        assert CANARY.encode() not in file


def _files(directory: Path) -> list[bytes]:
    return [file.read_bytes() for file in directory.iterdir()]


NUMBERS_AND_NAMES = [
    '{"a":1.0}',
    '{"a":1}',
    '{"b":1,"a":2}',
    '{"\u00e9":1}',
    '{"e\u0301":1}',
    '{"a":1e2}',
    '{"a":-0.0}',
    '{"a":0.1}',
]


@pytest.mark.parametrize("raw", NUMBERS_AND_NAMES, ids=range(len(NUMBERS_AND_NAMES)))
async def test_p110_what_is_hashed_is_what_is_stored(any_place: Place, raw: str) -> None:
    """The chain is over bytes: numbers, the order of names and ways to write a letter do not matter."""

    async def take(**values: Any) -> dict[str, Any]:
        return values

    tools = [mb.ToolDefinition("take", "", {"type": "object"}, take, True, mb.ToolKind.READ_ONLY)]
    async with any_place.create([reply("", call("take", raw)), reply("done")], tools=tools) as session:
        await session.run("hello")
        exchange = session.messages[1]
    assert isinstance(exchange, Exchange)
    assert exchange.calls[0].arguments == raw
    head = genesis("s1")
    async with any_place.reader() as reader:
        rows = await reader.read("s1")
        for number, row in enumerate(rows):
            check_link(row, number, head)
            head = row.head
        stands = await reader.session("s1")
    assert stands is not None
    assert stands.head == head
    assert order.types(await any_place.events())[-1] == "request_completed"
