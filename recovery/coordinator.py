"""Deciding what happened: each decision is one small commit, on record with who and why.

Used by `python -m recovery reconcile`, by operators' scripts and by applications
that meet `RecoveryRequired`. Async, and only through the ports. What a decision
may be is in `recovery.decisions` and `recovery.rollover`, what it appends in
`recovery.composing`; running models and tools never happens here.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

import anyio

from domain import ids as parse
from domain import model_attempt, taking_over
from domain.entry import Entry, fingerprint, to_batch
from domain.envelope import Actor, Fence
from domain.errors import CommandConflict, Fenced, InvalidOptions, JournalBlocked, MinutebookError
from domain.model_ports import AttemptLookup, Found, LostAttempt, ModelProvider, Response
from domain.ports import Clock, CommitStatus, Holder, IdSource, Journal, JournalReader, LeaseRow, Receipt
from domain.values import ActorKind
from recovery.committing import settled
from recovery.composing import Composer
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
from recovery.rollover import Content, RequestRollover, TurnRollover

DEFAULT_TTL_MS: Final = 30_000
log = logging.getLogger(__name__)


class RecoveryCoordinator:
    """The right to decide about one session, held under its lease. Made by `open`.

    Every method that decides: returns the receipt of its commit; with a
    `command_id` that was used before, and the same arguments, it returns the first
    receipt (`replayed`) and writes nothing. Raises `RecoveryRejected` (the plan does
    not call for it), `CommandConflict` (the id was used for something else),
    `HeadConflict` (somebody else wrote: open the coordinator again), `LeaseLost`,
    `InvalidId`, `InvalidOptions`, `RuleViolated`, `ValueRefused` with nothing written;
    `OutcomeUnknown` where the store cannot say: this coordinator decides nothing more.
    The first commit also says who holds the session (`lease_acquired`).
    """

    def __init__(
        self, journal: Journal, loaded: Loaded, lease: LeaseRow, ttl_ms: int, composer: Composer
    ) -> None:
        self._journal, self._loaded, self._lease, self._ttl_ms = journal, loaded, lease, ttl_ms
        self._composer = composer
        self._fenced: Fenced | None = None

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
        before = check_whole(await load(journal, session_id))  # before the lease, which writes
        who = holder or Holder("recovery", "")
        who = replace(who, lease_id=who.lease_id or ids.new("l"))
        with anyio.CancelScope(shield=True):  # what was taken has to be given back
            lease = await journal.leases.acquire(session_id, who, ttl_ms)
        fence = Fence(who.worker_id, who.lease_id, lease.token)
        holds = taking_over.announcement(before.row.lease, lease, ttl_ms)
        actor = Actor(ActorKind.OPERATOR, actor_id)
        try:
            loaded = check_whole(await load(journal, session_id))
            composer = Composer(journal, clock, ids, lease, fence, holds, actor)
            yield cls(journal, loaded, lease, ttl_ms, composer)
        finally:
            with anyio.CancelScope(shield=True):
                await _release(journal, session_id, fence)

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

    async def prepare_request_recovery(
        self,
        applied_input_ids: Sequence[str],
        *,
        evidence: str,
        content: Content | None = None,
        max_turns: int | None = None,
        command_id: str | None = None,
    ) -> Receipt:
        """Roll the open request over into a new one that has seen nothing of it.

        For a request that no turn has begun about since inputs came: one commit ends it as
        superseded and accepts the next. See ADR 0053 for what the next one takes over.

        Args:
            applied_input_ids: the inputs that were applied and that no turn has seen, exactly;
                none where the request was only accepted. They leave the conversation: the new
                input stands for them.
            content: of the new input, prepared; None: that of the inputs as they were sent.
            max_turns: None: those that are left.
        """
        choice = RequestRollover(tuple(applied_input_ids), evidence, content, max_turns)
        return await self.decide(choice, command_id=command_id)

    async def prepare_turn_recovery(
        self,
        *,
        evidence: str,
        content: Content | None = None,
        max_turns: int | None = None,
        command_id: str | None = None,
    ) -> Receipt:
        """Give up the open turn and go on in a new request, with what was said and done so far.

        Resuming the session goes on in the same request, and is the better way; this is for a
        turn that nobody wants to go on with. In one commit what has not started is cancelled,
        the request ends as superseded and the next is accepted.

        Args:
            content: of the new input; None: the model is told to go on.
            max_turns: None: those that are left, this turn included.

        Raises:
            UnsafeRollover: a call of the turn was started and must not run twice. Settle it if
                its outcome is unknown, then complete the turn by resuming the session.
        """
        return await self.decide(TurnRollover(evidence, content, max_turns), command_id=command_id)

    async def decide(self, choice: Choice, *, command_id: str | None = None) -> Receipt:
        """Carry out one decision; the methods above are this with names."""
        self._check_open()
        if command_id is not None:
            earlier = await answered(self._journal, self._loaded.state.session_id, choice, command_id)
            if earlier is not None:
                return earlier
        entry = await self._composer.decision(self._loaded.state, choice, command_id)
        return await self._commit(entry, choice.kind, choice.arguments)

    async def apply_automatic(self) -> list[Receipt]:
        """Carry out what needs no application code, until nothing of that kind is left.

        Rejecting, cancelling, failing, completing, finishing an abort, calling an
        attempt lost where the settings say to retry. Beginning anything (a request,
        a turn, a tool, a question) is left to the application.
        """
        self._check_open()
        receipts = []
        while (composed := await self._composer.automatic(self._loaded.state)) is not None:
            entry, steps = composed
            subjects = [step.subject for step in steps]
            receipts.append(await self._commit(entry, "apply_automatic", {"subjects": subjects}))
        return receipts

    # --- writing ----------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._fenced is not None:
            raise self._fenced.with_traceback(None)

    async def _commit(self, entry: Entry, kind: str, arguments: Mapping[str, Any]) -> Receipt:
        row, fence = self._loaded.row, self._composer.fence
        salt = self._composer.ids.salt
        batch = to_batch(entry, self._loaded.head, salt, row.owner_id, kind, arguments)
        try:
            self._lease = await self._journal.leases.renew(row.session_id, fence, self._ttl_ms)
            with anyio.CancelScope(shield=True):  # the store bounds the time; an outcome must be learnt
                receipt = await settled(self._journal, batch)
                if receipt.status is CommitStatus.REPLAYED:  # its events are not those composed here
                    self._loaded = check_whole(await load(self._journal, row.session_id))
                    return receipt
        except Fenced as error:
            self._fenced = error
            raise
        self._loaded = replace(self._loaded, state=entry.state, head=receipt.head, tail=())
        return receipt


async def answered(reader: JournalReader, session_id: str, choice: Choice, command_id: str) -> Receipt | None:
    """The first receipt (`replayed`) of a decision that is in the journal already, or None.

    Needs no lease: also who may not decide now can be told what was decided.

    Raises:
        InvalidId: `command_id` cannot be one.
        CommandConflict: it was used for something else.
    """
    parse.command_id(command_id)
    found = await reader.command(session_id, command_id)
    if found is None:
        return None
    known, receipt = found
    if known != fingerprint(choice.kind, choice.arguments):
        raise CommandConflict(session_id, command_id)
    return replace(receipt, status=CommitStatus.REPLAYED)


def check_whole(loaded: Loaded) -> Loaded:
    """Raises JournalBlocked where the journal cannot be followed to its end."""
    if loaded.problem is not None:
        p = loaded.problem
        raise JournalBlocked(p.check, p.expected, p.found, p.sequence)
    return loaded


async def _release(journal: Journal, session_id: str, fence: Fence) -> None:
    try:
        await journal.leases.release(session_id, fence)
    except MinutebookError as error:  # it must not hide what went wrong before
        log.warning("the lease of session %s runs out by itself: %s", session_id, error)
