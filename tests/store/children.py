"""Child processes of the store tests: they say what they did and wait to be told to go on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path(__file__).parent.parent.parent


class Child:
    """A Python child that speaks in lines."""

    def __init__(self, program: str, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
        )

    @property
    def process_id(self) -> int:
        """Its number."""
        return self._process.pid

    def hear(self) -> str:
        """Its next line; an error if it ended instead."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the child ended with {self._process.wait()} and said nothing"
        return line.rstrip("\n")

    def tell(self, line: str = "go on") -> None:
        """Let it go on."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def kill(self) -> None:
        """SIGKILL, and wait for the end."""
        self._process.kill()
        self._process.wait()

    def end(self) -> int:
        """Wait for the end; its exit code."""
        code = self._process.wait()
        self._close()
        return code

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def child(program: str, *arguments: object) -> Iterator[Child]:
    """A child that does not outlive the test."""
    running = Child(program, *arguments)
    try:
        yield running
    finally:
        running.kill()
        running._close()


#: Holds the write lock of a journal: says "held", is told to let go.
LOCK_HOLDER = """
import sys
from adapters.sqlite_driver import sqlite
connection = sqlite.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
connection.execute("ROLLBACK")
print("free", flush=True)
"""
