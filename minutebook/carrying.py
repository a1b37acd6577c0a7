"""From a step of the plan to the commands that carry it out.

Synchronous: everything here goes into the entry that is being composed. What has
to happen outside (send, run, ask) is returned as a launch and begins only after
the entry is durable.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

from domain import inputs, permission, request, session, tool, turn, unattended
from domain.arguments import parse_arguments
from domain.canonical import digest as digest_of
from domain.canonical import encode
from domain.decider import Command, OnCall, Reject, Schedule, StartAttempt
from domain.errors import ArgumentsRefused, InvalidOptions
from domain.limits import MAX_PAYLOAD_BYTES
from domain.model_ports import AttemptLookup, ModelProvider, Parameters, RunsTools
from domain.next_steps import Action, Step
from domain.preview import preview
from domain.settings import Settings
from domain.state import CallState, State
from domain.values import Priority, SideEffect, Verdict
from minutebook.arguments import bind
from minutebook.conversation import Conversation
from minutebook.interactions import Interaction
from minutebook.lost import LookUp
from minutebook.models import Providers, instructs
from minutebook.structured import instruction
from minutebook.tool_definition import ToolDefinition, ToolSet
from projections.permission_policy import CallFacts, Grant, Policy, Rule, before_handler, resolve
from projections.strict_schema import is_strict

#: As stored; an event holds the input and little else.
MAX_INPUT_BYTES: Final = MAX_PAYLOAD_BYTES - 4096


@dataclass(frozen=True, slots=True)
class SendRequest:
    """Send the request of an attempt, to this provider."""

    attempt_id: str
    body: bytes
    provider: ModelProvider


@dataclass(frozen=True, slots=True)
class RunTool:
    """Run a tool's code. `arguments` are bound to its parameters."""

    tool_id: str
    index: int
    definition: ToolDefinition
    arguments: dict[str, Any]
    run: int
    idempotency_key: str
    side_effect: SideEffect


@dataclass(frozen=True, slots=True)
class AskHandler:
    """Ask the application's permission handler about a call."""

    tool_id: str
    index: int


@dataclass(frozen=True, slots=True)
class AskPerson:
    """Ask the application's confirmation handler to answer for a person."""

    interaction: Interaction


Launch = SendRequest | RunTool | AskHandler | AskPerson | LookUp


