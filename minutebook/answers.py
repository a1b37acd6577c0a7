"""Open interactions of the live session, and what an answer to one appends.

Used by `Session.respond` and by confirmation handlers, so that both follow the
same rules: the first answer wins, an answer is about exactly one input.
"""

from __future__ import annotations

from dataclasses import fields

from domain import permission, session, tool
from domain.canonical import digest as digest_of
from domain.canonical import encode
from domain.decider import Command, OnCall
from domain.errors import InteractionError
from domain.next_steps import Action, Step, next_steps
from domain.permission import Decision as Stand
from domain.preview import preview
from domain.state import CallState, State
from domain.values import Verdict
from minutebook.arguments import bind
from minutebook.carrying import MAX_INPUT_BYTES, Carrier
from minutebook.interactions import Answer, Approve, ApproveCategory, Deny, Interaction, ToolAnswer
from minutebook.tool_definition import ToolSet


class Answers:
    """Interactions of one session. Needs the inputs (carrier) and the tools (validation)."""

    def __init__(self, carrier: Carrier, tools: ToolSet) -> None:
        self._carrier, self._tools = carrier, tools

    def open(self, state: State, step: Step) -> Interaction:
        """The interaction behind a step that a person carries out."""
        assert step.index is not None
        return self._interaction(state.calls[step.index])

    def pending(self, state: State) -> tuple[Interaction, ...]:
        """Everything that somebody has to answer, in order of the calls."""
        waiting = (Action.RESOLVE_PERMISSIONS, Action.ANSWER_SUSPENSIONS)
        return tuple(self.open(state, s) for s in next_steps(state) if s.action in waiting)

    def find(self, state: State, interaction_id: str | None, digest: str | None) -> Interaction:
        """The open interaction that an answer names.

        Raises:
            InteractionError: NOT_OPEN, AMBIGUOUS (no id and not exactly one open),
                DIGEST_REQUIRED, DIGEST_MISMATCH.
        """
        pending = self.pending(state)
        if interaction_id is None:
            if len(pending) != 1:
                raise InteractionError("AMBIGUOUS", f"{len(pending)} interactions are open; name one")
            found = pending[0]
        else:
            named = [i for i in pending if i.id == interaction_id]
            if not named:
                ids = ", ".join(i.id for i in pending) or "none"
                raise InteractionError("NOT_OPEN", f"{preview(interaction_id)} is not open; open are: {ids}")
            found = named[0]
        if digest is None:
            raise InteractionError("DIGEST_REQUIRED", f"repeat the digest of {found.id}: {found.digest}")
        if digest != found.digest:
            raise InteractionError("DIGEST_MISMATCH", f"{found.id} is about the input {found.digest}")
        return found

    def commands(self, state: State, interaction_id: str, answer: ToolAnswer) -> list[Command]:
        """What an answer appends.

        Raises:
            InteractionError: NOT_OPEN, WRONG_ANSWER for the kind of interaction, or TOO_LARGE.
            ArgumentsRefused: an updated input does not fit the tool.
            ValueRefused: a value in the answer cannot be kept.
        """
        call = next((c for c in state.calls if self._is(c, interaction_id)), None)
        if call is None:
            raise InteractionError("NOT_OPEN", f"{interaction_id!r} is not open")
        suspended = call.tool is not None and call.tool.status is tool.Status.SUSPENDED
        if suspended != isinstance(answer, Answer) or not isinstance(answer, ToolAnswer):
            wanted = "an Answer" if suspended else "Approve, Deny or ApproveCategory"
            raise InteractionError("WRONG_ANSWER", f"{interaction_id} takes {wanted}")
        given = {each.name: getattr(answer, each.name) for each in fields(answer)}
        if not isinstance(given.get("message", ""), str):
            raise InteractionError(
                "WRONG_ANSWER", f"expected a text as message, got {preview(given['message'])}"
            )
        size = len(encode(given))
        if size > MAX_INPUT_BYTES:
            raise InteractionError("TOO_LARGE", f"an answer of {size} bytes, the limit is {MAX_INPUT_BYTES}")
        match answer:
            case Answer():
                return [OnCall(call.index, tool.Answer(answer.value))]
            case Deny():
                denied = permission.Resolve(Verdict.DENY, message=answer.message)
                return [OnCall(call.index, denied), OnCall(call.index, tool.Cancel("permission_denied"))]
            case ApproveCategory():
                return [self._grant(call), self._approve(call, Approve(message=answer.message))]
            case Approve():
                return [self._approve(call, answer)]

    def _approve(self, call: CallState, answer: Approve) -> Command:
        updated = answer.updated_input
        if updated is None:
            return OnCall(call.index, permission.Resolve(Verdict.ALLOW, message=answer.message))
        definition = self._tools.get(call.name)
        if definition is not None:
            bind(definition, updated)
        resolved = permission.Resolve(Verdict.ALLOW, updated, digest_of(updated), answer.message)
        return OnCall(call.index, resolved)

    def _grant(self, call: CallState) -> Command:
        assert call.tool is not None and call.permission is not None
        category = call.tool.category
        grant_id = f"g-{call.permission.question_id(call.call_id)}"
        if category is None:
            return session.Grant(grant_id, "tool", call.name)
        return session.Grant(grant_id, "category", category)

    def _is(self, call: CallState, interaction_id: str) -> bool:
        if call.tool is None or call.permission is None:
            return False
        if call.tool.status is tool.Status.SUSPENDED:
            return call.call_id == interaction_id
        asked = call.permission.decision is Stand.PENDING
        return asked and call.permission.question_id(call.call_id) == interaction_id

    def _interaction(self, call: CallState) -> Interaction:
        assert call.tool is not None and call.permission is not None
        suspended = call.tool.status is tool.Status.SUSPENDED
        exact = self._carrier.input_of(call)
        return Interaction(
            call.call_id if suspended else call.permission.question_id(call.call_id),
            "suspension" if suspended else "permission",
            call.call_id,
            call.name,
            self._carrier.summary(call),
            exact,
            call.permission.input_digest,
            call.tool.sequence if suspended else call.permission.sequence,
        )
