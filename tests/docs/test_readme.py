"""The README, carried out: its examples run, its commands exist.

The blocks marked `python` are executed in order, in one namespace, as a reader
would type them. They may use BASE_URL, API_KEY and MODEL: here a small server on
loopback stands for the provider.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[tuple[int, str]]:
    """(line of the first statement, text) of each fenced block of a language."""
    return [
        (README[: found.start(1)].count("\n") + 1, found[1])
        for found in re.finditer(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    ]


class Provider(BaseHTTPRequestHandler):
    """Streams one chat completion: asks for the weather first, then answers."""

    def do_POST(self) -> None:
        asked: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for chunk in self._chunks(asked["messages"]):
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")

    def _chunks(self, messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        if any(message["role"] == "tool" for message in messages):
            yield self._chunk({"role": "assistant", "content": "It is sunny."})
            yield self._chunk({}, "stop")
        else:
            function = {"name": "weather", "arguments": '{"city": "Rome"}'}
            call = {"index": 0, "id": "call_1", "type": "function", "function": function}
            yield self._chunk({"role": "assistant", "tool_calls": [call]})
            yield self._chunk({}, "tool_calls")

    def _chunk(self, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {
            "id": "c1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "small",
            "choices": [choice],
        }

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def base_url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_examples_run_in_order(
    base_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    # Annotations of the examples are resolved in their own module, as in a reader's file.
    names: dict[str, Any] = {"__name__": "readme", "BASE_URL": base_url, "API_KEY": "a-key", "MODEL": "small"}
    for line, text in blocks("python"):
        exec(compile("\n" * (line - 1) + text, str(ROOT / "README.md"), "exec"), names)
    assert "It is sunny." in capsys.readouterr().out
    assert (tmp_path / "sessions.db").is_file()


def test_every_block_says_what_it_is() -> None:
    openings = re.findall(r"^```(.*)$", README, re.MULTILINE)[::2]
    assert set(openings) <= {"python", "sh"}
    assert "python" in openings


def test_the_make_targets_exist() -> None:
    named = {target for _, text in blocks("sh") for target in re.findall(r"^make (\w+)", text, re.MULTILINE)}
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"demo", "test"} <= named <= targets


def test_the_plain_commands_do_what_make_does() -> None:
    makefile = " ".join((ROOT / "Makefile").read_text().replace("\\\n", "").split())
    for said, done in [
        ("-m venv .venv", "-m venv --clear $(VENV)"),
        ('install -c constraints.txt -e ".[dev]"', '-c constraints.txt -e ".[dev]"'),
        (".venv/bin/minutebook demo", "$(BIN)/minutebook demo"),
        (".venv/bin/python -m pytest", "$(BIN)/python -m pytest"),
    ]:
        assert said in README
        assert done in makefile


def test_the_oldest_python_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["requires-python"] == ">=3.11"
    assert project["tool"]["ruff"]["target-version"] == "py311"
    assert project["tool"]["mypy"]["python_version"] == "3.11"
    assert "Python 3.11" in README
    assert "(3, 11)" in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("link", sorted({*re.findall(r"\]\(([^)#:]+)\)", README)}))
def test_links_lead_somewhere(link: str) -> None:
    assert (ROOT / link).exists()
