"""The example's worker, inside this process: what it takes, what it leaves, how it stops."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

import minutebook as mb
from domain.errors import StoreReadFailed
from domain.ports import Journal, StoreDescription
from minutebook.testing import Attempt, Gate, ScriptedProvider, Sent, call, journal_of, reply

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from worker import Worker  # the path is known only now

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

#: Never reached in a test that passes.
LONG_S = 20.0


@dataclass(slots=True)
class Agent:
    """A model that waits at a gate for each session, and what was done for whom."""

    gates: dict[str, Gate] = field(default_factory=dict)
    at_once: int = 0
    most_at_once: int = 0
    paid: list[str] = field(default_factory=list)

    def answer(self, sent: Sent) -> Attempt:
        """Pay, then say so."""
        if sent.messages[-1]["role"] == "tool":
            return reply("paid")
        name = str(sent.messages[-1]["content"])
        return [*([self.gates[name]] if name in self.gates else []), *reply("", call("pay", {"who": name}))]

    def config(self) -> mb.SessionConfig:
        """For each session."""

        @mb.tool
        async def pay(who: str) -> str:
            """Pay somebody."""
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            self.paid.append(who)
            self.at_once -= 1
            return "done"

        return mb.SessionConfig(
            provider=ScriptedProvider(self.answer),
            model="scripted",
            tools=[pay],
            permission_mode=mb.PermissionMode.YOLO,
            on_lost_attempt="retry",
        )


@dataclass(slots=True)
class Moody:
    """A store that does not answer when it is opened for the n-th time."""

    inner: StoreDescription
    silent: set[int]
    opened: int = 0
    durable = False

    @asynccontextmanager
    async def open(self, *, owner_id: str = "local") -> AsyncIterator[Journal]:
        """The inner store's journal, or an error of it."""
        self.opened += 1
        if self.opened in self.silent:
            raise StoreReadFailed("moody", "it does not answer")
        async with self.inner.open(owner_id=owner_id) as journal:
            yield journal


async def ordered(store: StoreDescription, *names: str) -> None:
    """Sessions with something to do, left at their beginning."""
    waiting = Agent({name: Gate() for name in names})
    for name in names:
        async with mb.create_session(waiting.config(), store=store, session_id=name) as session:
            await session.send(name)


@asynccontextmanager
async def working(*workers: Worker) -> AsyncIterator[None]:
    """Workers that run until the end of the block, and then stop by themselves."""
    with anyio.fail_after(LONG_S):
        async with anyio.create_task_group() as tasks:
            for worker in workers:
                tasks.start_soon(worker.run)
            yield
            for worker in workers:
                worker.stop()


async def types(store: StoreDescription, name: str) -> list[str]:
    """The words of a session's journal."""
    return [event.type for event in await journal_of(store, name)]


async def until_done(store: StoreDescription, *names: str) -> None:
    """Wait until a request of each has ended."""
    for name in names:
        async with store.open() as journal:
            async for row in journal.subscribe(name):
                if row.topic.startswith("request_completed"):
                    break


def worker(store: StoreDescription, agent: Agent, **options: Any) -> Worker:
    """One that looks often."""
    return Worker(store, agent.config, **{"every_s": 0.01, **options})


async def test_workers_share_what_there_is_and_do_nothing_twice() -> None:
    """P88: two of one name. A lease has a random id, so they are two holders all the same."""
    store, agent, names = mb.memory(), Agent(), [f"s-{n}" for n in range(6)]
    await ordered(store, *names)
    async with working(worker(store, agent, name="same"), worker(store, agent, name="same")):
        await until_done(store, *names)
    assert sorted(agent.paid) == names


async def test_a_worker_has_so_many_at_a_time() -> None:
    store, agent, names = mb.memory(), Agent(), [f"s-{n}" for n in range(7)]
    await ordered(store, *names)
    async with working(worker(store, agent, most=2)):
        await until_done(store, *names)
    assert (sorted(agent.paid), agent.most_at_once <= 2) == (names, True)


async def test_a_store_that_does_not_answer_is_asked_again() -> None:
    """P88: looking for work is a query, repeated; an error in it is no reason never to look again."""
    inner, agent = mb.memory(), Agent()
    await ordered(inner, "s-1")
    moody = Moody(inner, {1, 2, 4})
    async with working(worker(moody, agent)):
        await until_done(inner, "s-1")
    assert agent.paid == ["s-1"]
    assert moody.opened > 4


async def test_a_worker_that_is_asked_to_stop_hands_back_what_it_has(tmp_path: Path) -> None:
    store, agent = mb.sqlite(tmp_path / "journal.db"), Agent({"s-1": Gate()})
    await ordered(store, "s-1")
    async with working(worker(store, agent)):
        await agent.gates["s-1"].reached()
    assert (await types(store, "s-1"))[-2:] == ["handoff_completed", "lease_released"]
    assert await mb.due_sessions(store) == ["s-1"]
    async with working(worker(store, Agent())):
        await until_done(store, "s-1")


async def test_what_could_not_be_served_is_left_alone_for_a_while() -> None:
    """A tool that is gone, a budget, a decision: the others must not wait for it, and the log not fill up."""
    store, agent, asked = mb.memory(), Agent(), list[int]()
    await ordered(store, "s-1", "s-2")

    def config() -> mb.SessionConfig:
        asked.append(len(asked))
        if len(asked) == 1:
            raise mb.errors.InvalidOptions("agent", "one that can be made", None)
        return agent.config()

    async with working(Worker(store, config, every_s=0.01, pause_s=3600)):
        while not agent.paid:
            await anyio.lowlevel.checkpoint()
    assert (len(agent.paid), len(asked)) == (1, 2)
