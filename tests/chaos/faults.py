"""Every n-th system call of a program fails, or kills it: what is told stays true.

The loop asks for the n-th call of a name to fail for n = 1, 2, ... until a run meets no
fault any more, so it covers what there is, whatever SQLite is used. That a fault was
there is read from strace's own log.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Final

import anyio

from adapters.sqlite_reader import open_reader
from adapters.sqlite_store import SqliteStore
from adapters.system import this_process
from domain.cursor import Cursor
from domain.envelope import Fence, check_link, genesis
from domain.errors import NotAJournal
from domain.ports import CommitStatus, Holder, SessionRow
from minutebook.testing.batches import dummy_batch
from minutebook.testing.crash import Ended
from minutebook.testing.fork_server import ForkServer
from tests.chaos.application import KEPT
from tests.chaos.power import place_of_its_own
from tests.chaos.tracing import child, injected, traced
from tests.crash.harness import Life
from tests.crash.invariants import same_story, told_apart
from tests.long_runs import Numbers

APPLICATION: Final = Path(__file__).with_name("application.py")
#: What a writer asks of a disk.
NAMES: Final = ("pwrite64", "fsync", "fdatasync", "ftruncate", "openat", "unlink")
ERRORS: Final = ("ENOSPC", "EIO")
#: One of these is in an error that a disk is the reason of.
DISK_WORDS: Final = (
    *("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN", "disk I/O error", "disk is full"),
    *("unable to open database file", "readonly database", "[Errno 5]", "[Errno 28]"),
)
#: When a program is taken hold of; see `application.Held`.
PHASES: Final = ("opening", "open", "closing")


@dataclass(frozen=True, slots=True)
class Fault:
    """A system call that fails or kills.

    Args:
        name: of the call.
        what: an error's name, or "KILL".
        sticky: whether every later one does as well.
        at: held until then, see `application`.
        mode: of the journal.
    """

    name: str
    what: str
    sticky: bool
    at: str
    mode: str

    def nth(self, number: int) -> str:
        """As strace takes it."""
        how = "signal" if self.what == "KILL" else "error"
        return f"{self.name}:{how}={self.what}:when={number}{'+' if self.sticky else ''}"

    def __str__(self) -> str:
        return f"{self.what}{' from then on' if self.sticky else ''} at {self.name}, {self.at}, {self.mode}"


@dataclass(slots=True)
class Found:
    """What became of many runs.

    Args:
        runs: with a fault in each.
        wrong: what was wrong in any.
        ends: how many ended in each way.
    """

    runs: int = 0
    wrong: list[str] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)

    def add(self, other: Found) -> Found:
        """Take another one's into this one."""
        self.runs += other.runs
        self.wrong += other.wrong
        self.ends += other.ends
        return self

    def tell(self, numbers: Numbers, what: str, where: str) -> None:
        """Say it as numbers of a kind, and where they were found."""
        ends = ", ".join(f"{number} {end}" for end, number in sorted(self.ends.items()))
        counts = {"cases": self.runs, "killed": self.ends["killed"], **told_apart(self.wrong)}
        numbers.add(what, counts, note=f"{where}: {ends}")


def every_fault(
    server: ForkServer,
    program: str,
    fault: Fault,
    story: Any,
    *,
    numbers: Iterable[int] | None = None,
) -> Found:
    """Let the call of each number fail in a life of its own, until there is no such call.

    Args:
        program: of `application`: "session" or "keep".
        story: what a session tells to which nothing happens.
        numbers: which; None: every one from 1.
    """
    found = Found()
    for number in count(1) if numbers is None else numbers:
        with place_of_its_own() as place, place_of_its_own() as aside:
            life = Life(server, place, {})
            ended, met = run(life, program, fault, number, aside / "log")
            if not met:
                if ended.returncode != os.EX_OK or ended.told("failed"):
                    found.wrong.append(f"{fault}: number {number} was not met, and it ended with {ended}")
                break
            found.runs += 1
            found.ends[_end(ended)] += 1
            wrong = _wrong_end(ended, fault)
            wrong += judge_session(life, story) if program == "session" else judge_store(place, ended.said)
            found.wrong += [f"{fault}, number {number}: {w}" for w in wrong]
    return found


def run(life: Life, program: str, fault: Fault, number: int, log: Path) -> tuple[Ended, bool]:
    """One run with a fault: how it ended, and whether the fault was there."""
    running = life.server.start(program, **life.files, journal_mode=fault.mode, at=fault.at)
    running.wait_for("waiting")
    with injected(running.process_id, life.place, log, fault.nth(number), world=fault.what == "KILL"):
        running.kill(signal.SIGUSR1)
        ended = life.finish(running)
    if fault.what == "KILL":
        return ended, ended.returncode == -signal.SIGKILL
    return ended, "(INJECTED)" in log.read_text("ascii")


@cache
def calls_to_open(mode: str) -> Counter[str]:
    """How many calls of each name it takes to make a store, open it and close it."""
    with place_of_its_own() as place, place_of_its_own() as aside:
        return Counter(
            call.name for call in traced(child("opened", place, mode, "FULL"), place, aside / "log")
        )


