"""The session behind the fifth golden journal of format 1: a request that another one took over from.

Like the others it is never changed once its format is released.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from domain.decider import EndRequest
from domain.inputs import AcceptInput, ApplyInput, BeginPreparation
from domain.request import AcceptRequest, StartRequest, Supersede
from domain.session import Create
from domain.settings import Settings
from domain.values import Priority
from minutebook.testing.scenario import Scenario

FILE: Final = Path(__file__).parents[1] / "golden" / "format-1" / "rollover.json"
SESSION: Final = "rollover"
SETTINGS: Final = Settings(model="a-model", provider={"type": "openai", "id": "openai", "api": "chat"})


def session() -> Scenario:
    """The whole session."""
    return Scenario(SESSION).given(
        [Create("owner", SETTINGS, {})],
        [AcceptInput("i-1", "begin", Priority.NEXT, 1), AcceptRequest("i-1", SETTINGS, {}, 5)],
        [ApplyInput("i-1", Priority.NEXT, 1), StartRequest(), BeginPreparation(("i-1",), ("hook",))],
        [
            EndRequest("superseded", Supersede("request_recovery", "ticket 4", "r2", ("i-1",))),
            AcceptInput("i-2", "begin, prepared by hand", Priority.NEXT, 2),
            AcceptRequest("i-2", SETTINGS, {}, 5, "r1"),
        ],
    )
