"""What a decision would append: entries on top of a state, written by nobody yet.

Used by the coordinator, which commits them, and by `reconcile --dry-run`, which
prints them: what is shown is what would be written.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from domain import catalogue, taking_over, unattended
from domain.decider import Command
from domain.entry import Entry
from domain.envelope import Actor, Fence
from domain.errors import Corrupt
from domain.events import ResponseKept
from domain.lease import AcquireLease
from domain.model_attempt import response_of
from domain.next_steps import Step, Who, next_steps
from domain.ports import Clock, IdSource, JournalReader, LeaseRow
from domain.state import State
from domain.values import ActorKind
from recovery.decisions import Choice
from recovery.rollover import filled

RECOVERY: Final = Actor(ActorKind.RECOVERY)


@dataclass(frozen=True, slots=True)
class Composer:
    """Entries of one holder of a session's lease.

    Args:
        lease, fence: the right to write; the first entry says who has it.
        holds: what that entry says.
        actor: who decides, for the record.
    """

    reader: JournalReader
    clock: Clock
    ids: IdSource
    lease: LeaseRow
    fence: Fence
    holds: AcquireLease
    actor: Actor

    async def decision(self, state: State, choice: Choice, command_id: str | None) -> Entry:
        """One decision as a finished entry. Raises as `Choice.decide` and the rules do."""
        chosen = await filled(choice, self.reader, state, self.ids.new)
        entry = self._begin(state, command_id)
        for command in chosen.decide(state):
            entry.add(command, self.actor)
        entry.finish()
        return entry

    async def automatic(self, state: State) -> tuple[Entry, list[Step]] | None:
        """The next steps that need no application code as a finished entry; None if there are none."""
        steps = [s for s in next_steps(state) if s.who is Who.AUTOMATIC and s.action in unattended.ACTIONS]
        if not steps:
            return None
        entry = self._begin(state, None)
        for step in steps:
            for command in await self._commands(state, step):
                entry.add(command, RECOVERY)
        entry.finish()
        return entry, steps

    def _begin(self, state: State, command_id: str | None) -> Entry:
        entry = Entry(state, command_id or self.ids.new("c"), self.clock.now(), self.fence)
        if taking_over.is_due(state, self.lease):
            entry.add(self.holds, self.actor)
        return entry

    async def _commands(self, state: State, step: Step) -> Iterator[Command]:
        response = await self._response(state) if step.action in unattended.NEED_RESPONSE else None
        return unattended.commands(state, step, response)

    async def _response(self, state: State) -> ResponseKept:
        assert state.attempt is not None
        at = state.attempt.sequence
        rows = await self.reader.read(state.session_id, after=at - 1, upto=at, limit=1)
        response = response_of(catalogue.open_stored(rows[0])) if rows else None
        if response is None:
            raise Corrupt("event", "the response of the latest attempt", rows and rows[0].topic, at)
        return response
