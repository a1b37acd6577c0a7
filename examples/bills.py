"""The agent of the examples: it pays bills. Its model is a script, so that everything runs offline.

Imported by the workers (`--agent bills:config`) and by the programs that start them. The bank is a
file outside the journal with a line for each payment: what really happened, whoever was killed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

import anyio

import minutebook as mb
from domain.envelope import Recorded
from domain.ports import StoreDescription
from minutebook.testing import Attempt, Gate, ScriptedProvider, Sent, Witness, call, journal_of, reply

BILLS: Final = 3
#: What a model and a bank would take.
MODEL_S, BANK_S = 0.08, 0.04
ENDED: Final = ("request_completed", "request_failed", "request_interrupted", "request_superseded")


class Thinking(Gate):
    """A place in the script where the model takes its time."""

    async def pass_through(self) -> None:
        """Think."""
        await anyio.sleep(MODEL_S)


def model(sent: Sent) -> Attempt:
    """Pay one bill after the other, then say so. The last message of a user is the order."""
    last = max(n for n, message in enumerate(sent.messages) if message["role"] == "user")
    *bills, bank = sent.messages[last]["content"].split()
    paid = sum(message["role"] == "tool" for message in sent.messages[last:])
    if paid == len(bills):
        return [Thinking(), *reply(f"Paid {paid} bills.")]
    return [Thinking(), *reply("", call("pay", {"bill": bills[paid], "bank": bank}))]


@mb.tool(category="money")
async def pay(bill: str, bank: str, ctx: mb.ToolContext) -> str:
    """Pay a bill. The bank does not know the bill: it would pay twice."""
    await anyio.sleep(BANK_S)
    Witness(bank).record(ctx.session_id, ctx.tool_id, bill, ctx.fence.worker_id if ctx.fence else "nobody")
    await anyio.sleep(BANK_S)
    return f"paid {bill}"


def config() -> mb.SessionConfig:
    """How every worker resumes every session."""
    return mb.SessionConfig(
        provider=ScriptedProvider(model),
        model="scripted",
        tools=[pay],
        permission_mode=mb.PermissionMode.YOLO,  # nobody is there to be asked
        on_lost_attempt="retry",  # a model's answer that was lost is asked for again
    )


def ordered(session_id: str, number: int, bank: Path) -> str:
    """The text of an order of some bills."""
    return " ".join([*(f"{session_id}/{number}.{bill}" for bill in range(BILLS)), str(bank)])


async def order(store: StoreDescription, sessions: Sequence[str], bank: Path, inputs: int = 1) -> None:
    """Make sessions with something to do, and leave it to the workers."""
    for session_id in sessions:
        async with mb.create_session(config(), store=store, session_id=session_id) as session:
            for number in range(inputs):
                await session.send(ordered(session_id, number, bank), input_id=f"order-{number}")


async def settle(store: StoreDescription, session_id: str, bank: Path) -> list[str]:
    """Be the operator: ask the bank about payments that nobody knows the outcome of, and say so.

    Returns:
        The calls that were settled. Raises LeaseConflict while a worker has the session.
    """
    paid = {call_id for session, call_id, *_ in Witness(bank).lines() if session == session_id}
    settled = []
    async with mb.open_coordinator(session_id, store=store, actor_id="operator") as coordinator:
        for item in coordinator.plan.items:
            if item.action == mb.Action.RECONCILE_TOOL_OUTCOMES:
                what = "completed" if item.subject in paid else "cancelled"
                evidence, output = "the bank's file", f"the bank says: {what}"
                await coordinator.reconcile_tool_outcome(
                    item.subject, outcome=what, evidence=evidence, output=output
                )
                settled.append(item.subject)
    return settled


@dataclass(frozen=True, slots=True)
class Story:
    """What became of a session, from its verified journal and from the bank.

    Args:
        workers: who held it, and how each got it: new, released, ran_out or died.
        twice: payments that the bank made more than once for one call.
        stale: events under a token lower than one before them.
    """

    session_id: str
    workers: list[tuple[str, str]]
    accepted: int
    ended: list[int]
    paid: int
    twice: int
    stale: int
    events: list[Recorded]

    @property
    def done(self) -> bool:
        """Whether every order ended."""
        return sum(self.ended) == self.accepted

    @property
    def good(self) -> bool:
        """Whether every order ended exactly once, and no payment was made twice."""
        return self.ended == [1] * self.accepted and self.twice == self.stale == 0

    def taken_from(self, worker: str) -> list[datetime]:
        """When somebody took the session because that worker was silent for too long, or dead."""
        lost = ("ran_out", "died")
        taken = (event for event in self.events if event.type == "lease_acquired")
        return [
            event.recorded_at
            for event in taken
            if event.data.former_worker_id == worker and event.data.former_end in lost
        ]


async def story(store: StoreDescription, session_id: str, bank: Path) -> Story:
    """Read it. Raises AssertionError if the journal is not what its rules allow."""
    events = await journal_of(store, session_id)
    requests = Counter(e.request_id for e in events if e.type in ENDED)
    began = [e.request_id for e in events if e.type == "request_accepted"]
    calls = Counter(call_id for session, call_id, *_ in Witness(bank).lines() if session == session_id)
    tokens = [event.recorded_by.token for event in events if event.recorded_by]
    return Story(
        session_id,
        [_holder(event) for event in events if event.type == "lease_acquired"],
        sum(e.type == "input_accepted" for e in events),
        [requests[each] for each in began],
        len(calls),
        sum(times > 1 for times in calls.values()),
        sum(later < earlier for earlier, later in pairwise(tokens)),
        events,
    )


def _holder(event: Recorded) -> tuple[str, str]:
    assert event.recorded_by is not None
    return event.recorded_by.worker_id, event.data.former_end or "new"


def table(stories: Iterable[Story]) -> str:
    """The stories as text, a line for each."""
    held = "held by (what became of the one before)"
    lines = [f"{'session':10} {'orders':>6} {'ended':>5} {'paid':>4} {'twice':>5}  {held}"]
    for each in stories:
        held = " -> ".join(f"{worker} ({how})" for worker, how in each.workers)
        lines.append(
            f"{each.session_id:10} {each.accepted:6} {sum(each.ended):5} {each.paid:4} {each.twice:5}  {held}"
        )
    return "\n".join(lines)
