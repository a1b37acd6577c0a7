"""Closing and leaving while code of the application ignores that it was told to stop."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import anyio
import pytest

import minutebook as mb
from adapters.sqlite_store import SqliteStore
from adapters.system import SystemClock
from domain.errors import (
    CloseError,
    HandoffPending,
    LeaseConflict,
    RuntimeQuarantined,
)
from domain.values import SideEffect, ToolKind
from minutebook.interactions import Approve, Interaction, ToolAnswer
from minutebook.session import Session
from minutebook.testing.faulty_store import FaultyStore
from minutebook.testing.scripted import Gate, ScriptedProvider, call, reply
from minutebook.tool_context import ToolContext
from minutebook.tool_definition import tool
from tests.session.harness import LONG_S, Place, data
from tests.session.leasing import keeping, landed, until

pytestmark = [pytest.mark.anyio, pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])]

GRACE_S = 0.05
WAYS = ["async", "thread", "handler", "confirmation"]


@dataclass(slots=True)
class Stuck:
    """Code that heeds nobody until it is freed: a tool, or a handler that is asked about one."""

    place: Place
    way: str
    side_effect: SideEffect = SideEffect.NON_IDEMPOTENT
    begun: Event = field(default_factory=Event)
    ended: Event = field(default_factory=Event)
    gate: Gate = field(default_factory=Gate)
    freed: Event = field(default_factory=Event)
    others: list[str] = field(default_factory=list)

    def options(self) -> dict[str, Any]:
        """For the configuration."""

        @tool(name="work", side_effect=self.side_effect)
        async def work(ctx: ToolContext) -> str:
            await self._hold()
            return "after all"

        @tool(name="work", side_effect=self.side_effect)
        def work_in_thread(ctx: ToolContext) -> str:
            self.begun.set()
            self.freed.wait(LONG_S)
            self.ended.set()
            return "after all"

        @tool(kind=ToolKind.READ_ONLY)
        async def other(ctx: ToolContext) -> str:
            self.others.append(ctx.tool_id)
            return "ran"

        async def handler(_: mb.PermissionCall) -> mb.Verdict | None:
            await self._hold()
            return mb.Verdict.ALLOW

        async def confirm(_: Interaction) -> ToolAnswer | None:
            await self._hold()
            return Approve()

        options: dict[str, Any] = {"abort_timeout_s": GRACE_S}
        options["tools"] = [work_in_thread if self.way == "thread" else work, other]
        if self.way == "handler":
            options["permission_handler"] = handler
        elif self.way == "confirmation":
            options["confirmation_handler"] = confirm
        else:
            options["permission_mode"] = "yolo"
        return options

    async def _hold(self) -> None:
        self.begun.set()
        with anyio.move_on_after(LONG_S, shield=True):
            await self.gate.pass_through()
        self.ended.set()

    def open(self, **options: Any) -> AbstractAsyncContextManager[Session]:
        """A session in which it runs as soon as something is sent."""
        return self.place.create([reply("", call("work"))], **self.options(), **options)

    async def begin(self, session: Session) -> None:
        """Have it run."""
        await session.send("hello")
        await until(self.begun.is_set)

    @property
    def subject(self) -> str:
        """What it is called."""
        prefix = {"handler": "evaluate:", "confirmation": "confirm:"}.get(self.way, "")
        return f"{prefix}r1.t1.a1.c0"

    async def free(self) -> None:
        """Let it end."""
        self.gate.open()
        self.freed.set()
        await until(self.ended.is_set)


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    """A store in a file."""
    place = Place(FaultyStore(SqliteStore(tmp_path / "journal.db")))
    yield place
    await place.check()


async def refused(stuck: Stuck, session: Session) -> None:
    """Closing says what does not stop, keeps the lease, and lets nothing begin."""
    head = session.head_sequence
    with pytest.raises(CloseError) as told:
        await session.close()
    error = told.value
    assert (error.code, error.retryable) == ("SESSION_CLOSE_PENDING_CALLBACKS", True)
    (pending,) = error.pending_callbacks
    assert pending.startswith(stuck.subject)
    assert session.head_sequence - head <= 1  # the notice, once
    assert not session.is_closed
    assert session.lease is not None
    with pytest.raises(LeaseConflict):
        await stuck.place.resume([], **stuck.options()).__aenter__()


@pytest.mark.parametrize("way", WAYS)
async def test_r345_r385_closing_fails_until_what_heeds_nobody_has_ended(place: Place, way: str) -> None:
    stuck = Stuck(place, way)
    async with stuck.open() as session:
        await stuck.begin(session)
        with anyio.fail_after(LONG_S):
            await refused(stuck, session)
            await refused(stuck, session)
        await stuck.free()
        await landed(session)
        await session.close()
        assert session.is_closed
        assert session.lease is None
        assert keeping() == []
        async with place.resume([], **stuck.options()) as other:
            assert other.lease is not None
            assert other.lease.token == 2
        await session.close()
    (notice,) = data(await place.events(), "notice_recorded")
    assert notice.kind == "callback_pending"


CALLS: list[Callable[[Session], Awaitable[Any]]] = [
    lambda session: session.send("more"),
    lambda session: session.cancel_input("i-1"),
    lambda session: session.respond(None, Approve()),
    lambda session: session.abort(),
    lambda session: session.change(max_turns=3),
    lambda session: session.close(final=True),
]


@pytest.mark.parametrize("way", ["async", "thread"])
async def test_a_handle_that_could_not_be_closed_begins_nothing(place: Place, way: str) -> None:
    stuck = Stuck(place, way)
    provider = ScriptedProvider([reply("", call("work"), call("other"))])
    async with place.create(provider, **stuck.options()) as session:
        await stuck.begin(session)
        with pytest.raises(CloseError):
            await session.close()
        others, head = list(stuck.others), session.head_sequence
        for change in CALLS:
            with pytest.raises(RuntimeQuarantined) as told:
                await change(session)
            assert told.value.code == "RUNTIME_QUARANTINED"
        assert session.messages  # reads go on
        assert (stuck.others, session.head_sequence, len(provider.sent)) == (others, head, 1)
        await stuck.free()
        await landed(session)
        await session.close()


@pytest.mark.parametrize("way", WAYS)
async def test_leaving_the_block_leaves_what_heeds_nobody_behind_and_keeps_the_lease(
    place: Place, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    stuck = Stuck(place, way)
    with caplog.at_level(logging.WARNING, "minutebook"), anyio.fail_after(LONG_S / 2):
        async with stuck.open() as session:
            await stuck.begin(session)
    (record,) = caplog.records
    assert f"is left while {stuck.subject}" in record.getMessage()
    assert session.is_closed
    assert keeping() == []
    with pytest.raises(LeaseConflict):
        await place.resume([], **stuck.options()).__aenter__()
    events = await place.events()
    if way in ("async", "thread"):
        assert (await place.plan()).items[0].action == "reconcile_tool_outcomes"
    await stuck.free()
    await anyio.wait_all_tasks_blocked()
    assert await place.events() == events


@dataclass(slots=True)
class Ahead:
    """A clock that a test sets ahead."""

    by: float = 0.0
    boot_id: str | None = None

    def now(self) -> datetime:
        """Aware UTC."""
        return SystemClock().now() + timedelta(seconds=self.by)

    def monotonic(self) -> float:
        """Seconds, never going back."""
        return SystemClock().monotonic() + self.by


@pytest.mark.parametrize("way", ["async", "thread"])
async def test_a_lease_that_was_left_to_run_out_does(place: Place, way: str) -> None:
    clock = Ahead()
    place.store.inner = SqliteStore(_path(place), clock=clock)
    stuck = Stuck(place, way, SideEffect.PURE)
    async with stuck.open() as session:
        await stuck.begin(session)
    with pytest.raises(LeaseConflict):
        await place.resume([], **stuck.options()).__aenter__()
    clock.by = 31.0
    async with place.resume([], **stuck.options()) as other:
        assert other.lease is not None
        assert other.lease.token == 2
    (_, second) = data(await place.events(), "lease_acquired")
    assert second.former_end == "ran_out"
    await stuck.free()


def _path(place: Place) -> Path:
    assert isinstance(place.store.inner, SqliteStore)
    return Path(place.store.inner.path)


@pytest.mark.parametrize("way", ["async", "thread"])
async def test_closing_for_good_waits_for_it_too(place: Place, way: str) -> None:
    stuck = Stuck(place, way)
    async with stuck.open() as session:
        await stuck.begin(session)
        for _ in range(2):
            with pytest.raises(CloseError):
                await session.close(final=True)
            with pytest.raises(RuntimeQuarantined):
                await session.send("more")
        assert "session_closed" not in await place.types()
        assert (await place.types()).count("request_interrupted") == 1
        await stuck.free()
        await landed(session)
        await session.close(final=True)
        assert session.is_closed
    assert (await place.types())[-1] == "session_closed"


@pytest.mark.parametrize("way", WAYS)
async def test_a_session_that_is_neither_closed_nor_handed_over_can_still_be_either(
    place: Place, way: str
) -> None:
    stuck = Stuck(place, way)
    async with stuck.open() as session:
        await stuck.begin(session)
        with pytest.raises(HandoffPending):
            await session.suspend_for_handoff()
        with pytest.raises(CloseError):
            await session.close()
        with pytest.raises(HandoffPending):
            await session.suspend_for_handoff()
        await stuck.free()
        await landed(session)
        result = await session.suspend_for_handoff()
        assert result.head_sequence == session.head_sequence
    assert (await place.types())[-2:] == ["handoff_completed", "lease_released"]


async def test_one_who_closes_and_one_who_leaves_at_once_end_it_once(place: Place) -> None:
    stuck = Stuck(place, "async")
    failed: list[str] = []

    async def close() -> None:
        try:
            await session.close()
        except CloseError as error:
            failed.append(error.code)

    async with anyio.create_task_group() as tasks, stuck.open() as session:
        await stuck.begin(session)
        tasks.start_soon(close)
        await anyio.lowlevel.checkpoint()
    assert failed in ([], ["SESSION_CLOSE_PENDING_CALLBACKS"])  # whoever was first
    assert session.is_closed
    await stuck.free()
