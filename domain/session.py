"""Session: who owns it, under which settings and permission policy it runs.

(nothing) --created--> open --closed--> closed for good
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from pydantic import ValidationError

from domain import canonical
from domain import events as ev
from domain.envelope import Recorded
from domain.errors import RuleViolated
from domain.events import Payload
from domain.rules import need
from domain.settings import Settings
from domain.values import Effective, PermissionMode, Verdict

# --- commands -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Create:
    """Make the session. `tools` maps names to digests of definitions."""

    owner_id: str
    settings: Settings
    tools: dict[str, str]


@dataclass(frozen=True, slots=True)
class Resume:
    """Another worker opens the session with these tools, over these settings."""

    settings_digest: str
    tools: dict[str, str]


#: Settings that change together: a model, where it is, how much it takes in.
PAIR: Final = frozenset({"model", "provider_name", "context_window"})


@dataclass(frozen=True, slots=True)
class Change:
    """Change settings by name; each name is recorded by its own event type.

    Of `PAIR` the model is always given; one of the others that is not given is cleared.
    """

    values: dict[str, Any]
    effective: Effective = Effective.NEXT_REQUEST


@dataclass(frozen=True, slots=True)
class SetRule:
    """Set (or, without a verdict, remove) a permission rule."""

    rule_id: str
    scope_of: str
    name: str
    verdict: Verdict | None


@dataclass(frozen=True, slots=True)
class Grant:
    """Allow a tool or a category from now on."""

    grant_id: str
    scope_of: str
    name: str
    lifetime: str = "session"
    expires_at: str | None = None


@dataclass(frozen=True, slots=True)
class Revoke:
    """Take a grant back."""

    grant_id: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Note:
    """Record something that changes no state; `in_request`: it is about the active request."""

    kind: str
    message: str
    data: Any = None
    in_request: bool = False


Command = Create | Resume | Change | SetRule | Grant | Revoke | Note

# --- state --------------------------------------------------------------------------


class Status(StrEnum):
    """Whether the session takes work."""

    OPEN = "open"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class RuleState:
    """A standing answer."""

    rule_id: str
    scope_of: str
    name: str
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class GrantState:
    """A standing permission."""

    grant_id: str
    scope_of: str
    name: str
    lifetime: str
    expires_at: str | None = None


@dataclass(frozen=True, slots=True)
class SessionState:
    """What is true of the session as a whole. `policy_digest` binds decisions to a policy."""

    owner_id: str
    settings: Settings
    settings_digest: str
    tools_digest: str
    status: Status = Status.OPEN
    rules: tuple[RuleState, ...] = ()
    grants: tuple[GrantState, ...] = ()
    revocations: int = 0
    policy_digest: str = ""


def policy_digest(state: SessionState) -> str:
    """SHA-256 (hex) over everything that a decision depends on besides the call.

    Grants only widen, so granting leaves decisions alone; revoking does not.
    """
    return canonical.digest(
        {
            "mode": state.settings.permission_mode,
            "rules": [[r.scope_of, r.name, r.verdict] for r in state.rules],
            "revocations": state.revocations,
            "tools": state.tools_digest,
        }
    )


# --- decide ---------------------------------------------------------------------------


def decide(command: Command) -> tuple[Payload, ...]:
    """The events that carry out `command`."""
    match command:
        case Create():
            return (
                ev.SessionCreated(
                    owner_id=command.owner_id,
                    settings=command.settings.to_plain(),
                    settings_digest=command.settings.digest(),
                    tools=command.tools,
                    tools_digest=canonical.digest(command.tools),
                ),
            )
        case Resume():
            return (
                ev.SessionResumed(
                    settings_digest=command.settings_digest,
                    tools=command.tools,
                    tools_digest=canonical.digest(command.tools),
                ),
            )
        case Change():
            return _changes(command)
        case SetRule():
            return (
                ev.PermissionRuleSet(
                    rule_id=command.rule_id,
                    scope_of=command.scope_of,  # type: ignore[arg-type]  # checked by the payload
                    name=command.name,
                    verdict=command.verdict,
                ),
            )
        case Grant():
            return (
                ev.PermissionGranted(
                    grant_id=command.grant_id,
                    scope_of=command.scope_of,  # type: ignore[arg-type]  # checked by the payload
                    name=command.name,
                    lifetime=command.lifetime,  # type: ignore[arg-type]  # checked by the payload
                    expires_at=command.expires_at,
                ),
            )
        case Revoke():
            return (ev.PermissionGrantRevoked(grant_id=command.grant_id, reason=command.reason),)
        case Note():
            return (ev.NoticeRecorded(kind=command.kind, message=command.message, data=command.data),)


def _changes(command: Change) -> tuple[Payload, ...]:
    rest = dict(command.values)
    when = command.effective
    changes: list[Payload] = []
    if not PAIR.isdisjoint(rest):
        given = {name: rest.pop(name, None) for name in PAIR}
        changes.append(
            ev.ModelChanged(
                model=given["model"],
                effective=when,
                provider=given["provider_name"],
                context_window=given["context_window"],
            )
        )
    if "thinking" in rest:
        changes.append(ev.ThinkingChanged(thinking=rest.pop("thinking"), effective=when))
    if "permission_mode" in rest:
        changes.append(ev.PermissionModeChanged(mode=PermissionMode(rest.pop("permission_mode"))))
    if "max_turns" in rest:
        changes.append(ev.MaxTurnsChanged(max_turns=rest.pop("max_turns"), effective=when))
    if "context" in rest:
        changes.append(ev.DefaultContextChanged(context=rest.pop("context"), effective=when))
    if rest:
        changes.append(ev.SettingsChanged(values=rest, effective=when))
    return tuple(changes)


# --- evolve ------------------------------------------------------------------------------


def create(event: Recorded) -> SessionState:
    """The first event of a journal."""
    data = event.data
    if not isinstance(data, ev.SessionCreated):
        raise RuleViolated("a journal begins with session_created", event.type, event.sequence)
    settings = _settings(event, data.settings)
    need(settings.digest() == data.settings_digest, "the settings have the stated digest", event)
    state = SessionState(data.owner_id, settings, data.settings_digest, data.tools_digest)
    return replace(state, policy_digest=policy_digest(state))


def evolve(state: SessionState, event: Recorded) -> SessionState:
    """Fold one event of the session itself. Raises RuleViolated."""
    data = event.data
    match data:
        case ev.SessionResumed():
            need(
                data.settings_digest == state.settings_digest, "the settings are those of the journal", event
            )
            kept = tuple(g for g in state.grants if g.lifetime != "process")
            dropped = len(state.grants) - len(kept)
            changed = replace(
                state,
                tools_digest=data.tools_digest,
                grants=kept,
                revocations=state.revocations + dropped,
            )
        case ev.SessionClosed():
            return replace(state, status=Status.CLOSED)
        case ev.PermissionRuleSet():
            others = tuple(r for r in state.rules if r.rule_id != data.rule_id)
            added = () if data.verdict is None else (_rule(data, data.verdict),)
            changed = replace(state, rules=others + added)
        case ev.PermissionGranted():
            taken = any(g.grant_id == data.grant_id for g in state.grants)
            need(not taken, "grant ids are never used twice", event)
            grant = GrantState(data.grant_id, data.scope_of, data.name, data.lifetime, data.expires_at)
            changed = replace(state, grants=(*state.grants, grant))
        case ev.PermissionGrantRevoked():
            left = tuple(g for g in state.grants if g.grant_id != data.grant_id)
            need(len(left) < len(state.grants), "the grant is standing", event)
            changed = replace(state, grants=left, revocations=state.revocations + 1)
        case ev.NoticeRecorded():
            return state
        case ev.SessionCreated():
            raise RuleViolated("a session is created once", event.type, event.sequence)
        case _:
            settings = _settings(event, {**state.settings.to_plain(), **changed_values(data)})
            changed = replace(state, settings=settings, settings_digest=settings.digest())
    return replace(changed, policy_digest=policy_digest(changed))


def changed_values(data: Payload) -> dict[str, Any]:
    """The settings that a change event replaces."""
    match data:
        case ev.ModelChanged():
            return {
                "model": data.model,
                "provider_name": data.provider,
                "context_window": data.context_window,
            }
        case ev.ThinkingChanged():
            return {"thinking": None if data.thinking is None else data.thinking.model_dump()}
        case ev.PermissionModeChanged():
            return {"permission_mode": data.mode.value}
        case ev.MaxTurnsChanged():
            return {"max_turns": data.max_turns}
        case ev.DefaultContextChanged():
            return {"context": data.context}
        case ev.SettingsChanged():
            return data.values
    raise AssertionError(data.type)


def _settings(event: Recorded, plain: dict[str, Any]) -> Settings:
    try:
        return Settings.model_validate(plain)
    except ValidationError as e:
        raise RuleViolated("the settings are settings", event.type, event.sequence) from e


def _rule(data: ev.PermissionRuleSet, verdict: Verdict) -> RuleState:
    return RuleState(data.rule_id, data.scope_of, data.name, verdict)
