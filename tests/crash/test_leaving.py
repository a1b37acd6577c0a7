"""Leaving a session in the middle: by an exception, by Ctrl-C, by SIGTERM, or just so.

Whatever the reason, the session stops at its durable frontier, gives its lease
back, makes up no end, and the next process goes on.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

import pytest

from minutebook.testing.crash import Ended
from minutebook.testing.fork_server import INTERRUPTED, ForkServer
from tests.crash.harness import Life, new_life

CALL = "r1.t1.a1.c0"


@dataclass(frozen=True, slots=True)
class Left:
    """What a moment leaves behind: the last event, the plan, and what has to be decided then."""

    last: str
    plan: list[tuple[str, str]]
    decided: list[str]


MOMENTS = {
    "idle": Left("request_completed r1", [("none", "s-crash")], []),
    "model": Left("model_request_aborted r1.t1.a1", [("next_attempt", "r1.t1")], []),
    "tool": Left(f"tool_started {CALL}", [("reconcile_tool_outcomes", CALL)], [CALL]),
    "tool that heeds": Left(f"tool_completed {CALL}", [("complete_turn", "r1.t1")], []),
    "pure tool": Left(f"tool_started {CALL}", [("start_tool", CALL)], []),
    "question": Left(f"permission_requested {CALL}", [("resolve_permissions", CALL)], []),
}
#: How the process is left; the signal that makes it; what it returns.
WAYS = {
    "return": (None, 0),
    "raise": (None, 1),
    "stay": (signal.SIGINT, INTERRUPTED),
    "stay, stopped by signals": (signal.SIGTERM, 0),
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("how", WAYS)
def test_leaving(how: str, moment: str, server: ForkServer) -> None:
    with new_life(server) as life:
        ended = left(life, how, moment, "asyncio")
        assert ended.returncode == WAYS[how][1], ended
        _check_frontier(life, MOMENTS[moment])
        _check_reports(ended, how, moment)
        _check_next(life, MOMENTS[moment])


@pytest.mark.parametrize("moment", ["model", "tool", "tool that heeds"])
@pytest.mark.parametrize("how", ["raise", "stay, stopped by signals"])
def test_leaving_on_trio(how: str, moment: str, server: ForkServer) -> None:
    with new_life(server) as life:
        ended = left(life, how, moment, "trio")
        assert ended.returncode == WAYS[how][1], ended
        _check_frontier(life, MOMENTS[moment])
        _check_next(life, MOMENTS[moment])


def left(life: Life, how: str, moment: str, backend: str) -> Ended:
    """Get to the moment and leave."""
    running = life.server.start("stay", **life.files, moment=moment, how=how, backend=backend)
    running.wait_for("at")
    sent, _ = WAYS[how]
    if sent is not None:
        running.kill(sent)
    return life.finish(running)


def _check_frontier(life: Life, expected: Left) -> None:
    found = life.examine()
    assert (found.wrong, found.events[-1], found.plan) == ([], expected.last, expected.plan)
    assert not any(
        e.startswith(("session_closed", "request_interrupted", "request_failed")) for e in found.events
    )
    assert found.holder is None


def _check_reports(ended: Ended, how: str, moment: str) -> None:
    """The block's own exception comes out as it was, and the log says how to go on."""
    if how == "raise":
        assert ended.told("traceback")[0].rstrip().endswith("LookupError: from inside the block")
        assert "ExceptionGroup" not in ended.told("traceback")[0]
    if how == "stay, stopped by signals":
        assert ended.told("after") == ["the block"]
    logged = " ".join(ended.told("log"))
    assert ("resume_session('s-crash', ...)" in logged) == (how != "return" and moment != "idle"), logged


def _check_next(life: Life, expected: Left) -> None:
    """The next process gets the session at once and brings the request to its end."""
    next_one = life.server.run("go_on", **life.files).completed()
    assert next_one.told("id") == expected.decided
    end = life.examine(finished=True)
    assert end.wrong == []
    assert end.events.count("request_completed r1") == 1
    assert end.plan == [("none", "s-crash")]
