"""Journals on disk and the command line over them: as a child process, or quicker, in this one."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import orjson

from adapters.sqlite_store import SqliteStore
from minutebook.testing.keeping import keep
from minutebook.testing.scenario import Scenario
from recovery.cli import main

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Its output as JSON; it has to be ASCII."""
        assert self.out.isascii()
        return orjson.loads(self.out)


def call(*arguments: str | Path) -> Ran:
    """The command line in this process: what a child would print and return."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as e:  # argparse ends like this
            code = int(e.code or 0)
    return Ran(code, _text(out), _text(err))


def _text(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()


def run(*arguments: str | Path) -> Ran:
    """`python -m recovery ...` as a child, to its end. No command may ever show a traceback."""
    child = subprocess.run(
        [sys.executable, "-m", "recovery", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )
    assert "Traceback" not in child.stderr, child.stderr
    return Ran(child.returncode, child.stdout, child.stderr)


def write(path: Path, *scenarios: Scenario, owner_id: str = "local") -> Path:
    """A journal file that holds these sessions, closed."""

    async def fill() -> None:
        async with SqliteStore(path).open(owner_id=owner_id) as journal:
            for scenario in scenarios:
                await keep(journal, scenario, owner_id)

    anyio.run(fill)
    return path


def traces(path: Path) -> dict[str, tuple[bytes, int]]:
    """Bytes and time of change of every file beside a file, itself included."""
    files = sorted(file for file in path.parent.iterdir() if file.is_file())
    return {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in files}


def actions(document: dict[str, Any]) -> Sequence[str]:
    """The actions of a plan document."""
    return [item["action"] for item in document["items"]]
