"""Deciding what happened: each decision is one small commit, on record with who and why.

Used by `python -m recovery reconcile`, by operators' scripts and by applications
that meet `RecoveryRequired`. Async, and only through the ports. What a decision
may be is in `recovery.decisions`; running models and tools never happens here.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

import anyio

from domain import catalogue, model_attempt, unattended
from domain import ids as parse
from domain.decider import Command
from domain.entry import Entry, fingerprint, to_batch
from domain.envelope import Actor, Fence
from domain.errors import (
    CommandConflict,
    Corrupt,
    InvalidOptions,
    JournalBlocked,
    OutcomeUnknown,
    StoreWriteFailed,
)
from domain.events import ResponseKept
from domain.model_attempt import response_of
from domain.model_ports import AttemptLookup, Found, LostAttempt, ModelProvider, Response
from domain.next_steps import Step, Who, next_steps
from domain.ports import Batch, Clock, CommitStatus, Holder, IdSource, Journal, LeaseRow, Receipt
from domain.values import ActorKind
from recovery.decisions import (
    Abandon,
    Choice,
    ModelOutcome,
    PermissionAnswer,
    PreparedInputs,
    RequestOutcome,
    SuspensionAnswer,
    ToolOutcome,
    lost_attempt,
)
from recovery.plan import RecoveryPlan, plan_of
from recovery.reading import Loaded, load

DEFAULT_TTL_MS: Final = 30_000
RECOVERY: Final = Actor(ActorKind.RECOVERY)


class RecoveryCoordinator:
    """The right to decide about one session, held under its lease. Made by `open`.

    Every method that decides: returns the receipt of its commit; with a
    `command_id` that was used before, and the same arguments, it returns the first
    receipt (`replayed`) and writes nothing. Raises `RecoveryRejected` (the plan does
    not call for it), `CommandConflict` (the id was used for something else),
    `HeadConflict` (somebody else wrote: open the coordinator again), `LeaseLost`,
    `InvalidId`, `InvalidOptions`, `RuleViolated`, `ValueRefused` with nothing written.
    """

    def __init__(
        self,
        journal: Journal,
        loaded: Loaded,
        lease: LeaseRow,
        fence: Fence,
        ttl_ms: int,
        clock: Clock,
        ids: IdSource,
        actor: Actor,
    ) -> None:
        self._journal, self._clock, self._ids = journal, clock, ids
        self._loaded, self._lease, self._fence, self._ttl_ms = loaded, lease, fence, ttl_ms
        self._actor = actor

    def __repr__(self) -> str:
        state = self._loaded.state
        return f"<RecoveryCoordinator {state.session_id} at {state.sequence}>"

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        journal: Journal,
        session_id: str,
        *,
        clock: Clock,
        ids: IdSource,
        ttl_ms: int = DEFAULT_TTL_MS,
        holder: Holder | None = None,
        actor_id: str | None = None,
    ) -> AsyncIterator[RecoveryCoordinator]:
        """Take a session's lease and read where it stands.

        Args:
            journal: open for the session's owner.
            ttl_ms: the lease's length; it is renewed before each commit.
            holder: how the lease names us; an empty lease id is replaced by a new one.
            actor_id: who decides, for the record.

        Raises:
            SessionNotFound: no such session for the journal's owner.
            JournalBlocked: the journal cannot be followed; see `python -m recovery inspect`.
            LeaseConflict: a live worker has the session; says who, until when.
        """
        _check_whole(await load(journal, session_id))  # before the lease, which writes
        who = holder or Holder("recovery", "")
        who = replace(who, lease_id=who.lease_id or ids.new("l"))
        lease = await journal.leases.acquire(session_id, who, ttl_ms)
        fence = Fence(who.worker_id, who.lease_id, lease.token)
        try:
            loaded = _check_whole(await load(journal, session_id))
            actor = Actor(ActorKind.OPERATOR, actor_id)
            yield cls(journal, loaded, lease, fence, ttl_ms, clock, ids, actor)
        finally:
            with anyio.CancelScope(shield=True):
                await journal.leases.release(session_id, fence)

    @property
    def plan(self) -> RecoveryPlan:
        """What comes next, after everything decided so far."""
        return plan_of(self._loaded, journal=self._journal.name, lease=self._lease, lease_lives=True)

    # --- decisions --------------------------------------------------------------------------

    async def reconcile_model_outcome(
        self,
        attempt_id: str,
        *,
        outcome: str,
        evidence: str,
        response: Response | None = None,
        message: str = "",
        command_id: str | None = None,
    ) -> Receipt:
        """Say what became of a model attempt: completed (with its response), failed or lost.

        After `lost` the turn may ask the model again; after `failed` the request fails.
        """
        return await self.decide(
            ModelOutcome(attempt_id, outcome, evidence, response, message), command_id=command_id
        )

    async def look_up_model_outcome(
        self, attempt_id: str, provider: ModelProvider, *, command_id: str | None = None
    ) -> tuple[Found, Receipt | None]:
        """Ask the attempt's provider what became of it, and record what it says.

        Where that decides nothing (running, unknown, no answer within half of the
        lease's length) nothing is written, and the plan is as before.

        Args:
            provider: made as for a session, e.g. with `ProviderRegistry().make(config)`.

        Returns: what the provider said, and the receipt of the decision, if it was one.

        Raises:
            InvalidOptions: this provider cannot be asked about this attempt.
        """
        attempt = lost_attempt(self._loaded.state, attempt_id)
        lost = model_attempt.asked_about(attempt)
        if not isinstance(provider, AttemptLookup) or not provider.finds(lost):
            raise InvalidOptions("provider", f"one that can be asked about {lost}", provider.provider)
        found = await self._asked(provider, lost)
        decided = model_attempt.settled_by(attempt, found)
        if decided is None:
            return found, None
        said = (decided.outcome, decided.evidence, decided.response, decided.message)
        return found, await self.decide(ModelOutcome(attempt_id, *said), command_id=command_id)

    async def _asked(self, provider: AttemptLookup, lost: LostAttempt) -> Found:
        limit_s = self._ttl_ms / 2000  # after it the lease may be somebody else's
        with anyio.move_on_after(limit_s):
            return await provider.look_up(lost)
        return Found("unknown", f"looked up: no answer within {limit_s:g} s")

    async def reconcile_tool_outcome(
        self,
        tool_id: str,
        *,
        outcome: str,
        evidence: str,
        output: str = "",
        value: Any = None,
        command_id: str | None = None,
    ) -> Receipt:
        """Say what a started call did: completed, failed, cancelled (it did nothing) or suspended.

        Also for unsettled effects of ended requests, and after the session was closed.
        `output` is what the model is told, `value` the result as kept.
        """
        return await self.decide(
            ToolOutcome(tool_id, outcome, evidence, output, value), command_id=command_id
        )

    async def resolve_permission(
        self,
        permission_or_tool_id: str,
        verdict: str,
        *,
        digest: str | None = None,
        message: str = "",
        updated_input: dict[str, Any] | None = None,
        command_id: str | None = None,
    ) -> Receipt:
        """Answer an open question with "allow" or "deny"; a denied call ends in the same commit.

        Args:
            digest: of the input that was looked at; the answer is refused if it is another one.
            message: told to the model where the call is denied.
            updated_input: runs in place of the declared input, once the policy has seen it.
        """
        return await self.decide(
            PermissionAnswer(permission_or_tool_id, verdict, digest, message, updated_input),
            command_id=command_id,
        )

    async def answer_suspension(self, tool_id: str, answer: Any, *, command_id: str | None = None) -> Receipt:
        """Give a suspended call the answer it waits for; the first one wins."""
        return await self.decide(SuspensionAnswer(tool_id, answer), command_id=command_id)

    async def reconcile_request_inputs(
        self,
        *,
        evidence: str,
        contents: Mapping[str, Any] | None = None,
        command_id: str | None = None,
    ) -> Receipt:
        """Say that the applied inputs are prepared; `contents` (by input id) is what hooks made of them."""
        return await self.decide(PreparedInputs(evidence, contents or {}), command_id=command_id)

    async def reconcile_request_outcome(
        self, outcome: str, *, evidence: str, message: str = "", command_id: str | None = None
    ) -> Receipt:
        """Say how a request ended ("failed", "interrupted", "completed") that cannot go on by itself."""
        return await self.decide(RequestOutcome(outcome, evidence, message), command_id=command_id)

    async def abandon_request(
        self, *, reason: str, evidence: str = "", command_id: str | None = None
    ) -> Receipt:
        """End the open request, whatever the plan says.

        One commit: what runs is given up, what has not started is cancelled, started
        calls that are not pure stay as unsettled effects, and the request is
        interrupted with the reason `abandoned` and yours as evidence.
        """
        return await self.decide(Abandon(reason, evidence), command_id=command_id)

    async def decide(self, choice: Choice, *, command_id: str | None = None) -> Receipt:
        """Carry out one decision; the methods above are this with names."""
        if command_id is not None:
            parse.command_id(command_id)
            earlier = await self._earlier(command_id, choice)
            if earlier is not None:
                return earlier
        entry = self._entry(command_id)
        for command in choice.decide(self._loaded.state):
            entry.add(command, self._actor)
        return await self._commit(entry, choice.kind, choice.arguments)

    async def apply_automatic(self) -> list[Receipt]:
        """Carry out what needs no application code, until nothing of that kind is left.

        Rejecting, cancelling, failing, completing, finishing an abort, calling an
        attempt lost where the settings say to retry. Beginning anything (a request,
        a turn, a tool, a question) is left to the application.
        """
        receipts = []
        while steps := self._unattended():
            entry = self._entry(None)
            for step in steps:
                for command in await self._commands(step):
                    entry.add(command, RECOVERY)
            subjects = [step.subject for step in steps]
            receipts.append(await self._commit(entry, "apply_automatic", {"subjects": subjects}))
        return receipts

    def _unattended(self) -> list[Step]:
        steps = next_steps(self._loaded.state)
        return [s for s in steps if s.who is Who.AUTOMATIC and s.action in unattended.ACTIONS]

    async def _commands(self, step: Step) -> list[Command]:
        state = self._loaded.state
        response = await self._response() if step.action in unattended.NEED_RESPONSE else None
        return list(unattended.commands(state, step, response))

    async def _response(self) -> ResponseKept:
        attempt = self._loaded.state.attempt
        assert attempt is not None
        at = attempt.sequence
        rows = await self._journal.read(self._loaded.state.session_id, after=at - 1, upto=at, limit=1)
        response = response_of(catalogue.open_stored(rows[0])) if rows else None
        if response is None:
            raise Corrupt("event", "the response of the latest attempt", rows and rows[0].topic, at)
        return response

    # --- writing ----------------------------------------------------------------------------

    def _entry(self, command_id: str | None) -> Entry:
        chosen = command_id or self._ids.new("c")
        return Entry(self._loaded.state, chosen, self._clock.now(), self._fence)

    async def _earlier(self, command_id: str, choice: Choice) -> Receipt | None:
        session_id = self._loaded.state.session_id
        found = await self._journal.command(session_id, command_id)
        if found is None:
            return None
        known, receipt = found
        if known != fingerprint(choice.kind, choice.arguments):
            raise CommandConflict(session_id, command_id)
        return replace(receipt, status=CommitStatus.REPLAYED)

    async def _commit(self, entry: Entry, kind: str, arguments: Mapping[str, Any]) -> Receipt:
        entry.finish()
        row = self._loaded.row
        batch = to_batch(entry, self._loaded.head, self._ids.salt, row.owner_id, kind, arguments)
        self._lease = await self._journal.leases.renew(row.session_id, self._fence, self._ttl_ms)
        with anyio.CancelScope(shield=True):  # the store bounds the time; an outcome must be learnt
            receipt = await self._settled(batch)
        self._loaded = replace(self._loaded, state=entry.state, head=receipt.head, tail=())
        return receipt

    async def _settled(self, batch: Batch) -> Receipt:
        try:
            return await self._journal.commit(batch)
        except OutcomeUnknown as e:
            receipt = await self._journal.settle(batch)
            if receipt is None:
                raise StoreWriteFailed(self._journal.name, "not written; decide again") from e
            return receipt


def _check_whole(loaded: Loaded) -> Loaded:
    if loaded.problem is not None:
        p = loaded.problem
        raise JournalBlocked(p.check, p.expected, p.found, p.sequence)
    return loaded
