"""Commits that queue up behind one that is held: what waits, waits for sure."""

from __future__ import annotations

import threading

import anyio

from adapters.sqlite_store import SqliteStore
from domain.cursor import Cursor
from domain.errors import MinutebookError
from domain.ports import Batch, Journal, Receipt
from minutebook.testing.batches import dummy_batch
from tests.store.waiting import until


class Gate:
    """A probe that counts commits and holds the first one until it is opened."""

    def __init__(self) -> None:
        self.points: list[str] = []
        self.reached = threading.Event()
        self.opened = threading.Event()
        self.fail_at: str = ""

    def __call__(self, point: str) -> None:
        self.points.append(point)
        if point == self.fail_at:
            raise RuntimeError("the probe was told to fail")
        if point == "before_commit" and not self.reached.is_set():
            self.reached.set()
            assert self.opened.wait(timeout=20)

    def commits(self) -> int:
        """How many transactions appended events."""
        return self.points.count("after_commit")


async def answer(journal: Journal, batch: Batch, answers: dict[str, Receipt | MinutebookError]) -> None:
    """Commit a batch and keep what came of it, by its command."""
    try:
        answers[batch.command_id] = await journal.commit(batch)
    except MinutebookError as e:
        answers[batch.command_id] = e


async def behind_a_held_commit(
    store: SqliteStore, gate: Gate, batches: list[Batch]
) -> dict[str, Receipt | MinutebookError]:
    """Queue batches one after another while a commit is held; what became of them."""
    answers: dict[str, Receipt | MinutebookError] = {}
    async with store.open() as journal, anyio.create_task_group() as tasks:
        tasks.start_soon(answer, journal, dummy_batch(Cursor.start("held"), "held"), answers)
        await until(gate.reached.is_set)
        for batch in batches:
            tasks.start_soon(answer, journal, batch, answers)
            await anyio.wait_all_tasks_blocked()
        gate.opened.set()
    return answers
