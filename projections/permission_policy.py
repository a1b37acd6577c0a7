"""Whether a call may run: mode, rules and grants, resolved in one fixed order.

Pure; the permission runtime evaluates calls with it, inspection explains them.
Deny first, wherever it comes from; nothing that follows overrides it. Then, the
first that decides wins:

    plan mode       denies what is not read-only
    handler         the application's own answer; None goes on
    own check       a tool that asks for a person gets one
    yolo mode       allows what is not declared destructive
    tool rule, tool grant, category grant, category rule
    own check       an allow counts where no rule says anything
    mode default    read-only is allowed, in `autoEdit` writing too
    ask             a person decides

Asking people, waiting and recording do not belong here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from domain.values import PermissionMode, ToolKind, Verdict

Scope = Literal["tool", "category"]
Source = Literal["rule", "grant", "mode", "handler", "tool", "default"]
Unset = Literal["unset"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A standing answer for a tool or a category. Of several for one name the last counts,
    but one that denies always does.

    Args:
        scope: what `name` names.
        id: how explanations and decisions name the rule.
    """

    scope: Scope
    name: str
    verdict: Verdict
    id: str


@dataclass(frozen=True, slots=True)
class Grant:
    """A person's standing allow for a tool or a category.

    Args:
        scope: what `name` names.
        id: how explanations and decisions name the grant.
        expires: "session", "process", a UTC time, or None. For people to read: a grant counts
            while it is in the policy, and an event takes it out.
    """

    scope: Scope
    name: str
    id: str
    expires: str | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """What a session's permissions are at one moment."""

    mode: PermissionMode = PermissionMode.DEFAULT
    rules: tuple[Rule, ...] = ()
    grants: tuple[Grant, ...] = ()


