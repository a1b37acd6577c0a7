"""One life of the application, from its first start to its last, over as many processes as it takes."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from minutebook.testing.crash import NEVER, Ended
from minutebook.testing.fork_server import ForkServer, Running
from tests.crash.script import SESSION

APPLICATION: Final = Path(__file__).with_name("application.py")
#: A kill takes nothing that the kernel has, so a file system in memory does: it is only quicker.
IN_MEMORY: Final = Path("/dev/shm")

Files = dict[str, tuple[int, str]]


@dataclass(frozen=True, slots=True)
class Examination:
    """What a process that only looked found.

    Args:
        commits: the events of each commit, as type and id.
        plan: (action, subject) of each item.
        unsettled: calls of ended requests that nobody knows the outcome of.
        holder: who holds the lease as far as the file says; None: it was given back.
        story: the conversation, see `invariants.conversation`.
    """

    wrong: list[str]
    commits: list[list[str]]
    plan: list[tuple[str, str]]
    kind: str
    unsettled: list[str]
    holder: str | None
    story: list[Any]

    @property
    def events(self) -> list[str]:
        """Type and id of every event."""
        return [event for commit in self.commits for event in commit]

    @property
    def actions(self) -> list[str]:
        """The plan's actions, in order."""
        return [action for action, _ in self.plan]


@dataclass(slots=True)
class Life:
    """A journal, its witness, and what the processes around them have told.

    Args:
        options: of `live`, for every start.
    """

    server: ForkServer
    place: Path
    options: dict[str, Any] = field(default_factory=dict)
    said: list[dict[str, Any]] = field(default_factory=list)

    def start(self, kill_at: int = NEVER, **more: Any) -> Ended:
        """Start the application, for the first time or again, and wait for its end."""
        arguments = {**self.files, **self.options, "kill_at": kill_at, **more}
        running = self.server.start("live", **arguments)
        return self.finish(running)

    def seen_by(self, server: ForkServer) -> Life:
        """The same life, its processes started by another server."""
        return Life(server, self.place, self.options, self.said)

    @contextmanager
    def copied(self) -> Iterator[Life]:
        """Another life that has been this one until now, in a place of its own."""
        with new_life(self.server, **self.options) as other:
            shutil.copytree(self.place, other.place, dirs_exist_ok=True)
            other.said += self.said
            yield other

    def finish(self, running: Running) -> Ended:
        """Wait for the end of one that was begun."""
        ended = running.ended()
        self.said += ended.said
        return ended

    def examine(self, *, finished: bool = False) -> Examination:
        """Look at the journal from another process; looking must not change a byte."""
        before = contents(self.place)
        ended = self.server.run(
            "examine",
            **self.files,
            session_id=SESSION,
            said=self.said,
            finished=finished,
        ).completed()
        found = dict(ended.said[0])
        found["plan"] = [(action, subject) for action, subject in found["plan"]]
        if contents(self.place) != before:
            found["wrong"] = [*found["wrong"], "looking: it changed a file"]
        return Examination(**found)

    @property
    def files(self) -> dict[str, str]:
        """Where journal and witness are."""
        return {"journal": str(self.place / "journal.db"), "witness": str(self.place / "witness")}


def contents(place: Path) -> Files:
    """Every file of a place: when it was changed, and what is in it."""
    return {
        path.name: (path.stat().st_mtime_ns, hashlib.sha256(path.read_bytes()).hexdigest())
        for path in sorted(place.iterdir())
    }


@contextmanager
def new_life(server: ForkServer, **options: Any) -> Iterator[Life]:
    """A life in a place of its own, which is gone afterwards."""
    place = Path(tempfile.mkdtemp(prefix="minutebook-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None))
    try:
        yield Life(server, place, options)
    finally:
        shutil.rmtree(place)