class Carrier:
    """Turns steps into commands. Holds what the journal does not: providers, tools, handler."""

    def __init__(
        self,
        providers: Providers,
        tools: ToolSet,
        conversation: Conversation,
        has_handler: bool,
    ) -> None:
        self._providers, self._tools, self._conversation = providers, tools, conversation
        self._has_handler = has_handler

    def commands(self, state: State, step: Step) -> Iterator[Command | Launch]:
        """The commands of an automatic step, in order; launches come last."""
        match step.action:
            case Action.START_NEXT_REQUEST:
                yield _accept(state, step.subject, self._conversation.metadata.get(step.subject, {}))
            case Action.RESUME_REQUEST:
                yield from _begin_request(state)
            case Action.NEXT_ATTEMPT:
                yield from self._next_attempt(state)
            case Action.APPLY_INPUT:
                yield _apply(state, step.subject)
            case Action.PREPARE_INPUT:
                assert state.request is not None
                yield inputs.FinishPreparation(state.request.unprepared)
            case Action.CONTINUE_REQUEST:
                assert state.request is not None
                number = (state.turn.number if state.turn else 0) + 1
                yield turn.StartTurn(number, state.request.settings_digest)
            case Action.SCHEDULE_CALL | Action.EVALUATE | Action.ASK | Action.START_TOOL:
                assert step.index is not None
                yield from self._about_call(state, step.action, state.calls[step.index])
            case _:
                yield from unattended.commands(state, step, self._conversation.transcript.latest())

    def _about_call(self, state: State, action: Action, call: CallState) -> Iterator[Command | Launch]:
        match action:
            case Action.SCHEDULE_CALL:
                yield self._schedule(call)
            case Action.EVALUATE:
                yield from self._evaluate(state, call)
            case Action.ASK:
                yield OnCall(call.index, permission.Ask(self.summary(call)))
            case Action.START_TOOL:
                yield from self._start(state, call)

    # --- model -----------------------------------------------------------------------

    def _next_attempt(self, state: State) -> Iterator[Command | Launch]:
        assert state.request is not None and state.turn is not None
        settings = state.request.turn_settings or state.request.settings
        assert settings is not None
        provider = self._providers.of(settings)
        number = (state.attempt.number if state.attempt else 0) + 1
        attempt_id = f"{state.turn.turn_id}.a{number}"
        parameters = _parameters(settings, provider, f"{state.session_id}/{attempt_id}")
        body, digest = self._conversation.request(provider, self._tools.specs(), parameters)
        if (state.turn.number, number) == (1, 1) and instructs(settings, provider):
            yield fallback_note(provider)
        yield StartAttempt(
            provider.provider,
            provider.api,
            settings.model,
            digest,
            len(body),
            self._tools.digest,
            _told(settings, provider),
            provider_run_tools=isinstance(provider, RunsTools) and provider.runs_tools,
            attempt_key=parameters.attempt_key if _is_kept(provider) else None,
        )
        yield SendRequest(attempt_id, body, provider)

    # --- calls -------------------------------------------------------------------------

    def _raw(self, call: CallState) -> str:
        return self._conversation.transcript.call(call.call_id).arguments

    def input_of(self, call: CallState) -> dict[str, Any]:
        """The exact input of a scheduled call."""
        updated = self._conversation.updated_inputs.get(call.call_id)
        return updated if updated is not None else parse_arguments(self._raw(call))

    def _schedule(self, call: CallState) -> Command:
        definition = self._tools.get(call.name)
        if definition is None:
            known = ", ".join(self._tools) or "none"
            message = f"there is no tool {preview(call.name)}; there are: {known}"
            return Reject(call.index, "unknown_tool", message)
        raw = self._raw(call)
        try:
            exact = parse_arguments(raw)
            bind(definition, exact)
        except ArgumentsRefused as e:
            return Reject(call.index, "invalid", str(e))
        if len(encode(exact)) > MAX_INPUT_BYTES:
            return Reject(call.index, "invalid", f"the arguments take more than {MAX_INPUT_BYTES} bytes")
        return Schedule(
            call.index,
            raw,
            definition.digest,
            definition.side_effect,
            definition.kind,
            definition.interrupt,
            definition.category,
            definition.destructive,
        )

    def _present(self, call: CallState) -> ToolDefinition | None:
        definition = self._tools.get(call.name)
        assert call.tool is not None
        return definition if definition and definition.digest == call.tool.tool_digest else None

    def gone(self, state: State, step: Step) -> Iterator[Command]:
        """End a call that somebody is asked about, where its tool is gone or another one now."""
        if step.action is Action.RESOLVE_PERMISSIONS and step.index is not None:
            call = state.calls[step.index]
            if self._present(call) is None:
                yield from unattended.cancel(call, "tool_unavailable")

    def summary(self, call: CallState) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.input_of(call).items())
        text = f"{call.name}({arguments})"
        return text if len(text) <= 500 else text[:497] + "..."

    def _evaluate(self, state: State, call: CallState) -> Iterator[Command | Launch]:
        definition = self._present(call)
        if definition is None:
            yield from unattended.cancel(call, "tool_unavailable")
            return
        try:
            bind(definition, self.input_of(call))
        except ArgumentsRefused as e:  # an input that somebody put in its place without looking at the tool
            assert state.session is not None
            policy = state.session.policy_digest
            yield OnCall(call.index, permission.Evaluate(Verdict.DENY, "tool", policy, None, (str(e),)))
            return
        if self._has_handler and before_handler(policy_of(state), self._facts(call, definition)) is None:
            yield AskHandler(call.call_id, call.index)
            return
        yield self.evaluation(state, call.index)

    def evaluation(self, state: State, index: int, handler: Verdict | str | None = "unset") -> Command:
        """The verdict on a call, with the handler's answer if it was asked."""
        assert state.session is not None
        call = state.calls[index]
        definition = self._present(call)
        assert definition is not None and call.permission is not None
        decision = resolve(policy_of(state), self._facts(call, definition, handler))
        verdict, source, explanation = decision.verdict, decision.source, decision.explanation
        if verdict is Verdict.ASK and call.permission.by_person:
            verdict, source = Verdict.ALLOW, "person"  # type: ignore[assignment]  # one word more than a policy has
            explanation = (*explanation, "a person has allowed exactly this input")
        return OnCall(
            index,
            permission.Evaluate(
                verdict, source, state.session.policy_digest, decision.rule_id, tuple(explanation)
            ),
        )

    def _facts(
        self, call: CallState, definition: ToolDefinition, handler: Verdict | str | None = "unset"
    ) -> CallFacts:
        assert call.permission is not None
        own, own_reason = definition.own_check(bind(definition, self.input_of(call)))
        return CallFacts(
            call.name,
            definition.category,
            definition.kind,
            definition.destructive,
            call.permission.input_digest,
            own,
            handler,  # type: ignore[arg-type]  # Verdict, None or "unset"
            own_reason,
        )

    def _start(self, state: State, call: CallState) -> Iterator[Command | Launch]:
        assert call.tool is not None and call.permission is not None
        definition = self._present(call)
        again = call.tool.status in (tool.Status.STARTED, tool.Status.UNKNOWN)
        if definition is None:
            # What was started and is gone cannot be run again, nor be called cancelled:
            # nothing is appended, and the loop leaves the decision to somebody.
            if not again or call.tool.side_effect is SideEffect.PURE:
                yield from unattended.cancel(call, "tool_unavailable")
            return
        exact = self.input_of(call)
        bound = bind(definition, exact)
        side_effect, why = call.tool.side_effect, None
        if not again and call.permission.questions == 0:
            try:
                side_effect, why = definition.narrowed(bound)
            except InvalidOptions as e:
                yield from unattended.cancel(call, f"tool_misdeclared: {e}")
                return
        key = call.tool.idempotency_key or f"{state.session_id}/{call.call_id}"
        updated = call.call_id in self._conversation.updated_inputs
        digest = call.permission.input_digest
        yield OnCall(call.index, tool.Start(digest, key, exact if updated else None, side_effect, why))
        run = call.tool.run + 1
        yield RunTool(call.call_id, call.index, definition, bound, run, key, side_effect)


