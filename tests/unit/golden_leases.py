"""The session behind the fourth golden journal of format 1: three holders, a handoff, an end.

Like the others it is never changed once its format is released.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from domain.decider import CloseSession
from domain.envelope import Fence
from domain.inputs import AcceptInput
from domain.lease import AcquireLease, CompleteHandoff
from domain.session import Create, Resume
from domain.settings import Settings
from domain.values import Priority
from minutebook.testing.scenario import Scenario

FILE: Final = Path(__file__).parents[1] / "golden" / "format-1" / "leases.json"
SESSION: Final = "leases"
SETTINGS: Final = Settings(model="a-model", provider={"type": "openai", "id": "openai", "api": "chat"})


def session() -> Scenario:
    """The whole session."""
    scenario = Scenario(SESSION, Fence("worker-1", "lease-1", 1))
    scenario.given(
        [Create("owner", SETTINGS, {}), AcquireLease(30_000)],
        AcceptInput("i-1", "wait", Priority.LATER, 1),
        CompleteHandoff("start_next_request"),
    )
    scenario.fence = Fence("worker-2", "lease-2", 2)
    scenario.given(
        [AcquireLease(30_000, "worker-1", 1, "released"), Resume(SETTINGS.digest(), {})],
    )
    scenario.fence = Fence("worker-1", "lease-3", 4)
    return scenario.given(
        [AcquireLease(10_000, "worker-2", 2, "ran_out"), Resume(SETTINGS.digest(), {})],
        CloseSession("user"),
    )
