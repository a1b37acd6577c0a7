"""A rule as an example: one commit that it refuses, and the nearest one that it allows.

The tables of `test_domain_*.py` are made of these; `test_domain_rules.py` looks
after every rule having one. The givens below lead to where most rules apply.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from domain import events as ev
from domain import inputs, turn
from domain.decider import OnCall
from domain.envelope import Fence, Recorded
from domain.errors import RuleViolated
from domain.lifecycle import fold
from domain.permission import Ask
from domain.state import State
from domain.values import Priority, Verdict
from minutebook.testing.scenario import (
    SETTINGS,
    Called,
    Commit,
    Scenario,
    Writing,
    accepted,
    created,
    evaluated,
    recorded,
    responded,
    running,
    scheduled,
    started,
)

DIGEST = SETTINGS.digest()
OTHER = "0" * 64


@dataclass(frozen=True)
class Tampered:
    """A commit whose events are altered after they were stamped."""

    commit: Commit
    alter: Callable[[list[Recorded]], list[Recorded]]


@dataclass(frozen=True)
class Direct:
    """A fold that is called by itself, with one stamped event: what only its caller keeps from it."""

    commit: Commit
    evolve: Callable[[Recorded], object]


Trial = Commit | Tampered | Direct


@dataclass(frozen=True)
class Case:
    """`rule` refuses `refused` and allows `allowed`, after `given`.

    All of it is written under `fence`, but for what another one is given for.
    """

    rule: str
    given: tuple[Commit, ...]
    refused: Trial
    allowed: Trial
    then_given: tuple[Commit, ...] | None = None
    fence: Fence | None = None
    refused_by: Fence | None = None
    allowed_by: Fence | None = None

    def __str__(self) -> str:
        return self.rule

    def refuse(self) -> RuleViolated:
        """The refusal, which has to be this rule's."""
        scenario = self._after(self.given, self.refused_by)
        with pytest.raises(RuleViolated) as refusal:
            attempt(scenario, self.refused)
        assert refusal.value.rule == self.rule
        return refusal.value

    def allow(self) -> None:
        """The nearest commit that the rule has nothing against."""
        given_then = self.given if self.then_given is None else self.then_given
        attempt(self._after(given_then, self.allowed_by), self.allowed)

    def _after(self, commits: tuple[Commit, ...], by: Fence | None) -> Scenario:
        scenario = Scenario(fence=self.fence).given(*commits)
        scenario.fence = by or self.fence
        return scenario


def attempt(scenario: Scenario, trial: Trial) -> State | object:
    """Try a commit; raises what the rules raise."""
    match trial:
        case Tampered():
            return fold(scenario.state, trial.alter(scenario.compose(trial.commit).events))
        case Direct():
            return trial.evolve(scenario.compose(trial.commit).events[-1])
        case _:
            return scenario.compose(trial).state


def altered(commit: Commit, *, at: int = 0, **changes: Any) -> Tampered:
    """A commit with fields of its event at `at` replaced."""

    def alter(events: list[Recorded]) -> list[Recorded]:
        return [*events[:at], changed(events[at], **changes), *events[at + 1 :]]

    return Tampered(commit, alter)


def changed(event: Recorded, **changes: Any) -> Recorded:
    """An event with fields of its envelope replaced."""
    return replace(event, **changes)


# --- where things stand -----------------------------------------------------------------

START: tuple[Commit, ...] = (created(), accepted())
#: The first attempt is out.
TURN: tuple[Commit, ...] = (*START, started())
#: The last turn is final.
FINAL: tuple[Commit, ...] = (*TURN, responded(), turn.CompleteTurn(0, "end"))


def answered(*called: Called) -> tuple[Commit, ...]:
    """The response is there, with these calls."""
    return (*TURN, responded(*called))


def ready(called: Called) -> tuple[Commit, ...]:
    """One call, scheduled."""
    return (*answered(called), scheduled(0, called))


def decided(called: Called, verdict: Verdict = Verdict.ALLOW) -> tuple[Commit, ...]:
    """One call, scheduled and evaluated."""
    return (*ready(called), evaluated(0, verdict))


def asked(called: Called) -> tuple[Commit, ...]:
    """One call that a person is asked about."""
    return (*ready(called), [evaluated(0, Verdict.ASK), OnCall(0, Ask("May it?"))])


def begun(called: Called) -> tuple[Commit, ...]:
    """One call that was started."""
    return (*decided(called), running(0))


def sent(ordinal: int, priority: Priority = Priority.NEXT, target: str | None = "r1") -> Writing:
    """One more input for the running request."""
    return inputs.AcceptInput(f"i-{ordinal}", "more", priority, ordinal, target)


def compaction_begun(name: str = "c-1") -> Writing:
    """A compaction begins; no command does that yet."""
    return recorded(ev.CompactionStarted(compaction_id=name, trigger="size"), aggregate_id=name)


def compaction_attempt(
    number: int = 1, attempt_id: str | None = None, purpose: str = "compaction"
) -> Writing:
    """The compaction's model attempt."""
    payload = ev.ModelRequestStarted.model_validate(
        {
            "purpose": purpose,
            "number": number,
            "provider": "scripted",
            "api": "openai-chat",
            "model": "test-model",
            "request_digest": OTHER,
            "request_bytes": 2,
        }
    )
    return recorded(payload, model_attempt_id=attempt_id or f"c-1.a{number}")


def table(cases: Iterable[Case]) -> pytest.MarkDecorator:
    """One test for each case, named by its rule; a rule's further cases are numbered."""
    seen: Counter[str] = Counter()
    params = []
    for case in cases:
        seen[case.rule] += 1
        number = f" ({seen[case.rule]})" if seen[case.rule] > 1 else ""
        params.append(pytest.param(case, id=case.rule + number))
    return pytest.mark.parametrize("case", params)
