"""The permission resolver against a truth table, worked out by another way of thinking."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.values import PermissionMode, ToolKind, Verdict
from projections.permission_policy import (
    CallFacts,
    Decision,
    Grant,
    Policy,
    Rule,
    before_handler,
    resolve,
)

ALLOW, DENY, ASK = Verdict.ALLOW, Verdict.DENY, Verdict.ASK
DEFAULT, AUTO_EDIT, YOLO, PLAN = (
    PermissionMode.DEFAULT,
    PermissionMode.AUTO_EDIT,
    PermissionMode.YOLO,
    PermissionMode.PLAN,
)
READ_ONLY, WRITE, EXECUTE = ToolKind.READ_ONLY, ToolKind.WRITE, ToolKind.EXECUTE
MAYBE: tuple[Verdict | None, ...] = (None, ALLOW, DENY, ASK)

FACTS = CallFacts("rm", "files", EXECUTE, False, "digest")
TOOL_GRANT = Grant("tool", "rm", "g-tool")
CATEGORY_GRANT = Grant("category", "files", "g-category")


def tool_rule(verdict: Verdict, name: str = "rm") -> Rule:
    return Rule("tool", name, verdict, f"r-{name}")


def category_rule(verdict: Verdict, name: str = "files") -> Rule:
    return Rule("category", name, verdict, f"r-{name}")


# --- the truth table ---------------------------------------------------------------------


def cells() -> Iterator[tuple[Policy, CallFacts]]:
    for on_tool, on_category, tool_grant, category_grant, mode in itertools.product(
        MAYBE, MAYBE, (False, True), (False, True), PermissionMode
    ):
        rules = [tool_rule(on_tool)] if on_tool else []
        rules += [category_rule(on_category)] if on_category else []
        grants = [TOOL_GRANT] * tool_grant + [CATEGORY_GRANT] * category_grant
        policy = Policy(mode, tuple(rules), tuple(grants))
        for kind, destructive, handler, own_check in itertools.product(
            ToolKind, (False, True), (*MAYBE, "unset"), MAYBE
        ):
            answer: Any = handler
            yield (
                policy,
                replace(FACTS, kind=kind, destructive=destructive, handler=answer, own_check=own_check),
            )


def oracle(policy: Policy, facts: CallFacts) -> tuple[Verdict, str, str | None]:
    """Everybody says what they think, with a rank; the lowest rank is heard."""
    on = {rule.scope: rule for rule in policy.rules}
    granted = {grant.scope: grant for grant in policy.grants}
    opinions: list[tuple[int, Verdict, str, str | None]] = [(99, ASK, "default", None)]
    for rank, scope in ((50, "tool"), (80, "category")):
        if scope in on:
            rule = on[scope]
            opinions.append((0 if rule.verdict is DENY else rank, rule.verdict, "rule", rule.id))
    for rank, scope in ((60, "tool"), (70, "category")):
        if scope in granted:
            opinions.append((rank, ALLOW, "grant", granted[scope].id))
    if facts.own_check is not None:
        rank = {DENY: 1, ASK: 30, ALLOW: 85}[facts.own_check]
        opinions.append((rank, facts.own_check, "tool", None))
    if facts.handler not in (None, "unset"):
        opinions.append((20, Verdict(facts.handler), "handler", None))
    if policy.mode is PLAN and facts.kind is not READ_ONLY:
        opinions.append((10, DENY, "mode", None))
    if policy.mode is YOLO and not facts.destructive:
        opinions.append((40, ALLOW, "mode", None))
    harmless = facts.kind is READ_ONLY and policy.mode is not YOLO
    if harmless or (policy.mode is AUTO_EDIT and facts.kind is WRITE):
        opinions.append((90, ALLOW, "mode", None))
    _, verdict, source, rule_id = min(opinions, key=lambda opinion: opinion[0])
    return verdict, source, rule_id


def outcome(decision: Decision) -> tuple[Verdict, str, str | None]:
    return decision.verdict, decision.source, decision.rule_id


def test_every_cell_of_the_truth_table() -> None:
    count = 0
    for policy, facts in cells():
        count += 1
        assert outcome(resolve(policy, facts)) == oracle(policy, facts), (policy, facts)
    assert count == 4 * 4 * 2 * 2 * 4 * 3 * 2 * 5 * 4


def test_a_deny_always_wins_and_nothing_is_allowed_in_plan_mode_but_reading() -> None:
    for policy, facts in cells():
        verdict = resolve(policy, facts).verdict
        if any(rule.verdict is DENY for rule in policy.rules) or DENY in (facts.own_check, facts.handler):
            assert verdict is DENY, (policy, facts)
        if policy.mode is PLAN and facts.kind is not READ_ONLY:
            assert verdict is DENY, (policy, facts)


def test_the_last_line_of_an_explanation_names_what_decided() -> None:
    for policy, facts in cells():
        decision = resolve(policy, facts)
        last = decision.explanation[-1]
        named = {
            "rule": str(decision.rule_id),
            "grant": str(decision.rule_id),
            "mode": f"mode {policy.mode} ",
            "handler": "the handler ",
            "tool": f"the own check of {facts.tool_name} ",
            "default": "nothing allows the call",
        }[decision.source]
        assert named in last
        assert (decision.rule_id is not None) == (decision.source in ("rule", "grant"))
        assert all(line.isprintable() and line for line in decision.explanation)


def test_a_decision_before_the_handler_is_final_and_always_a_deny() -> None:
    answers: tuple[Any, ...] = (*MAYBE, "unset")
    for policy, facts in cells():
        early = before_handler(policy, facts)
        if early is None:
            assert resolve(policy, replace(facts, handler=ASK)).source == "handler"
        else:
            assert early.verdict is DENY
            assert {resolve(policy, replace(facts, handler=each)) for each in answers} == {early}


# --- single cells, in words ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "facts", "expected"),
    [
        (Policy(), FACTS, (ASK, "default", None)),
        (Policy(), replace(FACTS, kind=READ_ONLY), (ALLOW, "mode", None)),
        (Policy(), replace(FACTS, kind=WRITE), (ASK, "default", None)),
        (Policy(AUTO_EDIT), replace(FACTS, kind=WRITE), (ALLOW, "mode", None)),
        (Policy(AUTO_EDIT), FACTS, (ASK, "default", None)),
        (Policy(YOLO), FACTS, (ALLOW, "mode", None)),
        (Policy(YOLO), replace(FACTS, destructive=True), (ASK, "default", None)),
        (Policy(YOLO), replace(FACTS, handler=ASK), (ASK, "handler", None)),
        (Policy(YOLO), replace(FACTS, own_check=ASK), (ASK, "tool", None)),
        (Policy(YOLO, (tool_rule(ASK),)), FACTS, (ALLOW, "mode", None)),
        (Policy(PLAN), FACTS, (DENY, "mode", None)),
        (Policy(PLAN), replace(FACTS, handler=ALLOW), (DENY, "mode", None)),
        (Policy(PLAN), replace(FACTS, kind=READ_ONLY), (ALLOW, "mode", None)),
        (Policy(rules=(tool_rule(ASK),), grants=(TOOL_GRANT,)), FACTS, (ASK, "rule", "r-rm")),
        (
            Policy(rules=(category_rule(ASK),), grants=(CATEGORY_GRANT,)),
            FACTS,
            (ALLOW, "grant", "g-category"),
        ),
        (Policy(rules=(tool_rule(ALLOW), category_rule(ASK))), FACTS, (ALLOW, "rule", "r-rm")),
        (Policy(rules=(tool_rule(ASK),)), replace(FACTS, own_check=ALLOW), (ASK, "rule", "r-rm")),
        (Policy(), replace(FACTS, own_check=ALLOW), (ALLOW, "tool", None)),
    ],
    ids=range(18),
)
def test_a_cell(policy: Policy, facts: CallFacts, expected: tuple[Verdict, str, str | None]) -> None:
    assert outcome(resolve(policy, facts)) == expected


@pytest.mark.parametrize("mode", PermissionMode)
def test_a_category_deny_beats_yolo_grants_and_the_handler(mode: PermissionMode) -> None:
    policy = Policy(mode, (category_rule(DENY),), (TOOL_GRANT, CATEGORY_GRANT))
    assert outcome(resolve(policy, replace(FACTS, handler=ALLOW))) == (DENY, "rule", "r-files")


def test_rules_and_grants_for_other_names_do_not_count() -> None:
    others = Policy(
        rules=(tool_rule(DENY, "files"), category_rule(DENY, "rm"), tool_rule(DENY, "rm2")),
        grants=(Grant("tool", "files", "a"), Grant("category", "rm", "b")),
    )
    assert outcome(resolve(others, FACTS)) == (ASK, "default", None)


def test_a_tool_without_a_category_meets_no_category_rule() -> None:
    policy = Policy(rules=(category_rule(ALLOW, "None"), category_rule(ALLOW)), grants=(CATEGORY_GRANT,))
    assert outcome(resolve(policy, replace(FACTS, category=None))) == (ASK, "default", None)


def test_of_several_rules_for_a_name_the_last_counts_but_a_deny_always_does() -> None:
    first, second = replace(tool_rule(ASK), id="first"), replace(tool_rule(ALLOW), id="second")
    assert outcome(resolve(Policy(rules=(first, second)), FACTS)) == (ALLOW, "rule", "second")
    assert outcome(resolve(Policy(rules=(second, first)), FACTS)) == (ASK, "rule", "first")
    denied = Policy(rules=(tool_rule(DENY), first, second))
    assert outcome(resolve(denied, FACTS)) == (DENY, "rule", "r-rm")


def test_an_explanation_lists_each_step_that_was_taken() -> None:
    policy = Policy(rules=(category_rule(ALLOW),))
    assert resolve(policy, replace(FACTS, handler=None)).explanation == (
        "no rule and no check denies",
        "mode default denies nothing",
        "the handler leaves it open",
        "the tool's own check asks for nobody",
        "mode default allows nothing ahead of the rules",
        "no tool rule",
        "no tool grant",
        "no category grant",
        "category rule r-files (files) says allow",
    )


@pytest.mark.parametrize("verdict", Verdict)
def test_the_reason_of_a_tools_own_check_is_told(verdict: Verdict) -> None:
    decision = resolve(Policy(), replace(FACTS, own_check=verdict, own_reason="it leaves the house"))
    assert (decision.verdict, decision.source) == (verdict, "tool")
    assert decision.explanation[-1].endswith(" this input: it leaves the house")


# --- properties ---------------------------------------------------------------------------------

names = st.sampled_from(["rm", "files", "other"])
scopes: st.SearchStrategy[Any] = st.sampled_from(["tool", "category"])
policies = st.builds(
    Policy,
    st.sampled_from(PermissionMode),
    st.lists(st.builds(Rule, scopes, names, st.sampled_from(Verdict), st.text("ab", min_size=1))).map(tuple),
    st.lists(st.builds(Grant, scopes, names, st.text("cd", min_size=1))).map(tuple),
)
calls = st.builds(
    CallFacts,
    st.just("rm"),
    st.sampled_from(["files", None]),
    st.sampled_from(ToolKind),
    st.booleans(),
    st.just("digest"),
    st.sampled_from(MAYBE),
    st.sampled_from((*MAYBE, "unset")),
)


@given(policies, calls)
def test_taking_a_grant_or_an_allow_away_never_allows_more(policy: Policy, facts: CallFacts) -> None:
    strict = replace(
        policy, grants=(), rules=tuple(rule for rule in policy.rules if rule.verdict is not ALLOW)
    )
    if resolve(policy, facts).verdict is not ALLOW:
        assert resolve(strict, facts).verdict is not ALLOW


@given(policies, calls, scopes)
def test_adding_a_deny_denies_whatever_was_there(policy: Policy, facts: CallFacts, scope: Any) -> None:
    name = facts.tool_name if scope == "tool" else facts.category
    if name is not None:
        denied = replace(policy, rules=(Rule(scope, name, DENY, "new"), *policy.rules))
        assert resolve(denied, facts).verdict is DENY


@given(policies, calls)
def test_a_decision_depends_on_nothing_but_its_inputs(policy: Policy, facts: CallFacts) -> None:
    assert resolve(policy, facts) == resolve(replace(policy), replace(facts))