@dataclass(frozen=True, slots=True)
class CallFacts:
    """All about a call that a decision may depend on.

    Args:
        input_digest: of the exact input; decisions are good for that input only.
        own_check: what the tool's own check says about this input; None: nothing.
        handler: the application's answer; None: it leaves the call to what follows;
            "unset": it was not asked, or there is none.
        own_reason: what the own check gave as its reason, for the explanation.
    """

    tool_name: str
    category: str | None
    kind: ToolKind
    destructive: bool
    input_digest: str
    own_check: Verdict | None = None
    handler: Verdict | Unset | None = "unset"
    own_reason: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer for one call.

    Args:
        source: what decided.
        rule_id: the id of the rule or grant that decided, if it was one.
        explanation: one line for each step that was taken; the last one decided.
    """

    verdict: Verdict
    source: Source
    rule_id: str | None
    explanation: tuple[str, ...]


def resolve(policy: Policy, facts: CallFacts) -> Decision:
    """Decide a call.

    Args:
        policy: as of the call.
        facts: with the handler's answer, if it was asked (see `before_handler`).

    Returns:
        The decision; there always is one.
    """
    decision, passed = _walk(_ORDER, policy, facts)
    return decision or Decision(
        Verdict.ASK, "default", None, (*passed, "nothing allows the call: ask a person")
    )


def before_handler(policy: Policy, facts: CallFacts) -> Decision | None:
    """Decide a call as far as that is possible without the application's handler.

    Args:
        policy: as of the call.
        facts: the handler's answer in it is not looked at.

    Returns:
        A deny that no handler can change, or None: ask the handler if there is one, put its
        answer into the facts and call `resolve`.
    """
    return _walk(_ORDER[:_HANDLER_AT], policy, facts)[0]


# --- the steps: each decides, or says why it does not -----------------------------

_Made = tuple[Verdict, Source, str | None, str]
_Step = Callable[[Policy, CallFacts], _Made | str]


def _walk(
    steps: tuple[_Step, ...], policy: Policy, facts: CallFacts
) -> tuple[Decision | None, tuple[str, ...]]:
    passed: list[str] = []
    for step in steps:
        made = step(policy, facts)
        if not isinstance(made, str):
            verdict, source, rule_id, why = made
            return Decision(verdict, source, rule_id, (*passed, why)), tuple(passed)
        passed.append(made)
    return None, tuple(passed)


def _deny(policy: Policy, facts: CallFacts) -> _Made | str:
    for scope in _SCOPES:
        for rule in _rules(policy, facts, scope):
            if rule.verdict is Verdict.DENY:
                return Verdict.DENY, "rule", rule.id, f"{_said(rule)} denies; nothing overrides a deny"
    if facts.own_check is Verdict.DENY:
        return Verdict.DENY, "tool", None, _own(facts, "denies")
    return "no rule and no check denies"


def _plan(policy: Policy, facts: CallFacts) -> _Made | str:
    if policy.mode is not PermissionMode.PLAN:
        return f"mode {policy.mode} denies nothing"
    if facts.kind is ToolKind.READ_ONLY:
        return "mode plan lets read-only tools pass"
    return Verdict.DENY, "mode", None, f"mode plan denies what is not read-only; the tool is {facts.kind}"


def _handler(policy: Policy, facts: CallFacts) -> _Made | str:
    if facts.handler == "unset":
        return "no handler was asked"
    if facts.handler is None:
        return "the handler leaves it open"
    verb = {Verdict.ALLOW: "allows", Verdict.DENY: "denies", Verdict.ASK: "wants a person for"}[facts.handler]
    return facts.handler, "handler", None, f"the handler {verb} the call"


def _check_asks(policy: Policy, facts: CallFacts) -> _Made | str:
    if facts.own_check is Verdict.ASK:
        return Verdict.ASK, "tool", None, _own(facts, "wants a person for")
    return "the tool's own check asks for nobody"


def _yolo(policy: Policy, facts: CallFacts) -> _Made | str:
    if policy.mode is not PermissionMode.YOLO:
        return f"mode {policy.mode} allows nothing ahead of the rules"
    if facts.destructive:
        return "mode yolo does not allow what is declared destructive"
    return Verdict.ALLOW, "mode", None, "mode yolo allows what is not declared destructive"


def _rule(scope: Scope) -> _Step:
    def step(policy: Policy, facts: CallFacts) -> _Made | str:
        rules = _rules(policy, facts, scope)
        if not rules:
            return f"no {scope} rule"
        return rules[-1].verdict, "rule", rules[-1].id, f"{_said(rules[-1])} says {rules[-1].verdict}"

    return step


def _grant(scope: Scope) -> _Step:
    def step(policy: Policy, facts: CallFacts) -> _Made | str:
        for grant in policy.grants:
            if grant.scope == scope and grant.name == _name(facts, scope):
                return Verdict.ALLOW, "grant", grant.id, f"{_said(grant)} allows"
        return f"no {scope} grant"

    return step


def _check_allows(policy: Policy, facts: CallFacts) -> _Made | str:
    if facts.own_check is Verdict.ALLOW:
        return Verdict.ALLOW, "tool", None, _own(facts, "allows")
    return "the tool's own check allows nothing"


def _mode_default(policy: Policy, facts: CallFacts) -> _Made | str:
    allowed = _ALLOWED_BY_DEFAULT[policy.mode]
    if facts.kind in allowed:
        return Verdict.ALLOW, "mode", None, f"mode {policy.mode} allows {facts.kind} tools by default"
    return f"mode {policy.mode} does not allow {facts.kind} tools by default"


_SCOPES: Final[tuple[Scope, ...]] = ("tool", "category")
_ORDER: Final[tuple[_Step, ...]] = (
    _deny,
    _plan,
    _handler,
    _check_asks,
    _yolo,
    _rule("tool"),
    _grant("tool"),
    _grant("category"),
    _rule("category"),
    _check_allows,
    _mode_default,
)
_HANDLER_AT: Final = _ORDER.index(_handler)
_ALLOWED_BY_DEFAULT: Final = {
    PermissionMode.DEFAULT: frozenset({ToolKind.READ_ONLY}),
    PermissionMode.AUTO_EDIT: frozenset({ToolKind.READ_ONLY, ToolKind.WRITE}),
    PermissionMode.PLAN: frozenset({ToolKind.READ_ONLY}),
    PermissionMode.YOLO: frozenset[ToolKind](),  # only what is destructive gets this far
}


def _rules(policy: Policy, facts: CallFacts, scope: Scope) -> list[Rule]:
    return [rule for rule in policy.rules if rule.scope == scope and rule.name == _name(facts, scope)]


def _name(facts: CallFacts, scope: Scope) -> str | None:
    return facts.tool_name if scope == "tool" else facts.category


def _said(standing: Rule | Grant) -> str:
    word = "rule" if isinstance(standing, Rule) else "grant"
    return f"{standing.scope} {word} {standing.id} ({standing.name})"


def _own(facts: CallFacts, verb: str) -> str:
    why = f": {facts.own_reason}" if facts.own_reason else ""
    return f"the own check of {facts.tool_name} {verb} this input{why}"
