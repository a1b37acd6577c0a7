"""The session behind the second golden journal of format 1: models, reasoning, a budget.

It holds what the first one was written too early for. Like that one it is never changed
once its format is released.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from domain import budget, model_attempt, request, turn
from domain.budget import Limits
from domain.decider import StartAttempt, handle
from domain.envelope import Draft
from domain.inputs import AcceptInput, ApplyInput, FinishPreparation
from domain.model_ports import Response
from domain.session import Change, Create, Note
from domain.settings import Settings
from domain.state import State
from domain.unattended import failure
from domain.values import Effective, Priority, Stop, ThinkingSettings
from minutebook.testing.scenario import Drafts, Scenario, Writing

FILE = Path(__file__).parents[1] / "golden" / "format-1" / "settings-and-budget.json"
SESSION = "settings-and-budget"
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
SETTINGS = Settings(
    model="a-model",
    provider={"type": "openai", "id": "first"},
    providers={"second": {"type": "anthropic", "id": "second"}},
    context_window=128_000,
    thinking=ThinkingSettings(),
    output_schema=SCHEMA,
    output_fallback="instruct",
)
RATES = (("cached_input", 1), ("input", 3_000_000), ("output", 15_000_000))
PAIR = {"model": "another-model", "provider_name": "second", "context_window": 200_000}
THINKING = {"budget_tokens": 2048, "effort": "high"}


def session() -> Scenario:
    """The whole session."""
    scenario = Scenario(SESSION)
    return scenario.given(
        [Create("owner", SETTINGS, {}), budget.SetBudget(Limits(1000, 5_000, RATES, 500))],
        [Change(PAIR, Effective.NEXT_REQUEST), Change({"thinking": THINKING}, Effective.NEXT_REQUEST)],
        [AcceptInput("i-1", "count", Priority.NEXT, 1), _accept],
        [
            ApplyInput("i-1", Priority.NEXT, 1),
            request.StartRequest(),
            FinishPreparation(("i-1",)),
            _turn(1),
            Note("output_schema_fallback", "told in words", {"api": "openai-chat"}, in_request=True),
            _attempt(),
        ],
        Change({"thinking": None}, Effective.NEXT_TURN),
        model_attempt.Finish(_answer(400, 120, Stop.PAUSE)),
        [turn.CompleteTurn(0, "pause"), _turn(2), _attempt()],
        model_attempt.Finish(_answer(400, 200, Stop.PAUSE)),
        turn.CompleteTurn(0, "pause"),
        [_failed],
        budget.SetBudget(Limits(max_tokens=10_000)),
        budget.SetBudget(None),
    )


def _accept(state: State) -> Iterable[Draft]:
    assert state.session is not None
    return handle(state, request.AcceptRequest("i-1", state.session.settings, {}, 5))


def _turn(number: int) -> Drafts:
    def drafts(state: State) -> Iterable[Draft]:
        assert state.request is not None
        return handle(state, turn.StartTurn(number, state.request.settings_digest))

    return drafts


def _failed(state: State) -> Iterable[Draft]:
    return handle(state, failure(state, "budget"))


def _attempt() -> Writing:
    return StartAttempt("anthropic", "anthropic-messages", "another-model", "b" * 64, 99)


def _answer(input_tokens: int, output_tokens: int, stop: Stop) -> Response:
    usage = {"input_tokens": input_tokens, "output_tokens": output_tokens, "cached_input_tokens": 100}
    return Response((), (), stop, usage)
