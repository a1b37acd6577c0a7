"""The session behind the third golden journal of format 1: an attempt that was lost and looked up.

Like the others it is never changed once its format is released.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from domain import model_attempt, request, turn
from domain.decider import StartAttempt, handle
from domain.envelope import Draft
from domain.inputs import AcceptInput, ApplyInput, FinishPreparation
from domain.model_ports import Block, Response
from domain.session import Create
from domain.settings import Settings
from domain.state import State
from domain.values import Priority, Stop
from minutebook.testing.scenario import Scenario

FILE = Path(__file__).parents[1] / "golden" / "format-1" / "looked-up.json"
SESSION = "looked-up"
SETTINGS = Settings(model="a-model", provider={"type": "openai", "id": "openai", "api": "responses"})


def session() -> Scenario:
    """The whole session."""
    scenario = Scenario(SESSION)
    return scenario.given(
        [Create("owner", SETTINGS, {})],
        [AcceptInput("i-1", "ask", Priority.NEXT, 1), _accept],
        [
            ApplyInput("i-1", Priority.NEXT, 1),
            request.StartRequest(),
            FinishPreparation(("i-1",)),
            _turn,
            StartAttempt(
                "openai", "openai-responses", "a-model", "b" * 64, 99, attempt_key="looked-up/r1.t1.a1"
            ),
        ],
        model_attempt.Identify("resp_1"),
        model_attempt.Reconcile("completed", "looked up: the server had it", _answer()),
        turn.CompleteTurn(0, Stop.END),
        request.Complete("found", {"input_tokens": 10, "output_tokens": 1, "total_tokens": 11}),
    )


def _accept(state: State) -> Iterable[Draft]:
    assert state.session is not None
    return handle(state, request.AcceptRequest("i-1", state.session.settings, {}, 5))


def _turn(state: State) -> Iterable[Draft]:
    assert state.request is not None
    return handle(state, turn.StartTurn(1, state.request.settings_digest))


def _answer() -> Response:
    usage = {"input_tokens": 10, "output_tokens": 1, "total_tokens": 11}
    thought = Block("opaque", '{"type":"reasoning","encrypted_content":"gAAA"}', "openai-responses/item")
    text = Block("text", "found", "openai-responses/message/final_answer")
    return Response((thought, text), (), Stop.END, usage, {"response_id": "resp_1"})
