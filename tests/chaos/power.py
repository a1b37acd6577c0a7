"""Cutting the power: each image of a disk is opened, read, checked, written to.

One process does it for all images. What it asks for is what a user would: whatever was
promised before the cut is there, the rest is there whole or not at all, and the session
can go on.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import anyio

from adapters.sqlite_reader import SqliteJournalReader, open_reader
from adapters.sqlite_store import SqliteStore
from adapters.system import no_probe, this_process
from domain import catalogue
from domain.cursor import Cursor
from domain.envelope import Fence, Stored, check_link, genesis
from domain.errors import MinutebookError, NotAJournal
from domain.ports import Batch, CommitStatus, Holder, Journal
from minutebook.testing.batches import dummy_batch
from minutebook.testing.crash import Witness
from tests.chaos.images import Image, images
from tests.chaos.tracing import Call, child, traced
from tests.chaos.writers import SESSIONS, batches, boundaries, next_batch
from tests.crash.harness import IN_MEMORY
from tests.crash.invariants import Evidence, violations
from tests.crash.program import Program, Story
from tests.crash.script import SESSION, World, worlds

MODES: Final = ("wal", "truncate")
SCRIPTS: Final = ("commits", "session")


@dataclass(slots=True)
class Outcome:
    """What became of many images.

    Args:
        images: how many there were.
        lost: those in which something promised is missing, with the first thing that is.
        broken: those in which something else is wrong.
        ways: how many of each way.
        resumed: how often a session was gone on with.
    """

    images: int = 0
    lost: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    ways: Counter[str] = field(default_factory=Counter)
    resumed: int = 0


@contextmanager
def place_of_its_own() -> Iterator[Path]:
    """A directory that is gone afterwards, in memory where that is possible."""
    made = tempfile.mkdtemp(prefix="minutebook-", dir=IN_MEMORY if IN_MEMORY.is_dir() else None)
    try:
        yield Path(made).resolve()
    finally:
        shutil.rmtree(made)


def written(script: str, mode: str, synchronous: str = "FULL") -> list[Call]:
    """What a script asked of its disk, from a run in a process of its own."""
    with place_of_its_own() as place, place_of_its_own() as aside:
        return traced(child(script, place, mode, synchronous), place, aside / "log")


def cut(
    calls: Sequence[Call],
    script: str,
    mode: str,
    *,
    seed: int,
    subsets: int,
    step: int = 1,
    lives: int = 1,
    enough: int | None = None,
) -> Outcome:
    """Check every `step`th image of a run.

    Args:
        seed, subsets: see `images`.
        lives: live a session to its end from every so many of its states.
        enough: stop when so many images have lost something.
    """
    outcome = Outcome()
    examiner: Examiner = CommitsExaminer(mode) if script == "commits" else SessionExaminer(mode, lives)

    async def main() -> None:
        with place_of_its_own() as place:
            for image in images(calls, seed, subsets, step):
                outcome.images += 1
                outcome.ways[image.way] += 1
                await examiner.examine(image, place)
                if enough is not None and len(examiner.lost) >= enough:
                    return

    anyio.run(main)
    outcome.lost, outcome.broken, outcome.resumed = examiner.lost, examiner.broken, examiner.resumed
    return outcome


def put(image: Image, place: Path) -> None:
    """Make a directory hold what an image holds, and the world's witness."""
    for left in place.iterdir():
        left.unlink()
    for name, content in image.files.items():
        (place / name).write_bytes(content)
    (place / "witness").write_text("".join("\t".join(line) + "\n" for line in image.witness))


class Examiner:
    """Opens images, one after the other, as a reader and then as a writer."""

    def __init__(self, mode: str) -> None:
        self.lost: list[str] = []
        self.broken: list[str] = []
        self.resumed = 0
        self._mode = mode
        self._resumed: dict[Any, list[str]] = {}

    async def examine(self, image: Image, place: Path) -> None:
        """Put an image on a disk and use it."""
        put(image, place)
        path = place / "journal.db"
        try:
            found = await self._read(path)
            self.lost += [f"{image}: {missing}" for missing in self.missing(image, found)][:1]
            wrong = [*self.wrong(image, found), *await self._written(path, found)]
        except MinutebookError as e:
            wrong = [f"{type(e).__name__}: {e}"]
        self.broken += [f"{image}: {w}" for w in wrong]

    # --- looking ----------------------------------------------------------------------------

    async def _read(self, path: Path) -> dict[str, list[Stored]]:
        """Every session's rows, as the reader finds them; checked to be a chain."""
        try:
            async with open_reader(path) as reader:
                if damage := await reader.damage():
                    self.broken.append(f"integrity: {damage}")
                return {
                    row.session_id: await _chain(reader, row.session_id) for row in await reader.sessions()
                }
        except NotAJournal:  # the cut came before the tables: then nothing can have been promised
            return {}

    async def _written(self, path: Path, found: dict[str, list[Stored]]) -> list[str]:
        """What is wrong once it has been opened for writing, and written to."""
        wrong: list[str] = []
        store = SqliteStore(path, journal_mode=self._mode)
        async with store.open() as journal:
            for session_id, rows in found.items():
                again = await _chain(journal, session_id)
                if [row.head for row in again] != [row.head for row in rows]:
                    wrong.append(f"{session_id}: the reader found {len(rows)} events, the store {len(again)}")
            wrong += await self.go_on(journal, store, found)
        async with open_reader(path) as reader:
            if damage := await reader.damage():
                wrong.append(f"integrity after writing: {damage}")
        return wrong

    # --- what differs between scripts -----------------------------------------------------------

    def missing(self, image: Image, found: dict[str, list[Stored]]) -> Iterable[str]:
        """Promises that the image does not keep."""
        raise NotImplementedError

    def wrong(self, image: Image, found: dict[str, list[Stored]]) -> Iterable[str]:
        """What else is wrong with what is there."""
        raise NotImplementedError

    async def go_on(self, journal: Journal, store: SqliteStore, found: dict[str, list[Stored]]) -> list[str]:
        """Write to it; what goes wrong."""
        raise NotImplementedError