def policy_of(state: State) -> Policy:
    """The session's permission policy as the resolver takes it."""
    assert state.session is not None
    session = state.session
    return Policy(
        session.settings.permission_mode,
        tuple(Rule(r.scope_of, r.name, r.verdict, r.rule_id) for r in session.rules),  # type: ignore[arg-type]  # the payload has the same two words
        tuple(Grant(g.scope_of, g.name, g.grant_id, g.expires_at) for g in session.grants),  # type: ignore[arg-type]  # the payload has the same two words
    )


def _parameters(settings: Settings, provider: ModelProvider, attempt_key: str) -> Parameters:
    """What the request says besides the messages."""
    prompt, schema = settings.system_prompt, settings.output_schema
    if schema is not None and instructs(settings, provider):
        prompt, schema = "\n\n".join(filter(None, (prompt, instruction(schema)))), None
    return Parameters(
        settings.model,
        prompt,
        settings.temperature,
        settings.max_output_tokens,
        thinking=settings.thinking,
        output_schema=schema,
        attempt_key=attempt_key,
    )


def _is_kept(provider: ModelProvider) -> bool:
    """Whether the attempt's key goes with the request, to a server that can be asked by it."""
    return isinstance(provider, AttemptLookup) and provider.sends_attempt_key


def _told(settings: Settings, provider: ModelProvider) -> dict[str, Any]:
    """The parameters as an attempt records them."""
    told: dict[str, Any] = {
        "temperature": settings.temperature,
        "max_output_tokens": settings.max_output_tokens,
    }
    if settings.provider_name is not None:
        told["provider_name"] = settings.provider_name
    if settings.thinking is not None:
        told["thinking"] = asdict(settings.thinking)
    if settings.output_schema is not None:
        strict = "strict" if is_strict(settings.output_schema) else "not_strict"
        how = "instructed" if instructs(settings, provider) else strict
        told["output_schema"] = {"digest": digest_of(settings.output_schema), "how": how}
    return told


def fallback_note(provider: ModelProvider) -> Command:
    """What is recorded of a request whose schema the provider cannot force."""
    message = f"the {provider.api} API of provider {provider.provider!r} has no structured output: "
    return session.Note(
        "output_schema_fallback",
        message + "the model is asked for it in the system prompt",
        {"provider": provider.provider, "api": provider.api},
        in_request=True,
    )


def _accept(state: State, input_id: str, metadata: dict[str, Any]) -> Command:
    assert state.session is not None
    item = state.queue.find(input_id)
    settings = state.session.settings
    max_turns = item.max_turns if item and item.max_turns else settings.max_turns
    return request.AcceptRequest(input_id, settings, context_of(settings, metadata), max_turns)


def context_of(settings: Settings, metadata: dict[str, Any]) -> dict[str, Any]:
    """The context of a request: the session's, and the metadata that came with its input."""
    if not metadata:
        return settings.context
    kept = settings.context.get("metadata") or {}
    return {**settings.context, "metadata": {**kept, **metadata}}


def _begin_request(state: State) -> Iterator[Command]:
    assert state.request is not None
    own = state.queue.find(state.request.input_id)
    if own is not None:
        yield inputs.ApplyInput(own.input_id, Priority.NEXT, 1)
    yield request.StartRequest()


def _apply(state: State, input_id: str) -> Command:
    item = state.queue.find(input_id)
    assert item is not None
    number = (state.turn.number if state.turn else 0) + 1
    return inputs.ApplyInput(input_id, item.priority, number)
