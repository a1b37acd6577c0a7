"""Real processes, killed while a response comes: the next one finds it where the server keeps it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from minutebook.testing.fake_server import Faults, serve_in_thread
from minutebook.testing.fork_server import ForkServer
from recovery.cli import main
from tests.session.storing_server import Storing, stall_after


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    with ForkServer(Path(__file__).with_name("dying_with_a_response.py")) as server:
        yield server


def killed(server: ForkServer, url: str, api: str, journal: Path, after: str, sent: threading.Event) -> None:
    """A process that dies right after something of a type became durable, and its request was sent."""
    child = server.start("begin", url=url, api=api, journal=str(journal))
    while child.wait_for("type") != after:
        pass
    assert sent.wait(20)
    child.kill()
    assert child.ended().returncode == -9


def inspected(journal: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The one item of the plan, as the command line tells it."""
    assert main(["inspect", str(journal), "s1", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    (item,) = document["items"]
    assert (item["action"], item["who"]) == ("reconcile_model_outcome", "host")
    return dict(item)


def gone_on(server: ForkServer, url: str, api: str, journal: Path) -> str:
    ended = server.run("go_on", url=url, api=api, journal=str(journal)).completed()
    (content,) = [line["content"] for line in ended.said if "content" in line]
    return str(content)


@pytest.mark.parametrize("events", [1, 3, 5])
def test_a_response_is_found(
    server: ForkServer, tmp_path: Path, events: int, capsys: pytest.CaptureFixture[str]
) -> None:
    journal, storing = tmp_path / "journal.db", stall_after(Storing(), events)
    with serve_in_thread(storing) as served:
        killed(server, served.url, "responses", journal, "model_response_identified", storing.asked)
        offered = inspected(journal, capsys)
        assert offered["reason"].endswith("Its provider can be asked for it by the response's id resp_0.")
        assert offered["python"] == "await coordinator.look_up_model_outcome('r1.t1.a1', provider)"
        assert offered["evidence"] == [9, 10]
        assert gone_on(server, served.url, "responses", journal) == "found again"
    assert len(storing.posts) == 1
    assert main(["verify", str(journal), "s1"]) in (0, 4)
    assert "sk-test-key" not in journal.read_bytes().decode("latin-1")


def test_a_completion_is_found_of_which_no_byte_came(
    server: ForkServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal, storing = tmp_path / "journal.db", Storing(first=Faults(stall_after=0))
    with serve_in_thread(storing) as served:
        killed(server, served.url, "chat", journal, "model_request_started", storing.asked)
        assert inspected(journal, capsys)["reason"].endswith("by the attempt's key s1/r1.t1.a1.")
        assert gone_on(server, served.url, "chat", journal) == "found again"
    assert len(storing.posts) == 1