def untouched(server: ForkServer) -> Any:
    """The story of a session to which nothing happens."""
    with place_of_its_own() as place:
        life = Life(server, place, {})
        life.finish(server.start("session", **life.files)).completed()
        found = life.examine(finished=True)
        assert found.wrong == []
        return found.story


def _end(ended: Ended) -> str:
    """In a word: killed, stopped by an error, told of failures, or neither."""
    if ended.returncode == -signal.SIGKILL:
        return "killed"
    failed = {name for names in ended.told("failed") for name in names}
    if failed:
        return "+".join(sorted(failed))
    told = {
        line["outcome"] for line in ended.said if "outcome" in line and ("command" in line or "lease" in line)
    }
    bad = sorted(told - {"committed", "done"})
    return "told " + "+".join(bad) if bad else "unharmed"


def _wrong_end(ended: Ended, fault: Fault) -> list[str]:
    wanted = -signal.SIGKILL if fault.what == "KILL" else os.EX_OK
    wrong = [] if ended.returncode == wanted else [f"expected to end with {wanted}, found {ended}"]
    return [*wrong, *not_about_the_disk(ended)]


def not_about_the_disk(ended: Ended) -> list[str]:
    """Failures that have another reason than the disk: then the fault was not what was tested."""
    reasons = [why for told in ended.told("why") for why in told]
    if not reasons or any(word in why for why in reasons for word in DISK_WORDS):
        return []
    return [f"it failed for another reason: {reasons}"]


# --- a session: held against witness, promises and the table, and lived to its end ---------------


def judge_session(life: Life, story: Any) -> list[str]:
    """What is wrong now, and at the end to which another process brings it."""
    wrong = [f"afterwards: {w}" for w in life.examine().wrong]
    last = life.start(journal_mode="auto")
    if last.returncode != os.EX_OK:
        return [*wrong, f"it could not be brought to its end: {last}"]
    at_last = life.examine(finished=True)
    wrong += [f"at the end: {w}" for w in at_last.wrong]
    if not same_story(at_last.story, story):
        wrong.append(f"it tells another story: {at_last.story}")
    return wrong


# --- a store: what each call told is what is there -------------------------------------------------


def judge_store(place: Path, said: list[dict[str, Any]]) -> list[str]:
    """Compare the answers with the file, and go on with it."""
    return anyio.run(_judge_store, place / "journal.db", said)


async def _judge_store(path: Path, said: list[dict[str, Any]]) -> list[str]:
    answers = {line["command"]: line["outcome"] for line in said if "command" in line}
    wrong: list[str] = []
    try:
        async with open_reader(path) as reader:
            wrong += [f"integrity: {damage}" for damage in await reader.damage()]
            rows = await reader.read(KEPT)
            there = [f"c{n}" for n in range(6) if await reader.command(KEPT, f"c{n}")]
            standing = await reader.session(KEPT)
    except NotAJournal:
        rows, there, standing = [], [], None
    wrong += list(untrue(answers, there))
    sequence, head = 0, genesis(KEPT)
    for row in rows:
        check_link(row, sequence, head)
        sequence, head = row.sequence, row.head
    if len(rows) != len(there):
        wrong.append(f"there are {len(rows)} events of {len(there)} commands")
    async with SqliteStore(path).open() as journal:
        holder = Holder("after", "l-after", this_process().boot_id)
        lease = await journal.leases.acquire(KEPT, holder, 30_000)
        fence = Fence(holder.worker_id, holder.lease_id, lease.token)
        receipt = await journal.commit(dummy_batch(Cursor(KEPT, sequence, head), "c-after", fence=fence))
    if receipt.status is not CommitStatus.COMMITTED:
        wrong.append(f"the next batch was {receipt.status}")
    leases = {line["lease"]: line["outcome"] for line in said if "lease" in line}
    return [*wrong, *lease_wrong(leases, answers, standing, lease.token)]


def untrue(answers: dict[str, str], there: list[str]) -> Iterator[str]:
    """Answers that the file does not bear out."""
    for command, outcome in answers.items():
        if outcome in ("committed", "found") and command not in there:
            yield f"{command} was told as {outcome}, and it is lost"
        if outcome in ("refused", "absent") and command in there:
            yield f"{command} was told as {outcome}, and it is there"
    for command in there:
        if command not in answers:
            yield f"{command} is there, and nobody was told"


def lease_wrong(
    leases: dict[str, str], answers: dict[str, str], standing: SessionRow | None, next_token: int
) -> Iterator[str]:
    """A lease that was not given for certain lets nobody write; what was given is on record.

    Args:
        standing: None while the session has no event, leased or not.
        next_token: of whoever came next; the first lease has the token 1.
    """
    acquired, released = leases.get("acquire"), leases.get("release")
    held = standing is not None and standing.lease is not None and standing.lease.lease_id is not None
    if acquired != "done" and answers:
        yield "it wrote without a lease"
    if acquired == "refused" and next_token != 1:
        yield "the lease was refused, and it was given"
    if acquired == "done" and next_token != 2:
        yield f"the lease was given, and the next one has the token {next_token}"
    if acquired == "done" and released in (None, "refused") and standing is not None and not held:
        yield "the lease was not given back, and nobody holds it"
    if released == "done" and held:
        yield "the lease was given back, and it is held"