class CommitsExaminer(Examiner):
    """For `writers.commits`: its bytes are known beforehand."""

    def __init__(self, mode: str) -> None:
        super().__init__(mode)
        self._boundaries = {session: boundaries(session) for session in SESSIONS}

    def missing(self, image: Image, found: dict[str, list[Stored]]) -> Iterable[str]:
        for told in image.said:
            rows = found.get(told["session"], [])
            if len(rows) < told["sequence"] or rows[told["sequence"] - 1].head.hex() != told["head"]:
                yield f"{told['session']} at {told['sequence']} was promised, there are {len(rows)} events"

    def wrong(self, image: Image, found: dict[str, list[Stored]]) -> Iterable[str]:
        for session, rows in found.items():
            head = rows[-1].head if rows else genesis(session)
            if self._boundaries[session].get(len(rows)) != head:
                yield f"{session} stands at {len(rows)}, in the middle of a batch or somewhere else"

    async def go_on(self, journal: Journal, store: SqliteStore, found: dict[str, list[Stored]]) -> list[str]:
        wrong: list[str] = []
        for session in SESSIONS:
            rows = found.get(session, [])
            there = [batch for batch in batches(session) if batch.events[-1].sequence <= len(rows)]
            wrong += [w for batch in there for w in await _half(journal, batch)]
            receipt = await journal.commit(next_batch(session, len(rows)))
            if receipt.status is not CommitStatus.COMMITTED:
                wrong.append(f"{session}: its next batch was {receipt.status}")
        self.resumed += 1
        return wrong


class SessionExaminer(Examiner):
    """For `writers.session`: held against witness and promises as after a kill, and lived to its end.

    A session is lived to its end once for each state in which an image leaves it (or for
    every so many of them); every other image is leased and written to.
    """

    def __init__(self, mode: str, lives: int) -> None:
        super().__init__(mode)
        self._lives = lives
        self._violations: dict[tuple[bytes, int, int], list[str]] = {}
        self._lived: set[tuple[bytes, int]] = set()

    def missing(self, image: Image, found: dict[str, list[Stored]]) -> Iterable[str]:
        rows = found.get(SESSION, [])
        key = (rows[-1].head if rows else b"", len(image.said), len(image.witness))
        if key not in self._violations:
            events = [catalogue.open_stored(row) for row in rows]
            life = Evidence(events, image.witness, image.said)
            self._violations[key] = violations(life, finished=False)
        return self._violations[key]

    def wrong(self, image: Image, found: dict[str, list[Stored]]) -> Iterable[str]:
        return ()

    async def go_on(self, journal: Journal, store: SqliteStore, found: dict[str, list[Stored]]) -> list[str]:
        rows = found.get(SESSION, [])
        path = Path(store.path)
        state = (rows[-1].head if rows else b"", len(Witness(path.parent / "witness").lines()))
        if state not in self._lived:
            self._lived.add(state)
            if len(self._lived) % self._lives == 0:
                return await self._live_on(store)
        holder = Holder("after the cut", "l-after", this_process().boot_id)
        lease = await journal.leases.acquire(SESSION, holder, 30_000)
        head = rows[-1].head if rows else genesis(SESSION)
        fence = Fence(holder.worker_id, holder.lease_id, lease.token)
        at = Cursor(SESSION, len(rows), head)
        receipt = await journal.commit(dummy_batch(at, "c-after", fence=fence))
        return [] if receipt.status is CommitStatus.COMMITTED else [f"the next batch was {receipt.status}"]

    async def _live_on(self, store: SqliteStore) -> list[str]:
        """Start the application again, in a process that is this one, and let it come to its end."""
        self.resumed += 1
        path = Path(store.path)
        said: list[dict[str, Any]] = []
        world = World(Witness(path.parent / "witness"), no_probe)
        worlds[:] = [world]
        with anyio.fail_after(30):
            await Program(lambda **told: said.append(told), replace(store), world, Story()).run()
        async with open_reader(path) as reader:
            events = [catalogue.open_stored(row) for row in await _chain(reader, SESSION)]
        return violations(Evidence(events, world.witness.lines(), said), finished=True)


async def _chain(journal: Journal | SqliteJournalReader, session_id: str) -> list[Stored]:
    """A session's rows, every link checked. Raises ChainBroken and its like."""
    rows: list[Stored] = []
    sequence, head = 0, genesis(session_id)
    while page := await journal.read(session_id, after=len(rows)):
        for row in page:
            check_link(row, sequence, head)
            sequence, head = row.sequence, row.head
        rows += page
    row_of_session = await journal.session(session_id)
    assert row_of_session is None or (row_of_session.sequence, row_of_session.head) == (sequence, head)
    return rows


async def _half(journal: Journal, batch: Batch) -> list[str]:
    """What is missing of a batch whose events are there."""
    missing = (
        [] if await journal.command(batch.session_id, batch.command_id) else [f"{batch.command_id}'s row"]
    )
    missing += [f"blob {blob.digest}" for blob in batch.blobs if await journal.blob(blob.digest) is None]
    snapshot = batch.snapshot
    if snapshot and await journal.snapshot(batch.session_id, upto=snapshot.sequence) != snapshot:
        missing.append(f"the snapshot at {snapshot.sequence}")
    return [f"{batch.session_id}: {what} is missing" for what in missing]
